"""Follow jobs of a service to their end: by its events, and by asking where there are none."""

import json
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from voicejobs.cli.follow import EXIT_ALL_FAILED, EXIT_SOME_FAILED
from voicejobs.cli.globals import current
from voicejobs.cli.main import EXIT_INTERRUPTED
from voicejobs.cli.remote import BATCH_FINAL, FINAL, PAGE, audio_s, name_of
from voicejobs.cli.show import duration
from voicejobs.client.service import Event, Service
from voicejobs.errors import NoSuchRecord, ServerUnreachable, Transient, WrongState
from voicejobs.store.paths import display_name

POLL_S = 2.0
END = "end"
"""Event after which a stream has nothing more to say."""


@dataclass(slots=True)
class RemoteFollowing:
    """Follow batches, or single jobs, of a service.

    Args:
        service: the service.
        as_json: print one JSON object a line instead of text.
        wait_s: seconds for which the service may be away.
    """

    service: Service
    as_json: bool = False
    wait_s: float = 120.0
    _seen: set[str] = field(default_factory=set)
    _failed: int = 0
    _audio_s: float = 0.0

    def batches(self, batch_ids: Iterable[str]) -> int:
        """Follow batches to their end, and return the exit code of all their jobs."""
        return self._followed([(f"batch show {one}", f"/api/v1/batches/{one}") for one in batch_ids])

    def jobs(self, job_ids: Iterable[str]) -> int:
        """Follow jobs to their end, and return the exit code."""
        return self._followed([(f"job show {one}", f"/api/v1/jobs/{one}") for one in job_ids])

    def _followed(self, places: Iterable[tuple[str, str]]) -> int:
        """Follow one after the other; Ctrl-C leaves the service to its work."""
        waiting = deque(places)
        try:
            while waiting:
                self._follow(waiting[0][1])
                waiting.popleft()
        except KeyboardInterrupt:
            click.echo(f"\nLeft as it is. See `voicejobs {waiting[0][0]} --server ...` for how it stands.", err=True)
            return EXIT_INTERRUPTED
        self._summarise()
        if not self._failed:
            return 0
        return EXIT_SOME_FAILED if self._failed < len(self._seen) else EXIT_ALL_FAILED

    def _follow(self, path: str) -> None:
        """Listen until the record at `path` is final; after each connection the records themselves are asked."""
        last_id, away_since = "", None
        while not self._is_over(path):
            try:
                for event in self.service.stream(f"{path}/events", last_id=last_id):
                    away_since, last_id = None, event.id or last_id
                    self._take(event)
                    if event.type == END:
                        break
            except (ServerUnreachable, Transient) as error:
                away_since = away_since or time.monotonic()
                if time.monotonic() - away_since > self.wait_s:
                    raise
                if not isinstance(error, ServerUnreachable):  # too many streams, for example: ask now and then
                    time.sleep(POLL_S)
                time.sleep(POLL_S / 4)
            except (NoSuchRecord, WrongState):
                time.sleep(POLL_S)

    def _is_over(self, path: str) -> bool:
        """Ask how a job or a batch stands, and show what has ended unseen."""
        record = self.service.get(path)
        if record.get("object") == "job" or "/jobs/" in path:
            self._note(record)
            return record["status"] in FINAL
        over = record["status"] in BATCH_FINAL
        for job in self.service.pages(f"{path}/items", limit=PAGE, order="asc"):
            self._note(job)
        return over

    def _take(self, event: Event) -> None:
        """Note what an event tells: a whole record, or the id of a job that has ended."""
        try:
            data = json.loads(event.data)
        except ValueError:
            return
        if not isinstance(data, dict):
            return
        if isinstance(data.get("data"), dict):
            data = data["data"]
        status = str(data.get("status") or event.type.rpartition(".")[2])
        job_id = str(data.get("job_id") or data.get("id") or "")
        if job_id.startswith("job_") and status in FINAL and job_id not in self._seen:
            self._note(data if "source" in data else self.service.get(f"/api/v1/jobs/{job_id}"))

    def _note(self, job: Mapping[str, Any]) -> None:
        """Count and show a job that has ended, once."""
        if job["status"] not in FINAL or job["id"] in self._seen:
            return
        self._seen.add(job["id"])
        failed = job["status"] != "succeeded"
        self._failed += failed
        seconds = audio_s(job)
        self._audio_s += 0.0 if failed or seconds is None else seconds
        name, error = display_name(name_of(job)), job.get("error")
        if self.as_json:
            fields = {"id": job["id"], "name": name, "state": job["status"], "audio_s": seconds, "error": error}
            self._print({"type": "file", **fields})
        elif error:
            click.echo(f"{click.style('failed', fg='red')}  {name}: {error['detail']} [{error['code']}]", err=True)
        elif not current().quiet:
            click.echo(f"{job['status']}  {name}  ({duration(seconds)})", err=True)

    def _summarise(self) -> None:
        """Say how it ended."""
        done = len(self._seen) - self._failed
        if self.as_json:
            self._print({"type": "summary", "succeeded": done, "failed": self._failed, "audio_s": self._audio_s})
        elif not current().quiet:
            failed = f", {self._failed} failed or cancelled" if self._failed else ""
            click.echo(f"{done} succeeded{failed}: {duration(self._audio_s)} of audio", err=True)

    @staticmethod
    def _print(event: dict[str, Any]) -> None:
        """Print one line of JSON."""
        click.echo(json.dumps({"v": 1, **event}, ensure_ascii=False))
