"""`voicejobs convert` and `voicejobs lint`: which files they read and write, and how they end."""

import io
import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from voicejobs.audio.types import Segment, Transcript, Word
from voicejobs.cli.main import run
from voicejobs.formats import ALL, RenderOptions, extension, render

Command = Callable[..., int]
TRANSCRIPT = Transcript(
    (Segment(0.5, 2.5, " Hello there.", (Word(0.5, 1.0, " Hello"), Word(1.0, 2.5, " there."))),), "en", 4.0
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, without the configuration of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def write(path: Path, name: str = "native", transcript: Transcript = TRANSCRIPT) -> Path:
    """Write a transcript as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(render(transcript, name))
    return path


def names(folder: Path) -> list[str]:
    """Return the files below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("name", "ending"), [("native", ".voicejobs.json"), ("json", ".json"), ("verbose_json", ".verbose.json")]
)
def test_every_json_makes_the_same_subtitles(folder: Path, name: str, ending: str) -> None:
    """Beside the input, under its stem, readable by others as the umask allows."""
    source = write(folder / "a talk" / f"my talk.1{extension(name)}", name)
    assert run(["convert", str(source)]) == 0
    output = folder / "a talk" / "my talk.1.srt"
    assert output.read_bytes() == render(TRANSCRIPT, "srt")
    mask = os.umask(0o022)
    os.umask(mask)
    assert stat.S_IMODE(output.stat().st_mode) == 0o644 & ~mask


def test_all_formats_into_a_folder(folder: Path) -> None:
    """A folder's tree is mirrored, and each format has a file of its own."""
    write(folder / "in" / "deep" / "talk.voicejobs.json")
    assert run(["convert", "in", "-f", "all", "-o", "out"]) == 0
    assert names(folder / "out") == sorted(f"deep/talk{extension(name)}" for name in ALL)
    assert (folder / "out/deep/talk.ctm").read_text().splitlines()[1].startswith("talk 1 0.500 0.500 Hello")


def test_of_several_forms_the_fullest_is_taken(folder: Path) -> None:
    """Native before verbose_json before whisper's; other JSON in a folder is passed over."""
    for name in ("native", "json", "verbose_json"):
        write(folder / f"in/talk{extension(name)}", name)
    write(folder / "in/.hidden/talk.json")
    (folder / "in/package.json").write_text('{"name": "x"}')
    (folder / "in/broken.json").write_text("{")
    assert run(["convert", "in", "-o", "out", "-f", "native"]) == 0
    assert names(folder / "out") == ["talk.voicejobs.json"]
    assert (folder / "out/talk.voicejobs.json").read_bytes() == (folder / "in/talk.voicejobs.json").read_bytes()


def test_options_change_the_subtitles(folder: Path) -> None:
    """Limits and profiles in whisper's spelling or ours; those that make no sense together are refused."""
    source = str(write(folder / "talk.json", "json"))
    assert run(["convert", source, "--max_words_per_line", "1"]) == 0
    assert (folder / "talk.srt").read_bytes() == render(TRANSCRIPT, "srt", RenderOptions(max_words_per_line=1))
    assert run(["convert", source, "-f", "vtt", "--subtitle-profile", "plain"]) == 0
    assert run(["convert", source, "-f", "vtt", "--subtitle-profile", "plain", "--max-line-width", "20"]) == 7


def test_a_file_in_the_way_is_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named, nothing at all is written, and `--force` replaces it; the same content is no conflict."""
    source = str(write(folder / "talk.json", "json"))
    (folder / "talk.srt").write_text("mine")
    assert run(["convert", source, "-f", "vtt,srt"]) == 8
    assert "talk.srt" in capsys.readouterr().err
    assert ((folder / "talk.srt").read_text(), (folder / "talk.vtt").exists()) == ("mine", False)
    assert run(["convert", source, "-f", "vtt,srt", "--force"]) == 0
    assert run(["convert", source, "-f", "vtt,srt"]) == 0
    assert run(["convert", source, "-f", "json"]) == 0
    assert run(["convert", source, "-f", "native,json"]) == 0


def test_two_inputs_with_one_output(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither overwrites the other, even with `--force`."""
    first, second = write(folder / "a/talk.json", "json"), write(folder / "b/talk.json", "json")
    assert run(["convert", str(first), str(second), "-o", "out", "--force"]) == 3
    assert "would both be written to out/talk.srt [output_exists]" in capsys.readouterr().err
    assert names(folder / "out") == ["talk.srt"]


