"""Inputs that lie in no file: workers read them from the blob store, in every pipeline."""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from tests import speaking
from tests.bench import Bench
from tests.rows import job
from tests.speaking import FAKE
from voicejobs import control
from voicejobs.audio.types import Transcript
from voicejobs.errors import NoSuchRecord
from voicejobs.pipelines.pipeline import DUB, SPEAK, TRANSCRIBE, Pipeline
from voicejobs.settings import Settings
from voicejobs.store import artifacts
from voicejobs.store.blobs import INLINE_LIMIT_BYTES, BlobStore
from voicejobs.store.schema import jobs
from voicejobs.submit import Blob, InputFile, Submission

SRT = "1\n00:00:00,000 --> 00:00:02,000\nGood morning.\n\n2\n00:00:03,000 --> 00:00:05,000\nGood night.\n"
HEAR: Mapping[str, Mapping[str, Any]] = {"recognise": {"engine": "fake", "model": ""}}
SPEAK_FAKE: Mapping[str, Mapping[str, Any]] = {"synthesise": FAKE}


def blobs_of(bench: Bench) -> BlobStore:
    """Return the blob store of a bench."""
    return BlobStore(Settings(state_dir=bench.folder / "state", models_dir=bench.folder / "models").blobs_dir)


def submit(bench: Bench, pipeline: Pipeline, options: Mapping[str, Mapping[str, Any]], name: str, data: bytes) -> str:
    """Submit bytes as the service does: alone, from a blob, without a target."""
    stored = blobs_of(bench).put_stream([data])
    batch = Submission(bench.database, pipeline, pipeline.options(options), alone=True, kind="single")
    (accepted,) = batch.add([InputFile(f"/uploads/{name}", name, blob=Blob(*stored))])
    batch.seal()
    return accepted.job_id


def test_every_pipeline_takes_blobs(bench: Bench, tmp_path: Path) -> None:
    """A recording is heard, a text and subtitles are spoken; what is kept of them are artifacts."""
    recording = bench.recording("talk.wav").read_bytes()
    heard = submit(bench, TRANSCRIBE, HEAR, "talk.wav", recording)
    said = submit(bench, SPEAK, SPEAK_FAKE, "letter.txt", b"Good morning. Good night.")
    dubbed = submit(bench, DUB, SPEAK_FAKE, "film.srt", SRT.encode())
    bad = submit(bench, TRANSCRIBE, HEAR, "noise.wav", b"no sound at all " * 100)
    bench.start_worker()
    states = bench.wait_ended(heard, said, dubbed, bad)
    assert [states[one] for one in (heard, said, dubbed, bad)] == ["succeeded", "succeeded", "succeeded", "failed"]
    heard_json = json.loads(artifacts.load_kind(bench.database, blobs_of(bench), heard, "transcript"))
    assert Transcript.from_json(heard_json).source_name == "talk.wav"
    refused = json.loads(job(bench.database, bad).error)
    assert (refused["code"], refused["message"].partition(":")[0]) == ("not_audio", "noise.wav")
    assert str(tmp_path) not in refused["message"]


def test_spoken_sound_without_a_place_is_kept(bench: Bench, tmp_path: Path) -> None:
    """Each format is an artifact that the outputs name, and so are captions; another format is made from the wav."""
    text = b"The tide is high. " * 20
    formats = {"formats": ["wav", "mp3"], "captions": ["srt"]}
    job_id = submit(bench, SPEAK, {**SPEAK_FAKE, "join": formats}, "tide.txt", text)
    bench.start_worker()
    assert bench.wait_ended(job_id) == {job_id: "succeeded"}
    outputs = {one["format"]: one for one in json.loads(job(bench.database, job_id).outputs)}
    assert set(outputs) == {"wav", "mp3", "srt"}
    blobs = blobs_of(bench)
    contents = {}
    for name, output in outputs.items():
        kept = artifacts.describe(bench.database, "default", output["artifact"])
        assert (kept.job_id, kept.sha256, kept.size_bytes) == (job_id, output["sha256"], output["size"])
        with artifacts.open_content(bench.database, blobs, kept) as file:
            contents[name] = file.read()
        assert sha256(contents[name]).hexdigest() == output["sha256"]
        assert kept.is_blob == (kept.size_bytes > INLINE_LIMIT_BYTES)
        assert kept.meta["format"] == name
    assert artifacts.describe(bench.database, "default", outputs["mp3"]["artifact"]).meta["type"] == "audio/mpeg"
    assert b" --> " in contents["srt"]
    sound = tmp_path / "sound.wav"
    sound.write_bytes(contents["wav"])
    assert speaking.heard(sound) == speaking.expected(text.decode())
    with pytest.raises(NoSuchRecord):
        artifacts.describe(bench.database, "another", outputs["wav"]["artifact"])
    again = submit(bench, SPEAK, {**SPEAK_FAKE, "join": {"formats": ["flac"], "captions": []}}, "tide.txt", text)
    assert bench.wait_ended(again) == {again: "succeeded"}
    assert bench.stories(again) == {"join": ["succeeded"]}
    assert not list(blobs.incoming.iterdir())


def test_a_blob_that_was_deleted_is_missed_by_name(bench: Bench) -> None:
    """A job whose upload is gone fails with its name; once the bytes are there again, it can be taken up again."""
    recording = bench.recording("gone.wav").read_bytes()
    job_id = submit(bench, TRANSCRIBE, HEAR, "gone.wav", recording)
    digest = str(job(bench.database, job_id).input_sha256)
    blobs_of(bench).raw_path(digest).unlink()
    bench.start_worker()
    assert bench.wait_ended(job_id) == {job_id: "failed"}
    failed = json.loads(job(bench.database, job_id).error)
    assert (failed["code"], failed["message"]) == ("not_found", "gone.wav was deleted")
    blobs_of(bench).put_stream([recording])
    assert control.retry_jobs(bench.database, [job_id]).queued == [job_id]
    assert bench.wait_ended(job_id) == {job_id: "succeeded"}
    with bench.database.begin() as connection:
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(state="failed"))
    assert control.retry_jobs(bench.database, [job_id]).refused == {}
