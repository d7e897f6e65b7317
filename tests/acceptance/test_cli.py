"""The command as users meet it: exit codes, names, files in the way, progress, and what `show` tells."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.acceptance.conftest import MakeTree
from tests.acceptance.harness import RATE_HZ, Tree, example_speech, files_below, speech_files, wait_for, write_recording
from tests.acceptance.terminal import CTRL_C, Screen, on_terminal, terminal
from tests.waiting import patience

TIMEOUT_S = 90
pytestmark = [pytest.mark.services, pytest.mark.timeout(TIMEOUT_S)]

NOBODY_LISTENS = "127.0.0.1:1"
GOODBYE_LIMIT_S = 10.0
NO_WAIT_LIMIT_S = 5.0


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


# --- exit codes ---


def test_everything_transcribed_is_0_and_so_is_nothing_left_to_do(desk: Tree, inputs: Path) -> None:
    """A second run does nothing, says so, takes no time for it, and exits with 0 as well."""
    speech_files(inputs, 4)
    assert desk.transcribe(inputs).code == 0
    before = {path: path.stat().st_mtime_ns for path in desk.out.rglob("*.txt")}
    again = desk.transcribe(inputs)
    assert (again.code, again.stdout) == (0, "")
    assert "4 done before" in again.stderr
    assert {path: path.stat().st_mtime_ns for path in desk.out.rglob("*.txt")} == before


@pytest.mark.parametrize("words", [["transcribe"], ["transcribe", "x", "--nope"], ["trancribe"], ["job", "show"]])
def test_wrong_use_is_2(desk: Tree, words: list[str]) -> None:
    """What click refuses ends with 2."""
    assert desk.run(*words).code == 2


def test_a_mistyped_command_is_met_with_a_suggestion(desk: Tree) -> None:
    """The nearest command is named."""
    assert "Did you mean 'transcribe'?" in desk.run("trancribe").stderr


def test_some_failed_is_3_and_all_failed_is_8(desk: Tree, inputs: Path) -> None:
    """One bad file does not stop the others; the code tells the two cases apart."""
    recording(inputs / "good.wav")
    bad = inputs / "bad.wav"
    bad.write_text("this is no sound")
    (inputs / "empty.wav").touch()
    (inputs / "gone.wav").symlink_to(inputs / "nowhere")
    some = desk.transcribe(inputs)
    assert some.code == 3
    for code in ("not_audio", "empty_file", "not_found"):
        assert f"[{code}]" in some.stderr
    assert files_below(desk.out).keys() == {"good.txt"}
    assert desk.transcribe(bad).code == 8


def test_no_input_is_4(desk: Tree, inputs: Path) -> None:
    """A folder without recordings is told from one whose recordings failed."""
    (inputs / "notes.txt").write_text("nothing to hear")
    done = desk.transcribe(inputs)
    assert done.code == 4
    assert "[no_input]" in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["-m", "nope", "--engine", "whisper"], "unknown_model"),
        (["-f", "nope"], "bad_option"),
        (["--engine", "nope"], "unknown_engine"),
        (["--engine", "silero"], "bad_option"),
    ],
)
def test_a_name_that_does_not_exist_is_7(desk: Tree, inputs: Path, words: list[str], code: str) -> None:
    """Models, formats and engines are looked up before anything is done."""
    recording(inputs / "a.wav")
    done = desk.run("transcribe", inputs, "-o", desk.out, "--engine", "fake", *words)
    assert done.code == 7
    assert f"[{code}]" in done.stderr
    assert not desk.out.exists() or not files_below(desk.out)


def test_a_path_that_does_not_exist_is_7(desk: Tree) -> None:
    """A mistyped path is an error, not an empty run."""
    assert desk.transcribe(desk.folder / "nowhere").code == 7


def test_a_pipe_is_refused_and_not_waited_for(desk: Tree, inputs: Path) -> None:
    """Reading it might never end."""
    os.mkfifo(inputs / "pipe.wav")
    done = desk.transcribe(inputs / "pipe.wav", timeout_s=20)
    assert done.code == 7
    assert "[not_audio]" in done.stderr


def test_an_output_folder_that_cannot_be_is_7(desk: Tree, inputs: Path) -> None:
    """It is tried before any work is done for it, and the trial leaves nothing."""
    recording(inputs / "a.wav")
    in_the_way = desk.folder / "file"
    in_the_way.touch()
    assert desk.run("transcribe", inputs, "-o", in_the_way, "--engine", "fake").code == 7
    assert desk.transcribe(inputs / "a.wav").code == 0
    assert files_below(desk.out).keys() == {"a.txt"}


@pytest.mark.parametrize("kind", ["job", "batch"])
def test_a_record_that_does_not_exist_is_7(desk: Tree, kind: str) -> None:
    """Showing what is not there is refused."""
    assert "[no_such_record]" in desk.run(kind, "show", "nope").stderr
    assert desk.run(kind, "show", "nope").code == 7


@pytest.mark.parametrize(
    ("name", "url", "code"),
    [
        ("VOICEJOBS_BROKER_URL", f"redis://{NOBODY_LISTENS}/0", "broker_unavailable"),
        ("VOICEJOBS_DATABASE_URL", f"postgresql+psycopg://nobody@{NOBODY_LISTENS}/x", "database_unavailable"),
    ],
)
def test_a_server_that_cannot_be_reached_is_5(
    make_tree: MakeTree, tmp_path: Path, name: str, url: str, code: str
) -> None:
    """The command ends soon, and says which server does not answer."""
    tree = make_tree(**{name: url})
    done = tree.transcribe(recording(tmp_path / "a.wav"), timeout_s=30)
    assert done.code == 5
    assert f"[{code}]" in done.stderr
    assert tree.run("doctor").code == 9


def test_workers_without_servers_are_wrong_usage(tree: Tree) -> None:
    """The exit code is that of the error's page, and the hint names both settings."""
    done = tree.run("serve", "worker")
    assert done.code == 2
    assert "[bad_usage]" in done.stderr
    assert "VOICEJOBS_BROKER_URL and VOICEJOBS_DATABASE_URL" in done.stderr


