"""`voicejobs speak` as a user runs it: texts, files, folders, tables, pipes; resuming, and what is refused."""

import io
import json
import subprocess
import time
from pathlib import Path

import jsonschema
import pytest
import soundfile as sf

from tests.acceptance.conftest import MakeTree
from tests.acceptance.harness import COMMAND, Argument, Outcome, Tree, files_below, wait_for
from voicejobs.engines.fake_voice import describe, hear
from voicejobs.text import plan_pieces

pytestmark = [pytest.mark.services, pytest.mark.timeout(150)]
SCHEMA = Path(__file__).parents[2] / "voicejobs" / "cli" / "schemas" / "events.schema.json"


def speak(tree: Tree, *arguments: Argument) -> Outcome:
    """Run `voicejobs speak` with the fake voice into the output folder."""
    return tree.run("speak", *arguments, "-o", tree.out, "--engine", "fake_voice", "--no-progress")


def piped(tree: Tree, text: bytes, *arguments: Argument) -> "subprocess.CompletedProcess[bytes]":
    """Run `voicejobs speak -` with a text on standard input."""
    command = [COMMAND, "speak", "-", "--engine", "fake_voice", *arguments]
    return subprocess.run(command, input=text, capture_output=True, env=tree.environment, timeout=100, check=False)


def heard(path: Path) -> list[tuple[int, int]]:
    """Return what the fake voice tells of the texts in a file of sound."""
    samples, rate_hz = sf.read(path, dtype="float32")
    return hear(samples, rate_hz)


def planned(text: str) -> list[tuple[int, int]]:
    """Return the same of a text."""
    return [describe(piece.spoken) for piece in plan_pieces(text, "en")]


