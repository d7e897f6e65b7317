"""The service killed in the middle: nothing is lost or doubled; and large bodies leave its memory flat."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import func, select

from tests.integration.native.conftest import STREAM, follow, submit, upload
from tests.servers.api import ApiServer
from tests.servers.valkey import Valkey
from voicejobs.store.schema import events, idempotency_keys, jobs

pytestmark = pytest.mark.services
FAKE = {"engine": "fake"}
BROKER_DATABASE = 13
MEGABYTE = 1 << 20
GROWTH_BYTES = 20_000_000


@contextmanager
def worker(api: ApiServer) -> Iterator[None]:
    """Run a worker on the database and the broker of a service."""
    command = [sys.executable, "-m", "voicejobs_workers", "--die-with-parent"]
    environment = {**os.environ, **api.variables, "VOICEJOBS_ENGINE_PROCESSES": "1"}
    with (api.folder / "worker.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def told_by(line: str, fields: dict[str, str]) -> tuple[str, str] | None:
    """Take a line of a stream; return kind and id of the event that it ends."""
    name, _, value = line.partition(": ")
    if line:
        fields[name] = value
        return None
    told = (fields.get("event", ""), fields.get("id", ""))
    fields.clear()
    return told


def read_until_killed(url: str, path: str, key: str, seen: list[tuple[str, str]], enough: threading.Event) -> None:
    """Note kind and id of the events of a stream until its server dies."""
    headers = {**STREAM, "authorization": f"Bearer {key}"}
    fields: dict[str, str] = {}
    try:
        with (
            httpx.Client(trust_env=False, timeout=30) as client,
            client.stream("GET", url + path, headers=headers) as answer,
        ):
            for line in answer.iter_lines():
                told = told_by(line, fields)
                if told is not None and told[1]:
                    seen.append(told)
                    if len(seen) >= 4:
                        enough.set()
    except httpx.HTTPError:
        pass


def test_a_stream_goes_on_after_the_service_was_killed(
    valkey: Valkey, postgres_url: str, tmp_path: Path, recording: bytes
) -> None:
    """After kill -9 in the middle of a stream, its reader comes back and misses and doubles nothing."""
    broker = valkey.broker_url(BROKER_DATABASE)
    with ApiServer(tmp_path / "api", broker, fake_cost_window_s=0.15, database_url=postgres_url) as api, worker(api):
        key = api.key("first")
        with api.client(key) as client:
            file_id = upload(client, recording)
            items = [{"source": {"file_id": file_id, "name": f"{n}.flac"}} for n in range(6)]
            body = {"items": items, "defaults": FAKE, "force": True}
            path = client.post("/api/v1/batches", json=body).headers["location"]
        seen: list[tuple[str, str]] = []
        enough = threading.Event()
        reader = threading.Thread(target=read_until_killed, args=(api.url, f"{path}/events", key, seen, enough))
        reader.start()
        assert enough.wait(30), api.log
        api.stop(signal.SIGKILL)
        reader.join(10)
        time.sleep(0.3)
        api.start()
        with api.client(key) as client:
            rest = [(kind, name) for kind, name, _ in follow(client, f"{path}/events", seen[-1][1]) if name]
            whole = client.get(f"{path}/events").json()["data"]
        told = [name for kind, name in seen + rest if kind != "snapshot"]
        snapshot = next(name for kind, name in seen if kind == "snapshot")
        ids = [one["id"] for one in whole]
        assert told == ids[ids.index(snapshot) + 1 :]
        assert whole[-1]["type"] == "batch.completed"
        assert sum(one["type"] == "job.succeeded" for one in whole) == 6


def test_a_request_is_done_whole_or_not_at_all(valkey: Valkey, tmp_path: Path) -> None:
    """The service is killed while requests with keys come in; asked again, each key has exactly one job."""
    with ApiServer(tmp_path / "api", valkey.broker_url(BROKER_DATABASE)) as api:
        key = api.key("first")
        body = {"task": "speak", "engine": "fake_voice", "source": {"text": "Hello"}}
        names = [f"key-{number}" for number in range(60)]
        answered: dict[str, str] = {}
        started = threading.Event()

        def ask(some: list[str]) -> None:
            with api.client(key) as client:
                for name in some:
                    try:
                        answered[name] = submit(client, body, **{"idempotency-key": name})["id"]
                    except httpx.HTTPError:
                        return
                    if len(answered) > 10:
                        started.set()

        threads = [threading.Thread(target=ask, args=(names[first::3],)) for first in range(3)]
        for thread in threads:
            thread.start()
        assert started.wait(20)
        api.stop(signal.SIGKILL)
        for thread in threads:
            thread.join(10)
        before = dict(answered)
        api.start()
        ask(names)
        assert {name: answered[name] for name in before} == before
        assert len(set(answered.values())) == len(names)
        with api.database.read() as connection:
            counts = [
                connection.execute(select(func.count()).select_from(table)).scalar_one()
                for table in (jobs, idempotency_keys, events)
            ]
        assert counts == [len(names)] * 3


def test_a11_a_large_upload_leaves_the_memory_flat(idle: ApiServer) -> None:
    """A recording of 200 MB that is sent with its job makes the service grow by less than 20 MB."""
    boundary = "x" * 20
    head = f'--{boundary}\r\ncontent-disposition: form-data; name="engine"\r\n\r\nfake\r\n'
    head += f'--{boundary}\r\ncontent-disposition: form-data; name="file"; filename="long.wav"\r\n\r\n'
    block = os.urandom(MEGABYTE)

    def parts(megabytes: int) -> Iterator[bytes]:
        yield head.encode()
        for _ in range(megabytes):
            yield block
        yield f"\r\n--{boundary}--\r\n".encode()

    with idle.client(idle.key("large", "jobs:write", "jobs:read")) as client:
        headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
        assert client.post("/api/v1/jobs/upload", content=parts(2), headers=headers).status_code == 202
        before = idle.process.memory_info().rss
        highest = [before]
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(0.01):
                highest.append(idle.process.memory_info().rss)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            answer = client.post("/api/v1/jobs/upload", content=parts(200), headers=headers, timeout=60)
        finally:
            ended.set()
            watcher.join()
    assert answer.status_code == 202
    assert answer.json()["source"]["size_bytes"] == 200 * MEGABYTE
    assert max(highest) - before < GROWTH_BYTES


def test_the_service_ends_while_streams_are_open(valkey: Valkey, tmp_path: Path) -> None:
    """SIGTERM ends open streams at once, and the service with them; their readers may come back elsewhere."""
    with ApiServer(tmp_path / "api", valkey.broker_url(BROKER_DATABASE)) as api:
        key = api.key("first")
        seen: list[tuple[str, str]] = []
        enough = threading.Event()
        reader = threading.Thread(target=read_until_killed, args=(api.url, "/api/v1/events", key, seen, enough))
        with api.client(key) as client:
            reader.start()
            time.sleep(0.3)
            body = {"task": "speak", "engine": "fake_voice", "source": {"text": "Hello"}}
            for number in range(4):
                submit(client, {**body, "metadata": {"n": str(number)}})
            assert enough.wait(10), api.log
        began = time.monotonic()
        assert api.stop() == 0
        assert time.monotonic() - began < 5
        reader.join(10)
        assert [kind for kind, _ in seen] == ["job.queued"] * 4
        assert '"level": "error"' not in api.log, json.dumps(api.log[-2000:])
