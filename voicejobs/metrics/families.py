"""Families of metrics: names, labels and samples in the shape that Prometheus' library writes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

Labels = Mapping[str, str]
Steps = Sequence[tuple[float, float]]
"""(upper bound, how many up to it) of each step of a histogram; the last bound is infinite."""


def gauge(name: str, told: str, samples: Iterable[tuple[Labels, float]]) -> Metric:
    """Return a metric that goes up and down."""
    return _filled(GaugeMetricFamily, name, told, samples)


def counter(name: str, told: str, samples: Iterable[tuple[Labels, float]]) -> Metric:
    """Return a metric that only rises; `_total` is added to its name."""
    return _filled(CounterMetricFamily, name, told, samples)


def histogram(name: str, told: str, samples: Iterable[tuple[Labels, Sequence[tuple[float, float]], float]]) -> Metric:
    """Return a histogram; a sample has labels, (upper bound, count up to it) of each step, and the sum."""
    given = list(samples)
    family = HistogramMetricFamily(f"voicejobs_{name}", told, labels=sorted(given[0][0]) if given else [])
    for labels, steps, total in given:
        buckets = [("+Inf" if bound == float("inf") else f"{bound:g}", count) for bound, count in steps]
        family.add_metric([labels[key] for key in sorted(labels)], buckets, total)
    return family


def _filled(kind: Any, name: str, told: str, samples: Iterable[tuple[Labels, float]]) -> Metric:
    """Return a family with its samples, which all have the same labels."""
    given = list(samples)
    names = sorted(given[0][0]) if given else []
    family: Metric = kind(f"voicejobs_{name}", told, labels=names)
    for labels, value in given:
        getattr(family, "add_metric")([labels[key] for key in names], value)  # noqa: B009 - each family has its own
    return family
