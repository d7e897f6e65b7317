"""What `voicejobs speak` takes for a text, for a file, and for a table."""

from pathlib import Path

import pytest

from voicejobs.choices import language_of, language_tag
from voicejobs.cli.inputs import TEXTS, Found, Search
from voicejobs.cli.speech_options import split_names
from voicejobs.cli.texts import find_texts, is_text, text_of_stdin
from voicejobs.errors import BadOption, BadText, BadUsage, EmptyText, NotFound

SEARCH = Search(kind=TEXTS)


@pytest.mark.parametrize(
    "word", ["Hello", "Hello, world.", "How are you?", "1/2 of it", "a\nb", "5 < 6", "", "*star* power"]
)
def test_words_are_texts(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What names nothing and does not look like a path is spoken."""
    monkeypatch.chdir(tmp_path)
    assert is_text(word)


@pytest.mark.parametrize(
    "word", ["-", "gone.txt", "my notes.md", "folder/gone", "*.txt", "@list", "there", "x" * 200 + ".srt"]
)
def test_paths_are_no_texts(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there, ends like a text file or has a path's signs names a file, whether it is there or not."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    assert not is_text(word)


def test_words_without_quotes_are_one_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forgotten pair of quotes does no harm."""
    monkeypatch.chdir(tmp_path)
    (found,) = find_texts(["Hello,", "you", "there"], SEARCH).found
    assert (found.text, found.error) == ("Hello, you there", None)


def test_texts_and_files_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a word is a text or a mistyped path cannot be told then."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(BadUsage, match=r"'Hello' is a text, and 'a\.txt' a file"):
        find_texts(["a.txt", "Hello"], SEARCH)


def test_a_folder_gives_its_texts_and_the_rows_of_its_tables(tmp_path: Path) -> None:
    """Rows without a name are numbered below the name of their table; each row stands for itself."""
    for name, content in {
        "a.txt": "One", "b.md": "Two", "c.wav": "-", "none.csv": "text\n",
        "sub/t.csv": "text,voice,out\nA,joe,x.mp3\nB,,\n😂,,\nC,,../x\nD,,y/z.q\n",
        "empty.srt": "",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    found = {one.shown or one.relative: one for one in find_texts([str(tmp_path)], SEARCH).found}
    assert set(found) == {
        "a.txt", "b.md", "none.csv", "empty.srt", *(f"sub/t.csv:{line}" for line in range(2, 7)),
    }  # fmt: skip
    assert found["a.txt"].error is None
    first = found["sub/t.csv:2"]
    assert (first.text, first.relative) == ("A", "x.txt")
    assert first.options == {"synthesise": {"voice": "joe"}, "join": {"formats": ["mp3"]}}
    assert found["sub/t.csv:3"].relative == "sub/t/0002.txt"
    assert found["sub/t.csv:6"].relative == "y/z.q.txt"
    assert isinstance(found["sub/t.csv:4"].error, EmptyText)
    assert isinstance(found["sub/t.csv:5"].error, BadText)
    assert isinstance(found["none.csv"].error, EmptyText)
    assert isinstance(found["empty.srt"].error, EmptyText)


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """It is not spoken."""
    (found,) = find_texts([str(tmp_path / "gone.txt")], SEARCH).found
    assert isinstance(found.error, NotFound)


def test_standard_input_is_a_text_under_its_name() -> None:
    """Its ending tells the markup; bytes that are no text, and nothing, are errors."""
    assert text_of_stdin(b"# Hi", "x.md") == Found("-", "x.md", text="# Hi")
    assert isinstance(text_of_stdin(b"\xff\xfe\xff", "x").error, BadText)
    assert isinstance(text_of_stdin(b"  \n", "x").error, EmptyText)


def test_the_name_of_a_model_tells_its_language() -> None:
    """Piper's models are named so; of others English is taken; users may name one by code, region or name."""
    assert [language_of(name) for name in ("en_US-joe-medium", "de_DE-x", "cosyvoice", "")] == [
        "en-US",
        "de-DE",
        "en",
        "en",
    ]
    tags = [language_tag(text) for text in ("German", "en_gb", "pt-BR", "auto", "", "zh-Hans", "eo")]
    assert tags == ["de", "en-GB", "pt-BR", "", "", "zh", "eo"]
    with pytest.raises(BadOption, match="no language"):
        language_tag("Klingon spoken")
    assert split_names(["srt, vtt", "srt", ""]) == ["srt", "vtt"]
