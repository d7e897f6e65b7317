"""Segments begin and end where a job would cut windows, as far as the future is not needed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.streaming.sounds import LevelDetector, frames, silence, speech
from voicejobs.audio.types import Pcm, Span
from voicejobs.steps.windows import DEFAULT
from voicejobs.streaming.endpoints import Ear, Endpointer, Tape, Utterance, best_cut
from voicejobs.streaming.options import StreamOptions


def cut(sound: Pcm, options: StreamOptions | None = None) -> list[Utterance]:
    """Return the segments of a sound that comes in 20 ms frames."""
    ear = Ear(LevelDetector())
    ends = Endpointer(options or StreamOptions(together=False), ear.frame_samples)
    found = [one for frame in frames(sound) for one in ends.take(frame, ear.listen(frame))]
    return found + ends.finish(ear.finish())


def test_a_segment_has_its_padding() -> None:
    """Speech far from either end of the stream gets 0.4 s on both sides."""
    (only,) = cut(np.concatenate([silence(10), speech(1000, 1001), silence(10)]))
    assert abs(only.window.start_samples - 9.6 * 16_000) <= 512
    assert abs(only.window.end_samples - (10.7 + 0.4) * 16_000) <= 512
    assert len(only.samples) == only.window.length_samples


def test_a_stream_that_begins_with_speech_is_decoded_from_its_beginning() -> None:
    """Within two seconds of the beginning the window begins there, as that of a job does; likewise at the end."""
    (only,) = cut(np.concatenate([silence(1.5), speech(1000, 1001), silence(0.7)]))
    assert only.window == Span(0, round(2.9 * 16_000))


def test_the_samples_are_those_of_the_stream() -> None:
    """Whatever was forgotten before, an utterance holds exactly the samples of its window."""
    sound = np.concatenate([silence(7.3), speech(*range(1000, 1090)), silence(3), speech(5000), silence(1)])
    for one in cut(sound):
        assert np.array_equal(one.samples, sound[one.window.start_samples : one.window.end_samples])


def test_long_speech_is_cut_in_its_pauses() -> None:
    """50 s of speech with short pauses each 7 s is cut in pauses, into windows of at most 30 s."""
    part = np.concatenate([speech(*range(1000, 1020)), silence(0.5)])
    found = cut(np.concatenate([silence(3), np.tile(part, 7), silence(2)]))
    assert len(found) >= 2
    for one in found:
        assert one.window.length_samples <= 30 * 16_000
        assert one.samples[0] == 0
        assert one.samples[-1] == 0


@settings(deadline=None, max_examples=25)
@given(
    parts=st.lists(st.tuples(st.integers(1, 130), st.floats(0.05, 3.0)), min_size=1, max_size=6),
    lead_s=st.floats(0.0, 5.0),
    end_silence_s=st.sampled_from([0.2, 0.5, 0.8, 2.0]),
)
def test_windows_are_disjoint_bounded_and_lose_no_speech(
    parts: list[tuple[int, float]], lead_s: float, end_silence_s: float
) -> None:
    """Whatever speech and pauses there are: windows in order, none over 30 s, and all speech in one of them."""
    sound = np.concatenate([silence(lead_s), *(np.concatenate([speech(*[2000] * n), silence(s)]) for n, s in parts)])
    found = cut(sound, StreamOptions(end_silence_s=end_silence_s, together=False))
    inside = np.zeros(len(sound), bool)
    before = 0
    for number, one in enumerate(found, 1):
        assert one.segment_id == number
        assert before <= one.window.start_samples < one.window.end_samples <= len(sound)
        assert one.window.length_samples <= 30 * 16_000
        assert one.speech
        before = one.window.end_samples
        inside[one.window.start_samples : one.window.end_samples] = True
    assert inside[sound == 2000].all()


def test_a_click_begins_no_segment() -> None:
    """A burst of 30 ms is no speech."""
    assert cut(np.concatenate([silence(3), np.full(480, 9000, np.int16), silence(3)])) == []


def test_the_best_cut_is_late_and_in_a_long_pause() -> None:
    """Of two pauses of the same worth the later is taken, a good one in the second half before all."""
    spans = [Span(0, 100_000), Span(110_000, 200_000), Span(210_000, 300_000), Span(310_000, 480_000)]
    assert best_cut(spans, 460_000, DEFAULT) == 3
    early = [Span(0, 50_000), Span(80_000, 300_000), Span(301_000, 480_000)]
    assert best_cut(early, 460_000, DEFAULT) == 2


def test_the_detector_is_called_for_a_few_frames_at_once() -> None:
    """A second in 20 ms frames costs 15 calls of the detector, not 50."""
    detector = LevelDetector()
    ear = Ear(detector)
    found = sum(len(ear.listen(frame)) for frame in frames(silence(1)))
    assert detector.calls == 15
    assert found + len(ear.finish()) == 32


@pytest.mark.parametrize("drop_s", [0.5, 40.0])
def test_the_tape_gives_its_memory_back(drop_s: float) -> None:
    """A tape that held a minute takes seconds of memory once that is forgotten."""
    tape = Tape()
    for _ in range(60):
        tape.append(silence(1))
    tape.drop_before(round(59 * 16_000 + drop_s * 16_000))
    assert len(tape._samples) <= 2 * 16_000
    assert tape.end == 60 * 16_000
    tape.append(speech(1000))
    assert tape.read(Span(tape.end - 100, tape.end)).size == 100
