"""What happens where more comes in than the engines can do: refused, dropped or given up, and never lost."""

import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from tests.integration.rpc.calls import NO_VAD, noise, recognize
from tests.integration.rpc.conftest import Starter, eventually
from voicejobs.errors import DeadlinePassed, MemoryLow, QueueFull, WaitedTooLong
from voicejobs.proto.voice_engine_pb2_grpc import VoiceEngineStub

pytestmark = pytest.mark.timeout(180)

SLOW = {"VOICEJOBS_FAKE_COST_BASE_S": "0.4"}
ONE = ("--slots", "1", "--batch-size", "1")


def test_a7_calls_on_one_connection_run_at_once(serve: Starter) -> None:
    """Six calls of 0.3 s on one channel take far less than six times as long."""
    server = serve("--slots", "6", settings={"VOICEJOBS_FAKE_COST_BASE_S": "0.3"})
    client = server.client()
    client.recognise(noise(), "pcm_s16le_16k", options=NO_VAD)
    since = time.monotonic()
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda n: client.recognise(noise(seed=n), "pcm_s16le_16k", options=NO_VAD), range(6)))
    assert time.monotonic() - since < 1.2
    assert len({answer.text for answer in found}) == 6
    listening = [one for one in server.tree()[0].net_connections("tcp") if one.status == "ESTABLISHED"]
    assert len(listening) == 1


def test_a42_a_flood_meets_a_bounded_queue(serve: Starter) -> None:
    """At ten times what fits the queue is never longer than its bound; whoever is refused learns when to come again."""
    server = serve(
        "--slots", "2", "--queue-length", "4", "--wait", "30", settings={"VOICEJOBS_FAKE_COST_BASE_S": "0.1"}
    )
    client = server.client()
    waits: list[int] = []

    def one(number: int) -> str:
        try:
            client.recognise(noise(0.2, number), "pcm_s16le_16k", options=NO_VAD)
        except QueueFull as error:
            waits.append(error.details["retry_after_ms"])
            return "refused"
        return "ok"

    with ThreadPoolExecutor(60) as threads:
        outcomes = Counter(threads.map(one, range(60)))
    load = server.load()
    assert outcomes["ok"] == load.accepted >= 6
    assert outcomes["refused"] == load.refused == 60 - outcomes["ok"]
    assert 0 < load.most_waiting <= 4
    assert (load.working, load.waiting) == (0, 0)
    assert all(100 <= wait <= 60_000 for wait in waits)


def test_retry_after_is_plain_metadata(serve: Starter) -> None:
    """A client in any language reads when to come again, and the code of the error, from trailing metadata."""
    server = serve(*ONE, "--queue-length", "0", settings=SLOW)
    with grpc.insecure_channel(server.address) as channel:
        stub = VoiceEngineStub(channel)
        first = stub.Recognize.future(recognize())
        assert server.settled(lambda load: load.working == 1)
        with pytest.raises(grpc.RpcError) as refused:
            stub.Recognize(recognize())
        first.result()
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    trailing: dict[str, Any] = {one.key: one.value for one in refused.value.trailing_metadata()}
    assert trailing["error-code"] == "queue_full"
    assert int(trailing["retry-after-ms"]) >= 100
    assert trailing["x-trace-id"]


def test_a42_what_waits_too_long_never_reaches_an_engine(serve: Starter) -> None:
    """Requests over their waiting time are dropped with DEADLINE_EXCEEDED, and those before them are served."""
    server = serve(*ONE, "--wait", "0.5", settings={"VOICEJOBS_FAKE_COST_BASE_S": "0.8"})
    client = server.client()

    def one(number: int) -> str:
        try:
            client.recognise(noise(0.2, number), "pcm_s16le_16k", options=NO_VAD)
        except WaitedTooLong:
            return "expired"
        return "ok"

    with ThreadPoolExecutor(8) as threads:
        outcomes = Counter(threads.map(one, range(8)))
    load = server.load()
    assert outcomes["expired"] == load.expired == 7
    assert outcomes["ok"] == load.accepted == 1


