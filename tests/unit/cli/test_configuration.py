"""Which value counts, where it comes from, and what is wrong with a file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from voicejobs.cli import configuration
from voicejobs.cli.configuration import load
from voicejobs.cli.main import run
from voicejobs.errors import BadConfiguration, BadOption
from voicejobs.settings import COMMANDS, Settings


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Return a function that writes `local`, `project`, `user` or `system` configuration."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("VOICEJOBS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(configuration, "SYSTEM_FILE", tmp_path / "etc.toml")
    places = {
        "local": tmp_path / "here" / "voicejobs.toml",
        "project": tmp_path / "here" / "pyproject.toml",
        "user": tmp_path / "xdg" / "voicejobs" / "config.toml",
        "system": tmp_path / "etc.toml",
    }

    def put(place: str, text: str) -> Path:
        places[place].parent.mkdir(parents=True, exist_ok=True)
        places[place].write_text(text)
        return places[place]

    return put


Write = Callable[[str, str], Path]


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """Return what `config show --json` says."""
    assert run(["config", "show", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)["config"]


def test_what_counts_more(write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Variable, profile, file of the folder, of the user, of the machine, default: each hides those after it."""
    steps = [("default", 60.0)]
    for number, place in enumerate(("system", "user", "local"), 1):
        write(place, f"lease_s = {number}\n")
        steps.append((place, float(number)))
        found = shown(capsys)["settings"]["lease_s"]
        assert found["value"] == number
        assert found["origin"].endswith(":1 lease_s")
    write("user", "lease_s = 2\n[profile.p]\nlease_s = 4\n")
    assert shown(capsys, "--profile", "p")["settings"]["lease_s"]["value"] == 4
    monkeypatch.setenv("VOICEJOBS_LEASE_S", "5")
    assert shown(capsys, "--profile", "p")["settings"]["lease_s"] == {"value": 5.0, "origin": "VOICEJOBS_LEASE_S"}


