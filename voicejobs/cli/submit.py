"""`voicejobs submit`: its options; what they do is loaded when they are used."""

from pathlib import Path
from typing import Any

import click

from voicejobs.cli.completers import complete_formats
from voicejobs.cli.durations import Duration
from voicejobs.cli.recognition_options import recognition_options
from voicejobs.cli.spelling import Command
from voicejobs.cli.subtitle_options import subtitle_options
from voicejobs.formats import FORMATS

_HELP = """Submit the recordings of a manifest, print the id of their batch, and return.

\b
Examples:
  voicejobs submit --manifest calls.jsonl -o text/ -f txt,json
  find calls -name '*.wav' -printf '{"path": "%p", "size": %s}\\n' | voicejobs submit --manifest - -o text
  voicejobs submit --manifest calls.csv --lane interactive --expires-after 12h --wait

A manifest is JSON Lines, or CSV with a header; it says of each recording its path, and may say name, sha256, size and
target. No recording is opened: workers do that. Run the same command again after any interruption: each line is
submitted once.
"""


@click.command(cls=Command, help=_HELP)
@click.option(
    "--manifest",
    required=True,
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="The list of recordings; - reads it from standard input.",
)
@click.option(
    "-o",
    "--output-dir",
    default=".",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Output folder, as the workers see it.",
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
@click.option("--label", metavar="TEXT", help="What the batch is called; the name of the manifest if left out.")
@click.option(
    "--lane",
    type=click.Choice(["bulk", "interactive"]),
    default="bulk",
    show_default=True,
    help="interactive passes all bulk work: for few and short recordings.",
)
@click.option("--tenant", default="default", show_default=True, metavar="NAME", help="For whom; tenants share evenly.")
@click.option("--force", is_flag=True, help="Do again what is done, and replace files that are in the way.")
@click.option(
    "--expires-after",
    type=Duration(is_positive=True),
    metavar="DURATION",
    help="Give up what is not done after so long: 30m, 12h, 2d.",
)
@click.option("--wait", is_flag=True, help="Start workers where none run, and follow the batch to its end.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document; with --wait, one object a line.")
def submit(manifest: str, **flags: Any) -> int:
    """Hand the command line to what reads the manifest."""
    from voicejobs.cli.submitting import run  # noqa: PLC0415 - help and completion need no database

    return run(manifest, flags)
