"""What event streams say: first how things are, then what happens, and how it ends."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request
from sqlalchemy import Connection
from starlette.responses import JSONResponse, Response

from voicejobs import control, records
from voicejobs.api.access import Caller, is_admitted_still
from voicejobs.api.answers import wire
from voicejobs.api.changes import Changes, Dropped, Listener
from voicejobs.api.context import Context
from voicejobs.api.sse import KEEP_ALIVE, KEEP_ALIVE_S, EventStream, Streams, frame, retry_frame
from voicejobs.errors import DatabaseUnavailable, Expired, NoSuchRecord
from voicejobs.store import events, idempotency
from voicejobs.store.database import Database
from voicejobs.store.events import Cursor, Event, Scope
from voicejobs.store.states import FINAL_JOB, LIVE_JOB, BatchState

logger = logging.getLogger(__name__)

LAST_EVENT_ID: Final = "last-event-id"
PROGRESS_S: Final = 1.0
"""How often a stream looks how far its job or batch is, and whether its reader may still read."""
MOST_LISTED: Final = 1_000
LIVE_BATCH: Final = (BatchState.IN_PROGRESS, BatchState.CANCELLING)
OPEN_NAME: Final = "open"
TIDY_S: Final = 3600.0
"""How often events and answers go that nobody can ask for any more."""
LOOKS_AFTER_END: Final = 20
LOOK_AGAIN_S: Final = 0.1

Snapshot = Callable[[Connection], dict[str, Any]]


@asynccontextmanager
async def follow_changes(context: Context) -> AsyncIterator[None]:
    """Let the routes of an app hear of changes, until it begins to stop."""
    changes = Changes(context.database, context.run)
    context.changes = changes

    async def stop() -> None:
        await context.stopping.wait()
        await changes.close()

    async def tidy() -> None:
        while True:
            with suppress(DatabaseUnavailable):
                if await context.run(context.database.run, events.adopt):
                    logger.info("events of another server were taken over: the database was restored from a dump")
            await asyncio.sleep(TIDY_S)
            with suppress(DatabaseUnavailable):
                await context.run(context.database.run, events.forget)
                await context.run(context.database.run, idempotency.forget)

    tasks = [asyncio.create_task(stop(), name="changes-stop"), asyncio.create_task(tidy(), name="changes-tidy")]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await changes.close()


@dataclass(frozen=True, slots=True)
class Topic:
    """Say what is followed.

    Args:
        scope: which events.
        snapshot: how it is now; None for what has no state of its own.
        movement: the part of that which moves; None for the whole of it.
        ended: tells by the snapshot whether nothing more will come.
    """

    scope: Scope
    snapshot: Snapshot | None = None
    movement: Snapshot | None = None
    ended: Callable[[dict[str, Any]], bool] = lambda _: False


def job_topic(tenant: str, job_id: str) -> Topic:
    """Return a job as a topic."""
    return Topic(
        Scope(tenant, job_id=job_id),
        lambda connection: records.job_of(connection, tenant, job_id),
        lambda connection: records.movement_of(connection, tenant, job_id),
        lambda record: record["status"] in FINAL_JOB,
    )


def batch_topic(tenant: str, batch_id: str) -> Topic:
    """Return a batch as a topic."""
    return Topic(
        Scope(tenant, batch_id=batch_id),
        lambda connection: records.batch_of(connection, tenant, batch_id),
        ended=lambda record: record["status"] not in LIVE_BATCH,
    )


def event_record(event: Event, *, in_batch: bool = False) -> dict[str, Any]:
    """Return an event as JSON, with the batch of a job where the reader follows that."""
    kind = event.type.partition(".")[0]
    data = {"id": event.job_id or event.batch_id, "object": kind, "status": event.state}
    if event.job_id and in_batch:
        data["batch_id"] = event.batch_id
    record: dict[str, Any] = wire(
        {
            "id": event.public_id,
            "object": "event",
            "type": event.type,
            "created_at": event.created_at,
            "data": data,
        }
    )
    return record


async def answer(request: Request, context: Context, caller: Caller, topic: Topic) -> Response:
    """Return a stream of events, or the events so far as JSON where the request prefers that.

    Raises:
        NoSuchRecord: the tenant has nothing like that.
        BadOption: `Last-Event-ID` is no id of an event.
        Expired: what came after it is not kept any more, and there is no snapshot to begin with.
        RateLimited: the key has too many streams.
    """
    last = request.headers.get(LAST_EVENT_ID) or request.query_params.get("after")
    place = await context.run(_place, context.database, topic, last)
    if not wants_stream(request.headers.get("accept", "")):
        body = await context.run(_listed, context.database, topic, place or Cursor())
        return JSONResponse(body, headers={"Cache-Control": "no-store", "Vary": "Accept"})
    streams, name = _streams(request), caller.key_id or OPEN_NAME
    streams.enter(name, int(caller.limits.get("streams", context.settings.api_streams)))
    frames = _while_admitted(context, caller, follow(context, topic, place, resumed=last is not None))
    return EventStream(frames, streams, name, {"Vary": "Accept"})


async def _while_admitted(
    context: Context, caller: Caller, frames: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """Pass on frames, empty ones left out, until the key of the reader is revoked or expires."""
    async with aclosing(frames):
        async for one in frames:
            if not await is_admitted_still(context, caller):
                return
            if one:
                yield one


def wants_stream(accept: str) -> bool:
    """Tell whether somebody wants a stream: it must be named, and JSON must not be named before it."""
    kinds = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    if "text/event-stream" not in kinds:
        return False
    return "application/json" not in kinds or kinds.index("text/event-stream") < kinds.index("application/json")


def _streams(request: Request) -> Streams:
    """Return where the streams of an app are counted."""
    found = getattr(request.app.state, "streams", None)
    if not isinstance(found, Streams):
        found = request.app.state.streams = Streams()
    return found


def _place(database: Database, topic: Topic, last: str | None) -> Cursor | None:
    """Return where a reader goes on; None where it begins.

    Raises:
        NoSuchRecord, BadOption, Expired: see `answer`.
    """
    with database.read() as connection:
        if topic.snapshot is not None:
            topic.snapshot(connection)
        if last is None:
            return None
        place = events.place_of(connection, last)
    if place is None and topic.snapshot is None:
        raise Expired(
            "The events after this id are not kept any more", hint="Read the lists, and follow without Last-Event-ID."
        )
    return place


def _listed(database: Database, topic: Topic, after: Cursor) -> dict[str, Any]:
    """Return the events so far."""
    with database.read() as connection:
        found = events.read(connection, after, topic.scope, limit=MOST_LISTED + 1)
    data = [event_record(one, in_batch=bool(topic.scope.batch_id)) for one in found[:MOST_LISTED]]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": len(found) > MOST_LISTED,
    }


async def follow(context: Context, topic: Topic, place: Cursor | None, *, resumed: bool) -> AsyncGenerator[bytes, None]:
    """Yield the frames of a stream.

    A reader that is new gets a snapshot, whose id is that of the last event that is in it, and then what follows. One
    that comes back gets what it has missed, and a snapshot without an id where that is not kept any more. While nothing
    happens an empty frame comes each second, at which a stream may be ended.
    """
    yield retry_frame()
    scope = topic.scope
    async with context.changes.listen(
        tenant=scope.tenant, job_id=scope.job_id, batch_id=scope.batch_id, after=place
    ) as listener:
        story = _Story(context, topic, listener)
        try:
            if place is None or not resumed:
                async for one in story.begin():
                    yield one
            async for event in context.changes.backlog(listener):
                yield _told(event, topic)
            async for one in story.go_on():
                yield one
        except (Dropped, NoSuchRecord):
            return  # too slow, or the service stops, or the record was deleted: whoever reads comes back and is told


class _Story:
    """Tell of one topic, once its reader knows where it is."""

    def __init__(self, context: Context, topic: Topic, listener: Listener) -> None:
        self._context = context
        self._topic = topic
        self._listener = listener
        self._shown: Any = None
        self._has_state = topic.snapshot is not None

    async def begin(self) -> AsyncIterator[bytes]:
        """Yield the snapshot with the id of the last event before it; what comes after that is told as it happens."""
        if self._topic.snapshot is None:
            return
        last = await self._context.run(_last_of, self._context.database, self._topic.scope)
        if last is not None:
            self._listener.last = last.cursor
        record = await self._record()
        yield frame("snapshot", wire(record), "" if last is None else last.public_id)

    async def go_on(self) -> AsyncIterator[bytes]:
        """Yield what happens, how far it is, and a sign of life, to the end."""
        loop = asyncio.get_running_loop()
        quiet_since = loop.time()
        record = await self._movement()
        while not (self._has_state and self._topic.ended(record)):
            event = await self._listener.next(PROGRESS_S)
            if event is not None:
                told = _told(event, self._topic)
                record = await self._movement() if _may_end(event, self._topic) else record
            else:
                record = await self._movement()
                told = await self._moved(record)
            if not told and loop.time() - quiet_since >= KEEP_ALIVE_S:
                told = KEEP_ALIVE
            if told:
                quiet_since = loop.time()
            yield told
        async for one in self._last_words(await self._record()):
            yield one

    async def _moved(self, record: dict[str, Any]) -> bytes:
        """Return the frame of how far it is; empty where nothing has moved, or there is nothing to move."""
        if not self._has_state:
            return b""
        if self._topic.scope.batch_id and not _is_busy(record):
            await self._context.run(control.settle, self._context.database)
        shown = _how_far(record)
        if shown == self._shown:
            return b""
        self._shown = shown
        return frame("progress", wire(shown))

    async def _last_words(self, record: dict[str, Any]) -> AsyncIterator[bytes]:
        """Yield what has happened and was not told yet, and that this is the end."""
        for _ in range(LOOKS_AFTER_END):
            async for event in self._context.changes.backlog(self._listener):
                yield _told(event, self._topic)
            last = await self._context.run(_last_of, self._context.database, self._topic.scope)
            if last is None or (_may_end(last, self._topic) and last.state == record["status"]):
                break
            await asyncio.sleep(LOOK_AGAIN_S)  # an older transaction still holds the last event back
        yield frame("end", wire(record))

    async def _record(self) -> dict[str, Any]:
        """Return how the topic is now.

        Raises:
            NoSuchRecord: it was deleted.
        """
        return await self._context.run(_look, self._context.database, self._topic.snapshot)

    async def _movement(self) -> dict[str, Any]:
        """Return what moves of the topic.

        Raises:
            NoSuchRecord: it was deleted.
        """
        look = self._topic.movement or self._topic.snapshot
        return await self._context.run(_look, self._context.database, look)


def _told(event: Event, topic: Topic) -> bytes:
    """Return the frame of an event."""
    return frame(event.type, event_record(event, in_batch=bool(topic.scope.batch_id)), event.public_id)


def _look(database: Database, look: Snapshot | None) -> dict[str, Any]:
    """Return what a look tells; nothing for what has no state."""
    if look is None:
        return {}
    with database.read() as connection:
        return look(connection)


def _last_of(database: Database, scope: Scope) -> Event | None:
    """Return the last event of a scope."""
    with database.read() as connection:
        found = events.newest_of(connection, scope, limit=1)
    return found[0] if found else None


def _may_end(event: Event, topic: Topic) -> bool:
    """Tell whether after this event a topic may have ended."""
    kind = event.type.partition(".")[0]
    return topic.snapshot is not None and kind == ("job" if topic.scope.job_id else "batch")


def _is_busy(record: dict[str, Any]) -> bool:
    """Tell whether a batch has jobs that have not ended."""
    return any(record["request_counts"].get(state.value) for state in LIVE_JOB)


def _how_far(record: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a record that moves."""
    names = ("id", "object", "status", "stage", "progress", "attempt", "request_counts", "audio_s")
    return {name: record[name] for name in names if name in record}
