"""The numbers of the subtitle rules.

Sources: the Timed Text Style Guide of Netflix (general requirements, and those of the languages in the table), and the
BBC's subtitle guidelines as far as they are about teletext-like captions.
"""

from dataclasses import dataclass, replace

from voicejobs.formats.options import RenderOptions


@dataclass(frozen=True, slots=True)
class Profile:
    """Hold what a subtitle may be.

    Args:
        line_columns: width of a line; full-width characters take two columns.
        lines: lines of a cue.
        line_words: words of a line; None for any number.
        shortest_ms: shorter cues cannot be read.
        longest_ms: longer cues are read twice.
        chars_per_second: reading speed, in graphemes.
        gap_ms: least time between two cues, so that the eye sees that the text has changed.
        close_below_ms: a pause shorter than this is closed to `gap_ms`: it would look like a flicker.
    """

    line_columns: int = 42
    lines: int = 2
    line_words: int | None = None
    shortest_ms: int = 833
    longest_ms: int = 7000
    chars_per_second: float = 20.0
    gap_ms: int = 84
    close_below_ms: int = 500


_PROFILES = {
    "netflix": Profile(),
    "bbc": Profile(line_columns=37, chars_per_second=17.0, gap_ms=0, close_below_ms=1000),
}

# Columns and speeds of languages whose characters are wide: 16 of them in a Chinese or Korean line, 13 in a Japanese.
_WIDE = {"zh": (32, 9.0), "yue": (32, 9.0), "ja": (26, 4.0), "ko": (32, 12.0)}


def profile_of(options: RenderOptions, language: str | None) -> Profile | None:
    """Return the rules that the options ask for, for text of this language; None for `plain`, which has none."""
    profile = _PROFILES.get(options.subtitle_profile)
    if profile is None:
        return None
    wide = _WIDE.get((language or "").lower().replace("_", "-").partition("-")[0])
    if wide is not None:
        columns, speed = wide
        profile = replace(profile, line_columns=min(columns, profile.line_columns), chars_per_second=speed)
    if options.max_words_per_line is not None:
        profile = replace(profile, line_words=options.max_words_per_line, lines=1)
    return replace(
        profile,
        line_columns=options.max_line_width or profile.line_columns,
        lines=options.max_line_count or profile.lines,
        chars_per_second=options.max_chars_per_second or profile.chars_per_second,
    )
