from collections.abc import Callable, Sequence

import numpy as np
import pytest

from voicejobs.audio.types import Pcm, Segment, Span, WindowResult, Word
from voicejobs.engines.base import RecogniseOptions
from voicejobs.steps.plan import Speech
from voicejobs.steps.review import Window, inside, review
from voicejobs.units import SAMPLE_RATE_HZ

OPTIONS = RecogniseOptions(language="en")
PROMPT = "Glossary: Kubernetes, Postgres, Celery workers."


class Scripted:
    """A recogniser that answers by a function, and keeps what it was asked."""

    def __init__(self, answer: Callable[[Pcm, RecogniseOptions], WindowResult]) -> None:
        self.answer = answer
        self.calls: list[tuple[int, RecogniseOptions]] = []

    def recognise(self, windows: Sequence[Pcm], options: RecogniseOptions) -> list[WindowResult]:
        """Answer each window."""
        self.calls += [(len(window), options) for window in windows]
        return [self.answer(window, options) for window in windows]

    def detect_language(self, window: Pcm) -> tuple[str, float]:
        """Return English."""
        return "en", 1.0


def never(window: Pcm, options: RecogniseOptions) -> WindowResult:
    """Fail: nothing is to be asked again."""
    raise AssertionError


def said(text: str, start_s: float, end_s: float, logprob: float = -0.3, no_speech: float = 0.05) -> Segment:
    """Return a segment with the figures of a recogniser."""
    return Segment(start_s, end_s, text, avg_logprob=logprob, no_speech_prob=no_speech, compression_ratio=1.0)


def sound(seconds: float, *speech: tuple[float, float], peak: float = 0.98) -> Window:
    """Return a window with speech in the given seconds."""
    rng = np.random.default_rng(5)
    spans = [Speech(Span(int(start * 16000), int(end * 16000)), peak) for start, end in speech]
    return Window(rng.integers(-3000, 3000, int(seconds * SAMPLE_RATE_HZ)).astype(np.int16), spans)


def text_of(result: WindowResult) -> str:
    """Return all of the text."""
    return "".join(segment.text for segment in result.segments)


@pytest.mark.parametrize("text", [" No.", " Yes", " Thank you.", " you", " Kubernetes."])
def test_what_was_spoken_stays_whatever_the_words(text: str) -> None:
    """No word is suspect by itself: with clear speech under it, even the commonest invention stays."""
    heard = WindowResult((said(text, 0.0, 2.0, -0.87, 0.5),), "en")
    assert text_of(review(sound(4.1, (0.9, 1.4)), heard, Scripted(never), OPTIONS)) == text


@pytest.mark.parametrize(
    ("segment", "speech", "peak"),
    [
        (said(" Thank you.", 0.0, 2.0, -0.2, 0.1), (), 0.0),
        (said(" It was a long day.", 6.0, 9.0, -0.9, 0.2), ((0.5, 2.0),), 0.98),
        (said(" Mm-hmm.", 0.0, 0.7, -0.92, 0.92), ((0.0, 0.29),), 0.79),
        (said(" Thanks for watching!", 0.0, 2.0, -0.6, 0.2), ((0.0, 0.2),), 0.7),
        (said(" \u266a", 0.0, 2.0), ((0.0, 2.0),), 0.98),
        (said(" . .", 2.0, 2.0, -0.66, 0.94), ((0.0, 2.0),), 0.98),
        (said(" The quick brown fox jumps over the lazy dog by the river.", 0.0, 0.3, -1.2, 0.3), ((0.0, 0.3),), 0.98),
    ],
    ids=["habit", "pause", "weak", "weak-habit", "music", "marks", "too-fast"],
)
def test_what_no_speech_supports_is_dropped(
    segment: Segment, speech: tuple[tuple[float, float], ...], peak: float
) -> None:
    """Words in silence, under a faint trace of speech, or far too many for it, are not in the transcript."""
    window = sound(10.0, *speech, peak=peak)
    assert review(window, WindowResult((segment,), "en"), Scripted(never), OPTIONS).segments == ()


def test_text_of_engines_without_figures_stays_where_there_is_speech() -> None:
    """Engines that say nothing of their certainty are believed."""
    heard = WindowResult((Segment(0.0, 1.0, " hello"),), "en")
    assert text_of(review(sound(2.0, (0.2, 0.9), peak=0.6), heard, Scripted(never), OPTIONS)) == " hello"
    unmeasured = Window(np.zeros(32000, np.int16), None)
    assert review(unmeasured, heard, Scripted(never), OPTIONS) == heard


def test_a_prompt_that_comes_back_as_text_is_decoded_again_without_it() -> None:
    """What stands in the prompt and is not heard without it was never said."""
    again = Scripted(lambda window, options: WindowResult((said(" Hello there.", 0.0, 1.0),), "en"))
    options = RecogniseOptions(language="en", initial_prompt=PROMPT, hotwords="Grimmelshausen")
    for leak in (
        " Kubernetes, Postgres.",
        " Glossary: Kubernetes, Postgres, Celery workers. Hello.",
        " Grimmelshausen",
    ):
        heard = WindowResult((said(leak, 0.0, 2.0),), "en", 0.9)
        found = review(sound(3.0, (0.2, 1.2)), heard, again, options)
        assert text_of(found) == " Hello there."
        assert found.language_probability == 0.9
        assert (again.calls[-1][1].initial_prompt, again.calls[-1][1].hotwords) == ("", "")


