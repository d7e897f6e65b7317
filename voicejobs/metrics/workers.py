"""Metrics from what workers have told in their rows: counters that begin at nothing when a worker starts anew."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import Metric

from voicejobs.hosting.figures import BATCH_STEPS
from voicejobs.metrics.families import Labels, Steps, counter, gauge, histogram
from voicejobs.store.owners import Owner
from voicejobs.store.reports import Report

_COUNTERS = {
    "steps": ("steps", "Step runs that ended, by how."),
    "step_s": ("step_seconds", "Time that step runs which succeeded took together."),
    "jobs_ended": ("jobs_ended", "Jobs that this worker brought to their end."),
    "audio_s": ("audio_seconds", "Seconds of audio of the jobs that succeeded; its rate is the real-time factor."),
    "dead_letters": ("dead_letter_jobs", "Jobs that were given up after all attempts."),
    "leases_lost": ("leases_lost", "Jobs whose lease was taken from a worker that died or fell silent."),
    "messages_lost": ("messages_lost", "Jobs whose message the broker had lost."),
    "sent": ("jobs_sent", "Jobs that were sent to the broker."),
}
"""Name and meaning of the counters of `Tally`, by what they are called there."""
_UNLABELLED = ("dead_letters", "leases_lost", "messages_lost")
"""Counters that show as nothing before the first time: alarms look at their rise."""

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


def of_workers(told: Sequence[Report]) -> Iterator[Metric]:
    """Yield the metrics of workers."""
    named = list(_named(told))
    yield gauge("worker_report_age_seconds", "Seconds since a worker told of itself.",
                [({"worker": name, "device": one.device}, one.age_s) for name, one in named])  # fmt: skip
    yield gauge("worker_held_steps", "Step runs that a worker holds.",
                [({"worker": name}, one.told.get("held", 0)) for name, one in named])  # fmt: skip
    yield gauge("worker_window_jobs", "Jobs that a worker lets be out at once.",
                [({"worker": name}, one.told.get("window", 0)) for name, one in named])  # fmt: skip
    yield counter("worker_messages", "Messages that a worker took from the broker.",
                  [({"worker": name}, one.told.get("taken", 0)) for name, one in named])  # fmt: skip
    yield from _counters(named)
    yield from _pools([(name, pool) for name, one in named for pool in one.told.get("pools", ())])


def _named(told: Sequence[Report]) -> Iterator[tuple[str, Report]]:
    """Yield workers with a name for each: two with the same are told apart by their process."""
    seen: set[str] = set()
    for one in reversed(told):  # who was started last keeps the plain name
        name = one.worker
        if name in seen:
            owner = Owner.parse(one.owner)
            name = f"{name}#{owner.pid if owner else one.owner}"
        seen.add(name)
        yield name, one


def _counters(named: Sequence[tuple[str, Report]]) -> Iterator[Metric]:
    """Yield what workers count in their tallies."""
    found: dict[str, list[tuple[Labels, float]]] = {}
    for worker, one in named:
        counts: Sequence[tuple[str, Labels, float]] = one.told.get("counts", ())
        known = {name for name, _, _ in counts}
        for name, labels, count in counts:
            found.setdefault(name, []).append(({"worker": worker, **labels}, count))
        for name in _UNLABELLED:
            if name not in known:
                found.setdefault(name, []).append(({"worker": worker}, 0.0))
    for name, (shown, told) in _COUNTERS.items():
        yield counter(shown, told, found.get(name, ()))
    retried = [({"worker": labels["worker"]}, count) for labels, count in found.get("steps", ())
               if labels["outcome"] == "retried"]  # fmt: skip
    without = [({"worker": worker}, 0.0) for worker, _ in named if worker not in {one["worker"] for one, _ in retried}]
    yield counter("retries", "Step runs that failed and are tried again.", _summed([*retried, *without]))


def _summed(samples: Iterable[tuple[Labels, float]]) -> list[tuple[Labels, float]]:
    """Add up samples with the same labels."""
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for labels, value in samples:
        key = tuple(sorted(labels.items()))
        sums[key] = sums.get(key, 0.0) + value
    return [(dict(key), value) for key, value in sums.items()]


def _pools(pools: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[Metric]:
    """Yield what workers tell of their engines."""
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
