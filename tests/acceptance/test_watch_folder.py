"""`voicejobs watch FOLDER`: every way in which a file can come, once each, over kills and restarts."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.acceptance.conftest import MakeTree
from tests.acceptance.harness import Tree, example_speech, files_below, wait_for, write_recording

pytestmark = [pytest.mark.services, pytest.mark.timeout(120)]

SETTLE_S = 0.4


def recording(path: Path, part: int) -> Path:
    """Write three seconds of speech; each `part` has another content."""
    samples = example_speech()[:48_000].copy()
    samples[0] = 1000 + part
    return write_recording(path, samples.astype(np.int16))


def start(tree: Tree, folder: Path, out: Path, *words: str) -> "subprocess.Popen[bytes]":
    """Start watching with the engine fake."""
    quick = ("--settle", str(SETTLE_S), "--poll", "0.1", "--engine", "fake", "--json", *words)
    return tree.start("watch", folder, "-o", out, *quick, stderr=subprocess.DEVNULL)


def once(tree: Tree, folder: Path, out: Path, *words: str) -> list[dict[str, Any]]:
    """Take what stands still, and return the events."""
    done = tree.run("watch", folder, "-o", out, "--once", "--settle", "0.2", "--engine", "fake", "--json", *words)
    assert done.code in {0, 3, 8}, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def states(events: list[dict[str, Any]]) -> dict[str, str]:
    """Return what became of each file."""
    return {one["name"]: one["state"] for one in events if one["type"] == "file"}


def stop(process: "subprocess.Popen[bytes]", how: signal.Signals) -> list[dict[str, Any]]:
    """End a command by a signal, and return its events."""
    process.send_signal(how)
    stdout, _ = process.communicate(timeout=20)
    return [json.loads(line) for line in stdout.splitlines()]


def test_each_file_is_taken_once_whichever_way_it_comes(tree: Tree) -> None:
    """Copied slowly, moved, renamed from .part, linked, copied again: one job for each content, in an output folder
    inside the watched one; Ctrl-C ends it with 130, and a restart takes nothing again.
    """
    folder, outside = tree.folder / "in", tree.folder / "outside"
    out = folder / "text"
    (folder / "calls").mkdir(parents=True)
    outside.mkdir()
    process = start(tree, folder, out, "-f", "txt,json")
    slow = recording(outside / "slow.wav", 1).read_bytes()
    recording(outside / "moved.wav", 2).rename(folder / "calls" / "moved.wav")
    recording(outside / "renamed.wav", 3).rename(folder / "renamed.wav.part")
    os.link(recording(outside / "linked.wav", 4), folder / "linked.wav")
    (folder / "empty.wav").touch()
    (folder / ".hidden.wav").write_bytes(slow)
    with (folder / "slow.wav").open("wb") as file:
        for first in range(0, len(slow), len(slow) // 6):
            file.write(slow[first : first + len(slow) // 6])
            file.flush()
            time.sleep(SETTLE_S / 2)
            assert not (out / "slow.txt").exists()
    (folder / "renamed.wav.part").rename(folder / "renamed.wav")
    expected = {
        f"{stem}.{ending}" for stem in ("slow", "calls/moved", "renamed", "linked") for ending in ("txt", "json")
    }
    wait_for(lambda: set(files_below(out)) == expected, "the outputs")
    shutil.copy(folder / "slow.wav", folder / "copy of slow.wav")
    (folder / "linked.wav").rename(folder / "calls" / "linked.wav")
    time.sleep(2.5 * SETTLE_S)
    events = stop(process, signal.SIGINT)
    assert process.returncode == 130
    assert events[-1]["type"] == "summary"
    assert events[-1]["ended"] == "interrupted"
    assert events[-1]["files"] == {"succeeded": 4, "done": 2, "failed": 0, "cancelled": 0, "skipped": 0}
    assert len(tree.show("job", "list")) == 4
    assert set(states(once(tree, folder, out, "-f", "txt,json")).values()) == {"done"}
    assert len(tree.show("job", "list")) == 4
    assert set(files_below(out)) == expected


def test_killed_at_work_it_goes_on(make_tree: MakeTree) -> None:
    """After `kill -9` of everything in the middle of the work, the same command ends it: one job for each content."""
    tree = make_tree(VOICEJOBS_FAKE_COST_BASE_S="0.5", VOICEJOBS_ENGINE_PROCESSES="1", VOICEJOBS_LEASE_S="3")
    folder, out = tree.folder / "in", tree.folder / "out"
    for part in range(4):
        recording(folder / f"{part}.wav", part)
    process = start(tree, folder, out)
    wait_for(lambda: len(files_below(out)) >= 1, "the first output")
    tree.kill()
    process.communicate()
    recording(folder / "late.wav", 9)
    found = states(once(tree, folder, out))
    assert set(found.values()) <= {"done", "succeeded"}
    assert set(files_below(out)) == {f"{name}.txt" for name in ("0", "1", "2", "3", "late")}
    jobs = tree.show("job", "list")
    assert len(jobs) == 5
    assert {one["state"] for one in jobs} == {"succeeded"}


def test_a_file_that_is_replaced_at_work_has_the_newer_text(make_tree: MakeTree) -> None:
    """What was in it before ends first, and then the newer content takes its place: neither is in the other's way."""
    tree = make_tree(VOICEJOBS_FAKE_COST_BASE_S="1.5", VOICEJOBS_ENGINE_PROCESSES="1")
    folder, out = tree.folder / "in", tree.folder / "out"
    recording(folder / "a.wav", 1)
    process = start(tree, folder, out)
    wait_for(lambda: any(one["state"] == "running" for one in tree.show("job", "list")), "the first job")
    recording(tree.folder / "other.wav", 2).rename(folder / "a.wav")
    wait_for(lambda: len(tree.show("job", "list")) == 2, "the second job")
    wait_for(lambda: {one["state"] for one in tree.show("job", "list")} <= {"succeeded", "failed"}, "their ends")
    stop(process, signal.SIGINT)
    newer, older = tree.show("job", "list")
    assert newer["state"] == "succeeded"
    assert older["state"] == "succeeded" or older["error_code"] == "input_changed", "it may not have been read yet"
    assert set(files_below(out)) == {"a.txt"}


