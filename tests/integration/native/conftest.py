"""Services for the tests of the native surface: one with workers, one without, both closed by keys."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.servers.api import ApiServer
from tests.servers.postgres import Postgres
from tests.servers.valkey import Valkey

BROKER_DATABASE = 14
ROOT = Path(__file__).parents[3]
STREAM = {"accept": "text/event-stream"}


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Return a running service with an embedded stack that works; tests must not stop it."""
    with ApiServer(tmp_path_factory.mktemp("native"), "", engine_processes=1, linger_s=0) as server:
        server.first_key = server.key("first")
        yield server


@pytest.fixture(scope="session")
def idle(
    postgres: Postgres, _postgres_template: str, valkey: Valkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServer]:
    """Return a running service on Postgres without workers: jobs stay queued; tests must not stop it."""
    folder = tmp_path_factory.mktemp("idle")
    name = f"idle_{uuid4().hex[:12]}"
    postgres.create_database(name, template=_postgres_template)
    more = {"database_url": postgres.url(name), "api_streams": 2}
    with ApiServer(folder, valkey.broker_url(BROKER_DATABASE), **more) as server:
        server.first_key = server.key("first")
        yield server


@pytest.fixture
def working(stack: ApiServer) -> Iterator[httpx.Client]:
    """Return a client of the service with workers."""
    with stack.client(stack.first_key) as client:
        yield client


@pytest.fixture
def waiting(idle: ApiServer) -> Iterator[httpx.Client]:
    """Return a client of the service without workers."""
    with idle.client(idle.first_key) as client:
        yield client


@pytest.fixture(scope="session")
def recording() -> bytes:
    """Return seven seconds of speech as a FLAC file."""
    return (ROOT / "examples" / "harbor.flac").read_bytes()


def upload(client: httpx.Client, data: bytes, name: str = "harbor.flac") -> str:
    """Upload a file and return its id."""
    answer = client.post("/v1/files", files={"file": (name, data)}, data={"purpose": "user_data"})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def submit(client: httpx.Client, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    """Submit a job and return its record."""
    answer = client.post("/api/v1/jobs", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    record: dict[str, Any] = answer.json()
    return record


def follow(client: httpx.Client, path: str, last: str = "") -> Iterator[tuple[str, str, Any]]:
    """Yield kind, id and data of each event of a stream, to its end."""
    headers = {**STREAM, **({"last-event-id": last} if last else {})}
    with client.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        fields: dict[str, str] = {}
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if line:
                fields[name] = value
            elif "event" in fields:
                yield fields["event"], fields.get("id", ""), json.loads(fields["data"])
                fields = {}


def wait_end(client: httpx.Client, path: str) -> dict[str, Any]:
    """Follow a job or a batch to its end and return its record."""
    *_, (kind, _, record) = follow(client, f"{path}/events")
    assert kind == "end"
    assert isinstance(record, dict)
    return record
