import time

import numpy as np
import pytest

from voicejobs.engines.base import EngineSpec, SynthesiseOptions, Synthesiser
from voicejobs.engines.fake_voice import RATE_HZ, FakeVoiceEngine, describe, hear
from voicejobs.errors import BadOption

TEXTS = [f"sentence {number} of many, with {'x' * number}" for number in range(40)]


def load(**params: object) -> FakeVoiceEngine:
    """Return the engine with parameters."""
    return FakeVoiceEngine.load(EngineSpec("fake_voice", params=tuple(params.items())))


def test_the_sound_tells_the_text() -> None:
    """Length and checksum of each text are heard, in order, behind one another or with pauses; a swap shows."""
    engine = load()
    assert isinstance(engine, Synthesiser)
    parts = [sound.samples for sound in engine.synthesise(TEXTS, SynthesiseOptions())]
    wanted = [describe(text) for text in TEXTS]
    assert hear(np.concatenate(parts), RATE_HZ) == wanted
    paused = [np.pad(part, (100 * number, 333)) for number, part in enumerate(parts)]
    assert hear(0.01 * np.concatenate(paused), RATE_HZ) == wanted
    assert hear(np.concatenate([parts[1], parts[0], parts[0]]), RATE_HZ) == [wanted[1], wanted[0], wanted[0]]


def test_speed_and_voice_change_the_sound_and_not_what_it_tells() -> None:
    """At twice the speed it is half as long; the voices differ in level; the tail grows with the text."""
    engine = load(character_s=0.01)
    (plain,) = engine.synthesise(["how are you"], SynthesiseOptions())
    (fast,) = engine.synthesise(["how are you"], SynthesiseOptions(speed=2.0))
    (loud,) = engine.synthesise(["how are you"], SynthesiseOptions(voice="high"))
    assert fast.duration_s == pytest.approx(plain.duration_s / 2, abs=0.01)
    assert np.max(loud.samples) == pytest.approx(2 * np.max(plain.samples), rel=1e-3)
    assert plain.duration_s == pytest.approx(0.02 * 16 + 0.01 * 11, abs=0.01)
    for sound in (plain, fast, loud):
        assert hear(sound.samples, sound.rate_hz) == [describe("how are you")]


@pytest.mark.parametrize("mode", ["sleep", "busy"])
def test_a_call_costs_its_base_and_a_share_for_each_text(mode: str) -> None:
    """The time of a call is a + b*n."""
    engine = load(cost_base_s=0.05, cost_window_s=0.02, cost_mode=mode)
    started = time.perf_counter()
    engine.synthesise(["one", "two", "three"], SynthesiseOptions())
    assert 0.11 <= time.perf_counter() - started < 0.5


def test_what_it_does_not_know_is_refused() -> None:
    """An unknown mode and an unknown voice are errors that name them."""
    with pytest.raises(BadOption, match="quick"):
        load(cost_mode="quick")
    with pytest.raises(BadOption, match="nobody"):
        load().synthesise(["x"], SynthesiseOptions(voice="nobody"))