def test_defaults_of_options(write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line counts more than VOICEJOBS_JOB_LIST_JSON, and that more than a file."""
    write("local", "[job.list]\nlimit = 3\njson = true\n")
    assert run(["job", "list"]) == 0
    assert json.loads(capsys.readouterr().out) == {"v": 1, "jobs": []}
    monkeypatch.setenv("VOICEJOBS_JOB_LIST_JSON", "false")
    assert run(["job", "list"]) == 0
    assert capsys.readouterr().out.startswith("JOB")
    assert run(["job", "list", "--json"]) == 0
    assert capsys.readouterr().out.startswith("{")
    assert shown(capsys)["options"]["job list"]["limit"]["origin"].endswith("voicejobs.toml:2 job.list.limit")


def test_pyproject_counts_where_there_is_no_file_of_ours(write: Write) -> None:
    """A pyproject.toml without our table says nothing."""
    write("project", '[project]\nname = "x"\n')
    assert load().documents == ()
    write("project", '[tool.voicejobs]\nlease_s = 7\n[tool.voicejobs.transcribe]\nmodel = "tiny.en"\n')
    assert load().settings().lease_s == 7
    write("local", "")
    assert load().settings().lease_s == 60


def test_a_file_that_is_named_replaces_the_others(write: Write, tmp_path: Path) -> None:
    """With --config only that file counts; one that is not there is an error."""
    write("local", "lease_s = 1\n")
    path = tmp_path / "other.toml"
    path.write_text("linger_s = 9\n")
    assert (load(path).settings().lease_s, load(path).settings().linger_s) == (60, 9)
    with pytest.raises(BadConfiguration, match="is not there"):
        load(tmp_path / "none.toml")


def test_folders_in_a_file_begin_at_the_file(write: Write, tmp_path: Path) -> None:
    """A relative folder does not depend on where the command runs; `~` is understood."""
    path = write("user", 'models_dir = "models"\n')
    assert load().settings().models_dir == path.parent / "models"
    write("user", 'models_dir = "~/models"\n')
    assert load().settings().models_dir == tmp_path / "models"


def test_secrets_from_files(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`*_FILE` reads a secret from a file, in variables and in configuration; two values are one too many."""
    (tmp_path / "url").write_text("redis://h/3\n")
    write("local", f'broker_url_file = "{tmp_path / "url"}"\n')
    assert load().settings().broker_url == "redis://h/3"
    write("local", f'broker_url = "redis://a"\nbroker_url_file = "{tmp_path / "url"}"\n')
    with pytest.raises(BadConfiguration, match="both set"):
        load().settings()
    home = {"HOME": str(tmp_path)}
    env = {**home, "VOICEJOBS_DATABASE_URL_FILE": str(tmp_path / "url")}
    assert Settings.from_env(env).database_url == "redis://h/3"
    with pytest.raises(BadOption, match="both set"):
        Settings.from_env({**env, "VOICEJOBS_DATABASE_URL": "x"})
    for content in (None, ""):
        (tmp_path / "odd").unlink(missing_ok=True)
        if content is not None:
            (tmp_path / "odd").write_text(content)
        with pytest.raises(BadOption, match="VOICEJOBS_BROKER_URL_FILE"):
            Settings.from_env({**home, "VOICEJOBS_BROKER_URL_FILE": str(tmp_path / "odd")})


def test_passwords_are_masked(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing that could be a password is shown, in neither form."""
    keys = 'openai_key = "geheim"\nremote_key = "geheim"\nrpc_keys = "a=geheim"\n'
    write("local", f'broker_url = "redis://me:geheim@h/1?password=geheim"\ndatabase_url = "geheim"\n{keys}')
    assert run(["config", "show", "--origin"]) == 0
    assert run(["config", "show", "--json"]) == 0
    told = capsys.readouterr().out
    assert "geheim" not in told
    assert "redis://me:***@h/1?password=***" in told


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("lease = 3\n", ":1 lease: lease is no setting", "Did you mean lease_s?"),
        ("\n\n[transcibe]\n", ":3 transcibe: ", "Did you mean transcribe?"),
        ("lease_s = 'soon'\n", ":1 lease_s = 'soon' is not a valid float", "docs/settings.md"),
        ("offline = 1\n", "is not a valid bool", "docs/settings.md"),
        ("max_attempts = true\n", "is not a valid int", "docs/settings.md"),
        ("transcribe = 3\n", "is a table of options", "docs/configuration.md"),
        ("[lease_s]\n", "is a setting, and no table", "docs/configuration.md"),
        ("[transcribe]\nmodle = 'x'\n", ":2 transcribe.modle: ", "Did you mean model?"),
        ("[transcribe]\nbeam_size = 99\n", ":2 transcribe.beam_size: --beam-size: 99", "--help"),
        ("[transcribe]\nmodel = ['a']\n", "takes one value", "validate"),
        ("[job]\nlimit = 3\n", "is an option of no command", "[job."),
        ("[job.lits]\n", "has no command 'lits'", "Did you mean list?"),
        ("[profile.p]\nlease = 3\n", ":2 profile.p.lease: ", "Did you mean lease_s?"),
        ("state_dir = ''\n", "is empty", "Name a folder"),
        ("a = \n", "is no TOML", "quotes"),
    ],
)
def test_faults_name_file_and_line(
    text: str, message: str, hint: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """`config validate` finds each, names the place and says what to do."""
    write("local", text)
    assert run(["config", "validate"]) in {7, 9}
    told = capsys.readouterr().err
    assert "error: voicejobs.toml" in told
    assert message in told
    assert hint in told


def test_all_faults_are_found_at_once(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    """A file with five faults needs one look, and a command refuses it at the first."""
    write("local", "lease = 3\nlinger_s = 'x'\n[transcribe]\na = 1\nb = 2\n[profile.p.transcribe]\nc = 3\n")
    assert run(["config", "validate"]) == 9
    assert capsys.readouterr().err.count("error: ") == 5
    assert run(["job", "list"]) == 7


def test_names_in_the_environment(write: Write, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """A variable that sets no option of the command is refused; those of other commands are left alone."""
    monkeypatch.setenv("VOICEJOBS_JOB_LIST_LIMTI", "3")
    assert run(["job", "list"]) == 7
    assert "Did you mean limit?" in capsys.readouterr().err
    assert run(["batch", "list"]) == 0
    with pytest.raises(BadOption, match="VOICEJOBS_LEASE"):
        Settings.from_env({"HOME": "/h", "VOICEJOBS_LEASE": "3"})


def test_profiles_must_exist(write: Write) -> None:
    """A profile that no file has is an error with a suggestion."""
    write("local", "[profile.fast]\nlinger_s = 1\n")
    assert load(profile="fast").settings().linger_s == 1
    with pytest.raises(BadConfiguration, match="'fats'") as caught:
        load(profile="fats")
    assert "fast" in caught.value.hint


def test_init_writes_a_file_that_is_valid_and_never_replaces_one(write: Write, capsys: Any) -> None:
    """What it writes changes nothing, commented out or not."""
    assert run(["config", "init"]) == 0
    path = Path("voicejobs.toml")
    plain = load().settings()
    text = path.read_text()
    assert {f"# {name} = " in text for name in configuration.SETTINGS} == {True}
    assert run(["config", "init"]) == 7
    assert path.read_text() == text
    live = [line[2:] for line in text.splitlines() if " = " in line and line.startswith("# ") and "_dir" not in line]
    path.write_text("\n".join(line for line in live if line.split(" =")[0] in configuration.SETTINGS))
    assert load().settings() == plain
    assert run(["config", "init", "--user"]) == 0
    assert run(["config", "validate"]) == 0


def test_paths_are_shown_in_their_order(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`config path` tells which files would be read, and which are."""
    write("user", "")
    assert run(["config", "path", "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert [Path(one["path"]).name for one in files] == ["voicejobs.toml", "config.toml", "etc.toml"]
    assert [one["read"] for one in files] == [False, True, False]


def test_settings_know_the_commands() -> None:
    """Variables of a command are told from misspelt settings by its name."""
    from voicejobs.cli.main import cli

    context = __import__("click").Context(cli)
    assert sorted(COMMANDS) == sorted(name.upper() for name in cli.list_commands(context))
