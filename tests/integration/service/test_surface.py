"""What every answer has, and what the service does with requests that are not meant well."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers.api import ApiServer
from tests.servers.valkey import Valkey
from voicejobs import __version__
from voicejobs.api.openapi import operations

ALWAYS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "voicejobs-version": __version__,
    "x-content-type-options": "nosniff",
}
"""The snapshot: these headers with these values are in every answer."""
OWN_VALUES = {"/docs": {"content-security-policy"}}
MIB = 1 << 20
CHECKS = ("database", "broker", "webhooks")


@pytest.fixture(scope="module")
def strict(valkey: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Return a service with small limits, an allowed site, a named host and HSTS."""
    settings = {
        "api_header_wait_s": 1.0,
        "api_body_wait_s": 1.0,
        "api_requests_per_minute": 120,
        "api_concurrency": 2,
        "api_hosts": "voice.example.org",
        "api_origins": "https://app.example.org",
        "api_hsts_s": 3600,
    }
    with ApiServer(tmp_path_factory.mktemp("strict"), valkey.broker_url(13), **settings) as server:
        server.first_key = server.key()
        yield server


def raw(api: ApiServer, sent: bytes, *, wait_s: float = 10.0) -> bytes:
    """Send bytes, and return all that comes back until the service closes or is silent for long."""
    host, port = api.url.removeprefix("http://").split(":")
    with closing(socket.create_connection((host, int(port)), timeout=wait_s)) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: _received(connection), b""))


