"""What is to be spoken: lines of a text with their pauses or moments, and the shards of a long one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from voicejobs.audio.types import Segment
from voicejobs.errors import BadOption, EmptyText
from voicejobs.text import plan_pieces

SHARD_CHARS = 4_000
"""Characters of one step run of `synthesise`, some four minutes of speech: longer texts fork."""

CHARS_PER_SECOND = 15.0
"""How fast people speak, near enough to tell how long a step may take."""

GAP_S = 0.05
"""Silence that a line leaves before the next one's moment."""


@dataclass(frozen=True, slots=True)
class Line:
    """Hold a piece of text that is spoken in one go.

    Args:
        text: as written.
        spoken: as it is read out.
        pause_after_s: silence after it, in seconds.
        starts_s: when it is to begin; None as soon as the pause before it is over.
        room_s: how long it may last; None for no limit.
    """

    text: str
    spoken: str
    pause_after_s: float = 0.0
    starts_s: float | None = None
    room_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, without those that say nothing."""
        values = {name: value for name, value in asdict(self).items() if value is not None}
        if self.spoken == self.text:
            del values["spoken"]
        return values

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Build a line from `to_json`."""
        return cls(**{"spoken": data["text"], **data})


@dataclass(frozen=True, slots=True)
class LineOptions:
    """Say how a text is cut into lines; the fields are those of `plan_pieces`."""

    max_chars: int
    sentence_pause_s: float
    paragraph_pause_s: float

    @classmethod
    def from_step(cls, options: Mapping[str, Any]) -> Self:
        """Take those among the options of a step.

        Raises:
            BadOption: a pause is no length of time.
        """
        names = ("sentence_pause_s", "paragraph_pause_s")
        for name in names:
            if not 0 <= options[name] <= 60:  # noqa: PLR2004 - a minute
                raise BadOption(f"{name} is {options[name]}", hint="A pause takes 0 to 60 seconds.")
        return cls(options["max_chars"], *(float(options[name]) for name in names))


def lines_of(text: str, language: str, options: LineOptions, markup: str = "plain") -> list[Line]:
    """Return the lines of a text; nothing of it that can be said is left out.

    Raises:
        EmptyText: there is nothing to say.
        BadText, BadOption: it is no text, or there is no such markup.
    """
    pieces = plan_pieces(
        text,
        language,
        options.max_chars,
        sentence_pause_s=options.sentence_pause_s,
        paragraph_pause_s=options.paragraph_pause_s,
        markup=markup,
    )
    return [Line(piece.text, piece.spoken, piece.pause_after_s) for piece in pieces]


def timed_lines(segments: Sequence[Segment], language: str, options: LineOptions) -> list[Line]:
    """Return lines that keep the times of segments: each begins with its segment, and has until the next begins.

    A segment that makes several lines shares its room out by their length. One without anything to say is left out.

    Raises:
        EmptyText: there is nothing to say in any of them.
    """
    lines: list[Line] = []
    for number, segment in enumerate(segments):
        ends_s = segments[number + 1].start_s - GAP_S if number + 1 < len(segments) else None
        try:
            found = lines_of(segment.text, language, options)
        except EmptyText:
            continue
        lines += _in_room(found, segment.start_s, ends_s if ends_s is not None else segment.end_s)
    if not lines:
        raise EmptyText("None of the segments has anything to say")
    return lines


def _in_room(lines: Sequence[Line], starts_s: float, ends_s: float) -> Iterator[Line]:
    """Yield lines that begin at a moment and share the time until another."""
    room_s = max(GAP_S, ends_s - starts_s - sum(line.pause_after_s for line in lines[:-1]))
    whole = sum(len(line.spoken) for line in lines)
    for number, line in enumerate(lines):
        yield replace(
            line,
            pause_after_s=line.pause_after_s if number + 1 < len(lines) else 0.0,
            starts_s=None if number else starts_s,
            room_s=room_s * len(line.spoken) / whole,
        )


def replaced(text: str, table: Sequence[Sequence[str]]) -> str:
    """Return a text in which the first of each pair has given way to the second, in the order of the table."""
    for old, new in table:
        if old:
            text = text.replace(old, new)
    return text


def shards(lines: Sequence[Line], max_chars: int = SHARD_CHARS) -> Iterator[list[Line]]:
    """Yield the lines in parts of at most `max_chars` characters, or one line where it has more."""
    part: list[Line] = []
    chars = 0
    for line in lines:
        if part and chars + len(line.spoken) > max_chars:
            yield part
            part, chars = [], 0
        part.append(line)
        chars += len(line.spoken)
    if part:
        yield part
