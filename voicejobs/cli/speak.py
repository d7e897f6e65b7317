"""`voicejobs speak`: its options; what they do is loaded when they are used."""

from pathlib import Path
from typing import Any

import click

from voicejobs.cli.run_options import run_options
from voicejobs.cli.speech_options import speech_options
from voicejobs.cli.spelling import Command

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
@run_options("text", "spoken", "talk.md")
def speak(texts: tuple[str, ...], **flags: Any) -> int:
    """Hand the command line to the session."""
    from voicejobs.cli.session import run  # noqa: PLC0415 - help and completion need no database
    from voicejobs.cli.speaking import Speaking  # noqa: PLC0415

    return run(Speaking(), texts, flags)
