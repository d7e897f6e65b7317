"""A stream of real speech through real weights: its final text is that of a job, and partial results lead up to it."""

import os
import threading
import time
from itertools import pairwise
from pathlib import Path

import jiwer
import numpy as np
import pytest

from voicejobs.audio.decode import DecodeOptions, decode
from voicejobs.audio.types import Pcm
from voicejobs.engines.base import EngineSpec, RecogniseOptions
from voicejobs.engines.silero import SileroEngine
from voicejobs.engines.whisper import WhisperEngine
from voicejobs.steps.evidence import words_of
from voicejobs.steps.merge import Piece, merge
from voicejobs.steps.plan import PlanOptions, plan
from voicejobs.steps.recognise import Work, recognise
from voicejobs.streaming.events import End, Event, Result
from voicejobs.streaming.options import StreamOptions
from voicejobs.streaming.recogniser import StreamingRecogniser
from voicejobs.units import samples_to_seconds

SHARED = Path(__file__).parents[4] / "shared" / "speech"
OPTIONS = RecogniseOptions(language="en", word_timestamps=True, temperatures=(0.0, 0.4))
pytestmark = [pytest.mark.models, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def detector() -> SileroEngine:
    """Return the loaded detector."""
    pytest.importorskip("onnxruntime", reason="the extra worker is not installed")
    return SileroEngine.load(EngineSpec("silero"))


@pytest.fixture
def tiny(models_dir: Path) -> WhisperEngine:
    """Return tiny.en, or skip where it is not installed."""
    folder = models_dir / "tiny.en"
    if not (folder / "model.bin").is_file():
        reason = f"model tiny.en is not installed in {folder}: voicejobs models pull tiny.en"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return WhisperEngine.load(EngineSpec("whisper", "tiny.en", str(folder)))


def recording(*names: str) -> Pcm:
    """Return recordings beside the checkout, a pause after each, or skip."""
    parts = [np.zeros(8000, np.int16)]
    for name in names:
        if not (SHARED / name).is_file():
            pytest.skip(f"{SHARED / name} is missing")
        with decode(SHARED / name, DecodeOptions()) as audio:
            parts += [block[0] for block in audio.blocks()]
        parts.append(np.zeros(24_000, np.int16))
    return np.concatenate(parts)


def offline(sound: Pcm, detector: SileroEngine, engine: WhisperEngine) -> str:
    """Return the text of a job."""
    probabilities, _ = detector.probabilities(sound, b"")
    planned = plan(probabilities, len(sound), detector.frame_samples, PlanOptions())
    work = Work(planned.windows, lambda span: sound[span.start_samples : span.end_samples], speech=planned.speech)
    pieces = [Piece(planned.windows, recognise(work, engine, OPTIONS))]
    return "".join(segment.text for segment in merge(pieces, samples_to_seconds(len(sound))))


def streamed(sound: Pcm, detector: SileroEngine, engine: WhisperEngine) -> list[Event]:
    """Return the events of a stream that comes as fast as it is decoded, however busy the machine is."""
    events: list[Event] = []
    options = StreamOptions(recognise=OPTIONS, partial_every_s=1.0)
    with StreamingRecogniser(engine, detector, options) as stream:
        taker = threading.Thread(target=lambda: events.extend(stream.events()))
        taker.start()
        for start in range(0, len(sound), 320):
            stream.feed(sound[start : start + 320])
            while stream._first.busy:
                time.sleep(0.001)
        stream.finish()
        taker.join()
    return events


def test_the_final_text_is_that_of_a_job(detector: SileroEngine, tiny: WhisperEngine) -> None:
    """Two recordings streamed in 20 ms frames: the final text is within 0.03 WER of the offline one."""
    sound = recording("jfk.flac", "arctic_aew_a0001.wav")
    wanted = offline(sound, detector, tiny)
    events = streamed(sound, detector, tiny)
    last = {event.segment_id: event for event in events if isinstance(event, Result) and event.kind != "partial"}
    finals = list(last.values())
    said = " ".join(event.text for event in finals)
    assert jiwer.wer(" ".join(words_of(wanted)), " ".join(words_of(said))) <= 0.03
    assert events[-1] == End(samples_to_seconds(len(sound)))
    words = [word for event in finals for word in event.words]
    assert all(before.end_s <= after.start_s for before, after in pairwise(words))
    assert words[-1].end_s <= samples_to_seconds(len(sound))


def test_partial_results_lead_up_to_the_final_one(detector: SileroEngine, tiny: WhisperEngine) -> None:
    """Before a phrase is final it was shown, and most of its words were right."""
    events = [event for event in streamed(recording("jfk.flac"), detector, tiny) if isinstance(event, Result)]
    finals = [event for event in events if event.kind == "final"]
    assert finals
    for final in finals:
        partials = [event for event in events if event.kind == "partial" and event.segment_id == final.segment_id]
        assert partials
        assert events.index(partials[0]) < events.index(final)
        assert jiwer.wer(" ".join(words_of(final.text)), " ".join(words_of(partials[-1].text))) <= 0.34
