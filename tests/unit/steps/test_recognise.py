from collections.abc import Sequence

import numpy as np
import pytest

from voicejobs.audio.types import Pcm, Segment, Span, WindowResult
from voicejobs.engines.base import RecogniseOptions
from voicejobs.errors import LeaseLost
from voicejobs.steps.recognise import Work, recognise

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
    """A doubtful first window is followed by a look at the next, and all windows use what was found."""
    listener = Listener(("de", 0.3), ("fr", 0.9), ("nn", 1.0))
    results = recognise(Work(WINDOWS, read), listener, RecogniseOptions())
    assert {options.language for options in listener.options} == {"fr"}
    assert {(result.language, result.language_probability) for result in results} == {("fr", 0.9)}
    assert listener.languages == [("nn", 1.0)]


def test_the_best_guess_counts_where_no_window_is_sure() -> None:
    """At most three windows are asked."""
    listener = Listener(("de", 0.3), ("fr", 0.4), ("es", 0.2), ("nn", 1.0))
    assert recognise(Work(WINDOWS, read), listener, RecogniseOptions())[0].language == "fr"
    assert listener.languages == [("nn", 1.0)]


def test_a_recording_of_one_window_leaves_the_language_to_the_same_pass() -> None:
    """No extra pass of the encoder for a short file."""
    listener = Listener()
    (result,) = recognise(Work(WINDOWS[:1], read), listener, RecogniseOptions())
    assert result.language == "told"
    assert recognise(Work([], read), listener, RecogniseOptions()) == []
