"""Kill everything at any moment and run the same command again: nothing is lost, nothing is done twice."""

import os
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from tests.acceptance.conftest import MakeTree
from tests.acceptance.harness import Tree, files_below, shared_speech, speech_files, wait_for
from tests.servers.valkey import Valkey
from voicejobs.errors import DatabaseUnavailable
from voicejobs.store.database import Database
from voicejobs.store.schema import attempts, jobs, step_runs

FILES = 30
KILLS = 10
RESUME_LIMIT_S = 2.0
"""On a machine that has nothing else to do; where more processes want to run than there are cores, so much longer."""
NOISE = 1.5
"""For the slowest of several."""

SHORT = ("jfk.flac", "ae_p001.webm", "arctic_aew_a0001.wav", "lr_198-209-0000.ogg", "sb_spk1_snt1.wav", "pv_l_test.wav")
pytestmark = pytest.mark.services


@dataclass(slots=True)
class Siege:
    """Run one command again and again, killing it, and note what each killed run had done.

    Args:
        tree: where it runs.
        words: the command.
        resumed_s: seconds from the start of a later command to the first claim after it.
        finished: the outputs of jobs that had succeeded when a run was killed: inode and time of change.
        strikes: kills so far.
    """

    tree: Tree
    words: tuple[Any, ...]
    resumed_s: list[float] = field(default_factory=list)
    finished: dict[Path, tuple[int, int]] = field(default_factory=dict)
    strikes: int = 0
    database: Database = field(init=False)

    def __post_init__(self) -> None:
        self.database = Database(self.tree.values().effective_database_url, pool_size=1)

    def strike(self, delay_s: float, most_done: int, *, from_claim: bool) -> None:
        """Run the command and kill its tree.

        Args:
            delay_s: seconds to the kill, from the start or from the first claim.
            most_done: number of outputs at which the kill comes sooner.
            from_claim: whether `delay_s` counts from the moment at which work has begun.
        """
        began = time.time()
        process = self.tree.start(*self.words)
        if from_claim:
            wait_for(lambda: self._claims_since(began), "work to begin")
        deadline = time.monotonic() + delay_s
        while time.monotonic() < deadline and self._outputs() < most_done:
            assert process.poll() is None, f"it ended by itself: {process.communicate()}"
            time.sleep(0.005)
        self.tree.kill()
        process.communicate()
        claims = self._claims_since(began)
        if claims and self.strikes:  # the first run resumes nothing
            self.resumed_s.append(min(claims) - began)
        self.strikes += 1
        self._note_finished()

    def finish(self) -> None:
        """Run the command to its end, undisturbed."""
        began = time.time()
        done = self.tree.run(*self.words)
        assert done.code == 0, done.stderr
        self.resumed_s += [min(claims) - began for claims in [self._claims_since(began)] if claims]

    def check(self, expected: dict[str, str], count: int) -> None:
        """Compare everything with an undisturbed run."""
        assert files_below(self.tree.out) == expected
        for path, mark in self.finished.items():
            assert _mark(path) == mark, f"{path} was written again"
        ended = self._rows(select(jobs.c.state))
        assert [row.state for row in ended] == ["succeeded"] * count
        runs = self._rows(select(step_runs.c.id, step_runs.c.state))
        assert {row.state for row in runs} == {"succeeded"}
        tried = self._rows(select(attempts))
        for run in runs:
            story = [row for row in tried if row.step_run_id == run.id]
            succeeded = [row for row in story if row.outcome == "succeeded"]
            assert len(succeeded) == 1, story
            assert all(row.started_at <= succeeded[0].started_at for row in story), "work after success"
        left = [path for path in (self.tree.state / "blobs").rglob("*") if path.is_file()]
        assert not left, "decoded audio and temporary files stay behind"
        assert {batch["state"] for batch in self.tree.show("batch", "list")} == {"completed"}

    def report(self, what: str) -> None:
        """Print how soon work went on."""
        figures = ", ".join(f"{seconds:.2f}" for seconds in sorted(self.resumed_s))
        print(f"{what}: work resumed after {figures} s; {len(self.finished)} outputs stood at the kills")  # noqa: T201
        crowd = max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))
        assert self.resumed_s
        assert max(self.resumed_s) < RESUME_LIMIT_S * NOISE * crowd
        assert statistics.median(self.resumed_s) < RESUME_LIMIT_S * crowd

    def _outputs(self) -> int:
        """Count the output files."""
        return sum(path.suffix == ".txt" for path in self.tree.out.rglob("*"))

    def _claims_since(self, began: float) -> list[float]:
        """Return the times at which workers began something."""
        query = select(step_runs.c.started_at).where(step_runs.c.started_at >= began)
        tried = select(attempts.c.started_at).where(attempts.c.started_at >= began)
        return [row.started_at for row in [*self._rows(query), *self._rows(tried)]]

    def _note_finished(self) -> None:
        """Note the outputs of the jobs that have succeeded."""
        for row in self._rows(select(jobs.c.target).where(jobs.c.state == "succeeded")):
            path = Path(row.target + ".txt")
            self.finished.setdefault(path, _mark(path))

    def _rows(self, query: Any) -> list[Any]:
        """Return all rows; none where the killed run had not even made its tables."""
        if self.database.is_sqlite and not (self.tree.state / "voicejobs.db").exists():
            return []
        try:
            with self.database.read() as connection:
                return list(connection.execute(query))
        except DatabaseUnavailable:  # "no such table"
            return []