def test_a_prompt_over_near_silence_leaves_nothing() -> None:
    """Where the recogniser is silent without its prompt, so is the transcript."""
    heard = WindowResult((said(" Kubernetes, Postgres, Celery workers.", 0.0, 2.0, -0.4, 0.3),), "en")
    options = RecogniseOptions(language="en", initial_prompt=PROMPT)
    found = review(sound(2.0, (0.0, 0.2), peak=0.6), heard, Scripted(lambda *_: WindowResult((), "en")), options)
    assert found.segments == ()


def test_a_word_of_the_prompt_that_was_said_keeps_its_spelling() -> None:
    """Hotwords are there to spell what is said; the second look finds the same sounds and lets it be."""
    heard = WindowResult((said(" Celery workers", 0.0, 1.0),), "en")
    again = Scripted(lambda *_: WindowResult((said(" salary workers", 0.0, 1.0),), "en"))
    options = RecogniseOptions(language="en", hotwords="Celery workers")
    assert text_of(review(sound(2.0, (0.2, 1.0)), heard, again, options)) == " Celery workers"


def looping(times: int, start_s: float = 0.0, each_s: float = 2.0) -> WindowResult:
    """Return one phrase over and over, a segment each."""
    return WindowResult(
        tuple(said(" I am going there.", start_s + n * each_s, start_s + (n + 1) * each_s) for n in range(times)), "en"
    )


def test_a_loop_is_broken_by_decoding_shorter_pieces() -> None:
    """Where the pieces hold other words, those are taken, at their place in the window."""
    lines = iter((" First we met.", " Then we ate."))
    again = Scripted(lambda window, _: WindowResult((said(next(lines), 0.0, len(window) / 16000),), "en"))
    found = review(sound(28.0, (0.5, 13.0), (14.0, 27.0)), looping(12), again, OPTIONS)
    assert text_of(found) == " First we met. Then we ate."
    assert found.segments[1].start_s == pytest.approx(13.5, abs=0.5)
    assert len(again.calls) == 2


def test_real_repetition_stays() -> None:
    """A drill of eight equal phrases, heard as often in the pieces, is not touched."""
    again = Scripted(lambda window, _: looping(round(len(window) / 16000 / 3.6), each_s=3.5))
    heard = looping(8, each_s=3.6)
    speech = [(n * 3.6 + 0.2, n * 3.6 + 3.1) for n in range(8)]
    assert text_of(review(sound(29.0, *speech), heard, again, OPTIONS)) == text_of(heard)


def test_a_loop_that_stays_is_cut_to_what_can_be_said() -> None:
    """Forty phrases in five seconds of speech become as many as the fastest speaker can say; words go with them."""
    text = " I am going there." * 40
    words = tuple(Word(n * 0.1, n * 0.1 + 0.1, word) for n, word in enumerate([" I", " am", " going", " there."] * 40))
    heard = WindowResult((Segment(0.0, 16.0, text, words, avg_logprob=-0.2, no_speech_prob=0.1, tokens=(1, 2)),), "en")
    again = Scripted(lambda *_: heard)
    found = review(sound(16.0, (0.0, 5.0)), heard, again, OPTIONS)
    assert 1 <= text_of(found).count("going") <= 10
    assert "".join(word.text for word in found.segments[0].words) == text_of(found)
    assert found.segments[0].tokens == ()


def test_far_too_little_text_for_the_speech_is_decoded_in_short_pieces() -> None:
    """What the recogniser wrote once for eight times is heard each time; surer and richer text replaces it."""
    speech = [(n * 3.6 + 0.2, n * 3.6 + 3.1) for n in range(8)]
    again = Scripted(lambda window, _: WindowResult((said(" The small dog was hurt.", 0.0, 3.0),), "en"))
    heard = WindowResult((said(" The small dog was hurt.", 0.0, 28.7),), "en")
    found = review(sound(29.0, *speech), heard, again, OPTIONS)
    assert text_of(found).count("dog") == len(again.calls) == 8
    doubtful = Scripted(lambda window, _: WindowResult((said(" The small dog was hurt.", 0.0, 3.0, -0.95),), "en"))
    assert text_of(review(sound(29.0, *speech), heard, doubtful, OPTIONS)).count("dog") == 1


def test_slow_speech_in_wide_characters_is_not_thin() -> None:
    """Four Chinese characters a second are as much as ten letters."""
    heard = WindowResult((said("\u6211\u5011\u4eca\u5929\u53bb\u516c\u5712" * 4, 0.0, 8.0),), "zh")
    assert review(sound(8.0, (0.0, 8.0)), heard, Scripted(never), OPTIONS) == heard


def test_digits_are_words() -> None:
    """A number that is read out digit by digit is slow to write, and not thin."""
    heard = WindowResult((said(" 4 3 1 7 7 2 0 9 5 5 1 8", 0.0, 7.0),), "en")
    assert review(sound(7.0, (0.0, 6.9)), heard, Scripted(never), OPTIONS) == heard


def test_an_echo_that_takes_no_time_is_dropped() -> None:
    """The last phrase once more, at the very end and without any length, is no speech."""
    heard = WindowResult((said(" See you.", 0.0, 2.0), said(" See you.", 2.0, 2.0)), "en")
    assert text_of(review(sound(2.0, (0.2, 1.9)), heard, Scripted(never), OPTIONS)) == " See you."


def test_speech_of_the_recording_is_cut_to_the_window() -> None:
    """Each window sees its own part, counted from its start."""
    speech = [Speech(Span(0, 100), 0.9), Speech(Span(150, 400), 0.8), Speech(Span(900, 950), 0.7)]
    assert inside(Span(200, 500), speech) == [Speech(Span(0, 200), 0.8)]
    assert inside(Span(200, 500), None) is None
