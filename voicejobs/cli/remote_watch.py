"""`voicejobs watch FOLDER --server URL`: a service does the work; what was taken is noted here, beside its uploads.

The notes are lines of JSON, `watch/<hash>.jsonl` in the state folder, one file for each folder, output folder, service
and set of options. A content that stands in them is not taken again. A job that was submitted and not seen to its end
is found by its Idempotency-Key: it is submitted again as it was, and the service answers with the job that it has.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from voicejobs.cli.export import file_mode
from voicejobs.cli.inputs import Found
from voicejobs.cli.naming import Places
from voicejobs.cli.recognition_options import wishes
from voicejobs.cli.remote import FINAL, audio_s, given_flags
from voicejobs.cli.remote_download import query_of
from voicejobs.cli.report import CANCELLED, DONE, FAILED, SUCCEEDED, FileReport, Reporter, Summary, error_json
from voicejobs.cli.subtitle_options import render_flags
from voicejobs.cli.watching import free_place
from voicejobs.client.service import Service
from voicejobs.client.uploads import Notes, Upload, bring
from voicejobs.errors import InputError, NoSuchRecord, OutputExists, Transient, VoicejobsError
from voicejobs.formats import chosen, extension
from voicejobs.settings import Settings
from voicejobs.store.blobs import map_os_error, write_atomic
from voicejobs.store.paths import display_name
from voicejobs.tasks.content import read_content

POLL_S = 2.0
MOST_ASKED = 20
"""Jobs that are asked for in one look, those that have waited longest: a service is not asked more for more files."""


@dataclass(slots=True)
class Ledger:
    """Remember which contents were taken, from which file, and where their outputs went.

    Args:
        path: the file of the notes.
    """

    path: Path
    done: dict[str, str] = field(default_factory=dict)
    _sources: dict[str, set[str]] = field(default_factory=dict)
    _is_cut_off: bool = False

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the notes; a line that a kill has cut off counts for nothing."""
        ledger = cls(path)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            data = b""
        ledger._is_cut_off = not data.endswith(b"\n") and data != b""
        for line in data.splitlines():
            try:
                note = json.loads(line)
                ledger._remember(note["sha256"], note["source"], note["place"])
            except (ValueError, KeyError, TypeError):
                continue
        return ledger

    def add(self, digest: str, source: str, place: str) -> None:
        """Note a content whose outputs are there.

        Raises:
            DiskFull, OutputUnwritable: as their names say.
        """
        self._remember(digest, source, place)
        line = json.dumps({"sha256": digest, "source": source, "place": place}).encode()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write((b"\n" if self._is_cut_off else b"") + line + b"\n")
        except OSError as error:
            raise map_os_error(error, self.path) from error
        self._is_cut_off = False

    def sources(self, place: str) -> set[str]:
        """Return the paths of the files whose outputs have a place."""
        return self._sources.get(place, set())

    def _remember(self, digest: str, source: str, place: str) -> None:
        self.done[digest] = place
        self._sources.setdefault(place, set()).add(source)


@dataclass(frozen=True, slots=True)
class _Job:
    """Hold a file whose job is at the service."""

    file: Found
    sha256: str
    place: str


