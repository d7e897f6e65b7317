"""Write the output files: whole or not at all, and never over a file that is not ours."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

from voicejobs.audio.types import Transcript
from voicejobs.errors import OutputExists
from voicejobs.formats import RenderOptions, extension, render
from voicejobs.store.blobs import map_os_error, write_atomic
from voicejobs.store.leases import Lease
from voicejobs.store.paths import decode_path, display_name, encode_path

FILE_MODE = 0o644


def deliver_files(transcript: Transcript, options: Mapping[str, Any], lease: Lease) -> list[dict[str, Any]]:
    """Render every format and write it beside the target's stem; describe what was written.

    A file that is there already is replaced where it is ours (`known` has its SHA-256), where it already holds the
    same bytes, or where the user said so.

    Raises:
        OutputExists: another file is in the way; nothing at all was written then.
        DiskFull, OutputUnwritable: as their names say.
    """
    if not options["target"]:
        return []
    stem = decode_path(options["target"])
    transcript = replace(transcript, source_name=Path(stem).name)  # two inputs of one content share a transcript
    chosen = RenderOptions.from_json(options.get("render", {}))  # jobs of earlier versions have none
    rendered = [(name, Path(stem + extension(name)), render(transcript, name, chosen)) for name in options["formats"]]
    for name, path, data in rendered:
        demand_free(path, sha256(data).hexdigest(), options)
        remove_parts(path, name, lease)
    files = []
    for name, path, data in rendered:
        write_atomic(path, data, mode=file_mode(), part=part_of(path, name, lease, lease.fence))
        files.append({"format": name, **encode_path(path), "sha256": sha256(data).hexdigest(), "size": len(data)})
    return files


def part_of(path: Path, name: str, lease: Lease, fence: int) -> Path:
    """Return the temporary name of an output: each claim has its own, so that a zombie writes into no other's."""
    return path.parent / f".voicejobs-{lease.job_id}-{fence}.{name}.part"


def remove_parts(path: Path, name: str, lease: Lease) -> None:
    """Remove what workers that were killed in mid-write have left of an output."""
    for earlier in range(1, lease.fence):
        part_of(path, name, lease, earlier).unlink(missing_ok=True)


def demand_free(path: Path, digest: str, options: Mapping[str, Any]) -> None:
    """Refuse to replace somebody else's file with one of this SHA-256.

    Raises:
        OutputExists: there is one, of other content.
        DiskFull, OutputUnwritable: nobody can tell.
    """
    try:
        with path.open("rb") as file:
            if options["replace"]:
                return
            present = file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return
    except OSError as error:
        raise map_os_error(error, path) from error
    if present == digest or present in options["known"].values():
        return
    raise OutputExists(f"{display_name(path)} is there already, and voicejobs did not write it")


def file_mode() -> int:
    """Return the permissions of output files: those that other programs would give them."""
    return FILE_MODE & ~_umask()


@cache
def _umask() -> int:
    """Return the process's umask; reading it means setting it, so it is read once."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
