"""Our own PCM files: what is written is read, and failures have names."""

import errno
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from voicejobs.audio.pcm import PcmWriter, count_samples, read_blocks, read_window
from voicejobs.audio.types import Span
from voicejobs.errors import DiskFull, Internal, NotFound, OutputUnwritable


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=st.lists(st.integers(0, 500), max_size=6), data=st.data())
def test_any_window_reads_back(tmp_path: Path, lengths: list[int], data: st.DataObject) -> None:
    """Every span of what was written, in whatever blocks, reads back the same."""
    blocks = [np.random.default_rng(length).integers(-32768, 32767, length, dtype=np.int16) for length in lengths]
    path = tmp_path / "a.pcm"
    with PcmWriter(path, fsync=True) as writer:
        for block in blocks:
            writer.write(block)
    whole = np.concatenate([np.zeros(0, dtype=np.int16), *blocks])
    assert writer.samples == count_samples(path) == len(whole)
    assert writer.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    end = data.draw(st.integers(0, len(whole)))
    start = data.draw(st.integers(0, end))
    assert np.array_equal(read_window(path, Span(start, end)), whole[start:end])
    assert np.array_equal(np.concatenate([whole[:0], *read_blocks(path, 77)]), whole)


def test_strided_samples_are_written_in_order(tmp_path: Path) -> None:
    """One channel of an interleaved array is written as it looks, not as it lies in memory."""
    interleaved = np.arange(20, dtype=np.int16).reshape(10, 2)
    with PcmWriter(tmp_path / "a.pcm") as writer:
        writer.write(interleaved[:, 1])
    assert read_window(tmp_path / "a.pcm", Span(0, 10)).tolist() == list(range(1, 20, 2))


def test_a_window_past_the_end_is_an_error(tmp_path: Path) -> None:
    """A file that is too short never gives fewer samples than asked for."""
    with PcmWriter(tmp_path / "a.pcm") as writer:
        writer.write(np.zeros(10, dtype=np.int16))
    with pytest.raises(Internal, match=r"a\.pcm"):
        read_window(tmp_path / "a.pcm", Span(5, 11))


def test_missing_files_are_named(tmp_path: Path) -> None:
    """Reading or counting a file that is not there names it."""
    with pytest.raises(NotFound, match=r"none\.pcm"):
        read_window(tmp_path / "none.pcm", Span(0, 1))
    with pytest.raises(NotFound, match=r"none\.pcm"):
        count_samples(tmp_path / "none.pcm")
    with pytest.raises(OutputUnwritable, match=r"none/a\.pcm"):
        PcmWriter(tmp_path / "none" / "a.pcm")


def test_a_full_disk_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC becomes DiskFull, which is tried again later; other failures are final."""

    def full(fd: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with PcmWriter(tmp_path / "a.pcm") as writer:
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(DiskFull):
            writer.write(np.zeros(10, dtype=np.int16))
        monkeypatch.undo()
    writer.close()


def test_a_short_recording_goes_where_it_costs_least(tmp_path: Path) -> None:
    """Up to the limit it is written to the small path alone; the writer tells where, and the samples are the same."""
    samples = np.arange(1000, dtype=np.int16)
    with PcmWriter(tmp_path / "disk.pcm", fsync=True, small_path=tmp_path / "memory.pcm") as writer:
        writer.write(samples[:600])
        writer.write(samples[600:])
    assert writer.path == str(tmp_path / "memory.pcm")
    assert not (tmp_path / "disk.pcm").exists()
    assert (tmp_path / "memory.pcm").stat().st_mode & 0o777 == 0o600
    assert np.array_equal(read_window(writer.path, Span(0, 1000)), samples)


def test_a_long_recording_goes_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes beyond the limit is written in the order in which it came, and nothing is left in memory."""
    monkeypatch.setattr("voicejobs.audio.pcm.SMALL_BYTES", 1500)
    samples = np.arange(3000, dtype=np.int16)
    with PcmWriter(tmp_path / "disk.pcm", small_path=tmp_path / "memory.pcm") as writer:
        for start in range(0, 3000, 500):
            writer.write(samples[start : start + 500])
    assert writer.path == str(tmp_path / "disk.pcm")
    assert not (tmp_path / "memory.pcm").exists()
    assert np.array_equal(read_window(writer.path, Span(0, 3000)), samples)


def test_without_room_in_memory_it_goes_to_the_disk(tmp_path: Path) -> None:
    """A small path that cannot be written costs nothing but the file on the disk."""
    with PcmWriter(tmp_path / "disk.pcm", small_path=tmp_path / "none" / "memory.pcm") as writer:
        writer.write(np.ones(10, np.int16))
    assert writer.path == str(tmp_path / "disk.pcm")
    assert count_samples(tmp_path / "disk.pcm") == 10


@pytest.mark.parametrize("limit", [1 << 20, 4])
def test_what_is_discarded_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """After an error nothing is left, whichever place it would have had."""
    monkeypatch.setattr("voicejobs.audio.pcm.SMALL_BYTES", limit)
    writer = PcmWriter(tmp_path / "disk.pcm", small_path=tmp_path / "memory.pcm")
    writer.write(np.ones(10, np.int16))
    writer.discard()
    writer.close()
    assert not list(tmp_path.iterdir())
