"""Webhooks of a running service: what receivers get, what becomes of those that fail, and a service that is killed."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI
from sqlalchemy import update
from standardwebhooks import Webhook, WebhookVerificationError

from tests import rows
from tests.servers.api import ApiServer
from tests.servers.http import HttpServer, Reply, Request
from tests.servers.valkey import Valkey
from tests.waiting import wait_until
from voicejobs.api.server import ApiOptions, run
from voicejobs.api.webhooks import MOST_TESTS, MOST_TESTS_OF_ONE
from voicejobs.errors import BadOption
from voicejobs.notify import SENDERS, Notifier
from voicejobs.outbound.signing import SECRET_FILE
from voicejobs.receivers import Receivers
from voicejobs.settings import Settings
from voicejobs.store import jobs as store
from voicejobs.store import webhooks as rows_of_hooks
from voicejobs.store.database import Database
from voicejobs.store.schema import deliveries, webhooks
from voicejobs.store.webhooks import TYPES

BROKER_DATABASE = 13
TIMEOUT_S = 0.8
HOOKS = "/api/v1/webhooks"


class Receiver:
    """Receive messages of webhooks; `answer` says what to do with the next ones."""

    def __init__(self) -> None:
        self.answer: Callable[[Request], Reply] = lambda request: Reply(204)
        self.server = HttpServer(self._answer)

    def _answer(self, request: Request) -> Reply:
        """Answer as the test wants at this moment."""
        return self.answer(request)

    @property
    def url(self) -> str:
        """Return where messages go."""
        return f"{self.server.url}/hook"

    def got(self, path: str = "/hook") -> list[Request]:
        """Return what came under a path."""
        return [request for request in list(self.server.requests) if request.path == path]

    def wait(self, count: int, path: str = "/hook") -> list[Request]:
        """Wait for so many messages and return all."""
        wait_until(lambda: len(self.got(path)) >= count, what=f"{count} messages")
        return self.got(path)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Return a receiver on this machine."""
    found = Receiver()
    with found.server:
        yield found


def serving(folder: Path, valkey: Valkey, timeout_s: float) -> ApiServer:
    """Return a service that may tell receivers on this machine, and waits so long for each of them."""
    return ApiServer(
        folder,
        valkey.broker_url(BROKER_DATABASE),
        webhook_http=1,
        webhook_ports="*",
        webhook_networks="127.0.0.1/32",
        webhook_timeout_s=timeout_s,
        log_level="DEBUG",
    )


