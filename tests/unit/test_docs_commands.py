"""What the pages tell people to type can be typed: commands, options, names of services, units and variables."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path

import click
import pytest
import yaml

from voicejobs.cli.main import cli
from voicejobs.cli.whisper import Rewriter
from voicejobs.settings import PREFIX, SECRETS, Settings, is_of_the_command_line

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
DEPLOYED = [
    ROOT / "docker-compose.yml", ROOT / "Dockerfile", ROOT / "deploy" / "make-secrets",
    *sorted((ROOT / "deploy" / "systemd").iterdir()),
]  # fmt: skip
NOT_MEANT = {"voicejobs talk.mp3", "voicejobs COMMAND --help"}
"""What a page shows because it is a slip, and what stands for any command."""
UNITS = {path.stem.partition("@")[0] for path in (ROOT / "deploy" / "systemd").iterdir()}

_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$|(?<=\n\n)((?: {4}\S.*\n)+)", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(voicejobs [^`]+)`")
_ENDS_A_COMMAND = {"|", "||", "&&", ";", "&", ">", ">>", "<", "<<"}
_PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*")


def lines_of(page: Path) -> Iterator[str]:
    """Yield the lines of a page that are typed into a shell, those that go on below joined."""
    for _, language, fenced, indented in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if language not in {"", "sh"}:
            continue
        lines = [line.strip() for line in (fenced or indented).replace("\\\n", " ").splitlines()]
        prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        yield from prompted or lines


def calls_in(line: str) -> Iterator[list[str]]:
    """Yield the words of each command of a line, without variables that stand before it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        found = list(lexer)
    except ValueError:  # what a program prints need not be words of a shell
        return
    words: list[str] = []
    for word in [*found, ";"]:
        yield from (shlex.split(inner) for inner in re.findall(r"\$\(([^()]+)\)", word))
        if word not in _ENDS_A_COMMAND:
            words.append(word)
            continue
        while words and (re.fullmatch(r"\w+=.*", words[0]) or words[0] in {"export", "sudo", "nice"}):
            words.pop(0)
        if words:
            yield words
        words = []


def check(words: Sequence[str], *, strict: bool = True) -> None:
    """Parse the words of `voicejobs`, as its command line does, and run nothing.

    Args:
        words: what stands after `voicejobs`.
        strict: whether all that the command needs must be there; prose leaves it out.

    Raises:
        click.UsageError: they are not understood.
    """
    rest = [word.strip("[]").partition("|")[0].removesuffix("...") for word in words]
    command, context = click.Command("none"), click.Context(cli, info_name="voicejobs")
    command = cli
    while isinstance(command, click.Group):
        while rest and rest[0].startswith("-"):
            _values(command, context, [rest.pop(0)])
        if not rest:
            assert not strict, f"{command.name} needs a command"
            return
        child = command.get_command(context, rest[0])
        if child is None:
            raise click.UsageError(f"no command {rest[0]!r}")
        command, context = child, click.Context(child, info_name=rest.pop(0), parent=context)
    try:
        values = _values(command, context, rest)
    except click.BadOptionUsage as error:
        if strict or "requires an argument" not in error.message:
            raise
        values = {}
    for parameter in command.params:
        _check_value(parameter, context, values.get(parameter.name or ""), strict=strict)


def _values(command: click.Command, context: click.Context, words: Sequence[str]) -> dict[str, object]:
    """Return what words say, by the names of the parameters.

    Raises:
        click.UsageError: an option is unknown, or there are too many words.
    """
    rewritten = list(Rewriter(command.params, lambda _: None).words(list(words)))
    values, more, _ = command.make_parser(context).parse_args(rewritten)
    if more and not isinstance(command, click.Group):
        raise click.UsageError(f"unexpected {more}")
    return dict(values)


def _check_value(parameter: click.Parameter, context: click.Context, value: object, *, strict: bool) -> None:
    """Refuse a value of the wrong type; of paths only their kind is looked at, and placeholders may be anything.

    Raises:
        click.UsageError: it is wrong, or missing.
    """
    texts = [one for one in (value if isinstance(value, list | tuple) else [value]) if isinstance(one, str)]
    if not texts and value is not True:
        if strict and parameter.required:
            raise click.MissingParameter(ctx=context, param=parameter)
        return
    if isinstance(parameter.type, click.Path | click.File | click.Tuple) or parameter.nargs > 1:
        return
    for text in texts:
        if not _PLACEHOLDER.fullmatch(text) and not text.startswith("$"):
            parameter.type.convert(text, parameter, context)


def faults_of(calls: Sequence[Sequence[str]], *, strict: bool = True) -> list[str]:
    """Return what is wrong with commands of ours and with those that name parts of a deployment."""
    faults = []
    for words in calls:
        try:
            _check_call(words, strict=strict)
        except (click.UsageError, AssertionError) as error:
            faults.append(f"{shlex.join(words)}: {error}")
    return faults


def _check_call(words: Sequence[str], *, strict: bool) -> None:
    """Check one command; those of others are nothing to us."""
    program, *rest = words
    if program.rpartition("/")[2] == "voicejobs":
        check(rest, strict=strict)
    elif words[:2] == ["docker", "compose"]:
        _check_compose(rest[1:])
    elif program == "systemctl":
        named = [re.split(r"[@.]", word)[0] for word in rest if word.startswith("voicejobs")]
        assert set(named) <= UNITS, f"no unit among {named}"
    elif program.startswith(("deploy/", "scripts/")):
        assert (ROOT / program).exists(), "no such file"


