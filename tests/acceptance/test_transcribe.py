"""`voicejobs transcribe` as a tool among others: pipes, lists, plans, events, archives, limits, and being stopped."""

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from tests.acceptance.conftest import MakeTree
from tests.acceptance.harness import (
    COMMAND,
    RATE_HZ,
    ROOT,
    Outcome,
    Tree,
    example_speech,
    files_below,
    powerless,
    speech_files,
    wait_for,
    write_recording,
)
from tests.acceptance.terminal import CTRL_C, terminal

pytestmark = [pytest.mark.services, pytest.mark.timeout(120)]

SLOW = {"VOICEJOBS_FAKE_COST_WINDOW_S": "0.5", "VOICEJOBS_LINGER_S": "30", "VOICEJOBS_WINDOW_JOBS": "2"}
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "events.schema.json").read_text())
EVENTS = jsonschema.Draft202012Validator(SCHEMA)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, models_dir: Path, private_server: None) -> Iterator[Tree]:
    """Return a state folder whose stack stays for the next test."""
    settings = {"VOICEJOBS_LINGER_S": "60", "VOICEJOBS_MODELS_DIR": str(models_dir)}
    tree = Tree(tmp_path_factory.mktemp("running"), settings)
    yield tree
    tree.close()


@pytest.fixture
def desk(running: Tree, tmp_path: Path) -> Iterator[Tree]:
    """Return folders of this test on the running stack."""
    tree = Tree(tmp_path, running.settings, running.state)
    yield tree
    tree.close_pipes()


@pytest.fixture
def inputs(desk: Tree) -> Path:
    """Return the folder of this test's recordings."""
    (desk.folder / "in").mkdir()
    return desk.folder / "in"


def recording(path: Path, loudness: float = 0.8) -> Path:
    """Write some seconds of speech."""
    return write_recording(path, (example_speech()[: 3 * RATE_HZ] * loudness).astype(np.int16))


def piped(tree: Tree, data: bytes, *arguments: Any) -> "subprocess.CompletedProcess[bytes]":
    """Run the command with standard input."""
    return subprocess.run(
        [COMMAND, "transcribe", *arguments, "--engine", "fake"],
        input=data,
        capture_output=True,
        env=tree.environment,
        cwd=tree.folder,
        check=False,
        timeout=60,
    )


def events(done: Outcome) -> list[dict[str, Any]]:
    """Return the events on standard output, each checked against the published schema."""
    found = [json.loads(line) for line in done.stdout.splitlines()]
    for event in found:
        EVENTS.validate(event)
    return found