@dataclass(slots=True)
class Remote:
    """Have a service do the work of a watched folder; use as a context manager.

    Args:
        service: the service.
        ledger: what was taken.
        notes: what the service has of our uploads.
        places: where outputs go.
        formats: their formats.
        wish: what the request for a job says beside its source.
        render: values of `RenderOptions` that are not the default.
        reporter: shows what happens.
        summary: counts it.
    """

    service: Service
    ledger: Ledger
    notes: Notes
    places: Places
    formats: list[str]
    wish: Mapping[str, Any]
    render: Mapping[str, Any]
    reporter: Reporter
    summary: Summary
    _live: dict[str, _Job] = field(default_factory=dict)
    _asked_at: float = 0.0

    @classmethod
    def begun(
        cls,
        settings: Settings,
        root: str,
        flags: Mapping[str, Any],
        places: Places,
        reporter: Reporter,
        summary: Summary,
    ) -> Self:
        """Return the work for a folder, with what is known of it from before."""
        given = given_flags(flags)
        formats, render = chosen(flags["formats"]), render_flags(flags)
        options = wishes(flags, given)
        wish = {"task": flags["task"], "options": options, "output_formats": formats}
        wish |= {name: flags[name] for name in ("engine", "model") if name in given}
        service = Service(settings)
        known_by = json.dumps([service.url, root, places.root, wish, dict(render)], sort_keys=True)
        name = sha256(known_by.encode(errors="surrogateescape")).hexdigest()[:32]
        ledger = Ledger.read(settings.state_dir / "watch" / f"{name}.jsonl")
        notes = Notes(settings.state_dir / "uploads", service.url)
        return cls(service, ledger, notes, places, formats, wish, render, reporter, summary)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.service.__exit__()

    @property
    def waiting(self) -> int:
        """Return how many files are at the service."""
        return len(self._live)

    def works_on(self, path: str) -> bool:
        """Tell whether a file has a job at the service."""
        return any(job.file.path == path for job in self._live.values())

    def take(self, one: Found) -> None:
        """Upload a file and submit its job, unless its content was taken before.

        Raises:
            QueueFull: the service has no room for it now.
        """
        name = display_name(one.relative)
        try:
            content = read_content(one.path, name)
            if content.sha256 in self.ledger.done or content.sha256 in {job.sha256 for job in self._live.values()}:
                self._report(FileReport(name, DONE, one.path))
                return
            file_id = bring(self.service, self.notes, Upload(one.path, name, content.sha256, content.size))
            place = free_place(self.places, one, self._sources)
            self._live[self._submit(name, content.sha256, file_id)] = _Job(one, content.sha256, place)
        except InputError as error:
            self._report(FileReport(name, FAILED, one.path, error=error_json(error)))

    def look(self) -> None:
        """Ask for the jobs that have waited longest, every other second."""
        if time.monotonic() - self._asked_at < POLL_S:
            return
        self._asked_at = time.monotonic()
        # Of a file that was replaced meanwhile the older job is seen to its end first: the newer text is to stand.
        first = {job.file.path: job_id for job_id, job in reversed(self._live.items())}
        for job_id in list(reversed(first.values()))[:MOST_ASKED]:
            try:
                record = self.service.get(f"/api/v1/jobs/{job_id}")
            except NoSuchRecord as error:  # somebody has deleted it there: that is no reason to leave all others
                file = self._live.pop(job_id).file
                name = display_name(file.relative)
                self._report(FileReport(name, CANCELLED, file.path, job_id, error=error_json(error)))
                continue
            if record["status"] in FINAL:
                self._ended(self._live.pop(job_id), record)

    def rest(self) -> None:
        """Do nothing: each job is a batch of its own."""

    def leave(self) -> None:
        """Do nothing: the service goes on, and its answers are fetched by the next run."""

    def _submit(self, name: str, digest: str, file_id: str) -> str:
        """Submit the job of a file, the same one whenever the same is asked for, and return its id."""
        body = {**self.wish, "source": {"file_id": file_id, "name": name[-255:]}}
        key = sha256(json.dumps([self.ledger.path.name, digest, body], sort_keys=True).encode()).hexdigest()
        answer = self.service.post("/api/v1/jobs", body, headers={"Idempotency-Key": f"voicejobs-watch-{key}"})
        return str(answer["id"])

    def _ended(self, job: _Job, record: Mapping[str, Any]) -> None:
        """Write the outputs of a job that has succeeded, and show what became of the file."""
        name = display_name(job.file.relative)
        if record["status"] != "succeeded":
            state = CANCELLED if record["status"] == "cancelled" else FAILED
            told = record["error"] or {
                "code": record["status"],
                "detail": f"The job has {record['status']}",
                "hint": "",
            }
            error = {"code": told["code"], "message": told["detail"], "hint": told.get("hint", ""), "details": {}}
            self._report(FileReport(name, state, job.file.path, record["id"], error=error))
            return
        try:
            outputs = self._write(job, str(record["id"]))
        except Transient:
            self._live[str(record["id"])] = job
            raise
        except VoicejobsError as error:
            self._report(FileReport(name, FAILED, job.file.path, record["id"], error=error_json(error)))
            return
        self.ledger.add(job.sha256, job.file.path, job.place)
        seconds = audio_s(record)
        report = FileReport(name, SUCCEEDED, job.file.path, record["id"], audio_s=seconds, outputs=outputs)
        self._report(report)

    def _write(self, job: _Job, job_id: str) -> list[dict[str, Any]]:
        """Fetch the outputs and write them, each whole.

        Raises:
            OutputExists: a file that this watch did not write is in the way.
        """
        ours = job.file.path in self.ledger.sources(job.place)
        made: dict[Path, tuple[str, bytes]] = {}
        for form in self.formats:
            answer = self.service.send("GET", f"/api/v1/jobs/{job_id}/transcript.{form}", params=query_of(self.render))
            path = Path(f"{job.place}{extension(form)}")
            if not ours and path.exists() and not (path.is_file() and path.read_bytes() == answer.content):
                raise OutputExists(f"{display_name(path)} is there already")
            made[path] = (form, answer.content)
        for path, (_, data) in made.items():
            write_atomic(path, data, mode=file_mode())
        return [
            {"format": form, "path": os.fspath(path), "sha256": sha256(data).hexdigest(), "size": len(data)}
            for path, (form, data) in made.items()
        ]

    def _sources(self, place: str) -> set[str]:
        """Return the paths of the files whose outputs have a place, or will."""
        return self.ledger.sources(place) | {job.file.path for job in self._live.values() if job.place == place}

    def _report(self, report: FileReport) -> None:
        """Count a file, and show it."""
        self.summary.note(report)
        self.reporter.file(report)
