"""Files that tenants have given us, and uploads in parts that become files; the bytes are blobs.

Every function names the tenant, and finds nothing of another one. The bytes of a file that is deleted go with the next
pruning, unless another file, an artifact or a job still names them. Times are unix seconds.
"""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Any, BinaryIO

from sqlalchemy import Connection, RowMapping, Table, and_, delete, exists, func, insert, or_, select, update

from voicejobs.errors import BadOption, DatabaseUnavailable, NoSuchRecord, NotFound, TooLarge, WrongState
from voicejobs.store.blobs import BlobStore, BlobWriter, Stored
from voicejobs.store.database import Database, now_s
from voicejobs.store.ids import new_id
from voicejobs.store.schema import files, upload_parts, uploads

MAX_PART_BYTES = 64_000_000 + 4 * 1024 * 1024
"""One part: what OpenAI's client sends at once (64 MiB), and a little more."""

MAX_UPLOAD_BYTES = 8 * 1024**3
MAX_PARTS = 10_000
UPLOAD_LIFE_S = 3600.0
MOST_AT_ONCE = 200

PENDING, COMPLETED, CANCELLED, EXPIRED = "pending", "completed", "cancelled", "expired"
_LATE = and_(uploads.c.state == PENDING, uploads.c.expires_at < now_s())
_GONE = files.c.expires_at < now_s()


@dataclass(frozen=True, slots=True)
class NewFile:
    """Say what a file is called, what it is for, its media type, and after how many seconds it goes; None for never."""

    name: str
    purpose: str
    media_type: str = "application/octet-stream"
    expires_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class File:
    """Hold the row of a file; `sha256` is also the name of its blob."""

    id: str
    tenant: str
    name: str
    purpose: str
    media_type: str
    sha256: str
    size_bytes: int
    created_at: float
    expires_at: float | None


@dataclass(frozen=True, slots=True)
class Upload:
    """Hold the row of an upload; `state` is pending, completed, cancelled or expired."""

    id: str
    tenant: str
    name: str
    purpose: str
    media_type: str
    size_bytes: int
    state: str
    file_id: str | None
    created_at: float
    expires_at: float


@dataclass(frozen=True, slots=True)
class Part:
    """Hold the row of a part of an upload."""

    id: str
    upload_id: str
    sha256: str
    size_bytes: int
    created_at: float


def add_file(database: Database, tenant: str, stored: Stored, new: NewFile) -> File:
    """Insert the row of a file whose bytes are a blob already, and return it."""
    return database.run(lambda connection: insert_file(connection, tenant, stored, new))


def insert_file(connection: Connection, tenant: str, stored: Stored, new: NewFile) -> File:
    """Insert the row of a file inside the caller's transaction, and return it."""
    statement = (
        insert(files)
        .values(
            id=new_id("file"),
            tenant=tenant,
            name=new.name,
            purpose=new.purpose,
            media_type=new.media_type,
            sha256=stored.sha256,
            size_bytes=stored.size_bytes,
            created_at=now_s(),
            expires_at=None if new.expires_after_s is None else now_s() + new.expires_after_s,
        )
        .returning(*files.c)
    )
    return File(**connection.execute(statement).mappings().one())


def get_file(database: Database, tenant: str, file_id: str) -> File:
    """Return a file.

    Raises:
        NoSuchRecord: the tenant has none of this id, or its time is over.
    """
    with database.read() as connection:
        return _demand_file(connection.execute(_own_file(tenant, file_id)).mappings().first(), file_id)


def hold_file(connection: Connection, tenant: str, file_id: str) -> File:
    """Return a file that cannot be deleted before the caller's transaction has ended: what needs it is in it then.

    Raises:
        NoSuchRecord: the tenant has none of this id, or its time is over.
    """
    query = _own_file(tenant, file_id).with_for_update(read=True)
    return _demand_file(connection.execute(query).mappings().first(), file_id)


def list_files(
    database: Database, tenant: str, *, purpose: str = "", after: str = "", limit: int = 20, newest_first: bool = True
) -> list[File]:
    """Return files of a tenant that come after the id `after`, in the order of their making."""
    query = select(*files.c).where(files.c.tenant == tenant, _is_current())
    if purpose:
        query = query.where(files.c.purpose == purpose)
    with database.read() as connection:
        found = connection.execute(_paged(query, files, after, limit, newest_first)).mappings()
        return [File(**row) for row in found]


