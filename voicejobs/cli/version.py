"""`voicejobs version`."""

import platform

import click

from voicejobs import __version__
from voicejobs.cli.spelling import Command


@click.command(cls=Command, uses_configuration=False)
def version() -> None:
    """Print the version of voicejobs and of Python."""
    click.echo(f"voicejobs {__version__} (Python {platform.python_version()})")
