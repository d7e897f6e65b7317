"""The inputs of ../shared/cases that broke other systems: each has the outcome that its row names, through the command.

One command takes all recordings, another all folders, so that the models load once; what a row says beyond its outcome
is a test of its own.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from tests.acceptance.conftest import MakeTree
from tests.acceptance.harness import COMMAND, SHARED, Outcome, Tree, powerless, wait_for, word_errors
from voicejobs.audio.types import Segment, Transcript, Word
from voicejobs.formats import render

CASES = SHARED / "cases"
FOLDER_MAX_WER = 0.3
START_TOLERANCE_S = 2.0
pytestmark = [pytest.mark.services, pytest.mark.models, pytest.mark.timeout(600)]

Row = dict[str, Any]


def rows(kind: str) -> list[Row]:
    """Return the rows of a kind; skip where they are missing."""
    path = CASES / "cases.jsonl"
    if not path.is_file():
        pytest.skip(f"{path} is missing")
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row for row in found if row["kind"] == kind]


def row(name: str) -> Row:
    """Return one row; skip where the rows are missing."""
    (found,) = [one for kind in ("audio", "folder", "segments") for one in rows(kind) if one["id"] == name]
    return found


def case(name: str) -> Path:
    """Return the only file of a row."""
    return CASES / str(row(name)["files"][0])


def link_all(folder: Path, which: Iterable[Row]) -> None:
    """Make a folder with a link to each file of each row, under the row's id."""
    for one in which:
        for name in one["files"]:
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(CASES / name)


def no_number(text: str) -> NoReturn:
    """Refuse what JSON does not know."""
    pytest.fail(f"{text} in JSON")


@dataclass(slots=True)
class Results:
    """Hold what a command left: the jobs by the names of their inputs, and the JSON outputs by theirs."""

    jobs: dict[str, dict[str, Any]]
    folder: Path
    problems: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, tree: Tree) -> "Results":
        """Read the jobs of a state folder."""
        return cls({job["name"]: job for job in tree.show("job", "list", "--limit", "1000")}, tree.out)

    def document(self, name: str) -> dict[str, Any] | None:
        """Return the transcript of an input; JSON that holds NaN or infinity is no JSON."""
        for path in (self.folder / f"{name}.json", self.folder / f"{os.path.splitext(name)[0]}.json"):  # noqa: PTH122 - dots
            if path.is_file():
                found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"), parse_constant=no_number)
                return found
        return None

    def check(self, name: str, expect: dict[str, Any]) -> None:
        """Compare what became of an input with what its row expects, and note each difference."""
        job, outcome = self.jobs.get(name), expect["outcome"]
        if job is None:
            if "skipped" not in outcome:
                self.problems.append(f"{name}: no job, expected {outcome}")
            return
        document = self.document(name)
        if job["state"] != "succeeded" or document is None:
            wanted = expect.get("error_kind")
            if "error" not in outcome or wanted not in {None, job["error_code"]}:
                self.problems.append(f"{name}: {job['state']} {job['error_code']}, expected {outcome} {wanted or ''}")
            return
        self._check_text(name, expect, document, float(job["audio_s"]))

    def _check_text(self, name: str, expect: dict[str, Any], document: dict[str, Any], audio_s: float) -> None:
        """Compare text, language and times of a transcript."""
        said, heard = expect.get("text", ""), document["text"].strip()
        if not heard or not said:
            if "empty" not in expect["outcome"] or heard:
                self.problems.append(f"{name}: heard {heard!r}, expected {expect['outcome']} {said!r}")
            return
        errors = word_errors([said], [heard])
        if errors > expect.get("max_wer", FOLDER_MAX_WER):
            self.problems.append(f"{name}: word error rate {errors:.2f}: {heard!r}")
        if "language" in expect and document["language"] != expect["language"]:
            self.problems.append(f"{name}: language {document['language']}, expected {expect['language']}")
        if "seconds" in expect and abs(audio_s - expect["seconds"]) > 0.1:
            self.problems.append(f"{name}: {audio_s} s long, expected {expect['seconds']}")
        self._check_times(name, expect, document, audio_s)

    def _check_times(self, name: str, expect: dict[str, Any], document: dict[str, Any], audio_s: float) -> None:
        """Look for times that go backwards or leave the recording, and for the starts that are expected."""
        times = [(word["start"], word["end"]) for segment in document["segments"] for word in segment.get("words", ())]
        for wanted in expect.get("starts", ()):
            if not any(abs(start - wanted) <= START_TOLERANCE_S for start, _ in times):
                self.problems.append(f"{name}: nothing starts near {wanted} s")
        spans = [(segment["start"], segment["end"]) for segment in document["segments"]]
        for kind, found in (("word", times), ("segment", spans)):
            starts = [start for start, _ in found]
            if starts != sorted(starts):
                self.problems.append(f"{name}: {kind} starts go backwards: {starts}")
            if any(not 0 <= start <= end <= audio_s + 0.001 for start, end in found):
                self.problems.append(f"{name}: {kind} outside of 0 to {audio_s}: {found}")


