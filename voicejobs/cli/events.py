"""Machines' view of a run: events as lines of JSON on standard output, and the summary as a file."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Self

from voicejobs.cli.report import FileReport, Snapshot, Summary, error_json
from voicejobs.errors import BadOption, VoicejobsError
from voicejobs.store.blobs import map_os_error
from voicejobs.store.paths import display_name

VERSION = 1
PROGRESS_EVERY_S = 1.0


def to_line(values: Mapping[str, Any]) -> str:
    """Return one line of JSON that any reader takes, whatever bytes file names have."""
    text = json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class Events:
    """Write each event as a line `{"v":1,"type":...}`; voicejobs/schemas/events.schema.json describes them."""

    def __init__(self, stream: IO[bytes] | None = None) -> None:
        self._stream = stream or sys.stdout.buffer
        self._last = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        return

    def start(self, facts: Mapping[str, Any]) -> None:
        """Write what is going to be done."""
        self._write("start", facts)

    def file(self, report: FileReport) -> None:
        """Write what became of a file."""
        self._write("file", report.to_json())

    def progress(self, snapshot: Snapshot) -> None:
        """Write how far the run is, at most once a second."""
        now = time.monotonic()
        if now - self._last >= PROGRESS_EVERY_S:
            self._last = now
            self._write("progress", snapshot.to_json())

    def warn(self, code: str, message: str) -> None:
        """Write a warning."""
        self._write("warning", {"code": code, "message": display_name(message)})

    def fail(self, error: VoicejobsError) -> None:
        """Write what ended the whole run."""
        self._write("error", error_json(error))

    def summary(self, summary: Summary) -> None:
        """Write how it went; always the last event."""
        self._write("summary", summary.to_json())

    def _write(self, kind: str, values: Mapping[str, Any]) -> None:
        """Write one event whole, and at once."""
        line = to_line({"v": VERSION, "type": kind, "time": round(time.time(), 3), **values})
        self._stream.write(line.encode() + b"\n")
        self._stream.flush()


class SummaryFile:
    """Write the summary and every file's report as one JSON document, which appears whole at the end.

    Args:
        path: the file.

    Raises:
        BadOption: it cannot be written; found before the work.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.parent / f".voicejobs-summary-{os.getpid()}.part"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                raise IsADirectoryError(21, os.strerror(21))
            self._stream = self._part.open("w", encoding="utf-8", newline="\n")
        except OSError as error:
            raise BadOption(
                f"The summary {display_name(path)} cannot be written: {error.strerror}",
                hint="Name a file in a folder that you can write.",
            ) from error
        self._count = 0
        self._errors: list[dict[str, Any]] = []
        self._problem: OSError | None = None
        self._write(f'{{"v":{VERSION},\n"reports":[')

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        with contextlib.suppress(OSError):
            self._stream.close()
        with contextlib.suppress(OSError):
            self._part.unlink(missing_ok=True)

    def start(self, facts: Mapping[str, Any]) -> None:
        """Write nothing: the summary says it."""

    def file(self, report: FileReport) -> None:
        """Write the report at once, so that memory does not grow with the run."""
        self._write(f"{',' if self._count else ''}\n{to_line(report.to_json())}")
        self._count += 1

    def progress(self, snapshot: Snapshot) -> None:
        """Write nothing."""

    def warn(self, code: str, message: str) -> None:
        """Write nothing: the summary counts warnings."""

    def fail(self, error: VoicejobsError) -> None:
        """Note what ended the run."""
        self._errors.append(error_json(error))

    def summary(self, summary: Summary) -> None:
        """Write the rest, and put the file in its place.

        Raises:
            DiskFull, OutputUnwritable: that, or an earlier part of it, failed; the run itself is over by now.
        """
        rest = to_line({**summary.to_json(), "errors": self._errors})
        self._write(f"\n],\n{rest[1:]}\n")
        try:
            self._stream.close()
            if self._problem is None:
                self._part.replace(self._path)
        except OSError as error:
            self._problem = error
        if self._problem is not None:
            raise map_os_error(self._problem, self._path)

    def _write(self, text: str) -> None:
        """Write some of it; a full disk is told at the end, since the run is worth more than the file."""
        try:
            self._stream.write(text)
        except OSError as error:
            self._problem = error
