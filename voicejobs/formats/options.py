"""What a user may change about the files."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from voicejobs.errors import BadOption

PROFILES = ("netflix", "bbc", "plain")
"""Names of the rules for subtitles; `voicejobs.formats.profiles` has their numbers."""

_LIMITS = ("max_line_width", "max_line_count", "max_words_per_line", "max_chars_per_second")


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """Hold the options of all formats; each format looks at its own. None leaves a limit to the profile.

    Args:
        channel_labels: name the channel of each passage in txt, srt, vtt and docx, where channels were kept apart.
        srt_bom: start SRT files with a byte order mark, which some old players need to see UTF-8.
        srt_crlf: end the lines of SRT files with CR LF.
        paragraphs: join the passages of txt into paragraphs.
        subtitle_profile: one of `PROFILES`; `plain` makes each segment a cue and knows no limits.
        max_line_width: columns of a line of a subtitle; a full-width character takes two.
        max_line_count: lines of a cue.
        max_words_per_line: words of a line; a cue has one line then, unless `max_line_count` says otherwise.
        max_chars_per_second: reading speed, in columns, that the choice of breaks keeps below where it can.

    Raises:
        BadOption: a value is out of its range, or a limit is given for `plain`.
    """

    channel_labels: bool = True
    srt_bom: bool = False
    srt_crlf: bool = False
    paragraphs: bool = False
    subtitle_profile: str = "netflix"
    max_line_width: int | None = None
    max_line_count: int | None = None
    max_words_per_line: int | None = None
    max_chars_per_second: float | None = None

    def __post_init__(self) -> None:
        """Refuse what no file can be written by."""
        if self.subtitle_profile not in PROFILES:
            raise BadOption(
                f"There is no subtitle profile {self.subtitle_profile!r}", hint=f"Known: {', '.join(PROFILES)}."
            )
        for name in ("channel_labels", "srt_bom", "srt_crlf", "paragraphs"):
            if not isinstance(getattr(self, name), bool):
                raise BadOption(f"{name} is {getattr(self, name)!r}, and must be true or false")
        for name in _LIMITS:
            value = getattr(self, name)
            if value is not None:
                _demand_limit(name, value)
                if self.subtitle_profile == "plain":
                    raise BadOption(
                        f"The subtitle profile 'plain' knows no {name}",
                        hint="It makes each segment a cue; take the profile netflix or bbc for limits.",
                    )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Build options from JSON values; what is left out has its default.

        Raises:
            BadOption: a name is unknown, or a value is out of its range.
        """
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(data) - set(known))
        if unknown:
            raise BadOption(f"There is no render option {unknown[0]!r}", hint=f"Known: {', '.join(known)}.")
        return cls(**data)

    def to_json(self) -> dict[str, Any]:
        """Return the values that are not the default, so that the same choice is always spelled the same."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != field.default
        }


def _demand_limit(name: str, value: Any) -> None:
    """Refuse a limit that is no positive number, or no whole one where things are counted."""
    kinds = (int, float) if name == "max_chars_per_second" else (int,)
    if isinstance(value, bool) or not isinstance(value, kinds) or not value >= 1 or value > 10_000:  # noqa: PLR2004 - no screen is wider
        raise BadOption(f"{name} is {value!r}, and must be a number from 1 to 10000")
