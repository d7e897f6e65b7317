"""The command `voicejobs`: a group that loads a command's module only when it is used."""

import difflib
import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from voicejobs import __version__
from voicejobs.errors import (
    BrokerUnavailable,
    DatabaseUnavailable,
    InputError,
    ModelUnavailable,
    Permanent,
    StackUnavailable,
    Transient,
    VoicejobsError,
)

EXIT_UNEXPECTED = 1
EXIT_USAGE = 2
EXIT_TEMPORARY = 5
EXIT_REJECTED = 7
EXIT_PROBLEMS_FOUND = 9
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

_COMMANDS = {
    "transcribe": ("voicejobs.cli.transcribe:transcribe", "Transcribe files and folders."),
    "job": ("voicejobs.cli.job:job", "List jobs, and show the story of one."),
    "batch": ("voicejobs.cli.batch:batch", "List batches, and show one."),
    "models": ("voicejobs.cli.models:models", "List, pull and verify model weights."),
    "db": ("voicejobs.cli.db:db", "Migrate the database, or check it."),
    "doctor": ("voicejobs.cli.doctor:doctor", "Check that everything voicejobs needs is in order."),
    "version": ("voicejobs.cli.version:version", "Print the version."),
}


class LazyGroup(click.Group):
    """Know commands by name and help; import one when it is called."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; click itself would end with 1 where the reader of our output has left."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            return _quiet_broken_pipe()

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which people need them."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command, and suggest one where the name is unknown."""
        close = difflib.get_close_matches(args[0], _COMMANDS, n=1)
        if close and args[0] not in _COMMANDS:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


_EXAMPLES = "\b\nExamples:\n" + "\n".join(
    f"  voicejobs {line}"
    for line in (
        "transcribe interviews/ -o text/ -f txt,srt",
        "transcribe call.wav --channels split -f vtt -o .",
        "job list --state failed",
        "job show JOB",
    )
)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EXAMPLES,
)
@click.version_option(__version__, prog_name="voicejobs")
def cli() -> None:
    """Run speech work in bulk."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with a code of docs/cli.md."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; errors go to standard error in three parts."""
    try:
        result: Any = cli.main(arguments, prog_name="voicejobs", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE if isinstance(error, click.UsageError) else EXIT_UNEXPECTED
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except VoicejobsError as error:
        complain(error)
        return exit_code(error)
    # Click hands back the code of an Exit, or whatever the command returned.
    return result if isinstance(result, int) else 0


def exit_code(error: VoicejobsError) -> int:
    """Return the exit code of an error that ended a whole command."""
    if isinstance(error, (BrokerUnavailable, DatabaseUnavailable, StackUnavailable, ModelUnavailable, Transient)):
        return EXIT_TEMPORARY
    if isinstance(error, (InputError, Permanent)):
        return EXIT_REJECTED
    return EXIT_UNEXPECTED


def complain(error: VoicejobsError, *, name: str = "") -> None:
    """Say what is wrong, under which code, and what to do."""
    prefix = f"{name}: " if name and name not in error.message else ""
    click.echo(f"error: {prefix}{error.message} [{error.code}]", err=True)
    if error.hint:
        click.echo(f"  {error.hint}", err=True)


def _quiet_broken_pipe() -> int:
    """End like a program that SIGPIPE killed, without a second error when the interpreter flushes."""
    import os  # noqa: PLC0415 - only here

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_BROKEN_PIPE


if __name__ == "__main__":
    main()
