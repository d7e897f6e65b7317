"""Metrics from what workers have told in their rows: counters that begin at nothing when a worker starts anew."""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import Metric

from voicejobs.metrics.families import Labels, counter, gauge
from voicejobs.metrics.pools import of_pools
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
    yield from of_pools([(name, pool) for name, one in named for pool in one.told.get("pools", ())])


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