def check(answer: httpx.Response, path: str = "") -> None:
    """Check the headers that every answer has."""
    for name, value in ALWAYS.items():
        if name not in OWN_VALUES.get(path, ()):
            assert answer.headers[name] == value, (path, name)
    assert len(answer.headers["x-request-id"]) == 32
    assert "server" not in answer.headers
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_every_answer_has_the_headers(api: ApiServer, admin: httpx.Client) -> None:
    """Answers of all operations, and those to what is no operation, carry the same headers and no banner."""
    whole = admin.get("/openapi.json").json()
    for path, method, _ in operations(whole):
        if "{" not in path and "events" not in path:
            check(admin.request(method, path), path)
    with api.client() as stranger:
        wanted = [("GET", "/nothing", 404), ("POST", "/healthz", 405), ("GET", "/api/v1/keys", 401)]
        for method, path, status in [*wanted, ("BREW", "/healthz", 405), ("GET", "/docs/style.css", 200)]:
            answer = stranger.request(method, path)
            check(answer)
            assert answer.status_code == status


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/api/v1/nothing", None, 404, "no_such_path"),
        ("GET", "/api/v1/keys/", None, 404, "no_such_path"),
        ("PUT", "/api/v1/limits", None, 405, "method_not_allowed"),
        ("GET", "/api/v1/keys?limit=0", None, 422, "invalid_request"),
        ("POST", "/api/v1/keys", b"{", 422, "invalid_request"),
        ("POST", "/api/v1/keys", b"", 422, "invalid_request"),
        ("POST", "/api/v1/keys", b'{"scopes": ["all"]}', 400, "bad_option"),
        ("POST", "/api/v1/keys", b'{"scopes": ["admin"], "more": 1}', 422, "invalid_request"),
        ("POST", "/api/v1/keys", b'{"scopes": ["admin"], "name": "\\ud800"}', 422, "invalid_request"),
        ("POST", "/api/v1/keys", b"[" * 100_000, 400, "bad_option"),
        ("GET", "/api/v1/keys/nobodys0", None, 404, "no_such_record"),
        ("GET", "/api/v1/keys/%00", None, 400, "bad_option"),
        ("GET", "/api/v1/keys?after=%00", None, 400, "bad_option"),
        ("GET", "/api/v1/usage?since=5&until=4", None, 400, "bad_option"),
        ("GET", "/api/v1/usage?since=nan", None, 422, "invalid_request"),
        ("POST", "/api/v1/keys", b" " * (4 * MIB + 1), 413, "too_large"),
    ],
)
def test_every_error_is_a_problem(
    admin: httpx.Client, method: str, path: str, body: bytes | None, status: int, code: str
) -> None:
    """Errors of routes, framework and parser have one form, with the member that OpenAI's clients read."""
    headers = {"content-type": "application/json"} if body is not None else {}
    answer = admin.request(method, path, content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert set(problem["error"]) == {"message", "type", "param", "code"}
    assert problem["error"]["code"] == code
    assert problem["error"]["message"] == problem["detail"]
    assert problem["status"] == status
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert problem["type"] == f"/problems/{code}"
    assert ("allow" in answer.headers) == (status == 405)


def test_a_fault_names_its_place_and_not_the_value(admin: httpx.Client) -> None:
    """422 lists each fault with its pointer, and repeats nothing of what was sent."""
    answer = admin.post("/api/v1/keys", json={"scopes": [], "name": {"secret": "canary-4711"}})
    assert {fault["pointer"] for fault in answer.json()["errors"]} == {"#/scopes", "#/name"}
    assert "canary" not in answer.text


def test_trace_ids_come_in_and_go_out(api: ApiServer) -> None:
    """`traceparent` and `x-request-id` are taken where they are 32 digits, come back, and are in the log."""
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with api.client() as client:
        for headers in (
            {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"},
            {"x-request-id": trace},
            {"x-request-id": "4BF92F35-77B3-4DA6-A3CE-929D0E0E4736"},
        ):
            assert client.get("/healthz", headers=headers).headers["x-request-id"] == trace
        for odd in ("", "short", "0" * 33, trace + "\tx"):
            given = client.get("/healthz", headers={"x-request-id": odd}).headers["x-request-id"]
            assert given not in {odd, trace}
    lines = [json.loads(line) for line in api.log.splitlines() if trace in line]
    assert {line["trace_id"] for line in lines} == {trace}
    assert {line["route"] for line in lines} == {"/healthz"}


HOSTS = [
    (b"host: evil.example", b"421"),
    (b"host: 127.0.0.1.evil.example", b"421"),
    (b"host: localhost@evil.example", b"421"),
    (b"host: localhost/../x", b"421"),
    (b"host: localhost\thost", b"421"),
    (b"host: http://localhost", b"421"),
    (b"host: [::1", b"421"),
    (b"host: ", b"421"),
    (b"host: localhost:80:80", b"421"),
    (b"host: localhost\r\nhost: evil.example", b"400"),
    (b"x-forwarded-host: localhost\r\nhost: evil.example", b"421"),
    (b"x: y", b"400"),
    (b"host: localhost", b"401"),
    (b"host: LOCALHOST:1234", b"401"),
    (b"host: localhost.:8000", b"401"),
    (b"host: [::1]:8000", b"401"),
    (b"host: 127.0.0.1", b"401"),
]


@pytest.mark.parametrize(("header", "status"), HOSTS)
def test_hosts_that_are_not_ours_are_refused(api: ApiServer, header: bytes, status: bytes) -> None:
    """By a raw socket: other hosts, odd ones and two at once never reach a route, whatever the path says."""
    answer = raw(api, b"GET /api/v1/limits HTTP/1.1\r\n" + header + b"\r\nconnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 " + status), answer


@pytest.mark.parametrize(
    "line",
    [
        b"GET http://localhost/healthz/../api/v1/limits HTTP/1.1",
        b"GET //healthz HTTP/1.1",
        b"GET /healthz%2f..%2fapi/v1/limits HTTP/1.1",
        b"GET /healthz/../api/v1/limits HTTP/1.1",
        b"GET /api/v1/limits?/healthz HTTP/1.1",
        b"GET /api/v1/limits#/healthz HTTP/1.1",
        b"GET /api/v1/limits;/healthz HTTP/1.1",
        b"GET /API/V1/limits HTTP/1.1",
    ],
)
def test_no_spelling_of_a_path_opens_it(api: ApiServer, line: bytes) -> None:
    """A path in another spelling is refused: who may call is decided by the route, not by the text of the path."""
    answer = raw(api, line + b"\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    assert answer.split(b" ")[1] in {b"400", b"401", b"404"}, answer


def test_named_hosts_and_sites_are_taken(strict: ApiServer) -> None:
    """A host of the setting is taken, a site of the setting gets CORS headers, and HSTS is said where it is set."""
    with strict.client(strict.first_key, headers={"host": "voice.example.org"}) as client:
        origin = {"origin": "https://app.example.org"}
        answer = client.post("/api/v1/keys", json={"scopes": ["metrics"]}, headers=origin)
        assert answer.status_code == 201
        assert answer.headers["access-control-allow-origin"] == origin["origin"]
        assert answer.headers["strict-transport-security"] == "max-age=3600"
        asked = {**origin, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        assert client.options("/api/v1/keys", headers=asked).status_code == 200
        other = {**asked, "origin": "https://evil.example"}
        assert "access-control-allow-origin" not in client.options("/api/v1/keys", headers=other).headers


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "http://127.0.0.1.evil.example"]
)
def test_pages_of_other_sites_change_nothing(admin: httpx.Client, origin: str) -> None:
    """What would change something is refused where a page of another site asks; reading has no CORS headers."""
    answer = admin.post("/api/v1/keys", json={"scopes": ["metrics"]}, headers={"origin": origin})
    assert (answer.status_code, answer.json()["code"]) == (403, "origin_refused")
    check(admin.get("/api/v1/limits", headers={"origin": origin}))
    own = admin.post("/api/v1/keys", json={"scopes": ["metrics"]}, headers={"origin": str(admin.base_url).rstrip("/")})
    assert own.status_code == 201


def test_a_body_without_end_is_cut_off(api: ApiServer) -> None:
    """Chunks beyond the ceiling are answered with 413 before anything is parsed, and memory stays flat."""
    host, port = api.url.removeprefix("http://").split(":")
    before = api.process.memory_info().rss
    for _ in range(3):
        with closing(socket.create_connection((host, int(port)), timeout=20)) as connection:
            head = f"POST /api/v1/keys HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {api.first_key}\r\n"
            connection.sendall(f"{head}transfer-encoding: chunked\r\ncontent-type: application/json\r\n\r\n".encode())
            sent = 0
            try:
                while sent < 64 * MIB:
                    connection.sendall(b"100000\r\n" + b" " * MIB + b"\r\n")
                    sent += MIB
            except OSError:
                pass
            answer = b"".join(iter(lambda: _received(connection), b""))
            assert answer.startswith(b"HTTP/1.1 413"), answer[:200]
            assert sent < 64 * MIB
    assert api.process.memory_info().rss - before < 40 * MIB


def _received(connection: socket.socket) -> bytes:
    """Return what comes, nothing once the other side has cut the line."""
    try:
        return connection.recv(65_536)
    except OSError:
        return b""


@pytest.mark.parametrize("length", [b"99999999999", b"-1", b"1e3", b"18446744073709551617", b"4, 5"])
def test_false_lengths_are_refused(api: ApiServer, length: bytes) -> None:
    """A length that is none, or beyond the ceiling, is refused before a byte of the body comes."""
    head = b"POST /api/v1/keys HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer " + api.first_key.encode()
    answer = raw(api, head + b"\r\ncontent-type: application/json\r\ncontent-length: " + length + b"\r\n\r\n")
    assert answer.split(b" ")[1] in {b"400", b"413"}, answer


def test_slow_headers_and_bodies_are_cut_off(strict: ApiServer) -> None:
    """A hundred connections that send a byte now and then are closed in time, and others are served meanwhile."""
    host, port = strict.url.removeprefix("http://").split(":")
    slow = [socket.create_connection((host, int(port)), timeout=10) for _ in range(100)]
    for connection in slow:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ")
    with strict.client(strict.first_key) as client:
        since = time.monotonic()
        assert client.get("/healthz").status_code == 200
        assert time.monotonic() - since < 1
        ended = [_received(connection) for connection in slow]
        assert ended == [b""] * len(slow)
        assert time.monotonic() - since < 5
    for connection in slow:
        connection.close()
    head = f"POST /api/v1/keys HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {strict.first_key}\r\n"
    with closing(socket.create_connection((host, int(port)), timeout=10)) as connection:
        connection.sendall(f"{head}content-type: application/json\r\ncontent-length: 100\r\n\r\n{{".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_a_second_request_may_not_be_slow_either(strict: ApiServer) -> None:
    """On a connection that had an answer, headers that do not come are cut off as well."""
    host, port = strict.url.removeprefix("http://").split(":")
    with closing(socket.create_connection((host, int(port)), timeout=10)) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = b""
        while not answer.endswith(b"}"):
            answer += connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        since = time.monotonic()
        assert _received(connection) == b""
        assert time.monotonic() - since < 5


def test_methods_that_nobody_knows_are_counted_as_one(api: ApiServer, admin: httpx.Client) -> None:
    """Strangers cannot make the service keep a count for each word that they invent."""
    with api.client() as client:
        for number in range(3):
            assert client.request(f"INVENTED{number}", "/healthz").status_code == 405
    page = admin.get("/metrics").text
    assert "INVENTED" not in page
    assert 'method="(other)"' in page


def test_large_headers_are_refused(api: ApiServer) -> None:
    """Headers of more than 32 KiB end with 400."""
    answer = raw(api, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 300_000 + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 4") or answer == b""


def test_a_key_that_asks_too_often_waits(strict: ApiServer) -> None:
    """Beyond its bucket a key gets 429 with a time to wait, which is enough; other keys notice nothing."""
    with strict.client(strict.key("busy", "jobs:read")) as client:
        answers = [client.get("/api/v1/limits") for _ in range(30)]
        assert answers[0].headers["x-ratelimit-limit-requests"] == "20"
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert 1 <= int(refused.headers["retry-after"]) <= 120
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        with strict.client(strict.key("calm", "jobs:read")) as other:
            assert other.get("/api/v1/limits").status_code == 200
        time.sleep(int(refused.headers["retry-after"]))
        assert client.get("/api/v1/limits").status_code == 200


@pytest.mark.parametrize("rate", ["1e-320", "-1", "NaN", "Infinity", "1e300", "9" * 400])
def test_a_key_with_a_rate_that_is_none_is_not_made(admin: httpx.Client, rate: str) -> None:
    """What cannot be a rate is refused as a fault of the request, whichever part of the service sees it."""
    text = f'{{"scopes": ["jobs:read"], "limits": {{"requests_per_minute": {rate}}}}}'
    answer = admin.post("/api/v1/keys", content=text, headers={"content-type": "application/json"})
    assert answer.status_code in {400, 422}, answer.text
    assert "requests_per_minute" in answer.json()["detail"]


def test_a_key_has_so_many_requests_at_once(strict: ApiServer) -> None:
    """With two requests under way the third of a key gets 429, and when one ends there is room again."""
    host, port = strict.url.removeprefix("http://").split(":")
    key = strict.key("wide", limits={"requests_per_minute": 0})
    head = f"POST /api/v1/keys HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n"
    waiting = [socket.create_connection((host, int(port)), timeout=10) for _ in range(2)]
    for connection in waiting:
        connection.sendall(f"{head}content-type: application/json\r\ncontent-length: 100\r\n\r\n{{".encode())
    time.sleep(0.2)
    with strict.client(key) as client:
        assert client.get("/api/v1/limits").status_code == 429
        for connection in waiting:
            connection.close()
        time.sleep(0.2)
        assert client.get("/api/v1/limits").json()["requests"]["running"] == 1


def test_a_public_address_is_not_served_by_accident(valkey: Valkey, tmp_path: Path) -> None:
    """Without TLS, or without a key, a public address is refused unless that is asked for, and then a key is needed."""
    from tests.servers.process import ServerFailedError

    with pytest.raises(ServerFailedError, match="open to the network"):
        ApiServer(tmp_path / "refused", valkey.broker_url(12), "--address", "0.0.0.0").start()
    with ApiServer(tmp_path / "asked", valkey.broker_url(12), "--address", "0.0.0.0", "--allow-public") as server:
        address = server.url.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{address}/api/v1/limits", trust_env=False).status_code == 401
        assert httpx.get(f"{address}/healthz", headers={"host": "any.example"}, trust_env=False).status_code == 200


def test_readiness_tells_of_broker_and_database(start_valkey: Any, tmp_path: Path) -> None:
    """/readyz turns to 503 when the broker goes, names it without its address, and back again; /healthz stays."""
    broker = start_valkey(tcp=True)
    with ApiServer(tmp_path / "api", broker.broker_url(1)) as server, server.client() as client:
        assert client.get("/readyz").json() == {"status": "ok", "checks": dict.fromkeys(CHECKS, "ok")}
        broker.stop()
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["checks"] == {**dict.fromkeys(CHECKS, "ok"), "broker": "unavailable"}
        assert client.get("/healthz").status_code == 200
        broker.start()
        assert client.get("/readyz").status_code == 200
        assert server.stop() == 0
