"""The commands of docker-compose.yml, started by hand: each as its own process, on servers of its own.

No container engine runs here. What a container would have is put in its place: a folder for its volume, secrets that
deploy/make-secrets makes, a free port for each port, and the engine `fake` for a model of 145 MB.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml
from numpy.typing import NDArray
from websockets.sync.client import connect

from tests.acceptance.harness import ROOT, example_speech, wait_for, write_recording
from tests.servers.process import die_with_parent, free_port
from tests.servers.valkey import find_binary

pytestmark = [pytest.mark.services, pytest.mark.timeout(180)]

PORTS = {"redis": 6379, "api": 8000, "engine": 50051, "flower": 5555}
IMAGE = dict(re.findall(r"(VOICEJOBS_\w+)=(\S+)", (ROOT / "Dockerfile").read_text()))
"""What the image says where the compose file says nothing."""


@dataclass(slots=True)
class Deployment:
    """Start services of the compose file as processes.

    Args:
        folder: what all containers together would write.
        database_url: address of an empty database.
    """

    folder: Path
    database_url: str
    services: dict[str, dict[str, Any]] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    processes: "dict[str, subprocess.Popen[bytes]]" = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
        self.ports = {name: free_port() for name in PORTS}
        environment = {**os.environ, "BROKER_HOST": f"127.0.0.1:{self.ports['redis']}"}
        subprocess.run(
            [ROOT / "deploy" / "make-secrets", self.secrets], check=True, env=environment, capture_output=True
        )
        (self.secrets / "database_url").write_text(self.database_url + "\n")
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "redis-server").symlink_to(find_binary())
        (self.folder / "models").mkdir()
        self.home.mkdir()
        (self.folder / "nowhere").touch()

    @property
    def secrets(self) -> Path:
        """Return the folder of the secrets."""
        return self.folder / "secrets"

    @property
    def home(self) -> Path:
        """Return the folder that is /var/lib/voicejobs in a container, where nothing can be written."""
        return self.folder / "home"

    def volume(self, name: str, volume: str) -> str:
        """Return where a volume is for a service: below a file, where nothing can be, if it does not mount it."""
        mounted = {one.partition(":")[0] for one in self.services[name].get("volumes", ())}
        return str(self.folder / (volume if volume in mounted else f"nowhere/{volume}"))

    def words(self, name: str, given: Sequence[str]) -> list[str]:
        """Return words of a service as they are here: paths, ports and the model put in their places."""
        private = self.folder / name
        private.mkdir(exist_ok=True)
        places = {
            "/run/secrets": str(self.secrets),
            "/var/lib/voicejobs/state": self.volume(name, "state"),
            "/var/lib/voicejobs/models": self.volume(name, "models"),
            "/tmp/": f"{private}/",
            "engine:50051": f"127.0.0.1:{self.ports['engine']}",
            "dir /data": f"dir {private}",
            "bind * -::*": "bind 127.0.0.1",
            "0.0.0.0": "127.0.0.1",
            "${VOICEJOBS_WORKER_MEMORY_MB:-0}": "0",
            "$$": "$",
            "redis-cli": f"redis-cli -p {self.ports['redis']}",
            **{str(port): str(self.ports[other]) for other, port in PORTS.items()},
        }
        # In one pass: what was put in place of a word is not looked at again.
        pattern = re.compile("|".join(map(re.escape, places)))
        return [pattern.sub(lambda found: places[found[0]], word) for word in given]

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment of a service."""
        ours: Mapping[str, str] = {**IMAGE, **self.services[name].get("environment", {})}
        kept = {key: value for key, value in os.environ.items() if not key.startswith("VOICEJOBS_")}
        values = dict(zip(ours, self.words(name, list(map(str, ours.values()))), strict=True))
        return {**kept, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(self.home), **values}

    def command(self, name: str) -> list[str]:
        """Return the command of a service."""
        words = self.words(name, self.services[name]["command"])
        if "build" not in self.services[name]:
            return words
        if name == "engine":
            place = words.index("--model")
            words[place : place + 2] = ["--engine", "fake"]
        return [sys.executable, "-P", "-m", "voicejobs.cli.main", *words]

    def start(self, name: str) -> None:
        """Start a service and wait until its health check succeeds."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                self.command(name), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment(name),
                cwd=self.home, start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGTERM),  # noqa: PLW1509 - a ctypes call and no lock; tests only
            )  # fmt: skip
        wait_for(lambda: self.is_healthy(name), f"the health of {name}: {self.log(name)}", 60)

    def is_healthy(self, name: str) -> bool:
        """Run the health check of a service."""
        code = self.processes[name].poll()
        assert code is None, f"{name} ended with {code}: {self.log(name)}"
        kind, *test = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        words = self.words(name, test)
        words[0] = sys.executable if words[0] == "python" else words[0]
        return subprocess.run(words, env=self.environment(name), capture_output=True, check=False).returncode == 0

    def log(self, name: str) -> str:
        """Return what a service has said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]

    def close(self) -> dict[str, int]:
        """End everything as a container engine does, last one first, and return the exit codes."""
        codes = {}
        for name, process in reversed(list(self.processes.items())):
            process.send_signal(signal.SIGTERM)
            try:
                codes[name] = process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                codes[name] = process.wait()
        self.processes.clear()
        return codes