def test_a_models_folder_that_cannot_be_written_is_refused(make_tree: MakeTree, tmp_path: Path) -> None:
    """The message says which folder and why, the hint which setting to change, and the exit code that it is refused."""
    (tmp_path / "file").touch()
    tree = make_tree(VOICEJOBS_MODELS_DIR=str(tmp_path / "file" / "models"))
    audio = recording(tmp_path / "a.wav")
    for words in (("models", "pull", "base"), ("transcribe", audio, "-o", tree.out)):
        done = tree.run(*words)
        assert done.code == 7, done.stderr
        assert "file/models cannot be written: Not a directory [bad_option]" in done.stderr
        assert "VOICEJOBS_MODELS_DIR" in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_soon_and_the_next_run_goes_on(make_tree: MakeTree, number: signal.Signals, code: int) -> None:
    """What was begun is cancelled, what is done stays, and the same command finishes the rest."""
    tree = make_tree(VOICEJOBS_FAKE_COST_WINDOW_S="0.5", VOICEJOBS_LINGER_S="30", VOICEJOBS_WINDOW_JOBS="2")
    speech_files(tree.folder / "in", 8)
    words = ("transcribe", tree.folder / "in", "-o", tree.out, "--engine", "fake", "--no-progress")
    process = tree.start(*words)
    wait_for(lambda: list(tree.out.rglob("*.txt")), "the first output")
    process.send_signal(number)
    began = time.monotonic()
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == code
    assert time.monotonic() - began < GOODBYE_LIMIT_S
    assert b"Traceback" not in stderr
    assert b"same command again" in stderr
    states = {job["state"] for job in tree.show("job", "list")}
    assert states == {"succeeded", "cancelled"}
    assert tree.run(*words).code == 0
    assert len(files_below(tree.out)) == 8


# --- names and places ---


def test_the_tree_is_mirrored_and_equal_stems_keep_their_endings(desk: Tree, inputs: Path) -> None:
    """`a.wav` and `a.flac` get outputs of their own, each beside its like."""
    for number, name in enumerate(("a.wav", "a.flac", "deep/er/a.wav", "b.wav")):
        recording(inputs / name, 0.5 + number / 10)
    assert desk.transcribe(inputs, "-f", "txt,srt").code == 0
    stems = ("a.wav", "a.flac", "deep/er/a", "b")
    assert files_below(desk.out).keys() == {f"{stem}.{ending}" for stem in stems for ending in ("txt", "srt")}
    assert len(set(files_below(desk.out).values())) == 8, "each has its own text"


