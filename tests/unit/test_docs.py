"""The documentation names everything that a user can meet, and nothing that is not there."""

import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path

import click
import pytest

from voicejobs import errors
from voicejobs.formats import FORMATS
from voicejobs.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ROW_IDS = [f"A{number}" for number in range(1, 46)] + [f"B{number}" for number in range(1, 27)]


def _headings(name: str) -> list[str]:
    """Return the code words that are headings of a page, in order."""
    return re.findall(r"^#+ `([^`]+)`$", (DOCS / name).read_text(encoding="utf-8"), re.MULTILINE)


def _family(root: type[errors.VoicejobsError]) -> Iterator[type[errors.VoicejobsError]]:
    """Yield a class of errors and all below it that the library itself declares."""
    if root.__module__ == errors.__name__:
        yield root
    for child in root.__subclasses__():
        yield from _family(child)


def test_every_error_code_has_its_heading() -> None:
    """docs/errors.md explains each code once, and no code that does not exist."""
    codes = [error.code for error in _family(errors.VoicejobsError)]
    assert len(codes) == len(set(codes))
    assert sorted(_headings("errors.md")) == sorted(codes)


def test_every_setting_has_its_heading() -> None:
    """docs/settings.md explains each variable once, and none that does not exist."""
    assert sorted(_headings("settings.md")) == sorted(PREFIX + field.name.upper() for field in fields(Settings))


def test_defaults_of_settings_are_the_documented_ones() -> None:
    """Setting a variable to the default that the page states changes nothing."""
    page = (DOCS / "settings.md").read_text(encoding="utf-8")
    unset = Settings.from_env({"HOME": "/home/somebody"})
    for field in fields(Settings):
        variable = PREFIX + field.name.upper()
        section = page.split(f"### `{variable}`\n")[1].split("\n#")[0]
        stated = re.search(r"Default:\s+(?:`([^`]+)`|empty)", section)
        assert stated, variable
        if field.default is MISSING:  # the folders depend on the user
            continue
        if stated[1] is None:
            assert getattr(unset, field.name) == "", variable
        else:
            assert Settings.from_env({"HOME": "/home/somebody", variable: stated[1]}) == unset, variable


def test_every_output_format_has_its_heading() -> None:
    """docs/formats.md explains each format once."""
    assert _headings("formats.md") == list(FORMATS)


def _rows() -> dict[str, str]:
    """Return row ids and their proofs; a row that stands twice fails."""
    page = (DOCS / "requirements.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| ([AB]\d+) \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE)
    assert len(found) == len(dict(found))
    return dict(found)


def test_requirements_has_every_row() -> None:
    """Each row of the checklist is there once."""
    assert sorted(_rows()) == sorted(ROW_IDS)


@pytest.mark.parametrize("row", ROW_IDS)
def test_every_proof_exists(row: str) -> None:
    """A proof is a test function, a file or a command of the tree, or the row says that it is open."""
    proof = _rows()[row]
    if proof == "open":
        return
    names = re.findall(r"`([^`]+)`", proof)
    assert names, f"{row}: {proof!r} names nothing"
    for name in names:
        _assert_exists(name)


def _assert_exists(name: str) -> None:
    """Check `tests/a.py::test_b`, a path, `scripts/bench SUBCOMMAND` or `voicejobs COMMAND`."""
    words = name.split()
    if words[0] == "voicejobs":
        assert any(" ".join(words).startswith(path) for path, _ in _commands() if " " in path), name
        return
    path, _, function = words[0].partition("::")
    file = ROOT / path
    assert file.exists(), name
    if function:
        assert re.search(rf"^def {re.escape(function)}\(", file.read_text(encoding="utf-8"), re.MULTILINE), name
    if path == "scripts/bench" and len(words) > 1:
        assert f'"{words[1]}"' in file.read_text(encoding="utf-8"), name


def test_every_link_leads_somewhere() -> None:
    """A relative link of the README or of a page in docs/ names a file that exists."""
    for page in [ROOT / "README.md", *DOCS.glob("*.md")]:
        links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
        assert not broken, page.name


def _commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command of the command line with its full name, loading the lazy ones."""
    from voicejobs.cli.main import cli

    waiting: list[tuple[str, click.Command]] = [("voicejobs", cli)]
    while waiting:
        path, command = waiting.pop()
        yield path, command
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=path)
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None, f"{path} {name}"
                waiting.append((f"{path} {name}", child))


def test_every_command_and_option_is_documented() -> None:
    """docs/cli.md has a heading for each command, and names each of its options in that section."""
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    sections = {
        part.split("`", maxsplit=1)[0]: part for part in re.split(r"^#+ `(?=voicejobs)", page, flags=re.MULTILINE)[1:]
    }
    missing = []
    for path, command in _commands():
        section = sections.get(path)
        if section is None:
            missing.append(path)
            continue
        # The options that every command takes are explained once, for `voicejobs` itself.
        own = getattr(command, "own_params", command.params)
        options = [option for parameter in own for option in parameter.opts if option.startswith("-")]
        missing += [f"{path} {option}" for option in options if f"`{option}" not in section]
    assert not missing
