"""Patterns and sizes as users write them."""

import pytest

from voicejobs.cli.patterns import Pattern, is_pattern, parse_size, spelled_ending, split_pattern
from voicejobs.errors import BadOption


@pytest.mark.parametrize(
    ("text", "path", "matches"),
    [
        ("*.wav", "a.wav", True),
        ("*.wav", "b/a.wav", False),
        ("**/*.wav", "a.wav", True),
        ("**/*.wav", "b/c/a.wav", True),
        ("b/**/a.wav", "b/a.wav", True),
        ("b/**", "b/c/d.wav", True),
        ("b/**", "c/d.wav", False),
        ("take[12].wav", "take1.wav", True),
        ("take[!12].wav", "take1.wav", False),
        ("?.wav", "\u00fc.wav", True),
        ("a\nb*", "a\nb.wav", True),
        ("./*.wav", "a.wav", True),
        ("**/**/*", "a", True),
    ],
)
def test_a_pattern_matches_name_by_name(text: str, path: str, matches: bool) -> None:
    """A star stays within a name; two of them stand for any number of folders, also none."""
    assert Pattern(text).matches(path) is matches


@pytest.mark.parametrize(("text", "path", "matches"), [("*.wav", "b/a.wav", True), ("b/*", "a/b/c", False)])
def test_a_pattern_without_a_slash_matches_at_any_depth_where_it_may(text: str, path: str, matches: bool) -> None:
    """That is how --include and --exclude are meant; one with a slash counts from the top."""
    assert Pattern(text, anywhere=True).matches(path) is matches


def test_folders_in_which_nothing_can_match_are_known() -> None:
    """So that a search does not enter them."""
    pattern = Pattern("a/*/c.wav")
    assert pattern.may_match_below("a")
    assert pattern.may_match_below("a/b")
    assert not pattern.may_match_below("b")
    assert not pattern.may_match_below("a/b/c.wav")
    assert Pattern("**/c.wav").may_match_below("x/y/z")


def test_a_hard_pattern_takes_no_time() -> None:
    """Many double stars do not multiply."""
    pattern = Pattern("/".join(["**", "a"] * 12))
    assert not pattern.matches("/".join(["a"] * 200 + ["b"]))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("in/*.wav", ("in", "*.wav")),
        ("*.wav", (".", "*.wav")),
        ("/*/x", ("/", "*/x")),
        ("/data/a?/x.wav", ("/data", "a?/x.wav")),
        ("../b/[x]", ("../b", "[x]")),
    ],
)
def test_the_folder_before_the_first_wildcard_is_split_off(text: str, parts: tuple[str, str]) -> None:
    """The search begins there, and names count from there."""
    assert is_pattern(text)
    assert split_pattern(text) == parts


@pytest.mark.parametrize(("text", "ending"), [("in/*.DAT", "dat"), ("*.w?v", ""), ("*", ""), ("a.b/*", "")])
def test_an_ending_that_a_pattern_spells_out_is_known(text: str, ending: str) -> None:
    """Such files are taken although they do not end like audio."""
    assert spelled_ending(text) == ending


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("500", 500), ("20k", 20480), ("1.5M", 1572864), ("2GiB", 2 << 30), ("1 kb", 1024)]
)
def test_sizes_are_read(text: str, size: int) -> None:
    """Powers of 1024."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "k", "-1", "1x", "1e9"])
def test_what_is_no_size_is_refused(text: str) -> None:
    """With a hint."""
    with pytest.raises(BadOption):
        parse_size(text)