def test_what_is_named_twice_is_transcribed_once(desk: Tree, inputs: Path) -> None:
    """A folder, a file in it, and the folder again by another spelling."""
    recording(inputs / "a.wav", 0.45)
    recording(inputs / "b.wav", 0.55)
    done = desk.transcribe(inputs, inputs / "a.wav", f"{inputs}/../in")
    assert done.code == 0, done.stderr
    assert done.stderr.startswith("2 transcribed")


NAMES = [
    "two words",
    "-dash",
    "r\u00e9sum\u00e9 \U0001f3a4",
    'it\'s "quoted" $HOME `x`',
    "new\nline",
    "tab\there\x1b[31m",
    "a" * 200,
    "a .. ",
    "no%s{}",
    os.fsdecode(b"caf\xe9"),
]


def test_any_name_that_a_file_can_have_is_fine(desk: Tree, inputs: Path) -> None:
    """Blanks, quotes, emoji, line ends, control characters, and bytes that are no UTF-8; the output keeps the stem."""
    for number, name in enumerate(NAMES):
        recording(inputs / "plain.wav", 0.3 + number / 20).rename(inputs / f"{name}.wav")
    done = desk.run("transcribe", inputs, "-o", desk.out, "--engine", "fake")
    assert done.code == 0, done.stderr
    assert files_below(desk.out).keys() == {f"{name}.txt" for name in NAMES}
    assert "\x1b" not in done.stderr, "a name cannot write on the terminal"
    assert len(done.stderr.splitlines()) == len(NAMES) + 1, "one line for each file and the summary"
    listed = desk.run("job", "list", "--limit", "20")
    assert listed.code == 0
    assert "\x1b" not in listed.stdout
    newest = [job for job in desk.show("job", "list") if job["name"].startswith("caf")]
    story = desk.show("job", "show", newest[0]["id"])
    assert story["state"] == "succeeded"
    assert desk.run("job", "show", newest[0]["id"]).code == 0


@pytest.mark.parametrize("words", [["--", "-dash.wav"], ["./-dash.wav"]])
def test_a_leading_dash_can_be_named(desk: Tree, inputs: Path, words: list[str]) -> None:
    """After `--`, or with a folder in front."""
    recording(inputs / "-dash.wav")
    done = desk.run("transcribe", "-o", desk.out, "--engine", "fake", *words, cwd=inputs)
    assert done.code == 0, done.stderr
    assert files_below(desk.out).keys() == {"-dash.txt"}


