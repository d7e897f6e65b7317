"""`voicejobs speak`: its options; what they do is loaded when they are used."""

from pathlib import Path
from typing import Any

import click

from voicejobs.cli import option_types
from voicejobs.cli.durations import Duration
from voicejobs.cli.speech_options import speech_options
from voicejobs.cli.spelling import Command
from voicejobs.cli.template import DEFAULT_TEMPLATE, FIELDS

_HELP = """Speak texts: words, files, folders, and tables of texts.

\b
Examples:
  voicejobs speak "Hello, world." -o hello.wav
  voicejobs speak book.md -f mp3 --captions srt -o audio/
  voicejobs speak chapters/ lines.csv -o audio/ --speed 1.1
  echo "Good morning." | voicejobs speak - -o - | aplay

TEXT is spoken where it names no file. Folders are searched to their leaves for .txt, .md, .srt, .vtt, .ssml and .csv,
and the tree is mirrored in the output folder. A .csv has a text in each row: columns text, and voice and out at will.
PATH may also be a pattern in quotes, - for standard input, or @FILE for a list of paths. Run the same command again
after any interruption: only what is missing is done.
"""


@click.command(cls=Command, help=_HELP)
@click.argument("texts", metavar="TEXT|PATH...", nargs=-1, required=True, type=click.Path(readable=False))
@click.option(
    "-o",
    "--output",
    "output_dir",
    default=".",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Output folder, or a file for a single text (hello.wav); - writes the sound to standard output.",
)
@click.option(
    "-f",
    "--format",
    "formats",
    multiple=True,
    metavar="FORMAT",
    help="Formats of the sound: wav (the default), flac, mp3, opus, aac, pcm; repeat, or separate by commas.",
)
@speech_options
@click.option("--recursive/--no-recursive", default=True, show_default=True, help="Search folders to their leaves.")
@click.option("--include", multiple=True, metavar="GLOB", help="Take only what matches; repeat for more.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave aside what matches; repeat for more.")
@click.option("--min-size", default="0", metavar="SIZE", help="Leave aside smaller files: 20k, 1.5M.")
@click.option("--stdin-name", metavar="NAME", help="What standard input (-) is called: talk.md.")
@click.option(
    "--output-template",
    default=DEFAULT_TEMPLATE,
    show_default=True,
    metavar="TEMPLATE",
    help=f"Names of the outputs; fields: {', '.join(FIELDS)}.",
)
@click.option("--skip-existing", is_flag=True, help="Skip texts whose outputs exist, without reading them.")
@click.option("--force", is_flag=True, help="Do again what is done, and replace files that are in the way.")
@click.option("--retry-failed", is_flag=True, help="Take only texts that failed or were not done the last time.")
@click.option(
    "--archive",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Skip what is named in FILE by its content, and add what is done.",
)
@click.option("--max-failures", type=click.IntRange(1), metavar="N", help="Stop after N failed texts.")
@click.option("--fail-fast", is_flag=True, help="Stop after the first failed text.")
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
    help="Texts spoken at the same time on this machine; as cores and memory allow if left out.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be done, and touch nothing.")
@click.option("--json", "as_json", is_flag=True, help="Write events as lines of JSON to standard output.")
@click.option(
    "--summary",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write what became of every text to FILE, as JSON.",
)
@click.option("--no-progress", is_flag=True, help="Show only failures, warnings and the summary.")
def speak(texts: tuple[str, ...], **flags: Any) -> int:
    """Hand the command line to the session."""
    from voicejobs.cli.session import run  # noqa: PLC0415 - help and completion need no database
    from voicejobs.cli.speaking import Speaking  # noqa: PLC0415

    return run(Speaking(), texts, flags)