def test_a_deadline_ends_the_wait_of_the_client_and_of_the_server(serve: Starter) -> None:
    """The call ends at its deadline; in the queue nothing of it is left, and its work is not begun."""
    server = serve(*ONE, settings={"VOICEJOBS_FAKE_COST_BASE_S": "1.5"})
    client = server.client()
    blocker = threading.Thread(target=client.recognise, args=(noise(), "pcm_s16le_16k"), kwargs={"options": NO_VAD})
    blocker.start()
    assert server.settled(lambda load: load.working == 1)
    since = time.monotonic()
    with pytest.raises((DeadlinePassed, WaitedTooLong)):
        client.recognise(noise(), "pcm_s16le_16k", options=NO_VAD, timeout_s=0.3)
    assert time.monotonic() - since < 1.0
    assert server.settled(lambda load: load.waiting == 0, within_s=0.5)
    blocker.join()
    assert server.settled(lambda load: load.working == 0)
    assert server.load().accepted == 1


def test_cancelled_work_gives_its_slot_back_when_the_engine_call_ends(serve: Starter) -> None:
    """Whoever cancels is free at once; the slot is, once the engine call that runs has ended."""
    server = serve(*ONE, settings={"VOICEJOBS_FAKE_COST_BASE_S": "1.0"})
    with grpc.insecure_channel(server.address) as channel:
        call = VoiceEngineStub(channel).Recognize.future(recognize())
        assert server.settled(lambda load: load.working == 1)
        since = time.monotonic()
        call.cancel()
        assert server.settled(lambda load: load.cancelled == 1, within_s=0.5)
        assert server.load().working == 1
        assert server.settled(lambda load: load.working == 0, within_s=2.0)
    assert time.monotonic() - since < 1.6


def test_a_caller_that_waits_and_leaves_is_forgotten(serve: Starter) -> None:
    """A request that is cancelled in the queue leaves it at once, and no slot is lost with it."""
    server = serve(*ONE, settings=SLOW)
    with grpc.insecure_channel(server.address) as channel:
        stub = VoiceEngineStub(channel)
        first = stub.Recognize.future(recognize())
        assert server.settled(lambda load: load.working == 1)
        waiting = [stub.Recognize.future(recognize()) for _ in range(5)]
        assert server.settled(lambda load: load.waiting == 5)
        for call in waiting:
            call.cancel()
        assert server.settled(lambda load: load.waiting == 0, within_s=0.5)
        first.result()
        assert eventually(lambda: server.load().working == 0)
        stub.Recognize(recognize())
    assert server.load().accepted == 2


def test_requests_share_the_calls_of_the_engine(serve: Starter) -> None:
    """Sixteen requests at once take two calls of eight and not sixteen, with the texts that each has alone."""
    server = serve("--slots", "16", settings={"VOICEJOBS_FAKE_COST_BASE_S": "0.25"})
    client = server.client()

    def one(number: int) -> str:
        return client.recognise(noise(0.2, number), "pcm_s16le_16k", options=NO_VAD).text

    alone = [one(number) for number in range(3)]
    since = time.monotonic()
    with ThreadPoolExecutor(16) as threads:
        together = list(threads.map(one, range(16)))
    assert time.monotonic() - since < 1.5
    assert together[:3] == alone


def test_what_waits_for_a_process_is_dropped_when_its_caller_leaves(serve: Starter) -> None:
    """Work that has a slot, and waits for the engine behind other work, gives the slot back before its turn comes."""
    server = serve("--slots", "2", "--batch-size", "1", settings={"VOICEJOBS_FAKE_COST_BASE_S": "3.0"})
    with grpc.insecure_channel(server.address) as channel:
        stub = VoiceEngineStub(channel)
        first = stub.Recognize.future(recognize())
        assert server.settled(lambda load: load.working == 1)
        second = stub.Recognize.future(recognize())
        assert server.settled(lambda load: load.working == 2)
        second.cancel()
        assert server.settled(lambda load: load.working == 1, within_s=1.5)
        assert not first.done()
        first.result()


def test_a37_a_server_without_memory_refuses(serve: Starter) -> None:
    """A server above its limit answers that it is full, and why, and logs a warning with the trace of the call."""
    server = serve(settings={"VOICEJOBS_MAX_MEMORY_BYTES": "1000000"})
    with pytest.raises(MemoryLow, match="may hold 1 ") as refused:
        eventually(lambda: server.client().recognise(noise(0.5), "pcm_s16le_16k", options=NO_VAD).text == "never")
    assert refused.value.details["retry_after_ms"] > 0
    assert "VOICEJOBS_MAX_MEMORY_BYTES" in refused.value.message
    entries = [json.loads(line) for line in server.log.read_text().splitlines() if "for want of memory" in line]
    assert entries
    assert all(one["level"] == "warning" and one["trace_id"] for one in entries)
