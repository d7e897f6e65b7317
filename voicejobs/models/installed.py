"""Models on this machine: is a model there, and are its files the ones the catalogue names?

A folder counts as a model only when every file has been hashed. The outcome is written beside the files as
`voicejobs-model.json` with size and modification time of each, so that the next look costs a few `stat` calls;
a file that was touched since is hashed again.
"""

import contextlib
import json
import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from voicejobs.errors import BadOption, ModelCorrupt, ModelUnavailable
from voicejobs.models.catalogue import CATALOGUE, SHORT_REVISION, ModelEntry, ModelFile, find
from voicejobs.settings import Settings

MARKER = "voicejobs-model.json"
PINS = "in-use.json"
CHUNK_BYTES = 1 << 20

State = Literal["ready", "unverified", "partial", "missing"]


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Point to the verified files of a model.

    Args:
        name: catalogue name.
        dir: absolute folder of the files.
        sha256: hash of the model; part of the done-key of every job.
        revision: version of the weights at their origin.
    """

    name: str
    dir: Path
    sha256: str
    revision: str


def folder_of(entry: ModelEntry, settings: Settings) -> Path:
    """Return the folder of a model, whether it exists or not.

    That is `NAME`, until another revision lies there: then it is `NAME@REVISION` beside it.
    """
    plain = settings.models_dir / entry.name
    own = settings.models_dir / f"{entry.name}@{entry.revision[:SHORT_REVISION]}"
    if own.exists():
        return own
    holder = _recorded_hash(plain)
    if holder == entry.sha256 or (holder is None and entry == CATALOGUE.get(entry.name, entry)):
        return plain
    return own


def chosen(name: str, settings: Settings) -> ModelEntry:
    """Return the entry of a model: in the revision of `NAME@REVISION`, else the one in use, else the default.

    Raises:
        UnknownModel: the catalogue has no such name, or not in this revision.
    """
    pinned = "" if "@" in name else _pins(settings).get(name, "")
    return find(f"{name}@{pinned}" if pinned else name)


def use(name: str, settings: Settings) -> ModelEntry:
    """Let a revision of a model be the one that its plain name means, and return it; `NAME` alone is the default.

    Raises:
        UnknownModel: the catalogue has no such name, or not in this revision.
        ModelUnavailable, ModelCorrupt: it is not on this machine, or damaged.
        BadOption: the folder cannot be written.
    """
    entry = find(name)
    resolve(entry, settings)
    pins = {**_pins(settings), entry.name: entry.revision}
    if "@" not in name:
        del pins[entry.name]
    try:
        temporary = settings.models_dir / f".{PINS}.{os.getpid()}"
        temporary.write_text(json.dumps(pins, indent=2), encoding="utf-8")
        temporary.replace(settings.models_dir / PINS)
    except OSError as error:
        raise BadOption(
            f"The models folder {settings.models_dir} cannot be written: {error.strerror}",
            hint="Set VOICEJOBS_MODELS_DIR to a folder that you can write.",
        ) from error
    return entry


def _pins(settings: Settings) -> dict[str, str]:
    """Return the revisions that were chosen, by name of the model."""
    try:
        pins = json.loads((settings.models_dir / PINS).read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(name): str(revision) for name, revision in pins.items()} if isinstance(pins, dict) else {}


def _recorded_hash(folder: Path) -> str | None:
    """Return the hash of the model that was verified last in a folder."""
    try:
        recorded = json.loads((folder / MARKER).read_bytes())["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return recorded if isinstance(recorded, str) and len(recorded) == len(sha256().hexdigest()) else None


def resolve(model: str | ModelEntry, settings: Settings) -> ModelFiles:
    """Return the files of a model, verified: by their stamps where those are known, else by hashing them.

    Raises:
        UnknownModel: the catalogue has no such name.
        ModelUnavailable: files are missing.
        ModelCorrupt: a file is not the one that the catalogue names.
    """
    entry = chosen(model, settings) if isinstance(model, str) else model
    folder = folder_of(entry, settings)
    if _recorded_stamps(folder, entry) == _stamps(folder, entry):
        return _model_files(folder, entry)
    return verify(entry, settings)


def verify(model: str | ModelEntry, settings: Settings) -> ModelFiles:
    """Hash every file of a model and return them; record the outcome where the folder can be written.

    Raises:
        UnknownModel: the catalogue has no such name.
        ModelUnavailable: files are missing.
        ModelCorrupt: a file is not the one that the catalogue names.
    """
    entry = chosen(model, settings) if isinstance(model, str) else model
    folder = folder_of(entry, settings)
    hint = f"Run `voicejobs models pull {entry.name}`."
    # Stamps are taken before the hashing, so that a change meanwhile shows at the next look.
    stamps = _stamps(folder, entry)
    missing = [file.name for file in entry.files if file.name not in stamps]
    if missing:
        what = "is not on this machine" if len(missing) == len(entry.files) else f"lacks {', '.join(missing)}"
        raise ModelUnavailable(f"model {entry.name} {what} (looked in {folder})", hint=hint, model=entry.name)
    for file in entry.files:
        found = hash_file(folder / file.name)
        if found != file.sha256:
            with contextlib.suppress(OSError):
                (folder / MARKER).unlink(missing_ok=True)
            raise ModelCorrupt(
                f"{folder / file.name} is not the file that the catalogue names: its SHA-256 is {found}",
                hint=hint,
                model=entry.name,
                expected=file.sha256,
            )
    with contextlib.suppress(OSError):  # a read-only folder costs a full hash each time, and works
        _write_marker(folder, entry, stamps)
    return _model_files(folder, entry)


def state(entry: ModelEntry, settings: Settings) -> State:
    """Tell cheaply how much of a model is there; `unverified` files are hashed at their first use."""
    folder = folder_of(entry, settings)
    stamps = _stamps(folder, entry)
    if len(stamps) == len(entry.files):
        return "ready" if _recorded_stamps(folder, entry) == stamps else "unverified"
    return "partial" if stamps or (folder.is_dir() and any(folder.iterdir())) else "missing"


def is_right(path: Path, file: ModelFile) -> bool:
    """Tell whether `path` holds exactly the content of `file`."""
    return path.is_file() and path.stat().st_size == file.bytes and hash_file(path) == file.sha256


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file.

    Raises:
        ModelUnavailable: the file cannot be read.
    """
    digest = sha256()
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise ModelUnavailable(f"{path} cannot be read: {error.strerror}", hint="Check its rights.") from error
    return digest.hexdigest()