def delete_file(database: Database, tenant: str, file_id: str) -> None:
    """Delete a file; jobs that were submitted with it keep its bytes until they have ended.

    Raises:
        NoSuchRecord: the tenant has none of this id.
    """
    statement = delete(files).where(files.c.tenant == tenant, files.c.id == file_id)
    if not database.run(lambda connection: connection.execute(statement).rowcount):
        raise NoSuchRecord(f"There is no file {file_id!r}")


def create_upload(
    database: Database, tenant: str, new: NewFile, *, size_bytes: int, life_s: float = UPLOAD_LIFE_S
) -> Upload:
    """Begin an upload of `size_bytes` in parts, which must be complete within `life_s` seconds.

    Raises:
        BadOption, TooLarge: the size is none, or more than an upload may have.
    """
    if size_bytes < 1:
        raise BadOption("An upload has at least one byte", param="bytes")
    if size_bytes > MAX_UPLOAD_BYTES:
        raise TooLarge(
            f"An upload has at most {MAX_UPLOAD_BYTES} bytes",
            hint="Cut the recording, or give the service its address.",
            limit_bytes=MAX_UPLOAD_BYTES,
            param="bytes",
        )
    statement = (
        insert(uploads)
        .values(
            id=new_id("upload"),
            tenant=tenant,
            name=new.name,
            purpose=new.purpose,
            media_type=new.media_type,
            size_bytes=size_bytes,
            state=PENDING,
            created_at=now_s(),
            expires_at=now_s() + life_s,
        )
        .returning(*uploads.c)
    )
    return database.run(lambda connection: Upload(**connection.execute(statement).mappings().one()))


def get_upload(database: Database, tenant: str, upload_id: str) -> Upload:
    """Return an upload; one whose time is over is expired, also where nobody has cleared it away yet.

    Raises:
        NoSuchRecord: the tenant has none of this id.
    """
    with database.read() as connection:
        return _seen(connection, tenant, upload_id)


def list_uploads(
    database: Database, tenant: str, *, after: str = "", limit: int = 20, newest_first: bool = True
) -> list[Upload]:
    """Return uploads of a tenant that come after the id `after`, in the order of their making."""
    query = select(*uploads.c).where(uploads.c.tenant == tenant)
    with database.read() as connection:
        found = connection.execute(_paged(query, uploads, after, limit, newest_first)).mappings()
        return [Upload(**row) for row in found]


def add_part(
    database: Database,
    blobs: BlobStore,
    upload: Upload,
    source: BinaryIO | Iterable[bytes],
    *,
    sha256: str = "",
) -> Part:
    """Keep one part of an upload, written as it comes, and return it; parts may come in any order, and at once.

    Args:
        database: the store.
        blobs: likewise.
        upload: the upload, as `get_upload` gives it.
        source: the bytes.
        sha256: what their hash must be, in hexadecimal; empty for whatever they are.

    Raises:
        WrongState: the upload is not pending.
        TooLarge: the part is, or all parts together are more than twice what the upload is to have.
        BadOption: the part is empty, or has another hash.
        DiskFull: there is no room for it.
    """
    _demand_pending(upload)
    with blobs.writer(limit_bytes=min(MAX_PART_BYTES, upload.size_bytes), taken_in=True) as writer:
        writer.write_all(source)
        return keep_part(database, blobs, upload, writer, sha256=sha256)


def keep_part(database: Database, blobs: BlobStore, upload: Upload, writer: BlobWriter, *, sha256: str = "") -> Part:
    """Keep what was written as one part of an upload, and return it; see `add_part`."""
    _demand_pending(upload)
    if not writer.size_bytes:
        raise BadOption("A part has at least one byte", param="data")
    if sha256 and not secrets.compare_digest(writer.sha256, sha256.lower()):
        raise BadOption(
            f"The part has the SHA-256 {writer.sha256}, and not {sha256}", hint="Send it again.", param="sha256"
        )
    part_id = new_id("part")
    stored = writer.commit(part_id=part_id)
    try:
        return database.run(lambda connection: _insert_part(connection, upload, part_id, stored))
    except DatabaseUnavailable:
        raise  # its row may be there, only the answer was lost; without one the bytes go with the next pruning
    except BaseException:
        blobs.remove_part(part_id)
        raise


def list_parts(database: Database, upload: Upload) -> list[Part]:
    """Return the parts of a pending upload in the order in which they began to be kept."""
    with database.read() as connection:
        query = select(*upload_parts.c).where(upload_parts.c.upload_id == upload.id).order_by(upload_parts.c.id)
        return [Part(**row) for row in connection.execute(query).mappings()]