def _mark(path: Path) -> tuple[int, int]:
    """Return what changes when a file is written again."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


def besiege(siege: Siege, kills: int, files: int, *, seed: int, longest_s: float) -> None:
    """Kill at `kills` random moments: of the start, and of the work, which must not be done before the last kill."""
    dice = random.Random(seed)
    for number in range(kills):
        most_done = (number + 1) * files * 5 // 6 // kills
        siege.strike(dice.uniform(0.05, longest_s), most_done, from_claim=number % 3 != 1)
    siege.finish()


@pytest.fixture
def servers(request: pytest.FixtureRequest, start_valkey: Callable[..., Valkey]) -> dict[str, str]:
    """Return the settings of real servers, the database being empty."""
    return {
        "VOICEJOBS_BROKER_URL": start_valkey(tcp=True).broker_url(3),
        "VOICEJOBS_DATABASE_URL": request.getfixturevalue("empty_postgres_url"),
    }


@pytest.mark.timeout(170)
@pytest.mark.parametrize("kind", ["embedded", pytest.param("servers", marks=pytest.mark.services)])
def test_killed_ten_times_the_outputs_are_those_of_an_undisturbed_run(
    make_tree: MakeTree, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """After ten kills of the whole tree every file is transcribed once, as if nothing had happened."""
    speech_files(tmp_path / "in", FILES)
    words = ("transcribe", tmp_path / "in", "-f", "txt,json", "--engine", "fake", "--no-progress", "-o")
    calm = make_tree("calm")
    assert calm.run(*words, calm.out).code == 0
    settings = {} if kind == "embedded" else request.getfixturevalue("servers")
    cost = {"VOICEJOBS_FAKE_COST_WINDOW_S": "0.15", "VOICEJOBS_ENGINE_PROCESSES": "2", "VOICEJOBS_WINDOW_JOBS": "4"}
    tree = make_tree("besieged", **cost, **settings)
    if settings:
        assert tree.run("db", "upgrade").code == 0
    siege = Siege(tree, (*words, tree.out))
    try:
        besiege(siege, KILLS, FILES, seed=2, longest_s=2.0)
        siege.check(files_below(calm.out), FILES)
        siege.report(kind)
    finally:
        siege.database.close()


@pytest.mark.models
@pytest.mark.timeout(170)
def test_whisper_killed_three_times_says_what_it_says_undisturbed(
    make_tree: MakeTree, tmp_path: Path, need_model: Callable[[str], None]
) -> None:
    """Kills change nothing in what whisper hears, and no finished file is recognised again."""
    need_model("tiny.en")
    found = shared_speech(*SHORT)
    (tmp_path / "in").mkdir()
    for path in found:
        (tmp_path / "in" / path.name).symlink_to(path)
    words = ("transcribe", tmp_path / "in", "-f", "txt,json", "-m", "tiny.en", "-l", "en", "--no-progress", "-o")
    calm, tree = make_tree("calm"), make_tree("besieged")
    assert calm.run(*words, calm.out).code == 0
    siege = Siege(tree, (*words, tree.out))
    try:
        besiege(siege, kills=3, files=len(found), seed=3, longest_s=6.0)
        siege.check(files_below(calm.out), len(found))
        siege.report("whisper")
    finally:
        siege.database.close()


HANG = """
import os, pathlib, time

real = os.{name}

def hang(path, *rest, **options):
    if {mark!r} in str(path):
        pathlib.Path({flag!r}).touch()
        time.sleep(600)
    return real(path, *rest, **options)

os.{name} = hang
"""
"""Makes a process stand still in a system call, for as long as it takes to kill it there."""


@pytest.mark.parametrize(("name", "mark"), [("replace", ".part"), ("unlink", ".s16le")], ids=["output", "scratch"])
def test_killed_between_two_steps_of_a_file_system_no_leftover_stays(
    tree: Tree, tmp_path: Path, name: str, mark: str
) -> None:
    """A half-written output of a killed run, and decoded audio of a job that it had ended, go with the next run."""
    flag, patch = tmp_path / "hangs", tmp_path / "patch"
    patch.mkdir()
    (patch / "sitecustomize.py").write_text(HANG.format(name=name, mark=mark, flag=str(flag)))
    first, second = speech_files(tmp_path / "in", 2)
    tree.settings["PYTHONPATH"] = str(patch)
    process = tree.start("transcribe", first, "-o", tree.out, "--engine", "fake")
    wait_for(flag.exists, "the worker to reach the place")
    tree.kill()
    process.communicate()
    del tree.settings["PYTHONPATH"]
    assert tree.transcribe(first, second).code == 0
    assert sorted(files_below(tree.out)) == sorted(f"{path.stem}.txt" for path in (first, second))
    assert not [path for path in (tree.state / "blobs").rglob("*") if path.is_file()]
