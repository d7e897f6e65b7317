"""Servers and benches that tests of faults break."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bench import Bench, MakeBench, make_bench, producer, speech
from tests.servers.postgres import Postgres
from tests.servers.valkey import Valkey

__all__ = ["make_bench", "producer", "speech"]

PLUGIN = Path(__file__).parent / "plugin"


@pytest.fixture(autouse=True)
def _plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every process that a test starts bring the faults that its environment names."""
    monkeypatch.setenv("PYTHONPATH", str(PLUGIN), prepend=os.pathsep)


@pytest.fixture
def bench(make_bench: MakeBench, postgres_url: str, broker_url: str) -> Bench:
    """Return a bench on the Postgres and the Valkey of this xdist worker, which the test must leave alone."""
    return make_bench(postgres_url, broker_url)


@dataclass(frozen=True, slots=True)
class Site:
    """Hold a bench and servers of its own, to be broken."""

    bench: Bench
    valkey: Valkey
    postgres: Postgres


MakeSite = Callable[..., Site]


@pytest.fixture
def make_site(
    make_bench: MakeBench, start_valkey: Callable[..., Valkey], start_postgres: Callable[[], Postgres]
) -> MakeSite:
    """Return a maker of a site: `make_site(setting=value)`."""
    from voicejobs.store import migrate

    def make(**settings: object) -> Site:
        valkey, postgres = start_valkey(), start_postgres()
        postgres.create_database("jobs")
        bench = make_bench(postgres.url("jobs"), valkey.broker_url(1), **settings)
        migrate.upgrade(bench.database)
        return Site(bench, valkey, postgres)

    return make
