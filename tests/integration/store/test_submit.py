"""Submitting files: what is done is found, what is under way is joined, and one bad file spoils nothing."""

import json
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from tests import rows
from voicejobs import queries
from voicejobs.errors import NoSuchRecord, QueueFull
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.store import jobs as store
from voicejobs.store import outbox
from voicejobs.store.database import Database
from voicejobs.store.jobs import NewArtifact, NewResult
from voicejobs.store.paths import decode_path, encode_path
from voicejobs.store.schema import jobs
from voicejobs.store.states import JobState
from voicejobs.submit import Accepted, InputFile, Submission, cancel_batch

MakeFile = Callable[..., InputFile]


@pytest.fixture
def make_file(tmp_path_factory: pytest.TempPathFactory) -> MakeFile:
    """Return a maker of input files with a target beside them."""
    folder = tmp_path_factory.mktemp("files")

    def make(name: str | bytes = "a.wav", data: bytes = b"RIFF") -> InputFile:
        path = os.path.join(os.fsencode(folder), os.fsencode(name))  # noqa: PTH118 - bytes that are no text
        Path(os.fsdecode(path)).write_bytes(data)
        return InputFile(os.fsdecode(path), os.fsdecode(name), os.fsdecode(path + b".out"))

    return make


def submission(database: Database, **fields: Any) -> Submission:
    """Return a submission with default options."""
    return Submission(database, TRANSCRIBE, TRANSCRIBE.options(fields.pop("options", {})), **fields)


def add(database: Database, *files: InputFile, **fields: Any) -> list[Accepted]:
    """Submit files as a batch of their own."""
    one = submission(database, **fields)
    accepted = one.add(files)
    one.seal()
    return accepted


def finish(database: Database, accepted: Accepted, text: str = "text") -> Path:
    """End a job as `deliver` does: file, artifact, result, outputs; return the file."""
    path = Path(accepted.file.target + ".txt")
    path.write_text(text)
    output = {
        "format": "txt",
        **encode_path(path),
        "sha256": sha256(text.encode()).hexdigest(),
        "size": len(text),
    }
    job = rows.job(database, accepted.job_id)
    run = rows.steps(database, accepted.job_id)["deliver"].id
    with database.begin() as connection:
        artifact = NewArtifact("transcript", "0" * 64, 1, b"x", {})
        artifact_id = store.insert_artifact(connection, job.id, run, artifact)
        store.insert_result(connection, job.id, NewResult(job.result_key, artifact_id, "en", 1.0, 1, text))
        store.finish_job(connection, job.id, JobState.SUCCEEDED, outputs=[output])
    return path


def test_a_file_becomes_a_job(database: Database, make_file: MakeFile) -> None:
    """Hash, size, keys, names and target of a new file are in its row, and its first step run is queued."""
    file = make_file(data=b"some bytes")
    (accepted,) = add(database, file, label="mine", lane="interactive")
    assert accepted.outcome == "submitted"
    job = rows.job(database, accepted.job_id)
    assert job.input_sha256 == sha256(b"some bytes").hexdigest()
    assert (job.source_name, job.cost_order, job.state, job.seq) == ("a.wav", -10, "queued", 1)
    assert decode_path(json.loads(job.source)) == file.path
    assert job.done_key != job.result_key
    batch = queries.show_batch(database, job.batch_id)
    assert (batch["label"], batch["lane"], batch["jobs"]) == ("mine", "interactive", {"queued": 1})
    assert batch["sealed_at"] is not None


def test_names_of_any_bytes_are_taken(database: Database, make_file: MakeFile) -> None:
    """A name that is not UTF-8 is kept byte for byte, and shown with its odd bytes escaped."""
    file = make_file(b"odd\xff\n.wav")
    (accepted,) = add(database, file)
    job = rows.job(database, accepted.job_id)
    assert job.source_name == "odd\\xff\\n.wav"
    assert decode_path(json.loads(job.source)) == file.path
    assert decode_path(json.loads(job.options)["deliver"]["target"]) == file.target
    assert queries.show_job(database, accepted.job_id)["source"].endswith("odd\\xff\\n.wav")


def test_a_file_that_cannot_be_read_is_refused_alone(database: Database, make_file: MakeFile) -> None:
    """Missing and empty files and folders are refused with their code; the file between them is taken."""
    good, empty = make_file(), make_file("empty.wav", b"")
    missing, folder = InputFile("/no/such.wav", "such.wav"), InputFile("/", "root")
    accepted = add(database, missing, good, empty, folder)
    assert [one.outcome for one in accepted] == ["refused", "submitted", "refused", "refused"]
    assert [one.error.code if one.error else "" for one in accepted] == ["not_found", "", "empty_file", "unreadable"]


