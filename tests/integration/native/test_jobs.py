"""Jobs over HTTP with workers: three requests from recording to transcript, every format, every pipeline."""

import io
import json
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.native.conftest import ROOT, follow, submit, upload, wait_end
from tests.servers.api import ApiServer
from voicejobs import formats

FAKE = {"engine": "fake", "model": ""}


@pytest.fixture(scope="module")
def done(stack: ApiServer, recording: bytes) -> dict[str, Any]:
    """Return the record of a job that has succeeded."""
    with stack.client(stack.first_key) as client:
        job = submit(client, {"engine": "fake", "source": {"file_id": upload(client, recording)}})
        return wait_end(client, f"/api/v1/jobs/{job['id']}")


@pytest.fixture(scope="module")
def spoken(stack: ApiServer) -> dict[str, Any]:
    """Return the record of a job that has spoken."""
    body = {
        "task": "speak",
        "engine": "fake_voice",
        "source": {"text": "Hello there, this is said aloud.", "name": "Grüße.txt"},
        "output_formats": ["wav", "srt"],
    }
    with stack.client(stack.first_key) as client:
        return wait_end(client, f"/api/v1/jobs/{submit(client, body)['id']}")


def test_b3_a_job_takes_three_requests(working: httpx.Client, recording: bytes) -> None:
    """A client sends a recording with its job, follows that to its end, and fetches the transcript: three requests."""
    requests: list[httpx.Request] = []
    working.event_hooks = {"request": [requests.append]}
    answer = working.post(
        "/api/v1/jobs/upload",
        files={"file": ("talk.flac", recording)},
        data={"engine": "fake", "options": json.dumps({"language": "en"}), "output_formats": "srt,txt"},
    )
    assert answer.status_code == 202
    path = answer.headers["location"]
    told = list(follow(working, f"{path}/events"))
    text = working.get(f"{path}/transcript.srt")
    assert len(requests) == 3
    assert told[0][0] == "snapshot"
    kind, event_id, record = told[-1]
    assert (kind, event_id, record["status"], record["progress"]["percent"]) == ("end", "", "succeeded", 100.0)
    assert record["source"]["name"] == "talk.flac"
    assert record["output_formats"] == ["srt", "txt"]
    assert text.text.startswith("1\n00:00:0")
    assert text.headers["content-type"].startswith("application/x-subrip")


def test_every_format_is_rendered_without_recognising_again(working: httpx.Client, done: dict[str, Any]) -> None:
    """The stored words give each format, other line lengths too; not one more step was begun for it."""
    path = f"/api/v1/jobs/{done['id']}"
    attempts = working.get(f"{path}/attempts").json()["data"]
    for name in formats.FORMATS:
        answer = working.get(
            f"{path}/transcript.{formats.extension(name).rpartition('.')[2] if name == 'textgrid' else name}"
        )
        assert answer.status_code == 200, (name, answer.text)
        assert answer.content
        assert "attachment" in answer.headers["content-disposition"]
    wide = working.get(f"{path}/transcript.vtt", params={"subtitle_profile": "plain"})
    narrow = working.get(f"{path}/transcript.vtt", params={"max_line_width": 10, "max_line_count": 1})
    assert wide.text.count("-->") < narrow.text.count("-->")
    etag = wide.headers["etag"]
    same = working.get(f"{path}/transcript.vtt?subtitle_profile=plain", headers={"if-none-match": etag})
    assert (same.status_code, same.content) == (304, b"")
    head = working.head(f"{path}/transcript.vtt?subtitle_profile=plain")
    assert (head.status_code, head.headers["etag"], head.content) == (200, etag, b"")
    assert working.get(f"{path}/attempts").json()["data"] == attempts
    assert attempts[-1]["node"] == "deliver"