def _check_compose(words: Sequence[str]) -> None:
    """Check the profiles and services that a command of compose names, and what it runs in them."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    profiles = {name for one in services.values() for name in one.get("profiles", ())}
    rest = list(words)
    while rest and rest[0].startswith("-"):
        if rest.pop(0) == "--profile":
            assert rest.pop(0) in profiles, "no such profile"
    verb = rest.pop(0)
    assert verb in {"build", "up", "run", "stop", "down", "logs", "ps", "exec", "restart", "pull"}
    named = [word for word in rest if not word.startswith("-")]
    if verb in {"run", "exec"} and len(named) > 1:
        check(rest[rest.index(named[0]) + 1 :])
        named = named[:1]
    assert set(named) <= set(services), f"no service among {named}"


def known_variables() -> set[str]:
    """Return the variables that settings, secrets or the compose file itself read."""
    known = {PREFIX + field.name.upper() for field in fields(Settings)}
    known |= {f"{PREFIX}{name.upper()}_FILE" for name in SECRETS}
    return known | set(re.findall(r"\$\{(VOICEJOBS_\w+)", (ROOT / "docker-compose.yml").read_text(encoding="utf-8")))


def unknown_variables(text: str) -> list[str]:
    """Return the variables of ours in a text that nothing reads; a name that goes on with `*` or `<` is none."""
    found = set(re.findall(r"\b(VOICEJOBS_[A-Z0-9_]*[A-Z0-9])(?![A-Z0-9_]|_?[*<{])", text))
    return sorted(name for name in found - known_variables() if not is_of_the_command_line(name))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_in_a_block_can_be_typed(page: Path) -> None:
    """Blocks of a page name commands, options, values, services, units and scripts that there are."""
    assert faults_of([call for line in lines_of(page) for call in calls_in(line)]) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_in_prose_exists(page: Path) -> None:
    """Commands that stand in a sentence exist with their options; what they need may be left out."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    found = {" ".join(words.split()) for words in _INLINE.findall(text)} - NOT_MEANT
    assert faults_of([call for line in sorted(found) for call in calls_in(line)], strict=False) == []


@pytest.mark.parametrize("path", [*PAGES, *DEPLOYED], ids=lambda path: path.name)
def test_every_variable_is_read_by_somebody(path: Path) -> None:
    """Each name with our prefix is a setting, a secret's file, an option's variable, or one of the compose file."""
    assert unknown_variables(path.read_text(encoding="utf-8")) == []


def test_examples_of_the_help_can_be_typed() -> None:
    """The examples that a command shows in its help are commands, too."""
    waiting: list[click.Command] = [cli]
    calls: list[list[str]] = []
    while waiting:
        command = waiting.pop()
        if isinstance(command, click.Group):
            names = command.list_commands(click.Context(command))
            waiting += [one for name in names if (one := command.get_command(click.Context(command), name))]
        lines = (command.epilog or "").replace("\\\n", " ").splitlines()
        calls += [call for line in lines if "voicejobs " in line for call in calls_in(line.strip())]
    assert len(calls) > 10
    assert faults_of(calls) == []


@pytest.mark.parametrize(
    ("line", "is_right"),
    [
        ("voicejobs transcribe talk.wav -o text -f txt,srt", True),
        ("cat a | VOICEJOBS_OFFLINE=1 /opt/voicejobs/bin/voicejobs -q transcribe - -f srt -o - > a.srt  # done", True),
        ("voicejobs transcribe talk.wav --word_timestamps True", True),
        ('eval "$(voicejobs completion bash)"', True),
        ("docker compose --profile gpu run --rm api key create --name a --scope admin", True),
        ("systemctl enable --now voicejobs-worker", True),
        ("voicejobs transcrib talk.wav", False),
        ("voicejobs transcribe", False),
        ("voicejobs transcribe talk.wav --no-such-option", False),
        ("voicejobs transcribe talk.wav --beam-size many", False),
        ("voicejobs serve worker cpu", False),
        ('eval "$(voicejobs complete bash)"', False),
        ("docker compose up -d worker", False),
        ("docker compose run --rm api key make", False),
        ("systemctl enable voicejobs-workers", False),
        ("scripts/no-such-script", False),
    ],
)  # fmt: skip
def test_a_command_that_is_none_is_found(line: str, *, is_right: bool) -> None:
    """The checks above see commands, options, values, services and units that there are not, and no others."""
    assert (faults_of(list(calls_in(line))) == []) is is_right


def test_a_variable_that_nothing_reads_is_found() -> None:
    """A slip in a name is seen; patterns of names and variables of options are none."""
    text = (
        "VOICEJOBS_OFLINE VOICEJOBS_OFFLINE VOICEJOBS_* VOICEJOBS_API_* VOICEJOBS_BROKER_URL_FILE VOICEJOBS_SPEAK_MODEL"
    )
    assert unknown_variables(text) == ["VOICEJOBS_OFLINE"]
