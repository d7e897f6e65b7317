"""Take requests in: what somebody asks for, over whichever door, becomes rows of jobs of one tenant.

A request says what it wants by name (`Wish`) and of what (`Source`). All of it is checked before anything is written,
and the error for what is wrong names the place in its detail `param`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from sqlalchemy import Connection, or_, select

from voicejobs.errors import BadOption, EmptyText, NoSuchRecord, VoicejobsError
from voicejobs.outbound.sources import path_source, shown_name, url_source
from voicejobs.pipelines.pipeline import DUB, SPEAK, Pipeline
from voicejobs.settings import Settings
from voicejobs.steps import prompt
from voicejobs.store import jobs as rows
from voicejobs.store.blobs import BlobStore
from voicejobs.store.database import Database, now_s
from voicejobs.store.files import hold_file
from voicejobs.store.schema import files, webhooks
from voicejobs.submit import Accepted, Blob, InputFile, Submission
from voicejobs.wishes import Wish, naming, options_of, recognition_options, render_options, speech_options

__all__ = [
    "Intake", "Item", "Source", "Taken", "Terms", "Wish", "check_metadata", "check_terms", "naming", "options_of",
    "recognition_options", "render_options", "speech_options", "submit_many", "submit_one",
]  # fmt: skip

MAX_ITEMS: Final = 10_000
MAX_METADATA: Final = 16
MAX_METADATA_KEY_CHARS: Final = 64
MAX_METADATA_CHARS: Final = 512
MAX_TEXT_CHARS: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class Source:
    """Say what is the input: exactly one of an uploaded file, a text, an address, a path, or a blob that is there."""

    file_id: str = ""
    text: str = ""
    url: str = ""
    path: str = ""
    blob: Blob | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Item:
    """Ask for one job; `request` (JSON) is kept with it, beside what is known anyway."""

    wish: Wish
    source: Source
    request: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Terms:
    """Say how jobs are to be done; see `Submission` for what is not explained here.

    Args:
        lane: `bulk` or `interactive`.
        priority: order in the lane; less is sooner.
        expires_after_s: time within which each job must be done; None for any.
        force: do again what has been done for the same input.
        label: how people know the batch.
        metadata: what the caller wants to find again: short texts by name.
        webhook_ids: who is told of the end; empty for all webhooks that want such events.
    """

    lane: Literal["bulk", "interactive"] = "bulk"
    priority: int = rows.DEFAULT_PRIORITY
    expires_after_s: float | None = None
    force: bool = False
    label: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    webhook_ids: Sequence[str] = ()


Limit = Callable[[Connection, str, int], None]
"""Called in the transaction with a tenant and how many jobs it has just got; raises where these are too many."""


@dataclass(frozen=True, slots=True)
class Intake:
    """Hold where requests of one tenant go.

    Args:
        settings: limits, and where models live.
        database: the store.
        blobs: where texts and sound lie.
        tenant: whose jobs they become.
        trace_id: what all logs of the jobs name; empty for the id of each job.
        limit: the quota of the tenant.
    """

    settings: Settings
    database: Database
    blobs: BlobStore
    tenant: str = rows.DEFAULT_TENANT
    trace_id: str = ""
    limit: Limit | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """Tell which rows a request became: ids of the jobs in the order of the items, and that of their batch."""

    batch_id: str
    job_ids: Sequence[str]


Within = Callable[[Connection, Taken], None]
"""Runs in the transaction that inserts the jobs, before it commits."""


def submit_one(intake: Intake, item: Item, terms: Terms | None = None, *, within: Within | None = None) -> Taken:
    """Make a job of its own of one request.

    Raises:
        BadOption, UnknownPipeline, UnknownEngine, UnknownModel, EmptyText, NoSuchRecord, QueueFull: as their names say.
    """
    return _submit(intake, [item], terms or Terms(), kind="single", within=within)


def submit_many(
    intake: Intake,
    items: Sequence[Item],
    terms: Terms | None = None,
    *,
    request: Mapping[str, Any] | None = None,
    within: Within | None = None,
) -> Taken:
    """Make a batch of requests, all or none of them; they must want the same pipeline.

    Args:
        intake: where they go.
        items: the requests.
        terms: how the jobs are to be done.
        request: JSON that is kept with the batch.
        within: runs in the same transaction.

    Raises:
        BadOption, UnknownPipeline, UnknownEngine, UnknownModel, EmptyText, NoSuchRecord, QueueFull: as their names say.
    """
    if not items:
        raise BadOption("A batch needs at least one item", param="items")
    if len(items) > MAX_ITEMS:
        raise BadOption(f"A batch takes {MAX_ITEMS} items at most, not {len(items)}", param="items")
    return _submit(intake, items, terms or Terms(), kind="batch", request=request, within=within)


def _submit(
    intake: Intake,
    items: Sequence[Item],
    terms: Terms,
    *,
    kind: Literal["batch", "single"],
    request: Mapping[str, Any] | None = None,
    within: Within | None = None,
) -> Taken:
    """Check everything, then insert batch, jobs and what `within` adds in one transaction."""
    check_terms(intake, terms)
    graph, prepared = _prepared(intake, items, terms, is_batch=kind == "batch")
    submission = Submission(
        intake.database,
        graph,
        prepared[0][1],
        label=terms.label or prepared[0][0].name,
        lane=terms.lane,
        force=terms.force,
        max_queued_jobs=intake.settings.max_queued_jobs,
        expires_after_s=terms.expires_after_s,
        blobs=intake.blobs,
        tenant=intake.tenant,
        alone=True,
        kind=kind,
        watched=True,
        request={**_kept(terms), **(request or {})},
        trace_id=intake.trace_id,
        priority=terms.priority,
    )

    def finish(connection: Connection, accepted: Sequence[Accepted]) -> None:
        """Seal the batch where it is made: no crash can leave one that waits for jobs that never come."""
        _hold_files(connection, intake.tenant, items)
        rows.seal_batch(connection, submission.batch_id)
        if intake.limit is not None:
            intake.limit(connection, intake.tenant, len(accepted))
        if within is not None:
            within(connection, Taken(submission.batch_id, [one.job_id for one in accepted]))

    accepted = submission.add([file for file, _ in prepared], within=finish)
    return Taken(submission.batch_id, [one.job_id for one in accepted])


def _hold_files(connection: Connection, tenant: str, items: Sequence[Item]) -> None:
    """Keep the files of a submission from being deleted before it is there.

    Raises:
        NoSuchRecord: one was deleted since we looked.
    """
    named = {item.source.file_id for item in items} | {_prompt_file(item.wish) for item in items}
    for file_id in sorted(named - {""}):
        hold_file(connection, tenant, file_id)


def _prompt_file(wish: Wish) -> str:
    """Return the id of the file with the voice to speak with; empty for none. All of it was checked before."""
    return str({**wish.options, **wish.options.get(prompt.NODE, {})}.get("prompt_file_id", ""))


def _prepared(
    intake: Intake, items: Sequence[Item], terms: Terms, *, is_batch: bool
) -> tuple[Pipeline, list[tuple[InputFile, Mapping[str, Mapping[str, Any]]]]]:
    """Return the pipeline of all items, and for each its input and the full options of all nodes."""
    known: dict[str, tuple[Pipeline, Mapping[str, Mapping[str, Any]]]] = {}
    found: list[tuple[InputFile, Mapping[str, Mapping[str, Any]]]] = []
    sources = _file_rows(intake, [item.source.file_id for item in items])
    graph: Pipeline | None = None
    for number, item in enumerate(items):
        prefix = f"items[{number}]." if is_batch else ""
        with _below(prefix):
            check_metadata(item.request.get("metadata", {}))
            key = json.dumps([item.wish.pipeline, item.wish.task, item.wish.engine, item.wish.model,
                              item.wish.options, list(item.wish.formats)], sort_keys=True)  # fmt: skip
            if key not in known:
                check_text(item.wish.options, "options")
                known[key] = _with_prompt(intake, *options_of(intake.settings, item.wish))
            wanted, options = known[key]
            if graph is not None and wanted is not graph:
                raise BadOption(
                    f"The items of a batch go through one pipeline, and this one wants {wanted.name}", param="pipeline"
                )
            graph = wanted
            path = f"{item.source.file_id or 'input'}/{number}"
            place = _Place(path, _job_request(item, terms), options, sources)
            found.append((_input(intake, wanted, item.source, place), options))
    if graph is None:
        raise BadOption("There is nothing to submit", param="items")
    return graph, found


def _with_prompt(
    intake: Intake, graph: Pipeline, options: dict[str, dict[str, Any]]
) -> tuple[Pipeline, Mapping[str, Mapping[str, Any]]]:
    """Return the options with the blob of the recording where they name an uploaded file.

    Raises:
        NoSuchRecord: the tenant has no such file.
    """
    file_id = prompt.file_of(options)
    if not file_id:
        return graph, options
    row = _file_rows(intake, [file_id]).get(file_id)
    if row is None:
        raise NoSuchRecord(f"There is no file {file_id!r}", hint="Upload it first.", param="options.prompt_file_id")
    return graph, {**options, prompt.NODE: {**options[prompt.NODE], "prompt_audio": prompt.named(row.sha256)}}


@dataclass(frozen=True, slots=True)
class _Place:
    """Hold what an input of a submission needs beside its source."""

    path: str
    request: Mapping[str, Any]
    options: Mapping[str, Mapping[str, Any]]
    files: Mapping[str, Any]


def _job_request(item: Item, terms: Terms) -> dict[str, Any]:
    """Return what is kept with a job."""
    kept = {**_kept(terms), **item.request}
    return {**kept, **({"output_formats": list(item.wish.formats)} if item.wish.formats else {})}


def _kept(terms: Terms) -> dict[str, Any]:
    """Return what is kept of the terms that no column has."""
    return {
        **({"metadata": dict(terms.metadata)} if terms.metadata else {}),
        **({"webhook_ids": list(terms.webhook_ids)} if terms.webhook_ids else {}),
    }


def check_terms(intake: Intake, terms: Terms) -> None:
    """Refuse terms that cannot hold.

    Raises:
        BadOption, NoSuchRecord: see the messages.
    """
    check_metadata(terms.metadata)
    check_text(list(terms.webhook_ids), "webhook_ids")
    if terms.expires_after_s is not None and not terms.expires_after_s > 0:
        raise BadOption("expires_after must be a number of seconds above 0", param="expires_after")
    if not terms.webhook_ids:
        return
    wanted = set(terms.webhook_ids)
    query = select(webhooks.c.id).where(webhooks.c.id.in_(wanted), webhooks.c.tenant == intake.tenant)
    with intake.database.read() as connection:
        missing = wanted - set(connection.execute(query).scalars())
    if missing:
        raise NoSuchRecord(f"There is no webhook {min(missing)!r}", param="webhook_ids")


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Refuse metadata that is not a few short texts by name, as OpenAI's.

    Raises:
        BadOption: see there.
    """
    if len(metadata) > MAX_METADATA:
        raise BadOption(f"metadata takes {MAX_METADATA} names at most", param="metadata")
    for name, text in metadata.items():
        if len(name) > MAX_METADATA_KEY_CHARS or len(text) > MAX_METADATA_CHARS:
            raise BadOption(
                f"metadata takes names of {MAX_METADATA_KEY_CHARS} characters and texts of {MAX_METADATA_CHARS}",
                param="metadata",
            )
    check_text(metadata, "metadata")


