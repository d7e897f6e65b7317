"""Transcripts as files: `render` and the names that it knows.

Each format is a module with one function, from a transcript to the bytes of a file. An empty transcript gives a valid
empty file in every format.
"""

from collections.abc import Callable

from voicejobs.audio.types import Transcript
from voicejobs.errors import BadOption
from voicejobs.formats.options import RenderOptions
from voicejobs.formats.srt import write_srt
from voicejobs.formats.txt import write_txt
from voicejobs.formats.vtt import write_vtt
from voicejobs.formats.whisper_json import write_json

__all__ = ["FORMATS", "RenderOptions", "extension", "render"]

_WRITERS: dict[str, Callable[[Transcript, RenderOptions], bytes]] = {
    "txt": write_txt,
    "srt": write_srt,
    "vtt": write_vtt,
    "json": write_json,
}

FORMATS = tuple(_WRITERS)
"""The names, in the order in which help texts show them."""


def render(transcript: Transcript, name: str, options: RenderOptions | None = None) -> bytes:
    """Return the content of the file of format `name`, the same bytes for the same transcript and options.

    Raises:
        BadOption: no format has this name.
    """
    return _WRITERS[_known(name)](transcript, options or RenderOptions())


def extension(name: str) -> str:
    """Return the ending of the files of format `name`, with its dot.

    Raises:
        BadOption: no format has this name.
    """
    return f".{_known(name)}"


def _known(name: str) -> str:
    """Return `name`, or say which names there are."""
    if name not in _WRITERS:
        raise BadOption(f"{name!r} is no output format", hint=f"The formats are {', '.join(FORMATS)}.")
    return name
