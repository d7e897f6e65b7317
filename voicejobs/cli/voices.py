"""`voicejobs voices`: the voices that engines have."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from voicejobs.choices import language_of
from voicejobs.cli.globals import current_settings
from voicejobs.cli.main import complain
from voicejobs.cli.show import print_json, print_table
from voicejobs.cli.spelling import Group
from voicejobs.engines.base import EngineSpec, Voice
from voicejobs.engines.configured import with_settings
from voicejobs.engines.registry import engine_class, list_engines
from voicejobs.errors import BadOption, ExtraMissing, VoicejobsError
from voicejobs.hosting.host import EngineHost
from voicejobs.models.catalogue import CATALOGUE, ModelEntry, require_engine
from voicejobs.models.installed import chosen, folder_of, state
from voicejobs.settings import Settings

EXIT_SOME_FAILED = 3


@dataclass(frozen=True, slots=True)
class _Row:
    """Hold a voice with the engine and the model that have it, and whether the model is on this machine."""

    engine: str
    model: str
    state: str
    voice: Voice

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"engine": self.engine, "model": self.model, "state": self.state, **self.voice.to_json()}


@click.group(
    cls=Group,
    help="List the voices that speak.\n\n\b\nExamples:\n  voicejobs voices list\n"
    "  voicejobs voices list --engine openai_voice --json",
)
def voices() -> None:
    """Voices."""


@voices.command("list")
@click.option("--engine", metavar="NAME", help="Ask this engine alone; servers are asked only if they are named.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_voices(engine: str | None, as_json: bool) -> int:
    """Show the voices of the catalogue, or those that an engine says it has.

    Nothing is fetched: of a model that is not on this machine, or whose engine is not, the name alone is known.
    """
    settings = current_settings()
    rows: list[_Row] = []
    errors: list[VoicejobsError] = []
    with EngineHost(settings) as host:
        for spec, entry in _specs(engine, settings):
            try:
                rows += _rows(host, spec, entry, settings)
            except VoicejobsError as error:
                errors.append(error)
    for wrong in errors:
        complain(wrong)
    if as_json:
        print_json("voices", [row.to_json() for row in rows])
    elif rows:
        print_table(
            ("VOICE", "ENGINE", "MODEL", "LANGUAGE", "HZ", "STATE", "LICENCE", "NOTE"), [_cells(row) for row in rows]
        )
    return EXIT_SOME_FAILED if errors else 0


def _cells(row: _Row) -> tuple[str, ...]:
    """Return a row of the table."""
    voice = row.voice
    return (
        voice.name,
        row.engine,
        row.model or "-",
        ",".join(voice.languages) or "-",
        str(voice.rate_hz or "-"),
        row.state,
        voice.licence or "-",
        voice.description,
    )


def _specs(wanted: str | None, settings: Settings) -> Iterator[tuple[EngineSpec, ModelEntry | None]]:
    """Yield what is to be asked: models of the catalogue, or the engine that was named.

    Raises:
        UnknownEngine, BadOption: there is no such engine, or it does not speak.
    """
    names = list_engines() if wanted is None else [wanted]
    for name in names:
        fitting = [entry.name for entry in CATALOGUE.values() if entry.engine == name]
        if wanted is None and not fitting:
            continue
        facts = engine_class(name).facts(EngineSpec(name, fitting[0] if fitting else ""))
        if facts.kind != "synthesiser":
            if wanted is not None:
                raise BadOption(
                    f"The engine {name!r} does not speak", hint="`voicejobs voices list` shows some that do."
                )
            continue
        if not facts.needs_model:
            yield with_settings(EngineSpec(name), settings), None
            continue
        for model in fitting:
            require_engine(model, name)
            entry = chosen(model, settings)
            yield with_settings(EngineSpec(name, model, str(folder_of(entry, settings))), settings), entry


def _rows(host: EngineHost, spec: EngineSpec, entry: ModelEntry | None, settings: Settings) -> list[_Row]:
    """Return the voices of an engine with a model; where either is not here, what the name tells, and a note why.

    Raises:
        VoicejobsError: the engine cannot be loaded, or its server cannot be asked.
    """
    if entry is None:
        return [_Row(spec.engine, spec.model, "-", voice) for voice in host.synthesiser(spec).voices()]
    here = state(entry, settings)
    if here in {"missing", "partial"}:
        return [_by_name(spec, entry, here)]
    try:
        found = host.synthesiser(spec).voices()
    except ExtraMissing as error:
        note = f"note: voices of {entry.name} are known by their model's name alone: {error.message}"
        click.echo(f"{note}\n  {error.hint}" if error.hint else note, err=True)
        return [_by_name(spec, entry, here)]
    return [
        _Row(
            spec.engine,
            entry.name,
            here,
            Voice(voice.name, voice.languages, voice.rate_hz, voice.description, voice.licence or entry.licence),
        )
        for voice in found
    ]


def _by_name(spec: EngineSpec, entry: ModelEntry, here: str) -> _Row:
    """Return what the name of a model tells of its voice."""
    language = language_of(entry.name).partition("-")[0]
    return _Row(spec.engine, entry.name, here, Voice(entry.name, (language,), 0, entry.note, entry.licence))
