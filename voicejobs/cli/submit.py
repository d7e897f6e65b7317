"""`voicejobs submit`: its options; what they do is loaded when they are used."""

from typing import Any

import click

from voicejobs.cli import option_types
from voicejobs.cli.completers import complete_formats
from voicejobs.cli.durations import Duration
from voicejobs.cli.globals import current_settings
from voicejobs.cli.recognition_options import recognition_options
from voicejobs.cli.remote import HERE, given_flags, remote_settings, server_option
from voicejobs.cli.spelling import Command
from voicejobs.cli.subtitle_options import subtitle_options
from voicejobs.errors import BadUsage
from voicejobs.formats import FORMATS

_HELP = """Submit recordings, print the id of their batch, and return.

\b
Examples:
  voicejobs submit interviews/ --server https://voice.example.org --wait -o text/ -f srt
  voicejobs submit --manifest calls.jsonl -o text/ -f txt,json
  find calls -name '*.wav' -printf '{"path": "%p", "size": %s}\\n' | voicejobs submit --manifest - -o text
  voicejobs submit --manifest calls.csv --lane interactive --expires-after 12h --wait

Recordings are uploaded to a service; run the same command again after any interruption, and nothing is sent twice.
Or a manifest names them, as the workers of the configured database see them: JSON Lines, or CSV with a header. It says
of each recording its path, and may say name, sha256, size and target. No recording is opened then: workers do that, and
each line is submitted once.
"""


@click.command(cls=Command, help=_HELP)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(readable=False))
@server_option
@click.option(
    "--manifest",
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="The list of recordings; - reads it from standard input.",
)
@click.option(
    "-o",
    "--output-dir",
    default=".",
    show_default=True,
    type=option_types.OutputFolder(),
    help="Output folder, as the workers see it; of a service, where --wait writes the text if it is given.",
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
def submit(paths: tuple[str, ...], server: str | None, manifest: str | None, **flags: Any) -> int:
    """Hand the command line to what reads the manifest, or to what uploads."""
    if bool(paths) == (manifest is not None):
        raise BadUsage("submit takes either paths or --manifest", hint="Name recordings, or a list of them.")
    if manifest is not None:
        if server not in {None, HERE}:
            raise BadUsage(
                "--manifest names paths as the workers see them, and --server takes uploads",
                hint="Name the recordings: voicejobs submit PATH... --server URL, or @LIST for a list of paths.",
            )
        from voicejobs.cli.submitting import run  # noqa: PLC0415 - help and completion need no database

        return run(manifest, flags)
    from voicejobs.cli import remote_submit  # noqa: PLC0415

    settings = remote_settings(current_settings(), server)
    if settings is None:
        raise BadUsage(
            "submit PATH... uploads to a service, and none is named",
            hint="Give --server URL, or set VOICEJOBS_SERVER_URL; `voicejobs transcribe` works on this machine.",
        )
    given = given_flags(flags)
    if "tenant" in given:
        raise BadUsage("--tenant is not yours to choose at a service: it is that of the key", hint="Leave it out.")
    return remote_submit.run(settings, paths, flags, given)