@pytest.fixture
def tree(make_tree: MakeTree) -> Tree:
    """Return a state folder whose stack waits for the next command."""
    return make_tree(VOICEJOBS_LINGER_S="30")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Return a folder with texts of every kind."""
    folder = tmp_path / "in"
    for name, content in {
        "a.txt": "One sentence for $5. Another, at 10:45 pm.",
        "sub/b.md": "# A title\n\nSome *words* and a [link](http://a.b/c).\n",
        "c.srt": "1\n00:00:00,000 --> 00:00:02,000\nFirst line.\n\n2\n00:00:03,000 --> 00:00:05,000\nSecond line.\n",
        "d.vtt": "WEBVTT\n\n00:00.000 --> 00:02.000\nA cue.\n",
        "t.csv": 'text,voice,out,note\n"Hello, you.",,greeting,x\nBye.,high,greeting,\n'
        "Third.,low,deep/third.flac,\nFourth.,,,\n",
        "other.wav": "no text",
        ".hidden.txt": "Hidden.",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8")
    return folder


def test_a_text_becomes_the_file_that_is_named(tree: Tree) -> None:
    """The ending of `-o` is the format; what is read out is in it, and nothing else is written."""
    done = tree.run("speak", "It costs $200k.", "-o", "x.mp3", "--engine", "fake_voice", cwd=tree.folder)
    assert done.code == 0, done.stderr
    assert "1 spoken" in done.stderr
    assert sf.info(tree.folder / "x.mp3").format == "MP3"
    assert (
        heard(tree.folder / "x.mp3")
        == planned("It costs $200k.")
        == [describe("It costs two hundred thousand dollars.")]
    )
    assert {path.name for path in tree.folder.iterdir()} == {"x.mp3", "state"}


def test_a_folder_is_spoken_and_resumed(tree: Tree, texts: Path) -> None:
    """The tree is mirrored, markup and times are taken off, tables give their rows; a second run does nothing."""
    done = speak(tree, texts, "-f", "wav", "--captions", "vtt")
    assert done.code == 0, done.stderr
    stems = ("a", "sub/b", "c", "d", "greeting", "greeting-2", "t/0004")
    wavs = {f"{stem}.wav" for stem in stems} | {"deep/third.flac"}
    assert set(files_below(tree.out)) == wavs | {f"{stem}.vtt" for stem in (*stems, "deep/third")}
    assert heard(tree.out / "a.wav") == planned((texts / "a.txt").read_text())
    assert heard(tree.out / "sub/b.wav") == [describe("A title"), describe("Some words and a link.")]
    assert heard(tree.out / "c.wav") == [describe("First line."), describe("Second line.")]
    assert [heard(tree.out / f"{name}.wav") for name in ("greeting", "greeting-2", "t/0004")] == [
        [describe(text)] for text in ("Hello, you.", "Bye.", "Fourth.")
    ]
    before = files_below(tree.out)
    times = {path: path.stat().st_mtime_ns for path in tree.out.rglob("*")}
    again = speak(tree, texts, "-f", "wav", "--captions", "vtt")
    assert again.code == 0, again.stderr
    assert "0 spoken, 8 done before" in again.stderr
    assert files_below(tree.out) == before
    assert {path: path.stat().st_mtime_ns for path in tree.out.rglob("*")} == times
    (tree.out / "a.wav").unlink()
    (texts / "d.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:02.000\nAnother cue.\n")
    third = speak(tree, texts, "-f", "wav", "--captions", "vtt")
    assert "2 spoken, 6 done before" in third.stderr
    assert files_below(tree.out)["a.wav"] == before["a.wav"]


def test_a_killed_run_goes_on_where_it_was(make_tree: MakeTree, tmp_path: Path) -> None:
    """Everything is killed in the midst of forty texts; the same command again speaks the rest, each once."""
    tree = make_tree(VOICEJOBS_FAKE_COST_BASE_S="0.1", VOICEJOBS_ENGINE_PROCESSES="1")
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number:02}.txt").write_text(f"This is text number {number}. It has two sentences.")
    tree.start("speak", folder, "-o", tree.out, "--engine", "fake_voice", "--no-progress")
    wait_for(lambda: len(list(tree.out.glob("*.wav"))) >= 5, "the first files", timeout_s=60)
    tree.kill()
    assert len(list(tree.out.glob("*.wav"))) < 40
    done = speak(tree, folder)
    assert done.code == 0, done.stderr
    names = {path.name for path in tree.out.iterdir()}
    assert names == {f"{number:02}.wav" for number in range(40)}
    for number in range(40):
        text = (folder / f"{number:02}.txt").read_text()
        assert heard(tree.out / f"{number:02}.wav") == planned(text)
    states = [job["state"] for job in tree.show("job", "list", "--limit", "100")]
    assert states == ["succeeded"] * 40


def test_a_pipe_goes_in_and_comes_out(tree: Tree) -> None:
    """Standard input is read as a text, and the sound alone is on standard output."""
    done = piped(tree, b"# A heading\n\nHello.", "--stdin-name", "x.md", "-f", "flac", "-o", "-")
    assert done.returncode == 0, done.stderr
    samples, rate_hz = sf.read(io.BytesIO(done.stdout), dtype="float32")
    assert hear(samples, rate_hz) == [describe("A heading"), describe("Hello.")]
    raw = piped(tree, b"Hello.", "-f", "pcm", "-o", "-", "--sample-rate", "16000")
    assert raw.returncode == 0, raw.stderr
    assert not len(raw.stdout) % 2
    for text, code in ((b"\xff\xfe\xff", "bad_text"), (b" \n", "empty_text")):
        wrong = piped(tree, text, "-o", "-")
        assert (wrong.returncode, wrong.stdout) == (7, b"")
        assert f"[{code}]".encode() in wrong.stderr


def test_exit_codes_are_those_of_transcribe(tree: Tree, tmp_path: Path) -> None:
    """Some failed: 3; nothing could be begun: 7; nothing found: 4; a command line that makes no sense: 2."""
    good, bad, folder = tmp_path / "good.txt", tmp_path / "bad.txt", tmp_path / "nothing"
    good.write_text("Good.")
    bad.write_bytes(b"a\0b")
    folder.mkdir()
    some = speak(tree, good, bad)
    assert some.code == 3
    assert "1 spoken, 1 failed" in some.stderr
    assert "[bad_text]" in some.stderr
    assert speak(tree, "...").code == 7
    assert speak(tree, folder).code == 4
    for arguments in (
        (good, "Some words"),
        (good, "-f", "wma"),
        (good, "--captions", "docx"),
        (good, "--engine", "whisper"),
        (good, "--speed", "9"),
        (good, "--keep-times", "--markup", "ssml"),
    ):
        assert tree.run("speak", *arguments, "-o", tree.out).code in {2, 7}, arguments
    two = tree.run("speak", good, bad, "-o", tmp_path / "x.wav", "--engine", "fake_voice")
    assert two.code == 7
    assert "-o names one file, and 2 texts were found" in two.stderr
    both = tree.run("speak", good, "-o", tmp_path / "x.wav", "-f", "mp3", "--engine", "fake_voice")
    assert both.code in {2, 7}


def test_events_are_those_of_the_schema(tree: Tree, texts: Path) -> None:
    """`--json` writes the events of `transcribe`, a dry run too, and nothing is touched by that."""
    schema = json.loads(SCHEMA.read_text())
    dry = tree.run("speak", texts, "-o", tree.out, "--engine", "fake_voice", "--json", "-n")
    assert dry.code == 0, dry.stderr
    assert not tree.out.exists()
    real = tree.run("speak", texts, "-o", tree.out, "--engine", "fake_voice", "--json")
    assert real.code == 0, real.stderr
    for output in (dry.stdout, real.stdout):
        events = [json.loads(line) for line in output.splitlines()]
        for event in events:
            jsonschema.validate(event, schema)
        assert (events[0]["type"], events[-1]["type"]) == ("start", "summary")
        assert sum(event["type"] == "file" for event in events) == 8
    written = {output["path"] for event in events if event["type"] == "file" for output in event["outputs"]}
    assert written == {str(tree.out / name) for name in files_below(tree.out)}


def test_subtitles_keep_their_times(tree: Tree, texts: Path) -> None:
    """With --keep-times each cue is spoken when it is due, or told of where it cannot; other texts are refused."""
    done = speak(tree, texts / "c.srt", texts / "a.txt", "--keep-times", "--captions", "json")
    assert done.code == 3, done.stderr
    assert "a.txt has no times" in done.stderr
    segments = json.loads((tree.out / "c.json").read_text())["segments"]
    assert [round(segment["start"], 1) for segment in segments] == [0.0, 3.0]
    (texts / "k.srt").write_text(
        "1\n00:00:00,000 --> 00:00:00,100\nFirst line.\n\n2\n00:00:00,120 --> 00:00:05,000\nSecond line.\n"
    )
    tight = tree.run("speak", texts / "k.srt", "--keep-times", "-o", tree.out, "--engine", "fake_voice", "--json")
    assert tight.code == 0, tight.stderr
    (report,) = [event for event in map(json.loads, tight.stdout.splitlines()) if event["type"] == "file"]
    assert report["warnings"] == ["does_not_fit"]
    assert heard(tree.out / "k.wav") == [describe("First line."), describe("Second line.")]


def test_options_reach_the_voice(tree: Tree) -> None:
    """Speed, voice and rate change the sound, and a text that was spoken otherwise is spoken again."""
    lengths = {}
    for name, options in {
        "plain": (), "fast": ("--speed", "2"), "loud": ("--voice", "high"), "rate": ("--sample-rate", "48000"),
    }.items():  # fmt: skip
        done = tree.run("speak", "Hello there.", "-o", tree.folder / f"{name}.wav", "--engine", "fake_voice", *options)
        assert done.code == 0, done.stderr
        lengths[name] = sf.info(tree.folder / f"{name}.wav")
    assert lengths["fast"].duration < 0.7 * lengths["plain"].duration
    assert lengths["rate"].samplerate == 48_000
    unknown = tree.run("speak", "Hi.", "-o", tree.folder / "y.wav", "--engine", "fake_voice", "--voice", "nobody")
    assert unknown.code == 8
    assert "has no voice 'nobody'" in unknown.stderr


def test_voices_are_listed(tree: Tree) -> None:
    """Those of the engine that is named, with what it says of them; an engine that does not speak has none."""
    voices = tree.show("voices", "list", "--engine", "fake_voice")
    assert [(voice["name"], voice["engine"]) for voice in voices] == [("low", "fake_voice"), ("high", "fake_voice")]
    assert tree.run("voices", "list", "--engine", "whisper").code == 7
    assert "en_US-joe-medium" in tree.run("voices", "list").stdout


def test_a_hundred_pages_are_spoken_to_the_last_word(tree: Tree, tmp_path: Path) -> None:
    """Every piece of three hundred thousand characters is in the sound, once and in order."""
    text = "\n\n".join(
        " ".join(f"Sentence {number} of page {page}, which is not very long." for number in range(60))
        for page in range(100)
    )
    (tmp_path / "book.txt").write_text(text)
    began = time.monotonic()
    done = speak(tree, tmp_path / "book.txt", "-f", "flac")
    assert done.code == 0, done.stderr
    print(f"{len(text)} characters in {time.monotonic() - began:.1f} s")  # noqa: T201 - a figure worth seeing
    assert heard(tree.out / "book.flac") == planned(text)
