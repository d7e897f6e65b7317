"""Read artifacts back."""

from sqlalchemy import select

from voicejobs.errors import NoSuchRecord
from voicejobs.store.blobs import BlobStore
from voicejobs.store.database import Database
from voicejobs.store.schema import artifacts


def load(database: Database, blobs: BlobStore, artifact_id: str) -> bytes:
    """Return the bytes of an artifact.

    Raises:
        NoSuchRecord: there is no such artifact.
    """
    with database.read() as connection:
        row = connection.execute(
            select(artifacts.c.sha256, artifacts.c.data).where(artifacts.c.id == artifact_id)
        ).first()
    if row is None:
        raise NoSuchRecord(f"There is no artifact {artifact_id!r}")
    return blobs.load(row.sha256, row.data)


def load_kind(database: Database, blobs: BlobStore, job_id: str, kind: str) -> bytes:
    """Return the bytes of the newest artifact of a kind that a job has.

    Raises:
        NoSuchRecord: it has none.
    """
    with database.read() as connection:
        row = connection.execute(
            select(artifacts.c.sha256, artifacts.c.data)
            .where(artifacts.c.job_id == job_id, artifacts.c.kind == kind)
            .order_by(artifacts.c.id.desc())
            .limit(1)
        ).first()
    if row is None:
        raise NoSuchRecord(f"The job {job_id} has no {kind!r}")
    return blobs.load(row.sha256, row.data)
