"""Detector, planner, recogniser, review and merge together on real weights: what is heard, and what is not invented."""

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from voicejobs.audio.decode import DecodeOptions, decode
from voicejobs.audio.types import Pcm, Segment
from voicejobs.engines.base import EngineSpec, RecogniseOptions
from voicejobs.engines.silero import SileroEngine
from voicejobs.engines.whisper import WhisperEngine
from voicejobs.steps.merge import Piece, merge
from voicejobs.steps.plan import PlanOptions, plan
from voicejobs.steps.recognise import Work, recognise
from voicejobs.units import SAMPLE_RATE_HZ, samples_to_seconds

SHARED = Path(__file__).parents[4] / "shared"
PROMPT = "Glossary: Kubernetes, Postgres, Grimmelshausen, Celery workers."
ENGLISH = RecogniseOptions(language="en", temperatures=(0.0, 0.4))
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


def samples_of(name: str) -> Pcm:
    """Return the samples of a recording beside the checkout, or skip."""
    path = SHARED / name
    if not path.is_file():
        pytest.skip(f"{path} is missing")
    with decode(path, DecodeOptions()) as audio:
        return np.concatenate([np.zeros(0, np.int16), *(block[0] for block in audio.blocks())])


def transcribe(
    samples: Pcm,
    engines: tuple[SileroEngine, WhisperEngine],
    options: RecogniseOptions = ENGLISH,
    wanted: PlanOptions | None = None,
) -> tuple[Segment, ...]:
    """Return the segments of a recording, as the steps of a job make them."""
    probabilities, _ = engines[0].probabilities(samples, b"")
    planned = plan(probabilities, samples.size, engines[0].frame_samples, wanted or PlanOptions())
    work = Work(planned.windows, lambda span: samples[span.start_samples : span.end_samples], speech=planned.speech)
    found = recognise(work, engines[1], options)
    return merge([Piece(planned.windows, found)], samples_to_seconds(samples.size))


def text_of(segments: tuple[Segment, ...]) -> str:
    """Return all of the text, in lower case."""
    return "".join(segment.text for segment in segments).lower()


def faint_noise(seconds: float) -> Pcm:
    """Return noise that nobody would hear."""
    return np.random.default_rng(11).integers(-12, 13, int(seconds * SAMPLE_RATE_HZ)).astype(np.int16)


def buzz(seconds: float) -> Pcm:
    """Return a buzz that swells like syllables, whose beginning the detector takes for speech."""
    times = np.arange(int(seconds * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    tone = sum(np.sin(2 * np.pi * 120 * k * times + k) / k for k in range(1, 25))
    swelling = tone * (0.5 + 0.5 * np.sin(2 * np.pi * 3 * times))
    return np.asarray(swelling / np.sqrt(np.mean(swelling**2)) * 328, np.int16)


@pytest.mark.parametrize(
    "options",
    [
        ENGLISH,
        RecogniseOptions(language="en", initial_prompt=PROMPT),
        RecogniseOptions(language="en", hotwords="Kubernetes Grimmelshausen"),
    ],
    ids=["plain", "prompt", "hotwords"],
)
def test_near_silence_and_a_buzz_say_nothing(
    detector: SileroEngine, tiny: WhisperEngine, options: RecogniseOptions
) -> None:
    """No habit of the model and no word of a prompt comes out of sound without speech."""
    for sound in (faint_noise(5.0), buzz(8.0)):
        assert transcribe(sound, (detector, tiny), options) == ()


def test_a_prompt_does_not_leak_into_a_short_answer(detector: SileroEngine, tiny: WhisperEngine) -> None:
    """Half a second of speech in noise gives what was said, and nothing of the prompt."""
    speech = samples_of("speech/mfa_common_voice_en_22058264.mp3")
    sound = np.concatenate([faint_noise(3.0), speech, faint_noise(3.0)])
    options = RecogniseOptions(language="en", initial_prompt=PROMPT, hotwords="Kubernetes")
    text = text_of(transcribe(sound, (detector, tiny), options))
    assert "no" in text
    assert not any(word in text for word in ("kubernetes", "postgres", "grimmelshausen", "celery", "glossary"))


def test_a_clip_gives_its_words_at_their_times_in_the_file(detector: SileroEngine, tiny: WhisperEngine) -> None:
    """Only the stretch is recognised; times count from the start of the file."""
    speech = samples_of("speech/jfk.flac")
    found = transcribe(speech, (detector, tiny), wanted=PlanOptions(clips=((5.0, None),)))
    assert found[0].start_s >= 5.0
    assert "what you can do for your country" in text_of(found)
    assert "fellow americans" not in text_of(found)


def test_words_have_sane_times(detector: SileroEngine, tiny: WhisperEngine) -> None:
    """Words rise, do not overlap, lie in their segments and in the recording, and last as long as words do."""
    speech = samples_of("speech/jfk.flac")
    found = transcribe(speech, (detector, tiny), RecogniseOptions(language="en", word_timestamps=True))
    words = [word for segment in found for word in segment.words]
    assert len(words) >= 20
    assert all(one.end_s <= two.start_s for one, two in pairwise(words))
    assert words[-1].end_s <= samples_to_seconds(speech.size)
    assert all(word.end_s - word.start_s < 2.0 for word in words)
    for segment in found:
        assert segment.start_s == segment.words[0].start_s
        assert segment.end_s == segment.words[-1].end_s


def test_a_phrase_that_was_said_eight_times_stays(detector: SileroEngine, tiny: WhisperEngine) -> None:
    """A loop filter must not eat a drill."""
    segments = transcribe(samples_of("cases/same-words-eight-times/drill.flac"), (detector, tiny))
    assert 7 <= text_of(segments).count("small dog") <= 9