def transcribe(tree: Tree, *arguments: Any) -> Outcome:
    """Run the command with the output as JSON into the tree's folder."""
    return tree.run("transcribe", *arguments, "-o", tree.out, "-f", "json", "--no-progress", timeout_s=580)


def test_every_recording_has_its_outcome(tree: Tree, tmp_path: Path, need_model: Callable[[str], None]) -> None:
    """All rows of kind audio, long ones too, in one command: text, language, starts, error codes, times, plain JSON."""
    need_model("base")
    which = rows("audio")
    link_all(tmp_path / "in", which)
    # Without an ending it is no input of a folder, and is one where it is named.
    done = transcribe(tree, tmp_path / "in", case("no-extension"), "-m", "base", "--word-timestamps")
    assert done.code == 3, done.stderr
    found = Results.of(tree)
    for one in which:
        (name,) = one["files"]
        found.check("recording" if one["id"] == "no-extension" else name, one["expect"])
        if "error" in one["expect"]["outcome"] and len(one["expect"]["outcome"]) == 1:
            assert f"[{one['expect']['error_kind']}]" in done.stderr
    assert found.problems == []
    _check_lengths(found)
    _check_properties(found)


def _check_lengths(found: Results) -> None:
    """Compare lengths: they come from the decoded samples, whatever the header says."""
    lengths = {
        "webm-no-duration/recording.webm": 5.855, "wav-streamed-ffffffff/stream.wav": 5.855,
        "flac-claims-forever/endless.flac": 2.87, "ninety-minutes/board meeting.flac": 5400.0,
        "rf64/long session.wav": 5.855, "ends-mid-word/cut.wav": 9.9,
    }  # fmt: skip
    for name, seconds in lengths.items():
        assert found.jobs[name]["audio_s"] == pytest.approx(seconds, abs=0.05), name


def _check_properties(found: Results) -> None:
    """Check what some rows say in words."""
    repeated = found.document("same-words-eight-times/drill.flac")
    assert repeated is not None
    assert 7 <= repeated["text"].lower().count("almost hurt the small dog") <= 9, repeated["text"]
    late = found.document("silent-first-40s/late start.flac")
    assert late is not None
    assert late["segments"][0]["words"][0]["start"] > 39.0, "times count from the start of the file"
    music = found.document("music-only-40s/hold music.ogg")
    assert music is not None
    assert music["segments"] == []
    impossible = found.jobs["wav-65535-channels/many.wav"]
    assert impossible["finished_at"] - impossible["started_at"] < 1.0


def test_every_folder_has_its_outcome(tree: Tree, tmp_path: Path, need_model: Callable[[str], None]) -> None:
    """All rows of kind folder in one command: each file has an output found by its name, or is passed over."""
    need_model("tiny.en")
    which = [one for one in rows("folder") if one["id"] != "no-permission"]
    folder = tmp_path / "in"
    link_all(folder, which)
    done = transcribe(tree, folder, "-m", "tiny.en")
    assert done.code == 0, done.stderr
    found = Results.of(tree)
    for one in which:
        for name, expect in one["expect"]["per_file"].items():
            found.check(f"{one['id']}/{name}", expect)
    assert found.problems == []
    inputs = {f"{one['id']}/{name}" for one in which for name in one["expect"]["per_file"]}
    passed_over = {"zip-in-folder/bomb.zip"}
    assert set(found.jobs) == inputs - passed_over, "no job, and no error, for what is no recording"
    outputs = [path for path in tree.out.rglob("*") if path.is_file()]
    assert len(outputs) == len(found.jobs), "one output for each"
    assert not (tmp_path / "pwned").exists()
    assert sorted(path.name for path in (folder / "zip-in-folder").iterdir()) == ["bomb.zip", "ok.wav"]


