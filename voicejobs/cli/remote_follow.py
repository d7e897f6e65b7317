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
from voicejobs.cli.remote import BATCH_FINAL, FINAL, PAGE, audio_s, counts_of, name_of
from voicejobs.cli.show import duration
from voicejobs.client.service import Event, Record, Service, segment
from voicejobs.errors import ServerUnreachable, Transient
from voicejobs.store.paths import display_name

POLL_S = 2.0
SNAPSHOT, END = "snapshot", "end"
"""Events that bear the record of what is followed: as it is at the beginning, and as it has become."""
BATCHES = "/batches/"


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
        return self._followed([(f"batch show {one}", f"/api/v1/batches/{segment(one)}") for one in batch_ids])

    def jobs(self, job_ids: Iterable[str]) -> int:
        """Follow jobs to their end, and return the exit code."""
        return self._followed([(f"job show {one}", f"/api/v1/jobs/{segment(one)}") for one in job_ids])

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
        """Listen until the record at `path` is final.

        The stream begins with the record as it is and ends with what became of it, so that a job costs one request and
        its report another. Where there is no stream, or it breaks, the records themselves are asked.
        """
        last_id, away_since, before = "", None, len(self._seen)
        while True:
            try:
                for event in self.service.stream(f"{path}/events", last_id=last_id):
                    away_since, last_id = None, event.id or last_id
                    if self._take(event, path, before):
                        return
                time.sleep(POLL_S / 4)  # it has ended before the record has: whatever ends it may do so again at once
            except Transient as error:
                away_since = away_since or time.monotonic()
                if time.monotonic() - away_since > self.wait_s:
                    raise
                # Too many streams, for example: ask now and then. A service that is away is not asked more often.
                time.sleep(POLL_S / 4 if isinstance(error, ServerUnreachable) else POLL_S)
            if self._is_over(self.service.get(path), path, before):
                return

    def _take(self, event: Event, path: str, before: int) -> bool:
        """Note what an event tells; True where nothing more will come."""
        try:
            told = json.loads(event.data, object_hook=Record)
        except ValueError:
            return False
        if not isinstance(told, Record):
            return False
        if event.type in {SNAPSHOT, END}:
            return self._is_over(told, path, before)
        data = told.get("data") if BATCHES in path else None
        job = data if isinstance(data, dict) and data.get("object") == "job" else {}
        if job.get("status") in FINAL and job["id"] not in self._seen:
            self._note(self.service.get(f"/api/v1/jobs/{job['id']}"))
        return False

    def _is_over(self, record: Mapping[str, Any], path: str, before: int) -> bool:
        """Show what has ended unseen by the record of a job or a batch, and tell whether that is all."""
        if BATCHES not in path:
            self._note(record)
            return record["status"] in FINAL
        ended = sum(count for state, count in counts_of(record).items() if state in FINAL)
        if ended > len(self._seen) - before:
            for job in self.service.pages(f"{path}/items", limit=PAGE, order="asc"):
                self._note(job)
        return record["status"] in BATCH_FINAL

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
            told = display_name(f"{error['detail']} [{error['code']}]")
            click.echo(f"{click.style('failed', fg='red')}  {name}: {told}", err=True)
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
