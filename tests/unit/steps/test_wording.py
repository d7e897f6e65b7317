import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicejobs.steps.wording import distance, error_rate

TEXTS = st.text(alphabet="abcé ", max_size=12)


def plain_distance(one: str, two: str) -> int:
    """Return the edit distance by its definition."""
    row = list(range(len(two) + 1))
    for number, left in enumerate(one, start=1):
        before, row = row, [number]
        for place, right in enumerate(two, start=1):
            row.append(min(row[-1] + 1, before[place] + 1, before[place - 1] + (left != right)))
    return row[-1]


@given(TEXTS, TEXTS)
def test_the_distance_is_that_of_the_definition(one: str, two: str) -> None:
    """Vectors give what loops give."""
    assert distance(one, two) == plain_distance(one, two)


@pytest.mark.parametrize(
    ("wanted", "heard", "rate"),
    [
        ("She paid twelve dollars.", " she paid $12", 0.0),
        ("Café au lait!", "cafe au lait", 0.0),
        ("abcd", "abxd", 0.25),
        ("abcd", "", 1.0),
        ("...", "", 0.0),
        ("...", "anything", 1.0),
    ],
)
def test_spelling_aside_the_letters_count(wanted: str, heard: str, rate: float) -> None:
    """Digits, case, accents and marks make no error; letters do."""
    assert error_rate(wanted, heard, "en") == pytest.approx(rate)