@pytest.fixture(scope="module")
def api(valkey: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Return a service that does not wait long."""
    with serving(tmp_path_factory.mktemp("webhooks"), valkey, TIMEOUT_S) as server:
        server.first_key = server.key("first", "webhooks")
        yield server


@pytest.fixture
def client(api: ApiServer) -> Iterator[httpx.Client]:
    """Return a client of the first tenant; its webhooks are removed afterwards."""
    with api.client(api.first_key) as found:
        yield found
        for one in found.get(HOOKS, params={"limit": 100}).json()["data"]:
            found.delete(f"{HOOKS}/{one['id']}").raise_for_status()


def make(client: httpx.Client, url: str, *types: str) -> dict[str, Any]:
    """Make a webhook."""
    answer = client.post(HOOKS, json={"url": url, "types": list(types)})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def end_job(database: Database, tenant: str = "first", *, request: Any = None) -> str:
    """Insert a watched job that stands alone, and cancel it."""
    job = rows.new_job(watched=True, request=request)
    with database.begin() as connection:
        batch_id = store.insert_batch(
            connection, store.NewBatch("bulk", "", {}, tenant=tenant, kind="single", watched=True)
        )
        store.insert_jobs(connection, batch_id, [job], tenant=tenant)
        store.seal_batch(connection, batch_id)
    database.run(lambda connection: store.cancel_jobs(connection, job_id=job.id))
    return job.id


def log_of(client: httpx.Client, webhook_id: str) -> list[dict[str, Any]]:
    """Return the log of a webhook."""
    return list(client.get(f"{HOOKS}/{webhook_id}/deliveries").json()["data"])


def wait_for_state(client: httpx.Client, webhook_id: str, status: str, attempts: int = 1) -> dict[str, Any]:
    """Wait until the newest delivery has a state after so many attempts, and return it."""

    def found() -> bool:
        newest = log_of(client, webhook_id)[:1]
        return bool(newest) and newest[0]["status"] == status and newest[0]["attempts"] >= attempts

    wait_until(found, what=status)
    return log_of(client, webhook_id)[0]


def make_due(database: Database) -> None:
    """Let what is to be tried again be due now."""
    with database.begin() as connection:
        connection.execute(update(deliveries).where(deliveries.c.lease_until.is_(None)).values(next_at=0.0))
        connection.execute(update(webhooks).values(paused_until=None))


def opened(secret: str, request: Request) -> dict[str, Any]:
    """Return a message that the reference library has verified."""
    return dict(Webhook(secret).verify(request.body.decode(), request.headers))


def test_the_end_of_a_job_is_told_and_signed(api: ApiServer, client: httpx.Client, receiver: Receiver) -> None:
    """A receiver hears of the end of a job within seconds, in a form that two libraries of others verify."""
    hook = make(client, receiver.url)
    job_id = end_job(api.database)
    (request,) = receiver.wait(1)
    assert opened(hook["secret"], request)["data"]["id"] == job_id
    with OpenAI(api_key="none", webhook_secret=hook["secret"]) as theirs:
        event = theirs.webhooks.unwrap(request.body.decode(), request.headers)
    assert str(event.type) == "job.cancelled"
    assert request.headers["content-type"] == "application/json"
    delivery = wait_for_state(client, hook["id"], "delivered")
    assert delivery["event_id"] == request.headers["webhook-id"] == json.loads(request.body)["id"]
    assert delivery["status_code"] == 204


def test_the_secret_is_shown_once(api: ApiServer, client: httpx.Client, receiver: Receiver) -> None:
    """No later answer, no row and no log holds the secret of a webhook."""
    hook = make(client, receiver.url)
    shown = [client.get(f"{HOOKS}/{hook['id']}"), client.get(HOOKS), client.patch(f"{HOOKS}/{hook['id']}", json={})]
    for answer in shown:
        assert "secret" not in answer.text
    client.post(f"{HOOKS}/{hook['id']}/test").raise_for_status()
    raw = hook["secret"].removeprefix("whsec_")
    state = api.folder / "state"
    for path in [api.log_path, *state.glob("voicejobs.db*")]:
        assert raw.encode() not in path.read_bytes()
    assert (state / "webhook_secret").read_bytes() not in api.log_path.read_bytes()


def test_after_a_rotation_both_secrets_sign(api: ApiServer, client: httpx.Client, receiver: Receiver) -> None:
    """For a day messages carry two signatures; then only the new one."""
    old = make(client, receiver.url)
    new = client.post(f"{HOOKS}/{old['id']}/rotate-secret").json()
    assert new["secret"] != old["secret"]
    client.post(f"{HOOKS}/{old['id']}/test").raise_for_status()
    (request,) = receiver.wait(1)
    for secret in (old["secret"], new["secret"]):
        assert opened(secret, request)["type"] == "webhook.test"
    with api.database.begin() as connection:
        connection.execute(update(webhooks).values(rotated_at=time.time() - 86_401))
    client.post(f"{HOOKS}/{old['id']}/test").raise_for_status()
    request = receiver.wait(2)[1]
    opened(new["secret"], request)
    with pytest.raises(WebhookVerificationError):
        opened(old["secret"], request)


@pytest.mark.parametrize("how", ["fails", "hangs", "redirects", "answers nonsense"])
def test_a_receiver_that_fails_is_told_again(
    api: ApiServer, client: httpx.Client, receiver: Receiver, how: str
) -> None:
    """A message that a receiver did not take comes again, with the same id and body and a new time."""
    ended = threading.Event()
    answers: dict[str, Callable[[Request], Reply]] = {
        "fails": lambda request: Reply(500),
        "hangs": lambda request: Reply(200 if ended.wait(5) else 500),
        "redirects": lambda request: Reply(302, headers={"Location": f"{receiver.server.url}/elsewhere"}),
        "answers nonsense": lambda request: Reply(999),
    }
    receiver.answer = answers[how]
    hook = make(client, receiver.url)
    end_job(api.database)
    wait_for_state(client, hook["id"], "pending")
    wait_until(lambda: log_of(client, hook["id"])[0]["error"], what="the outcome")
    failed = log_of(client, hook["id"])[0]
    assert failed["next_attempt_at"] > failed["created_at"]
    ended.set()
    receiver.answer = lambda request: Reply(200)
    make_due(api.database)
    done = wait_for_state(client, hook["id"], "delivered")
    requests = receiver.got()
    assert done["attempts"] == len(requests)
    assert len({request.headers["webhook-id"] for request in requests}) == 1
    assert len({request.body for request in requests}) == 1
    for request in requests:
        opened(hook["secret"], request)
    assert receiver.got("/elsewhere") == []


def test_the_status_decides(api: ApiServer, client: httpx.Client, receiver: Receiver) -> None:
    """A receiver that has said 200 has the message, though the rest of its answer never comes."""
    receiver.answer = lambda request: Reply(200, body=[b"x"], broken=True)
    hook = make(client, receiver.url)
    end_job(api.database)
    assert wait_for_state(client, hook["id"], "delivered")["attempts"] == 1


def test_a_receiver_that_is_gone_is_told_nothing_more(api: ApiServer, client: httpx.Client, receiver: Receiver) -> None:
    """410 disables a webhook, and it says so; by hand it is enabled again, and the message sent once more."""
    receiver.answer = lambda request: Reply(410)
    hook = make(client, receiver.url)
    end_job(api.database)
    failed = wait_for_state(client, hook["id"], "failed")
    shown = client.get(f"{HOOKS}/{hook['id']}").json()
    assert (shown["status"], failed["status_code"]) == ("disabled", 410)
    assert "410" in shown["reason"]
    again = f"{HOOKS}/{hook['id']}/deliveries/{failed['id']}/redeliver"
    refused = client.post(again)
    assert (refused.status_code, refused.headers["x-should-retry"]) == (409, "false")
    receiver.answer = lambda request: Reply(200)
    assert client.patch(f"{HOOKS}/{hook['id']}", json={"enabled": True}).json()["status"] == "active"
    assert client.post(again).status_code == 202
    wait_for_state(client, hook["id"], "delivered")
    first, second = receiver.got()
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body


def test_a_busy_receiver_is_left_alone(api: ApiServer, client: httpx.Client, receiver: Receiver) -> None:
    """Retry-After holds back everything that is owed to a webhook."""
    receiver.answer = lambda request: Reply(429, headers={"Retry-After": "120"})
    hook = make(client, receiver.url)
    end_job(api.database)
    wait_until(lambda: client.get(f"{HOOKS}/{hook['id']}").json()["paused_until"], what="the pause")
    end_job(api.database)
    wait_until(lambda: len(log_of(client, hook["id"])) == 2, what="the second delivery")
    time.sleep(1.2)
    assert len(receiver.got()) == 1


def test_a_test_is_sent_at_once_and_told(client: httpx.Client, receiver: Receiver) -> None:
    """The answer to a test says what the receiver made of it; it is not tried again."""
    hook = make(client, receiver.url)
    assert client.post(f"{HOOKS}/{hook['id']}/test").json()["status"] == "delivered"
    receiver.answer = lambda request: Reply(503)
    told = client.post(f"{HOOKS}/{hook['id']}/test").json()
    assert (told["status"], told["status_code"], told["type"]) == ("failed", 503, "webhook.test")
    assert client.get(f"{HOOKS}/{hook['id']}").json()["status"] == "active"
    assert log_of(client, hook["id"])[0]["id"] == told["id"]


def test_so_many_tests_run_at_once_and_the_service_answers_meanwhile(
    valkey: Valkey, tmp_path: Path, receiver: Receiver
) -> None:
    """A receiver that takes its time holds a few threads, those of a tenant fewer: further tests come later."""
    held = threading.Event()
    receiver.answer = lambda request: Reply(204 if held.wait(60) else 500)
    with serving(tmp_path, valkey, 60.0) as api, ThreadPoolExecutor(MOST_TESTS) as pool:
        tested = []
        for tenant in ("first", "second", "third"):
            key = api.key(tenant, "webhooks")
            with api.client(key) as client:
                tested.append((key, f"{HOOKS}/{make(client, receiver.url)['id']}"))

        def test(key: str, address: str) -> int:
            with api.client(key) as own:
                return own.post(f"{address}/test").status_code

        running = []
        try:
            for one in tested[:2]:
                running += [pool.submit(test, *one) for _ in range(MOST_TESTS_OF_ONE)]
                receiver.wait(len(running))
                assert test(*one) == 429
            assert test(*tested[2]) == 429
            with api.client(tested[2][0]) as client:
                assert client.get(tested[2][1]).status_code == 200
        finally:
            held.set()
        assert [one.result() for one in running] == [200] * MOST_TESTS


def test_slow_receivers_of_one_tenant_hold_up_no_other(valkey: Valkey, tmp_path: Path, receiver: Receiver) -> None:
    """However many receivers of a tenant take their time, it has few messages under way, and another's goes out."""
    held = threading.Event()
    receiver.answer = lambda request: Reply(204 if request.path == "/other" or held.wait(60) else 500)
    with serving(tmp_path, valkey, 60.0) as api:
        with api.client(api.key("many", "webhooks")) as client:
            for _ in range(SENDERS + 4):
                make(client, receiver.url)
        with api.client(api.key("few", "webhooks")) as client:
            make(client, f"{receiver.server.url}/other")
        try:
            for _ in range(3):
                end_job(api.database, "many")
            most = Settings.from_env(api.variables).webhook_tenant_messages
            receiver.wait(most)
            mine = end_job(api.database, "few")
            (request,) = receiver.wait(1, "/other")
            assert json.loads(request.body)["data"]["id"] == mine
            assert len(receiver.got()) == most
        finally:
            held.set()


def test_without_a_secret_the_operator_is_told(valkey: Valkey, tmp_path: Path, receiver: Receiver) -> None:
    """Where nothing can be signed: 503 with its own code, a line in the log, readiness; what is owed waits unharmed."""
    api = serving(tmp_path, valkey, 5.0)
    secret = tmp_path / "state" / SECRET_FILE
    secret.write_text("s" * 64)
    secret.chmod(0o644)
    hook_id = api.database.run(lambda one: rows_of_hooks.add(one, tenant="first", url=receiver.url, types=TYPES))
    with api, api.client(api.key("first", "webhooks")) as client:
        assert api.log.count("webhooks cannot be signed") == 1
        for path in ("", f"/{hook_id}/rotate-secret", f"/{hook_id}/test"):
            answer = client.post(f"{HOOKS}{path}", json=None if path else {"url": receiver.url})
            assert (answer.status_code, answer.json()["code"]) == (503, "secret_unusable"), path
            assert answer.headers["retry-after"]
            assert SECRET_FILE not in answer.text
        told = client.get("/readyz")
        assert (told.status_code, told.json()["status"]) == (200, "degraded")
        assert told.json()["checks"] == {"database": "ok", "broker": "ok", "webhooks": "unavailable"}
        end_job(api.database)
        wait_until(lambda: "secret_unusable" in api.log.partition("cannot look after webhooks")[2],
                   what=lambda: api.log[-2000:])  # fmt: skip
        (owed,) = log_of(client, hook_id)
        assert (owed["status"], owed["attempts"]) == ("pending", 0)
        secret.chmod(0o600)
        assert wait_for_state(client, hook_id, "delivered")["attempts"] == 1
        assert client.get(f"{HOOKS}/{hook_id}").json()["rotated_at"] is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("webhook_secret", "short"),
        ("webhook_ports", "http"),
        ("source_url_networks", "lan"),
        ("source_path_roots", "relative"),
        ("api_aliases", "whisper-1"),
        ("api_voices", "alloy="),
    ],
)
def test_a_setting_that_cannot_be_right_is_told_at_start(name: str, value: str) -> None:
    """Who calls cannot mend a setting, and is not told of it: the service does not start, and names it."""
    settings = Settings.from_env({"HOME": "/nowhere", f"VOICEJOBS_{name.upper()}": value})
    with pytest.raises(BadOption, match=f"VOICEJOBS_{name.upper()}"):
        run(ApiOptions(), settings)


