"""Transcripts as files: `render` and the names that it knows.

Each format is a module with one function, from a transcript to the bytes of a file. An empty transcript gives a valid
empty file in every format.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, cast

from voicejobs.errors import BadOption
from voicejobs.formats.options import RenderOptions

if TYPE_CHECKING:  # commands need the names and endings alone: a writer is imported when it writes
    from voicejobs.audio.types import Transcript

__all__ = ["ALL", "FORMATS", "RenderOptions", "chosen", "extension", "needs_words", "render"]


@dataclass(frozen=True, slots=True)
class _Format:
    """Describe a format.

    Args:
        writer: `module:function` below this package, from a transcript to the bytes of a file.
        extension: ending of its files; no two formats share one.
        needs_words: whether its files are better with the times of words than with those of segments alone.
        requirement: `module:function` that checks that an extra is there; empty for formats that need none.
    """

    writer: str
    extension: str
    needs_words: bool = False
    requirement: str = ""


_FORMATS = {
    "txt": _Format("txt:write_txt", ".txt"),
    "srt": _Format("srt:write_srt", ".srt", needs_words=True),
    "vtt": _Format("vtt:write_vtt", ".vtt", needs_words=True),
    "json": _Format("whisper_json:write_json", ".json"),
    "verbose_json": _Format("verbose_json:write_verbose_json", ".verbose.json"),
    "native": _Format("native:write_native", ".voicejobs.json", needs_words=True),
    "tsv": _Format("tables:write_tsv", ".tsv"),
    "csv": _Format("tables:write_csv", ".csv"),
    "ctm": _Format("ctm:write_ctm", ".ctm", needs_words=True),
    "textgrid": _Format("textgrid:write_textgrid", ".TextGrid", needs_words=True),
    "docx": _Format("docx:write_docx", ".docx", requirement="docx:require_docx"),
}


@cache
def _load(name: str) -> object:
    """Return the function that `module:function` names."""
    module, _, function = name.partition(":")
    return getattr(import_module(f"voicejobs.formats.{module}"), function)


FORMATS = tuple(_FORMATS)
"""The names, in the order in which help texts show them."""

ALL = tuple(name for name, one in _FORMATS.items() if not one.requirement)
"""What `all` means: every format that needs no extra."""


def render(transcript: "Transcript", name: str, options: RenderOptions | None = None) -> bytes:
    """Return the content of the file of format `name`, the same bytes for the same transcript and options.

    Raises:
        BadOption: no format has this name.
        ExtraMissing: the format needs a package that is not installed.
    """
    write = cast("Callable[[Transcript, RenderOptions], bytes]", _load(_known(name).writer))
    return write(transcript, options or RenderOptions())


def extension(name: str) -> str:
    """Return the ending of the files of format `name`, with its dot.

    Raises:
        BadOption: no format has this name.
    """
    return _known(name).extension


def needs_words(name: str, options: RenderOptions | None = None) -> bool:
    """Tell whether files of format `name` are better with the times of words than with those of segments alone.

    Raises:
        BadOption: no format has this name.
    """
    if name in {"srt", "vtt"} and options is not None and options.subtitle_profile == "plain":
        return False
    return _known(name).needs_words


def chosen(given: Sequence[str]) -> list[str]:
    """Return the formats that options name, each once: names, names with commas between them, or `all`.

    Raises:
        BadOption: there is no such format, or none is named.
        ExtraMissing: a format needs a package that is not installed here.
    """
    wanted = [name.strip().lower() for text in given for name in text.split(",") if name.strip()]
    if not wanted:
        raise BadOption("No output format is named", hint=f"The formats are {', '.join(FORMATS)}, and all.")
    names = [name for one in wanted for name in (ALL if one == "all" else (one,))]
    for name in names:
        requirement = _known(name).requirement
        if requirement:
            cast("Callable[[], None]", _load(requirement))()
    return list(dict.fromkeys(names))


def _known(name: str) -> _Format:
    """Return the format of this name, or say which there are."""
    if name not in _FORMATS:
        raise BadOption(f"{name!r} is no output format", hint=f"The formats are {', '.join(FORMATS)}, and all.")
    return _FORMATS[name]