def test_what_is_no_recording_in_a_folder_is_passed_over(desk: Tree, inputs: Path) -> None:
    """Hidden files, those of macOS, archives and text are no inputs."""
    recording(inputs / "a.wav")
    for name in (".hidden.wav", "._a.wav", "__MACOSX/a.wav", ".git/a.wav", "old.zip", "notes.txt", "README"):
        (inputs / name).parent.mkdir(exist_ok=True)
        (inputs / name).write_text("no sound")
    os.mkfifo(inputs / "pipe.wav")
    done = desk.transcribe(inputs)
    assert done.code == 0, done.stderr
    assert files_below(desk.out).keys() == {"a.txt"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_fails_alone(desk: Tree, inputs: Path) -> None:
    """The others are transcribed."""
    recording(inputs / "a.wav")
    recording(inputs / "b.wav", 0.5).chmod(0)
    done = desk.transcribe(inputs)
    assert done.code == 3
    assert "[unreadable]" in done.stderr


# --- files in the way ---


def test_a_file_of_the_user_is_never_overwritten_but_by_force(desk: Tree, inputs: Path) -> None:
    """It stays, the others are written, and --force replaces it."""
    recording(inputs / "a.wav")
    recording(inputs / "b.wav", 0.5)
    desk.out.mkdir()
    (desk.out / "a.txt").write_text("mine")
    done = desk.transcribe(inputs, "-f", "txt,srt")
    assert done.code == 3
    assert "[output_exists]" in done.stderr
    assert (desk.out / "a.txt").read_text() == "mine"
    assert files_below(desk.out).keys() == {"a.txt", "b.txt", "b.srt"}, "nothing of a is written beside it"
    assert desk.transcribe(inputs, "-f", "txt,srt", "--force").code == 0
    assert (desk.out / "a.txt").read_text() != "mine"


def test_changed_options_replace_what_we_wrote(desk: Tree, inputs: Path) -> None:
    """The older output is ours, so it is no file in the way."""
    left, right = example_speech()[: 3 * RATE_HZ], example_speech()[RATE_HZ : 4 * RATE_HZ]
    write_recording(inputs / "a.wav", np.stack([left, right], axis=1))
    assert desk.transcribe(inputs, "--channels", "left").code == 0
    before = files_below(desk.out)
    assert desk.transcribe(inputs, "--channels", "right").code == 0
    assert files_below(desk.out).keys() == before.keys()
    assert files_below(desk.out) != before
    assert desk.transcribe(inputs, "--channels", "left").code == 0
    assert files_below(desk.out) == before


def test_an_output_that_the_user_has_changed_is_his(desk: Tree, inputs: Path) -> None:
    """Corrections by hand survive the next run."""
    recording(inputs / "a.wav")
    assert desk.transcribe(inputs).code == 0
    (desk.out / "a.txt").write_text("corrected by hand")
    done = desk.transcribe(inputs)
    assert "[output_exists]" in done.stderr
    assert (desk.out / "a.txt").read_text() == "corrected by hand"


def test_a_lost_output_is_written_again_without_recognising(desk: Tree, inputs: Path) -> None:
    """The transcript is in the store: another format or a deleted file costs no second recognition."""
    recording(inputs / "a.wav")
    assert desk.transcribe(inputs).code == 0
    before = files_below(desk.out)
    (desk.out / "a.txt").unlink()
    assert desk.transcribe(inputs).code == 0
    assert files_below(desk.out) == before
    job = desk.show("job", "list", "--limit", "1")[0]
    ran = [step["step"] for step in desk.show("job", "show", job["id"])["steps"] if step["attempts"]]
    assert ran == ["deliver"]


# --- progress ---


def test_progress_on_a_terminal_leaves_only_lines_about_files(make_tree: MakeTree) -> None:
    """Bars move while it runs and are gone afterwards, the cursor is back, and standard output stays empty."""
    tree = make_tree(VOICEJOBS_FAKE_COST_BASE_S="0.5")
    speech_files(tree.folder / "in", 3)
    words = ["transcribe", tree.folder / "in", "-o", tree.out, "--engine", "fake"]
    code, seen, stdout = on_terminal(tree, words)
    assert (code, stdout) == (0, b"")
    assert "\u2501" in seen, "there was a bar"
    screen = Screen().feed(seen)
    lines = [line for line in screen.lines if line.strip()]
    assert [line.split()[0] for line in lines] == ["done", "done", "done", "3"], lines
    assert screen.cursor_is_shown


def test_ctrl_c_on_a_terminal_gives_the_cursor_back(make_tree: MakeTree) -> None:
    """An interrupted display is taken down, too."""
    tree = make_tree(VOICEJOBS_FAKE_COST_BASE_S="30")
    speech_files(tree.folder / "in", 2)
    with terminal(tree, ["transcribe", tree.folder / "in", "-o", tree.out, "--engine", "fake"]) as shown:
        wait_for(lambda: [job for job in tree.show("job", "list") if job["state"] == "running"], "a running job")
        shown.press(CTRL_C)
    assert shown.process.returncode == 130
    assert shown.screen.cursor_is_shown
    assert "Traceback" not in shown.text


# --- show ---


def test_show_tells_what_failed_and_why(desk: Tree, inputs: Path) -> None:
    """The batch names its failures; the job names step, attempt, code, message and trace."""
    recording(inputs / "good.wav", 0.7)
    (inputs / "bad.wav").write_text("this is no sound")
    assert desk.transcribe(inputs).code == 3
    batch = desk.show("batch", "list")[0]
    shown = desk.show("batch", "show", batch["id"])
    assert shown["jobs"] == {"succeeded": 1, "failed": 1}
    (failure,) = shown["failures"]
    assert (failure["name"], failure["error_code"]) == ("bad.wav", "not_audio")
    text = desk.run("batch", "show", batch["id"]).stdout
    assert "bad.wav" in text
    assert failure["id"] in text
    story = desk.show("job", "show", failure["id"])
    assert story["trace_id"]
    (failed,) = [step for step in story["steps"] if step["state"] == "failed"]
    (attempt,) = failed["attempts"]
    assert (failed["step"], attempt["outcome"], attempt["error_code"]) == ("prepare", "failed", "not_audio")
    told = desk.run("job", "show", failure["id"]).stdout
    for fact in (story["trace_id"], "prepare", "attempt 1", "[not_audio]", attempt["message"], attempt["worker"]):
        assert fact in told


def test_show_tells_the_whole_story_of_a_success(desk: Tree, inputs: Path) -> None:
    """Each step has its worker, its times and one attempt; the outputs have their hashes, and they are right."""
    recording(inputs / "a.wav", 0.65)
    assert desk.transcribe(inputs, "-f", "txt,json").code == 0
    job = desk.show("job", "list", "--limit", "1")[0]
    story = desk.show("job", "show", job["id"])
    assert [step["step"] for step in story["steps"]] == ["prepare", "recognise", "deliver"]
    for step in story["steps"]:
        (attempt,) = step["attempts"]
        assert attempt["outcome"] == "succeeded"
        assert attempt["worker"]
        assert story["created_at"] <= attempt["started_at"] <= attempt["finished_at"] <= story["finished_at"]
    assert {output["sha256"] for output in story["outputs"]} == set(files_below(desk.out).values())
    assert "transcript" in [artifact["kind"] for step in story["steps"] for artifact in step["artifacts"]]


@pytest.mark.parametrize("words", [["job", "list"], ["batch", "list"], ["models", "list"], ["doctor"]])
def test_json_is_one_document_on_standard_output(desk: Tree, words: list[str]) -> None:
    """Nothing else is printed there."""
    done = desk.run(*words, "--json")
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout)["v"] == 1
    assert done.stderr == ""


