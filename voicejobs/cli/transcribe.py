"""`voicejobs transcribe`: its options; what they do is loaded when they are used."""

from pathlib import Path
from typing import Any

import click

from voicejobs.cli import option_types
from voicejobs.cli.completers import complete_formats
from voicejobs.cli.durations import Duration
from voicejobs.cli.globals import current_settings
from voicejobs.cli.recognition_options import recognition_options
from voicejobs.cli.remote import given_flags, remote_settings, server_option
from voicejobs.cli.spelling import Command
from voicejobs.cli.subtitle_options import subtitle_options
from voicejobs.cli.template import DEFAULT_TEMPLATE, FIELDS
from voicejobs.errors import BadUsage
from voicejobs.formats import FORMATS

_HERE_ALONE = frozenset(
    (
        "archive", "dry_run", "fail_fast", "jobs", "max_failures", "output_template", "retry_failed", "skip_existing",
        "stdin_name", "summary", "timeout",
    )
)  # fmt: skip
"""Options that a service has no part in."""

_HELP = """Transcribe files and folders.

\b
Examples:
  voicejobs transcribe interviews/ -o text/ -f txt,srt
  voicejobs transcribe talk.mp3 -m base -l en --word-timestamps -f json
  voicejobs transcribe '2024/**/*.m4a' --exclude drafts -o text/ --dry-run
  curl -s https://example.org/talk.mp3 | voicejobs transcribe - -f srt -o -

Folders are searched to their leaves, and the tree is mirrored in the output folder. PATH may also be a pattern in
quotes, - for standard input, or @FILE for a list of paths. Run the same command again after any interruption: only what
is missing is done.
"""


@click.command(cls=Command, help=_HELP)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(readable=False))
@click.option(
    "-o",
    "--output-dir",
    default=".",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Output folder; - writes the output of a single file to standard output.",
)
@click.option(
    "-f",
    "--format",
    "formats",
    multiple=True,
    shell_complete=complete_formats,
    default=("txt",),
    show_default=True,
    help=f"Output formats: {', '.join(FORMATS)}, or all; repeat, or separate by commas.",
)
@recognition_options
@subtitle_options
@click.option("--recursive/--no-recursive", default=True, show_default=True, help="Search folders to their leaves.")
@click.option("--include", multiple=True, metavar="GLOB", help="Take only what matches; repeat for more.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave aside what matches; repeat for more.")
@click.option("--min-size", default="0", metavar="SIZE", help="Leave aside smaller files: 20k, 1.5M.")
@click.option("--stdin-name", metavar="NAME", help="What standard input (-) is called: talk.mp3.")
@click.option(
    "--output-template",
    default=DEFAULT_TEMPLATE,
    show_default=True,
    metavar="TEMPLATE",
    help=f"Names of the outputs; fields: {', '.join(FIELDS)}.",
)
@click.option("--skip-existing", is_flag=True, help="Skip files whose outputs exist, without reading them.")
@click.option("--force", is_flag=True, help="Do again what is done, and replace files that are in the way.")
@click.option("--retry-failed", is_flag=True, help="Take only files that failed or were not done the last time.")
@click.option(
    "--archive",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Skip what is named in FILE by its content, and add what is done.",
)
@click.option("--max-failures", type=click.IntRange(1), metavar="N", help="Stop after N failed files.")
@click.option("--fail-fast", is_flag=True, help="Stop after the first failed file.")
@click.option(
    "--timeout", type=option_types.FloatRange(0, min_open=True), metavar="SECONDS", help="Stop after so long."
)
@click.option(
    "--expires-after",
    type=Duration(is_positive=True),
    metavar="DURATION",
    help="Give up what is not done after so long: 30m, 12h, 2d.",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Files recognised at the same time on this machine; as cores and memory allow if left out.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be done, and touch nothing.")
@click.option("--json", "as_json", is_flag=True, help="Write events as lines of JSON to standard output.")
@click.option(
    "--summary",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write what became of every file to FILE, as JSON.",
)
@click.option("--no-progress", is_flag=True, help="Show only failures, warnings and the summary.")
@server_option
def transcribe(paths: tuple[str, ...], server: str | None, **flags: Any) -> int:
    """Hand the command line to the session, or to what uploads."""
    if (remote := remote_settings(current_settings(), server, by_setting=False)) is not None:
        from voicejobs.cli import remote_submit  # noqa: PLC0415

        given = given_flags(flags)
        for name in sorted(given & _HERE_ALONE):
            raise BadUsage(f"--{name.replace('_', '-')} does not go with --server", hint="Leave one of them out.")
        if flags["output_dir"] == Path("-"):
            raise BadUsage("-o - does not go with --server", hint="Name a folder with -o.")
        flags |= {"lane": "bulk", "label": None, "wait": True}
        return remote_submit.run(remote, paths, flags, given | {"output_dir"})
    from voicejobs.cli.recognising import Recognising  # noqa: PLC0415 - help and completion need no database
    from voicejobs.cli.session import run  # noqa: PLC0415

    return run(Recognising(), paths, flags)
