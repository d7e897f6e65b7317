"""Submitting the lines of a manifest: nothing is opened, each line has one job, and what was begun is gone on with."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from tests import rows
from voicejobs import control
from voicejobs.errors import QueueFull, WrongState
from voicejobs.manifest import Line
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.store import jobs as store
from voicejobs.store.database import Database, now_s
from voicejobs.store.jobs import COPY_FROM_JOBS
from voicejobs.store.paths import encode_path
from voicejobs.store.schema import batches, jobs, step_runs
from voicejobs.store.states import JobState
from voicejobs.submit import InputFile, Submission, cancel_batch
from voicejobs.submit_manifest import ManifestSubmission, Wish

OPTIONS = TRANSCRIBE.options({"recognise": {"engine": "fake", "model": ""}})
MANY = 3 * COPY_FROM_JOBS


def place(line: Line) -> str:
    """Return the place of the outputs of a line."""
    return line.target or f"/out/{line.name or line.path}".removesuffix(".wav")


def begun(database: Database, **wish: Any) -> ManifestSubmission:
    """Return a submission that has begun."""
    return ManifestSubmission(database, Wish(**{"pipeline": TRANSCRIBE, "options": OPTIONS, "place": place, **wish}))


def add(one: ManifestSubmission, *lines: Line) -> dict[str, int]:
    """Add lines to a submission, and return all its counts."""
    one.add(one.prepare(lines))
    return dict(one.counts)


def submit(database: Database, *lines: Line, **wish: Any) -> ManifestSubmission:
    """Submit lines as a manifest of their own."""
    one = begun(database, **wish)
    add(one, *lines)
    one.seal()
    return one


def count(database: Database) -> int:
    """Return the number of all jobs."""
    with database.read() as connection:
        return int(connection.execute(select(func.count()).select_from(jobs)).scalar_one())


def lines(number: int, first: int = 1) -> list[Line]:
    """Return lines of different recordings, none of which is there."""
    return [Line(seq, f"/archive/{seq}.wav", size=seq) for seq in range(first, first + number)]


def all_jobs(database: Database) -> list[Any]:
    """Return all jobs in the order of their lines."""
    with database.read() as connection:
        return list(connection.execute(select(jobs).order_by(jobs.c.seq)))


@pytest.mark.parametrize("number", [2, MANY])
def test_a_line_becomes_a_job_whose_input_is_unread(database: Database, number: int) -> None:
    """Few are inserted, many copied: in both, path, size, place and order are in the row, and no key is."""
    odd = Line(number, "/archive/a\tb\\\nc\udcff.wav", "x/ä\\.wav", "/out/a\tb\\\nc")
    one = submit(database, *lines(number - 1), odd, label="my\tcalls\\", lane="interactive", tenant="them")
    assert one.counts == {"submitted": number}
    found = all_jobs(database)
    first, last = found[0], found[-1]
    assert (first.state, first.tenant, first.cost_order, first.sent_at) == ("queued", "them", -1, None)
    assert (first.input_sha256, first.done_key, first.result_key, first.expires_at) == (None, None, None, None)
    assert json.loads(first.source) == {
        "path": "/archive/1.wav", "name": "/archive/1.wav", "size": 1, "mtime_ns": None, "unread": True,
    }  # fmt: skip
    assert json.loads(first.options)["deliver"]["target"] == encode_path("/out//archive/1")
    assert json.loads(last.source)["path_base64"] == encode_path(odd.path)["path_base64"]
    assert (last.source_name, last.target) == ("x/ä\\.wav", "/out/a\\tb\\\\nc".replace("\\\\n", "\\\\n"))
    assert json.loads(last.options)["deliver"]["target"] == {"path": odd.target}
    with database.read() as connection:
        batch = connection.execute(select(batches)).one()
        now = connection.execute(select(now_s())).scalar_one()
        states = connection.execute(select(step_runs.c.node, step_runs.c.state).where(step_runs.c.job_id == first.id))
        assert sorted(map(tuple, states)) == [("deliver", "blocked"), ("prepare", "queued")]
    assert (batch.label, batch.lane, batch.tenant) == ("my\tcalls\\", "interactive", "them")
    assert abs(first.created_at - now) < 60


def test_a_submission_that_ended_in_the_middle_is_gone_on_with(database: Database) -> None:
    """Run again with the rest, and again when all is there, each line has one job, in one batch, whatever its state."""
    killed = begun(database)
    add(killed, *lines(MANY))
    ended = all_jobs(database)
    for job, state in zip(ended, ("failed", "cancelled", "running"), strict=False):
        rows.set_job(database, job.id, state=state, finished_at=None if state == "running" else 1.0)
    again = begun(database)
    assert add(again, *lines(100)) == {"known": 100}
    assert add(again, *lines(2 * MANY - 100, 101)) == {"known": MANY, "submitted": MANY}
    assert again.batch_id == killed.batch_id
    again.seal()
    rows.set_job(database, ended[0].id, state="queued", finished_at=None)
    rows.set_job(database, ended[1].id, state="queued", finished_at=None)
    assert submit(database, *lines(2 * MANY)).counts == {"known": 2 * MANY}
    assert count(database) == 2 * MANY
    assert {job.batch_id for job in all_jobs(database)} == {killed.batch_id}


def test_two_at_once_submit_each_line_once(database: Database) -> None:
    """The same manifest is submitted twice at the same moment: the jobs are those of one."""

    def act(number: int) -> int:
        one = begun(database)
        for first in range(1, 5 * MANY, MANY):
            add(one, *lines(MANY, first))
        return one.counts["submitted"]

    assert sum(rows.at_once(2, act)) == 5 * MANY
    assert count(database) == 5 * MANY


@pytest.mark.parametrize("other", [{"label": "other"}, {"lane": "interactive"}, {"tenant": "other"}])
def test_another_wish_begins_a_batch_of_its_own(database: Database, other: dict[str, str]) -> None:
    """Lines that are under way are known all the same; what is missing goes to the batch that was asked for."""
    killed = begun(database)
    add(killed, *lines(2))
    one = submit(database, *lines(3), **other)
    assert one.counts == {"known": 2, "submitted": 1}
    assert one.batch_id != killed.batch_id
    assert set(one.batch_ids) == {one.batch_id, killed.batch_id}


def test_other_options_or_another_place_are_other_work(database: Database) -> None:
    """The same recording in another format, or to another place, is a job of its own."""
    options = TRANSCRIBE.options({**OPTIONS, "deliver": {"formats": ["srt"]}})
    submit(database, *lines(1))
    assert submit(database, *lines(1), options=options).counts == {"submitted": 1}
    assert submit(database, Line(1, "/archive/1.wav", target="/else")).counts == {"submitted": 1}


def test_a_line_that_is_twice_in_a_manifest_has_one_job(database: Database) -> None:
    """In one chunk, and in another."""
    one = begun(database)
    assert add(one, *lines(2), *lines(1)) == {"submitted": 2, "known": 1}
    assert add(one, *lines(1)) == {"submitted": 2, "known": 2}


def test_two_recordings_with_one_place_do_not_overwrite_each_other(database: Database) -> None:
    """The later line is refused, in the same chunk and in another, and stays so when the command runs again."""
    one = begun(database)
    same = [Line(number, f"/archive/{number}", target="/out/same") for number in (1, 2, 3)]
    assert add(one, *same[:2]) == {"submitted": 1, "refused": 1}
    assert add(one, same[2]) == {"submitted": 1, "refused": 2}
    assert add(begun(database), *same) == {"known": 3}
    first, second, _ = all_jobs(database)
    assert (first.state, second.state, second.error_code) == ("queued", "failed", "bad_manifest")
    assert "Line 2" in json.loads(second.error)["message"]


def done(database: Database, job: Any, path: Path, digest: str = "") -> Path:
    """Let a job have succeeded: its file is there, and its input is as it is now."""
    output = path.parent / f"{path.name}.txt"
    output.write_text("text")
    status = path.stat()
    source = {**encode_path(path), "name": path.name, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    described = {"format": "txt", **encode_path(output), "sha256": sha256(b"text").hexdigest(), "size": 4}
    rows.set_job(
        database, job.id, state=JobState.SUCCEEDED, finished_at=1.0, outputs=json.dumps([described]),
        source=json.dumps(source), input_sha256=digest or None,
    )  # fmt: skip
    return output


def test_what_is_done_is_not_done_again(database: Database, tmp_path: Path) -> None:
    """Until its output is gone, or its recording has changed: then it is, and may replace what is ours."""
    recording = tmp_path / "a.wav"
    recording.write_bytes(b"sound")
    line = Line(1, str(recording), target=str(tmp_path / "a"))
    submit(database, line)
    output = done(database, all_jobs(database)[0], recording)
    assert submit(database, line).counts == {"done": 1}
    assert submit(database, line, force=True).counts == {"submitted": 1}
    cancel_batch(database, all_jobs(database)[-1].batch_id)
    recording.write_bytes(b"other sound")
    changed = submit(database, line)
    assert changed.counts == {"submitted": 1}
    job = next(job for job in all_jobs(database) if job.batch_id == changed.batch_id)
    assert json.loads(job.options)["deliver"]["known"] == {"txt": sha256(b"text").hexdigest()}
    cancel_batch(database, changed.batch_id)
    recording.unlink()
    assert submit(database, line).counts == {"done": 1}, "what cannot be seen from here is as it was"
    output.unlink()
    assert submit(database, line).counts == {"submitted": 1}


def test_a_line_with_a_hash_has_the_keys_of_its_file(database: Database) -> None:
    """They are those that the file itself would get, and a transcript under them is only delivered."""
    digest = sha256(b"sound").hexdigest()
    submit(database, Line(1, "/archive/a.wav", sha256=digest))
    job = all_jobs(database)[0]
    keys = Submission(database, TRANSCRIBE, OPTIONS).keys(digest)
    assert (job.input_sha256, (job.done_key, job.result_key)) == (digest, keys)
    with database.begin() as connection:
        artifact = store.NewArtifact("transcript", digest, 1, b"x", {})
        artifact_id = store.insert_artifact(connection, job.id, f"{job.id}.deliver.0", artifact)
        store.insert_result(connection, job.id, store.NewResult(keys[1], artifact_id, "en", 1.0, 1, "text"))
    submit(database, Line(1, "/archive/b.wav", sha256=digest))
    other = next(one for one in all_jobs(database) if one.id != job.id)
    (deliver,) = rows.steps(database, other.id).values()
    assert (deliver.node, deliver.state, json.loads(deliver.inputs)) == (
        "deliver", "queued", {"transcript": artifact_id},
    )  # fmt: skip
    assert submit(database, Line(1, "/archive/a.wav", sha256="0" * 64)).counts == {"submitted": 1}


def test_what_is_submitted_and_what_is_transcribed_know_each_other(database: Database, tmp_path: Path) -> None:
    """A line whose hash is given joins the job that `transcribe` has submitted, and the other way round."""
    files = [tmp_path / name for name in ("a.wav", "b.wav")]
    for file in files:
        file.write_bytes(file.name.encode())
    given = [
        Line(1, str(file), target=str(tmp_path / file.stem), sha256=sha256(file.read_bytes()).hexdigest())
        for file in files
    ]
    inputs = [InputFile(str(file), file.name, str(tmp_path / file.stem)) for file in files]
    Submission(database, TRANSCRIBE, OPTIONS).add(inputs[:1])
    assert submit(database, *given).counts == {"known": 1, "submitted": 1}
    (joined,) = Submission(database, TRANSCRIBE, OPTIONS).add(inputs[1:])
    assert joined.outcome == "joined"


def test_the_ceiling_of_the_queue_holds(database: Database) -> None:
    """What would pass it is not begun; once there is room, the same command goes on."""
    one = begun(database, max_queued_jobs=5)
    add(one, *lines(3))
    with pytest.raises(QueueFull):
        add(one, *lines(3, 4))
    assert count(database) == 3
    for job in all_jobs(database):
        rows.set_job(database, job.id, sent_at=1.0)
    assert add(begun(database, max_queued_jobs=5), *lines(6)) == {"known": 3, "submitted": 3}


def test_jobs_of_a_manifest_expire(database: Database) -> None:
    """Their time counts from their insertion, by the clock of the database; few and many alike."""
    for number in (1, MANY):
        one = submit(database, *lines(number, 1000 * number), expires_after_s=60.0)
        with database.read() as connection:
            query = select(jobs.c.created_at, jobs.c.expires_at).where(jobs.c.batch_id == one.batch_id)
            assert all(abs(end - began - 60.0) < 0.1 for began, end in connection.execute(query))


def test_a_batch_that_was_cancelled_takes_no_more(database: Database) -> None:
    """Its submission ends with an error; run again, everything is another batch."""
    one = begun(database)
    add(one, *lines(2))
    cancel_batch(database, one.batch_id)
    with pytest.raises(WrongState):
        add(one, *lines(2, 3))
    assert count(database) == 2
    assert submit(database, *lines(4)).counts == {"submitted": 4}


def test_a_job_that_nobody_has_read_is_taken_up_again_unread(database: Database) -> None:
    """It failed since its recording was not there: its worker looks again, the command opens nothing."""
    submit(database, *lines(1))
    (job,) = all_jobs(database)
    rows.set_job(database, job.id, state="failed", finished_at=1.0, error_code="not_found")
    assert control.retry_jobs(database, [job.id]).queued == [job.id]
    assert json.loads(rows.job(database, job.id).source)["unread"]
    assert rows.steps(database, job.id)["prepare"].state == "queued"
