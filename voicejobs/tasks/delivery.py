"""Write the output files: whole or not at all, and never over a file that is not ours."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from hashlib import sha256
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
        _demand_free(path, data, options)
        for earlier in range(1, lease.fence):  # left by a worker that was killed in mid-write
            _part(path, name, lease, earlier).unlink(missing_ok=True)
    files = []
    for name, path, data in rendered:
        write_atomic(path, data, mode=FILE_MODE & ~_umask(), part=_part(path, name, lease, lease.fence))
        files.append({"format": name, **encode_path(path), "sha256": sha256(data).hexdigest(), "size": len(data)})
    return files


def _part(path: Path, name: str, lease: Lease, fence: int) -> Path:
    """Return the temporary name of an output: each claim has its own, so that a zombie writes into no other's."""
    return path.parent / f".voicejobs-{lease.job_id}-{fence}.{name}.part"


def _demand_free(path: Path, data: bytes, options: Mapping[str, Any]) -> None:
    """Refuse to replace somebody else's file."""
    try:
        present = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise map_os_error(error, path) from error
    if options["replace"] or present == data or sha256(present).hexdigest() in options["known"].values():
        return
    raise OutputExists(f"{display_name(path)} is there already, and voicejobs did not write it")


@cache
def _umask() -> int:
    """Return the process's umask; reading it means setting it, so it is read once."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
