"""Options of every command: where they may stand, and what decides on colour."""

import json
from pathlib import Path
from typing import Any

import pytest

from voicejobs.cli.globals import Globals, may_redraw, wants_color
from voicejobs.cli.main import run
from voicejobs.errors import BadOption


@pytest.mark.parametrize(
    ("choice", "env", "outcome"),
    [
        ("auto", {}, None),
        ("auto", {"NO_COLOR": ""}, None),
        ("auto", {"NO_COLOR": "1"}, False),
        ("auto", {"FORCE_COLOR": "1"}, True),
        ("auto", {"FORCE_COLOR": "0"}, None),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ("auto", {"TERM": "dumb"}, False),
        ("auto", {"CI": "true"}, False),
        ("auto", {"CI": "true", "FORCE_COLOR": "3"}, True),
        ("always", {"NO_COLOR": "1"}, True),
        ("never", {"FORCE_COLOR": "1"}, False),
    ],
)
def test_who_decides_on_colour(choice: str, env: dict[str, str], *, outcome: bool | None) -> None:
    """The option, then NO_COLOR, FORCE_COLOR, a dumb terminal or a build server, then the stream itself."""
    assert wants_color(choice, env) is outcome


@pytest.mark.parametrize(("env", "outcome"), [({}, True), ({"TERM": "dumb"}, False), ({"CI": "1"}, False)])
def test_who_decides_on_bars(env: dict[str, str], *, outcome: bool) -> None:
    """Neither a dumb terminal nor a build server is redrawn."""
    assert may_redraw(env) is outcome


def test_variables_set_global_options() -> None:
    """VOICEJOBS_QUIET and the others say what the options would; wrong values are refused by name."""
    env = {"VOICEJOBS_QUIET": "1", "VOICEJOBS_VERBOSE": "2", "VOICEJOBS_COLOR": "always", "VOICEJOBS_PROFILE": "p"}
    found = Globals.from_env(env)
    assert (found.quiet, found.verbose, found.color, found.profile) == (True, 2, True, "p")
    with pytest.raises(BadOption, match="VOICEJOBS_COLOR"):
        Globals.from_env({"VOICEJOBS_COLOR": "green"})


def test_a_wrong_variable_is_an_error_of_the_command(
    somewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has three parts like any other, whatever it would have decided."""
    monkeypatch.setenv("VOICEJOBS_COLOR", "green")
    assert run(["job", "list"]) == 7
    assert capsys.readouterr().err.startswith("error: VOICEJOBS_COLOR='green' is not valid [bad_option]\n  It is one")


@pytest.fixture
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with nothing configured."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VOICEJOBS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    return tmp_path


@pytest.mark.parametrize("words", ["-q --profile p job list", "job list -q --profile p", "-q job list --profile p"])
def test_global_options_stand_before_or_after_the_command(
    words: str, somewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The profile counts wherever it is named, also where only a variable names it."""
    (somewhere / "voicejobs.toml").write_text("[profile.p.job.list]\njson = true\n")
    assert run(words.split()) == 0
    assert json.loads(capsys.readouterr().out) == {"v": 1, "jobs": []}


def test_the_log_goes_to_the_file_that_is_named(somewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON lines tell when the command began and how it ended; nothing of it is shown without -v."""
    assert run(["job", "show", "none", "--log-file", "log"]) == 7
    lines = [json.loads(line) for line in (somewhere / "log").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["command started", "command ended with an error"]
    assert lines[1]["code"] == "no_such_record"
    assert "command started" not in capsys.readouterr().err
    assert run(["job", "list", "-v"]) == 0
    assert "command started" in capsys.readouterr().err
    assert run(["job", "list", "--log-file", "no/such/folder"]) == 7


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("trancribe a.wav", "Did you mean 'transcribe'?"),
        ("job lsit", "Did you mean 'list'?"),
        ("a.mp3", "voicejobs transcribe a.mp3"),
        ("some/folder -f srt", "voicejobs transcribe some/folder -f srt"),
        ("--model base a.mp3", "voicejobs transcribe --model base a.mp3"),
        ("--model base", "The options of a command stand after its name"),
        ("job list --stat failed", "--state"),
        ("models use bsae", "Did you mean 'base'?"),
        ("transcribe a.mp3 --diarize", "--channels split"),
    ],
)
def test_slips_are_met_with_a_suggestion(words: str, text: str, somewhere: Path, capsys: Any) -> None:
    """Every error has three parts: what is wrong, its code, and what to do."""
    assert run(words.split()) in {2, 7}
    first, second = capsys.readouterr().err.splitlines()
    assert text in first + second
    assert first.startswith("error: ")
    assert first.endswith("]")
    assert second.startswith("  ")


def test_an_unforeseen_error_has_three_parts_too(
    somewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The traceback is for those who ask for it."""

    def broken(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("odd")

    monkeypatch.setattr("voicejobs.queries.list_jobs", broken)
    assert run(["job", "list"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("error: ZeroDivisionError: odd [internal]\n")
    assert "Traceback" not in told
    assert run(["job", "list", "-v"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_file_that_was_read_as_an_option_is_advised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`-late.mp3` is `-l ate.mp3`, which is no language: the message says how to name the file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-late.mp3").touch()
    assert run(["transcribe", "-late.mp3"]) == 2
    assert "./-late.mp3" in capsys.readouterr().err
    assert run(["transcribe", "-l", "nope", "--", "-late.mp3"]) == 2
    assert "./-late.mp3" not in capsys.readouterr().err
