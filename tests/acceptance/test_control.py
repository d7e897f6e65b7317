"""Jobs and batches after they were submitted: watched, cancelled, taken up again, exported; and their logs."""

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import MakeTree
from tests.acceptance.harness import Outcome, Tree, files_below, speech_files, wait_for

pytestmark = [pytest.mark.services, pytest.mark.timeout(120)]


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


def newest_batch(tree: Tree) -> str:
    """Return the id of the newest batch."""
    return str(tree.show("batch", "list", "--limit", "1")[0]["id"])


def with_one_broken(desk: Tree) -> tuple[Path, str]:
    """Transcribe three files, one of them no recording; return that one and the batch."""
    files = speech_files(desk.folder / "in", 2)
    broken = files[0].with_name("broken.wav")
    broken.write_bytes(b"no recording at all")
    assert desk.transcribe(desk.folder / "in").code == 3
    return broken, newest_batch(desk)


def test_failed_jobs_are_taken_up_again(desk: Tree) -> None:
    """Retried without a cure they fail again, with their story going on; only the failed ones run."""
    _, batch = with_one_broken(desk)
    job = desk.show("job", "list", "--batch", batch, "--state", "failed")[0]["id"]
    before = files_below(desk.out)
    done = desk.run("batch", "retry-failed", batch, "--wait")
    assert done.code == 8, done.stderr
    assert "broken.wav" in done.stderr
    assert "[not_audio]" in done.stderr
    assert files_below(desk.out) == before
    story = desk.show("job", "show", job)
    assert [attempt["outcome"] for attempt in story["steps"][0]["attempts"]] == ["failed", "failed"]
    shown = desk.show("batch", "show", batch)
    assert (shown["state"], shown["jobs"]) == ("completed", {"failed": 1, "succeeded": 2})


def test_an_output_in_the_way_is_cured_by_moving_it(desk: Tree) -> None:
    """The job that could not write only writes when it is taken up again; nothing is recognised anew."""
    speech_files(desk.folder / "in", 1, seed=77)  # other tests must not have recognised it
    desk.out.mkdir()
    (desk.out / "000.txt").write_text("mine")
    assert desk.transcribe(desk.folder / "in").code == 8
    job = desk.show("job", "list", "--limit", "1")[0]["id"]
    (desk.out / "000.txt").rename(desk.out / "mine.txt")
    done = desk.run("job", "retry", job, "--wait", "--json")
    assert done.code == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["type"] for event in events] == ["file", "summary"]
    assert (desk.out / "000.txt").read_text() != "mine"
    tries = {step["node"]: len(step["attempts"]) for step in desk.show("job", "show", job)["steps"]}
    assert tries == {"prepare": 1, "recognise": 1, "deliver": 2}


def test_retry_without_waiting_says_who_runs_it(desk: Tree) -> None:
    """It only queues, and the next command with workers runs it: `job watch` follows it to its end."""
    _, batch = with_one_broken(desk)
    job = desk.show("job", "list", "--batch", batch, "--name", "broken", "--error", "not_audio")[0]["id"]
    done = desk.run("job", "retry", job)
    assert (done.code, done.stdout) == (0, "1 queued\n")
    assert "--wait" in done.stderr
    assert desk.run("job", "watch", job).code == 8
    assert desk.run("job", "retry", job, "-q").stdout == ""
    assert desk.run("batch", "watch", batch).code == 3
    again = desk.run("job", "retry", desk.show("job", "list", "--batch", batch, "--state", "succeeded")[0]["id"])
    assert again.code == 7
    assert "[wrong_state]" in again.stderr


def test_a_batch_is_cancelled_watched_and_taken_up_again(make_tree: MakeTree) -> None:
    """Ctrl-C leaves a watched batch alone; cancelled jobs come back with --cancelled, and all end well."""
    slow = make_tree(VOICEJOBS_LINGER_S="60", VOICEJOBS_FAKE_COST_BASE_S="1.5", VOICEJOBS_WINDOW_JOBS="1")
    speech_files(slow.folder / "in", 6)
    process = slow.start("transcribe", slow.folder / "in", "-o", slow.out, "--engine", "fake", "--no-progress")
    batch = wait_for(lambda: _running(slow), "a running job")
    watching = slow.start("batch", "watch", batch)
    assert watching.stderr is not None
    assert watching.stderr.readline().startswith(b"Following ")
    watching.send_signal(signal.SIGINT)
    _, told = watching.communicate(timeout=30)
    assert watching.returncode == 130
    assert f"voicejobs batch show {batch}" in told.decode()
    cancelled = slow.run("batch", "cancel", batch)
    assert cancelled.code == 0
    assert int(cancelled.stdout.split()[0]) > 0
    process.communicate(timeout=60)
    states = slow.show("batch", "show", batch)["jobs"]
    assert states.get("cancelled", 0) > 0
    wait_for(lambda: slow.show("batch", "show", batch)["state"] == "cancelled", "a batch that was cancelled")
    assert slow.show("batch", "list", "--state", "cancelled")[0]["id"] == batch
    assert slow.run("batch", "retry-failed", batch).stdout == "0 queued\n"
    done = slow.run("batch", "retry-failed", batch, "--cancelled", "--wait")
    assert done.code == 0, done.stderr
    assert slow.show("batch", "show", batch)["jobs"] == {"succeeded": 6}
    assert len(list(slow.out.rglob("*.txt"))) == 6


