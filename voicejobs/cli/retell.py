"""`voicejobs retell`: its options; what they do is loaded when they are used."""

from pathlib import Path
from typing import Any

import click

from voicejobs.cli.recognition_options import recognition_options
from voicejobs.cli.run_options import run_options
from voicejobs.cli.speech_options import retelling_options
from voicejobs.cli.spelling import Command

_HELP = """Recognise recordings, and speak what was heard with another voice.

\b
Examples:
  voicejobs retell talk.mp3 -o spoken.flac
  voicejobs retell interviews/ -o spoken/ -f mp3 --captions srt --voice-model en_US-joe-medium
  voicejobs retell lesson.mp4 -o dubbed.wav --keep-times --replace "Acme" "the company"
  voicejobs retell rede.m4a -o speech.wav --task translate -m small

Folders are searched to their leaves, and the tree is mirrored in the output folder. PATH may also be a pattern in
quotes, - for standard input, or @FILE for a list of paths. Run the same command again after any interruption: only what
is missing is done.
"""


@click.command(cls=Command, help=_HELP)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(readable=False))
@click.option(
    "-o",
    "--output",
    "output_dir",
    default=".",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Output folder, or a file for a single recording (spoken.wav); - writes the sound to standard output.",
)
@click.option(
    "-f",
    "--format",
    "formats",
    multiple=True,
    metavar="FORMAT",
    help="Formats of the sound: wav (the default), flac, mp3, opus, aac, pcm; repeat, or separate by commas.",
)
@recognition_options
@retelling_options
@run_options("recording", "retold", "talk.mp3")
def retell(paths: tuple[str, ...], **flags: Any) -> int:
    """Hand the command line to the session."""
    from voicejobs.cli.retelling import Retelling  # noqa: PLC0415 - help and completion need no database
    from voicejobs.cli.session import run  # noqa: PLC0415

    return run(Retelling(), paths, flags)
