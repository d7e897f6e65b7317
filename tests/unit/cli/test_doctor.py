"""What `doctor` says of devices, clocks, disks and servers that were left over."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from voicejobs.accelerators import Device
from voicejobs.cli import doctor
from voicejobs.cli.store import opened
from voicejobs.embedded.stack import make_state_dir
from voicejobs.embedded.supervisor import CHILDREN_FILE, LOCK_FILE, orphans
from voicejobs.errors import BadOption, DatabaseUnavailable
from voicejobs.outbound.signing import SECRET_FILE
from voicejobs.settings import Settings
from voicejobs.store.database import Database
from voicejobs.store.owners import process_start

CARD = Device("cuda:0", "GPU-aaaa", "Some Card", 80 << 30)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return settings with a state folder."""
    return Settings(state_dir=tmp_path, models_dir=tmp_path)


@pytest.fixture
def sleeper() -> Iterator[int]:
    """Return the id of a process that only waits."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def test_cards_are_listed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Label, name, memory and UUID, as --devices takes them; without one the CPU is named."""
    monkeypatch.setattr(doctor, "find_devices", lambda: [CARD])
    assert doctor._devices(settings).detail == "cuda:0 Some Card (80 GiB, GPU-aaaa)"
    monkeypatch.setattr(doctor, "find_devices", list)
    assert "CPU" in doctor._devices(settings).detail


def test_a_shared_card_is_worth_a_warning(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where MPS is set up, one client's fault is everybody's."""
    monkeypatch.setattr(doctor, "find_devices", lambda: [CARD])
    monkeypatch.setattr(doctor, "environment", lambda: {"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"})
    found = doctor._devices(settings)
    assert (found.status, "CUDA_MPS_PIPE_DIRECTORY" in found.detail, bool(found.fix)) == ("warn", True, True)


def test_b25_versions_of_driver_and_libraries_are_told(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Driver, the CUDA that it knows and the one that each library was built for; a driver too old for one is told."""
    monkeypatch.setattr(doctor, "_built_for", lambda: {"torch 2.13.0+cu130": "13.0", "ctranslate2 4.8.1": "12"})
    monkeypatch.setattr(doctor, "driver_versions", lambda: ("580.82.07", "13.0"))
    good = doctor._cuda(settings)
    assert (good.status, good.fix) == ("ok", "")
    for part in ("580.82.07", "knows CUDA 13.0", "torch 2.13.0+cu130 is for CUDA 13.0", "ctranslate2 4.8.1"):
        assert part in good.detail
    monkeypatch.setattr(doctor, "driver_versions", lambda: ("550.54.15", "12.4"))
    old = doctor._cuda(settings)
    assert (old.status, bool(old.fix)) == ("warn", True)
    assert old.detail.endswith("too old for torch 2.13.0+cu130")
    monkeypatch.setattr(doctor, "driver_versions", lambda: ("", ""))
    assert doctor._cuda(settings).status == "ok"


def test_b25_libraries_are_found_without_loading_them(settings: Settings) -> None:
    """What is installed here is named with its version, and torch is not imported for it."""
    code = "import sys; from voicejobs.cli import doctor; print(sorted(doctor._built_for()), 'torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "ctranslate2 4" in told
    assert told.strip().endswith("False")


def test_a_disk_below_its_floor_fails(tmp_path: Path) -> None:
    """No job would be begun: that must be mended."""
    settings = Settings(state_dir=tmp_path, models_dir=tmp_path, disk_floor_bytes=10**18)
    assert doctor._disk(settings).status == "fail"


def test_a_state_folder_that_cannot_be_made_is_a_finding(tmp_path: Path) -> None:
    """`doctor` tells what is wrong, and does not fall over it; other commands say what to set."""
    (tmp_path / "file").touch()
    settings = Settings(state_dir=tmp_path / "file" / "state", models_dir=tmp_path)
    assert doctor._guarded(doctor._folders, settings).status == "fail"
    with pytest.raises(BadOption) as from_stack:
        make_state_dir(settings)
    with pytest.raises(BadOption) as from_database:
        Database(settings.effective_database_url)
    assert all("VOICEJOBS_STATE_DIR" in error.value.hint for error in (from_stack, from_database))


def test_an_embedded_database_that_cannot_be_opened_names_its_folder(tmp_path: Path) -> None:
    """There is no server to look after, and no address to correct."""
    settings = Settings(state_dir=tmp_path, models_dir=tmp_path)
    (tmp_path / "voicejobs.db").mkdir()
    with pytest.raises(DatabaseUnavailable) as error, opened(settings):
        pass
    assert "VOICEJOBS_STATE_DIR" in error.value.hint


def test_servers_of_a_killed_supervisor_are_found(settings: Settings, sleeper: int) -> None:
    """Recorded children that live while nobody holds the lock are left over; a pid that was given anew is not ours."""
    record = settings.state_dir / CHILDREN_FILE
    record.write_text(f'[[{sleeper}, "{process_start(sleeper)}"], [{os.getpid()}, "another start"]]')
    assert orphans(settings) == [sleeper]
    assert str(sleeper) in doctor._orphans(settings).detail
    holder = (
        f"import fcntl; f = open({str(settings.state_dir / LOCK_FILE)!r}, 'a'); fcntl.flock(f, 2); print(); input()"
    )
    command = [sys.executable, "-c", holder]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert orphans(settings) == []
        process.kill()


@pytest.mark.services
def test_a_clock_that_is_wrong_is_told(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The difference from the database's clock is shown, and more than five seconds are a warning."""
    settings = Settings(state_dir=tmp_path, models_dir=tmp_path, database_url=postgres_url)
    assert doctor._clock(settings).status == "ok"
    real = time.time
    monkeypatch.setattr("voicejobs.cli.doctor.time.time", lambda: real() + 3600)
    found = doctor._clock(settings)
    assert (found.status, found.detail) == ("warn", "+3600 s from the database's")


def test_a_secret_of_webhooks_that_cannot_be_used_is_told(settings: Settings) -> None:
    """One that is too short or damaged is a fault; one that is not set for a shared database is worth a warning."""
    assert doctor._webhooks(settings).status == "ok"
    assert not (settings.state_dir / SECRET_FILE).exists()
    missing = doctor._webhooks(replace(settings, database_url="postgresql://x/y"))
    assert (missing.status, "VOICEJOBS_WEBHOOK_SECRET" in missing.detail) == ("warn", True)
    short = doctor._guarded(doctor._webhooks, replace(settings, webhook_secret="short"))
    assert (short.check, short.status, "secret_unusable" in short.detail) == ("webhooks", "fail", True)
    (settings.state_dir / SECRET_FILE).write_text("damaged")
    (settings.state_dir / SECRET_FILE).chmod(0o600)
    assert doctor._guarded(doctor._webhooks, settings).status == "fail"
