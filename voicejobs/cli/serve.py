"""`voicejobs serve`: long-running services of this machine."""

import os
import sys
from pathlib import Path

import click

from voicejobs.cli.globals import current_settings
from voicejobs.cli.spelling import Command, Group
from voicejobs.errors import BadUsage
from voicejobs.settings import inherited_environment


@click.group(cls=Group)
def serve() -> None:
    """Run services: workers."""


@serve.command(
    "worker",
    cls=Command,
    epilog="\b\nExamples:\n  voicejobs serve worker --devices auto,cpu\n"
    "  voicejobs serve worker --devices cuda:0@0.45,cuda:0@0.45,cuda:1,cpu",
)
@click.option(
    "--devices", default="auto", show_default=True, metavar="LIST",
    help="auto, cpu, or a list of cuda:N, GPU-<uuid> and MIG-<uuid>, each with @SHARE of its memory.",
)  # fmt: skip
@click.option("--grace", type=click.FloatRange(0), default=10.0, show_default=True, metavar="SECONDS",
              help="Time that workers have to give their leases back.")  # fmt: skip
@click.option("--max-memory-mb", type=click.IntRange(0), default=0, show_default=True, metavar="MB",
              help="Start a worker anew that takes more, with its children; 0: never.")  # fmt: skip
@click.option("--ready-file", type=click.Path(path_type=Path), help="File that is there while all workers take work.")
def worker(devices: str, grace: float, max_memory_mb: int, ready_file: Path | None) -> None:
    """Run one worker for each device, and keep them running.

    Needs VOICEJOBS_BROKER_URL and VOICEJOBS_DATABASE_URL. SIGTERM lets them go; SIGHUP starts them anew one by one.
    """
    settings = current_settings()
    if not settings.broker_url or not settings.database_url:
        raise BadUsage("Workers of their own need servers", hint="Set VOICEJOBS_BROKER_URL and VOICEJOBS_DATABASE_URL.")
    words = ["--devices", devices, "--grace", str(grace), "--max-memory-mb", str(max_memory_mb)]
    if ready_file is not None:
        words += ["--ready-file", str(ready_file.absolute())]
    sys.stdout.flush()
    # The launcher becomes this process, so that whoever supervises it has one pid to mind. It is named, not imported:
    # the library knows no deployment.
    os.execve(  # noqa: S606 - our own interpreter and module
        sys.executable,
        [sys.executable, "-P", "-m", "voicejobs_workers.launcher", *words],
        {**inherited_environment(), **settings.to_env()},
    )
