"""`voicejobs watch`: its options; what they do is loaded when they are used."""

from pathlib import Path
from typing import Any

import click

from voicejobs.cli import option_types
from voicejobs.cli.completers import complete_formats
from voicejobs.cli.recognition_options import recognition_options
from voicejobs.cli.remote import server_option
from voicejobs.cli.spelling import Command
from voicejobs.cli.subtitle_options import subtitle_options
from voicejobs.formats import FORMATS

_HELP = """Transcribe what comes into a folder, each recording once.

\b
Examples:
  voicejobs watch inbox/ -o text/ -f txt,srt
  voicejobs watch inbox/ -o inbox/text -m small -l de --settle 10
  voicejobs watch inbox/ -o text/ --server https://voice.example.org
  voicejobs watch inbox/ -o text/ --once --json

A file is taken once its size and its time have stood still, whether it was copied, moved, renamed or linked there, and
once only: a recording whose content is done is not done again under another name, nor after a restart. Ctrl-C ends the
command; what it has taken is in the database, and the same command goes on with it.
"""


@click.command(cls=Command, help=_HELP)
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output-dir",
    required=True,
    type=option_types.OutputFolder(),
    help="Output folder, in which the tree is mirrored; it may lie in FOLDER.",
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
@click.option("--recursive/--no-recursive", default=True, show_default=True, help="Look into folders to their leaves.")
@click.option("--include", multiple=True, metavar="GLOB", help="Take only what matches; repeat for more.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave aside what matches; repeat for more.")
@click.option("--min-size", default="0", metavar="SIZE", help="Leave aside smaller files: 20k, 1.5M.")
@click.option(
    "--settle",
    type=option_types.FloatRange(0, 86_400),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for which size and time of a file must stand still.",
)
@click.option(
    "--poll",
    type=option_types.FloatRange(0.05, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Pause between two looks; longer where a look takes more than a tenth of it.",
)
@server_option
@click.option("--once", is_flag=True, help="Take what stands still now, see it through, and end.")
@click.option("--json", "as_json", is_flag=True, help="Write events as lines of JSON to standard output.")
@click.option("--no-progress", is_flag=True, help="Show only failures, warnings and the summary.")
def watch(folder: Path, **flags: Any) -> int:
    """Hand the command line to what watches."""
    from voicejobs.cli.watching import run  # noqa: PLC0415 - help and completion need no database

    return run(folder, flags)