def test_checks_find_nothing_to_mend(make_tree: MakeTree) -> None:
    """`db check` is 9 before there is a database and 0 after an upgrade; `doctor` is 0."""
    tree = make_tree()
    assert tree.run("doctor").code == 0
    assert tree.run("db", "check").code == 9
    assert tree.run("doctor").code == 0, "the embedded database is upgraded by the next command"
    assert tree.run("db", "upgrade").code == 0
    assert tree.run("db", "check").code == 0
    assert tree.run("doctor").code == 0


def test_a_reader_that_goes_away_is_no_error_message(desk: Tree) -> None:
    """`voicejobs ... | head` ends like any other program."""
    process = desk.start("models", "list", "--json")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, stderr = process.communicate(timeout=20)
    assert stderr == b""
    assert process.returncode == 141


def test_two_commands_at_once_share_the_stack(desk: Tree, inputs: Path) -> None:
    """Both finish, and each file is transcribed once."""
    speech_files(inputs, 6)
    words = ("transcribe", inputs, "-o", desk.out, "--engine", "fake", "--no-progress")
    both = [desk.start(*words, stdout=subprocess.DEVNULL) for _ in range(2)]
    for process in both:
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 0, stderr
    assert len(files_below(desk.out)) == 6
    jobs = [
        job for job in desk.show("job", "list", "--limit", "12") if job["name"] in {f"{n:03}.wav" for n in (0, 2, 4)}
    ]
    assert len(jobs) == 3


def test_a_command_right_after_another_does_not_wait_for_its_end(make_tree: MakeTree, tmp_path: Path) -> None:
    """The stack of the first goes down while the second starts its own."""
    tree = make_tree()
    for number in range(3):
        path = recording(tmp_path / f"{number}.wav", 0.4 + number / 10)
        began = time.monotonic()
        assert tree.transcribe(path).code == 0
        took_s = time.monotonic() - began
        assert took_s < NO_WAIT_LIMIT_S * patience(), f"command {number} took {took_s:.1f} s"
