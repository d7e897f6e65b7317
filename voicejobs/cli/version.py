"""`voicejobs version`."""

import platform

import click

from voicejobs import __version__


@click.command()
def version() -> None:
    """Print the version of voicejobs and of Python."""
    click.echo(f"voicejobs {__version__} (Python {platform.python_version()})")