def test_one_bad_file_costs_the_others_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Missing, broken and foreign files are named with their codes; the code says that some failed, or all."""
    good = str(write(folder / "good.json", "json"))
    (folder / "bad.json").write_text("{")
    (folder / "other.txt").write_text("text")
    assert run(["convert", "gone.json", "bad.json", "other.txt", good]) == 3
    told = capsys.readouterr().err
    for name, code in (("gone.json", "not_found"), ("bad.json", "not_transcript"), ("other.txt", "not_transcript")):
        assert any(name in line and f"[{code}]" in line for line in told.splitlines())
    assert run(["convert", "gone.json"]) == 8
    assert run(["convert", "bad.json"]) == 8
    (folder / "empty").mkdir()
    assert run(["convert", "empty"]) == 4
    assert run(["convert", good, "-f", "odt"]) == 7


def test_pipes(folder: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """`-o -` writes one transcript to standard output and nothing else, and `-` reads standard input."""
    source = str(write(folder / "talk.voicejobs.json"))
    assert run(["convert", source, "-f", "vtt", "-o", "-"]) == 0
    assert capsysbinary.readouterr().out == render(TRANSCRIPT, "vtt")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(source).read_bytes())))
    assert run(["convert", "-", "-f", "txt"]) == 0
    assert capsysbinary.readouterr().out == b"Hello there.\n"
    assert run(["convert", source, "-f", "txt,srt", "-o", "-"]) == 7
    assert names(folder) == ["talk.voicejobs.json"]


def test_an_output_folder_that_cannot_be(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file where the folder should be is an error that names it."""
    source = str(write(folder / "talk.json", "json"))
    (folder / "out").write_text("a file")
    assert run(["convert", source, "-o", "out"]) == 8
    assert "[output_unwritable]" in capsys.readouterr().err


def test_lint_tells_what_is_wrong(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each problem with file, line, cue, category and figures; the code is 9, and 0 without problems."""
    (folder / "bad.srt").write_text("1\n00:00:01,000 --> 00:00:01,500\nHi.\n\n2\n00:00:01,400 --> 00:00:04,000\nHo.\n")
    assert run(["lint", "bad.srt"]) == 9
    assert capsys.readouterr().out.splitlines() == [
        "bad.srt:2: cue 1 at 00:00:01,000: too-short: shown for 0.500 s, at least 0.833 s",
        "bad.srt:6: cue 2 at 00:00:01,400: overlap: the cue before it ends 0.100 s after this one starts",
    ]
    source = str(write(folder / "talk.json", "json"))
    assert run(["convert", source, "-f", "srt,vtt", "-o", "good"]) == 0
    assert run(["lint", "good", "--profile", "bbc"]) == 0
    assert run(["lint", "good", "bad.srt", "gone.srt"]) == 9
    assert run(["lint", "good", "gone.srt"]) == 3
    assert run(["lint", "gone.srt"]) == 8
    (folder / "empty").mkdir()
    assert run(["lint", "empty"]) == 4


def test_lint_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One document with the problems of each file and the errors of those that cannot be read."""
    (folder / "bad.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:09.000\nHi.\n")
    (folder / "no.srt").write_bytes(b"\xff")
    assert run(["lint", "bad.vtt", "no.srt", "--json"]) == 9
    document = json.loads(capsys.readouterr().out)
    assert document["v"] == 1
    (file,), (error,) = document["lint"]["files"], document["lint"]["errors"]
    assert (file["file"], file["cues"]) == ("bad.vtt", 1)
    (problem,) = file["problems"]
    assert (problem["category"], problem["line"], problem["cue"], problem["start_ms"]) == ("too-long", 3, 1, 0)
    assert error["code"] == "not_subtitles"


def test_a_path_that_is_not_there_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is said of standard output, which was asked for rightly."""
    assert run(["convert", "nope.json", "-o", "-"]) == 8
    assert capsys.readouterr().err.count("error:") == 1
