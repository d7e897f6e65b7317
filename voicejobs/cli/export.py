"""Write files from the transcripts that the database keeps."""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from voicejobs import queries
from voicejobs.audio.types import Transcript
from voicejobs.errors import OutputExists, Unreadable, VoicejobsError
from voicejobs.formats import RenderOptions, chosen, extension, render
from voicejobs.settings import Settings
from voicejobs.store import artifacts
from voicejobs.store.blobs import write_atomic
from voicejobs.store.database import Database
from voicejobs.store.remote_blobs import blob_store


@dataclass(slots=True)
class Exported:
    """Tell what an export did.

    Args:
        transcripts: how many transcripts the batch has.
        files: paths that were written.
        same: how many files were there already, with the same content.
        errors: what could not be written.
    """

    transcripts: int = 0
    files: list[str] = field(default_factory=list)
    same: int = 0
    errors: list[VoicejobsError] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Wish:
    """Say what is to be written, and where.

    Args:
        formats: names, and lists of them with commas.
        folder: output folder.
        flags: values of `RenderOptions`.
        force: replace files that are in the way.
    """

    formats: Sequence[str]
    folder: Path
    flags: Mapping[str, Any]
    force: bool = False


def export_batch(database: Database, settings: Settings, batch_id: str, wish: Wish) -> Exported:
    """Render the transcripts of a batch below a folder, the tree of the inputs mirrored.

    Raises:
        NoSuchRecord: there is no such batch.
        BadOption, ExtraMissing: a format does not exist, or needs what is not installed.
    """
    names, options = chosen(wish.formats), RenderOptions.from_json(wish.flags)
    found = queries.stored_transcripts(database, batch_id)
    outcome = Exported(transcripts=len(found))
    blobs = blob_store(settings)
    for stored, stem in zip(found, stems([one.name for one in found]), strict=True):
        try:
            transcript = Transcript.from_json(json.loads(artifacts.load(database, blobs, stored.artifact_id)))
            for name in names:
                path = wish.folder / f"{stem}{extension(name)}"
                _write(path, render(transcript, name, options), outcome, force=wish.force)
        except VoicejobsError as error:
            outcome.errors.append(error)
        except OSError as error:
            hint = "Run `voicejobs transcribe --force` for it."
            outcome.errors.append(Unreadable(f"The transcript of {stored.name} cannot be read: {error}", hint=hint))
    return outcome


def stems(names: Sequence[str]) -> list[str]:
    """Return a name without its ending for each input, or with it where two would collide; never above the folder."""
    safe = [os.path.join(*(part for part in PurePath(name).parts if part not in {"/", ".."})) for name in names]  # noqa: PTH118
    short = [os.path.splitext(name)[0] for name in safe]  # noqa: PTH122 - Path tidies names that must stay as they are
    counts = Counter(name.casefold() for name in short)
    chosen = [one if counts[one.casefold()] == 1 else whole for one, whole in zip(short, safe, strict=True)]
    taken: Counter[str] = Counter()
    unique = []
    for stem in chosen:
        taken[stem.casefold()] += 1
        number = taken[stem.casefold()]
        unique.append(stem if number == 1 else f"{stem}-{number}")
    return unique


def _write(path: Path, data: bytes, outcome: Exported, *, force: bool) -> None:
    """Write a file whole, and only where none is, unless it is to be replaced.

    Raises:
        OutputExists: one with another content is there.
        DiskFull, OutputUnwritable: as their names say.
    """
    if os.path.lexists(path):
        if path.is_file() and path.read_bytes() == data:
            outcome.same += 1
            return
        if not force or not path.is_file():
            raise OutputExists(f"{path} is there already", hint="Choose another folder with -o.")
    write_atomic(path, data, mode=file_mode())
    outcome.files.append(str(path))


def file_mode() -> int:
    """Return the permissions of a new file; reading the process's umask means setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return 0o666 & ~mask
