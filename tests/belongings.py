"""One of each thing that a tenant can own, as rows and blobs: nothing has to run for them to be there."""

import json
from typing import Any

from sqlalchemy import Connection, insert, select

from voicejobs.audio.types import Segment, Transcript, Word
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.store import files, keys
from voicejobs.store.blobs import BlobStore
from voicejobs.store.database import Database
from voicejobs.store.files import NewFile
from voicejobs.store.ids import new_id
from voicejobs.store.jobs import NewArtifact
from voicejobs.store.keys import NewKey
from voicejobs.store.schema import artifacts, batches, deliveries, jobs, metadata, results, webhooks

OTHERS = {
    "code": "too_large",
    "engine_id": "fake",
    "form": "srt",
    "model": "fake",
    "model_id": "base",
    "pipeline_name": "transcribe",
    "voice_id": "fake",
}
"""Names in paths that belong to nobody."""
OF_NOBODY = frozenset(OTHERS) - {"form"}
TEXT = "what only its owner reads"


def give(database: Database, blobs: BlobStore, tenant: str) -> dict[str, str]:
    """Give a tenant one of each, and return their ids by the names that paths use."""
    blobs.make_folders()
    stored = blobs.put_stream([TEXT.encode()])
    transcript = Transcript(
        (Segment(0.0, 1.0, TEXT, words=(Word(0.0, 1.0, TEXT, 0.9),)),), "en", 1.0, engine="fake", source_name="a.wav"
    )
    artifact = blobs.store(transcript.dump(), "transcript", {})
    ids = {
        "batch_id": new_id("batch"),
        "job_id": new_id("job"),
        "artifact_id": new_id("art"),
        "webhook_id": new_id("wh"),
        "delivery_id": new_id("dlv"),
        "file_id": files.add_file(database, tenant, stored, NewFile("a.txt", "user_data", "text/plain")).id,
        "upload_id": files.create_upload(database, tenant, NewFile("b.wav", "user_data"), size_bytes=10).id,
        "key_id": keys.create_key(database, NewKey(tenant=tenant, scopes=["metrics"]))[0].id,
    }
    with database.begin() as connection:
        _insert_job(connection, tenant, ids, artifact)
        _insert_webhook(connection, tenant, ids)
    return ids


def _insert_job(connection: Connection, tenant: str, ids: dict[str, str], artifact: NewArtifact) -> None:
    """Insert a batch of one job that has ended, with its transcript."""
    times = {"created_at": 1_700_000_000.0, "finished_at": 1_700_000_001.0}
    shared = {"tenant": tenant, "watched": 1, **times}
    batch = {"id": ids["batch_id"], "lane": "bulk", "state": "completed", "label": "", "options": "{}"}
    connection.execute(insert(batches).values(**batch, sealed_at=times["created_at"], request="{}", **shared))
    job: dict[str, Any] = {
        "id": ids["job_id"], "batch_id": ids["batch_id"], "seq": 1, "priority": 0, "pipeline": TRANSCRIBE.name,
        "pipeline_version": TRANSCRIBE.version, "options": json.dumps(TRANSCRIBE.options({})),
        "source": json.dumps({"path": "/nowhere.wav"}), "source_name": "a.wav", "target": "", "cost_order": 0,
        "state": "succeeded", "audio_s": 1.0, "outputs": "[]", "trace_id": ids["job_id"], "request": "{}",
    }  # fmt: skip
    connection.execute(insert(jobs).values(**job, started_at=times["created_at"], **shared))
    connection.execute(
        insert(artifacts).values(
            id=ids["artifact_id"], job_id=ids["job_id"], step_run_id="none", kind=artifact.kind, sha256=artifact.sha256,
            size_bytes=artifact.size_bytes, data=artifact.data, meta=json.dumps(dict(artifact.meta)),
            created_at=times["finished_at"],
        )
    )  # fmt: skip
    connection.execute(
        insert(results).values(
            job_id=ids["job_id"], result_key=ids["job_id"], artifact_id=ids["artifact_id"], language="en",
            duration_s=1.0, words=5, text=TEXT, created_at=times["finished_at"],
        )
    )  # fmt: skip


def _insert_webhook(connection: Connection, tenant: str, ids: dict[str, str]) -> None:
    """Insert a webhook, and a delivery that it has had."""
    connection.execute(
        insert(webhooks).values(
            id=ids["webhook_id"], tenant=tenant, url="https://hooks.example.org/", types='["job.succeeded"]',
            state="disabled", generation=1, created_at=1_700_000_000.0,
        )
    )  # fmt: skip
    connection.execute(
        insert(deliveries).values(
            id=ids["delivery_id"], webhook_id=ids["webhook_id"], event_id="evt_0000000000000001", type="job.succeeded",
            body="{}", state="delivered", attempts=1, next_at=0.0, created_at=1_700_000_000.0,
            finished_at=1_700_000_001.0,
        )
    )  # fmt: skip


def everything(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows but those that change by themselves (keys and their use, cursors, answers to requests)."""
    with database.read() as connection:
        return {
            table.name: sorted((tuple(row) for row in connection.execute(select(table))), key=repr)
            for table in metadata.sorted_tables
            if table.name not in {"api_keys", "cursors", "idempotency_keys"}
        }
