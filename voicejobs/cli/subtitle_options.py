"""The options of commands that write transcripts as files."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import reduce
from typing import Any, TypeVar

import click

from voicejobs.cli import option_types
from voicejobs.formats.options import PROFILES, RenderOptions

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--subtitle-profile", type=click.Choice(PROFILES), default="netflix", show_default=True,
        help="Rules for srt and vtt; plain makes each segment a cue.",
    ),
    click.option(
        "--max-line-width", type=click.IntRange(1, 10_000), default=None,
        help="Columns of a subtitle line; a full-width character takes two.",
    ),
    click.option("--max-line-count", type=click.IntRange(1, 10_000), default=None, help="Lines of a subtitle."),
    click.option(
        "--max-words-per-line", type=click.IntRange(1, 10_000), default=None,
        help="Words of a subtitle line; alone, it makes cues of one line.",
    ),
    click.option(
        "--max-chars-per-second", type=option_types.FloatRange(1, 10_000), default=None,
        help="Reading speed that subtitles keep below where they can.",
    ),
    click.option(
        "--channel-labels/--no-channel-labels", default=True, show_default=True,
        help="Name the channel of each passage, where channels were kept apart.",
    ),
    click.option("--paragraphs", is_flag=True, help="Join the passages of txt into paragraphs."),
    click.option("--srt-bom", is_flag=True, help="Start SRT files with a byte order mark."),
    click.option("--srt-crlf", is_flag=True, help="End the lines of SRT files with CR LF."),
)  # fmt: skip


def subtitle_options(command: _Decorated) -> _Decorated:
    """Add the options of the output files to a click command."""
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)


def render_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `RenderOptions` among the flags of a command, those that are not the default, as JSON.

    Raises:
        BadOption: they do not go together.
    """
    names = [field.name for field in fields(RenderOptions)]
    return RenderOptions(**{name: flags[name] for name in names if name in flags}).to_json()
