"""One trace id, looked for in all logs, tells the story of a job across all processes; and no log holds a secret."""

import json
from pathlib import Path
from typing import Any

from tests.bench import Bench, bench, make_bench, speech
from tests.servers.api import ApiServer
from tests.servers.voice_engine import VoiceEngine
from tests.waiting import wait_until

__all__ = ["bench", "make_bench", "speech"]

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = {"traceparent": f"00-{TRACE_ID}-00f067aa0ba902b7-01"}


def lines_of(trace_id: str, *logs: str) -> list[dict[str, Any]]:
    """Return the lines of logs that name a trace id, in the order of their times; each line of ours is JSON."""
    found = [json.loads(line) for log in logs for line in log.splitlines() if trace_id in line]
    return sorted(found, key=lambda line: line["time"])


def test_one_trace_id_tells_the_story_of_a_job(bench: Bench, tmp_path: Path) -> None:
    """REST header, submission, dispatch, decoder, engine process, another engine service by gRPC, delivery, end."""
    engine = VoiceEngine(tmp_path / "engine", "--engine", "fake").start()
    server = ApiServer(tmp_path / "api", bench.broker_url, database_url=bench.database.url,
                       state_dir=bench.folder / "state", remote_url=engine.url)  # fmt: skip
    recording = bench.recording("a.wav").read_bytes()
    try:
        bench.start_worker(remote_url=engine.url)
        with server:
            key = server.key()
            with server.client(key, PARENT) as client:
                asked = client.post(
                    "/api/v1/jobs/upload", data={"engine": "remote"}, files={"file": ("a.wav", recording, "audio/wav")}
                )
            assert asked.status_code == 202, asked.text
            assert asked.headers["x-request-id"] == TRACE_ID
            job_id = asked.json()["id"]
            assert bench.wait_ended(job_id) == {job_id: "succeeded"}
            (other,) = bench.submit(bench.recording("b.wav"))
            bench.wait_ended(other)
            wait_until(lambda: "job succeeded" in [line["event"] for line in lines_of(TRACE_ID, bench.log)])
        api_log = server.log
    finally:
        engine.stop()
    story = lines_of(TRACE_ID, api_log, bench.log, engine.log)
    told = [(line["event"], line.get("step", "")) for line in story]
    expected = [
        ("submitted", ""), ("sent", ""), ("decoding", ""), ("step done", "prepare"), ("engine call", ""), ("call", ""),
        ("step done", "recognise"), ("job succeeded", "deliver"), ("step done", "deliver"),
    ]  # fmt: skip
    places = [told.index(one) for one in expected]
    assert places == sorted(places), told
    assert ("request", "") in told
    assert told.count(("engine call", "")) == 2, "that of the worker asked that of the other service"
    assert len({line["pid"] for line in story}) >= 6, (
        "service, worker, its decoder and engine, the other service, its own"
    )
    assert not [line for line in story if line.get("job_id") == other], "the story of another job is not told"
    untraced = lines_of(other, bench.log)
    assert {"sent", "decoding", "engine call", "job succeeded"} <= {line["event"] for line in untraced}
    assert key.split("_")[3] not in api_log + bench.log + engine.log, "the secret of the key is in no log"


def test_every_line_of_every_log_is_json(bench: Bench) -> None:
    """Worker, decoder and engine processes write JSON with time, level, logger, event and pid; nothing else."""
    worker = bench.start_worker()
    bench.wait_ended(*bench.submit(bench.recording("a.wav")))
    bad = bench.folder / "bad.wav"
    bad.write_bytes(b"RIFF" + b"x" * 200)
    bench.wait_ended(*bench.submit(bad))
    worker.terminate()
    worker.wait(20)
    for line in bench.log.splitlines():
        assert line.startswith("{"), line
        assert {"time", "level", "logger", "event", "pid"} <= set(json.loads(line)), line
