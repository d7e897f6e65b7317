"""What a run asks of the store, and how it submits files that are odd, still written, or wanted elsewhere."""

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from tests import rows
from voicejobs import queries
from voicejobs.errors import DiskFull, Unreadable
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.store import leases
from voicejobs.store.database import Database
from voicejobs.store.jobs import send_again
from voicejobs.store.leases import Ending
from voicejobs.store.paths import HASH8
from voicejobs.store.schema import step_runs
from voicejobs.store.states import StepState
from voicejobs.submit import Accepted, InputFile, Submission


def submission(database: Database, **fields: Any) -> Submission:
    """Return a submission with default options."""
    return Submission(database, TRANSCRIBE, TRANSCRIBE.options({}), **fields)


def old_file(path: Path, data: bytes = b"RIFF") -> InputFile:
    """Write a file that was not touched for long."""
    path.write_bytes(data)
    os.utime(path, (1, 1))
    return InputFile(str(path), path.name, str(path.with_suffix("")))


def outcomes(accepted: list[Accepted]) -> list[str]:
    """Return the outcomes, or the codes of what was refused."""
    return [one.error.code if one.error else one.outcome for one in accepted]


def test_the_hash_in_a_target_is_filled_in(database: Database, tmp_path: Path) -> None:
    """Once the file has been read."""
    file = old_file(tmp_path / "a.wav")
    (accepted,) = submission(database).add([InputFile(file.path, file.name, f"{tmp_path}/{HASH8}-a")])
    digest = sha256(b"RIFF").hexdigest()
    assert accepted.sha256 == digest
    assert rows.job(database, accepted.job_id).target == f"{tmp_path}/{digest[:8]}-a"


def test_what_is_to_be_left_out_makes_no_job(database: Database, tmp_path: Path) -> None:
    """By its content."""
    files = [old_file(tmp_path / "a.wav"), old_file(tmp_path / "b.wav", b"other")]
    leave_out = {sha256(b"RIFF").hexdigest()}
    assert outcomes(submission(database, leave_out=leave_out).add(files)) == ["left_out", "submitted"]


def test_a_known_fault_is_recorded_without_a_look(database: Database, tmp_path: Path) -> None:
    """The batch tells of it."""
    file = InputFile(str(tmp_path), "folder", "", Unreadable("folder cannot be listed"))
    (accepted,) = submission(database).add([file])
    assert outcomes([accepted]) == ["unreadable"]
    assert rows.job(database, accepted.job_id).error_code == "unreadable"


@pytest.mark.timeout(20)
def test_a_file_that_became_a_pipe_is_not_waited_for(database: Database, tmp_path: Path) -> None:
    """It is refused when it is opened."""
    os.mkfifo(tmp_path / "a.wav")
    assert outcomes(submission(database).add([InputFile(str(tmp_path / "a.wav"), "a.wav")])) == ["not_audio"]


def test_a_preview_writes_nothing(database: Database, tmp_path: Path) -> None:
    """It tells what `add` would say."""
    files = [old_file(tmp_path / "a.wav"), old_file(tmp_path / "empty.wav", b"")]
    one = submission(database)
    assert outcomes(one.preview(files)) == ["submitted", "empty_file"]
    assert one.batch_id == ""
    assert not queries.list_batches(database)


def test_a_submission_can_begin_anew(database: Database, tmp_path: Path) -> None:
    """A sealed batch takes no more files."""
    one = submission(database)
    (first,) = one.add([old_file(tmp_path / "a.wav")])
    one.seal()
    one.begin_anew()
    (second,) = one.add([old_file(tmp_path / "b.wav", b"other")])
    assert first.batch_id != second.batch_id


