from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from voicejobs.engines.base import EngineSpec, SynthesiseOptions
from voicejobs.engines.fake_voice import RATE_HZ, FakeVoiceEngine, describe, hear
from voicejobs.steps.join import PEAK, Joiner, JoinOptions, Meter, Take, edges, louder, peak_of

VOICE = FakeVoiceEngine.load(EngineSpec("fake_voice"))


def spoken(*texts: str) -> list[NDArray[np.float32]]:
    """Return the tones of texts."""
    return [sound.samples for sound in VOICE.synthesise(texts, SynthesiseOptions())]


def join(*takes: Take, **options: float) -> tuple[NDArray[np.float32], Joiner]:
    """Return the whole, and the joiner with its times."""
    joiner = Joiner(RATE_HZ, JoinOptions(**options))
    blocks = list(joiner.blocks(takes))
    whole = np.concatenate([*blocks, np.zeros(0, np.float32)])
    assert len(whole) == joiner.samples
    return whole, joiner


def test_every_piece_is_in_the_whole_in_order() -> None:
    """Pieces with and without pauses, with silence of their own at the edges, are all heard."""
    texts = [f"piece {number}" for number in range(20)]
    takes = [
        Take(np.pad(sound, (number * 300, 50 * number)), 0.2 * (number % 3))
        for number, sound in enumerate(spoken(*texts))
    ]
    whole, joiner = join(*takes)
    assert hear(whole, RATE_HZ) == [describe(text) for text in texts]
    assert all(start < end for start, end in joiner.times_s)
    assert all(one[1] <= two[0] + 0.011 for one, two in zip(joiner.times_s, joiner.times_s[1:], strict=False))


@pytest.mark.parametrize("silence_s", [0.0, 0.05, 0.4])
def test_a_pause_is_as_long_as_it_should_be(silence_s: float) -> None:
    """Whether the pieces have no, some or too much silence at their edges, the pause between them is 0.3 s."""
    one, two = spoken("one", "two")
    edge = round(silence_s * RATE_HZ)
    whole, joiner = join(Take(np.pad(one, (0, edge)), 0.3), Take(np.pad(two, (edge, 0))))
    (_, first_end), (second_start, _) = joiner.times_s
    assert second_start - first_end == pytest.approx(0.3, abs=0.003)
    assert len(whole) / RATE_HZ == pytest.approx(0.3 + (len(one) + len(two)) / RATE_HZ, abs=0.011)


def test_without_a_pause_pieces_fade_into_each_other() -> None:
    """Two constant levels meet in a ramp without a step; 20 ms of natural silence at the edges stay."""
    ones = np.full(4_000, 0.5, np.float32)
    whole, _ = join(Take(ones), Take(ones))
    assert len(whole) == 8_000 - 221
    assert float(np.max(np.abs(np.diff(whole)))) < 0.05
    hard, _ = join(Take(ones), Take(-ones), crossfade_ms=0.0)
    assert len(hard) == 8_000
    soft = np.pad(ones, (2_000, 2_000))
    wide, joiner = join(Take(soft), Take(soft), crossfade_ms=0.0)
    assert joiner.times_s[1][0] - joiner.times_s[0][1] == pytest.approx(0.04, abs=0.001)
    assert len(wide) == 8_000 + 2 * 2_000 + round(0.04 * RATE_HZ)


def test_long_silence_at_the_ends_is_cut() -> None:
    """What is longer than 0.1 s before the first and after the last piece goes."""
    (one,) = spoken("one")
    whole, joiner = join(Take(np.pad(one, (30_000, 30_000))))
    assert len(whole) == pytest.approx(len(one) + 2 * round(0.1 * RATE_HZ), abs=30)
    assert joiner.times_s[0][0] == pytest.approx(0.1, abs=0.002)


def test_pieces_begin_when_they_are_told_to() -> None:
    """A piece waits for its moment; one that comes too late follows at once, and is not cut."""
    one, two, three = spoken("one", "two", "three")
    whole, joiner = join(Take(one, starts_s=1.0), Take(two, starts_s=1.1), Take(three, starts_s=5.0))
    starts = [start for start, _ in joiner.times_s]
    assert starts[0] == pytest.approx(1.0, abs=0.002)
    assert starts[1] == pytest.approx(joiner.times_s[0][1], abs=0.011)
    assert starts[2] == pytest.approx(5.0, abs=0.002)
    assert hear(whole, RATE_HZ) == [describe(text) for text in ("one", "two", "three")]


