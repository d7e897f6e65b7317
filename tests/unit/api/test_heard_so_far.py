"""What a job has heard while it runs."""

import json
from typing import Any

from sqlalchemy import insert

from tests.rows import opened
from voicejobs.api.openai_calls import heard_so_far
from voicejobs.store import jobs as rows
from voicejobs.store.database import Database
from voicejobs.store.jobs import NewBatch
from voicejobs.store.schema import jobs, step_runs


def results(*texts: str) -> str:
    """Return what a shard keeps, with a window for each text."""
    return json.dumps({"results": [{"segments": [{"text": text}]} for text in texts]})


def insert_job(database: Database, *shards: dict[str, Any]) -> str:
    """Insert a job with shards of `recognise` that stand as told, and return its id."""
    plain = dict.fromkeys(("tenant", "pipeline", "source_name", "target", "trace_id"), "")
    numbers = dict.fromkeys(("seq", "priority", "pipeline_version", "cost_order", "created_at"), 0)
    with database.begin() as connection:
        batch_id = rows.insert_batch(connection, NewBatch("interactive", "", {}))
        connection.execute(
            insert(jobs).values(
                id="job_1", batch_id=batch_id, state="running", options="{}", source="{}", **plain, **numbers
            )
        )
        for number, shard in enumerate(shards):
            values = {"job_id": "job_1", "node": "recognise", "step": "recognise", "step_version": 1, "depth": 1,
                      "queue": "asr", "inputs": "{}", "created_at": 0.0}  # fmt: skip
            connection.execute(insert(step_runs).values(id=f"step_{number}", shard=number, **values, **shard))
    return "job_1"


def test_what_was_heard_is_told_up_to_the_first_gap(sqlite_url: str) -> None:
    """Whole shards, then the checkpoint of the first that runs; what a later one has heard waits."""
    with opened(sqlite_url) as database:
        job_id = insert_job(
            database,
            {"state": "succeeded", "output": results(" a", " b")},
            {"state": "running", "checkpoint": results(" c")},
            {"state": "succeeded", "output": results(" e")},
        )
        assert heard_so_far(database, job_id) == [" a", " b", " c"]


def test_nothing_is_heard_before_the_first_windows(sqlite_url: str) -> None:
    """Neither without shards nor with one that has not begun."""
    with opened(sqlite_url) as database:
        assert heard_so_far(database, "job_0") == []
        assert heard_so_far(database, insert_job(database, {"state": "queued"})) == []