def test_names_with_a_leading_dash_can_be_named(tree: Tree, tmp_path: Path) -> None:
    """After `--` such names are files, and `./` in front does the same."""
    folder = tmp_path / "in"
    link_all(folder, [row("name-leading-dash")])
    folder /= "name-leading-dash"
    options = ("-o", tree.out, "--engine", "fake", "--no-progress")
    assert tree.run("transcribe", *options, "--", "-rf.wav", "--help.wav", cwd=folder).code == 0
    assert tree.run("transcribe", *options, "./-.wav", cwd=folder).code == 0
    assert sorted(path.name for path in tree.out.iterdir()) == ["--help.txt", "-.txt", "-rf.txt"]


def test_an_archive_that_is_named_is_refused(tree: Tree) -> None:
    """A ZIP archive costs an error that says what it is; nothing is unpacked."""
    case("silence-30s")
    done = tree.transcribe(CASES / "zip-in-folder" / "bomb.zip", CASES / "zip-in-folder" / "ok.wav")
    assert done.code == 3, done.stderr
    assert "bomb.zip" in done.stderr
    assert "[not_audio]" in done.stderr
    assert "ZIP archive" in done.stderr
    assert [path.name for path in tree.out.iterdir()] == ["ok.txt"]


def test_files_without_the_right_to_read_fail_alone(make_tree: MakeTree, tmp_path: Path) -> None:
    """A locked file is named as unreadable and so is a locked folder; the file beside them is transcribed."""
    one = row("no-permission")
    folder = tmp_path / "in"
    for name in one["files"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(CASES / name, folder / name)
    folder /= "no-permission"
    locked = [folder / "locked.wav", folder / "locked folder"]
    for path in locked:
        path.chmod(0)
    try:
        tree = make_tree()
        tree.launcher = powerless()
        done = tree.transcribe(folder)
    finally:
        for path in locked:
            path.chmod(0o700)
    assert done.code == 3, done.stderr
    assert [path.name for path in tree.out.iterdir()] == ["ok.txt"]
    lines = [line for line in done.stderr.splitlines() if "[unreadable]" in line]
    assert any("locked.wav" in line for line in lines), done.stderr
    assert any("locked folder" in line for line in lines), done.stderr
    jobs = Results.of(tree).jobs
    assert jobs["ok.wav"]["state"] == "succeeded"
    assert jobs["locked.wav"]["error_code"] == "unreadable"


def test_a_call_in_turns_keeps_its_channels_apart(tree: Tree, need_model: Callable[[str], None]) -> None:
    """With `--channels split` each word carries its channel, and each channel has the words of one speaker."""
    need_model("tiny.en")
    path = case("stereo-call-turns")
    done = transcribe(tree, path, "-m", "tiny.en", "--channels", "split", "--word-timestamps")
    assert done.code == 0, done.stderr
    document = json.loads((tree.out / "call.json").read_text(encoding="utf-8"))
    words = [word for segment in document["segments"] for word in segment["words"]]
    by_channel = {channel: "".join(word["word"] for word in words if word["channel"] == channel) for channel in (0, 1)}
    assert len(words) == sum(word["channel"] in {0, 1} for word in words)
    said = [by_channel[channel].lower() for channel in (0, 1)]
    assert [("apostle" in one, "sorrow" in one) for one in said] in (
        [(True, False), (False, True)],
        [(False, True), (True, False)],
    )


def test_a_film_index_at_the_end_is_no_trouble_for_a_pipe(tree: Tree, need_model: Callable[[str], None]) -> None:
    """An M4A file whose index lies at its end is transcribed from standard input, which cannot seek."""
    need_model("tiny.en")
    one = row("m4a-moov-at-end")
    words = (COMMAND, "transcribe", "-", "-o", tree.out, "-m", "tiny.en", "--no-progress")
    data = case("m4a-moov-at-end").read_bytes()
    done = subprocess.run(words, input=data, env=tree.environment, capture_output=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr.decode()
    (path,) = tree.out.iterdir()
    assert word_errors([one["expect"]["text"]], [path.read_text(encoding="utf-8")]) <= one["expect"]["max_wer"]


def test_ninety_minutes_show_progress_and_can_be_cancelled(tree: Tree) -> None:
    """While the long file is at work its progress moves, and Ctrl-C ends the command within seconds."""
    path = case("ninety-minutes")
    process = tree.start("transcribe", path, "-o", tree.out, "--engine", "fake", "--no-progress")
    seen: set[float] = set()

    def moves() -> bool:
        assert process.poll() is None, "it ended before its progress was seen"
        if (tree.state / "voicejobs.db").exists():
            for job in tree.show("job", "list"):
                seen.update(float(step["progress_s"] or 0) for step in tree.show("job", "show", job["id"])["steps"])
        return len(seen - {0.0}) >= 2

    wait_for(moves, "progress that moves")
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=15) == 130
    assert time.monotonic() - began < 10.0
    (job,) = tree.show("job", "list")
    assert job["state"] == "cancelled"


def _transcript(name: str) -> Transcript:
    """Build the transcript of a row of kind segments, whatever values its engine gave."""
    data = json.loads(case(name).read_text(encoding="utf-8"))
    segments = [
        Segment(
            one["start"], one["end"], one["text"],
            words=tuple(
                Word(word["start"], word["end"], word["word"], word["probability"]) for word in one.get("words", ())
            ),
            avg_logprob=one.get("avg_logprob"),
        )
        for one in data["segments"]
    ]  # fmt: skip
    return Transcript(tuple(segments), "en", data["duration"])


def _seconds(time_code: str) -> float:
    """Return the seconds of a time code of SRT or VTT."""
    parts = time_code.strip().replace(",", ".").split(":")
    return sum(float(part) * 60.0**place for place, part in enumerate(reversed(parts)))


@pytest.mark.parametrize("name", ["srt", "vtt"])
def test_crooked_segments_become_straight_cues(name: str) -> None:
    """Each cue ends after it starts, starts after the one before it, ends inside the medium, and no text is lost."""
    transcript = _transcript("segments-times")
    text = render(transcript, name).decode()
    cues = [line.split(" --> ") for line in text.splitlines() if " --> " in line]
    times = [(_seconds(start), _seconds(end.split(" ")[0])) for start, end in cues]
    assert times
    assert all(start < end <= transcript.duration_s for start, end in times), times
    assert all(end <= start for (_, end), (start, _) in pairwise(times)), times
    words = " ".join(line for line in text.splitlines() if " --> " not in line).split()
    for segment in transcript.segments:
        assert all(word in words for word in segment.text.split()), segment.text


def test_crooked_segments_keep_their_text_in_json() -> None:
    """The JSON document holds every text, whatever the times say."""
    transcript = _transcript("segments-times")
    document = json.loads(render(transcript, "json"), parse_constant=no_number)
    for segment in transcript.segments:
        assert segment.text.strip() in document["text"]


@pytest.mark.parametrize("name", ["json", "srt", "vtt"])
def test_numbers_of_engines_become_plain_numbers(name: str) -> None:
    """NumPy floats are written as numbers, and NaN and infinity are null in JSON."""
    data = json.loads(case("segments-numbers").read_text(encoding="utf-8"))
    (one,) = data["segments"]
    word = one["words"][0]
    single: Callable[[float], Any] = np.float32
    transcript = Transcript(
        (
            Segment(
                np.float64(one["start"]), single(one["end"]), one["text"],
                words=(Word(single(word["start"]), np.float64(word["end"]), word["word"], single(0.5)),),
                avg_logprob=single(float("nan")), no_speech_prob=float("inf"),
            ),
        ),
        "en",
        np.float64(data["duration"]),
    )  # fmt: skip
    written = render(transcript, name)
    assert b"x" in written
    if name == "json":
        (segment,) = json.loads(written, parse_constant=no_number)["segments"]
        assert segment["avg_logprob"] is None
        assert segment["no_speech_prob"] is None
        assert segment["words"][0]["probability"] == 0.5