@pytest.mark.parametrize(
    "url",
    ["http://10.0.0.1/", "http://[::1]:9/", "http://0.0.0.0:9/", "http://2130706433:9/", "http://user:pw@127.0.0.1:9/",
     "ftp://127.0.0.1/", "http://169.254.169.254/latest/", "not a url", ""],
)  # fmt: skip
def test_an_address_that_may_not_be_told_is_refused(client: httpx.Client, url: str) -> None:
    """A webhook on a private address is not made, and the answer names the parameter and not what is behind it."""
    answer = client.post(HOOKS, json={"url": url})
    assert (answer.status_code, answer.json()["code"]) == (400, "address_refused")
    assert answer.json()["error"]["param"] == "url"
    hook = make(client, "https://receiver.example/hook")
    assert client.patch(f"{HOOKS}/{hook['id']}", json={"url": url}).status_code == 400


def test_a_name_that_turns_private_is_not_told(client: httpx.Client) -> None:
    """A name is looked at at every attempt: one that leads to this machine by another address is refused."""
    hook = make(client, "http://localhost.localdomain:9/hook")
    told = client.post(f"{HOOKS}/{hook['id']}/test").json()
    assert told["status"] == "failed"
    assert told["status_code"] is None


def test_webhooks_are_those_of_a_tenant(api: ApiServer, client: httpx.Client, receiver: Receiver) -> None:
    """Another tenant finds none of them, hears of nothing, and needs the scope for its own."""
    hook = make(client, receiver.url)
    with api.client(api.key("second", "webhooks")) as other:
        assert other.get(HOOKS).json()["data"] == []
        for method, path in (
            ("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/test"), ("POST", "/rotate-secret"),
            ("GET", "/deliveries"), ("POST", "/deliveries/dlv_1/redeliver"),
        ):  # fmt: skip
            body: dict[str, str] | None = {} if method == "PATCH" else None
            assert other.request(method, f"{HOOKS}/{hook['id']}{path}", json=body).status_code == 404
    end_job(api.database, tenant="second")
    mine = end_job(api.database)
    (request,) = receiver.wait(1)
    assert json.loads(request.body)["data"]["id"] == mine
    with api.client(api.key("first", "jobs:read")) as weak:
        assert weak.get(HOOKS).status_code == 403