def _running(tree: Tree) -> str:
    """Return the newest batch once something of it runs."""
    if not (tree.state / "voicejobs.db").exists():
        return ""
    running = tree.show("job", "list", "--state", "running")
    return str(running[0]["batch_id"]) if running else ""


def test_one_job_is_cancelled(make_tree: MakeTree) -> None:
    """The others go on; one that has ended is refused."""
    slow = make_tree(VOICEJOBS_LINGER_S="60", VOICEJOBS_FAKE_COST_BASE_S="4", VOICEJOBS_WINDOW_JOBS="1")
    speech_files(slow.folder / "in", 4)
    process = slow.start("transcribe", slow.folder / "in", "-o", slow.out, "--engine", "fake", "--no-progress")
    wait_for(lambda: _running(slow), "a running job")
    job = slow.show("job", "list", "--state", "queued")[0]["id"]
    assert slow.run("job", "cancel", job).stdout == "1 cancelled\n"
    process.communicate(timeout=60)
    assert slow.show("job", "show", job)["state"] == "cancelled"
    assert slow.run("job", "cancel", job).stdout == "0 cancelled\n"
    ended = slow.show("job", "list", "--state", "succeeded")[0]["id"]
    assert slow.run("job", "cancel", ended).code == 7
    assert len(list(slow.out.rglob("*.txt"))) == 3


def test_a_batch_is_exported_from_the_database(desk: Tree) -> None:
    """The sources may be gone; the tree is mirrored, nothing is replaced, and a second export changes nothing."""
    _, batch = with_one_broken(desk)
    shutil.rmtree(desk.folder / "in")
    target = desk.folder / "exported"
    first = desk.run("batch", "export", batch, "-f", "txt,srt", "-o", target, "--json")
    assert first.code == 0, first.stderr
    assert sorted(files_below(target)) == ["000.srt", "000.txt", "part 1/001.srt", "part 1/001.txt"]
    assert len(json.loads(first.stdout)["files"]) == 4
    assert {name: files_below(target)[name] for name in files_below(desk.out)} == files_below(desk.out)
    (target / "000.srt").write_text("mine")
    again = desk.run("batch", "export", batch, "-f", "txt,srt", "-o", target)
    assert again.code == 3
    assert "[output_exists]" in again.stderr
    assert (target / "000.srt").read_text() == "mine"
    assert desk.run("batch", "export", batch, "-f", "odd", "-o", target).code == 7
    assert desk.run("batch", "export", "batch_none", "-o", target).code == 7


def test_logs_of_a_job(desk: Tree) -> None:
    """The lines of the worker that carry the job's id, and no other."""
    _, batch = with_one_broken(desk)
    job = desk.show("job", "list", "--batch", batch, "--state", "failed")[0]["id"]
    lines: list[dict[str, Any]] = desk.show("job", "logs", job)
    assert {line["job_id"] for line in lines} == {job}
    assert any(line["event"] == "step failed" and line["code"] == "not_audio" for line in lines)
    assert "step failed" in desk.run("job", "logs", job).stdout
    assert desk.run("job", "logs", "job_none").code == 7


def test_lists_are_paged_by_the_last_id(desk: Tree) -> None:
    """Pages follow each other without gap or repetition, and the way to the next one is told."""
    _, batch = with_one_broken(desk)
    whole = [one["id"] for one in desk.show("job", "list", "--batch", batch)]
    paged: list[str] = []
    while page := desk.show("job", "list", "--batch", batch, "--limit", "2", "--after", paged[-1] if paged else "z"):
        paged += [one["id"] for one in page]
    assert paged == whole
    told: Outcome = desk.run("job", "list", "--batch", batch, "--limit", "2")
    assert told.stderr == f"More: --after {whole[1]}\n"
    batches = [one["id"] for one in desk.show("batch", "list")]
    assert [one["id"] for one in desk.show("batch", "list", "--after", batches[0])] == batches[1:]
