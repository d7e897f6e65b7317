"""The results of a batch as one ZIP file, made while it is sent: one result is in memory at a time."""

import json
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import IO, Any, Final, cast

from sqlalchemy import select

from voicejobs import formats, records
from voicejobs.api.context import Context
from voicejobs.api.transcripts import transcript_in
from voicejobs.errors import VoicejobsError
from voicejobs.formats import RenderOptions
from voicejobs.store.schema import jobs
from voicejobs.store.states import JobState

PAGE_JOBS: Final = 100
READ_BYTES: Final = 1 << 18
REPORT: Final = "results.jsonl"
MAX_STEM_CHARS: Final = 150


class _Pipe:
    """Be what a ZIP file is written to, and give away what was written; it cannot be sought in."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        """Take some bytes."""
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing: what was written is given away at once."""

    def take(self) -> bytes:
        """Return what was written since the last time."""
        data = b"".join(self._parts)
        self._parts.clear()
        return data


@dataclass(frozen=True)
class Archive:
    """Make the archive of a batch.

    Args:
        context: of the app.
        tenant: whose batch it is.
        batch_id: the batch.
        names: formats of the transcripts; empty for those that each job asked for.
        options: how these are rendered.
    """

    context: Context
    tenant: str
    batch_id: str
    names: Sequence[str]
    options: RenderOptions

    @cached_property
    def _taken(self) -> Counter[str]:
        return Counter()

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the archive; at its end `results.jsonl` tells of every job, what failed included."""
        pipe = _Pipe()
        report: list[str] = []
        with zipfile.ZipFile(cast("IO[bytes]", pipe), "w", zipfile.ZIP_DEFLATED) as archive:
            for row in self._rows():
                line = {"id": row.id, "name": row.source_name, "status": row.state, "files": []}
                if row.state == JobState.SUCCEEDED:
                    try:
                        for _ in self._add(archive, row, line["files"]):
                            yield pipe.take()
                    except VoicejobsError as error:
                        line["error"] = {"code": error.code, "detail": "what the job has left cannot be read"}
                elif row.error:
                    error_ = json.loads(row.error)
                    line["error"] = {"code": error_["code"], "detail": error_["message"]}
                report.append(json.dumps(line, ensure_ascii=False))
                yield pipe.take()
            archive.writestr(_info(REPORT), "".join(f"{line}\n" for line in report))
        yield pipe.take()

    def _rows(self) -> Iterator[Any]:
        """Yield the jobs of the batch in their order, a page at a time."""
        after = -1
        while True:
            query = (
                select(jobs.c.id, jobs.c.seq, jobs.c.source_name, jobs.c.state, jobs.c.error, jobs.c.request)
                .where(jobs.c.batch_id == self.batch_id, jobs.c.tenant == self.tenant, jobs.c.seq > after)
                .order_by(jobs.c.seq)
                .limit(PAGE_JOBS)
            )
            with self.context.database.read() as connection:
                rows = list(connection.execute(query))
            yield from rows
            if len(rows) < PAGE_JOBS:
                return
            after = rows[-1].seq

    def _add(self, archive: zipfile.ZipFile, row: Any, told: list[str]) -> Iterator[None]:
        """Write what one job has left, and tell the names; yields whenever there is something to send."""
        stem = self._stem(row.source_name)
        with self.context.database.read() as connection:
            kept = records.artifacts_of(connection, [row.id]).get(row.id, [])
            words = records.transcript_artifact(connection, self.tenant, row.id)
        if not any(one.kind == "sound" for one in kept):
            transcript = transcript_in(self.context.blobs, words)
            asked = json.loads(row.request).get("output_formats", []) if row.request else []
            for name in self.names or formats.chosen(asked or ["txt"]):
                told.append(stem + formats.extension(name))
                archive.writestr(_info(told[-1]), formats.render(transcript, name, self.options))
                yield
            return
        for one in kept:
            if one.kind in {"sound", "subtitles"}:
                ending = PurePosixPath(records.filename("x.y", one.kind, json.loads(one.meta))).suffix
                told.append(stem + ending)
                yield from self._copy(archive, one, told[-1])

    def _copy(self, archive: zipfile.ZipFile, row: Any, name: str) -> Iterator[None]:
        """Write the content of an artifact, piece by piece."""
        with self.context.database.read() as connection:
            row = records.artifact_of(connection, self.tenant, row.id)
        packed = records.is_packed(json.loads(row.meta))
        info = _info(name)
        info.compress_type = zipfile.ZIP_STORED  # sound does not become smaller
        with (
            self.context.blobs.open_artifact(row.sha256, row.data, packed=packed) as source,
            archive.open(info, "w", force_zip64=True) as target,
        ):
            while data := source.read(READ_BYTES):
                target.write(data)
                yield

    def _stem(self, source_name: str) -> str:
        """Return a name in the archive that is no other's, and leads nowhere outside of it."""
        parts = [part for part in source_name.replace("\\", "/").split("/") if part not in {"", ".", ".."}]
        path = PurePosixPath(*parts) if parts else PurePosixPath("output")
        stem = str(path.with_suffix(""))[-MAX_STEM_CHARS:].lstrip("/") or "output"
        self._taken[stem.casefold()] += 1
        number = self._taken[stem.casefold()]
        return stem if number == 1 else f"{stem}-{number}"


def _info(name: str) -> zipfile.ZipInfo:
    """Return the entry of a file."""
    info = zipfile.ZipInfo(name, time.gmtime()[:6])
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return info
