"""The options that every command takes, and the settings they lead to."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import click

from voicejobs.errors import BadOption
from voicejobs.settings import PREFIX, Settings, environment

COLOR_CHOICES = ("auto", "always", "never")
_OF_VARIABLES = ("quiet", "verbose", "color", "log_file", "config", "profile")


@dataclass(frozen=True, slots=True)
class Globals:
    """Hold what the global options say, wherever on the command line they stand.

    Args:
        quiet: say only errors; results are printed all the same.
        verbose: how often `-v` was given: 1 tells more, 2 tells everything.
        color: whether to colour; None leaves it to whether the stream is a terminal.
        live: whether a terminal may be redrawn (bars); False under CI and for TERM=dumb.
        log_file: file that the log of this command goes to, beside what is shown.
        config: configuration file that replaces those that are looked for.
        profile: overlay of the configuration, empty for none.
    """

    quiet: bool = False
    verbose: int = 0
    color: bool | None = None
    live: bool = True
    log_file: Path | None = None
    config: Path | None = None
    profile: str = ""

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Self:
        """Return what variables say: VOICEJOBS_QUIET, _VERBOSE, _COLOR, _LOG_FILE, _CONFIG and _PROFILE.

        Raises:
            BadOption: a value has the wrong form.
        """
        env = environment() if env is None else env
        said = {name: env.get(PREFIX + name.upper(), "") for name in _OF_VARIABLES}
        for name, allowed in (("color", COLOR_CHOICES), ("quiet", ("0", "1")), ("verbose", ("0", "1", "2"))):
            if said[name] and said[name] not in allowed:
                raise BadOption(
                    f"{PREFIX}{name.upper()}={said[name]!r} is not valid", hint=f"It is one of {', '.join(allowed)}."
                )
        begun = cls(color=wants_color("auto", env), live=may_redraw(env))
        return begun.merged({**said, "quiet": said["quiet"] == "1", "verbose": int(said["verbose"] or 0)}, env)

    def settings(self) -> Settings:
        """Return the settings by environment, configuration files and defaults.

        Raises:
            BadOption: a name is unknown, or a value has the wrong form.
        """
        from voicejobs.cli.configuration import load  # noqa: PLC0415 - help needs no configuration

        return load(self.config, self.profile).settings()

    def merged(self, given: Mapping[str, Any], env: Mapping[str, str] | None = None) -> Self:
        """Return these with what is `given` as well, as the parser returns it."""
        changes: dict[str, Any] = {}
        if given.get("quiet"):
            changes["quiet"] = True
        if given.get("verbose"):
            changes["verbose"] = self.verbose + int(given["verbose"])
        if given.get("color"):
            changes["color"] = wants_color(given["color"], env)
        if given.get("log_file"):
            changes["log_file"] = Path(given["log_file"])
        if given.get("config"):
            changes["config"] = Path(given["config"])
        if given.get("profile"):
            changes["profile"] = given["profile"]
        return replace(self, **changes)


_last: ContextVar["Globals | None"] = ContextVar("voicejobs_globals", default=None)


def keep(ctx: click.Context, given: Mapping[str, Any]) -> Globals:
    """Note what the global options of a context say, beside what those before it said, and return it all."""
    found = (ctx.find_object(Globals) or Globals.from_env()).merged(given)
    ctx.obj, ctx.color = found, found.color
    _last.set(found)
    return found


def current() -> Globals:
    """Return the global options of the command that runs, or has just ended with an error."""
    context = click.get_current_context(silent=True)
    found = context.find_object(Globals) if context else _last.get()
    if found is not None:
        return found
    try:
        return Globals.from_env()
    except BadOption:  # `keep` has said so, or will
        return Globals(color=wants_color("auto"), live=may_redraw())


def forget() -> None:
    """Forget the command that ran before in this process."""
    _last.set(None)


def current_settings() -> Settings:
    """Return the settings of the command that runs."""
    return current().settings()


def wants_color(choice: str, env: Mapping[str, str] | None = None) -> bool | None:
    """Decide whether to colour; None where the stream decides.

    NO_COLOR wins over FORCE_COLOR, as https://no-color.org asks; a dumb terminal and a build server show none.
    """
    env = environment() if env is None else env
    if choice in {"always", "never"}:
        return choice == "always"
    if env.get("NO_COLOR"):
        return False
    if env.get("FORCE_COLOR", "0").lower() not in {"0", "", "false"}:
        return True
    return False if env.get("TERM") == "dumb" or is_ci(env) else None


def may_redraw(env: Mapping[str, str] | None = None) -> bool:
    """Tell whether a terminal, if there is one, can be redrawn."""
    env = environment() if env is None else env
    return env.get("TERM") != "dumb" and not is_ci(env)


def is_ci(env: Mapping[str, str]) -> bool:
    """Tell whether a build server runs us."""
    return env.get("CI", "").lower() not in {"", "0", "false"}
