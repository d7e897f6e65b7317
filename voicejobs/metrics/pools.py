"""Metrics of engine processes, from what their pools count."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import Metric

from voicejobs.hosting.figures import BATCH_STEPS
from voicejobs.metrics.families import Labels, Steps, counter, gauge, histogram

_LABELS = ("engine", "model", "device", "kind")
_POOL = {
    "loaded": (gauge, "model_pool_loaded", "Engine processes with a loaded model."),
    "size": (gauge, "model_pool_size", "Engine processes that there may be."),
    "limit": (gauge, "engine_batch_limit", "Windows that a call holds at most; a full memory lowers it."),
    "resident_bytes": (gauge, "model_pool_bytes", "Resident memory of the engine processes."),
    "loads": (counter, "model_pool_loads", "Times that a process loaded its model."),
    "load_s": (counter, "model_pool_load_seconds", "Time that this took."),
    "crashes": (counter, "engine_crashes", "Engine processes that died or hung."),
    "calls": (counter, "engine_calls", "Calls of engines."),
    "items": (counter, "engine_items", "Windows or texts in them."),
    "busy_s": (
        counter,
        "engine_busy_seconds",
        "Time that engine processes worked; its rate by size is how busy they are.",
    ),
    "sweep_s": (counter, "model_pool_sweep_seconds", "Time that looking for idle processes took, and ending them."),
}


def of_pools(pools: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[Metric]:
    """Yield what workers, or a server of the voice engine, tell of their engines; each pool with its owner's name."""
    merged: dict[tuple[str, ...], dict[str, Any]] = {}
    for worker, pool in pools:  # pools of other parameters have the same labels
        key = (worker, *(str(pool[name]) for name in _LABELS))
        merged[key] = _added(merged[key], pool) if key in merged else dict(pool)
    labelled: list[tuple[Labels, Mapping[str, Any]]] = [
        (dict(zip(("worker", *_LABELS), key, strict=True)), pool) for key, pool in merged.items()
    ]
    for field, (kind, name, told) in _POOL.items():
        yield kind(name, told, [(labels, pool[field]) for labels, pool in labelled])
    reasons = [
        ({**labels, "reason": why}, count)
        for labels, pool in labelled
        for why, count in {"idle": 0, "memory": 0, **pool["evictions"]}.items()
    ]
    yield counter("model_pool_evictions", "Engine processes that were ended to free memory.", reasons)
    batches = [(labels, _cumulated(pool["batches"]), float(pool["items"])) for labels, pool in labelled]
    yield histogram("engine_batch_size", "Windows or texts of one call.", batches)
    gpus = [(labels, pool["gpu"]) for labels, pool in labelled if pool["gpu"]]
    yield gauge("gpu_reserved_bytes", "Device memory that torch has reserved.", [(one, gpu[0]) for one, gpu in gpus])
    yield gauge("gpu_allocated_bytes", "Device memory that tensors hold.", [(one, gpu[1]) for one, gpu in gpus])
    yield gauge(
        "gpu_reserved_unallocated_bytes",
        "Reserved and not allocated: what fragmentation and caching keep from others.",
        [(one, gpu[0] - gpu[1]) for one, gpu in gpus],
    )


def _added(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of two pools together."""
    summed: dict[str, Any] = {**one, **{name: one[name] + other[name] for name in _POOL}}
    why = {*one["evictions"], *other["evictions"]}
    summed["evictions"] = {name: one["evictions"].get(name, 0) + other["evictions"].get(name, 0) for name in why}
    summed["batches"] = [a + b for a, b in zip(one["batches"], other["batches"], strict=True)]
    summed["gpu"] = [a + b for a, b in zip(one["gpu"] or (0, 0), other["gpu"] or (0, 0), strict=True)]
    return summed


def _cumulated(counts: Sequence[int]) -> Steps:
    """Return the steps of a histogram from the count of each."""
    steps, total = [], 0
    for bound, count in zip([*map(float, BATCH_STEPS), float("inf")], counts, strict=True):
        total += count
        steps.append((bound, float(total)))
    return steps
