"""What is deployed beside the service names metrics that there are: the dashboard, the alarms, Prometheus itself."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from prometheus_client.core import Metric

from tests.rows import opened
from voicejobs.api.context import Lag, Requests
from voicejobs.api.metrics import own_families
from voicejobs.metrics.page import Metrics
from voicejobs.rpc.admission import Counts
from voicejobs.rpc.metrics import ServerMetrics

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboards" / "voicejobs.json").read_text(encoding="utf-8"))


def parse(name: str) -> Any:
    """Return what a YAML file below deploy/ holds."""
    return yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))


@pytest.fixture
def names(sqlite_url: str) -> set[str]:
    """Return the names of all samples that the page can have."""
    process: Any = SimpleNamespace(requests=Requests(), lag=Lag(), started_at=0.0)
    with opened(sqlite_url) as database:
        return samples(Metrics(database, lambda: own_families(process)).collect())


@pytest.fixture
def engine_names() -> set[str]:
    """Return the names of all samples that the page of a voice engine can have."""
    limits = SimpleNamespace(slots=1, queue_length=1, streams=1)
    zero: Any = SimpleNamespace(working=0, waiting=0, limits=limits, counts=Counts())
    host: Any = SimpleNamespace(figures=list)
    streams: Any = SimpleNamespace(open=0)
    return samples(ServerMetrics(host, zero, streams).collect())


def samples(families: Iterable[Metric]) -> set[str]:
    """Return the names of all samples of families."""
    found = set()
    for family in families:
        endings = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(family.type, [""])
        found |= {family.name + ending for ending in endings}
    return found


def expressions() -> Iterator[str]:
    """Yield every expression of the dashboard and of the alarms."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for group in parse("alerts.yml")["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]


def test_every_metric_that_is_looked_at_exists(names: set[str]) -> None:
    """No panel and no alarm asks for something that the page never has."""
    asked = {name for one in expressions() for name in re.findall(r"voicejobs_\w+", one)}
    assert len(asked) > 25
    assert asked <= names


def test_panels_have_places_of_their_own() -> None:
    """No two panels of the dashboard lie on each other; each has a number, and asks the datasource that is set up."""
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    (source,) = parse("grafana/provisioning/datasources/prometheus.yml")["datasources"]
    assert {p["datasource"]["uid"] for p in DASHBOARD["panels"] if "datasource" in p} == {source["uid"]}


def test_prometheus_reads_the_page_with_a_key_from_a_file() -> None:
    """The configuration names the route, and no secret."""
    (scraped,) = parse("prometheus.yml")["scrape_configs"]
    assert scraped["metrics_path"] == "/metrics"
    assert scraped["authorization"] == {"type": "Bearer", "credentials_file": "/run/secrets/metrics_key"}


def test_the_page_of_docs_tells_of_every_metric(names: set[str], engine_names: set[str]) -> None:
    """docs/watching.md explains each metric, and none that does not exist."""
    page = (ROOT / "docs" / "watching.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`(voicejobs_\w+)`", page))
    plain = {
        re.sub(r"_(bucket|count|sum)$", "", name) if name.endswith(("_bucket", "_sum", "_count")) else name
        for name in names | engine_names
    }
    assert told == plain