def test_a_request_may_name_who_hears(api: ApiServer, client: httpx.Client, receiver: Receiver) -> None:
    """Where a job names webhooks, no other hears of it."""
    make(client, f"{receiver.server.url}/all")
    named = make(client, f"{receiver.server.url}/named")
    end_job(api.database, request={"webhook_ids": [named["id"]]})
    receiver.wait(1, "/named")
    last = end_job(api.database)
    assert [json.loads(request.body)["data"]["id"] for request in receiver.wait(1, "/all")] == [last]


def test_types_are_checked_and_listed(client: httpx.Client) -> None:
    """Names of types may mean several; one that there is not is refused."""
    hook = make(client, "https://receiver.example/hook", "job.*", "batch.completed")
    assert hook["types"] == ["job.succeeded", "job.failed", "job.cancelled", "job.expired", "batch.completed"]
    assert client.post(HOOKS, json={"url": "https://a.example/", "types": ["job.begun"]}).status_code == 400
    assert client.post(HOOKS, json={"url": "https://a.example/", "type": []}).status_code == 422
    pages = client.get(HOOKS, params={"limit": 1})
    assert pages.json()["has_more"] is False


def test_two_that_send_share_the_work(api: ApiServer, client: httpx.Client, receiver: Receiver) -> None:
    """A second process on the same database doubles nothing."""
    make(client, receiver.url)
    settings = Settings.from_env(api.variables)
    database = Database(settings.effective_database_url)
    second = Notifier(Receivers(settings, database), look_every_s=0.05)
    second.start()
    try:
        jobs = {end_job(api.database) for _ in range(25)}
        requests = receiver.wait(25)
        time.sleep(0.5)
    finally:
        second.close()
        database.close()
    assert {json.loads(request.body)["data"]["id"] for request in requests} == jobs
    assert len(receiver.got()) == len({request.headers["webhook-id"] for request in receiver.got()}) == 25


