"""The configuration: files of settings and of defaults for options, and which of them counts.

An option of the command line comes first, then the environment, then the profile that was asked for, then the files
(that of the folder, that of the user, that of the machine), then what is built in.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from voicejobs.cli.toml import Document, read
from voicejobs.errors import BadConfiguration
from voicejobs.settings import (
    COMMANDS,
    PREFIX,
    SECRETS,
    Settings,
    base_dir,
    coerce,
    environment,
    kind_of,
    read_secret,
)

LOCAL_FILE = "voicejobs.toml"
PROJECT_FILE = "pyproject.toml"
SYSTEM_FILE = Path("/etc/voicejobs/config.toml")
PROGRAM = "voicejobs"
PROFILE = "profile"
FEW = 16
"""Names that fit into a hint."""

SETTINGS = tuple(field.name for field in fields(Settings))
TABLES = tuple(command.lower() for command in COMMANDS)


@dataclass(frozen=True, slots=True)
class Value:
    """Hold a value and where it was said."""

    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class Layer:
    """Name a table of a file that holds settings and defaults: the file itself, or one of its profiles."""

    document: Document
    place: tuple[str, ...] = ()

    @property
    def table(self) -> Mapping[str, Any]:
        """Return the table, empty where the file has none."""
        return self.document.table(self.place)

    def settings(self) -> Iterator[tuple[str, Value]]:
        """Yield the settings that this table sets.

        Raises:
            BadOption: a value has the wrong form.
        """
        for key in self.table:
            found = self.setting(key)
            if found is not None:
                yield found

    def setting(self, key: str) -> tuple[str, Value] | None:
        """Return the setting that a key of the table sets, None where it sets none.

        Raises:
            BadOption: its value has the wrong form.
        """
        value, label = self.table[key], self.document.where(self.place, key)
        if key in SETTINGS:
            return key, Value(self._coerced(key, value, label), label)
        name = key.removesuffix("_file")
        if name not in SECRETS or name == key:
            return None
        if name in self.table:
            raise BadConfiguration(f"{label}: {key} and {name} are both set", hint="Remove one of the two.")
        return name, Value(read_secret(self._path(str(value)), label=label), label)

    def _coerced(self, name: str, value: Any, label: str) -> object:
        """Return the value of a setting; a relative folder begins at the file."""
        kind = kind_of(name)
        right: Any = {"bool": bool, "int": int, "float": (int, float), "str": str, "Path": str}[kind]
        if not isinstance(value, right) or (isinstance(value, bool) and kind != "bool"):
            raise BadConfiguration(
                f"{label} = {value!r} is not a valid {kind}", hint="docs/settings.md shows the form."
            )
        if kind == "Path" and not value:
            raise BadConfiguration(f"{label} is empty", hint="Name a folder, or remove the line.")
        text = str(self._path(value)) if kind == "Path" else str(value)
        return coerce(name, text, label=label)

    def _path(self, text: str) -> Path:
        """Return a path that the file names."""
        try:
            return self.document.path.absolute().parent / Path(text).expanduser()
        except RuntimeError as error:
            raise BadConfiguration(f"{self.document.path}: {text}: {error}") from error

    def options(self, command: Sequence[str]) -> Iterator[tuple[str, Value]]:
        """Yield the defaults that this table has for the options of a command."""
        place = (*self.place, *command)
        for key, value in self.document.table(place).items():
            if not isinstance(value, Mapping):
                yield key, Value(value, self.document.where(place, key))

    def faults(self) -> Iterator[BadConfiguration]:
        """Yield an error for each key that is neither a setting nor a command, or has the shape of the other."""
        allowed = [*SETTINGS, *(f"{name}_file" for name in SECRETS), *TABLES, *(() if self.place else (PROFILE,))]
        for key, value in self.table.items():
            label = self.document.where(self.place, key)
            is_table = key in TABLES or key == PROFILE
            if key not in allowed:
                yield BadConfiguration(f"{label}: {key} is no setting and no command", hint=near(key, allowed))
            elif is_table != isinstance(value, Mapping):
                what = "is a table of options" if is_table else "is a setting, and no table"
                yield BadConfiguration(f"{label}: {key} {what}", hint="docs/configuration.md shows the form.")

    def profiles(self) -> Iterator["Layer"]:
        """Yield the profiles of a file."""
        for name in self.document.table((*self.place, PROFILE)):
            yield Layer(self.document, (*self.place, PROFILE, name))


@dataclass(frozen=True, slots=True)
class Configuration:
    """Hold the files that count, first one first.

    Args:
        documents: the files that were read.
        looked_at: every path that was looked at.
        profile: name of the overlay, empty for none.
        env: the variables.
    """

    documents: tuple[Document, ...]
    looked_at: tuple[Path, ...]
    profile: str
    env: Mapping[str, str]

    @property
    def layers(self) -> list[Layer]:
        """Return the tables that count, first one first: a profile that was asked for comes before every file."""
        chosen = [
            Layer(one, (PROFILE, self.profile))
            for one in self.documents
            if self.profile and self.profile in one.table((PROFILE,))
        ]
        return chosen + [Layer(one) for one in self.documents]

    def all_layers(self) -> Iterator[Layer]:
        """Yield every table of every file, the profiles that were not asked for too."""
        for document in self.documents:
            yield Layer(document)
            yield from Layer(document).profiles()

    def check(self) -> None:
        """Refuse unknown names, and a profile that no file has.

        Raises:
            BadConfiguration: see there.
        """
        for layer in self.all_layers():
            for error in layer.faults():
                raise error
        profiles = sorted({name for one in self.documents for name in one.table((PROFILE,))})
        if self.profile and self.profile not in profiles:
            hint = near(self.profile, profiles) if profiles else f"Write [{PROFILE}.{self.profile}] into a file."
            raise BadConfiguration(f"There is no profile {self.profile!r}", hint=hint)

    def settings(self) -> Settings:
        """Return the settings.

        Raises:
            BadOption: a value has the wrong form, or a variable is unknown.
        """
        return Settings.from_env(self.env, configured={name: one.value for name, one in self._of_files().items()})

    def with_origins(self) -> dict[str, Value]:
        """Return every setting with where it comes from."""
        settings, files = self.settings(), self._of_files()
        found = {}
        for name in SETTINGS:
            variable = PREFIX + name.upper()
            origin = next((one for one in (variable, f"{variable}_FILE") if self.env.get(one)), "")
            origin = origin or (files[name].origin if name in files else "default")
            found[name] = Value(getattr(settings, name), origin)
        return found

    def _of_files(self) -> dict[str, Value]:
        """Return the settings that files set."""
        found: dict[str, Value] = {}
        for layer in self.layers:
            for name, value in layer.settings():
                found.setdefault(name, value)
        return found

    def defaults(self, ctx: click.Context) -> dict[str, Any]:
        """Return the defaults of the options of a command, as click wants them.

        Raises:
            BadConfiguration: an option is unknown, or its value does not fit.
        """
        return {name: one.value for name, one in self.options(ctx.command, command_path(ctx)).items()}

    def options(self, command: click.Command, path: Sequence[str]) -> dict[str, Value]:
        """Return what environment and files say of the options of a command, by the names of its parameters.

        Raises:
            BadConfiguration: an option is unknown, or its value does not fit.
        """
        found: dict[str, Value] = {}
        for key, value in self._said(path):
            name, fitting = fitted(command, path, key, value)
            found.setdefault(name, fitting)
        return found

    def _said(self, path: Sequence[str]) -> Iterator[tuple[str, Value]]:
        """Yield what is said of the options of a command, what counts most first."""
        yield from self._of_env(path)
        for layer in self.layers:
            yield from layer.options(path)

    def _of_env(self, path: Sequence[str]) -> Iterator[tuple[str, Value]]:
        """Yield what variables say of the options of a command: VOICEJOBS_TRANSCRIBE_MODEL and the like."""
        prefix = PREFIX + "".join(f"{word}_".upper().replace("-", "_") for word in path)
        settings = {PREFIX + name.upper() for name in SETTINGS}
        for name, text in self.env.items():
            if path and name.startswith(prefix) and text and name not in settings:
                yield name.removeprefix(prefix).lower(), Value(text, name)

    def mentioned(self) -> set[str]:
        """Return the commands that files or variables say something of."""
        tables = {name for layer in self.layers for name in layer.table if name in TABLES}
        return tables | {name for name in TABLES if any(one.startswith(f"{PREFIX}{name.upper()}_") for one in self.env)}


def load(config: Path | None = None, profile: str = "", env: Mapping[str, str] | None = None) -> Configuration:
    """Read the configuration that counts here.

    Args:
        config: file to read instead of those that are looked for.
        profile: overlay to use.
        env: the variables; those of the process by default.

    Raises:
        BadConfiguration: a file cannot be read or understood, or has a name that is unknown.
    """
    found = find(config, profile, env)
    found.check()
    return found


def find(config: Path | None = None, profile: str = "", env: Mapping[str, str] | None = None) -> Configuration:
    """Read the files that count here, without looking at what they say.

    Raises:
        BadConfiguration: a file cannot be read, or is no TOML.
    """
    env = environment() if env is None else env
    if config is not None:
        if not config.exists():
            raise BadConfiguration(f"The configuration file {config} is not there", hint="Check the path of --config.")
        return Configuration((read(config),), (config,), profile, env)
    local = Path(LOCAL_FILE) if Path(LOCAL_FILE).exists() else Path(PROJECT_FILE)
    paths = (local if local.exists() else Path(LOCAL_FILE), user_file(env), SYSTEM_FILE)
    documents = [read(path) for path in paths if path.exists()]
    return Configuration(tuple(one for one in documents if one.is_ours), paths, profile, env)


def user_file(env: Mapping[str, str]) -> Path:
    """Return the path of the configuration of this user."""
    return base_dir(env, "XDG_CONFIG_HOME", ".config") / "voicejobs" / "config.toml"


def command_path(ctx: click.Context) -> list[str]:
    """Return the words that name a command, without the program."""
    names = []
    here: click.Context | None = ctx
    while here is not None:
        names.append(here.info_name or "")
        here = here.parent
    return [name for name in reversed(names) if name != PROGRAM]


def option_keys(command: click.Command) -> dict[str, click.Option]:
    """Return the options that a configuration can set, by their names in its files."""
    return {
        name.lstrip("-").replace("-", "_"): parameter
        for parameter in getattr(command, "own_params", command.params)
        if isinstance(parameter, click.Option)
        for name in parameter.opts
        if name.startswith("--")
    }


def fitted(command: click.Command, path: Sequence[str], key: str, value: Value) -> tuple[str, Value]:
    """Return the name of the parameter that a key sets, with its value.

    Raises:
        BadConfiguration: the command has no such option, or the value does not fit it.
    """
    known = option_keys(command)
    option = known.get(key.replace("-", "_"))
    if option is None or option.name is None:
        name = " ".join((PROGRAM, *path))
        raise BadConfiguration(f"{value.origin}: `{name}` has no option {key!r}", hint=near(key, list(known)))
    given = value.value
    if option.multiple and not isinstance(given, list):
        given = str(given).split()
    if isinstance(given, list) != option.multiple:
        raise BadConfiguration(f"{value.origin}: {option.opts[-1]} takes one value, and not a list")
    try:
        option.type_cast_value(click.Context(click.Command(PROGRAM)), given)
    except click.BadParameter as error:
        hint = f"`{' '.join((PROGRAM, *path))} --help` shows which values it takes."
        raise BadConfiguration(f"{value.origin}: {option.opts[-1]}: {error.message}", hint=hint) from error
    return option.name, Value(given, value.origin)


def near(key: str, names: Sequence[str]) -> str:
    """Return the nearest name, or all of them where none is near and they are few."""
    found = difflib.get_close_matches(key.replace("-", "_"), names, n=1)
    if found:
        return f"Did you mean {found[0]}?"
    return f"Known: {', '.join(names)}." if len(names) <= FEW else "docs/settings.md and docs/cli.md have all names."