def by_name(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the events about files by their names."""
    return {event["name"]: event for event in found if event["type"] == "file"}


# --- standard input, standard output, lists ---


def test_a_recording_from_a_pipe_becomes_text_on_a_pipe(desk: Tree, inputs: Path) -> None:
    """`- -o -`: nothing is left behind, and standard output holds the one file alone."""
    data = recording(inputs / "a.wav").read_bytes()
    done = piped(desk, data, "-", "-f", "srt", "-o", "-")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"1\n00:00:00,")
    spool = desk.state / "spool"
    assert not list(spool.iterdir())
    assert spool.stat().st_mode & 0o777 == 0o700
    assert not (desk.folder / "-").exists()


def test_standard_input_has_the_name_that_it_is_given(desk: Tree, inputs: Path) -> None:
    """`stdin` where none is given; what a killed command has left of another is swept."""
    data = recording(inputs / "a.wav").read_bytes()
    (desk.state / "spool").mkdir(parents=True, exist_ok=True, mode=0o700)
    left = desk.state / "spool" / "left"
    left.mkdir()
    (left / "lock").touch()
    assert piped(desk, data, "-", "-o", "out").returncode == 0
    assert piped(desk, data, "-", "-o", "out", "--stdin-name", "talk.mp3").returncode == 0
    assert files_below(desk.out).keys() == {"stdin.txt", "talk.txt"}
    assert not left.exists()
    assert piped(desk, data, "-", "-o", "out", "--stdin-name", "../x").returncode == 7


def test_an_empty_pipe_is_an_empty_file(desk: Tree) -> None:
    """It is no success."""
    done = piped(desk, b"", "-", "-o", "out")
    assert done.returncode == 8
    assert b"[empty_file]" in done.stderr


def test_a_pipe_without_a_recording_is_told_by_its_name(desk: Tree) -> None:
    """The private copy, which is gone with the command, is not named."""
    done = piped(desk, b"no sound", "-", "-o", "out")
    assert done.returncode == 8
    assert b"stdin: is not a recording" in done.stderr
    assert b"spool" not in done.stderr


def test_output_to_a_pipe_takes_one_file_and_one_format(desk: Tree, inputs: Path) -> None:
    """Two of either are refused before any work."""
    recording(inputs / "a.wav")
    recording(inputs / "b.wav", 0.5)
    for words in ([inputs], [inputs / "a.wav", "-f", "txt,srt"], [inputs / "a.wav", "--json"]):
        done = desk.run("transcribe", *words, "-o", "-", "--engine", "fake")
        assert done.code == 7, words
        assert "[bad_option]" in done.stderr
    done = desk.run("transcribe", inputs / "a.wav", "-o", "-", "--engine", "fake")
    assert done.stdout.strip().startswith("n"), "the text of the fake engine, and nothing else"


def test_find_can_tell_what_to_transcribe(desk: Tree, inputs: Path) -> None:
    """A list from standard input, separated by NUL, with line ends in its names."""
    recording(inputs / "a\nb.wav")
    recording(inputs / "c.wav", 0.5)
    names = b"\0".join(os.fsencode(path) for path in sorted(inputs.iterdir())) + b"\0"
    done = piped(desk, names, "@-", "-o", "out")
    assert done.returncode == 0, done.stderr
    assert files_below(desk.out).keys() == {"a\nb.txt", "c.txt"}


# --- names ---


def test_names_up_to_the_limit_have_outputs(desk: Tree, inputs: Path) -> None:
    """255 bytes long, beginning alike, no UTF-8: each has its own output, and the next run finds it."""
    names = ["a" * 251 + ".wav", "a" * 250 + "b.wav", os.fsdecode(b"\xe9" * 251) + ".wav", "\U0001f3a4" * 62 + ".wav"]
    for number, name in enumerate(names):
        recording(inputs / "plain.wav", 0.4 + number / 10).rename(inputs / name)
    assert desk.transcribe(inputs, "-f", "txt,srt").code == 0
    assert len(files_below(desk.out)) == 2 * len(names)
    assert len(set(files_below(desk.out).values())) == 2 * len(names)
    assert "4 done before" in desk.transcribe(inputs, "-f", "txt,srt").stderr


def test_a_template_places_the_outputs(desk: Tree, inputs: Path) -> None:
    """Also by the hash of the content, which is known only once a file was read."""
    recording(inputs / "x" / "a.wav")
    digest = next(iter(files_below(inputs).values()))[:8]
    done = desk.transcribe(inputs, "--output-template", "{language}/{relpath}/{stem}-{hash8}.{ext}", "-l", "en")
    assert done.code == 0, done.stderr
    assert files_below(desk.out).keys() == {f"en/x/a-{digest}.txt"}
    assert desk.transcribe(inputs, "--output-template", "{nope}").code == 7


def test_the_output_folder_in_the_input_is_no_input(desk: Tree, inputs: Path) -> None:
    """Neither in the first run nor in the second, and recordings in it are not passed over in silence."""
    recording(inputs / "a.wav")
    recording(inputs / "out" / "b.wav", 0.5)
    for _ in range(2):
        done = desk.run("transcribe", inputs, "-o", inputs / "out", "--engine", "fake", "--no-progress")
        assert done.code == 0
        assert "[output_folder_skipped]" in done.stderr
    assert files_below(inputs).keys() == {"a.wav", "out/b.wav", "out/a.txt"}


# --- plans ---


def test_a_dry_run_touches_nothing(make_tree: MakeTree) -> None:
    """No folder, no database, no server, no model: it prints what would be done, and how long it might take."""
    tree = make_tree(VOICEJOBS_MODELS_DIR=str(Path("/nowhere/models")), VOICEJOBS_HUB_URL="http://127.0.0.1:1")
    inputs = tree.folder / "in"
    recording(inputs / "a" / "talk.wav")
    (inputs / "bad.wav").write_text("this is no sound")
    (inputs / "empty.wav").touch()
    (inputs / "old.zip").write_bytes(b"PK")
    done = tree.run("transcribe", inputs, "-o", tree.out, "-f", "txt,srt", "-n", "--summary", tree.folder / "s.json")
    assert done.code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert re.search(r"^plan +a/talk.wav \(0:03\) -> .*out/a/talk.txt, .*out/a/talk.srt$", done.stdout, re.MULTILINE)
    assert any(line.startswith("failed  bad.wav") and "[not_audio]" in line for line in lines)
    assert any("empty.wav" in line and "[empty_file]" in line for line in lines)
    assert any(line.startswith("skipped old.zip") for line in lines)
    assert lines[-1].startswith("1 to transcribe, 1 skipped, 2 would fail: 0:03 of audio, about 0:01 at 5.0x realtime")
    assert "assumed" in lines[-1]
    assert sorted(path.name for path in tree.folder.iterdir()) == ["in"]


def test_a_dry_run_knows_what_is_done_and_how_fast_it_was(desk: Tree, inputs: Path) -> None:
    """From the database, which is only read."""
    recording(inputs / "a.wav")
    assert desk.transcribe(inputs).code == 0
    recording(inputs / "b.wav", 0.5)
    done = desk.transcribe(inputs, "--dry-run", "--json")
    assert done.code == 0, done.stderr
    found = events(done)
    assert {name: event["state"] for name, event in by_name(found).items()} == {"a.wav": "done", "b.wav": "planned"}
    assert by_name(found)["b.wav"]["audio_s"] == pytest.approx(3.0)
    plan = found[-1]["plan"]
    assert (plan["files"], plan["audio_s"], plan["unknown"]) == (1, 3.0, 0)
    assert plan["past_batches"] >= 1
    assert files_below(desk.out).keys() == {"a.txt"}
    assert desk.transcribe(inputs, "-n", "--force").stdout.count("plan ") == 2


# --- events and summaries ---


def test_events_tell_everything_and_nothing_else_is_on_standard_output(desk: Tree, inputs: Path) -> None:
    """Each line of a real run fits the published schema; failures, skipped files, odd names and silence are in it."""
    recording(inputs / "good.wav")
    write_recording(inputs / "silent.wav", np.zeros(2 * RATE_HZ, np.int16))
    (inputs / "bad.wav").write_text("this is no sound")
    (inputs / "old.zip").write_bytes(b"PK")
    (inputs / "gone.wav").symlink_to("nowhere")
    recording(inputs / "x.wav", 0.4).rename(inputs / os.fsdecode(b"caf\xe9\n.wav"))
    summary = desk.folder / "deep" / "summary.json"
    done = desk.run("transcribe", inputs, "-o", desk.out, "--engine", "fake", "--json", "--summary", summary)
    assert done.code == 3
    found = events(done)
    assert [found[0]["type"], found[-1]["type"]] == ["start", "summary"]
    assert {event["type"] for event in found} == {"start", "file", "progress", "summary"}
    files = by_name(found)
    assert {name: event["state"] for name, event in files.items()} == {
        "good.wav": "succeeded", "silent.wav": "succeeded", "bad.wav": "failed", "gone.wav": "failed",
        "old.zip": "skipped", "caf\\xe9\\n.wav": "succeeded",
    }  # fmt: skip
    assert files["bad.wav"]["error"]["code"] == "not_audio"
    assert files["gone.wav"]["error"]["code"] == "not_found"
    assert files["old.zip"]["reason"] == "archive"
    assert files["silent.wav"]["warnings"] == ["no_speech"]
    assert Path(files["good.wav"]["outputs"][0]["path"]).read_text().startswith("n")
    assert "path_base64" in files["caf\\xe9\\n.wav"]
    last = found[-1]
    assert last["files"] == {"succeeded": 3, "done": 0, "failed": 2, "cancelled": 0, "skipped": 1}
    assert (last["exit_code"], last["ended"], last["warnings"]) == (3, "completed", {"no_speech": 1})
    written = json.loads(summary.read_text())
    assert {report["name"]: report["state"] for report in written["reports"]} == {
        name: event["state"] for name, event in files.items()
    }
    assert written["files"] == last["files"]
    assert [path.name for path in summary.parent.iterdir()] == ["summary.json"]


def test_what_ends_a_whole_run_is_an_event_too(desk: Tree, inputs: Path) -> None:
    """An error and a summary with the exit code, whatever it is."""
    recording(inputs / "a.wav")
    cases: tuple[tuple[list[Any], int, str], ...] = (
        ([inputs, "-m", "nope"], 7, "error"),
        ([inputs / "nowhere"], 7, "error"),
        ([inputs, "--include", "*.mp3"], 4, "no_input"),
    )
    for words, code, ended in cases:
        engine = [] if "-m" in words else ["--engine", "fake"]
        done = desk.run("transcribe", *words, "-o", desk.out, "--json", *engine)
        found = events(done)
        assert (done.code, found[-1]["exit_code"], found[-1]["ended"]) == (code, code, ended), words


def test_the_published_schema_is_the_one_in_the_package() -> None:
    """And is a valid schema."""
    packaged = ROOT / "voicejobs" / "cli" / "schemas" / "events.schema.json"
    assert packaged.read_text() == (ROOT / "docs" / "schemas" / "events.schema.json").read_text()
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_summary_that_cannot_be_written_is_found_before_the_work(desk: Tree, inputs: Path) -> None:
    """And so is an archive."""
    recording(inputs / "a.wav")
    (desk.folder / "file").touch()
    for option in ("--summary", "--archive"):
        done = desk.transcribe(inputs, option, desk.folder / "file" / "x")
        assert done.code == 7
        assert "[bad_option]" in done.stderr
    assert not desk.out.exists() or not files_below(desk.out)


# --- what is taken, and what is left aside ---


def test_an_archive_remembers_content_wherever_it_is(desk: Tree, inputs: Path) -> None:
    """Outputs may be moved away and inputs renamed; what changed is done again."""
    archive = desk.folder / "done.txt"
    recording(inputs / "a.wav")
    assert desk.transcribe(inputs, "--archive", archive).code == 0
    (desk.out / "a.txt").unlink()
    (inputs / "a.wav").rename(inputs / "z.wav")
    recording(inputs / "b.wav", 0.5)
    assert "plan    b.wav" in desk.transcribe(inputs, "--archive", archive, "-n").stdout
    again = desk.transcribe(inputs, "--archive", archive)
    assert "1 transcribed, 1 skipped" in again.stderr
    assert files_below(desk.out).keys() == {"b.txt"}
    assert len(archive.read_text().splitlines()) == 2


def test_existing_outputs_can_be_skipped_whoever_wrote_them(desk: Tree, inputs: Path) -> None:
    """All of them must be there."""
    recording(inputs / "a.wav")
    recording(inputs / "b.wav", 0.5)
    desk.out.mkdir()
    (desk.out / "a.txt").write_text("mine")
    done = desk.transcribe(inputs, "--skip-existing")
    assert done.code == 0
    assert "1 transcribed, 1 skipped" in done.stderr
    assert (desk.out / "a.txt").read_text() == "mine"
    assert "[output_exists]" in desk.transcribe(inputs, "--skip-existing", "-f", "txt,srt").stderr


def test_only_what_failed_is_tried_again(desk: Tree, inputs: Path) -> None:
    """Neither what is done nor what is new."""
    recording(inputs / "a.wav")
    (inputs / "b.wav").write_text("this is no sound")
    assert desk.transcribe(inputs).code == 3
    recording(inputs / "b.wav", 0.5)
    recording(inputs / "c.wav", 0.6)
    done = desk.transcribe(inputs, "--retry-failed")
    assert done.code == 0
    assert "1 transcribed, 2 skipped" in done.stderr
    assert files_below(desk.out).keys() == {"a.txt", "b.txt"}
    assert desk.transcribe(inputs, "--retry-failed").code == 0


def test_a_file_that_is_still_being_written_is_refused(desk: Tree, inputs: Path) -> None:
    """A prefix of a recording is no recording; the others are done."""
    recording(inputs / "a.wav")
    data = recording(inputs / "b.wav", 0.5).read_bytes()
    stop = threading.Event()

    def write() -> None:
        with (inputs / "b.wav").open("ab", buffering=0) as stream:
            while not stop.wait(0.05):
                stream.write(data[44:4044])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        done = desk.transcribe(inputs)
    finally:
        stop.set()
        writer.join()
    assert done.code == 3
    assert "[input_changed]" in done.stderr
    assert files_below(desk.out).keys() == {"a.txt"}
    time.sleep(0.6)
    assert desk.transcribe(inputs).code == 0


def test_files_and_folders_without_rights_fail_alone(make_tree: MakeTree) -> None:
    """Each is named, with a code; an output folder without rights is found before the work."""
    tree = make_tree()
    tree.launcher = powerless()
    inputs = tree.folder / "in"
    recording(inputs / "a.wav")
    recording(inputs / "b.wav", 0.5).chmod(0)
    recording(inputs / "locked" / "c.wav", 0.6)
    (inputs / "locked").chmod(0)
    try:
        done = tree.transcribe(inputs)
        named = tree.transcribe(inputs / "locked" / "c.wav")
    finally:
        (inputs / "locked").chmod(0o700)
    assert done.code == 3, done.stderr
    assert done.stderr.count("[unreadable]") == 2
    assert "b.wav" in done.stderr
    assert "locked" in done.stderr
    assert files_below(tree.out).keys() == {"a.txt"}
    assert "[unreadable]" in named.stderr
    shut = tree.folder / "shut"
    shut.mkdir(mode=0o500)
    refused = tree.run("transcribe", inputs, "-o", shut, "--engine", "fake")
    assert refused.code == 7
    assert "[bad_option]" in refused.stderr


def test_a_file_where_a_folder_must_be_is_found_before_the_work(desk: Tree, inputs: Path) -> None:
    """The tree could not be mirrored."""
    recording(inputs / "x" / "a.wav")
    desk.out.mkdir()
    (desk.out / "x").write_text("mine")
    done = desk.transcribe(inputs)
    assert done.code == 7
    assert "in the way" in done.stderr


# --- limits ---


@pytest.mark.parametrize(("words", "failures"), [(["--fail-fast"], 1), (["--max-failures", "2"], 2)])
def test_a_run_stops_after_so_many_failures(make_tree: MakeTree, words: list[str], failures: int) -> None:
    """The rest is not done, and the next run does it."""
    tree = make_tree(**SLOW)
    speech_files(tree.folder / "in", 6)
    bad = [tree.folder / "in" / f"{number}.wav" for number in range(failures)]
    for path in bad:
        path.symlink_to("nowhere")
    done = tree.run("transcribe", tree.folder / "in", "-o", tree.out, "--engine", "fake", "--json", *words)
    found = events(done)
    assert done.code in {3, 8}
    assert found[-1]["ended"] == "too_many_failures"
    assert found[-1]["files"]["failed"] == failures
    assert found[-1]["files"]["cancelled"] >= 1
    assert sum(found[-1]["files"].values()) == 6 + failures
    assert "same command again" in done.stderr
    again = tree.transcribe(tree.folder / "in")
    assert again.code == 3
    assert len(files_below(tree.out)) == 6


def test_a_run_stops_when_its_time_is_over(make_tree: MakeTree) -> None:
    """With the code for what may be tried again."""
    tree = make_tree(**SLOW)
    speech_files(tree.folder / "in", 8)
    done = tree.transcribe(tree.folder / "in", "--timeout", "3")
    assert done.code == 5
    assert "not done" in done.stderr
    assert tree.transcribe(tree.folder / "in").code == 0
    assert len(files_below(tree.out)) == 8


def test_jobs_sets_how_many_files_are_recognised_at_once(make_tree: MakeTree) -> None:
    """One engine process, one at a time."""
    tree = make_tree(VOICEJOBS_FAKE_COST_WINDOW_S="0.4")
    speech_files(tree.folder / "in", 4)
    assert tree.transcribe(tree.folder / "in", "-j", "1").code == 0
    spans = []
    for job in tree.show("job", "list"):
        (step,) = (one for one in tree.show("job", "show", job["id"])["steps"] if one["step"] == "recognise")
        spans.append((step["started_at"], step["finished_at"]))
    assert max(end for _, end in spans) - min(start for start, _ in spans) >= 4 * 0.4 * 0.9


# --- being stopped ---


def test_ctrl_c_on_a_terminal_stops_and_the_next_run_does_exactly_the_rest(make_tree: MakeTree) -> None:
    """What is done stays untouched, what was not is done, and the terminal is told how to go on."""
    tree = make_tree(**SLOW)
    speech_files(tree.folder / "in", 8)
    words = ("transcribe", tree.folder / "in", "-o", tree.out, "--engine", "fake")
    with terminal(tree, words) as shown:
        wait_for(lambda: list(tree.out.rglob("*.txt")), "the first output")
        shown.press(CTRL_C)
        began = time.monotonic()
        shown.process.wait(timeout=30)
        assert time.monotonic() - began < 10
    assert shown.process.returncode == 130
    assert "same command again" in shown.text
    assert "Traceback" not in shown.text
    before = {path: path.stat().st_ino for path in tree.out.rglob("*.txt")}
    assert 0 < len(before) < 8
    found = events(tree.run(*words, "--json"))
    assert found[-1]["files"] == {
        "succeeded": 8 - len(before), "done": len(before), "failed": 0, "cancelled": 0, "skipped": 0,
    }  # fmt: skip
    assert {path: path.stat().st_ino for path in before} == before
    assert len(files_below(tree.out)) == 8


def test_ctrl_c_twice_leaves_at_once(make_tree: MakeTree) -> None:
    """Even if a worker does not let go of what it does; the next run does it all the same."""
    tree = make_tree(VOICEJOBS_FAKE_COST_WINDOW_S="8", VOICEJOBS_LINGER_S="0")
    speech_files(tree.folder / "in", 2)
    words = ("transcribe", tree.folder / "in", "-o", tree.out, "--engine", "fake")
    with terminal(tree, words) as shown:
        wait_for(lambda: [job for job in tree.show("job", "list") if job["state"] == "running"], "a running job")
        shown.press(CTRL_C)
        wait_for(lambda: "Stopping" in shown.text, "the first to be heard")
        shown.press(CTRL_C)
        began = time.monotonic()
        shown.process.wait(timeout=30)
        assert time.monotonic() - began < 3
    assert shown.process.returncode == 130
    assert "Traceback" not in shown.text
    assert shown.screen.cursor_is_shown


def test_a_run_tells_machines_that_it_was_stopped(make_tree: MakeTree) -> None:
    """Every file has its event, also those that were never begun; the code is that of SIGTERM."""
    tree = make_tree(**SLOW)
    speech_files(tree.folder / "in", 8)
    process = tree.start("transcribe", tree.folder / "in", "-o", tree.out, "--engine", "fake", "--json")
    wait_for(lambda: list(tree.out.rglob("*.txt")), "the first output")
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=30)
    found = events(Outcome(process.returncode, stdout.decode(), stderr.decode()))
    assert (process.returncode, found[-1]["exit_code"], found[-1]["ended"]) == (143, 143, "terminated")
    assert len(by_name(found)) == 8
    assert found[-1]["files"]["cancelled"] >= 1


def test_a_reader_that_goes_away_ends_the_run_quietly(make_tree: MakeTree) -> None:
    """`--json | head -n 1`: no message, no traceback, and no work for nobody."""
    tree = make_tree(**SLOW)
    speech_files(tree.folder / "in", 8)
    process = tree.start("transcribe", tree.folder / "in", "-o", tree.out, "--engine", "fake", "--json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["type"] == "start"
    process.stdout.close()
    assert process.stderr is not None
    stderr = process.stderr.read()
    assert process.wait(timeout=30) == 141
    assert stderr == b""
    wait_for(lambda: not tree.show("batch", "list") or not _live(tree), "the end of its jobs")
    assert len(files_below(tree.out)) < 8


def _live(tree: Tree) -> list[dict[str, Any]]:
    """Return the jobs that have not ended."""
    return [job for job in tree.show("job", "list") if job["state"] in {"queued", "running", "cancelling"}]


def test_a_run_that_joined_another_goes_on_when_that_is_stopped(make_tree: MakeTree) -> None:
    """Its files are its own concern: jobs that the other gave up are submitted anew."""
    tree = make_tree(**SLOW | {"VOICEJOBS_FAKE_COST_WINDOW_S": "2", "VOICEJOBS_ENGINE_PROCESSES": "2"})
    speech_files(tree.folder / "in", 12)
    words = ("transcribe", tree.folder / "in", "-o", tree.out, "--engine", "fake", "--no-progress")
    first = tree.start(*words)
    wait_for(lambda: list(tree.out.rglob("*.txt")), "the first output")
    second = tree.start(*words)
    time.sleep(3)  # nothing shows from outside that it has joined
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=30)
    _, stderr = second.communicate(timeout=60)
    assert first.returncode == 130
    assert second.returncode == 0, stderr
    assert len(files_below(tree.out)) == 12


def test_a_terminal_that_changes_its_size_meanwhile_is_fine(make_tree: MakeTree) -> None:
    """Wider, narrower, down to a single column: the run goes on, and the lines about files are whole at the end."""
    tree = make_tree(**SLOW)
    speech_files(tree.folder / "in", 5)
    with terminal(tree, ("transcribe", tree.folder / "in", "-o", tree.out, "--engine", "fake")) as shown:
        for columns in (140, 40, 10, 1, 200, 80, 20, 100):
            time.sleep(0.3)
            shown.resize(30, columns)
        shown.process.wait(timeout=60)
    assert shown.process.returncode == 0
    assert "Traceback" not in shown.text
    assert shown.screen.cursor_is_shown
    done = [line for line in shown.text.splitlines() if "done " in line]
    assert len(done) == 5


def test_quiet_says_nothing_where_nothing_is_wrong(desk: Tree, inputs: Path) -> None:
    """Not even how it went."""
    recording(inputs / "a.wav")
    done = desk.run("transcribe", inputs, "-o", desk.out, "--engine", "fake", "-q")
    assert (done.code, done.stdout, done.stderr) == (0, "", "")


def test_the_end_says_where_the_files_are(desk: Tree, inputs: Path) -> None:
    """How many, and what a reader should know of them."""
    recording(inputs / "a.wav")
    write_recording(inputs / "silent.wav", np.zeros(2 * RATE_HZ, np.int16))
    done = desk.run("transcribe", inputs, "-o", desk.out, "--engine", "fake", "-f", "txt,srt")
    assert "silent.wav (0:02, no speech in it)" in done.stderr
    assert re.search(r"2 transcribed: .*x realtime; 4 files in .*/out; no speech in 1$", done.stderr.strip())


# --- a full disk ---


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a file system of 64 KiB; skip where none can be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_fills_up_holds_the_work_up_until_there_is_room(make_tree: MakeTree, small_disk: Path) -> None:
    """A warning says why, nothing fails, and no half-written file is left."""
    tree = make_tree(VOICEJOBS_FAKE_COST_WINDOW_S="1")
    speech_files(tree.folder / "in", 4)
    process = tree.start("transcribe", tree.folder / "in", "-o", small_disk / "out", "--engine", "fake", "--json")
    wait_for((small_disk / "out").is_dir, "the check of the output folder")
    time.sleep(0.5)
    with (small_disk / "filler").open("wb", buffering=0) as filler:
        while _fills(filler):
            pass
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if json.loads(line)["type"] == "warning":
            (small_disk / "filler").unlink()
    process.wait(timeout=60)
    found = events(Outcome(process.returncode, b"".join(lines).decode(), ""))
    warnings = [event for event in found if event["type"] == "warning"]
    assert [event["code"] for event in warnings] == ["disk_full"]
    assert process.returncode == 0
    assert found[-1]["files"]["succeeded"] == 4
    assert len(files_below(small_disk / "out")) == 4


def _fills(stream: Any) -> bool:
    """Write a little, and tell whether there was room for it."""
    try:
        return bool(stream.write(b"x" * 512))
    except OSError:
        return False
