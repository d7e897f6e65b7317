from collections.abc import Sequence

import numpy as np
import pytest

from voicejobs.audio.types import Pcm, Segment, Span, WindowResult
from voicejobs.engines.base import RecogniseOptions
from voicejobs.errors import LeaseLost
from voicejobs.steps.plan import Speech
from voicejobs.steps.recognise import Work, language_windows, recognise

RECORDING = np.arange(1000, dtype=np.int16)
WINDOWS = [Span(start, start + 60) for start in range(0, 700, 100)]


class Listener:
    """A recogniser whose text is the first sample, and which keeps what it was asked."""

    def __init__(self, *languages: tuple[str, float]) -> None:
        self.languages = list(languages)
        self.calls: list[int] = []
        self.options: list[RecogniseOptions] = []

    def recognise(self, windows: Sequence[Pcm], options: RecogniseOptions) -> list[WindowResult]:
        """Return the first sample of each window."""
        self.calls.append(len(windows))
        self.options.append(options)
        return [WindowResult((Segment(0.0, 1.0, f" {window[0]}"),), options.language or "told") for window in windows]

    def detect_language(self, window: Pcm) -> tuple[str, float]:
        """Return the next language of the list."""
        return self.languages.pop(0)


def read(span: Span) -> Pcm:
    """Return the samples of a window."""
    return RECORDING[span.start_samples : span.end_samples]


def texts(results: list[WindowResult]) -> list[str]:
    """Return the text of each window."""
    return [result.segments[0].text.strip() for result in results]


def test_windows_go_in_groups_with_a_checkpoint_after_each() -> None:
    """Each group is kept before the next one starts, and the results are those of all windows in order."""
    kept: list[tuple[int, list[str]]] = []
    listener = Listener()
    work = Work(WINDOWS, read, group=3, checkpoint=lambda first, found: kept.append((first, texts(found))))
    results = recognise(work, listener, RecogniseOptions(language="en"))
    assert texts(results) == ["0", "100", "200", "300", "400", "500", "600"]
    assert kept == [(0, ["0", "100", "200"]), (3, ["300", "400", "500"]), (6, ["600"])]
    assert listener.calls == [3, 3, 1]


def test_work_goes_on_after_the_windows_that_are_done() -> None:
    """A resumed step reads and recognises only what is missing."""
    results = recognise(Work(WINDOWS, read, first=5), Listener(), RecogniseOptions(language="en"))
    assert texts(results) == ["500", "600"]
    assert recognise(Work(WINDOWS, read, first=7), Listener(), RecogniseOptions()) == []


def test_an_error_of_the_checkpoint_ends_the_work() -> None:
    """A lost lease stops the recognition of further groups."""

    def lost(first: int, found: list[WindowResult]) -> None:
        raise LeaseLost("another worker has it")

    listener = Listener()
    with pytest.raises(LeaseLost):
        recognise(Work(WINDOWS, read, group=2, checkpoint=lost), listener, RecogniseOptions(language="en"))
    assert listener.calls == [2]


def test_the_language_is_told_once_for_all_windows() -> None:
    """Two windows that agree and are sure decide for all, and their mean is the probability."""
    listener = Listener(("fr", 0.9), ("fr", 0.8), ("nn", 1.0))
    results = recognise(Work(WINDOWS, read), listener, RecogniseOptions())
    assert {options.language for options in listener.options} == {"fr"}
    assert {result.language for result in results} == {"fr"}
    assert results[0].language_probability == pytest.approx(0.85)
    assert listener.languages == [("nn", 1.0)]


def test_the_windows_vote_by_probability() -> None:
    """Five windows are asked at most; a jingle in another language and doubtful windows are outvoted."""
    listener = Listener(("en", 0.95), ("de", 0.3), ("fr", 0.7), ("fr", 0.6), ("en", 0.2), ("nn", 1.0))
    (first, *_) = recognise(Work(WINDOWS, read), listener, RecogniseOptions())
    assert first.language == "fr"
    assert first.language_probability == pytest.approx(1.3 / 5)
    assert listener.languages == [("nn", 1.0)]


def test_windows_with_most_speech_are_asked_for_the_language() -> None:
    """Silence at the beginning, which sounds like any language, has no say."""
    windows = [Span(start, start + 100) for start in range(0, 1000, 100)]
    speech = [Speech(Span(start, start + 90), 0.9) for start in (110, 310, 510, 710, 910)]
    chosen = language_windows(windows, speech)
    assert [window.start_samples for window in chosen] == [100, 300, 500, 700, 900]
    assert language_windows(windows[:1]) == windows[:1]
    assert language_windows([]) == []


def test_what_the_windows_said_is_reviewed_before_it_is_kept() -> None:
    """Words without speech under them are gone from the checkpoint too."""
    kept: list[WindowResult] = []
    work = Work(WINDOWS[:2], read, speech=[], checkpoint=lambda first, found: kept.extend(found))
    listener = Listener()
    answer = Segment(0.0, 1.0, " Thank you.", avg_logprob=-0.9, no_speech_prob=0.7)
    listener.recognise = lambda windows, options: [WindowResult((answer,), "en") for _ in windows]  # type: ignore[method-assign]
    results = recognise(work, listener, RecogniseOptions(language="en"))
    assert [result.segments for result in results] == [(), ()]
    assert kept == results
    believed = Work(WINDOWS[:2], read, speech=[], doubt=False)
    assert recognise(believed, listener, RecogniseOptions(language="en"))[0].segments == (answer,)


def test_a_recording_of_one_window_leaves_the_language_to_the_same_pass() -> None:
    """No extra pass of the encoder for a short file."""
    listener = Listener()
    (result,) = recognise(Work(WINDOWS[:1], read), listener, RecogniseOptions())
    assert result.language == "told"
    assert recognise(Work([], read), listener, RecogniseOptions()) == []
