"""Who may call what: every operation asks for a key, and keys are what they say."""

import json
import re
import socket
import sqlite3
import statistics
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.belongings import OF_NOBODY, OTHERS, TEXT, everything, give
from tests.servers.api import ApiServer
from tests.servers.valkey import Valkey
from tests.waiting import wait_until
from voicejobs.api.access import needs
from voicejobs.api.app import create_app
from voicejobs.api.context import Context
from voicejobs.api.openapi import operations
from voicejobs.settings import Settings
from voicejobs.store import keys
from voicejobs.store.blobs import BlobStore
from voicejobs.store.database import Database
from voicejobs.store.keys import NewKey

PUBLIC = {"/healthz", "/readyz", "/problems/{code}", "/openapi.json", "/docs", "/docs/style.css"}
SOCKETS = {"/api/v1/live"}
"""WebSockets that ask for the key in their first message, since browsers cannot set headers there."""
SOME_ID = "job_01a22c7e79647a7dbd0b68e61a2796bb"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what an app needs, with an empty database that nobody migrated."""
    folder = tmp_path_factory.mktemp("app")
    settings = Settings.from_env({"HOME": str(folder)})
    context = Context(settings, Database(f"sqlite:///{folder}/none.db"), BlobStore(folder))
    yield context
    context.close()


def test_every_route_says_what_it_needs(context: Context) -> None:
    """Each route names a scope, but for a short list of public ones."""
    found = {path: need for path, _, need in needs(create_app(context))}
    assert all(found.values())
    assert {path for path, need in found.items() if need is not None and need.scope is None} - SOCKETS == PUBLIC


def test_a_route_that_says_nothing_is_not_served(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """The app refuses to be made with a route that names no need."""
    from fastapi import APIRouter

    from voicejobs.api import app

    router = APIRouter()
    router.get("/forgotten")(lambda: None)
    monkeypatch.setattr(app, "ROUTERS", (*app.ROUTERS, router))
    with pytest.raises(RuntimeError, match="/forgotten"):
        create_app(context)


def test_every_operation_wants_a_key(api: ApiServer) -> None:
    """Without a key, with one of another form and with one that is unknown, each operation answers 401 and says how."""
    whole = api_description(api)
    unknown = "vj_live_" + "A" * 8 + "_" + "b" * 32
    wrong = ["", "Bearer no", f"Bearer {unknown}_{keys._check(unknown)}", "Basic dXNlcjpwYXNz"]
    asked = 0
    with api.client() as client:
        for path, method, operation in operations(whole):
            if path in PUBLIC:
                continue
            for value in wrong[:1] if asked else wrong:
                headers = {"authorization": value} if value else {}
                answer = client.request(method, re.sub(r"{[^}]+}", SOME_ID, path), headers=headers)
                asked += 1
                assert answer.status_code == 401, (method, path)
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert method == "head" or answer.json()["error"]["type"] == "authentication_error"
                assert operation["security"] == [{"bearer": []}]
    assert asked > 5


def api_description(api: ApiServer) -> dict[str, Any]:
    """Return the description that the service gives of itself."""
    return dict(httpx.get(f"{api.url}/openapi.json", trust_env=False).json())


def test_a_body_is_not_read_for_a_stranger(api: ApiServer) -> None:
    """Who sends no key gets 401 before its body is read, even where that never ends."""
    host, port = api.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"POST /api/v1/keys HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n")
        connection.sendall(b"content-type: application/json\r\n\r\n{")
        assert connection.recv(100).startswith(b"HTTP/1.1 401")


def test_a_key_allows_its_scopes_only(api: ApiServer) -> None:
    """Where the scope is missing the answer is 403, and names it."""
    with api.client(api.key("first", "jobs:read")) as client:
        assert client.get("/api/v1/limits").status_code == 200
        answer = client.get("/api/v1/keys")
    assert answer.status_code == 403
    assert answer.json()["code"] == "scope_missing"
    assert "admin" in answer.json()["detail"]


def test_a_revoked_key_ends_within_a_second(api: ApiServer, admin: httpx.Client) -> None:
    """A key that works is refused a second after it was revoked, wherever that was done."""
    text = api.key("first", "jobs:read")
    with api.client(text) as client:
        assert client.get("/api/v1/limits").status_code == 200
        assert admin.delete(f"/api/v1/keys/{text.split('_')[2]}").json()["state"] == "revoked"
        time.sleep(1)
        assert client.get("/api/v1/limits").status_code == 401


def test_an_event_stream_ends_with_its_key(api: ApiServer, admin: httpx.Client) -> None:
    """A stream that is open when its key is revoked ends soon after, though nothing happens; others go on."""
    text = api.key("first", "jobs:read")
    accept = {"accept": "text/event-stream"}
    with api.client(text) as client, client.stream("GET", "/api/v1/events", headers=accept) as stream:
        pieces = stream.iter_raw()
        assert next(pieces).startswith(b"retry:")
        began = time.monotonic()
        assert admin.delete(f"/api/v1/keys/{text.split('_')[2]}").json()["state"] == "revoked"
        assert list(pieces) == []
        assert time.monotonic() - began < 4


def test_a_key_expires(api: ApiServer) -> None:
    """A key is refused once its time is over."""
    text = api.key("first", "jobs:read", lifetime_s=1.0)
    with api.client(text) as client:
        assert client.get("/api/v1/limits").status_code == 200
        wait_until(lambda: client.get("/api/v1/limits").status_code == 401, 5)
    found = keys.get_key(api.database, text.split("_")[2])
    assert keys.state_of(api.database, found) == "expired"


def test_the_last_use_of_a_key_is_known(api: ApiServer, admin: httpx.Client) -> None:
    """After a call the key tells when it was used, and many calls write that once."""
    text = api.key("first", "jobs:read")
    key_id = text.split("_")[2]
    with api.client(text) as client:
        client.get("/api/v1/limits")
        first = wait_until(lambda: admin.get(f"/api/v1/keys/{key_id}").json()["last_used_at"], 5)
        for _ in range(5):
            client.get("/api/v1/limits")
        assert admin.get(f"/api/v1/keys/{key_id}").json()["last_used_at"] == first


def test_keys_over_http(api: ApiServer, admin: httpx.Client) -> None:
    """A key made over HTTP opens the service, is listed without its secret, and belongs to the tenant of its maker."""
    made = admin.post("/api/v1/keys", json={"name": "made", "scopes": ["jobs:read"], "limits": {"concurrency": 3}})
    assert made.status_code == 201
    text = made.json()["key"]
    assert made.headers["location"] == f"/api/v1/keys/{made.json()['id']}"
    with api.client(text) as client:
        limits = client.get("/api/v1/limits").json()
    assert limits["tenant"] == "first"
    assert limits["requests"]["concurrency"] == 3
    listed = admin.get("/api/v1/keys", params={"limit": 100})
    assert made.json()["id"] in {key["id"] for key in listed.json()["data"]}
    assert text.split("_")[3] not in listed.text


def test_lists_have_pages(admin: httpx.Client) -> None:
    """Pages of one row, followed by their links, bring each row once and in order."""
    for _ in range(3):
        admin.post("/api/v1/keys", json={"scopes": ["metrics"]})
    seen, place = [], "/api/v1/keys?limit=1&order=asc"
    while place:
        answer = admin.get(place)
        page = answer.json()
        assert page["object"] == "list"
        seen += [key["id"] for key in page["data"]]
        assert page["first_id"] == page["last_id"] == seen[-1]
        place = answer.links.get("next", {}).get("url", "")
        assert bool(place) == page["has_more"]
    assert seen == sorted(set(seen))
    assert len(seen) >= 3
    assert admin.get("/api/v1/keys", params={"after": "no such/id"}).status_code == 400
    assert admin.get("/api/v1/keys", params={"limit": 101}).status_code == 422


def test_the_database_holds_no_secret(api: ApiServer, admin: httpx.Client) -> None:
    """A dump of the database has the ids of keys, and of no key the secret."""
    text = admin.post("/api/v1/keys", json={"scopes": ["metrics"]}).json()["key"]
    with sqlite3.connect(str(api.folder / "state" / "voicejobs.db")) as connection:
        dump = "\n".join(connection.iterdump())
    connection.close()
    _, _, key_id, secret, _ = text.split("_")
    assert key_id in dump
    assert secret not in dump
    assert api.first_key.split("_")[3] not in dump
    assert secret not in api.log


def test_unknown_ids_take_as_long_as_known_ones(api: ApiServer) -> None:
    """The time of a refusal does not tell whether an id exists: medians differ by less than their spread."""
    known = api.first_key.split("_")[2]

    def times(key_id: str, client: httpx.Client) -> list[float]:
        body = f"vj_live_{key_id}_{'x' * 32}"
        headers = {"authorization": f"Bearer {body}_{keys._check(body)}"}
        found = []
        for _ in range(150):
            since = time.perf_counter()
            assert client.get("/api/v1/limits", headers=headers).status_code == 401
            found.append(time.perf_counter() - since)
        return found

    with api.client() as client:
        times(known, client)
        rounds = [(times(known, client), times("ZZZZZZZZ", client)) for _ in range(2)]
    there = [time_s for first, _ in rounds for time_s in first]
    nowhere = [time_s for _, second in rounds for time_s in second]
    low, _, high = statistics.quantiles(there + nowhere, n=4)
    assert abs(statistics.median(there) - statistics.median(nowhere)) < max(high - low, 0.0005)


def test_the_first_key_closes_an_open_service(valkey: Valkey, tmp_path: Path) -> None:
    """With no key in the table everybody is `default`; the first key ends that, and revoking it changes nothing."""
    with ApiServer(tmp_path / "open", valkey.broker_url(14)) as server, server.client() as client:
        assert client.get("/api/v1/limits").json()["tenant"] == "default"
        assert "no key was ever made" in server.log
        refused = client.post("/api/v1/keys", json={"scopes": ["jobs:read"]})
        assert refused.status_code == 409
        assert refused.headers["x-should-retry"] == "false"
        made = client.post("/api/v1/keys", json={"scopes": ["admin"]}).json()
        time.sleep(1)
        assert client.get("/api/v1/limits").status_code == 401
        with server.client(made["key"]) as owner:
            assert owner.delete(f"/api/v1/keys/{made['id']}").status_code == 200
        time.sleep(1)
        assert client.get("/api/v1/limits").status_code == 401


WAYS: dict[str, dict[str, Any]] = {
    "create_upload_part": {"files": {"data": b"0123456789"}},
    "complete_upload": {"json": {"part_ids": ["part_0"]}},
    "update_webhook": {"json": {}},
}
"""Bodies without which an operation would not get as far as to look for its row."""


def test_two_tenants_see_nothing_of_each_other(api: ApiServer) -> None:
    """Every operation with an id in its path answers 404 to the other tenant, whose key may do everything.

    The operations come from the description. Their owner does not get 404 for what can be read, so that the ids are
    right, and no row has changed in the end.
    """
    ids = {**OTHERS, **give(api.database, BlobStore(api.folder / "state" / "blobs"), "first")}
    before = everything(api.database)
    asked = read = 0
    with api.client(api.key("second")) as other, api.client(api.first_key) as owner:
        for path, method, operation in operations(api_description(api)):
            names = re.findall(r"{([^}]+)}", path)
            if not set(names) - OF_NOBODY:
                continue
            assert set(names) <= set(ids), f"{method} {path}: tests/belongings.py knows no such id"
            address = path.format(**ids)
            way = WAYS.get(operation["operationId"], {"json": {}} if "requestBody" in operation else {})
            answer = other.request(method, address, **way)
            asked += 1
            assert answer.status_code == 404, (method, address, answer.text)
            assert TEXT not in answer.text
            if method == "get":
                found = owner.get(address)
                assert found.status_code in {200, 410}, (address, found.text)
                read += 1
    assert asked >= 2
    assert read >= 1
    assert everything(api.database) == before


def test_two_tenants_share_no_list(api: ApiServer) -> None:
    """No operation without an id in its path shows the other tenant an id of the first."""
    ids = give(api.database, BlobStore(api.folder / "state" / "blobs"), "first")
    asked = 0
    with api.client(api.key("third")) as other:
        for path, method, operation in operations(api_description(api)):
            if method == "get" and "{" not in path and operation["security"]:
                answer = other.get(path, headers={"accept": "application/json"})
                asked += 1
                assert answer.status_code == 200, (path, answer.text)
                assert not [one for one in ids.values() if one in answer.text], path
    assert asked >= 3


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/jobs", {"pipeline": "transcribe", "source": {"file_id": "file_id"}}),
        ("/api/v1/batches", {"input_file_id": "file_id"}),
        ("/api/v1/jobs", {"pipeline": "speak", "source": {"text": "hello"}, "webhook_ids": ["webhook_id"]}),
        ("/v1/batches", {"input_file_id": "file_id", "endpoint": "/v1/audio/speech", "completion_window": "24h"}),
    ],
)
def test_what_is_named_in_a_body_must_be_ones_own(api: ApiServer, path: str, body: dict[str, Any]) -> None:
    """Files and webhooks of another tenant that a body names are answered as those that are not there."""
    if path not in api_description(api)["paths"]:
        pytest.skip(f"{path} is not served")
    ids = give(api.database, BlobStore(api.folder / "state" / "blobs"), "first")
    text = json.dumps(body)
    for name, one in ids.items():
        text = text.replace(f'"{name}"', json.dumps(one)) if f': "{name}"' in text or f'["{name}"' in text else text
    for key in ("file_id", "input_file_id", "webhook_ids"):
        text = text.replace(f"{json.dumps(ids.get(key, key))}:", f'"{key}":')
    nowhere = re.sub(r"(file|wh)_[0-9a-f]{32}", lambda found: f"{found[1]}_{'0' * 32}", text)
    with api.client(api.key("second")) as other:
        answers = [
            other.post(path, content=one, headers={"content-type": "application/json"}) for one in (text, nowhere)
        ]
    assert [answer.status_code for answer in answers] in ([404, 404], [400, 400]), [one.text for one in answers]
    assert answers[0].json()["code"] == answers[1].json()["code"]


def test_two_tenants_are_told_apart_by_the_ring_itself(sqlite_url: str) -> None:
    """A key of one tenant is never taken for one of another, whatever was asked before."""
    database = Database(sqlite_url)
    settings = Settings.from_env({"HOME": "/nowhere"})
    context = Context(settings, database, BlobStore(Path("/nowhere")))
    one, first = keys.create_key(database, NewKey(tenant="one"))
    two, second = keys.create_key(database, NewKey(tenant="two"))
    for key, text in ((one, first), (two, second), (one, first)):
        parts = keys.split_key(text)
        assert parts is not None
        context.keys.look_up(parts[0])
        found = context.keys.opened_by(*parts)
        assert found is not None
        assert found.tenant == key.tenant
    parts = keys.split_key(first)
    assert parts is not None
    assert context.keys.opened_by(two.id, parts[1]) is None
    context.close()


def test_problem_types_are_explained(api: ApiServer, admin: httpx.Client) -> None:
    """The `type` of a problem is an address of this service that explains it."""
    body = admin.get("/api/v1/keys/nobodys0").json()
    assert body["status"] == 404
    explained = admin.get(body["type"]).json()
    assert explained["code"] == body["code"]
    assert json.dumps(explained)
    assert admin.get("/problems/none").status_code == 404