def complete_upload(
    database: Database, blobs: BlobStore, upload: Upload, part_ids: Sequence[str], *, md5_hex: str = ""
) -> tuple[Upload, File]:
    """Put the parts together in the order of `part_ids`, in flat memory, and make a file of them.

    An upload that is completed already stays as it is and is returned with its file: whoever has not heard the answer
    may ask again.

    Raises:
        WrongState: the upload was cancelled, or has expired.
        BadOption: a part is named twice or is none of this upload's, the sizes do not add up, or the MD5 is another.
        DiskFull: there is no room for the whole.
        NoSuchRecord: it is completed, and its file deleted since.
    """
    upload = get_upload(database, upload.tenant, upload.id)
    if upload.state == COMPLETED:
        return upload, get_file(database, upload.tenant, str(upload.file_id))
    _demand_pending(upload)
    try:
        stored = _put_together(blobs, _chosen(list_parts(database, upload), part_ids, upload), upload, md5_hex)
        done = database.run(lambda connection: _complete(connection, upload, stored))
    except (BadOption, NotFound):
        if get_upload(database, upload.tenant, upload.id).state == PENDING:
            raise
        done = None
    if done is None:  # somebody else has ended it meanwhile
        return complete_upload(database, blobs, upload, part_ids)
    _remove_parts(database, blobs, [upload.id])
    return get_upload(database, upload.tenant, upload.id), done


def _put_together(blobs: BlobStore, parts: Sequence[Part], upload: Upload, md5_hex: str) -> Stored:
    """Make one blob of parts.

    Raises:
        BadOption: it has another MD5.
        NotFound: a part is not there any more.
    """
    digest = md5(usedforsecurity=False)
    with blobs.writer(limit_bytes=upload.size_bytes, taken_in=True) as writer:
        for part in parts:
            for chunk in blobs.read_part(part.id):
                if md5_hex:
                    digest.update(chunk)
                writer.write(chunk)
        if md5_hex and not secrets.compare_digest(digest.hexdigest(), md5_hex.lower()):
            raise BadOption(f"The file has the MD5 {digest.hexdigest()}, and not {md5_hex}", param="md5")
        return writer.commit()


def cancel_upload(database: Database, blobs: BlobStore, upload: Upload) -> Upload:
    """Cancel a pending upload, and remove its parts; one that is cancelled already is no fault.

    Raises:
        WrongState: it is completed or has expired.
    """
    statement = (
        update(uploads).where(uploads.c.id == upload.id, uploads.c.state == PENDING).values(state=CANCELLED)
    )  # one that is being completed has another state by now, or will find this one
    database.run(lambda connection: connection.execute(statement))
    found = get_upload(database, upload.tenant, upload.id)
    if found.state != CANCELLED:
        raise WrongState(f"The upload {upload.id} is {found.state}, and cannot be cancelled")
    _remove_parts(database, blobs, [upload.id])
    return found


def expire(database: Database, blobs: BlobStore) -> int:
    """End pending uploads and delete files whose time is over; return how many there were of both."""

    def end(connection: Connection) -> tuple[list[str], int]:
        late = update(uploads).where(_LATE).values(state=EXPIRED).returning(uploads.c.id)
        ended = [str(one) for one in connection.execute(late).scalars()]
        gone = connection.execute(delete(files).where(_GONE)).rowcount
        return ended, int(gone)

    with database.read() as connection:  # a look costs nothing, where to write would wait for other writers
        if not connection.execute(select(or_(*(exists(select(1).where(one)) for one in (_LATE, _GONE))))).scalar():
            return 0
    ended, gone = database.run(end)
    for start in range(0, len(ended), MOST_AT_ONCE):
        _remove_parts(database, blobs, ended[start : start + MOST_AT_ONCE])
    return len(ended) + gone


def living_parts(connection: Connection, part_ids: Sequence[str]) -> set[str]:
    """Return those of the parts that an upload names."""
    return set(connection.execute(select(upload_parts.c.id).where(upload_parts.c.id.in_(part_ids))).scalars())


