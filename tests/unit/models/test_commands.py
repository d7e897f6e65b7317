"""`voicejobs models`: what it prints, and its exit codes."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from voicejobs.cli.models import models
from voicejobs.errors import ModelUnavailable, UnknownModel
from voicejobs.models.catalogue import CATALOGUE, HubSource, ModelEntry
from voicejobs.settings import Settings

MakeEntry = Callable[..., ModelEntry]


@pytest.fixture
def invoke(settings: Settings, make_entry: MakeEntry, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a runner of the command line that sees the small model, and one that no source has."""
    for name, source in (("small", HubSource("owner/small", "abc123", "sub/")), ("gone", HubSource("x/y", "z"))):
        entry = make_entry(source)
        values = {field: getattr(entry, field) for field in ModelEntry.__slots__}
        monkeypatch.setitem(CATALOGUE, name, ModelEntry(**{**values, "name": name}))
    for name in [name for name in CATALOGUE if name not in {"small", "gone"}]:
        monkeypatch.delitem(CATALOGUE, name)
    for name, value in settings.to_env().items():
        monkeypatch.setenv(name, value)
    return lambda *arguments: CliRunner().invoke(models, arguments)


def test_list_shows_state_before_and_after(invoke: Callable[..., Result]) -> None:
    """The table and the JSON document tell whether a model is here."""
    assert "missing" in invoke("list").stdout
    assert invoke("pull", "small").exit_code == 0
    document = json.loads(invoke("list", "--json").stdout)
    assert {model["name"]: model["state"] for model in document["models"]} == {"small": "ready", "gone": "missing"}


def test_pull_tells_progress_on_standard_error(invoke: Callable[..., Result], settings: Settings) -> None:
    """Standard output has the outcome only; without a terminal the progress is plain lines on standard error."""
    result = invoke("pull", "small")
    assert result.stdout == f"small: verified in {settings.models_dir / 'small'}\n"
    assert re.search(r"^small: model\.bin from 127\.0\.0\.1:\d+ \(1\.0 MB\)$", result.stderr, re.MULTILINE)
    assert "\x1b" not in result.stderr


def test_pull_of_an_unknown_model_fetches_nothing(invoke: Callable[..., Result], hub: Any) -> None:
    """One name that does not exist stops the command before the first download."""
    result = invoke("pull", "small", "smal")
    assert isinstance(result.exception, UnknownModel)
    assert not hub.requests


def test_pull_that_fails_for_some_exits_with_3(invoke: Callable[..., Result]) -> None:
    """The others are pulled all the same."""
    result = invoke("pull", "gone", "small")
    assert result.exit_code == 3
    assert "small: verified" in result.stdout
    assert "gone: model gone could not be pulled" in result.stderr


def test_pull_that_fails_for_all_raises(invoke: Callable[..., Result]) -> None:
    """The error reaches the main function, which knows the exit code of each class."""
    assert isinstance(invoke("pull", "gone").exception, ModelUnavailable)


def test_verify_exits_with_9_on_damage(invoke: Callable[..., Result], settings: Settings) -> None:
    """A damaged file is found and named, with the command that repairs it."""
    invoke("pull", "small")
    assert invoke("verify").exit_code == 0
    (settings.models_dir / "small" / "config.json").write_bytes(b'{"b": 1}')
    result = invoke("verify")
    assert result.exit_code == 9
    assert "config.json" in result.stderr
    assert "voicejobs models pull small" in result.stderr


def test_verify_of_nothing_is_no_error(invoke: Callable[..., Result]) -> None:
    """Without names and without models there is nothing to find."""
    result = invoke("verify")
    assert (result.exit_code, result.stdout[:9]) == (0, "No models")


def test_bar_on_a_terminal(settings: Settings, hub: Any, tmp_path: Path) -> None:
    """On a terminal the pull draws a bar, and standard output still has the outcome only."""
    script = (
        "from voicejobs.cli.models import _showing\n"
        "from voicejobs.models.parts import PullEvent\n"
        "with _showing(quiet=False) as show:\n"
        "    show(PullEvent('small', 'model.bin from [here]', 1, 2))\n"
        "    show(PullEvent('small', 'other', 1))\n"
        "print('done')\n"
    )
    main, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=terminal, env=environment, check=True
    )
    os.close(terminal)
    drawn = os.read(main, 1 << 16)
    os.close(main)
    assert done.stdout == b"done\n"
    assert b"[here]" in drawn