def check_text(value: Any, param: str) -> None:
    """Refuse JSON with half a character in it: it can be kept, and no answer that holds it could be written.

    Raises:
        BadOption: see there.
    """
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadOption(f"{param} holds a surrogate alone, which is no character", param=param) from None


def _file_rows(intake: Intake, ids: Sequence[str]) -> dict[str, Any]:
    """Return the uploaded files of the tenant with these ids, by id."""
    wanted = sorted({one for one in ids if one})
    found: dict[str, Any] = {}
    with intake.database.read() as connection:
        for first in range(0, len(wanted), 500):
            query = select(files).where(
                files.c.id.in_(wanted[first : first + 500]),
                files.c.tenant == intake.tenant,
                or_(files.c.expires_at.is_(None), files.c.expires_at > now_s()),
            )
            found |= {row.id: row for row in connection.execute(query)}
    return found


def _input(intake: Intake, graph: Pipeline, source: Source, place: _Place) -> InputFile:
    """Return the input of a job.

    Raises:
        BadOption, EmptyText, NoSuchRecord, AddressRefused: it names none or several, or one that is not there or not
            allowed.
    """
    given = [name for name in ("file_id", "text", "url", "path", "blob") if getattr(source, name)]
    if len(given) != 1:
        if source == Source(name=source.name) and graph in {SPEAK, DUB}:
            raise EmptyText("There is no text to speak", param="source.text")
        raise BadOption("source must have one of file_id, text, url and path", param="source")
    common: dict[str, Any] = {"path": place.path, "options": place.options, "request": place.request}
    if source.text:
        return InputFile(name=source.name or "text", text=_text(graph, source.text), **common)
    if source.file_id:
        row = place.files.get(source.file_id)
        if row is None:
            raise NoSuchRecord(f"There is no file {source.file_id!r}", hint="Upload it first.", param="source.file_id")
        return InputFile(name=source.name or row.name, blob=Blob(row.sha256, row.size_bytes), **common)
    if source.blob is not None:
        return InputFile(name=source.name or "input", blob=source.blob, **common)
    with naming(f"source.{given[0]}"):
        far = url_source(intake.settings, source.url) if source.url else path_source(intake.settings, source.path)
    return InputFile(name=source.name or shown_name(far), elsewhere=far, **common)


def _text(graph: Pipeline, text: str) -> str:
    """Return the text of a source.

    Raises:
        BadOption: the pipeline takes recordings, or the text is too long.
        EmptyText: it has nothing but blanks.
    """
    if graph not in {SPEAK, DUB}:
        raise BadOption(f"The pipeline {graph.name!r} takes a recording, not a text", param="source.text")
    if len(text) > MAX_TEXT_CHARS:
        raise BadOption(f"source.text takes {MAX_TEXT_CHARS} characters at most", param="source.text")
    if not text.strip():
        raise EmptyText("There is nothing in the text that can be said", param="source.text")
    return text


@contextmanager
def _below(prefix: str) -> Iterator[None]:
    """Put the place of an item before the parameter that an error names."""
    try:
        yield
    except VoicejobsError as error:
        if prefix and "param" in error.details:
            error.details["param"] = prefix + error.details["param"]
        raise
