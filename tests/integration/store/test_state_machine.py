"""Jobs, step runs and leases against a small model: whatever order people, workers and faults come in."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.integration.store.machine import Machine, World, owners
from tests.integration.tasks.shapes import bare_runtime, registered
from voicejobs import dispatch
from voicejobs.store import jobs
from voicejobs.store.owners import Owner

EXAMPLES = {True: 250, False: 60}
"""By whether the store is SQLite, which runs in the process: about as long on each."""
STEPS = 40
SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def world(store_url: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Return a store with two workers: one sends all that follows, the other goes on with it itself."""
    with ExitStack() as stack:
        stack.enter_context(registered())
        folder = tmp_path_factory.mktemp("state")
        if store_url.startswith("sqlite") and SHARED_MEMORY.is_dir():
            # Nothing here is about power cuts, and a disk takes most of the time.
            fast = Path(stack.enter_context(TemporaryDirectory(dir=SHARED_MEMORY))) / "voicejobs.db"
            store_url = f"sqlite:///{copy(store_url.removeprefix('sqlite:///'), fast)}"
        world = World([stack.enter_context(bare_runtime(store_url, folder, served)) for served in ("", "cpu asr")])
        world.runtimes[0].blobs.make_folders()
        monkeypatch.setattr(dispatch, "_publish", world.publish)
        monkeypatch.setattr(dispatch, "retry_delay_s", lambda failures: 0.0)
        monkeypatch.setattr(jobs, "new_id", world.new_id)
        monkeypatch.setattr(Owner, "is_proven_dead", owners(world.dead))
        yield world


@pytest.mark.timeout(300)
def test_rows_obey_the_model_in_any_order(world: World) -> None:
    """Only legal steps, nothing done twice, nothing changed by who comes late, nothing stuck in the end."""
    begin: Any = lambda: Machine(world)  # noqa: E731 - typed as a class, though any maker of machines will do
    run_state_machine_as_test(
        begin,
        settings=settings(
            max_examples=EXAMPLES[world.database.is_sqlite],
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=True,  # a red run says something of the change that it ran on
            phases=[Phase.generate],  # steps are long: shrinking would take minutes, and is for who looks into it
            suppress_health_check=list(HealthCheck),
        ),
    )
