"""The command `voicejobs`: a group that loads a command's module only when it is used."""

import errno
import importlib
import io
import os
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from voicejobs import __version__
from voicejobs.cli.globals import current, forget, keep
from voicejobs.cli.spelling import Group, global_options
from voicejobs.errors import (
    AccessDenied,
    BadOption,
    BadUsage,
    BrokerUnavailable,
    DatabaseUnavailable,
    DiskFull,
    InputError,
    Internal,
    ModelUnavailable,
    Permanent,
    StackUnavailable,
    Transient,
    VoicejobsError,
)

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EXIT_UNEXPECTED = 1
EXIT_USAGE = 2
EXIT_TEMPORARY = 5
EXIT_DENIED = 6
EXIT_REJECTED = 7
EXIT_PROBLEMS_FOUND = 9
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

_COMMANDS = {
    "transcribe": ("voicejobs.cli.transcribe:transcribe", "Transcribe files and folders."),
    "retell": ("voicejobs.cli.retell:retell", "Recognise recordings, and speak what was heard."),
    "speak": ("voicejobs.cli.speak:speak", "Speak texts: words, files, folders, tables."),
    "submit": ("voicejobs.cli.submit:submit", "Submit the recordings of a manifest, and return."),
    "watch": ("voicejobs.cli.watch:watch", "Transcribe what comes into a folder."),
    "convert": ("voicejobs.cli.convert:convert", "Render transcripts again, without recognising again."),
    "lint": ("voicejobs.cli.lint:lint_command", "Check subtitles for what readers stumble over."),
    "job": ("voicejobs.cli.job:job", "List, show, watch, cancel and retry jobs."),
    "batch": ("voicejobs.cli.batch:batch", "List, show, watch, cancel, retry and export batches."),
    "serve": ("voicejobs.cli.serve:serve", "Run the REST service, workers, or the voice engine."),
    "key": ("voicejobs.cli.key:key", "Make, list and revoke API keys of the service."),
    "voices": ("voicejobs.cli.voices:voices", "List the voices that speak."),
    "webhook": ("voicejobs.cli.webhook:webhook", "Make, list, test and remove webhooks."),
    "models": ("voicejobs.cli.models:models", "List, pull, choose and verify model weights."),
    "config": ("voicejobs.cli.config:config", "Show, check and write the configuration."),
    "db": ("voicejobs.cli.db:db", "Migrate the database, or check it."),
    "prune": ("voicejobs.cli.prune:prune", "Remove jobs that ended long ago."),
    "doctor": ("voicejobs.cli.doctor:doctor", "Check that everything voicejobs needs is in order."),
    "completion": ("voicejobs.cli.completion:completion", "Print the completion script of a shell."),
    "version": ("voicejobs.cli.version:version", "Print the version."),
}


