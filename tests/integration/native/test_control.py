"""Jobs and batches that wait: cancelled, retried, deleted, listed, asked for again, and nobody else's."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.integration.native.conftest import STREAM, follow, submit, upload
from tests.servers.api import ApiServer

pytestmark = pytest.mark.services
FAKE = {"engine": "fake"}


@pytest.fixture
def file_id(waiting: httpx.Client, recording: bytes) -> str:
    """Return an uploaded recording."""
    return upload(waiting, recording)


@pytest.fixture
def body(file_id: str) -> dict[str, Any]:
    """Return what asks for a job."""
    return {**FAKE, "source": {"file_id": file_id}}


def test_a_job_is_cancelled_retried_and_deleted(waiting: httpx.Client, body: dict[str, Any]) -> None:
    """Each change has its status, what cannot be is 409 that nobody tries again, and a deleted job is not there."""
    path = f"/api/v1/jobs/{submit(waiting, body)['id']}"
    early = waiting.delete(path)
    assert (early.status_code, early.headers["x-should-retry"]) == (409, "false")
    assert waiting.post(f"{path}/retry").status_code == 409
    first, second = waiting.post(f"{path}/cancel"), waiting.post(f"{path}/cancel")
    assert [(one.status_code, one.json()["status"]) for one in (first, second)] == [
        (202, "cancelled"),
        (200, "cancelled"),
    ]
    again = waiting.post(f"{path}/retry")
    assert (again.status_code, again.json()["status"], again.headers["location"]) == (202, "queued", path)
    assert waiting.post(f"{path}/retry").status_code == 409
    waiting.post(f"{path}/cancel")
    kinds = [one["type"] for one in waiting.get(f"{path}/events").json()["data"]]
    assert kinds == ["job.queued", "job.cancelled", "job.queued", "job.cancelled"]
    assert waiting.get(f"{path}/transcript.srt").status_code == 404
    assert waiting.delete(path).status_code == 204
    assert [waiting.get(path).status_code, waiting.delete(path).status_code] == [404, 404]


def test_an_ended_job_ends_its_stream(waiting: httpx.Client, body: dict[str, Any]) -> None:
    """The stream of a job that has ended is a snapshot and the end; one that comes back gets what it has missed."""
    path = f"/api/v1/jobs/{submit(waiting, body)['id']}"
    waiting.post(f"{path}/cancel")
    assert [kind for kind, _, _ in follow(waiting, f"{path}/events")] == ["snapshot", "end"]
    first = waiting.get(f"{path}/events").json()["first_id"]
    assert [kind for kind, _, _ in follow(waiting, f"{path}/events", first)] == ["job.cancelled", "end"]
    assert waiting.get(f"{path}/events", headers={"last-event-id": "12"}).status_code == 400


def test_batches_are_cancelled_whole(waiting: httpx.Client, body: dict[str, Any]) -> None:
    """Cancelling ends what waits, the batch is `cancelled`, and asking again changes nothing."""
    batch = waiting.post("/api/v1/batches", json={"items": [body] * 3, "label": "x"}).json()
    path = f"/api/v1/batches/{batch['id']}"
    first, second = waiting.post(f"{path}/cancel"), waiting.post(f"{path}/cancel")
    assert [(one.status_code, one.json()["status"]) for one in (first, second)] == [
        (202, "cancelled"),
        (200, "cancelled"),
    ]
    assert first.json()["request_counts"]["cancelled"] == 3
    kinds = [one["type"] for one in waiting.get(f"{path}/events").json()["data"]]
    assert kinds[-1] == "batch.cancelled"
    assert "batch.cancelling" in kinds


@pytest.mark.parametrize("surface", ["/api/v1", "/v1"])
def test_a_batch_is_cancelled_the_same_on_both_surfaces(
    waiting: httpx.Client, body: dict[str, Any], surface: str
) -> None:
    """Whichever way it was cancelled, both surfaces say `cancelled`."""
    batch = waiting.post("/api/v1/batches", json={"items": [body] * 2}).json()["id"]
    assert waiting.post(f"{surface}/batches/{batch}/cancel").status_code < 300
    assert [waiting.get(f"{one}/batches/{batch}").json()["status"] for one in ("/api/v1", "/v1")] == ["cancelled"] * 2


def test_a_batch_keeps_the_terms_that_it_came_with(waiting: httpx.Client, body: dict[str, Any]) -> None:
    """How many of its jobs may be out, and what a failure does, are told; what is no such term is refused."""
    given = {"items": [body], "on_error": "stop", "concurrency": 3}
    batch = waiting.post("/api/v1/batches", json=given).json()
    assert {name: batch[name] for name in ("on_error", "concurrency")} == {"on_error": "stop", "concurrency": 3}
    plain = waiting.post("/api/v1/batches", json={"items": [body]}).json()
    assert (plain["on_error"], plain["concurrency"]) == ("continue", None)
    for wrong in ({"on_error": "pause"}, {"concurrency": 0}):
        assert waiting.post("/api/v1/batches", json={**given, **wrong}).status_code == 422


def test_a_manifest_makes_a_batch(waiting: httpx.Client, file_id: str) -> None:
    """Lines of an uploaded file are items, each with options of its own; a wrong line is named, and nothing is made."""
    lines = [{"source": {"file_id": file_id}}, {"source": {"file_id": file_id}, "options": {"language": "de"}}]
    manifest = upload(waiting, "\n".join(map(json.dumps, lines)).encode(), "jobs.jsonl")
    answer = waiting.post("/api/v1/batches", json={"input_file_id": manifest, "defaults": FAKE})
    assert answer.status_code == 202, answer.text
    items = waiting.get(f"{answer.headers['location']}/items?order=asc").json()["data"]
    assert [one["options"]["recognise"]["language"] for one in items] == [None, "de"]
    broken = upload(waiting, b'{"source": {}}\n{"sorce": 1}\n', "broken.jsonl")
    answer = waiting.post("/api/v1/batches", json={"input_file_id": broken, "defaults": FAKE})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_manifest")
    assert "Line 2" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("items", "status", "param"),
    [
        ([], 400, "items"),
        ([{"source": {"file_id": "file_none"}}], 404, "items[0].source.file_id"),
        ([{"source": {}, "options": {"beam_size": 0}}], 400, "items[0].options.beam_size"),
        ([{"source": {"file_id": 5}}], 422, "items.0.source.file_id"),
    ],
)
def test_a_wrong_item_is_named(waiting: httpx.Client, items: list[Any], status: int, param: str) -> None:
    """The answer to a batch that cannot be names the item and the member that is wrong."""
    answer = waiting.post("/api/v1/batches", json={"items": items, "defaults": FAKE})
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


def test_lists_have_pages_and_filters(idle: ApiServer, recording: bytes) -> None:
    """Pages of jobs follow each other in both orders without gap or double; state, name and batch choose."""
    with idle.client(idle.key("lists")) as client:
        source = {"file_id": upload(client, recording)}
        ids = [submit(client, {**FAKE, "source": {**source, "name": f"talk {n}.wav"}})["id"] for n in range(5)]
        for order, expected in (("asc", ids), ("desc", ids[::-1])):
            found: list[str] = []
            path = f"/api/v1/jobs?limit=2&order={order}"
            while path:
                answer = client.get(path)
                found += [one["id"] for one in answer.json()["data"]]
                path = answer.links.get("next", {}).get("url", "")
            assert found == expected
        client.post(f"/api/v1/jobs/{ids[0]}/cancel")
        assert [one["id"] for one in client.get("/api/v1/jobs?status=cancelled").json()["data"]] == ids[:1]
        assert [one["id"] for one in client.get("/api/v1/jobs", params={"q": "talk 3"}).json()["data"]] == [ids[3]]
        assert client.get("/api/v1/jobs?batch_id=batch_1").json()["data"] == []
        assert client.get("/api/v1/batches").json()["data"] == []
        assert client.get("/api/v1/jobs?limit=101").status_code == 422
        assert client.get("/api/v1/jobs?after=evt_1").status_code == 400


def test_the_same_request_is_answered_once(waiting: httpx.Client, idle: ApiServer, body: dict[str, Any]) -> None:
    """A key gets the same answer again, another request under it is 422, and other routes and tenants are apart."""
    key = {"idempotency-key": "one"}
    first = waiting.post("/api/v1/jobs", json=body, headers=key)
    second = waiting.post("/api/v1/jobs", json=body, headers=key)
    assert (first.status_code, second.status_code) == (202, 202)
    assert second.json() == first.json()
    assert second.headers["location"] == first.headers["location"]
    assert second.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    other = waiting.post("/api/v1/jobs", json={**body, "force": True}, headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert waiting.post("/api/v1/jobs", json=body, headers={"idempotency-key": "x" * 256}).status_code == 400
    batch = waiting.post("/api/v1/batches", json={"items": [body]}, headers=key)
    assert (batch.status_code, "idempotency-replayed" in batch.headers) == (202, False)
    with idle.client(idle.key("elsewhere")) as client:
        spoken = {"task": "speak", "engine": "fake_voice", "source": {"text": "Hello"}}
        assert "idempotency-replayed" not in client.post("/api/v1/jobs", json=spoken, headers=key).headers


def test_an_upload_is_part_of_its_request(waiting: httpx.Client, recording: bytes) -> None:
    """With a key, the same recording and fields are one job; other bytes under the key are another request."""
    key = {"idempotency-key": "upload"}

    def send(data: bytes) -> httpx.Response:
        files = {"file": ("a.flac", data)}
        return waiting.post("/api/v1/jobs/upload", files=files, data={"engine": "fake"}, headers=key)

    first, second, other = send(recording), send(recording), send(recording + b" ")
    assert first.json()["id"] == second.json()["id"]
    assert other.status_code == 422


def test_many_at_once_are_one(idle: ApiServer, body: dict[str, Any]) -> None:
    """Requests with one key at one moment make one job, whose record all of them get."""
    with idle.client(idle.first_key, {"idempotency-key": "many"}) as client, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.post("/api/v1/jobs", json=body), range(8)))
    assert {one.status_code for one in answers} == {202}
    assert len({one.json()["id"] for one in answers}) == 1
    assert sum("idempotency-replayed" in one.headers for one in answers) == 7


def test_another_tenant_sees_nothing(idle: ApiServer, waiting: httpx.Client, body: dict[str, Any]) -> None:
    """Every operation on a record of another tenant is 404, as on one that never was, and lists leave it out."""
    job = submit(waiting, body)["id"]
    batch = waiting.post("/api/v1/batches", json={"items": [body]}).json()["id"]
    with idle.client(idle.key("stranger")) as client:
        paths = [f"/api/v1/jobs/{job}{tail}" for tail in ("", "/events", "/attempts", "/transcript.srt")]
        paths += [f"/api/v1/batches/{batch}{tail}" for tail in ("", "/items", "/events", "/archive")]
        assert {path: client.get(path).status_code for path in paths} == dict.fromkeys(paths, 404)
        assert client.get(paths[1], headers=STREAM).status_code == 404
        posts = [f"/api/v1/jobs/{job}/cancel", f"/api/v1/jobs/{job}/retry"]
        posts += [f"/api/v1/batches/{batch}/cancel", f"/api/v1/batches/{batch}/retry-failed"]
        assert {path: client.post(path).status_code for path in posts} == dict.fromkeys(posts, 404)
        assert client.delete(f"/api/v1/jobs/{job}").status_code == 404
        assert client.post("/api/v1/jobs", json=body).status_code == 404
        for path in ("/api/v1/jobs", "/api/v1/batches", "/api/v1/events"):
            assert client.get(path).json()["data"] == []
    assert waiting.get(f"/api/v1/jobs/{job}").json()["status"] == "queued"


def test_streams_of_a_key_are_limited(idle: ApiServer, waiting: httpx.Client, body: dict[str, Any]) -> None:
    """A key may hold so many streams; one more is 429 until one of them ends, and other keys have their own."""
    path = f"/api/v1/jobs/{submit(waiting, body)['id']}/events"
    with idle.client(idle.key("first")) as client:
        with client.stream("GET", path, headers=STREAM), client.stream("GET", path, headers=STREAM) as second:
            answer = client.get(path, headers=STREAM)
            assert (answer.status_code, answer.json()["code"]) == (429, "rate_limited")
            assert int(answer.headers["retry-after"]) >= 1
            assert second.headers["x-accel-buffering"] == "no"
            with idle.client(idle.first_key) as other, other.stream("GET", path, headers=STREAM) as third:
                assert third.status_code == 200
        with client.stream("GET", path, headers=STREAM) as fourth:
            assert fourth.status_code == 200


@pytest.mark.parametrize("path", ["engines", "models", "voices", "pipelines"])
def test_the_catalogue_is_listed_and_shown(waiting: httpx.Client, path: str) -> None:
    """Each record of the catalogue is found again by its id, and an unknown one is 404."""
    listed = waiting.get(f"/api/v1/{path}").json()["data"]
    assert listed
    for record in listed:
        assert waiting.get(f"/api/v1/{path}/{record['id']}").json() == record
    assert waiting.get(f"/api/v1/{path}/nothing").status_code == 404


def test_pipelines_describe_their_options(waiting: httpx.Client) -> None:
    """The schema of a pipeline has each option flat and under its node, with type, limits and default."""
    options = waiting.get("/api/v1/pipelines/transcribe").json()["options"]["properties"]
    assert options["beam_size"] == {"type": "integer", "minimum": 1, "maximum": 20, "default": 5}
    assert options["recognise"]["properties"]["beam_size"] == options["beam_size"]
    assert "threads" not in options
