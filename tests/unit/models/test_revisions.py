"""Several revisions of a model on one machine, and the one that its plain name means."""

import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from voicejobs.cli.models import models
from voicejobs.errors import ModelUnavailable, UnknownModel
from voicejobs.models.catalogue import CATALOGUE, OLDER, ModelEntry, ModelFile, by_hash, find
from voicejobs.models.installed import PINS, chosen, resolve, use
from voicejobs.models.pull import ensure, pull
from voicejobs.settings import Settings

OLD, NEW = "abc123" + "0" * 34, "abd999" + "0" * 34
NEW_BYTES = b"other weights"


@pytest.fixture
def old(make_entry: Callable[..., ModelEntry], monkeypatch: pytest.MonkeyPatch) -> ModelEntry:
    """Return the one revision that the catalogue has at first."""
    entry = replace(make_entry(), revision=OLD)
    monkeypatch.setitem(CATALOGUE, "small", entry)
    return entry


@pytest.fixture
def upgrade(old: ModelEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], ModelEntry]:
    """Return a function that does what a new version of voicejobs does: it brings a newer revision."""
    source = tmp_path / "new"
    source.mkdir()
    (source / "model.bin").write_bytes(NEW_BYTES)
    file = ModelFile("model.bin", sha256(NEW_BYTES).hexdigest(), len(NEW_BYTES))
    new = replace(old, revision=NEW, files=(file,), sources=())

    def act() -> ModelEntry:
        monkeypatch.setitem(CATALOGUE, "small", new)
        monkeypatch.setitem(OLDER, "small", (old,))
        return new

    return act


def test_revisions_lie_side_by_side(
    old: ModelEntry, upgrade: Callable[[], ModelEntry], settings: Settings, tmp_path: Path
) -> None:
    """A newer revision leaves the older one where it is, and both are verified."""
    first = ensure("small", settings)
    new = upgrade()
    second = pull("small", settings, folder=tmp_path / "new")
    assert (first.dir.name, second.dir.name) == ("small", f"small@{NEW[:12]}")
    assert resolve(old, settings) == first
    assert resolve("small", settings) == second
    assert (resolve(f"small@{OLD[:6]}", settings), chosen("small", settings)) == (first, new)


def test_rolling_back_is_using_the_older_one(
    old: ModelEntry, upgrade: Callable[[], ModelEntry], settings: Settings, tmp_path: Path
) -> None:
    """The plain name then means the older revision, until the plain name is used again; jobs find theirs by hash."""
    ensure("small", settings)
    new = upgrade()
    pull("small", settings, folder=tmp_path / "new")
    assert use(f"small@{OLD[:4]}", settings) == old
    assert (chosen("small", settings), resolve("small", settings).sha256) == (old, old.sha256)
    assert chosen(f"small@{NEW}", settings) == new
    assert by_hash("small", new.sha256) == new
    assert by_hash("small", "") == new
    assert use("small", settings) == chosen("small", settings) == new


@pytest.mark.parametrize("text", ["", "[]", "{", '{"other": "1"}'])
def test_a_damaged_choice_means_the_default(old: ModelEntry, settings: Settings, text: str) -> None:
    """Nothing depends on the file that records the choice."""
    settings.models_dir.mkdir()
    (settings.models_dir / PINS).write_text(text)
    assert chosen("small", settings) == old


def test_only_what_is_here_can_be_used(old: ModelEntry, settings: Settings) -> None:
    """A revision that was not pulled, or does not exist, changes nothing."""
    with pytest.raises(ModelUnavailable, match="small"):
        use("small@abc", settings)
    for name, text in (("small@zz", "no revision"), ("small@", "no revision"), ("smal@abc", "smal")):
        with pytest.raises(UnknownModel, match=text):
            use(name, settings)
    assert not (settings.models_dir / PINS).exists()


def test_a_beginning_that_several_have_is_refused(old: ModelEntry, upgrade: Callable[[], ModelEntry]) -> None:
    """The hint lists them."""
    upgrade()
    with pytest.raises(UnknownModel, match="several") as caught:
        find("small@ab")
    assert f"small@{OLD[:12]}" in caught.value.hint


def test_the_command_shows_and_chooses(
    old: ModelEntry,
    upgrade: Callable[[], ModelEntry],
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`models list` has a line for each revision and says which is in use; `models use` changes it."""
    for name, value in settings.to_env().items():
        monkeypatch.setenv(name, value)

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(models, words)

    def in_use() -> dict[str, Any]:
        shown = json.loads(invoke("list", "--json").stdout)["models"]
        return {one["revision"]: (one["state"], one["in_use"]) for one in shown if one["name"] == "small"}

    ensure("small", settings)
    upgrade()
    assert in_use() == {NEW: ("missing", True), OLD: ("ready", False)}
    assert invoke("use", "small@abc").stdout.startswith(f"small: revision {OLD} is in use")
    assert in_use() == {NEW: ("missing", False), OLD: ("ready", True)}
    assert isinstance(invoke("use", "small").exception, ModelUnavailable)
    assert invoke("pull", f"small@{NEW}", "--from", str(tmp_path / "new")).exit_code == 0
    assert in_use()[NEW] == ("ready", False)
    table = invoke("list").stdout
    assert f"{OLD[:12]}" in table
    assert "IN USE" in table
