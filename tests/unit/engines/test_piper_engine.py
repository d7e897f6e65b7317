from pathlib import Path

import numpy as np
import pytest

from voicejobs.engines.base import EngineSpec, SynthesiseOptions, Synthesiser
from voicejobs.engines.piper import PiperEngine
from voicejobs.errors import BadOption, ModelCorrupt
from voicejobs.models.catalogue import find
from voicejobs.models.installed import resolve
from voicejobs.settings import Settings

pytest.importorskip("piper")
VOICE = "en_US-joe-medium"
ONE, TWO = "The harbour was quiet in the early morning.", "Nobody spoke."


@pytest.fixture(scope="module")
def engine() -> PiperEngine:
    """Return the engine with the voice of the catalogue."""
    try:
        files = resolve(find(VOICE), Settings.from_env())
    except Exception as error:  # noqa: BLE001 - whatever is missing, the test cannot run here
        pytest.skip(f"{VOICE} is not here: {error}")
    return PiperEngine.load(EngineSpec("piper", VOICE, str(files.dir)))


def test_a_sentence_has_a_likely_length_and_level(engine: PiperEngine) -> None:
    """Speech of some seconds at the rate of the voice, neither silent nor clipped."""
    (sound,) = engine.synthesise([ONE], SynthesiseOptions())
    assert isinstance(engine, Synthesiser)
    assert sound.rate_hz == 22_050
    assert 1.5 < sound.duration_s < 5.0
    assert 0.05 < float(np.max(np.abs(sound.samples))) < 1.0


def test_the_sound_is_a_function_of_text_and_options(engine: PiperEngine) -> None:
    """The order of texts and what was said before change nothing; another seed gives another sound."""
    first, second = engine.synthesise([ONE, TWO], SynthesiseOptions())
    again, before = engine.synthesise([TWO, ONE], SynthesiseOptions())
    other, _ = engine.synthesise([ONE, TWO], SynthesiseOptions(seed=5))
    assert np.array_equal(first.samples, before.samples)
    assert np.array_equal(second.samples, again.samples)
    assert not np.array_equal(first.samples[:1000], other.samples[:1000])


def test_speed_shortens_the_sound(engine: PiperEngine) -> None:
    """Twice the speed takes about half the time."""
    (plain,) = engine.synthesise([ONE], SynthesiseOptions())
    (fast,) = engine.synthesise([ONE], SynthesiseOptions(speed=2.0))
    assert 0.4 < fast.duration_s / plain.duration_s < 0.7


def test_nothing_to_say_is_an_empty_sound(engine: PiperEngine) -> None:
    """Blanks give no samples; double brackets are text, no phonemes."""
    blank, brackets = engine.synthesise([" ", "[[hello]]"], SynthesiseOptions())
    assert blank.samples.size == 0
    assert brackets.samples.size > 0


def test_voices_and_what_is_refused(engine: PiperEngine, tmp_path: Path) -> None:
    """The one speaker has the name of the model; other voices, wild speeds and folders without a voice are errors."""
    (voice,) = engine.voices()
    assert (voice.name, voice.languages, voice.rate_hz) == (VOICE, ("en",), 22_050)
    assert engine.synthesise([TWO], SynthesiseOptions(voice=VOICE))[0].samples.size
    with pytest.raises(BadOption, match="nobody"):
        engine.synthesise([TWO], SynthesiseOptions(voice="nobody"))
    with pytest.raises(BadOption, match="out of range"):
        engine.synthesise([TWO], SynthesiseOptions(speed=9.0))
    with pytest.raises(ModelCorrupt):
        PiperEngine.load(EngineSpec("piper", "none", str(tmp_path)))