def test_names_that_would_meet_are_kept_apart(make_tree: MakeTree) -> None:
    """The second file of a stem keeps its ending, now and after a restart; a file that was replaced keeps its place."""
    tree = make_tree(VOICEJOBS_LINGER_S="5")
    folder, out = tree.folder / "in", tree.folder / "out"
    recording(folder / "a.wav", 1)
    assert states(once(tree, folder, out)) == {"a.wav": "succeeded"}
    recording(folder / "a.flac", 2)
    assert states(once(tree, folder, out)) == {"a.flac": "succeeded", "a.wav": "done"}
    assert set(files_below(out)) == {"a.txt", "a.flac.txt"}
    recording(folder / "a.wav", 3)
    recording(folder / "a.flac", 4)
    assert states(once(tree, folder, out)) == {"a.flac": "succeeded", "a.wav": "succeeded"}
    assert set(files_below(out)) == {"a.txt", "a.flac.txt"}


def test_once_leaves_aside_what_moves_and_what_is_ours(make_tree: MakeTree) -> None:
    """A growing file is told of and left; a damaged one fails alone; outputs beside the inputs are no inputs."""
    tree = make_tree(VOICEJOBS_LINGER_S="5")
    folder = tree.folder / "in"
    recording(folder / "good.wav", 1)
    (folder / "bad.wav").write_bytes(b"no sound" * 100)
    growing = (folder / "growing.wav").open("wb")
    with growing:
        words = ("--settle", "0.6", "--include", "*.wav", "--include", "*.json", "-f", "json", "--engine", "fake")
        process = tree.start("watch", folder, "-o", folder, "--once", "--json", *words)
        while process.poll() is None:
            growing.write(b"more")
            growing.flush()
            time.sleep(0.05)
    stdout, stderr = process.communicate()
    assert process.returncode == 3, stderr
    events = [json.loads(line) for line in stdout.splitlines()]
    assert states(events) == {"good.wav": "succeeded", "bad.wav": "failed"}
    assert [one["code"] for one in events if one["type"] == "warning"] == ["still_written"]
    growing_path = folder / "growing.wav"
    growing_path.unlink()
    (folder / "bad.wav").unlink()
    assert states(once(tree, folder, folder, "--include", "*.wav", "--include", "*.json", "-f", "json")) == {
        "good.wav": "done"
    }


def test_what_cannot_be_watched_is_refused(tree: Tree) -> None:
    """A folder that is not there and a file are refused with 7, before anything starts."""
    gone = tree.run("watch", tree.folder / "gone", "-o", tree.out)
    assert (gone.code, "[not_found]" in gone.stderr) == (7, True)
    file = recording(tree.folder / "a.wav", 1)
    assert tree.run("watch", file, "-o", tree.out).code == 7
    assert not tree.state.exists()
