"""From options of steps to engines: which one, on which device, with which verified files, called how.

Workers and servers build their engines here, so that the same options mean the same engine behind every door.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from voicejobs.engines.base import EngineSpec, RecogniseOptions
from voicejobs.engines.configured import with_settings
from voicejobs.engines.devices import resolve_device
from voicejobs.engines.registry import engine_class
from voicejobs.errors import ModelCorrupt
from voicejobs.models.catalogue import by_hash, model_of
from voicejobs.models.installed import resolve
from voicejobs.settings import Settings

VAD_SPEC = EngineSpec("silero")
"""The detector that is asked where there is speech, unless options name another."""

_ENGINE_OPTIONS = frozenset({"engine", "model", "model_sha256", "device", "compute_type", "threads", "batch_size"})
"""Options of the step `recognise` that say which engine to load; all others go into each call."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Say where the engines of this process run.

    Args:
        engine_device: how they name the device: `cpu`, or `cuda:0` whichever card that is; `auto` where nobody has
            placed this process: then options and machine decide.
        memory_fraction: share 0..1 of the memory of that card; 0 without one.
        memory_bytes: that share in bytes; 0 where unknown.
    """

    engine_device: str = "auto"
    memory_fraction: float = 0.0
    memory_bytes: int = 0


def engine_spec(options: Mapping[str, Any], settings: Settings, seat: Seat) -> EngineSpec:
    """Return the engine that options ask for, on the device that this worker has, with verified files.

    A worker that was given a card sees no other, and calls it cuda:0 whatever its number is in the options.

    Raises:
        ModelCorrupt: the model here is not the one with which the job was submitted.
    """
    is_placed = seat.engine_device != "auto" and options["device"] != "cpu"
    device = seat.engine_device if is_placed else resolve_device(options["device"])
    params: tuple[tuple[str, Any], ...] = ()
    if options["batch_size"]:
        params = (("max_batch", options["batch_size"]),)
    spec = EngineSpec(
        engine=options["engine"],
        model=options["model"],
        device=device,
        compute_type=options.get("compute_type", ""),
        threads=options["threads"] or 1,
        memory_fraction=0.0 if device == "cpu" else seat.memory_fraction,
        memory_bytes=0 if device == "cpu" else seat.memory_bytes,
        params=params,
    )
    spec = with_settings(spec, settings)
    if not engine_class(spec.engine).facts(spec).needs_model:
        return spec
    files = resolve(by_hash(options["model"], options["model_sha256"]), settings)
    if options["model_sha256"] and files.sha256 != options["model_sha256"]:
        raise ModelCorrupt(f"The model {options['model']!r} on this worker is not the one that the job names")
    return replace(spec, model_dir=str(files.dir))


def recognise_options(options: Mapping[str, Any], *, split: bool) -> RecogniseOptions:
    """Return the engine's options; channels that were kept apart are merged by word, so that words need times."""
    same = {name: value for name, value in options.items() if name not in _ENGINE_OPTIONS}
    return RecogniseOptions.from_json({**same, "word_timestamps": options["word_timestamps"] or split})


def vad_spec(options: Mapping[str, Any], settings: Settings, seat: Seat) -> EngineSpec:
    """Return the detector that the options of `prepare` ask for, with verified files.

    A detector on torch takes the device of this worker, others the CPU.

    Raises:
        UnknownEngine: this worker has no such engine.
        ModelUnavailable: its model is not on this machine.
        ModelCorrupt: the model here is not the one with which the job was submitted.
    """
    spec = EngineSpec(options["vad_engine"])
    kind = engine_class(spec.engine)
    if kind.facts(spec).uses_torch:
        device = resolve_device("auto") if seat.engine_device == "auto" else seat.engine_device
        if device != "cpu":
            spec = replace(spec, device=device, memory_fraction=seat.memory_fraction, memory_bytes=seat.memory_bytes)
    if not kind.facts(spec).needs_model:
        return spec
    wanted = options["vad_model_sha256"]
    files = resolve(by_hash(model_of(spec.engine).name, wanted), settings)
    if wanted and files.sha256 != wanted:
        raise ModelCorrupt(f"The model {files.name!r} on this worker is not the one that the job names")
    return replace(spec, model=files.name, model_dir=str(files.dir))