def _insert_part(connection: Connection, upload: Upload, part_id: str, stored: Stored) -> Part:
    """Insert the row of a part while its upload is held, so that it is pending and not overfull."""
    held = connection.execute(
        select(uploads.c.state, uploads.c.expires_at < now_s()).where(uploads.c.id == upload.id).with_for_update()
    ).first()
    if held is None or held[0] != PENDING or held[1]:
        raise WrongState(f"The upload {upload.id} is over", hint="Begin another.")
    number, total = connection.execute(
        select(func.count(), func.coalesce(func.sum(upload_parts.c.size_bytes), 0)).where(
            upload_parts.c.upload_id == upload.id
        )
    ).one()
    # A part whose answer was lost comes twice.
    if number >= MAX_PARTS or int(total) + stored.size_bytes > 2 * upload.size_bytes:
        raise TooLarge(
            f"The upload {upload.id} has {number} parts with {int(total)} bytes, and is to have {upload.size_bytes}",
            hint="List its parts, and complete it with those that it needs.",
        )
    statement = (
        insert(upload_parts)
        .values(
            id=part_id,
            upload_id=upload.id,
            sha256=stored.sha256,
            size_bytes=stored.size_bytes,
            created_at=now_s(),
        )
        .returning(*upload_parts.c)
    )
    return Part(**connection.execute(statement).mappings().one())


def _chosen(parts: Sequence[Part], part_ids: Sequence[str], upload: Upload) -> list[Part]:
    """Return the parts that make the whole, in its order.

    Raises:
        BadOption: one is unknown or named twice, or they have more or fewer bytes than was said.
    """
    by_id = {part.id: part for part in parts}
    for part_id in part_ids:
        if part_id not in by_id:
            raise BadOption(f"The upload {upload.id} has no part {part_id!r}", param="part_ids")
    if len(set(part_ids)) < len(part_ids):
        raise BadOption("A part is named twice", param="part_ids")
    chosen = [by_id[part_id] for part_id in part_ids]
    total = sum(part.size_bytes for part in chosen)
    if total != upload.size_bytes:
        raise BadOption(
            f"The parts have {total} bytes, and the upload is to have {upload.size_bytes}", param="part_ids"
        )
    return chosen


def _complete(connection: Connection, upload: Upload, stored: Stored) -> File | None:
    """Make the file of a pending upload; None where somebody else has ended it."""
    held = connection.execute(select(uploads.c.state).where(uploads.c.id == upload.id).with_for_update()).scalar_one()
    if held != PENDING:
        return None
    made = insert_file(connection, upload.tenant, stored, NewFile(upload.name, upload.purpose, upload.media_type))
    connection.execute(update(uploads).where(uploads.c.id == upload.id).values(state=COMPLETED, file_id=made.id))
    return made


def _remove_parts(database: Database, blobs: BlobStore, upload_ids: Sequence[str]) -> None:
    """Remove the parts of ended uploads: rows first, so that bytes without a row are what a crash leaves."""
    statement = delete(upload_parts).where(upload_parts.c.upload_id.in_(upload_ids)).returning(upload_parts.c.id)
    for part_id in database.run(lambda connection: list(connection.execute(statement).scalars())):
        blobs.remove_part(part_id)


def _demand_pending(upload: Upload) -> None:
    """Do nothing where an upload takes parts.

    Raises:
        WrongState: it has ended.
    """
    if upload.state != PENDING:
        raise WrongState(f"The upload {upload.id} is {upload.state}", hint="Begin another.")


def _own_file(tenant: str, file_id: str) -> Any:
    """Return the query for a file of a tenant whose time is not over."""
    return select(*files.c).where(files.c.tenant == tenant, files.c.id == file_id, _is_current())


def _is_current() -> Any:
    """Return the condition that the time of a file is not over."""
    return or_(files.c.expires_at.is_(None), files.c.expires_at > now_s())


def _paged(query: Any, table: Table, after: str, limit: int, newest_first: bool) -> Any:
    """Return a query for the rows after an id, in its order."""
    if after:
        query = query.where(table.c.id < after if newest_first else table.c.id > after)
    return query.order_by(table.c.id.desc() if newest_first else table.c.id).limit(limit)


def _demand_file(row: RowMapping | None, file_id: str) -> File:
    """Return the file of a row.

    Raises:
        NoSuchRecord: there is none.
    """
    if row is None:
        raise NoSuchRecord(f"There is no file {file_id!r}")
    return File(**row)


def _seen(connection: Connection, tenant: str, upload_id: str) -> Upload:
    """Return an upload as it is now.

    Raises:
        NoSuchRecord: the tenant has none of this id.
    """
    is_late = (uploads.c.expires_at < now_s()).label("is_late")
    query = select(*uploads.c, is_late).where(uploads.c.tenant == tenant, uploads.c.id == upload_id)
    row = connection.execute(query).mappings().first()
    if row is None:
        raise NoSuchRecord(f"There is no upload {upload_id!r}")
    values = dict(row)
    if values.pop("is_late") and values["state"] == PENDING:
        values["state"] = EXPIRED
    return Upload(**values)
