"""`voicejobs submit`: from a manifest to files, killed in the middle, and what it refuses."""

import json
import os
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from tests.acceptance.conftest import MakeTree
from tests.acceptance.harness import COMMAND, Tree, example_speech, files_below, wait_for, write_recording
from tests.rows import opened
from voicejobs.store.schema import jobs

pytestmark = [pytest.mark.services, pytest.mark.timeout(180)]

LINES = 5000


def write_manifest(path: Path, *lines: dict[str, Any]) -> Path:
    """Write a manifest."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def submit(tree: Tree, manifest: Path, *words: str) -> Any:
    """Run the command for the engine fake."""
    return tree.run("submit", "--manifest", manifest, "-o", tree.out, "--engine", "fake", *words)


def test_a_manifest_becomes_files(tree: Tree) -> None:
    """Lines with and without hash, name and size are transcribed; what is not there, or another file, fails alone."""
    speech = example_speech()[:48_000]
    first, second = (
        write_recording(tree.folder / "in" / name, speech // part) for part, name in ((1, "a.wav"), (2, "b.wav"))
    )
    digest = sha256(second.read_bytes()).hexdigest()
    manifest = write_manifest(
        tree.folder / "m.jsonl",
        {"path": str(first), "name": "calls/a.wav"},
        {"path": str(second), "size": second.stat().st_size, "sha256": digest, "target": "named"},
        {"path": str(tree.folder / "gone.wav"), "name": "gone.wav"},
        {"path": str(second), "sha256": "0" * 64, "name": "other.wav"},
        {"path": str(first), "name": "again.wav"},
    )
    done = submit(tree, manifest, "--json")
    assert done.code == 0, done.stderr
    (batch_id,) = json.loads(done.stdout)["submission"]["batches"]
    assert tree.run("batch", "watch", batch_id).code == 3
    found = {one["name"]: one for one in tree.show("job", "list")}
    assert {name: one["error_code"] for name, one in found.items()} == {
        "calls/a.wav": None, str(second): None, "gone.wav": "not_found", "other.wav": "input_changed",
        "again.wav": None,
    }  # fmt: skip
    assert set(files_below(tree.out)) == {"calls/a.txt", "named.txt", "again.txt"}
    shown = tree.show("job", "show", found["calls/a.wav"]["id"])
    assert shown["input_sha256"] == sha256(first.read_bytes()).hexdigest()
    again = tree.transcribe(second, "--json")
    assert again.code == 0
    assert "recognise" not in {
        step["node"] for step in tree.show("job", "show", tree.show("job", "list")[0]["id"])["steps"]
    }


def test_a_transcript_that_is_known_by_now_is_only_delivered(tree: Tree) -> None:
    """The worker reads a recording that nobody has hashed, finds its text, and recognises nothing."""
    recording = write_recording(tree.folder / "a.wav", example_speech()[:48_000])
    assert tree.transcribe(recording).code == 0
    manifest = write_manifest(tree.folder / "m.jsonl", {"path": str(recording), "name": "b.wav"})
    assert submit(tree, manifest, "--wait").code == 0
    story = tree.show("job", "show", tree.show("job", "list")[0]["id"])
    assert {step["node"]: step["state"] for step in story["steps"]} == {"prepare": "skipped", "deliver": "succeeded"}
    assert (tree.out / "b.txt").read_bytes() == (tree.out / "a.txt").read_bytes()


def test_killed_in_the_middle_and_run_again_each_line_has_one_job(make_tree: MakeTree, store_url: str) -> None:
    """`kill -9` while lines are still coming, then the same command: exactly as many jobs as lines, in one batch."""
    tree = make_tree(VOICEJOBS_DATABASE_URL=store_url)
    lines = [json.dumps({"path": f"/archive/{number}.wav"}) + "\n" for number in range(LINES)]
    words = ["submit", "--manifest", "-", "-o", str(tree.out), "--engine", "fake", "--json"]

    def count() -> int:
        with opened(store_url) as database, database.read() as connection:
            return int(connection.execute(select(func.count()).select_from(jobs)).scalar_one())

    process = subprocess.Popen(
        [COMMAND, *words], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=tree.environment, text=True
    )
    assert process.stdin is not None
    process.stdin.writelines(lines[: LINES // 2])
    process.stdin.flush()
    wait_for(count, "the first jobs")
    process.kill()
    process.wait()
    process.stdin.close()
    before = count()
    assert 0 < before < LINES
    done = subprocess.run(
        [COMMAND, *words], input="".join(lines), capture_output=True, env=tree.environment, text=True, check=True
    )
    told = json.loads(done.stdout)["submission"]
    assert (told["known"], told["submitted"], told["lines"]) == (before, LINES - before, LINES)
    assert len(told["batches"]) == 1
    assert count() == LINES


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("", 4, "[no_input]"),
        ('{"path": "a.wav"}\n{"path": 3}\n', 7, "[bad_manifest]"),
        ("size\n3\n", 7, "[bad_manifest]"),
    ],
)
def test_what_is_no_manifest_is_refused(tree: Tree, text: str, code: int, said: str) -> None:
    """The exit code and the error say so; lines before the bad one are submitted, and known when it is mended."""
    manifest = tree.folder / "m.jsonl"
    manifest.write_text(text)
    done = submit(tree, manifest)
    assert (done.code, said in done.stderr) == (code, True), done.stderr
    assert not done.stdout


def test_a_manifest_that_is_not_there_is_refused(tree: Tree) -> None:
    """So is a folder."""
    assert submit(tree, tree.folder / "none.jsonl").code == 7
    assert submit(tree, tree.folder).code == 7


def test_the_queue_ceiling_ends_the_command(make_tree: MakeTree) -> None:
    """Nothing beyond it is begun, and the code tells that it may run again."""
    tree = make_tree(VOICEJOBS_MAX_QUEUED_JOBS="3")
    manifest = write_manifest(tree.folder / "m.jsonl", *({"path": f"/archive/{number}.wav"} for number in range(4)))
    done = submit(tree, manifest)
    assert (done.code, "[queue_full]" in done.stderr) == (5, True)


def test_jobs_expire_that_were_not_done_in_time(tree: Tree) -> None:
    """`--expires-after` of both commands is in the rows; a job past its time ends with its code."""
    recording = write_recording(tree.folder / "a.wav", example_speech()[:48_000])
    assert tree.transcribe(recording, "--expires-after", "2h").code == 0
    manifest = write_manifest(tree.folder / "m.jsonl", {"path": str(recording), "name": "late.wav"})
    assert submit(tree, manifest, "--expires-after", "0.01s", "--wait").code == 8
    late, early = (tree.show("job", "show", one["id"]) for one in tree.show("job", "list"))
    assert (late["state"], late["error_code"]) == ("expired", "expired")
    assert round(early["expires_at"] - early["created_at"]) == 7200


def test_dead_letters_can_be_listed_and_taken_up(tree: Tree) -> None:
    """A step that never ends in time: after the last attempt the job is a dead letter, and no bad path is one."""
    recording = write_recording(tree.folder / "a.wav", example_speech()[:48_000])
    manifest = write_manifest(tree.folder / "m.jsonl", {"path": str(recording)}, {"path": "/gone.wav"})
    limits = {"MAX_ATTEMPTS": "1", "STEP_BASE_S": "0.1", "STEP_FACTOR": "0", "FAKE_COST_BASE_S": "4"}
    tree.settings |= {f"VOICEJOBS_{name}": value for name, value in limits.items()}
    assert submit(tree, manifest, "--wait").code == 8
    (dead,) = tree.show("job", "list", "--dead")
    assert (dead["state"], dead["error_code"], dead["name"]) == ("failed", "step_timeout", str(recording))
    assert tree.run("job", "list", "--dead", "--state", "queued").code == 7
    assert "1 queued" in tree.run("job", "retry", dead["id"]).stdout
    assert tree.show("job", "list", "--dead") == []


@pytest.mark.parametrize("duration", ["5", "0s", "-3h", "2 months", "1e9d", "99999w"])
def test_a_duration_that_is_none_is_refused(tree: Tree, duration: str) -> None:
    """Wrong values of `--expires-after` end the command before anything is done."""
    done = tree.run("transcribe", os.devnull, f"--expires-after={duration}")
    assert (done.code, "[bad_usage]" in done.stderr) == (2, True), done.stderr
