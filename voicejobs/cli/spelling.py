"""Commands and groups as people type them: global options anywhere, whisper's spellings, advice on slips."""

import difflib
import os
from collections.abc import Iterable, Sequence
from typing import Any

import click

from voicejobs.cli.globals import COLOR_CHOICES, current, keep
from voicejobs.cli.whisper import Rewriter, normalised


def global_options() -> list[click.Option]:
    """Return fresh copies of the options that every command takes, before or after its name."""
    return [
        _option("-q", "--quiet", is_flag=True, help="Say only errors."),
        _option("-v", "--verbose", count=True, help="Say more; -vv says everything."),
        _option("--color", type=click.Choice(COLOR_CHOICES), help="When to colour; auto asks the terminal."),
        _option("--log-file", type=click.Path(dir_okay=False), metavar="FILE", help="Write the log of this command."),
        _option("--config", type=click.Path(dir_okay=False), metavar="FILE", help="Read this configuration file only."),
        _option("--profile", metavar="NAME", help="Use this profile of the configuration."),
    ]


def _option(*names: str, **settings: Any) -> click.Option:
    """Return an option whose value goes to `Globals`, not to the function of the command."""
    return click.Option(names, expose_value=False, **settings)


def context_settings(given: dict[str, Any] | None) -> dict[str, Any]:
    """Return the settings that every context of ours has."""
    ours = {
        "token_normalize_func": normalised,
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    }
    return {**ours, **(given or {})}


class _ExamplesFirst(click.Command):
    """Show the epilog, which holds examples, before the options."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write usage, what the command does, examples, and then the options."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        self.format_epilog(ctx, formatter)
        self.format_options(ctx, formatter)


class Command(_ExamplesFirst):
    """Take whisper's spellings, global options, and defaults from the configuration.

    Args:
        uses_configuration: whether the configuration may set its options.
    """

    def __init__(self, *arguments: Any, uses_configuration: bool = True, **settings: Any) -> None:
        settings["context_settings"] = context_settings(settings.get("context_settings"))
        super().__init__(*arguments, **settings)
        self.uses_configuration = uses_configuration
        self.own_params = list(self.params)
        names = {name for parameter in self.params for name in parameter.opts}
        self.global_params = [option for option in global_options() if not names & set(option.opts)]
        self.params.extend(self.global_params)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Rewrite what whisper spells otherwise, apply the configuration, then parse as ever."""
        told: list[str] = []
        words = list(Rewriter(self.params, told.append).words(args))
        try:
            given, _, _ = self.make_parser(ctx).parse_args(list(words))
        except click.NoSuchOption as error:
            raise click.UsageError(_no_such_option(error, args), ctx) from error
        names = {option.name for option in self.global_params}
        common = keep(ctx, {name: value for name, value in given.items() if name in names})
        if not given.get("help") and not ctx.resilient_parsing:
            for line in told if not common.quiet else ():
                click.echo(line, err=True)
            if self.uses_configuration:
                from voicejobs.cli.configuration import load  # noqa: PLC0415 - help needs no configuration

                ctx.default_map = load(common.config, common.profile).defaults(ctx)
        try:
            return super().parse_args(ctx, words)
        except click.BadParameter as error:
            advice = _advice(args)  # -late.mp3 may have been read as the language ate.mp3
            if not advice:
                raise
            raise click.UsageError(f"{error.format_message()}{advice}", ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; its log goes where the global options say."""
        common = current()
        if common.log_file is None and not common.verbose:
            return super().invoke(ctx)
        from voicejobs.cli.talk import logging_to  # noqa: PLC0415 - most commands log nothing

        with logging_to(common.log_file, common.verbose, ctx.command_path):
            return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the command, and those of every command in a section of their own."""
        for title, parameters in (
            ("Options", [one for one in self.get_params(ctx) if one not in self.global_params]),
            ("Options of every command", self.global_params),
        ):
            options = [one for one in parameters if isinstance(one, click.Option)]
            records = [record for one in options if (record := one.get_help_record(ctx)) is not None]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Group(_ExamplesFirst, click.Group):
    """Suggest a command where the name is a slip; its commands are of our class.

    Args:
        uses_configuration: see `Command`; the commands of the group inherit it.
    """

    command_class = Command

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        settings["context_settings"] = context_settings(settings.get("context_settings"))
        super().__init__(*arguments, **settings)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command, and suggest one where the name is unknown."""
        name = args[0]
        if self.get_command(ctx, normalised(name)) is None and not ctx.resilient_parsing:
            ctx.fail(f"No such command {name!r}.{suggested(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


def suggested(name: str, names: Iterable[str]) -> str:
    """Return " Did you mean ...?" where one of `names` is near, else nothing."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _no_such_option(error: click.NoSuchOption, args: Sequence[str]) -> str:
    """Say what is wrong with an option, and what there is instead of one that other tools have."""
    name = normalised(error.option_name).lstrip("-")
    for words, instead in _OF_OTHERS.items():
        if name in words:
            return f"No such option {error.option_name!r}: {instead}"
    return f"{error.format_message()}{_advice(args)}"


_OF_OTHERS = {
    ("diarize", "diarise", "diarization", "speakers", "speaker-labels", "min-speakers", "max-speakers", "hf-token"): (
        "voicejobs does not tell speakers apart by their voices. Where each has a channel of their own, as in recorded"
        " calls, `--channels split` names the channel of every word."
    ),
}
"""Options that people know from other recognisers, and what to do here."""


def _advice(args: Sequence[str]) -> str:
    """Say what to do where what looks like an option is the name of a file."""
    before = args[: args.index("--")] if "--" in args else args
    files = [word for word in before if word.startswith("-") and len(word) > 1 and os.path.lexists(word)]
    return f" To name the file {files[0]!r}, write ./{files[0]}." if files else ""
