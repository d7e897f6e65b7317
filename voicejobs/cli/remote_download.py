"""Write files from what a service has made of a batch: the tree of the inputs, each file whole or not at all."""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import file_digest
from pathlib import Path
from typing import Any

import click

from voicejobs.cli.export import file_mode, stems
from voicejobs.cli.globals import current
from voicejobs.cli.main import complain
from voicejobs.cli.outputs import ending, require_writable
from voicejobs.cli.remote import PAGE, name_of
from voicejobs.cli.show import print_json
from voicejobs.client.service import Service, segment
from voicejobs.errors import AccessDenied, OutputExists, ServerUnreachable, Transient, VoicejobsError
from voicejobs.formats import extension
from voicejobs.store.blobs import map_os_error, sync_folder, write_atomic
from voicejobs.store.paths import display_name

EXIT_SOME_FAILED = 3
EXIT_NO_INPUT = 4
EXIT_ALL_FAILED = 8
SOUND = "sound"


@dataclass(frozen=True, slots=True)
class Download:
    """Say what is to be written, and where.

    Args:
        formats: names of formats of text.
        folder: output folder.
        render: values of `RenderOptions` that are not the default.
        force: replace files that are in the way.
        as_line: tell in one line of JSON what was written, and not in a document.
    """

    formats: Sequence[str]
    folder: Path
    render: Mapping[str, Any]
    force: bool = False
    as_line: bool = False


@dataclass(slots=True)
class _Outcome:
    """Tell what a download did."""

    files: list[str] = field(default_factory=list)
    same: int = 0
    failed: int = 0
    jobs: int = 0


def download_batch(service: Service, batch_id: str, wish: Download, *, as_json: bool, names: Sequence[str] = ()) -> int:
    """Write the text, and the sound, of the jobs of a batch that have succeeded; return the exit code.

    Args:
        service: where the batch is.
        batch_id: which one.
        wish: what is written where.
        as_json: tell in JSON what was written.
        names: what the inputs are called here, in the order of the batch; the service knows names as text alone, in
            which bytes that are no UTF-8 and controls are spelled out. Empty: as the service calls them.

    Raises:
        BadOption: the folder cannot be written.
        VoicejobsError: the service does not answer, or there is no such batch.
    """
    jobs = list(service.pages(f"/api/v1/batches/{segment(batch_id)}/items", limit=PAGE, order="asc"))
    return download_jobs(service, jobs, wish, as_json=as_json, names=names)


def download_jobs(
    service: Service, jobs: Sequence[Mapping[str, Any]], wish: Download, *, as_json: bool, names: Sequence[str] = ()
) -> int:
    """Write what jobs have made, as `download_batch` does."""
    outcome = _Outcome(jobs=len(jobs))
    if any(job["status"] == "succeeded" for job in jobs):
        require_writable(wish.folder)
    told = names if len(names) == len(jobs) else [name_of(job) for job in jobs]
    for job, stem in zip(jobs, stems(told), strict=True):
        if job["status"] != "succeeded":
            outcome.failed += job["status"] in {"failed", "expired"}
            continue
        try:
            _fetch(service, job, wish.folder / stem, wish, outcome)
        except (AccessDenied, Transient):
            raise  # the others would end in the same way
        except VoicejobsError as error:
            outcome.failed += 1
            complain(error)
    _tell(outcome, wish, as_json=as_json)
    if outcome.failed:
        return EXIT_SOME_FAILED if outcome.files or outcome.same else EXIT_ALL_FAILED
    return 0 if outcome.files or outcome.same else EXIT_NO_INPUT


def _fetch(service: Service, job: Mapping[str, Any], stem: Path, wish: Download, outcome: _Outcome) -> None:
    """Fetch the files of one job.

    Raises:
        OutputExists: one with another content is in the way; none of this job is written then.
        DiskFull, OutputUnwritable, VoicejobsError: as their names say.
    """
    made: dict[Path, bytes] = {}
    kinds = {artifact["kind"] for artifact in job.get("artifacts", ())}
    if kinds & {"transcript", "captions"} or not kinds:
        for name in wish.formats:
            answer = service.send("GET", f"/api/v1/jobs/{job['id']}/transcript.{name}", params=query_of(wish.render))
            made[Path(f"{stem}{extension(name)}")] = answer.content
    sounds = {
        Path(f"{stem}{ending(str(artifact['format']))}"): artifact
        for artifact in job.get("artifacts", ())
        if artifact["kind"] == SOUND
    }
    there = {path for path, data in made.items() if path.is_file() and path.read_bytes() == data}
    there |= {path for path, artifact in sounds.items() if path.is_file() and _hash_of(path) == artifact["sha256"]}
    for path in (*made, *sounds):
        if path not in there and not wish.force and path.exists():
            raise OutputExists(
                f"{display_name(path)} is there already", hint="Choose another folder with -o, or --force."
            )
    outcome.same += len(there)
    for path, data in made.items():
        if path not in there:
            write_atomic(path, data, mode=file_mode())
            outcome.files.append(str(path))
    for path, artifact in sounds.items():
        if path not in there:
            _save(service, artifact, path)
            outcome.files.append(str(path))


def _save(service: Service, artifact: Mapping[str, Any], path: Path) -> None:
    """Write an artifact to a file, whole or not at all, in flat memory: sound may be large.

    Raises:
        DiskFull, OutputUnwritable, VoicejobsError: as their names say.
    """
    part: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".voicejobs-", suffix=".part", dir=path.parent)
        part = Path(name)
        with os.fdopen(descriptor, "w+b") as file:
            service.save(f"/api/v1/artifacts/{artifact['id']}/content", file)
            file.flush()
            if artifact["sha256"] is not None and _hash_of(part) != artifact["sha256"]:
                raise ServerUnreachable(f"{display_name(path)} did not come as the service has it")
            os.fchmod(file.fileno(), file_mode())
            os.fsync(file.fileno())
        part.replace(path)
        part = None
        sync_folder(path.parent)
    except OSError as error:
        raise map_os_error(error, path) from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def _hash_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def query_of(render: Mapping[str, Any]) -> dict[str, str]:
    """Return options of rendering as the service takes them in an address."""
    return {
        name: ("true" if value else "false") if isinstance(value, bool) else str(value)
        for name, value in render.items()
    }


def _tell(outcome: _Outcome, wish: Download, *, as_json: bool) -> None:
    """Say what was written."""
    if as_json and wish.as_line:
        click.echo(json.dumps({"v": 1, "type": "files", "files": outcome.files}, ensure_ascii=False))
    elif as_json:
        print_json("files", outcome.files)
    elif not current().quiet:
        place = display_name(wish.folder)
        files = "1 file" if len(outcome.files) == 1 else f"{len(outcome.files)} files"
        click.echo(f"{files} written to {place}, {outcome.same} there already", err=True)
