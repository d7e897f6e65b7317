"""What of a segment is settled while it lasts: the words on which two successive decodes agree."""

import unicodedata
from collections.abc import Sequence
from itertools import pairwise

from voicejobs.audio.types import Segment, Word

_SLACK_S = 0.1
"""Times of the same word differ by as much between two decodes."""
_SAME_GAP_S = 0.05


def words_of(segment: Segment) -> list[Word]:
    """Return the words of a segment; where the engine gave no times, spread over its length by letters."""
    if segment.words:
        return [word for word in segment.words if word.text.strip()]
    parts = segment.text.split()
    letters = sum(len(part) for part in parts)
    words: list[Word] = []
    at = 0
    for part in parts:
        start_s, end_s = (
            segment.start_s + (segment.end_s - segment.start_s) * place / letters for place in (at, at + len(part))
        )
        words.append(Word(start_s, end_s, f" {part}"))
        at += len(part)
    return words


def agreed(before: Sequence[Word], after: Sequence[Word]) -> int:
    """Return how many words from the first on are the same in both, marks and capitals aside."""
    for count, (one, other) in enumerate(zip(before, after, strict=False)):
        if _plain(one.text) != _plain(other.text):
            return count
    return min(len(before), len(after))


def text_of(words: Sequence[Word]) -> str:
    """Return the text of words, outer blanks removed."""
    return "".join(word.text for word in words).strip()


class Agreement:
    """Follow the decodes of one segment: settled words stay as they are, the others are those of the last decode."""

    def __init__(self) -> None:
        self.settled: list[Word] = []
        self._open: list[Word] = []

    @property
    def words(self) -> list[Word]:
        """Return all words, the settled ones first."""
        return self.settled + self._open

    def take(self, words: Sequence[Word]) -> None:
        """Take the words of the next decode, which may begin anywhere at or before the first word that is not settled.

        What agrees with the decode before is settled. The last word of a decode never is: it may be half a word.
        """
        rest = self._after_settled(words)
        count = min(agreed(self._open, rest), max(len(rest) - 1, 0))
        self.settled += rest[:count]
        self._open = rest[count:]

    def border_s(self, start_s: float, longest_s: float) -> float:
        """Return where the next decode may begin so that it is short, `start_s` where nothing allows a cut.

        The cut is in the longest pause between settled words in the second half of the decode, the later of two.

        Args:
            start_s: where the last decode began.
            longest_s: nothing is cut from a decode that is no longer.
        """
        if not self.settled or self.words[-1].end_s - start_s <= longest_s:
            return start_s
        earliest_s = start_s + longest_s / 2
        pairs = [pair for pair in pairwise(self.settled) if pair[0].end_s >= earliest_s]
        if not pairs:
            return start_s
        before, after = max(
            pairs, key=lambda pair: (round((pair[1].start_s - pair[0].end_s) / _SAME_GAP_S), pair[0].end_s)
        )
        return (before.end_s + after.start_s) / 2

    def _after_settled(self, words: Sequence[Word]) -> list[Word]:
        """Return the words that come after the settled ones: by their text where it is the same, else by time."""
        if not self.settled:
            return list(words)
        inside = [word for word in self.settled if words and word.end_s > words[0].start_s]
        if inside and agreed(inside, words) == len(inside):
            return [self._not_before(word, self.settled[-1].end_s) for word in words[len(inside) :]]
        border_s = self.settled[-1].end_s
        rest = [word for word in words if (word.start_s + word.end_s) / 2 > border_s]
        if rest and rest[0].start_s < border_s + _SLACK_S and _plain(rest[0].text) == _plain(self.settled[-1].text):
            rest = rest[1:]  # the last settled word again, a little later
        return [self._not_before(word, border_s) for word in rest]

    @staticmethod
    def _not_before(word: Word, border_s: float) -> Word:
        """Return the word, not beginning before the settled ones end."""
        if word.start_s >= border_s:
            return word
        return Word(border_s, max(word.end_s, border_s), word.text, word.probability, word.channel)


def _plain(text: str) -> str:
    """Return letters and digits, lower case."""
    return "".join(letter for letter in unicodedata.normalize("NFKC", text).casefold() if letter.isalnum())