class LazyGroup(Group):
    """Know commands by name and help; import one when it is called."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.extend(global_options())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before the command; those of a command are no options here, and we say so."""
        try:
            given, _, _ = self.make_parser(ctx).parse_args(list(args))
        except click.NoSuchOption as error:
            raise click.UsageError(f"No such option {error.option_name!r}.{_advice(args)}", ctx) from error
        if not ctx.resilient_parsing and not given.get("help") and not given.get("version"):
            keep(ctx, given)
        return super().parse_args(ctx, args)

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
        """Resolve the command; what is no command and looks like a file is one that should be transcribed."""
        name = args[0]
        if not ctx.resilient_parsing and name not in _COMMANDS and _looks_like_input(name):
            ctx.fail(f"{name!r} is no command. To transcribe it: voicejobs transcribe {shlex.join(args)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Complete names of commands without importing them."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only when Tab is pressed

        names = [
            CompletionItem(name, help=text) for name, (_, text) in _COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


def _advice(args: Sequence[str]) -> str:
    """Say where the options of a command stand, since people forget the command itself."""
    inputs = [word for word in args if not word.startswith("-") and _looks_like_input(word)]
    if inputs and not set(_COMMANDS) & set(args):
        return f" To transcribe: voicejobs transcribe {shlex.join(args)}"
    return " The options of a command stand after its name."


def _looks_like_input(name: str) -> bool:
    """Tell whether a word that is no command names recordings."""
    return os.path.lexists(name) or os.sep in name or name.startswith("@") or any(mark in name for mark in ".*?")


_EXAMPLES = "\b\nExamples:\n" + "\n".join(
    f"  voicejobs {line}"
    for line in (
        "transcribe talk.mp3 -f srt",
        "transcribe interviews/ -o text/ -f txt,srt",
        "transcribe call.wav --channels split -f vtt -o .",
        "speak book.md -f mp3 -o audio/",
        "job list --state failed",
        "batch retry-failed BATCH --wait",
        "config show --origin",
    )
)


@click.group(cls=LazyGroup, help=f"Run speech work in bulk.\n\n{_EXAMPLES}")
@click.version_option(__version__, prog_name="voicejobs")
def cli() -> None:
    """Take the options before the command; `LazyGroup` keeps them."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with a code of docs/cli.md."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that is not one of UTF-8 shows a name that it cannot spell with escapes, and ends nothing.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; errors go to standard error in three parts."""
    forget()
    try:
        result: Any = cli.main(arguments, prog_name="voicejobs", standalone_mode=False)
    except click.ClickException as error:
        return _misused(error)
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except VoicejobsError as error:
        complain(error)
        return exit_code(error)
    except OSError as error:
        return _unwritten(error) if error.errno in {errno.ENOSPC, errno.EDQUOT} else _unexpected(error)
    except Exception as error:  # noqa: BLE001 - the last resort: people see three parts, and a traceback if they ask
        return _unexpected(error)
    # Click hands back the code of an Exit, or whatever the command returned.
    return result if isinstance(result, int) else 0


def _unwritten(error: OSError) -> int:
    """Say that the disk behind the output, or behind our own files, is full; that is no fault of ours."""
    place = f"{error.filename!r}" if error.filename else "The output"
    complain(DiskFull(f"{place} cannot be written: {error.strerror}", hint="Free some space, then run it again."))
    # What is left in the buffer would fail once more when the interpreter ends.
    _drop_output()
    return EXIT_TEMPORARY


def _unexpected(error: Exception) -> int:
    """Say that the fault is ours; the traceback is shown with -v."""
    if current().verbose:
        import traceback  # noqa: PLC0415 - only here

        traceback.print_exception(error)
    hint = "This is a fault in voicejobs: run it again with -v, and report what it prints."
    complain(Internal(f"{type(error).__name__}: {error}", hint=hint))
    return EXIT_UNEXPECTED


def _misused(error: click.ClickException) -> int:
    """Say what is wrong with a command line that click does not understand."""
    message = " ".join(error.format_message().split())
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
    elif isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "voicejobs"
        complain(BadUsage(message, hint=f"`{path} --help` shows how it is used."))
    else:
        complain(BadOption(message))
        return EXIT_UNEXPECTED
    return EXIT_USAGE


def exit_code(error: VoicejobsError) -> int:
    """Return the exit code of an error that ended a whole command."""
    if isinstance(error, BadUsage):
        return EXIT_USAGE
    if isinstance(error, (BrokerUnavailable, DatabaseUnavailable, StackUnavailable, ModelUnavailable, Transient)):
        return EXIT_TEMPORARY
    if isinstance(error, AccessDenied):
        return EXIT_DENIED
    if isinstance(error, (InputError, Permanent)):
        return EXIT_REJECTED
    return EXIT_UNEXPECTED


def complain(error: VoicejobsError, *, name: str = "") -> None:
    """Say what is wrong, under which code, and what to do."""
    prefix = f"{name}: " if name and name not in error.message else ""
    # The colour is named, since the context has gone where the error ended the command.
    word = click.style("error:", fg="red", bold=True)
    click.echo(f"{word} {prefix}{error.message} [{error.code}]", err=True, color=current().color)
    if error.hint:
        click.echo(f"  {error.hint}", err=True)


def _quiet_broken_pipe() -> int:
    """End like a program that SIGPIPE killed, without a second error when the interpreter flushes."""
    _drop_output()
    return EXIT_BROKEN_PIPE


def _drop_output() -> None:
    """Let standard output lead nowhere from now on."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
