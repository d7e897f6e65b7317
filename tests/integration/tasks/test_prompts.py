"""Texts spoken with the voice of a recording: uploaded, or named on the command line; what it costs, and its faults."""

import os
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO

import grpc
import numpy as np
import pytest
import soundfile as sf
from sqlalchemy import select

from tests.bench import Bench
from tests.integration.tasks.test_engines_elsewhere import TEXT, spoken
from tests.servers.cosyvoice import CosyVoiceGrpcServer
from tests.speaking import expected, heard, target, text_file
from voicejobs import queries
from voicejobs.cli.prompts import prompt_option
from voicejobs.errors import BadOption, InputError, NoSuchRecord, NotFound
from voicejobs.intake import Intake, Item, Source, Wish, submit_one
from voicejobs.pipelines.pipeline import SPEAK
from voicejobs.settings import Settings
from voicejobs.steps import prompt
from voicejobs.store import files, prune
from voicejobs.store.blobs import BlobStore
from voicejobs.store.schema import artifacts, jobs
from voicejobs.submit import Submission

RATE_HZ = 44_100
TONE_HZ = 440.0
OPTIONS = {"engine": "cosyvoice", "prompt_text": "So I speak."}


def recording(seconds: float = 2.0, level: float = 0.5) -> bytes:
    """Return a tone in both channels of a FLAC file, at a rate that no engine takes."""
    tone = level * np.sin(2 * np.pi * TONE_HZ * np.arange(int(seconds * RATE_HZ)) / RATE_HZ)
    file = BytesIO()
    sf.write(file, np.stack([tone, tone], axis=1), RATE_HZ, format="FLAC")
    return file.getvalue()


