"""Read artifacts back."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from sqlalchemy import select

from voicejobs.errors import NoSuchRecord
from voicejobs.store.blobs import ENCODING, PACKED, BlobStore
from voicejobs.store.database import Database
from voicejobs.store.schema import artifacts, jobs


@dataclass(frozen=True, slots=True)
class Artifact:
    """Describe an artifact without its content.

    Args:
        sha256: of its bytes as they are kept.
        size_bytes: likewise.
        meta: what its maker says of it: `type`, and for sounds `format` and `rate_hz`.
        is_packed: whether its content is kept packed: hash and size are not those of the content then.
        is_blob: whether its bytes are a blob, and lie not in its row.
    """

    id: str
    job_id: str
    kind: str
    sha256: str
    size_bytes: int
    meta: Mapping[str, Any]
    is_packed: bool
    is_blob: bool
    created_at: float


def describe(database: Database, tenant: str, artifact_id: str) -> Artifact:
    """Return what there is to know of an artifact of a tenant.

    Raises:
        NoSuchRecord: the tenant has none of this id.
    """
    query = (
        select(*(one for one in artifacts.c if one.name != "data"), artifacts.c.data.is_(None).label("is_blob"))
        .join(jobs, jobs.c.id == artifacts.c.job_id)
        .where(artifacts.c.id == artifact_id, jobs.c.tenant == tenant)
    )
    with database.read() as connection:
        row = connection.execute(query).first()
    if row is None:
        raise NoSuchRecord(f"There is no artifact {artifact_id!r}")
    meta = json.loads(row.meta)
    is_packed = meta.pop(ENCODING, None) == PACKED
    return Artifact(
        row.id, row.job_id, row.kind, row.sha256, row.size_bytes, meta, is_packed, bool(row.is_blob), row.created_at
    )


def open_content(database: Database, blobs: BlobStore, artifact: Artifact) -> BinaryIO:
    """Open the content of an artifact as a file that can be sought in.

    Raises:
        NoSuchRecord: its job was removed meanwhile.
        NotFound: its blob is not there.
    """
    data = None
    if not artifact.is_blob:
        with database.read() as connection:
            found = connection.execute(select(artifacts.c.data).where(artifacts.c.id == artifact.id)).first()
        if found is None:
            raise NoSuchRecord(f"There is no artifact {artifact.id!r}")
        data = found.data
    return blobs.open_artifact(artifact.sha256, data, packed=artifact.is_packed)


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