def test_targets_are_known_by_what_became_of_their_newest_job(database: Database) -> None:
    """One that failed and was done later has not failed."""
    states = {"failed": ["failed"], "mended": ["failed", "succeeded"], "stopped": ["succeeded", "cancelled"]}
    for target, history in states.items():
        for state in history:
            rows.set_job(database, rows.add_job(database, target=target), state=state)
    targets = [*states, "new"]
    assert queries.failed_targets(database, targets) == {"failed", "stopped"}
    assert queries.succeeded_targets(database, targets) == {"mended", "stopped"}


def test_progress_sums_up_the_parts_of_a_job(database: Database) -> None:
    """Of the step that runs, those that have ended included."""
    batch_id = rows.add_batch(database)
    job_id = rows.add_job(database, batch_id)
    rows.set_job(database, job_id, audio_s=100.0)
    lease = rows.hold(database, rows.steps(database, job_id)["prepare"].id)
    rows.set_step(database, lease.step_run_id, progress_s=40.0)
    (active,) = queries.active_steps(database, [batch_id])
    assert (active.step, active.audio_s, active.progress_s) == ("prepare", 100.0, 40.0)


def test_why_work_waits_can_be_asked(database: Database) -> None:
    """By the code of the error after which it is tried again."""
    batch_id = rows.add_batch(database)
    job_id = rows.add_job(database, batch_id)
    assert queries.waiting_errors(database, [batch_id]) == {}
    lease = rows.hold(database, rows.steps(database, job_id)["prepare"].id)
    with database.begin() as connection:
        ending = Ending(state=StepState.QUEUED, outcome="retried", error=DiskFull("No space"))
        leases.end(connection, lease, ending, owner=rows.OWNER)
        send_again(connection, job_id, delay_s=10.0)
    assert queries.waiting_errors(database, [batch_id]) == {"disk_full": "No space"}
    rows.set_job(database, job_id, finished_at=1.0)
    assert queries.waiting_errors(database, [batch_id]) == {}


def test_past_speed_is_that_of_the_same_work(database: Database, tmp_path: Path) -> None:
    """Audio over time from the first start to the last end of each batch with the same engine, model and beams."""
    recognise = TRANSCRIBE.options({})["recognise"]
    same = {name: recognise[name] for name in ("engine", "model", "device")}
    pace = {"node": "recognise", "first": "prepare", **same}
    assert queries.past_speed(database, pace) is None
    for number in range(2):
        accepted = submission(database).add(
            [old_file(tmp_path / f"{number}{name}.wav", f"{number}{name}".encode()) for name in "ab"]
        )
        for one in accepted:
            times = {"started_at": 10.0, "finished_at": 20.0, "audio_s": 100.0}
            rows.set_job(database, one.job_id, state="succeeded", **times)
    found = queries.past_speed(database, pace)
    assert found is not None
    assert (found.speed, found.batches) == (20.0, 2)
    assert queries.past_speed(database, {**pace, "model": "other"}) is None
    (known,) = submission(database).add([old_file(tmp_path / "known.wav", b"known")])
    rows.set_job(database, known.job_id, state="succeeded", started_at=10.0, finished_at=10.1, audio_s=1000.0)
    with database.begin() as connection:  # as of a job that only writes a transcript that is there
        connection.execute(delete(step_runs).where(step_runs.c.job_id == known.job_id, step_runs.c.node == "prepare"))
    assert queries.past_speed(database, pace) == found


def test_dead_letters_are_what_was_given_up(database: Database) -> None:
    """A job that failed for good at its first attempt is none, nor one that waits to be tried again."""
    batch_id = rows.add_batch(database)
    errors = [("engine_crash", "failed"), ("poison", "failed"), ("not_found", "failed"), (None, "queued")]
    ids = [rows.add_job(database, batch_id, seq=seq) for seq in range(len(errors))]
    for job_id, (code, state) in zip(ids, errors, strict=True):
        rows.set_job(database, job_id, error_code=code, state=state)
    found = {one["id"] for one in queries.list_jobs(database, state=queries.DEAD, batch_id=batch_id)}
    assert found == set(ids[:2])
