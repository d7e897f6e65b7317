"""The rows in which workers tell what they count."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from voicejobs.store.database import Database, now_s
from voicejobs.store.schema import worker_reports

FRESH_S = 30.0
"""A worker that has not told for so long is gone, or cannot reach the database."""
KEPT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Report:
    """Hold what a worker told last.

    Args:
        owner: which process it is, as `Owner` writes it.
        worker: its name and host.
        device: where its engines run.
        age_s: seconds since then, by the clock of the database.
        told: what it counts.
    """

    owner: str
    worker: str
    device: str
    age_s: float
    told: Mapping[str, Any]


def put_report(database: Database, report: Report) -> None:
    """Write the report of a worker over the one before; reports of workers that are long gone are removed."""

    def write(connection: Connection) -> None:
        values = {"told": json.dumps(report.told, separators=(",", ":")), "updated_at": now_s()}
        mine = update(worker_reports).where(worker_reports.c.owner == report.owner).values(values)
        if connection.execute(mine).rowcount:
            return
        named = {"owner": report.owner, "worker": report.worker, "device": report.device, "started_at": now_s()}
        connection.execute(delete(worker_reports).where(worker_reports.c.updated_at < now_s() - KEPT_S))
        connection.execute(insert(worker_reports).values({**named, **values}))

    database.run(write, durable=False)


def reports(connection: Connection) -> list[Report]:
    """Return what the workers that are there have told, in the order of their start."""
    age_s = now_s() - worker_reports.c.updated_at
    query = (
        select(worker_reports, age_s.label("age_s"))
        .where(worker_reports.c.updated_at >= now_s() - FRESH_S)
        .order_by(worker_reports.c.started_at, worker_reports.c.owner)
    )
    return [
        Report(row.owner, row.worker, row.device, max(0.0, row.age_s), json.loads(row.told))
        for row in connection.execute(query)
    ]
