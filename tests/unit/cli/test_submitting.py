"""How a manifest is read ahead, and where the outputs of its lines go."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from voicejobs.cli.naming import Places
from voicejobs.cli.submitting import one_ahead


def test_the_next_is_made_while_the_last_is_used() -> None:
    """One ahead, and no more: what is made and not used yet takes memory."""
    made: list[int] = []
    second = threading.Event()

    def source() -> Iterator[int]:
        for number in range(5):
            made.append(number)
            if number == 1:
                second.set()
            yield number

    used = []
    for number in one_ahead(source()):
        assert second.wait(10)
        used.append(number)
        assert len(made) <= len(used) + 1
    assert used == [0, 1, 2, 3, 4]


def test_an_error_comes_after_what_was_made_before_it() -> None:
    """Nothing of it is lost."""

    def source() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("three")

    ahead = one_ahead(source())
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(ValueError, match="three"):
        next(ahead)


def test_who_leaves_early_leaves_no_thread() -> None:
    """The source is asked for nothing more."""
    ahead = one_ahead(iter(range(10_000)))
    assert next(ahead) == 0
    ahead.close()  # type: ignore[attr-defined]
    for thread in threading.enumerate():
        if thread.name == "manifest":
            thread.join(10)
            assert not thread.is_alive()


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("talk.mp3", "talk"),
        ("a/b.c/talk.mp3", "a/b.c/talk"),
        ("/archive/talk.mp3", "archive/talk"),
        ("../../talk.mp3", "talk"),
        ("a//./talk", "a/talk"),
        ("..", "_"),
    ],
)
def test_the_tree_of_the_names_is_mirrored(tmp_path: Path, name: str, place: str) -> None:
    """A name leads nowhere out of the output folder."""
    assert Places.below(tmp_path, ["txt"]).of(name) == f"{tmp_path}/{place}"


def test_a_long_name_is_shortened_as_transcribe_does(tmp_path: Path) -> None:
    """Two that differ only in what is cut stay apart."""
    places = Places.below(tmp_path, ["txt"])
    first, second = (Path(places.of(f"{'a' * 300}{number}.wav")).name for number in (1, 2))
    assert first != second
    assert len(first) <= 255 - len(".txt")


def test_a_target_is_where_it_says(tmp_path: Path) -> None:
    """Absolute, or below the output folder."""
    places = Places.below(tmp_path, ["txt"])
    assert places.named("/else/where") == "/else/where"
    assert places.named("a/b") == f"{tmp_path}/a/b"
