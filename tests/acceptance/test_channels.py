"""Channels that are kept apart: a fork by channel, one transcript, merged by time."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.acceptance.conftest import MakeTree
from tests.acceptance.harness import RATE_HZ, SHARED, Tree, example_speech, manifest, word_errors, write_recording

TWO_SPEAKERS = "mfa_michaelandsickmichael.wav"
MAX_WER = 0.2
pytestmark = pytest.mark.services


def _words(tree: Tree, stem: str) -> list[dict[str, Any]]:
    """Return all words of an output, in the order of the document."""
    document = json.loads((tree.out / f"{stem}.json").read_text())
    return [word for segment in document["segments"] for word in segment["words"]]


def _dialogue(turns: int) -> NDArray[np.int16]:
    """Return two channels on which two people speak in turn."""
    turn = example_speech()[: 4 * RATE_HZ]
    silence = np.zeros(5 * RATE_HZ, np.int16)
    channels: list[list[NDArray[np.int16]]] = [[], []]
    for number in range(turns):
        channels[number % 2] += [turn, silence[: RATE_HZ // 2]]
        channels[1 - number % 2] += [np.zeros(len(turn), np.int16), silence[: RATE_HZ // 2]]
    return np.stack([np.concatenate(parts) for parts in channels], axis=1)


def test_a_dialogue_on_two_channels_is_merged_by_time(tree: Tree, tmp_path: Path) -> None:
    """The turns alternate in one transcript, the channel is on each word, and no sample is of the other channel."""
    sound = _dialogue(6)
    recording = write_recording(tmp_path / "talk.wav", sound)
    assert tree.transcribe(recording, "--channels", "split", "-f", "json,txt").code == 0
    words = _words(tree, "talk")
    assert {word["channel"] for word in words} == {0, 1}
    starts = [word["start"] for word in words]
    assert starts == sorted(starts)
    story = tree.show("job", "show", tree.show("job", "list")[0]["id"])
    shards = [step for step in story["steps"] if step["step"] == "recognise"]
    assert len(shards) == 2
    (deliver,) = [step for step in story["steps"] if step["step"] == "deliver"]
    assert len(deliver["attempts"]) == 1, "the join ran once"
    _check_samples(json.loads((tree.out / "talk.json").read_text()), sound)


def _check_samples(document: dict[str, Any], sound: NDArray[np.int16]) -> None:
    """Compare the checksum of each window with that of the channel it names, wherever in it the window lies."""
    for segment in document["segments"]:
        found = re.fullmatch(r" n(\d+) c([0-9a-f]{8})", segment["text"])
        assert found, segment
        start, length = round(segment["start"] * RATE_HZ), int(found[1])
        places = range(max(0, start - 16), start + 17)  # times are rounded to a millisecond
        channel = sound[:, segment["channel"]]
        assert any(f"{crc32(channel[place : place + length].tobytes()):08x}" == found[2] for place in places), segment


def test_left_and_right_take_one_channel(make_tree: MakeTree, tmp_path: Path) -> None:
    """Each gives what the channel alone gives."""
    tree = make_tree(VOICEJOBS_LINGER_S="30")
    sound = _dialogue(2)
    write_recording(tmp_path / "both.wav", sound)
    for number, name in enumerate(("left", "right")):
        write_recording(tmp_path / f"{name}.wav", np.ascontiguousarray(sound[:, number]))
        assert tree.transcribe(tmp_path / "both.wav", "--channels", name, "-f", "srt").code == 0
        taken = (tree.out / "both.srt").read_text()
        assert tree.transcribe(tmp_path / f"{name}.wav", "-f", "srt").code == 0
        assert (tree.out / f"{name}.srt").read_text() == taken


@pytest.mark.models
@pytest.mark.timeout(120)
def test_both_voices_of_a_stereo_recording_are_heard(tree: Tree, need_model: Callable[[str], None]) -> None:
    """Whisper gives a text for each of the two channels of a real recording, with times that rise."""
    need_model("base")
    (row,) = [row for row in manifest() if row["file"] == TWO_SPEAKERS]
    path = SHARED / "speech" / TWO_SPEAKERS
    options = ["-m", "base", "-l", "en", "--channels", "split", "-f", "json", "--no-progress"]
    done = tree.run("transcribe", path, "-o", tree.out, *options)
    assert done.code == 0, done.stderr
    words = _words(tree, path.stem)
    for number, said in enumerate(row["channel_texts"]):
        heard = "".join(word["word"] for word in words if word["channel"] == number)
        assert word_errors([said], [heard]) < MAX_WER, heard
    starts = [word["start"] for word in words]
    assert starts == sorted(starts)
