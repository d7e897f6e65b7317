"""Pipelines that speak what was heard or timed: transcribe+speak, and dub."""

import json
from typing import Any

import pytest
import soundfile as sf
from sqlalchemy import select

from tests.bench import Bench
from tests.rows import steps
from tests.speaking import expected, heard, speak, target, text_file
from voicejobs.engines.fake_voice import describe
from voicejobs.errors import VoicejobsError
from voicejobs.models.catalogue import find
from voicejobs.models.installed import resolve
from voicejobs.pipelines.pipeline import DUB, TRANSCRIBE_SPEAK
from voicejobs.settings import Settings
from voicejobs.store.schema import artifacts
from voicejobs.submit import InputFile

CUES = """1
00:00:01,000 --> 00:00:02,000
The first one has room enough.

2
00:00:04,000 --> 00:00:04,400
The second has less.

3
00:00:04,200 --> 00:00:09,000
The third begins too early.
"""


def output(bench: Bench, job_id: str, node: str) -> dict[str, Any]:
    """Return what a step run left behind."""
    found: dict[str, Any] = json.loads(steps(bench.database, job_id)[node].output)
    return found


def test_a_recording_is_transcribed_and_spoken_in_one_canvas(either_bench: Bench) -> None:
    """What the recogniser wrote is what the voice says, with the changes of the table; the transcript is kept."""
    bench = either_bench
    bench.start_worker()
    path = bench.recording("a.wav", 3.0)
    file = InputFile(str(path), "a.wav", str(target(bench, "a.wav")))
    recognise = {"engine": "fake", "model": ""}
    (one,) = speak(bench, file, pipeline=TRANSCRIBE_SPEAK, recognise=recognise, retell={"replace": [["n4", "north 4"]]})
    assert bench.wait_ended(one.job_id) == {one.job_id: "succeeded"}
    text = bench.text(one.job_id)
    assert "c" in text
    assert heard(target(bench, "a.wav").with_suffix(".wav")) == expected(text)
    (again,) = speak(bench, file, pipeline=TRANSCRIBE_SPEAK, recognise=recognise)
    assert again.outcome == "submitted", "another table is another job"


@pytest.mark.timeout(120)
def test_a_long_recording_forks_twice(bench: Bench) -> None:
    """Shards of windows join to a text, whose shards are spoken and join to a sound."""
    bench.start_worker()
    path = bench.recording("long.wav", 1500.0)
    file = InputFile(str(path), "long.wav", str(target(bench, "long.wav")))
    (one,) = speak(bench, file, pipeline=TRANSCRIBE_SPEAK, recognise={"engine": "fake", "model": ""})
    assert bench.wait_ended(one.job_id, timeout_s=90) == {one.job_id: "succeeded"}
    assert len([name for name in steps(bench.database, one.job_id) if name.startswith("recognise")]) > 1
    assert heard(target(bench, "long.wav").with_suffix(".wav")) == expected(bench.text(one.job_id))


def test_a_dub_keeps_the_times_of_its_captions(bench: Bench) -> None:
    """Each line begins at its moment; one that is too long is sped up, and told of where that is not enough."""
    bench.start_worker()
    file = text_file(bench, "a.srt", CUES)
    (one,) = speak(bench, file, pipeline=DUB, join={"captions": ["json"]}, synthesise={"max_speed": 1.2})
    assert bench.wait_ended(one.job_id) == {one.job_id: "succeeded"}
    stem = target(bench, "a.srt")
    segments = json.loads(stem.with_suffix(".json").read_text("utf-8"))["segments"]
    starts = [segment["start"] for segment in segments]
    assert starts[:2] == pytest.approx([1.0, 4.0], abs=0.002)
    assert starts[2] == pytest.approx(segments[1]["end"], abs=0.02)
    texts = ["The first one has room enough.", "The second has less.", "The third begins too early."]
    assert heard(stem.with_suffix(".wav")) == [describe(text) for text in texts]
    (warning,) = output(bench, one.job_id, "join")["warnings"]
    assert (warning["code"], warning["line"]) == ("does_not_fit", 1)
    assert sf.info(stem.with_suffix(".wav")).duration > 4.4


def test_lines_are_listened_to(bench: Bench) -> None:
    """A recogniser that hears nothing of the text: each line is spoken as often as may be, and told of."""
    bench.start_worker()
    verify = {"engine": "fake", "model": "", "max_cer": 0.1, "tries": 2}
    (one,) = speak(bench, text_file(bench, "a.txt", "One line. And another."), synthesise={"verify": verify})
    assert bench.wait_ended(one.job_id) == {one.job_id: "succeeded"}
    warnings = output(bench, one.job_id, "join")["warnings"]
    assert [(one["code"], one["line"]) for one in warnings] == [("not_understood", 0), ("not_understood", 1)]
    facts = output(bench, one.job_id, "synthesise")["parts"][0]["facts"]
    assert [fact["tries"] for fact in facts] == [2, 2]


def test_a_recording_may_be_dubbed_by_its_own_times(bench: Bench) -> None:
    """With `keep_times` what was heard begins when it was said, and lasts no longer than until the next."""
    bench.start_worker()
    path = bench.recording("a.wav", 50.0)
    file = InputFile(str(path), "a.wav", str(target(bench, "a.wav")))
    recognise = {"engine": "fake", "model": ""}
    (one,) = speak(
        bench, file, pipeline=TRANSCRIBE_SPEAK, recognise=recognise, retell={"keep_times": True},
        join={"captions": ["json"], "formats": ["flac"]},
    )  # fmt: skip
    assert bench.wait_ended(one.job_id) == {one.job_id: "succeeded"}
    heard_at = [window[0] / 16_000 for window in output(bench, one.job_id, "recognise")["windows"]]
    assert len(heard_at) > 1
    segments = json.loads(target(bench, "a.wav").with_suffix(".json").read_text("utf-8"))["segments"]
    assert [segment["start"] for segment in segments] == pytest.approx(heard_at, abs=0.02)
    with bench.database.read() as connection:
        kinds = connection.execute(select(artifacts.c.kind).where(artifacts.c.job_id == one.job_id)).scalars()
        assert sorted(kinds) == ["captions", "transcript"]


@pytest.mark.timeout(240)
def test_real_speech_is_understood(bench: Bench) -> None:
    """Piper speaks, whisper listens: nothing needs to be said of clear sentences, and each was scored."""
    settings = Settings.from_env()
    for name in ("en_US-joe-medium", "tiny.en"):
        try:
            resolve(find(name), settings)
        except VoicejobsError as error:
            pytest.skip(f"{name} is not here: {error.message}")
    pytest.importorskip("piper")
    bench.start_worker(models_dir=settings.models_dir)
    text = "The harbour was quiet in the early morning. He remembered the broken lantern near the old stone bridge."
    given = {
        "engine": "piper", "model": "en_US-joe-medium", "model_sha256": find("en_US-joe-medium").sha256,
        "verify": {"model": "tiny.en", "max_cer": 0.25},
    }  # fmt: skip
    (one,) = speak(bench, text_file(bench, "a.txt", text), synthesise=given)
    assert bench.wait_ended(one.job_id, timeout_s=200) == {one.job_id: "succeeded"}
    assert output(bench, one.job_id, "join")["warnings"] == []
    facts = output(bench, one.job_id, "synthesise")["parts"][0]["facts"]
    assert [fact["cer"] <= 0.25 for fact in facts] == [True, True]
    assert 4.0 < sf.info(target(bench, "a.txt").with_suffix(".wav")).duration < 12.0
