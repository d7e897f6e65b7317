"""`voicejobs config`: show which configuration counts, where it comes from, and what is wrong with it."""

import re
from collections.abc import Container, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from voicejobs.cli.configuration import LOCAL_FILE, Configuration, Value, find, load, user_file
from voicejobs.cli.configuration_faults import faults
from voicejobs.cli.globals import current
from voicejobs.cli.main import EXIT_PROBLEMS_FOUND, complain
from voicejobs.cli.show import print_json, print_table
from voicejobs.cli.spelling import Group
from voicejobs.errors import OutputExists, OutputUnwritable
from voicejobs.settings import Settings, environment

_FOLDERS = {"state_dir": "~/.local/state/voicejobs", "models_dir": "~/.cache/voicejobs/models"}
_Commands = dict[tuple[str, ...], click.Command]


@click.group(cls=Group)
def config() -> None:
    """Show, check and write the configuration."""


@config.command("show", uses_configuration=False)
@click.option("--origin", is_flag=True, help="Say of each value where it comes from.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show_config(origin: bool, as_json: bool) -> None:
    """Show what counts.

    Every setting, and the options that files or variables set; passwords are masked.
    """
    found = load(current().config, current().profile)
    settings = {name: masked(name, value) for name, value in found.with_origins().items()}
    options = {path: found.options(command, path) for path, command in _commands(found.mentioned()).items()}
    options = {path: of_command for path, of_command in options.items() if of_command}
    if as_json:
        print_json("config", _document(found, settings, options))
        return
    rows = [(name, _text(value.value), value.origin) for name, value in settings.items()]
    rows += [
        (f"{'.'.join(path)}.{name}", _text(value.value), value.origin)
        for path, of_command in options.items()
        for name, value in of_command.items()
    ]
    titles = ("NAME", "VALUE", "ORIGIN")
    print_table(titles if origin else titles[:2], rows if origin else [row[:2] for row in rows])


@config.command("path", uses_configuration=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show_path(as_json: bool) -> None:
    """Show the files that are looked for.

    The first one counts most.
    """
    found = find(current().config, current().profile)
    read = {document.path for document in found.documents}
    rows = [{"path": str(path.absolute()), "read": path in read} for path in found.looked_at]
    if as_json:
        print_json("files", rows)
    else:
        print_table(("READ", "FILE"), [("yes" if row["read"] else "-", str(row["path"])) for row in rows])


@config.command("init", uses_configuration=False)
@click.option("--user", "for_user", is_flag=True, help="Write the file of this user, and not that of this folder.")
def init_config(for_user: bool) -> None:
    """Write a commented file.

    It holds every setting, commented out; a file that exists is never replaced.
    """
    path = current().config or (user_file(environment()) if for_user else Path(LOCAL_FILE))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(template())
    except FileExistsError as error:
        raise OutputExists(f"{path} is there already", hint="Edit it, or move it away. It was not changed.") from error
    except OSError as error:
        raise OutputUnwritable(f"{path} cannot be written: {error.strerror}") from error
    click.echo(f"Wrote {path}")


@config.command("validate", uses_configuration=False)
def validate_config() -> int:
    """Find all faults at once.

    Every name and every value of the files is checked, for all profiles and all commands; exits with 9 on faults.
    """
    found = find(current().config, current().profile)
    wrong = faults(found, _commands())
    for error in wrong:
        complain(error)
    if not wrong:
        for document in found.documents:
            click.echo(f"{document.path}: ok")
        if not found.documents:
            click.echo("There is no configuration file; `voicejobs config init` writes one.")
    return EXIT_PROBLEMS_FOUND if wrong else 0


def masked(name: str, value: Value) -> Value:
    """Return a value that may be shown: what could be a password in it is replaced by stars."""
    if name.endswith(("_key", "_keys")) and value.value:
        return Value("***", value.origin)
    return Value(_mask(str(value.value)), value.origin) if name.endswith("_url") and value.value else value


def _mask(url: str) -> str:
    """Return an address without its password, and without the values of its query."""
    try:
        parts = urlsplit(url)
        user, _, place = parts.netloc.rpartition("@")
        name, colon, _ = user.partition(":")
        netloc = f"{name}{':***' if colon else ''}@{place}" if user else place
        query = re.sub(r"=[^&]*", "=***", parts.query)
        return parts._replace(netloc=netloc, query=query, fragment="").geturl() if parts.scheme else "***"
    except ValueError:
        return "***"


def _document(
    found: Configuration, settings: Mapping[str, Value], options: Mapping[tuple[str, ...], Mapping[str, Value]]
) -> dict[str, Any]:
    """Return what `config show --json` says."""
    return {
        "profile": found.profile or None,
        "files": [str(document.path.absolute()) for document in found.documents],
        "settings": {name: _plain(value) for name, value in settings.items()},
        "options": {
            " ".join(path): {name: _plain(value) for name, value in of_command.items()}
            for path, of_command in options.items()
        },
    }


def _plain(value: Value) -> dict[str, Any]:
    """Return JSON values."""
    plain = str(value.value) if isinstance(value.value, Path) else value.value
    return {"value": plain, "origin": value.origin}


def _text(value: Any) -> str:
    """Return a value as a file of the configuration has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(_text(one) for one in value)}]"
    return str(value) if isinstance(value, (int, float)) else f'"{value}"'


def _commands(names: Container[str] | None = None) -> _Commands:
    """Return every command by its words, or those below some names: commands are imported for that."""
    root = click.get_current_context().find_root()
    group = root.command
    found: _Commands = {}
    for name in group.list_commands(root) if isinstance(group, click.Group) else ():
        if names is not None and name not in names:
            continue
        command = group.get_command(root, name) if isinstance(group, click.Group) else None
        if isinstance(command, click.Group):
            found |= {(name, one): below for one, below in command.commands.items()}
        elif command is not None:
            found[name,] = command
    return found


def template() -> str:
    """Return a file of the configuration in which everything is commented out."""
    lines = [
        "# Configuration of voicejobs; docs/configuration.md explains it, docs/settings.md every setting.",
        "# An option on the command line counts more than a variable, and that more than this file.",
        "",
    ]
    told = _explanations()
    for field in fields(Settings):
        default = _FOLDERS[field.name] if field.default is MISSING else field.default
        lines += [f"# {told.get(field.name, '')}", f"# {field.name} = {_text(default)}", ""]
    lines += [
        "# Defaults for the options of a command.",
        "# [transcribe]",
        '# model = "base"',
        '# format = ["txt", "srt"]',
        "",
        "# What `--profile fast` puts on top.",
        "# [profile.fast.transcribe]",
        '# model = "tiny.en"',
    ]
    return "\n".join(lines) + "\n"


def _explanations() -> dict[str, str]:
    """Return what the class of the settings says of each."""
    words = re.findall(r"^ {8}(\w+): (.+?)\.?$", Settings.__doc__ or "", re.MULTILINE)
    return {name: f"{text[0].upper()}{text[1:]}." for name, text in words}
