"""The files of a deployment say what they must: compose, images, systemd units, and the page that explains them.

No container engine runs here: the files are parsed, and `tests/acceptance/test_deployed.py` runs their commands.
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import click
import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
PUBLISHED = {"api", "flower", "prometheus", "grafana"}
SERVICES = {
    "redis", "postgres", "migrate", "models", "api", "engine", "worker-cpu", "worker-gpu", "flower", "prometheus",
    "grafana",
}  # fmt: skip
ENDING = {"migrate", "models"}
"""Services that do one thing and end."""
OF_JOBS = {"state:/var/lib/voicejobs/state", "models:/var/lib/voicejobs/models:ro"}
NEEDS: dict[str, tuple[set[str], set[str], set[str]]] = {
    "redis": (set(), {"redis_password"}, {"broker"}),
    "postgres": ({"postgres:/var/lib/postgresql"}, {"postgres_password"}, {"database"}),
    "migrate": (set(), {"database_url"}, {"database"}),
    "models": ({"models:/var/lib/voicejobs/models"}, set(), {"front"}),
    "api": (
        OF_JOBS,
        {"broker_url", "database_url", "webhook_secret", "api_engine_key"},
        {"front", "broker", "database", "engine"},
    ),
    "engine": ({"models:/var/lib/voicejobs/models:ro"}, {"engine_keys"}, {"engine"}),
    "worker-cpu": (OF_JOBS, {"broker_url", "database_url"}, {"broker", "database"}),
    "worker-gpu": (OF_JOBS, {"broker_url", "database_url"}, {"broker", "database"}),
    "flower": (set(), {"broker_url", "flower_auth"}, {"front", "broker"}),
    "prometheus": ({"prometheus:/prometheus"}, {"metrics_key"}, {"front"}),
    "grafana": ({"grafana:/var/lib/grafana"}, {"grafana_password"}, {"front"}),
}
"""Volumes, secrets and networks of each service, and no more; what of the tree is mounted, read-only, stands apart."""
INTERNAL = {"broker", "database", "engine"}
GRACE_S = 10.0
"""Time that our services have to end after SIGTERM, where their words say nothing else."""


def compose() -> dict[str, Any]:
    """Return the compose file; its anchors are merged by the parser."""
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    return found


def services() -> dict[str, dict[str, Any]]:
    """Return the services by name."""
    found: dict[str, dict[str, Any]] = compose()["services"]
    return found


def ours() -> dict[str, list[str]]:
    """Return the commands of the services that run an image of ours."""
    return {name: one["command"] for name, one in services().items() if "build" in one}


def check_command(words: list[str]) -> None:
    """Parse the words of `voicejobs` as the command line does, without running anything."""
    from voicejobs.cli.main import cli

    command: click.Command = cli
    context = click.Context(cli, info_name="voicejobs")
    rest = list(words)
    while isinstance(command, click.Group):
        name = rest.pop(0)
        child = command.get_command(context, name)
        assert child is not None, f"voicejobs has no command {name!r}"
        command, context = child, click.Context(child, info_name=name, parent=context)
    command.make_parser(context).parse_args(rest)


def test_the_services_are_those_that_a_deployment_needs() -> None:
    """Broker, database, migration, API, engine, workers, Flower; the card and the monitoring only where asked for."""
    found = services()
    assert set(found) == SERVICES
    profiles = {name: one["profiles"] for name, one in found.items() if "profiles" in one}
    assert profiles == {
        "models": ["setup"], "worker-gpu": ["gpu"], "prometheus": ["monitoring"], "grafana": ["monitoring"],
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_is_hardened(name: str) -> None:
    """No root, nothing writable but memory and volumes, no capability, no new privileges, no more than it needs."""
    one = services()[name]
    user = str(one["user"]).partition(":")[0]
    assert user.isdigit()
    assert int(user) > 0
    if "build" in one:
        assert one["user"] == "10001:10001"
    assert one["read_only"] is True
    assert one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]
    assert one["pids_limit"] > 0
    assert not {"privileged", "cap_add", "network_mode", "pid", "userns_mode"} & set(one)
    assert not [one for one in one.get("volumes", ()) if "docker.sock" in one]
    kept = one["logging"]["options"]
    assert one["logging"]["driver"] == "json-file"
    assert kept["max-size"] == "10m"
    assert int(kept["max-file"]) <= 10


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_has_what_it_needs_and_no_more(name: str) -> None:
    """Volumes, secrets and networks are those of the table: Flower writes nothing, weights are written by one alone."""
    one = services()[name]
    volumes, secrets, networks = NEEDS[name]
    assert {volume for volume in one.get("volumes", ()) if not volume.startswith("./")} == volumes
    assert set(one.get("secrets", ())) == secrets
    assert set(one["networks"]) == networks
    size = re.compile(r"\bsize=\d+[km]?\b")
    assert all(size.search(memory) for memory in one.get("tmpfs", ()))


def test_services_meet_in_a_network() -> None:
    """Each address that a service is given is that of a service in a network of its own, on the port it listens on."""
    found = services()
    for name, one in found.items():
        hosts = [other for other in one.get("depends_on", {}) if other not in ENDING]
        for other in hosts if name != "worker-gpu" else ["redis"]:
            assert set(one["networks"]) & set(found[other]["networks"]), (name, other)
    assert set(found["prometheus"]["networks"]) & set(found["api"]["networks"])
    assert set(found["migrate"]["networks"]) == set(found["postgres"]["networks"])


def test_services_have_time_to_end() -> None:
    """A container is not killed before its workers have given back their leases, or its requests have ended."""
    for name, words in ours().items():
        assert "--grace" not in words, name
        assert float(services()[name]["stop_grace_period"].removesuffix("s")) >= 2 * GRACE_S
    for kind in ("worker", "api", "engine"):
        assert default_of(kind, "grace") == GRACE_S
    for unit in UNITS:
        waits = dict(lines_of(unit)).get("TimeoutStopSec")
        assert waits is None or float(waits) >= 2 * GRACE_S, unit.name


def default_of(kind: str, option: str) -> object:
    """Return the default of an option of `voicejobs serve KIND`."""
    from voicejobs.cli.serve import serve

    (found,) = (one for one in serve.commands[kind].params if one.name == option)
    return found.default


def test_live_captions_have_an_engine(tmp_path: Path) -> None:
    """The API names the engine of the compose file, and has the key whose hash the engine knows; so have the units."""
    from voicejobs.rpc.access import Keys

    found = services()
    api, words = found["api"], found["engine"]["command"]
    port = words[words.index("--address") + 1].rpartition(":")[2]
    assert api["environment"]["VOICEJOBS_API_ENGINE_URL"] == f"grpc://engine:{port}"
    # Without the engine only captions are refused: nobody waits for its weights.
    assert api["depends_on"]["engine"] == {"condition": "service_started"}
    unit = (ROOT / "deploy" / "systemd" / "voicejobs-api.service").read_text()
    engine = (ROOT / "deploy" / "systemd" / "voicejobs-engine.service").read_text()
    (address,) = re.findall(r"--address (\S+)", engine)
    assert f"Environment=VOICEJOBS_API_ENGINE_URL=grpc://{address}\n" in unit
    assert "Environment=VOICEJOBS_API_ENGINE_KEY_FILE=%d/api_engine_key\n" in unit
    old = tmp_path / "old"
    old.mkdir()
    (old / "engine_keys").write_text("somebody=0123456789abcdef\n")
    for folder in (tmp_path / "new", old):
        subprocess.run([ROOT / "deploy" / "make-secrets", folder], check=True, capture_output=True)
        known = (folder / "engine_keys").read_text()
        key = (folder / "api_engine_key").read_text().strip()
        assert Keys(known).name_of(key) == "api"
        assert key not in known
    assert Keys((old / "engine_keys").read_text()).name_of("0123456789abcdef") == "somebody"


def test_only_what_asks_for_credentials_is_published_and_on_loopback_alone() -> None:
    """Broker, database, workers and the voice engine have no port, and are in networks that lead nowhere."""
    found = services()
    assert {name for name, one in found.items() if one.get("ports")} == PUBLISHED
    for name in PUBLISHED:
        assert all(port.startswith("127.0.0.1:") for port in found[name]["ports"])
    assert {name for name, one in compose()["networks"].items() if one.get("internal") is True} == INTERNAL
    for name in ("redis", "postgres", "worker-cpu", "worker-gpu", "engine", "migrate"):
        assert set(found[name]["networks"]) <= INTERNAL


def test_secrets_are_files_and_stand_nowhere_else() -> None:
    """Each secret that a service uses is declared, made by deploy/make-secrets, and named by its file only."""
    declared = set(compose()["secrets"])
    used = {secret for one in services().values() for secret in one.get("secrets", ())}
    assert used == declared
    for one in services().values():
        for name, value in one.get("environment", {}).items():
            if re.search(r"PASSWORD|KEY|AUTH|SECRET|BROKER_URL|DATABASE_URL", name):
                assert name.endswith("_FILE"), name
                assert str(value).startswith("/run/secrets/"), name
                assert str(value).removeprefix("/run/secrets/") in one["secrets"], name
        words = " ".join(map(str, one.get("command", ())))
        named = set(re.findall(r"/run/secrets/(\w+)", words))
        assert named <= set(one.get("secrets", ()))
        assert not re.search(r"--requirepass|redis://:|postgresql\S*:\S*@", words)


def test_secrets_are_made_once_and_fit_each_other(tmp_path: Path) -> None:
    """The script makes every secret of the compose file, readable through a folder that others cannot enter."""
    folder = tmp_path / "secrets"
    script = ROOT / "deploy" / "make-secrets"
    subprocess.run([script, folder], check=True, capture_output=True)
    first = {path.name: path.read_text() for path in folder.iterdir()}
    assert set(first) == set(compose()["secrets"])
    assert folder.stat().st_mode & 0o777 == 0o700
    password = first["redis_password"].strip()
    assert len(password) == 64
    assert first["broker_url"] == f"redis://:{password}@redis:6379/0\n"
    assert first["postgres_password"].strip() in first["database_url"]
    subprocess.run([script, folder], check=True, capture_output=True)
    assert {path.name: path.read_text() for path in folder.iterdir()} == first


def test_every_long_running_service_has_a_health_check() -> None:
    """What goes on has a check that can fail, and who needs a service waits for its health."""
    found = services()
    for name, one in found.items():
        if name in ENDING:
            assert one["restart"] == "no"
            continue
        assert one["healthcheck"]["test"][0] == "CMD", name
        assert one["restart"] == "unless-stopped", name
        for other, how in one.get("depends_on", {}).items():
            assert other in found
            if how["condition"] == "service_healthy":
                assert "healthcheck" in found[other]
            if how["condition"] == "service_completed_successfully":
                assert other in ENDING


@pytest.mark.parametrize("name", sorted(ours()))
def test_every_command_of_a_service_exists(name: str) -> None:
    """The command line knows the command and each of its options."""
    check_command([word.replace("${VOICEJOBS_WORKER_MEMORY_MB:-0}", "0") for word in ours()[name]])


def test_settings_of_services_exist() -> None:
    """No variable of ours in the compose file or in a unit is unknown to the settings."""
    from voicejobs.settings import Settings

    for name in ours():
        environment = {key: str(value) for key, value in services()[name].get("environment", {}).items()}
        Settings.from_env({key: value for key, value in environment.items() if not key.endswith("_FILE")})
    known = set(Settings.from_env({"HOME": "/nonexistent"}).to_env()) | {
        f"VOICEJOBS_{name}"
        for name in ("BROKER_URL", "DATABASE_URL", "FLOWER_AUTH", "WEBHOOK_SECRET", "API_ENGINE_URL", "API_ENGINE_KEY")
    }
    for unit in UNITS:
        for variable in re.findall(r"^Environment=(VOICEJOBS_\w+)=", unit.read_text(), re.MULTILINE):
            assert variable.removesuffix("_FILE") in known, variable


def test_files_that_are_mounted_exist() -> None:
    """Each path of the tree that a service mounts is there, and is mounted read-only."""
    mounted = [volume for one in services().values() for volume in one.get("volumes", ()) if volume.startswith("./")]
    assert len(mounted) >= 3
    for volume in mounted:
        here, _, rest = volume.partition(":")
        assert (ROOT / here).exists(), here
        assert rest.endswith(":ro"), volume


def test_prometheus_asks_the_api_with_its_key() -> None:
    """It asks the service of the compose file, with the key that is mounted for it."""
    found = yaml.safe_load((ROOT / "deploy" / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = found["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["api:8000"]}]
    assert job["authorization"]["credentials_file"] == "/run/secrets/metrics_key"
    assert "metrics_key" in services()["prometheus"]["secrets"]


def test_workers_of_one_machine_see_the_same_memory() -> None:
    """Decoded audio may lie in shared memory: the worker of a card shares it with the one that decodes."""
    found = services()
    assert found["worker-cpu"]["ipc"] == "shareable"
    assert found["worker-gpu"]["ipc"] == "service:worker-cpu"


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, their lines joined."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def stages() -> dict[str, list[tuple[str, str]]]:
    """Return the instructions of each stage, those of the stages below it first."""
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for word, rest in instructions():
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found[name] = list(found.get(base, ()))
        elif name:
            found[name].append((word, rest))
    return found


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_an_image_runs_as_nobody_outside_its_code(target: str) -> None:
    """Both targets end as user 10001 in a folder without code, with the command line as entry and no secret inside."""
    said = stages()[target]
    assert [rest for word, rest in said if word == "USER"] == ["10001:10001"]
    assert [rest for word, rest in said if word == "WORKDIR"][-1] == "/var/lib/voicejobs"
    # A volume of the image would give a writable folder to those that mount none.
    assert not [rest for word, rest in said if word == "VOLUME"]
    (made,) = re.findall(r"install -d -o 10001 -g 10001 -m 0700 ([^&]+)", " ".join(rest for _, rest in said))
    mounted = {volume.split(":")[1] for volume in OF_JOBS}
    assert mounted < set(made.split())
    copied = [rest for word, rest in said if word == "COPY"]
    assert len(copied) == 1
    assert copied[0].endswith("/opt/venv /opt/venv")
    assert [rest for word, rest in said if word == "ENTRYPOINT"] == ['["voicejobs"]']
    assert not [rest for word, rest in said if word in {"ENV", "ARG"} and re.search(r"PASSWORD|SECRET|_KEY", rest)]


def test_the_images_install_extras_that_exist() -> None:
    """Each extra that the Dockerfile names is one of setup.cfg, and the build context holds all that it copies."""
    from configparser import ConfigParser

    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    text = (ROOT / "Dockerfile").read_text()
    named = {extra for found in re.findall(r"'\.\[([\w,]+)\]'", text) for extra in found.split(",")}
    assert named
    assert named <= set(setup["options.extras_require"])
    context = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().split() if line.startswith("!")}
    sources = [rest.split() for word, rest in instructions() if word == "COPY" and "--from" not in rest]
    assert {word for words in sources for word in words[:-1]} == context
    assert all((ROOT / name).exists() for name in context)


def test_the_build_context_is_enough_for_the_wheel(tmp_path: Path) -> None:
    """What .dockerignore lets through builds, offline, a wheel with the library, the launcher and the migrations."""
    for line in (ROOT / ".dockerignore").read_text().split():
        name = line.removeprefix("!")
        if line != name and (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif line != name:
            shutil.copy(ROOT / name, tmp_path)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "-w", tmp_path / "out", "."], cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = (tmp_path / "out").glob("voicejobs-*.whl")
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for name in ("voicejobs/api/__main__.py", "voicejobs_workers/launcher.py", "voicejobs_migrations/env.py"):
        assert name in names


def test_compose_names_targets_of_the_dockerfile() -> None:
    """Each `build` of the compose file is a stage."""
    targets = {one["build"]["target"] for one in services().values() if "build" in one}
    assert targets == {"cpu", "cuda"}
    assert targets <= set(stages())


def lines_of(unit: Path) -> Iterator[tuple[str, str]]:
    """Yield names and values of a unit file."""
    for line in unit.read_text(encoding="utf-8").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            yield name, value


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_every_unit_is_hardened_and_runs_a_command_that_exists(unit: Path) -> None:
    """No root, no new privileges, a read-only system, secrets as credentials, and words that the command line knows."""
    values = dict(lines_of(unit))
    assert values["User"] == "voicejobs"
    assert values["NoNewPrivileges"] == "yes"
    assert values["ProtectSystem"] == "strict"
    assert values["CapabilityBoundingSet"] == ""
    assert values["WorkingDirectory"] == "/var/lib/voicejobs"
    assert not [value for name, value in lines_of(unit) if name == "Environment" and "_FILE=" not in value
                and re.search(r"KEY|PASSWORD|BROKER|DATABASE", value)]  # fmt: skip
    credentials = {value.partition(":")[0] for name, value in lines_of(unit) if name == "LoadCredential"}
    assert set(re.findall(r"(?:%d|\$\{CREDENTIALS_DIRECTORY\})/(\w+)", unit.read_text())) == credentials
    program, *words = shlex.split(values["ExecStart"])
    assert program == "/opt/voicejobs/bin/voicejobs"
    check_command(words)


def test_units_that_read_and_write_blobs_reach_a_share() -> None:
    """Where docs/deploy.md mounts the blobs of many machines, the read-only system of these units has a hole."""
    (place,) = set(re.findall(r"VOICEJOBS_BLOBS_URL=(/\w+/\w+)", (ROOT / "docs" / "deploy.md").read_text()))
    for name in ("api", "worker", "watch@"):
        unit = ROOT / "deploy" / "systemd" / f"voicejobs-{name}.service"
        assert ("ReadWritePaths", f"-{place}") in list(lines_of(unit))


def test_systemd_understands_the_units(tmp_path: Path) -> None:
    """`systemd-analyze verify` finds nothing but that the program is not installed here."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is missing")
    copies = [shutil.copy(unit, tmp_path) for unit in UNITS]
    done = subprocess.run([analyze, "verify", "--man=no", *copies], capture_output=True, text=True, check=False)
    told = [line for line in done.stderr.splitlines() if tmp_path.name in line or "voicejobs" in line]
    assert [line for line in told if "is not executable" not in line] == []


def test_every_line_of_the_checklist_leads_to_a_test_or_a_metric() -> None:
    """docs/deploy.md: each row of the checklist names tests and files that exist, or metrics that the service has."""
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    section = page.split("## Checklist", maxsplit=1)[1].split("\n## ", maxsplit=1)[0]
    rows = [line.split("|")[1:-1] for line in section.splitlines() if re.match(r"\| [AB]\d", line)]
    needed = {f"A{number}" for number in range(35, 43)} | {f"B{number}" for number in range(16, 27)}
    assert needed <= {name for row in rows for name in re.findall(r"[AB]\d+", row[0])}
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "voicejobs").rglob("*.py"))
    for row in rows:
        names = re.findall(r"`([^`]+)`", row[-1])
        assert names, row
        for name in names:
            path, _, function = name.partition("::")
            if name.startswith("voicejobs_"):
                assert name in sources or name.removeprefix("voicejobs_") in sources, f"{name} is no metric"
            else:
                assert (ROOT / path).exists(), name
                assert not function or re.search(
                    rf"^(?:async )?def {function}\(", (ROOT / path).read_text(), re.MULTILINE
                ), name