@pytest.fixture
def deployment(tmp_path: Path, empty_postgres_url: str) -> Iterator[Deployment]:
    """Return a deployment of which nothing runs yet."""
    found = Deployment(tmp_path, empty_postgres_url)
    yield found
    found.close()


def run(deployment: Deployment, *words: str) -> str:
    """Run one of our commands with the settings of the API, as `docker compose run --rm api ...` does."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "voicejobs.cli.main", *words],
        env=deployment.environment("api"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def ended(http: httpx.Client, job_id: str) -> Callable[[], Any]:
    """Return a function that returns a job once it has ended."""

    def look() -> Any:
        job = http.get(f"/api/v1/jobs/{job_id}").raise_for_status().json()
        return job if job["status"] in {"succeeded", "failed"} else None

    return look


def last_caption(url: str, key: str, samples: NDArray[np.int16]) -> str:
    """Return the text of the last result of live captions."""
    with connect(f"{url.replace('http', 'ws', 1)}/api/v1/live", additional_headers={"authorization": key}) as socket:
        socket.send('{"type": "start"}')
        assert json.loads(socket.recv(timeout=30)) == {"type": "started"}
        socket.send(samples.astype("<i2").tobytes())
        socket.send('{"type": "end"}')
        text = ""
        while (told := json.loads(socket.recv(timeout=60)))["type"] != "done":
            assert told["type"] != "error", told
            text = told["text"]
    return text


def test_the_services_of_the_compose_file_do_a_job_together(deployment: Deployment) -> None:
    """Broker with its password, migration, API, engine, worker and Flower start and are healthy; a job goes through
    REST, and the engine gives the API live captions; nobody comes in without a key or a password; all end within their
    time, and wrote nowhere but into the volumes that they mount.
    """
    deployment.start("redis")
    migrate = subprocess.run(deployment.command("migrate"), env=deployment.environment("migrate"), check=False)
    assert migrate.returncode == 0
    for name in ("engine", "api", "worker-cpu", "flower"):
        deployment.start(name)
    url = f"http://127.0.0.1:{deployment.ports['api']}"
    with httpx.Client(base_url=url, timeout=30, trust_env=False) as http:
        assert http.get("/api/v1/jobs").status_code == 401
        key = run(deployment, "key", "create", "--name", "test", "--scope", "admin").split()
        http.headers["authorization"] = f"Bearer {next(word for word in key if word.startswith('vj_'))}"
        recording = write_recording(deployment.folder / "talk.wav", example_speech()[:48_000])
        file = http.post(
            "/v1/files", data={"purpose": "user_data"}, files={"file": ("talk.wav", recording.read_bytes())}
        ).raise_for_status().json()  # fmt: skip
        body = {"engine": "fake", "source": {"file_id": file["id"]}}
        job = http.post("/api/v1/jobs", json=body).raise_for_status().json()
        assert wait_for(ended(http, job["id"]), "the job", 60)["status"] == "succeeded"
        text = http.get(f"/api/v1/jobs/{job['id']}/transcript.txt").raise_for_status().text
        assert text.strip()
        assert last_caption(url, http.headers["authorization"], example_speech()[:48_000]).strip()
    flower = f"http://127.0.0.1:{deployment.ports['flower']}/workers"
    assert httpx.get(flower, trust_env=False).status_code == 401
    name, _, password = (deployment.secrets / "flower_auth").read_text().strip().partition(":")
    assert httpx.get(flower, auth=(name, password), trust_env=False, follow_redirects=True).status_code == 200
    began = time.monotonic()
    codes = deployment.close()
    assert {name: code for name, code in codes.items() if name != "redis"} == {
        "flower": codes["flower"], "worker-cpu": 0, "api": 0, "engine": 0,
    }  # fmt: skip
    assert codes["flower"] in {0, -signal.SIGTERM}
    assert time.monotonic() - began < 30
    assert not list(deployment.home.iterdir())
    assert not list((deployment.folder / "models").iterdir())


def test_the_broker_has_no_door_without_its_password(deployment: Deployment) -> None:
    """Without the password it answers nothing, with it nobody changes or empties the server, and it stands nowhere."""
    import psutil
    import redis

    deployment.start("redis")
    with redis.Redis(port=deployment.ports["redis"]) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    password = (deployment.secrets / "redis_password").read_text().strip()
    server = psutil.Process(deployment.processes["redis"].pid)
    assert password not in " ".join([*server.cmdline(), *server.environ().values()])
    assert password not in (deployment.folder / "redis" / "redis.conf").read_text()
    with redis.Redis(port=deployment.ports["redis"], password=password) as known:
        assert known.ping()
        assert known.info("memory")["maxmemory_policy"] == "noeviction"
        assert known.info("persistence")["aof_enabled"] == 0
        for words in (("CONFIG", "GET", "*"), ("FLUSHALL",), ("REPLICAOF", "NO", "ONE"), ("KEYS", "*"), ("SHUTDOWN",)):
            with pytest.raises(redis.exceptions.NoPermissionError):
                known.execute_command(*words)
