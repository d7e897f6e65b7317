"""The engines of a server: the same processes and the same batcher as in a worker, and the decoder beside them."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from voicejobs.engines.base import EngineFacts, EngineSpec, RecogniseOptions
from voicejobs.engines.registry import engine_class
from voicejobs.errors import BadOption, NotServed
from voicejobs.hosting.decoder import Decoder
from voicejobs.hosting.host import EngineHost, process_count
from voicejobs.hosting.specs import VAD_SPEC, Seat, engine_spec, vad_spec
from voicejobs.settings import Settings
from voicejobs.steps.registry import PREPARE, RECOGNISE, step
from voicejobs.units import SAMPLE_RATE_HZ

FEWEST_SLOTS = 4
SLOTS_PER_PLACE = 2
"""Requests at work for each window of an engine call: while one half is recognised the other half is prepared."""


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """Say which engines a server has, each as options of the step that uses it; None where it has none.

    Args:
        recognise: options of the step `recognise`.
        revise: the same for the recogniser that revises the results of streams.
        synthesise: options of the step `synthesise`.
        vad_engine: engine that tells speech from everything else.
    """

    recognise: Mapping[str, Any] | None = None
    revise: Mapping[str, Any] | None = None
    synthesise: Mapping[str, Any] | None = None
    vad_engine: str = VAD_SPEC.engine


@dataclass(frozen=True, slots=True)
class Served:
    """Hold an engine that is served: the full options of its step, its spec, its facts, its processes."""

    options: Mapping[str, Any]
    spec: EngineSpec
    facts: EngineFacts = field(repr=False)
    processes: int

    @property
    def places(self) -> int:
        """Return how many windows or pieces its processes take at once."""
        return self.processes * self.facts.max_batch


class Engines:
    """Own the engine processes and the decoder of a server.

    Args:
        settings: limits, models, processes.
        plan: which engines.

    Raises:
        BadOption: there is no engine in the plan, or one of another kind.
        UnknownEngine, UnknownModel, ModelUnavailable, ModelCorrupt: as their names say.
    """

    def __init__(self, settings: Settings, plan: EnginePlan) -> None:
        self.settings = settings
        self._recogniser = _served(settings, plan.recognise, "recognise")
        self._reviser = _served(settings, plan.revise, "recognise")
        self._synthesiser = _served(settings, plan.synthesise, "synthesise")
        if self._recogniser is None and self._synthesiser is None:
            raise BadOption("the server has no engine", hint="Name one with --engine or --voice-engine.")
        self.detector = vad_spec(PREPARE.options({"vad_engine": plan.vad_engine}), settings, Seat())
        self.host = EngineHost(settings)
        self.decoder = Decoder(settings)
        self._folder = tempfile.TemporaryDirectory(prefix="voicejobs-rpc-")

    @property
    def folder(self) -> Path:
        """Return a private folder for the audio of requests."""
        return Path(self._folder.name)

    @property
    def recogniser(self) -> Served:
        """Return the recogniser.

        Raises:
            NotServed: there is none.
        """
        if self._recogniser is None:
            raise NotServed("this server recognises nothing")
        return self._recogniser

    @property
    def reviser(self) -> Served | None:
        """Return the second recogniser, None where there is none."""
        return self._reviser

    @property
    def synthesiser(self) -> Served:
        """Return the synthesiser.

        Raises:
            NotServed: there is none.
        """
        if self._synthesiser is None:
            raise NotServed("this server speaks nothing")
        return self._synthesiser

    def all(self) -> list[Served]:
        """Return the engines that there are."""
        return [one for one in (self._recogniser, self._reviser, self._synthesiser) if one is not None]

    @property
    def slots(self) -> int:
        """Return how many requests should work at once to keep the engines busy."""
        return max(FEWEST_SLOTS, SLOTS_PER_PLACE * max(one.places for one in self.all()))

    def start(self) -> None:
        """Load every engine once, so that a server that says it is ready is.

        Raises:
            VoicejobsError: an engine, the detector or the decoder does not start.
        """
        for one in self.all():
            self.host.warm(one.spec)
        if self._recogniser is not None:
            self.decoder.start()
            self.host.vad(self.detector).probabilities(np.zeros(512, np.int16), b"")
        for recogniser in (self._recogniser, self._reviser):
            if recogniser is None:
                continue
            hosted = self.host.recogniser(recogniser.spec)
            if recogniser.facts.shares_calls:
                hosted.detect_language(np.zeros(SAMPLE_RATE_HZ, np.int16))
            else:  # a client of another server, where each request may cost money: nothing is sent for an empty window
                hosted.recognise([np.zeros(0, np.int16)], RecogniseOptions())
        if self._synthesiser is not None:
            self.host.synthesiser(self._synthesiser.spec).voices()

    def close(self) -> None:
        """End the processes."""
        self.host.close()
        self.decoder.close()
        self._folder.cleanup()


def _served(settings: Settings, given: Mapping[str, Any] | None, name: str) -> Served | None:
    """Return the engine that the options of a step name."""
    if given is None:
        return None
    definition = RECOGNISE if name == "recognise" else step(name)
    options = definition.options(given)
    spec = engine_spec(options, settings, Seat())
    facts = engine_class(spec.engine).facts(spec)
    wanted = "recogniser" if name == "recognise" else "synthesiser"
    if facts.kind != wanted:
        raise BadOption(f"engine {spec.engine!r} is a {facts.kind}, not a {wanted}")
    return Served(options, spec, facts, process_count(spec, facts, settings.engine_processes))
