"""Words settle where two successive decodes agree."""

from voicejobs.audio.types import Segment, Word
from voicejobs.streaming.agreement import Agreement, text_of, words_of


def words(text: str, start_s: float = 0.0) -> list[Word]:
    """Return words of 0.4 s with pauses of 0.1 s."""
    return [Word(start_s + at / 2, start_s + at / 2 + 0.4, f" {word}", 0.9) for at, word in enumerate(text.split())]


def test_nothing_is_settled_by_one_decode() -> None:
    """The first decode shows words and settles none."""
    agreement = Agreement()
    agreement.take(words("one two three"))
    assert text_of(agreement.words) == "one two three"
    assert agreement.settled == []


def test_the_common_beginning_is_settled_and_the_rest_is_the_newest() -> None:
    """Of `one two tree` and `one two three four` the first two words are settled, the others are shown."""
    agreement = Agreement()
    agreement.take(words("one two tree"))
    agreement.take(words("one two three four"))
    assert text_of(agreement.settled) == "one two"
    assert text_of(agreement.words) == "one two three four"


def test_marks_and_capitals_do_not_disagree() -> None:
    """`one, Two` and `One two.` agree; the text is that of the later decode."""
    agreement = Agreement()
    agreement.take(words("one, Two three"))
    agreement.take(words("One two. Three four"))
    assert text_of(agreement.settled) == "One two. Three"


def test_the_last_word_is_never_settled() -> None:
    """Two decodes that end with the same word leave it open, since it may be half a word."""
    agreement = Agreement()
    agreement.take(words("one two"))
    agreement.take(words("one two"))
    assert text_of(agreement.settled) == "one"


def test_settled_words_outlive_a_decode_that_hears_them_otherwise() -> None:
    """What was settled stays, and the words after it by time come from the newest decode."""
    agreement = Agreement()
    agreement.take(words("one two three four"))
    agreement.take(words("one two three four"))
    agreement.take(words("won too three four five"))
    assert text_of(agreement.words) == "one two three four five"


def test_a_decode_that_begins_later_goes_on_where_the_settled_words_end() -> None:
    """After a cut the decode holds the last settled word and new ones: none is doubled, none lost."""
    agreement = Agreement()
    agreement.take(words("one two three four"))
    agreement.take(words("one two three four five"))
    agreement.take(words("four five six", start_s=1.5))
    assert text_of(agreement.words) == "one two three four five six"
    assert text_of(agreement.settled) == "one two three four five"


def test_times_never_go_back() -> None:
    """A word that a later decode places before the end of the settled ones begins where they end."""
    agreement = Agreement()
    agreement.take(words("one two three four"))
    agreement.take(words("one two three four"))
    agreement.take([*words("one two three"), Word(1.2, 2.0, " other", 0.9)])
    assert agreement.words[-1].start_s >= agreement.words[-2].end_s


def test_short_decodes_are_not_cut() -> None:
    """A decode within the limit begins again where it began."""
    agreement = Agreement()
    agreement.take(words("one two three four"))
    agreement.take(words("one two three four"))
    assert agreement.border_s(0.0, 10.0) == 0.0


def test_the_cut_is_in_the_longest_pause_between_settled_words() -> None:
    """Of the pauses in the second half the longest is taken, in its middle."""
    agreement = Agreement()
    heard = [*words("a b c d e f g h"), *words("i j k l m n", start_s=4.5)]
    agreement.take(heard)
    agreement.take(heard)
    border_s = agreement.border_s(0.0, 6.0)
    assert 3.9 < border_s < 4.5


def test_words_without_settled_border_are_not_cut() -> None:
    """Where no decodes agree nothing is cut, however long they are."""
    agreement = Agreement()
    agreement.take(words(" ".join(f"a{at}" for at in range(40))))
    agreement.take(words(" ".join(f"b{at}" for at in range(40))))
    assert agreement.border_s(0.0, 5.0) == 0.0


def test_words_without_times_are_spread_over_their_segment() -> None:
    """An engine that gives no word times has its words shared out by letters, inside the segment."""
    found = words_of(Segment(1.0, 3.0, " aa bbbbbb"))
    assert [(word.text, word.start_s, word.end_s) for word in found] == [(" aa", 1.0, 1.5), (" bbbbbb", 1.5, 3.0)]