def test_a_refused_file_has_a_failed_job(database: Database) -> None:
    """The batch tells of a file that could not be read, with its code, and completes."""
    one = submission(database)
    one.add([InputFile("/no/such.wav", "such.wav")])
    one.seal()
    one.settle()
    (failure,) = queries.show_batch(database, one.batch_id)["failures"]
    assert (failure["name"], failure["error_code"]) == ("such.wav", "not_found")
    assert rows.batch(database, one.batch_id).state == "completed"


def test_a_run_with_nothing_to_do_leaves_no_batch(database: Database, make_file: MakeFile) -> None:
    """Where all is done there is no new batch, and sealing and settling do no harm."""
    file = make_file()
    (first,) = add(database, file)
    finish(database, first)
    one = submission(database)
    one.add([file])
    one.seal()
    one.settle()
    assert one.batch_id == ""
    assert len(queries.list_batches(database)) == 1


def test_what_is_under_way_is_joined(database: Database, make_file: MakeFile) -> None:
    """The same file with the same options and target, submitted again, is the same job, in the batch it was in."""
    file = make_file()
    (first,) = add(database, file)
    (second,) = add(database, file)
    assert (second.outcome, second.job_id, second.batch_id) == ("joined", first.job_id, first.batch_id)
    assert [batch["jobs"] for batch in queries.list_batches(database)] == [{"queued": 1}]


def test_what_is_done_is_found(database: Database, make_file: MakeFile) -> None:
    """A file whose outputs are as they were left is done, whatever its name is now."""
    file = make_file()
    (first,) = add(database, file)
    finish(database, first)
    (second,) = add(database, file)
    assert (second.outcome, second.job_id) == ("done", first.job_id)
    assert [output["format"] for output in second.outputs] == ["txt"]


@pytest.mark.parametrize("damage", ["remove", "change", "truncate"])
def test_damaged_outputs_are_made_again_from_the_transcript(
    database: Database, make_file: MakeFile, damage: str
) -> None:
    """Where an output is gone or changed a new job only delivers it: nothing is recognised again."""
    file = make_file()
    (first,) = add(database, file)
    path = finish(database, first)
    if damage == "remove":
        path.unlink()
    else:
        path.write_text("" if damage == "truncate" else "TEXT")
    (second,) = add(database, file)
    assert second.outcome == "submitted"
    found = rows.steps(database, second.job_id)
    assert {name: (row.state, row.depth) for name, row in found.items()} == {"deliver": ("queued", 0)}
    lease = rows.hold(database, found["deliver"].id)
    assert set(lease.inputs) == {"transcript"}
    assert rows.job(database, second.job_id).state == JobState.RUNNING


def test_other_options_are_other_work(database: Database, make_file: MakeFile) -> None:
    """Another format needs the transcript only, another beam everything, another folder its own files."""
    file = make_file()
    (first,) = add(database, file)
    finish(database, first)
    (formats,) = add(database, file, options={"deliver": {"formats": ["srt"]}})
    (beams,) = add(database, file, options={"recognise": {"beam_size": 1}})
    (elsewhere,) = add(database, InputFile(file.path, file.name, file.target + "2"))
    assert [one.outcome for one in (formats, beams, elsewhere)] == ["submitted"] * 3
    assert [set(rows.steps(database, one.job_id)) for one in (formats, beams, elsewhere)] == [
        {"deliver"},
        {"prepare", "deliver"},
        {"deliver"},
    ]


def test_changed_bytes_are_another_file(database: Database, make_file: MakeFile) -> None:
    """The same name with other content is new work."""
    (first,) = add(database, make_file())
    finish(database, first)
    (second,) = add(database, make_file(data=b"other"))
    assert (second.outcome, set(rows.steps(database, second.job_id))) == ("submitted", {"prepare", "deliver"})


def test_force_does_everything_again(database: Database, make_file: MakeFile) -> None:
    """With `force` what is done and what is under way is new work that may replace files."""
    file = make_file()
    (first,) = add(database, file)
    finish(database, first)
    (second,) = add(database, file, force=True)
    assert second.outcome == "submitted"
    assert set(rows.steps(database, second.job_id)) == {"prepare", "deliver"}
    assert json.loads(rows.job(database, second.job_id).options)["deliver"]["replace"] is True


