"""Speaking survives what recognising does: killed workers, lost sound, cancelled jobs; nothing is heard twice."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from voicejobs_workers.slots import Slot

from tests.bench import Bench
from tests.rows import job, steps, story
from tests.speaking import expected, heard, speak, target, text_file
from tests.waiting import wait_until
from voicejobs import queries
from voicejobs.control import cancel_jobs, retry_jobs

SLOW: dict[str, Any] = {"fake_cost_window_s": 0.12}
TEXT = " ".join(f"Sentence number {number} is not long." for number in range(60))


def scratch(bench: Bench) -> list[Path]:
    """Return the files of sound that lie on the disk."""
    return sorted((bench.folder / "state" / "blobs" / "scratch").iterdir())


def test_a_killed_worker_costs_what_came_after_its_last_checkpoint(either_bench: Bench) -> None:
    """The next worker goes on where the notes end: the parts of both are joined, and every piece is heard once."""
    bench = either_bench
    worker = bench.start_worker(**SLOW)
    (one,) = speak(bench, text_file(bench, "a.txt", TEXT))
    wait_until(lambda: (row := steps(bench.database, one.job_id).get("synthesise")) and row.checkpoint, 30)
    (active,) = queries.active_steps(bench.database, [one.batch_id])
    assert active.audio_s == pytest.approx(len(TEXT) / 15, rel=0.2)
    assert active.audio_s is not None
    assert 0 < active.progress_s < active.audio_s
    bench.stop(worker)
    spoken = len(scratch(bench))
    bench.start_worker(**SLOW)
    assert bench.wait_ended(one.job_id) == {one.job_id: "succeeded"}
    assert heard(target(bench, "a.txt").with_suffix(".wav")) == expected(TEXT)
    run = steps(bench.database, one.job_id)["synthesise"]
    assert [outcome for _, outcome in story(bench.database, run.id)] == ["lost", "succeeded"]
    assert spoken == 1
    assert scratch(bench) == []


def test_sound_that_went_with_its_worker_is_spoken_again(bench: Bench) -> None:
    """A shard whose earlier lines are gone, with the worker that spoke them, is spoken from its begin."""
    worker = bench.start_worker(**SLOW)
    (one,) = speak(bench, text_file(bench, "a.txt", TEXT))
    wait_until(lambda: (row := steps(bench.database, one.job_id).get("synthesise")) and row.checkpoint, 30)
    bench.stop(worker)
    for path in scratch(bench):
        path.unlink()
    bench.start_worker()
    assert bench.wait_ended(one.job_id) == {one.job_id: "succeeded"}
    assert heard(target(bench, "a.txt").with_suffix(".wav")) == expected(TEXT)
    assert bench.stories(one.job_id)["synthesise"] == ["lost", "succeeded"]
    assert bench.stories(one.job_id)["join"] == ["succeeded"]


def has_succeeded(bench: Bench, job_id: str, step: str) -> bool:
    """Tell whether a step of a job has succeeded."""
    row = steps(bench.database, job_id).get(step)
    return row is not None and row.state == "succeeded"


def test_sound_that_went_before_its_join_is_spoken_again(bench: Bench) -> None:
    """A job whose sound went while it waited for its join begins anew, and ends well."""
    (one,) = speak(bench, text_file(bench, "a.txt", TEXT))
    for queue, step in (("cpu", "plan_text"), ("tts", "synthesise")):
        slot = Slot("cpu", "cpu", window_jobs=4, threads=2, queues=(queue,))
        worker = bench.start_worker("--slot", slot.dump())
        wait_until(partial(has_succeeded, bench, one.job_id, step), 30)
        bench.stop(worker)
    for path in scratch(bench):
        path.unlink()
    bench.start_worker()
    assert bench.wait_ended(one.job_id) == {one.job_id: "succeeded"}
    assert heard(target(bench, "a.txt").with_suffix(".wav")) == expected(TEXT)
    assert bench.stories(one.job_id)["join"] == ["released", "succeeded"]


def test_a_cancelled_job_ends_within_three_seconds_and_leaves_nothing(bench: Bench) -> None:
    """In the middle of a call of the engine, cancelling frees worker, engine and disk; nothing is written."""
    bench.start_worker(**SLOW)
    (one,) = speak(bench, text_file(bench, "a.txt", TEXT))
    wait_until(lambda: (row := steps(bench.database, one.job_id).get("synthesise")) and row.checkpoint, 30)
    started = time.monotonic()
    cancel_jobs(bench.database, [one.job_id])
    assert bench.wait_ended(one.job_id, timeout_s=10) == {one.job_id: "cancelled"}
    assert time.monotonic() - started < 3.0
    assert not list(target(bench, "a.txt").parent.iterdir())
    wait_until(lambda: not scratch(bench), 5)


def test_a_file_that_is_not_ours_is_never_replaced(bench: Bench) -> None:
    """The job fails before any of its files has its name, and leaves no temporary ones; retried, it speaks again."""
    bench.start_worker()
    file = text_file(bench, "a.txt", "Hello there.")
    stem = target(bench, "a.txt")
    stem.with_suffix(".srt").write_text("mine", "utf-8")
    (one,) = speak(bench, file, join={"captions": ["srt"]})
    assert bench.wait_ended(one.job_id) == {one.job_id: "failed"}
    assert job(bench.database, one.job_id).error_code == "output_exists"
    assert [path.name for path in stem.parent.iterdir()] == ["a.srt"]
    stem.with_suffix(".srt").unlink()
    assert retry_jobs(bench.database, [one.job_id]).queued == [one.job_id]
    assert bench.wait_ended(one.job_id) == {one.job_id: "succeeded"}
    assert sorted(path.name for path in stem.parent.iterdir()) == ["a.srt", "a.wav"]