def _model_files(folder: Path, entry: ModelEntry) -> ModelFiles:
    return ModelFiles(entry.name, folder.absolute(), entry.sha256, entry.revision)


def _stamps(folder: Path, entry: ModelEntry) -> dict[str, list[int]]:
    """Return size and modification time of each file that is there."""
    stamps = {}
    for file in entry.files:
        with contextlib.suppress(OSError):
            status = (folder / file.name).stat()
            stamps[file.name] = [status.st_size, status.st_mtime_ns]
    return stamps


def _recorded_stamps(folder: Path, entry: ModelEntry) -> dict[str, list[int]] | None:
    """Return the stamps of the last verification, None where there was none for this revision of the model."""
    try:
        record: dict[str, Any] = json.loads((folder / MARKER).read_bytes())
        if record["sha256"] != entry.sha256:
            return None
        return {name: [fields["bytes"], fields["mtime_ns"]] for name, fields in record["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write_marker(folder: Path, entry: ModelEntry, stamps: dict[str, list[int]]) -> None:
    record = {
        "name": entry.name,
        "revision": entry.revision,
        "sha256": entry.sha256,
        "files": {
            file.name: {"sha256": file.sha256, "bytes": stamps[file.name][0], "mtime_ns": stamps[file.name][1]}
            for file in entry.files
        },
    }
    temporary = folder / f".{MARKER}.{os.getpid()}"
    with temporary.open("w", encoding="utf-8") as stream:
        json.dump(record, stream, indent=2)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(folder / MARKER)
