"""What people see while workers begin no job."""

import json
import signal
from pathlib import Path

import pytest

from tests.acceptance.conftest import MakeTree
from tests.acceptance.harness import Tree, speech_files, wait_for

pytestmark = [pytest.mark.services, pytest.mark.timeout(120)]
NO_ROOM = {"VOICEJOBS_DISK_FLOOR_BYTES": str(10**18)}
TOLD = "Intake paused: disk low"


@pytest.fixture
def full(make_tree: MakeTree) -> Tree:
    """Return a state folder on a disk that counts as full, with one recording."""
    tree = make_tree(**NO_ROOM)
    speech_files(tree.folder / "in", 1)
    return tree


def test_a_low_disk_is_told_as_an_event(full: Tree) -> None:
    """Machines get a warning with a code, once, also from `batch watch`; nothing is done meanwhile."""
    words = ("transcribe", full.folder / "in", "-o", full.out, "--engine", "fake")
    process = full.start(*words, "--json")
    assert process.stdout is not None
    events = (json.loads(line) for line in iter(process.stdout.readline, b""))
    warning = next(event for event in events if event["type"] == "warning" and event["code"] != "fetching_model")
    assert warning["code"] == "disk_low"
    assert warning["message"].startswith(TOLD)
    assert str(full.state) in warning["message"]
    batch = full.show("batch", "list")[0]["id"]
    watching = full.start("batch", "watch", batch, "--json")
    assert watching.stdout is not None
    told = json.loads(watching.stdout.readline())
    assert (told["type"], told["code"], told["message"][: len(TOLD)]) == ("warning", "disk_low", TOLD)
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=30)
    process.send_signal(signal.SIGINT)
    rest = [json.loads(line) for line in process.communicate(timeout=30)[0].splitlines()]
    assert [event for event in rest if event.get("code") == "disk_low"] == []
    assert process.returncode == 130
    assert not full.out.exists() or not list(full.out.iterdir())


def test_a_low_disk_is_told_to_people(full: Tree, tmp_path: Path) -> None:
    """The line names the folder, the room and the floor."""
    with (tmp_path / "told").open("wb") as stream:
        process = full.start(
            "transcribe", full.folder / "in", "-o", full.out, "--engine", "fake", stderr=stream.fileno()
        )
        wait_for(lambda: TOLD in (tmp_path / "told").read_text(), "the line")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert "[disk_low]" in (tmp_path / "told").read_text()