@pytest.fixture
def server() -> Iterator[CosyVoiceGrpcServer]:
    """Return a server of CosyVoice that speaks like the fake voice."""

    def answer(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield spoken(cosyvoice.read(request).zero_shot_request.tts_text)  # type: ignore[attr-defined]

    with CosyVoiceGrpcServer(answer) as cosyvoice:
        yield cosyvoice


def intake(bench: Bench, tenant: str = "default") -> Intake:
    """Return where requests of a tenant go."""
    settings = Settings.from_env(bench.variables())
    blobs = BlobStore(settings.blobs_dir)
    blobs.make_folders()
    return Intake(settings, bench.database, blobs, tenant)


def uploaded(door: Intake, data: bytes) -> str:
    """Upload a file; return its id."""
    stored = door.blobs.put_stream([data])
    return files.add_file(door.database, door.tenant, stored, files.NewFile("voice.flac", "user_data")).id


def ask(door: Intake, file_id: str, **options: str) -> str:
    """Ask for a text to be spoken with an uploaded voice."""
    wish = Wish(pipeline="speak", options={**OPTIONS, "prompt_file_id": file_id, **options}, formats=["wav"])
    return submit_one(door, Item(wish, Source(text="Good morning."))).job_ids[0]


def test_an_uploaded_recording_is_the_voice(bench: Bench, server: CosyVoiceGrpcServer) -> None:
    """The server gets it as 16 kHz mono with its words, although the file is deleted and pruned before a worker looks.

    The row of the job names the recording by its hash alone.
    """
    door = intake(bench)
    file_id = uploaded(door, recording())
    job_id = ask(door, file_id)
    digest = files.get_file(bench.database, door.tenant, file_id).sha256
    os.utime(door.blobs.raw_path(digest), (0, 0))  # nobody takes it for one whose row is still to come
    files.delete_file(bench.database, door.tenant, file_id)
    prune.prune(bench.database, door.blobs, prune.Rules(0.0))
    with bench.database.read() as connection:
        options = connection.execute(select(jobs.c.options).where(jobs.c.id == job_id)).scalar_one()
        kinds = connection.execute(select(artifacts.c.kind).where(artifacts.c.job_id == job_id)).scalars().all()
    assert len(options) < 2000
    assert prompt.KIND in kinds
    bench.start_worker(cosyvoice_url=server.url, cosyvoice_model="CosyVoice2-0.5B", cosyvoice_rate_hz=22_050)
    assert bench.wait_ended(job_id) == {job_id: "succeeded"}
    request = server.read(server.requests[0]).zero_shot_request  # type: ignore[attr-defined]
    assert request.prompt_text == "So I speak."
    pcm = np.frombuffer(request.prompt_audio, "<i2").astype(np.float64)
    assert abs(len(pcm) - 2 * 16_000) <= 16
    spectrum = np.abs(np.fft.rfft(pcm * np.hanning(len(pcm))))
    assert abs(np.argmax(spectrum) * 16_000 / len(pcm) - TONE_HZ) < 1
    assert abs(np.max(np.abs(pcm)) / 32_768 - 0.5) < 0.02


def test_a_recording_of_the_command_line_is_the_voice(bench: Bench, server: CosyVoiceGrpcServer) -> None:
    """What `--prompt-audio` makes of a file, before and after it is kept, is one option, and counts in the done-key."""
    settings = Settings.from_env(bench.variables())
    path = bench.folder / "voice.flac"
    path.write_bytes(recording())
    options = {**OPTIONS, "prompt_audio": prompt_option(settings, path, keep=False)}
    assert options["prompt_audio"] == prompt_option(settings, path, keep=True)
    blobs = BlobStore(settings.blobs_dir)
    batch = Submission(bench.database, SPEAK, SPEAK.options({"synthesise": options}), blobs=blobs)
    (one,) = batch.add([text_file(bench, "a.txt", TEXT)])
    batch.seal()
    bench.start_worker(cosyvoice_url=server.url, cosyvoice_model="CosyVoice2-0.5B", cosyvoice_rate_hz=22_050)
    assert bench.wait_ended(one.job_id) == {one.job_id: "succeeded"}
    assert heard(target(bench, "a.txt").with_suffix(".wav")) == expected(TEXT)
    assert len(server.requests) == len(expected(TEXT))
    other = {**options, "prompt_audio": prompt.named("0" * 64)}
    again = Submission(bench.database, SPEAK, SPEAK.options({"synthesise": other}), blobs=blobs)
    assert batch.keys("x") != again.keys("x")


def test_recordings_that_cannot_be_a_voice_are_refused_before_any_work(bench: Bench) -> None:
    """Too long, silent, empty, missing and none at all: each is told by its name."""
    settings = Settings.from_env(bench.variables())
    path = bench.folder / "voice.flac"
    for data, kind, word in (
        (recording(31.0), BadOption, "longer than 30 s"),
        (recording(level=0.0), BadOption, "silent"),
        (b"", InputError, "no bytes"),
        (b"words" * 100, InputError, "voice.flac"),
    ):
        path.write_bytes(data)
        with pytest.raises(kind, match=word):
            prompt_option(settings, path, keep=False)
    path.unlink()
    with pytest.raises(NotFound):
        prompt_option(settings, path, keep=False)


def test_requests_name_no_recording_but_their_own(bench: Bench) -> None:
    """Another tenant's file, a hash, both ways at once, an engine that takes none, and words alone are refused."""
    door = intake(bench)
    file_id = uploaded(door, recording())
    digest = files.get_file(bench.database, door.tenant, file_id).sha256
    with pytest.raises(NoSuchRecord, match="There is no file"):
        ask(replace(door, tenant="other"), file_id)
    for options, word in (
        ({"prompt_file_id": "", "prompt_audio": prompt.named(digest)}, "another form"),
        ({"prompt_audio": "AAAA"}, "give one"),
        ({"engine": "piper"}, "does not speak with the voice"),
        ({"prompt_file_id": ""}, "there is none"),
    ):
        with pytest.raises(BadOption, match=word):
            ask(door, file_id, **options)


def test_a_recording_that_is_gone_fails_its_job(bench: Bench, server: CosyVoiceGrpcServer) -> None:
    """The job says so, and no server is asked."""
    door = intake(bench)
    job_id = ask(door, uploaded(door, recording(1.0)))
    for digest in list(door.blobs.digests()):
        door.blobs.raw_path(digest).unlink()
    bench.start_worker(cosyvoice_url=server.url, cosyvoice_model="CosyVoice2-0.5B")
    assert bench.wait_ended(job_id) == {job_id: "failed"}
    error = queries.show_job(bench.database, job_id)["error"]
    assert (error["code"], error["message"]) == ("not_found", "The recording of the voice was deleted")
    assert not server.requests