def test_a_failed_or_cancelled_job_is_tried_again(database: Database, make_file: MakeFile) -> None:
    """Only live and succeeded jobs count as done before."""
    file = make_file()
    (first,) = add(database, file)
    rows.set_job(database, first.job_id, state=JobState.FAILED)
    (second,) = add(database, file)
    cancel_batch(database, rows.job(database, second.job_id).batch_id)
    (third,) = add(database, file)
    assert (second.outcome, third.outcome) == ("submitted", "submitted")


def test_files_that_we_wrote_are_known_to_a_new_job(database: Database, make_file: MakeFile) -> None:
    """A later job may replace what an earlier one wrote: it knows its hash."""
    (first,) = add(database, make_file())
    path = finish(database, first)
    (second,) = add(database, make_file(data=b"other"))
    options = json.loads(rows.job(database, second.job_id).options)["deliver"]
    assert options["known"] == {"txt": sha256(path.read_bytes()).hexdigest()}


def test_a_batch_in_chunks_keeps_its_order(database: Database, make_file: MakeFile) -> None:
    """Chunks join one batch, numbered on; settling completes it once all have ended."""
    one = submission(database)
    files = [make_file(f"{number}.wav", bytes([number + 1])) for number in range(5)]
    ids = [accepted.job_id for chunk in (files[:2], files[2:]) for accepted in one.add(chunk)]
    one.seal()
    assert [rows.job(database, job_id).seq for job_id in ids] == [1, 2, 3, 4, 5]
    with database.begin() as connection:
        for job_id in ids:
            store.finish_job(connection, job_id, JobState.SUCCEEDED)
    one.settle()
    assert rows.batch(database, one.batch_id).state == "completed"


def test_cancelling_an_unknown_batch_is_an_error(database: Database) -> None:
    """The batch is named, and the command that lists them."""
    with pytest.raises(NoSuchRecord, match="batch_x"):
        cancel_batch(database, "batch_x")


def test_the_lists_show_the_newest_first(database: Database) -> None:
    """Jobs can be listed by state and batch, and what workers do now is shown with its progress."""
    batch_id = rows.add_batch(database)
    old, new = (rows.add_job(database, batch_id, seq=seq, source_name=f"{seq}.wav") for seq in range(2))
    rows.add_job(database)
    lease = rows.hold(database, rows.steps(database, old)["prepare"].id)
    rows.set_step(database, lease.step_run_id, progress_s=2.5)
    assert {one["id"] for one in queries.list_jobs(database, batch_id=batch_id)} == {old, new}
    assert [one["id"] for one in queries.list_jobs(database, state="running")] == [old]
    assert len(queries.list_jobs(database, limit=1)) == 1
    (active,) = queries.active_steps(database, [batch_id])
    assert (active.job_id, active.name, active.step, active.progress_s) == (old, "0.wav", "prepare", 2.5)
    assert queries.live_count(database, batch_id) == 2
    assert queries.finished_jobs(database, [batch_id]) == []


def test_a_full_queue_takes_no_more(database: Database, tmp_path: Path) -> None:
    """Beyond the ceiling a call is refused whole, with a code for "later"; jobs that were sent make room."""
    files = [InputFile(str(one), one.name) for one in (tmp_path / f"{number}.wav" for number in range(4))]
    for number, file in enumerate(files):
        Path(file.path).write_bytes(b"sound" * (number + 1))
    submission(database, max_queued_jobs=3).add(files[:2])
    late = submission(database, max_queued_jobs=3)
    with pytest.raises(QueueFull, match="2 jobs wait already, and no more than 3 may"):
        late.add(files[2:])
    with database.begin() as connection:
        outbox.mark_sent(connection, list(connection.execute(select(jobs.c.id)).scalars()))
    assert [one.outcome for one in late.add(files[2:])] == ["submitted", "submitted"]


def test_a_submission_can_set_a_time(database: Database, tmp_path: Path) -> None:
    """Its jobs carry the moment by which they must be done, by the clock of the database."""
    (tmp_path / "a.wav").write_bytes(b"sound")
    (one,) = submission(database, expires_after_s=60.0).add([InputFile(str(tmp_path / "a.wav"), "a.wav")])
    row = rows.job(database, one.job_id)
    assert 59 < row.expires_at - row.created_at < 61
