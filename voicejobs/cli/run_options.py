"""The options of every command that makes sound of many inputs: which of them, how far, and how it is told."""

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click

from voicejobs.cli import option_types
from voicejobs.cli.durations import Duration
from voicejobs.cli.template import DEFAULT_TEMPLATE, FIELDS

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


def run_options(noun: str, done: str, example: str) -> Callable[[_Decorated], _Decorated]:
    """Return what adds the options to a click command.

    Args:
        noun: what an input is called.
        done: what is done to it.
        example: name of one.
    """

    def add(command: _Decorated) -> _Decorated:
        return reduce(lambda decorated, option: option(decorated), reversed(_options(noun, done, example)), command)

    return add


def _options(noun: str, done: str, example: str) -> tuple[Callable[[Any], Any], ...]:
    """Return the options, in the order in which the help names them."""
    return (
        click.option(
            "--recursive/--no-recursive", default=True, show_default=True, help="Search folders to their leaves."
        ),
        click.option("--include", multiple=True, metavar="GLOB", help="Take only what matches; repeat for more."),
        click.option("--exclude", multiple=True, metavar="GLOB", help="Leave aside what matches; repeat for more."),
        click.option("--min-size", default="0", metavar="SIZE", help="Leave aside smaller files: 20k, 1.5M."),
        click.option("--stdin-name", metavar="NAME", help=f"What standard input (-) is called: {example}."),
        click.option(
            "--output-template",
            default=DEFAULT_TEMPLATE,
            show_default=True,
            metavar="TEMPLATE",
            help=f"Names of the outputs; fields: {', '.join(FIELDS)}.",
        ),
        click.option("--skip-existing", is_flag=True, help=f"Skip {noun}s whose outputs exist, without reading them."),
        click.option("--force", is_flag=True, help="Do again what is done, and replace files that are in the way."),
        click.option(
            "--retry-failed", is_flag=True, help=f"Take only {noun}s that failed or were not done the last time."
        ),
        click.option(
            "--archive",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Skip what is named in FILE by its content, and add what is done.",
        ),
        click.option("--max-failures", type=click.IntRange(1), metavar="N", help=f"Stop after N failed {noun}s."),
        click.option("--fail-fast", is_flag=True, help=f"Stop after the first failed {noun}."),
        click.option(
            "--timeout", type=option_types.FloatRange(0, min_open=True), metavar="SECONDS", help="Stop after so long."
        ),
        click.option(
            "--expires-after",
            type=Duration(is_positive=True),
            metavar="DURATION",
            help="Give up what is not done after so long: 30m, 12h, 2d.",
        ),
        click.option(
            "-j",
            "--jobs",
            type=click.IntRange(1, 1024),
            metavar="N",
            help=f"{noun.capitalize()}s {done} at once on this machine; as cores and memory allow if left out.",
        ),
        click.option("-n", "--dry-run", is_flag=True, help="Show what would be done, and touch nothing."),
        click.option("--json", "as_json", is_flag=True, help="Write events as lines of JSON to standard output."),
        click.option(
            "--summary",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help=f"Write what became of every {noun} to FILE, as JSON.",
        ),
        click.option("--no-progress", is_flag=True, help="Show only failures, warnings and the summary."),
    )
