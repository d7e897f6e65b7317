"""`voicejobs retell` as a user runs it: recordings in, sound out, done once, told of, and refused."""

import json
from pathlib import Path

import pytest
import soundfile as sf

from tests.acceptance.conftest import MakeTree
from tests.acceptance.harness import Argument, Outcome, Tree, files_below, speech_files
from voicejobs.engines.fake_voice import describe, hear
from voicejobs.text import plan_pieces

pytestmark = [pytest.mark.services, pytest.mark.timeout(150)]
FAKES = ("--engine", "fake", "--voice-engine", "fake_voice", "--no-progress")


@pytest.fixture
def tree(make_tree: MakeTree) -> Tree:
    """Return a state folder whose stack waits for the next command."""
    return make_tree(VOICEJOBS_LINGER_S="30")


def retell(tree: Tree, *arguments: Argument) -> Outcome:
    """Run `voicejobs retell` with fake engines into the output folder."""
    return tree.run("retell", *arguments, "-o", tree.out, *FAKES)


def heard(path: Path) -> list[tuple[int, int]]:
    """Return what the fake voice tells of the texts in a file of sound."""
    samples, rate_hz = sf.read(path, dtype="float32")
    return hear(samples, rate_hz)


def planned(text: str) -> list[tuple[int, int]]:
    """Return the same of a text."""
    return [describe(piece.spoken) for piece in plan_pieces(text, "en")]


def test_a_folder_is_retold_and_resumed(tree: Tree) -> None:
    """Each recording says what `transcribe` writes of it, changed as asked; a second run does nothing."""
    recordings = speech_files(tree.folder / "in", 3)
    assert tree.run("transcribe", tree.folder / "in", "-o", tree.folder / "txt", "--engine", "fake").code == 0
    done = retell(tree, tree.folder / "in", "-f", "wav,flac", "--captions", "vtt", "--replace", "n", "north ")
    assert done.code == 0, done.stderr
    assert "3 retold" in done.stderr
    stems = [path.relative_to(tree.folder / "in").with_suffix("") for path in recordings]
    assert set(files_below(tree.out)) == {f"{stem}.{ending}" for stem in stems for ending in ("wav", "flac", "vtt")}
    for stem in stems:
        text = (tree.folder / "txt" / f"{stem}.txt").read_text()
        assert heard(tree.out / f"{stem}.wav") == planned(text.replace("n", "north "))
    before = files_below(tree.out)
    again = retell(tree, tree.folder / "in", "-f", "wav,flac", "--captions", "vtt", "--replace", "n", "north ")
    assert again.code == 0, again.stderr
    assert "0 retold, 3 done before" in again.stderr
    (tree.out / f"{stems[0]}.flac").unlink()
    third = retell(tree, tree.folder / "in", "-f", "wav,flac", "--captions", "vtt", "--replace", "n", "north ")
    assert "1 retold, 2 done before" in third.stderr
    assert files_below(tree.out) == before


def test_one_recording_becomes_the_file_that_is_named(tree: Tree) -> None:
    """The ending of `-o` is the format; the events tell both engines; a file that is none costs exit code 3."""
    (recording,) = speech_files(tree.folder / "in", 1)
    wrong = recording.with_name("wrong.wav")
    wrong.write_bytes(b"RIFF, or so it says" * 9)
    words = ("--captions", "json", "--keep-times", "--json")
    done = tree.run("retell", recording, "-o", tree.out / "x.mp3", *words, *FAKES)
    assert done.code == 0, done.stderr
    assert {path.name for path in tree.out.iterdir()} == {"x.mp3", "x.json"}
    start = json.loads(done.stdout.splitlines()[0])
    assert start["engine"] == "fake"
    assert start["options"]["synthesise"]["engine"] == "fake_voice"
    assert start["options"]["retell"]["keep_times"] is True
    some = retell(tree, recording, wrong)
    assert some.code == 3, some.stderr
    assert "1 retold, 1 failed" in some.stderr


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (("-f", "txt"), 7, "txt"),
        (("--voice-engine", "whisper"), 7, "does not speak"),
        (("--prompt-audio", "nowhere.wav"), 7, "does not speak with the voice"),
        (("--speed", "9"), 2, "--speed"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(tree: Tree, words: tuple[str, ...], code: int, what: str) -> None:
    """Each is told by its name, and no job is made."""
    (recording,) = speech_files(tree.folder / "in", 1)
    engines = () if words[0].endswith("engine") else ("--engine", "fake", "--voice-engine", "fake_voice")
    done = tree.run("retell", recording, "-o", tree.out, *engines, *words)
    assert done.code == code, done.stderr
    assert what in done.stderr
    assert not tree.out.exists()
