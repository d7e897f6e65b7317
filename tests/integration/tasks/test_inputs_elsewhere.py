"""Inputs by URL and by path: the worker of a job takes them, tries again what may pass, and forgets the address."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.bench import Bench, MakeBench
from tests.rows import job
from tests.servers.http import HttpServer, Reply, Request
from tests.waiting import wait_until
from voicejobs import control, records
from voicejobs.errors import AddressRefused
from voicejobs.intake import Intake, Item, Source, Wish, submit_one
from voicejobs.settings import Settings
from voicejobs.store.blobs import BlobStore

WISH = Wish(pipeline="transcribe", engine="fake")
PLAYLIST = "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{url}/canary.ts\n#EXT-X-ENDLIST\n"


class Media:
    """Serve what a test has put under a path; a list is served one by one, its last item again and again."""

    def __init__(self) -> None:
        self.replies: dict[str, list[Reply]] = {}
        self.server = HttpServer(self._answer)

    @property
    def url(self) -> str:
        """Return its address."""
        return self.server.url

    @property
    def paths(self) -> list[str]:
        """Return what was asked for."""
        return [request.path for request in self.server.requests]

    def _answer(self, request: Request) -> Reply:
        """Answer a request."""
        replies = self.replies.get(request.path.partition("?")[0], [Reply(404)])
        return replies.pop(0) if len(replies) > 1 else replies[0]


@pytest.fixture
def media() -> Iterator[Media]:
    """Return a server of media on this machine."""
    found = Media()
    with found.server:
        yield found


@pytest.fixture
def far(make_bench: MakeBench, sqlite_url: str, broker_url: str, tmp_path: Path) -> Bench:
    """Return a bench whose workers may ask this machine, and read one folder."""
    (tmp_path / "media").mkdir()
    return make_bench(
        sqlite_url,
        broker_url,
        source_url_enabled=1,
        source_url_hosts="127.0.0.1",
        source_url_http=1,
        source_url_ports="*",
        source_url_networks="127.0.0.1/32",
        source_url_max_bytes=500_000,
        source_path_roots=tmp_path / "media",
    )


def submit(bench: Bench, source: Source, **settings: object) -> str:
    """Submit a job as the service does."""
    values = Settings.from_env(bench.variables(**settings))
    blobs = BlobStore(values.blobs_dir)
    blobs.make_folders()
    return submit_one(Intake(values, bench.database, blobs), Item(WISH, source)).job_ids[0]


def source_of(bench: Bench, job_id: str) -> Mapping[str, Any]:
    """Return the source in the row of a job."""
    return dict(json.loads(job(bench.database, job_id).source))


def error_of(bench: Bench, job_id: str) -> str:
    """Return the code of the error of a job."""
    return str(job(bench.database, job_id).error_code)


def test_a_worker_takes_inputs_from_where_they_lie(far: Bench, media: Media, tmp_path: Path) -> None:
    """Recordings by URL and by path are heard; what may pass is tried again; the row forgets the address."""
    sound = far.recording("talk.wav").read_bytes()
    (tmp_path / "media" / "near.wav").write_bytes(far.recording("near.wav").read_bytes())
    os.link(far.recording("linked.wav"), tmp_path / "media" / "linked.wav")
    media.replies = {
        "/talk.wav": [Reply(503, headers={"Retry-After": "1"}), Reply(body=sound)],
        "/moved": [Reply(302, headers={"Location": "/talk.wav"})],
        "/list.m3u8": [Reply(body=PLAYLIST.format(url=media.url).encode())],
        "/large.wav": [Reply(body=[sound] * 9)],
        "/away": [Reply(302, headers={"Location": "http://localhost/"})],
        "/empty.wav": [Reply()],
    }
    by_url = submit(far, Source(url=f"{media.url}/talk.wav?signature=canary"))
    by_path = submit(far, Source(path=str(tmp_path / "media" / "near.wav")))
    bad = {
        submit(far, Source(url=f"{media.url}/list.m3u8")): "not_audio",
        submit(far, Source(url=f"{media.url}/none.wav")): "source_refused",
        submit(far, Source(url=f"{media.url}/large.wav")): "source_too_large",
        submit(far, Source(url=f"{media.url}/away")): "address_refused",
        submit(far, Source(url=f"{media.url}/empty.wav")): "empty_file",
        submit(far, Source(path=str(tmp_path / "media" / "none.wav"))): "not_found",
        submit(far, Source(path=str(tmp_path / "media" / "linked.wav"))): "address_refused",
    }
    assert media.paths == []  # nothing is asked before a worker runs the job
    far.start_worker()
    states = far.wait_ended(by_url, by_path, *bad)
    assert (states[by_url], states[by_path]) == ("succeeded", "succeeded")
    assert {job_id: error_of(far, job_id) for job_id in bad} == bad
    assert far.stories(by_url)["prepare"] == ["retried", "succeeded"]
    assert "/canary.ts" not in media.paths
    assert media.paths.count("/talk.wav?signature=canary") == 2
    for job_id, name in ((by_url, "talk.wav"), (by_path, "near.wav")):
        source = source_of(far, job_id)
        assert {"url", "local", "unread"} & set(source) == set()
        assert (source["name"], len(source["blob"])) == (name, 64)
    assert "canary" not in far.log
    again = submit(far, Source(url=f"{media.url}/moved"))
    assert far.wait_ended(again) == {again: "succeeded"}
    assert source_of(far, again)["blob"] == source_of(far, by_url)["blob"]


def test_a_worker_looks_at_its_own_settings(far: Bench, media: Media) -> None:
    """What was allowed when it was submitted is refused by a worker where it is not."""
    job_id = submit(far, Source(url=f"{media.url}/talk.wav"))
    far.start_worker(source_url_enabled=0)
    far.wait_ended(job_id)
    assert error_of(far, job_id) == "address_refused"
    assert media.paths == []


def test_a_cancelled_download_ends(far: Bench, media: Media) -> None:
    """A job that is cancelled while its input comes ends soon, however slowly that comes."""
    media.replies = {"/slow.wav": [Reply(body=[b"RIFF"] * 1000, before=lambda: time.sleep(0.1))]}
    job_id = submit(far, Source(url=f"{media.url}/slow.wav"))
    far.start_worker()
    wait_until(lambda: media.paths, 30)
    with far.database.read() as connection:
        assert records.job_of(connection, "default", job_id)["stage"] == "fetching"
    control.cancel_jobs(far.database, [job_id])
    assert far.wait_ended(job_id, timeout_s=15) == {job_id: "cancelled"}


def test_both_kinds_are_off_by_default(bench: Bench, tmp_path: Path) -> None:
    """Without settings neither an address nor a path is taken, and nothing is written."""
    for source in (Source(url="https://media.example/a.wav"), Source(path="/etc/hostname")):
        with pytest.raises(AddressRefused) as caught:
            submit(bench, source)
        assert caught.value.details["param"] == ("source.url" if source.url else "source.path")
