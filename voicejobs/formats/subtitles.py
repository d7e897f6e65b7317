"""SRT and WebVTT files as cues with their places in the file, however broken: `lint` says what is wrong with them."""

import html
import re
from dataclasses import dataclass, field

from voicejobs.errors import NotSubtitles

_TIME = r"(?:(\d+):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
_TIMING = re.compile(rf"^\s*{_TIME}\s*-->\s*{_TIME}(?:\s.*)?$")
_VTT_MARKUP = re.compile(r"<[^<>]*>")
_SRT_MARKUP = re.compile(r"</?[A-Za-z!][^<>]*>|\{\\[^{}]*\}")
_ARROW = "-->"
_SKIPPED = ("NOTE", "STYLE", "REGION")


@dataclass(slots=True)
class ReadCue:
    """Hold a cue of a file.

    Args:
        number: place among the cues, from 1.
        line: number of the line with its times, from 1.
        start_ms: as written.
        end_ms: as written, which may be before its start.
        lines: of text, without markup.
    """

    number: int
    line: int
    start_ms: int
    end_ms: int
    lines: list[str] = field(default_factory=list)


@dataclass(slots=True)
class SubtitleFile:
    """Hold the cues of a file, in its order, and the lines that belong to none."""

    cues: list[ReadCue] = field(default_factory=list)
    stray: list[tuple[int, str]] = field(default_factory=list)


def read_subtitles(data: bytes, name: str) -> SubtitleFile:
    """Return the cues of an SRT or WebVTT file; which of them it is shows by its first line.

    Raises:
        NotSubtitles: it is not UTF-8, or holds text and no cue.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotSubtitles(f"{name} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    lines = re.split("\r\n|\r|\n", text)
    is_vtt = lines[0].split(" ")[0].split("\t")[0] == "WEBVTT"
    found = _read(lines, is_vtt=is_vtt)
    if not found.cues and not is_vtt and text.strip():
        raise NotSubtitles(f"{name} holds neither SRT nor WebVTT cues")
    return found


def _read(lines: list[str], *, is_vtt: bool) -> SubtitleFile:
    """Read blocks of lines with blank ones between them."""
    found = SubtitleFile()
    for number, block in _blocks(lines):
        if is_vtt and (number == 1 or block[0].split(" ")[0] in _SKIPPED):
            continue
        place = next((index for index, line in enumerate(block) if _ARROW in line), None)
        timing = None if place is None else _TIMING.match(block[place])
        if place is None or timing is None:
            found.stray.append((number + (place or 0), block[place or 0]))
            continue
        if place > 1:  # an SRT block has its number alone before the times, a WebVTT block one identifier
            found.stray.append((number, block[0]))
        first = timing.groups()
        cue = ReadCue(len(found.cues) + 1, number + place, _milliseconds(first[:4]), _milliseconds(first[4:]))
        for index, line in enumerate(block[place + 1 :], start=place + 1):
            if _ARROW in line:
                found.stray.append((number + index, line))
            cue.lines.append(html.unescape(_VTT_MARKUP.sub("", line)) if is_vtt else _SRT_MARKUP.sub("", line))
        found.cues.append(cue)
    return found


def _blocks(lines: list[str]) -> list[tuple[int, list[str]]]:
    """Return runs of lines that are not blank, with the number of the first of each."""
    blocks: list[tuple[int, list[str]]] = []
    is_open = False
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            is_open = False
        elif is_open:
            blocks[-1][1].append(line)
        else:
            blocks.append((number, [line]))
            is_open = True
    return blocks


def _milliseconds(parts: tuple[str | None, ...]) -> int:
    """Return the parts of a clock as milliseconds; a short fraction is read as written, `.5` being half a second."""
    hours, minutes, seconds, fraction = (part or "0" for part in parts)
    return (int(hours) * 60 + int(minutes)) * 60_000 + int(seconds) * 1000 + int(fraction.ljust(3, "0"))
