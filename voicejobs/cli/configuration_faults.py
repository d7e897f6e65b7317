"""Everything that is wrong with a configuration, found at once."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import click

from voicejobs.cli.configuration import PROGRAM, TABLES, Configuration, Layer, fitted, near
from voicejobs.errors import BadConfiguration, BadOption


def faults(configuration: Configuration, commands: Mapping[tuple[str, ...], click.Command]) -> list[BadOption]:
    """Return everything that is wrong with a configuration: names, values, and tables for what is no command."""
    found: list[BadOption] = [error for layer in configuration.all_layers() for error in layer.faults()]
    for layer in configuration.all_layers():
        found += _faults_of(layer, commands)
    checks = [configuration.check, configuration.settings]
    checks += [partial(_check_variables, configuration, command, path) for path, command in commands.items()]
    for check in checks:
        found += _caught(check)
    return list({error.message: error for error in found}.values())


def _faults_of(layer: Layer, commands: Mapping[tuple[str, ...], click.Command]) -> list[BadOption]:
    """Return what is wrong with the values of a table, and with the tables in it."""
    found: list[BadOption] = []
    for key in layer.table:
        found += _caught(partial(layer.setting, key))
    for path, command in commands.items():
        for key, value in layer.options(path):
            found += _caught(partial(fitted, command, path, key, value))
    for place in TABLES:
        below = [path[1] for path in commands if path[0] == place and len(path) > 1]
        for key, value in layer.document.table((*layer.place, place)).items():
            label = layer.document.where((*layer.place, place), key)
            if isinstance(value, Mapping) and key not in below:
                hint = near(key, below) if below else f"Write the options below [{place}]."
                found.append(BadConfiguration(f"{label}: `{PROGRAM} {place}` has no command {key!r}", hint=hint))
            elif not isinstance(value, Mapping) and below:
                hint = f"Write [{place}.{below[0]}] above the options of that command."
                found.append(BadConfiguration(f"{label}: {key} is an option of no command", hint=hint))
    return found


def _check_variables(configuration: Configuration, command: click.Command, path: Sequence[str]) -> None:
    """Refuse variables that set what is no option of a command."""
    Configuration((), (), "", configuration.env).options(command, path)


def _caught(check: Callable[[], Any]) -> list[BadOption]:
    """Return the error of a check, if it has one."""
    try:
        check()
    except BadOption as error:
        return [error]
    return []