@pytest.mark.parametrize(
    ("form", "param"), [("gif", "format"), ("srt?max_line_width=5&subtitle_profile=plain", "query")]
)
def test_a_rendering_that_cannot_be_is_refused(
    working: httpx.Client, done: dict[str, Any], form: str, param: str
) -> None:
    """An unknown format and options that contradict each other are 400 with their place; unknown options are 422."""
    answer = working.get(f"/api/v1/jobs/{done['id']}/transcript.{form}")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert working.get(f"/api/v1/jobs/{done['id']}/transcript.srt?colour=red").status_code == 422


def test_artifacts_are_served_in_parts(working: httpx.Client, spoken: dict[str, Any]) -> None:
    """Content has a validator, parts, conditions, HEAD and a file name in any script, and no type but ours."""
    sound = next(one for one in spoken["artifacts"] if one["kind"] == "sound")
    assert working.get(f"/api/v1/artifacts/{sound['id']}").json() == sound
    path = f"/api/v1/artifacts/{sound['id']}/content"
    whole = working.get(path)
    assert (whole.status_code, len(whole.content)) == (200, sound["size_bytes"])
    assert whole.content[:4] == b"RIFF"
    assert whole.headers["content-type"] == "audio/wav"
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert whole.headers["etag"] == f'"sha256-{sound["sha256"]}"'
    assert "filename*=UTF-8''Gr%C3%BC%C3%9Fe.wav" in whole.headers["content-disposition"]
    assert "immutable" in whole.headers["cache-control"]
    assert whole.headers["repr-digest"].startswith("sha-256=:")
    size = len(whole.content)
    cases = {
        "bytes=0-9": whole.content[:10],
        "bytes=-5": whole.content[-5:],
        f"bytes=10-{size * 2}": whole.content[10:],
    }
    for header, expected in cases.items():
        part = working.get(path, headers={"range": header})
        assert (part.status_code, part.content) == (206, expected)
        assert part.headers["content-range"].endswith(f"/{size}")
    beyond = working.get(path, headers={"range": f"bytes={size}-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{size}")
    other = working.get(path, headers={"range": "bytes=0-1", "if-range": '"other"'})
    assert other.status_code == 200
    same = working.get(path, headers={"range": "bytes=0-1", "if-range": whole.headers["etag"]})
    assert (same.status_code, same.content) == (206, b"RI")
    assert working.get(path, headers={"range": "bytes=0-1,5-6"}).content == whole.content
    known = working.get(path, headers={"if-none-match": f'"x", {whole.headers["etag"]}'})
    assert (known.status_code, known.content) == (304, b"")
    head = working.head(path)
    assert (head.status_code, head.headers["content-length"], head.content) == (200, str(size), b"")


def test_speech_has_captions(working: httpx.Client, spoken: dict[str, Any]) -> None:
    """What was spoken leaves sound and captions, and its transcript is rendered in other formats as well."""
    assert {one["kind"] for one in spoken["artifacts"]} == {"text", "sound", "subtitles", "captions"}
    answer = working.get(f"/api/v1/jobs/{spoken['id']}/transcript.txt")
    assert "this is said aloud" in answer.text


@pytest.mark.parametrize(
    "body",
    [
        {"task": "dub", "engine": "fake_voice", "source": {"text": "1\n00:00:00,000 --> 00:00:02,000\nHello\n"}},
        {"pipeline": "transcribe+speak", "engine": "fake", "options": {"synthesise": {"engine": "fake_voice"}}},
    ],
    ids=["dub", "transcribe+speak"],
)
def test_the_other_pipelines_run(working: httpx.Client, recording: bytes, body: dict[str, Any]) -> None:
    """Captions are spoken at their times, and what was heard is spoken again."""
    if "source" not in body:
        body = {**body, "source": {"file_id": upload(working, recording)}}
    record = wait_end(working, f"/api/v1/jobs/{submit(working, body)['id']}")
    assert record["status"] == "succeeded", record["error"]
    assert "sound" in {one["kind"] for one in record["artifacts"]}


def test_a_job_that_fails_says_why(working: httpx.Client) -> None:
    """A file that is no recording ends as failed with a problem, and without a transcript."""
    file_id = upload(working, b"no recording at all", "notes.wav")
    record = wait_end(working, f"/api/v1/jobs/{submit(working, {**FAKE, 'source': {'file_id': file_id}})['id']}")
    assert record["status"] == "failed"
    assert record["error"]["code"] == "not_audio"
    assert record["error"]["retryable"] is False
    assert working.get(record["error"]["type"]).status_code == 200
    assert working.get(f"/api/v1/jobs/{record['id']}/transcript.srt").status_code == 404


def test_a_batch_ends_with_an_archive(working: httpx.Client, recording: bytes) -> None:
    """Items of a batch are followed together; the archive has each transcript once, and tells of what failed."""
    good, bad = upload(working, recording), upload(working, b"nothing", "bad.wav")
    items: list[dict[str, Any]] = [
        {"source": {"file_id": good}},
        {"source": {"file_id": good, "name": "../../etc/x.wav"}},
    ]
    items.append({"source": {"file_id": bad}, "custom_id": "third"})
    answer = working.post("/api/v1/batches", json={"defaults": FAKE, "items": items, "label": "three"})
    assert answer.status_code == 202
    path = answer.headers["location"]
    told = list(follow(working, f"{path}/events"))
    ended = {data["data"]["id"]: kind for kind, _, data in told if kind in {"job.succeeded", "job.failed"}}
    record = told[-1][2]
    assert sorted(ended.values()) == ["job.failed", "job.succeeded", "job.succeeded"]
    assert told[-2][0] == "batch.completed"
    assert record["request_counts"]["completed"] == 2
    listed = working.get(f"{path}/items", params={"order": "asc", "limit": 2}).json()
    assert (len(listed["data"]), listed["has_more"]) == (2, True)
    rest = working.get(f"{path}/items", params={"order": "asc", "after": listed["last_id"]}).json()
    assert [one["custom_id"] for one in rest["data"]] == ["third"]
    archive = working.get(f"{path}/archive", params={"output_formats": "srt,txt"})
    with zipfile.ZipFile(io.BytesIO(archive.content)) as opened:
        assert opened.testzip() is None
        names = opened.namelist()
        lines = [json.loads(line) for line in opened.read("results.jsonl").splitlines()]
    assert names == ["harbor.srt", "harbor.txt", "etc/x.srt", "etc/x.txt", "results.jsonl"]
    assert [line["status"] for line in lines] == ["succeeded", "succeeded", "failed"]
    assert lines[2]["error"]["code"] == "not_audio"
    again = working.post(f"{path}/retry-failed").json()
    assert (again["retried"], again["status"]) == (1, "in_progress")
    assert wait_end(working, path)["request_counts"]["failed"] == 1


def test_the_example_of_the_documentation_runs(stack: ApiServer, tmp_path: Path) -> None:
    """The commands of docs/rest.md turn a recording into subtitles."""
    page = (ROOT / "docs" / "rest.md").read_text(encoding="utf-8")
    script = page.partition("```sh\n")[2].partition("```")[0]
    variables = {"URL": stack.url, "KEY": stack.first_key, "ENGINE": "fake"}
    variables["RECORDING"] = str(ROOT / "examples" / "harbor.flac")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "-->" in (tmp_path / "talk.srt").read_text()
    assert "event: end" in (tmp_path / "events.txt").read_text()


def test_a_batch_stops_with_its_first_failure(working: httpx.Client, recording: bytes) -> None:
    """With on_error=stop the rest is cancelled once a job has failed, and the batch with it."""
    noise = upload(working, bytes(len(recording) + 1), "noise.flac")  # the largest goes first
    items = [{"source": {"file_id": name}} for name in (upload(working, recording), noise, upload(working, recording))]
    body = {"items": items, "defaults": FAKE, "force": True, "on_error": "stop", "concurrency": 1}
    path = working.post("/api/v1/batches", json=body).headers["location"]
    record = wait_end(working, path)
    counts = {name: record["request_counts"][name] for name in ("failed", "cancelled", "completed")}
    assert (record["status"], counts) == ("cancelled", {"failed": 1, "cancelled": 2, "completed": 0})