def test_a_piece_without_sound_leaves_its_pause() -> None:
    """It has a place without length, and what follows waits; silence alone stays silence."""
    one, two = spoken("one", "two")
    nothing = np.zeros(500, np.float32)
    _, joiner = join(Take(one, 0.1), Take(nothing, 0.5), Take(two))
    (_, first_end), empty, (last_start, _) = joiner.times_s
    assert empty == (first_end, first_end)
    assert last_start - first_end == pytest.approx(0.5, abs=0.003)
    whole, joiner = join(Take(nothing), Take(np.zeros(0, np.float32)))
    assert (len(whole), joiner.times_s) == (0, [(0.0, 0.0)] * 2)


@pytest.mark.parametrize("level", [0.002, 0.3, 1.0])
def test_the_peak_of_the_whole_is_095(level: float) -> None:
    """Whatever the level, the loudest sample ends within 0.001 of 0.95."""
    (one,) = spoken("one")
    sound = one * (level / float(np.max(np.abs(one))))
    meter = Meter()
    blocks = list(meter.through([sound[:1000], sound[1000:]]))
    whole = np.concatenate(list(louder(blocks, meter.gain)))
    assert float(np.max(np.abs(whole))) == pytest.approx(PEAK, abs=0.001)
    assert meter.samples == len(one)


@pytest.mark.parametrize("level", [0.0, 1e-5])
def test_silence_is_not_made_loud(level: float) -> None:
    """Nothing is divided by zero, and faint noise stays faint."""
    meter = Meter()
    (block,) = louder(list(meter.through([np.full(10, level, np.float32)])), meter.gain)
    assert meter.gain == 1.0
    assert np.allclose(block, level)
    assert list(louder(meter.through([]), meter.gain)) == []


def test_a_piece_is_heard_before_the_next_one_is_there() -> None:
    """All of a piece but its end, which may fade into the next, comes before the next is asked for."""
    asked: list[int] = []
    sounds = spoken("one", "two", "three")

    def takes() -> Iterator[Take]:
        for number, sound in enumerate(sounds):
            asked.append(number)
            yield Take(sound, 0.2)

    blocks = Joiner(RATE_HZ).blocks(takes())
    first = next(blocks)
    assert asked == [0]
    assert len(first) > len(sounds[0]) - 0.1 * RATE_HZ


@pytest.mark.parametrize("pause_s", [0.0, 0.01, 0.3])
@pytest.mark.parametrize("crossfade_ms", [0.0, 10.0, 150.0])
def test_early_sound_is_the_same_sound(monkeypatch: pytest.MonkeyPatch, pause_s: float, crossfade_ms: float) -> None:
    """What is given out early is what would have been given out late, sample by sample."""
    rng = np.random.default_rng(7)
    takes = [
        Take(np.pad(rng.uniform(-0.5, 0.5, size).astype(np.float32), (lead, tail)), pause_s)
        for size, lead, tail in rng.integers(1, 6_000, (20, 3))
    ]
    early, joiner = join(*takes, crossfade_ms=crossfade_ms)
    monkeypatch.setattr(Joiner, "_settled", lambda self: iter(()))
    late, other = join(*takes, crossfade_ms=crossfade_ms)
    assert np.array_equal(early, late)
    assert joiner.times_s == other.times_s


@pytest.mark.parametrize("sound_at", [0, 1, 16_383, 16_384, 40_000])
@pytest.mark.parametrize("length", [1, 100, 16_384, 30_000])
def test_the_edges_of_sound_are_found_to_the_sample(sound_at: int, length: int) -> None:
    """However long the silence before and after the sound is, it is counted, and nothing is changed on the way."""
    samples = np.zeros(sound_at + length + 777, np.float32)
    samples[sound_at : sound_at + length] = -0.5
    given = samples.copy()
    assert edges(samples) == (sound_at, 777)
    assert peak_of(samples) == 0.5
    assert np.array_equal(samples, given)


def test_silence_has_no_edges() -> None:
    """What holds nothing to hear is silence to its end."""
    assert edges(np.full(20_000, 1e-4, np.float32)) == (20_000, 0)
    assert edges(np.zeros(0, np.float32)) == (0, 0)


@pytest.mark.parametrize("cut", [[1], [400, 1300], [2500], [100, 2999]])
def test_a_piece_that_comes_in_parts_is_joined_as_a_whole(cut: list[int]) -> None:
    """Wherever it is cut, silent parts at its end included, the sound and the times are those of the whole piece."""
    rate_hz = 1000
    first = np.concatenate([np.full(2000, 0.5, np.float32), np.zeros(1000, np.float32)])
    second = np.full(500, 0.4, np.float32)
    whole = Joiner(rate_hz)
    expected = np.concatenate(list(whole.blocks([Take(first, 0.3), Take(second)])))
    parts = [Take(part, 0.3, continues=number > 0) for number, part in enumerate(np.split(first, cut))]
    joiner = Joiner(rate_hz)
    found = np.concatenate(list(joiner.blocks([*parts, Take(second)])))
    assert np.array_equal(found, expected)
    assert joiner.times_s == whole.times_s
