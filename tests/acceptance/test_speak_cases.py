"""Texts that broke other systems, and what is understood of speech: spoken by piper, recognised by whisper."""

import json
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import pytest
import soundfile as sf

from tests.acceptance.harness import SHARED, Tree, missing
from voicejobs.text import read_out

CASES = SHARED / "cases"
VOICE = "en_US-joe-medium"
MAX_WER = 0.08
TAIL_S = 6.0
pytestmark = [pytest.mark.services, pytest.mark.models, pytest.mark.timeout(900)]

SENTENCES = (
    "The train to the coast leaves from platform nine at a quarter past seven.",
    "She opened the window because the room was far too warm.",
    "Please send the report to the office before Friday evening.",
    "Two children were playing with a red ball in the garden.",
    "The museum is closed on Mondays and on public holidays.",
    "He paid twelve dollars for the book and three for the map.",
    "Nobody knew why the old bridge had been painted green.",
    "The doctor told him to drink more water and to rest.",
    "In the north, the winter lasts for almost six months.",
    "They bought 24 chairs and 6 tables for the new school.",
    "The meeting on 4 March 2025 was moved to the afternoon.",
    "Our neighbours keep a dog, two cats and a very loud parrot.",
    "The price of bread rose by 12% in a single year.",
    "After dinner we walked along the river until it was dark.",
    "The pilot asked everyone to fasten their seat belts.",
    "A cold wind blew from the mountains across the valley.",
    "Dr. Miller will see you at 10:30 in the morning.",
    "The teacher wrote three questions on the blackboard.",
    "Most of the apples had fallen from the trees overnight.",
    "It took the firemen more than an hour to put out the fire.",
)


@pytest.fixture(scope="module")
def need_voice(models_dir: Path) -> None:
    """Skip where piper or its voice is missing."""
    pytest.importorskip("piper")
    if not (models_dir / VOICE / f"{VOICE}.onnx").is_file():
        missing(f"model {VOICE} is not in {models_dir}: voicejobs models pull {VOICE}")


@pytest.fixture
def spoken(tree: Tree, need_voice: None, need_model: Callable[[str], None], tmp_path: Path) -> Tree:
    """Return a state folder in which all rows of texts were spoken."""
    need_model("base")
    path = CASES / "cases.jsonl"
    if not path.is_file():
        pytest.skip(f"{path} is missing")
    for row in tts_rows():
        place = tmp_path / "in" / f"{row['id']}.txt"
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(CASES / row["files"][0])
    done = tree.run("speak", tmp_path / "in", "-o", tree.out, "--captions", "json", "--no-progress", timeout_s=600)
    assert done.code == 3, done.stderr
    return tree


def tts_rows() -> list[dict[str, Any]]:
    """Return the rows about texts."""
    lines = (CASES / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == "tts"]


def recognise(tree: Tree, folder: Path, output: Path) -> None:
    """Recognise all recordings of a folder with `base`."""
    done = tree.run("transcribe", folder, "-o", output, "-m", "base", "-l", "en", "--no-progress", timeout_s=600)
    assert done.code == 0, done.stderr


def words(text: str) -> str:
    """Return the words of a text as they are read out, without case, marks and the `and` of numbers."""
    plain = unicodedata.normalize("NFKC", read_out(text, "en")).lower().replace("-", " ")
    return " ".join(word for word in re.sub(r"[^\w\s]", "", plain).split() if word != "and")


def test_every_text_has_its_outcome(spoken: Tree, tmp_path: Path) -> None:
    """Each row ends as it says, and what it says of the speech is heard in it."""
    jobs = {Path(job["name"]).stem: job for job in spoken.show("job", "list", "--limit", "100")}
    for row in tts_rows():
        job, expect = jobs[row["id"]], row["expect"]
        outcome = "spoken" if job["state"] == "succeeded" else "error"
        assert outcome in expect["outcome"], (row["id"], job)
        if outcome == "error":
            assert job["error_code"] == expect["error_kind"], row["id"]
    tails = tmp_path / "tails"
    tails.mkdir()
    for path in spoken.out.glob("*.wav"):
        samples, rate_hz = sf.read(path, dtype="float32")
        assert np.abs(samples).max() == pytest.approx(0.95, abs=0.001)
        tail = samples if len(samples) < 60 * rate_hz else samples[-int(TAIL_S * rate_hz) :]
        sf.write(tails / path.name, tail, rate_hz)
    recognise(spoken, tails, tmp_path / "heard")
    heard = {path.stem: words(path.read_text()) for path in (tmp_path / "heard").glob("*.txt")}
    print(json.dumps(heard, indent=1))  # noqa: T201 - what was heard is worth seeing
    for row in tts_rows():
        for phrase in row["expect"].get("spoken_contains", ()):
            assert words(phrase) in heard[row["id"]], row["id"]
    assert "three hundred ninety nine" in heard["tts-no-punctuation-long"]
    assert sf.info(spoken.out / "tts-no-punctuation-long.wav").duration > 300
    assert "five is less than six" in heard["tts-ssml-like"]
    assert "speak" not in heard["tts-ssml-like"]
    first, second = json.loads((spoken.out / "tts-ssml-like.json").read_text())["segments"][:2]
    assert second["start"] - first["end"] >= 0.9
    assert "hello" in heard["tts-mixed-scripts"]
    assert "example" in heard["tts-mixed-scripts"]
    assert "letter" not in heard["tts-mixed-scripts"]


def test_twenty_sentences_are_understood(
    tree: Tree, tmp_path: Path, need_voice: None, need_model: Callable[[str], None]
) -> None:
    """Spoken by piper and recognised by `base`, at most eight words in a hundred are wrong."""
    need_model("base")
    table = tmp_path / "sentences.csv"
    table.write_text("text\n" + "\n".join(f'"{sentence}"' for sentence in SENTENCES) + "\n")
    done = tree.run("speak", table, "-o", tree.out, "--no-progress", timeout_s=300)
    assert done.code == 0, done.stderr
    recognise(tree, tree.out, tmp_path / "heard")
    heard = [path.read_text() for path in sorted((tmp_path / "heard").rglob("*.txt"))]
    assert len(heard) == len(SENTENCES)
    wer = float(jiwer.wer(list(map(words, SENTENCES)), list(map(words, heard))))
    print(f"pooled WER over {len(SENTENCES)} sentences: {wer:.3f}")  # noqa: T201 - a figure worth seeing
    assert wer <= MAX_WER