def test_a_service_that_is_killed_tells_again_under_the_same_id(
    valkey: Valkey, tmp_path: Path, receiver: Receiver
) -> None:
    """Killed in the middle of a delivery, and between events and deliveries: all arrive, each under one id."""
    arrived, released = threading.Event(), threading.Event()

    def hold(request: Request) -> Reply:
        arrived.set()
        released.wait(20)
        return Reply(200)

    receiver.answer = hold
    server = ApiServer(
        tmp_path,
        valkey.broker_url(BROKER_DATABASE),
        webhook_http=1,
        webhook_ports="*",
        webhook_networks="127.0.0.0/8",
        webhook_timeout_s=2,
    )
    with server:
        key = server.key("first", "webhooks")
        with server.client(key) as client:
            hook = make(client, receiver.url)
            jobs = {end_job(server.database) for _ in range(3)}
            assert arrived.wait(20)
            server.stop(signal.SIGKILL)
        jobs |= {end_job(server.database) for _ in range(3)}
        released.set()
        receiver.answer = lambda request: Reply(200)
        server.start()
        with server.client(key) as client:
            wait_until(
                lambda: [one["status"] for one in log_of(client, hook["id"])] == ["delivered"] * 6,
                what="all deliveries",
            )
            attempts = {one["event_id"]: one["attempts"] for one in log_of(client, hook["id"])}
    ids: dict[str, set[str]] = {}
    for request in receiver.got():
        event = opened(hook["secret"], request)
        ids.setdefault(event["data"]["id"], set()).add(request.headers["webhook-id"])
    assert set(ids) == jobs
    assert all(len(found) == 1 for found in ids.values())
    assert max(attempts.values()) == 2
