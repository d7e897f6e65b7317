"""Which detector of speech a job asks for, and where this worker runs it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from voicejobs.engines.base import EngineSpec
from voicejobs.engines.devices import resolve_device
from voicejobs.engines.registry import engine_class
from voicejobs.errors import ModelCorrupt
from voicejobs.models.catalogue import by_hash, model_of
from voicejobs.models.installed import resolve
from voicejobs.settings import Settings
from voicejobs.tasks.runtime import Place


def vad_spec(options: Mapping[str, Any], settings: Settings, place: Place) -> EngineSpec:
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
        device = resolve_device("auto") if place.engine_device == "auto" else place.engine_device
        if device != "cpu":
            spec = replace(spec, device=device, memory_fraction=place.memory_fraction, memory_bytes=place.memory_bytes)
    if not kind.facts(spec).needs_model:
        return spec
    wanted = options["vad_model_sha256"]
    files = resolve(by_hash(model_of(spec.engine).name, wanted), settings)
    if wanted and files.sha256 != wanted:
        raise ModelCorrupt(f"The model {files.name!r} on this worker is not the one that the job names")
    return replace(spec, model=files.name, model_dir=str(files.dir))
