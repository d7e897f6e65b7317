"""Models on this machine: cheap where nothing changed, hashed where something did, never unverified."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from voicejobs.errors import BadOption, DiskFull, ModelCorrupt, ModelUnavailable
from voicejobs.models import installed
from voicejobs.models.catalogue import ModelEntry
from voicejobs.models.installed import MARKER, resolve, state, verify
from voicejobs.models.pull import ensure, pull
from voicejobs.settings import Settings

MakeEntry = Callable[..., ModelEntry]


def test_missing_model_names_the_command_that_brings_it(settings: Settings) -> None:
    """A model that is not here is an error whose hint is the command to type."""
    with pytest.raises(ModelUnavailable, match="base is not on this machine") as caught:
        resolve("base", settings)
    assert "voicejobs models pull base" in caught.value.hint


def test_untouched_files_are_not_hashed_again(
    settings: Settings, make_entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once verified, resolving a model reads no weights."""
    files = pull(make_entry(), settings)
    monkeypatch.setattr(installed, "hash_file", lambda path: pytest.fail("hashed"))
    assert resolve(make_entry(), settings) == files


def test_changed_file_is_refused(settings: Settings, make_entry: MakeEntry) -> None:
    """A file with another content and another time is found out and named."""
    path = pull(make_entry(), settings).dir / "model.bin"
    path.write_bytes(b"x" * path.stat().st_size)
    os.utime(path, (1, 1))
    with pytest.raises(ModelCorrupt, match=r"model\.bin"):
        resolve(make_entry(), settings)


def test_verify_finds_what_the_stamps_hide(settings: Settings, make_entry: MakeEntry) -> None:
    """A full verification finds a changed bit under an unchanged time, and from then on the model is refused."""
    path = pull(make_entry(), settings).dir / "model.bin"
    status = path.stat()
    path.write_bytes(b"x" * status.st_size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(ModelCorrupt):
        verify(make_entry(), settings)
    with pytest.raises(ModelCorrupt):
        resolve(make_entry(), settings)


def test_touched_file_is_hashed_once_and_stays_good(
    settings: Settings, make_entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new time on the same content costs one hash; its outcome is recorded."""
    path = pull(make_entry(), settings).dir / "model.bin"
    os.utime(path, (1, 1))
    resolve(make_entry(), settings)
    monkeypatch.setattr(installed, "hash_file", lambda path: pytest.fail("hashed"))
    resolve(make_entry(), settings)


def test_files_copied_by_hand_are_adopted_without_any_source(
    settings: Settings, make_entry: MakeEntry, hub: Any
) -> None:
    """Files that someone put into the folder count after they were hashed, and nobody is asked."""
    folder = settings.models_dir / "small"
    folder.mkdir(parents=True)
    for path, data in hub.files.items():
        (folder / Path(path).name).write_bytes(data)
    assert state(make_entry(), settings) == "unverified"
    ensure(make_entry(), settings)
    assert state(make_entry(), settings) == "ready"
    assert not hub.requests


def test_pull_replaces_only_what_is_damaged(settings: Settings, make_entry: MakeEntry, hub: Any) -> None:
    """Repairing a model fetches the damaged file and no other."""
    path = pull(make_entry(), settings).dir / "config.json"
    path.write_bytes(b"{}")
    hub.requests.clear()
    ensure(make_entry(), settings)
    assert len(hub.gets("config.json")) == 1
    assert not hub.gets("model.bin")


def test_folder_of_the_user_is_asked_first_and_hashed_too(
    settings: Settings, make_entry: MakeEntry, hub: Any, tmp_path: Path
) -> None:
    """Right files of a given folder are copied; a wrong one there is fetched from the next source."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "config.json").write_bytes(b"wrong!!!")
    (mine / "model.bin").write_bytes(hub.files["/owner/small/resolve/abc123/sub/model.bin"])
    pull(make_entry(), settings, folder=mine)
    assert len(hub.gets("config.json")) == 1
    assert not hub.gets("model.bin")
    assert verify(make_entry(), settings).name == "small"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"sha256": 1}', '{"sha256": "x", "files": {}}'])
def test_damaged_marker_means_unverified(settings: Settings, make_entry: MakeEntry, text: str) -> None:
    """Whatever the marker says, it can only spare work for files that were proven."""
    files = pull(make_entry(), settings)
    (files.dir / MARKER).write_text(text, encoding="utf-8")
    assert state(make_entry(), settings) == "unverified"
    assert resolve(make_entry(), settings) == files
    assert json.loads((files.dir / MARKER).read_text(encoding="utf-8"))["name"] == "small"


def test_full_disk_is_told_before_anything_is_fetched(
    settings: Settings, make_entry: MakeEntry, hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the disk has no room for the model, the error says so and no byte is asked for."""
    usage = shutil.disk_usage(settings.models_dir.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=1 << 20))
    with pytest.raises(DiskFull, match="1 MB free"):
        pull(make_entry(), settings)
    assert not hub.requests


def test_folder_that_cannot_be_made_is_told_with_the_setting(make_entry: MakeEntry, tmp_path: Path) -> None:
    """A models folder below a plain file cannot exist; the hint names the setting to change."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BadOption, match=r"models folder .* cannot be written: Not a directory") as caught:
        pull(make_entry(), Settings(tmp_path, tmp_path / "file" / "models"))
    assert "VOICEJOBS_MODELS_DIR" in caught.value.hint
