"""The recording of a voice on the command line: looked at before the work, and kept for it."""

from contextlib import closing
from hashlib import file_digest
from pathlib import Path

from voicejobs.errors import EmptyFile, InputError, NotFound, Unreadable
from voicejobs.hosting.decoder import Decoder
from voicejobs.settings import Settings
from voicejobs.steps import prompt
from voicejobs.store.paths import display_name
from voicejobs.store.remote_blobs import blob_store
from voicejobs.tasks.prompts import read_prompt


def prompt_option(settings: Settings, path: Path, *, keep: bool) -> str:
    """Return what the option `prompt_audio` of a job says of a recording.

    Args:
        settings: where blobs lie, and the limits of decoding.
        path: the recording, in any form that `transcribe` takes.
        keep: put it where workers read it, instead of decoding it to see whether they can.

    Raises:
        BadOption: it is too long, or silent.
        InputError, DiskFull: it cannot be read, or kept.
    """
    name = display_name(str(path))
    try:
        if keep:
            return prompt.named(blob_store(settings).put_file(path).sha256)
        with path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
            if not file.tell():
                raise EmptyFile(f"{name} holds no bytes")
    except OSError as error:
        raise _unreadable(name, error) from error
    with closing(Decoder(settings)) as decoder:
        read_prompt(decoder, path, name)
    return prompt.named(digest)


def _unreadable(name: str, error: OSError) -> InputError:
    """Return our error for a recording that the operating system does not give us."""
    if isinstance(error, FileNotFoundError):
        return NotFound(f"{name} is not there")
    return Unreadable(f"{name} cannot be read: {error.strerror}")
