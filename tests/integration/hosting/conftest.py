import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from voicejobs.engines import registry
from voicejobs.hosting.host import EngineHost
from voicejobs.settings import Settings

PLUGIN = Path(__file__).parent / "plugin"
MakeHost = Callable[..., EngineHost]


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the package of test engines, for this process and its children."""
    monkeypatch.syspath_prepend(str(PLUGIN))
    monkeypatch.setenv("PYTHONPATH", str(PLUGIN), prepend=os.pathsep)
    registry.refresh()
    yield
    monkeypatch.undo()
    registry.refresh()


@pytest.fixture
def make_host(tmp_path: Path) -> Iterator[MakeHost]:
    """Return a maker of engine hosts that are closed at the end of the test."""
    hosts: list[EngineHost] = []

    def make(processes: int = 2, idle_s: float = 300.0) -> EngineHost:
        settings = Settings(
            state_dir=tmp_path / "state", models_dir=tmp_path, engine_processes=processes, engine_idle_s=idle_s
        )
        hosts.append(EngineHost(settings))
        return hosts[-1]

    yield make
    for host in hosts:
        host.close()
