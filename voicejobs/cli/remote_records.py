"""`voicejobs batch` and `voicejobs job` at a service: its records as people read them, and what is asked of it."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from voicejobs.cli.globals import current
from voicejobs.cli.main import EXIT_REJECTED, complain
from voicejobs.cli.remote import audio_s, counts_of, name_of, records, seconds_of
from voicejobs.cli.remote_follow import RemoteFollowing
from voicejobs.cli.show import counts, duration, print_json, print_table, when
from voicejobs.client.service import Service, segment
from voicejobs.errors import AccessDenied, BadOption, Transient, VoicejobsError
from voicejobs.settings import Settings
from voicejobs.store.paths import display_name

EXIT_SOME_FAILED = 3


def list_batches(settings: Settings, *, state: str | None, after: str | None, limit: int, as_json: bool) -> None:
    """List the batches of the service, newest first."""
    with Service(settings) as service:
        found = records(service, "/api/v1/batches", limit, status=state, after=after)
    if as_json:
        print_json("batches", found)
        return
    rows = [(one["id"], one["status"], _when(one["created_at"]), counts(counts_of(one)), one["label"]) for one in found]
    print_table(("BATCH", "STATE", "CREATED", "JOBS", "LABEL"), rows)
    _tell_more(found, limit)


def show_batch(settings: Settings, batch_id: str, *, as_json: bool) -> None:
    """Show how a batch stands, and which of its jobs failed and why."""
    with Service(settings) as service:
        found = service.get(f"/api/v1/batches/{segment(batch_id)}")
        failed = records(service, "/api/v1/jobs", 1000, batch_id=batch_id, status="failed")
    if as_json:
        print_json("batch", {**found, "failures": failed})
        return
    click.echo(f"{found['id']}  {found['status']}  {display_name(found['label'])}")
    click.echo(f"  created   {_when(found['created_at'])}   finished {_when(found['finished_at'])}")
    click.echo(f"  jobs      {counts(counts_of(found))}")
    click.echo(f"  audio     {duration(found['audio_s'])} done")
    for job in failed:
        click.echo(f"  failed    {display_name(name_of(job))}: {_error(job)}")


def cancel_batch(settings: Settings, batch_id: str, *, as_json: bool) -> None:
    """Cancel what a batch has not finished."""
    with Service(settings) as service:
        found = service.post(f"/api/v1/batches/{segment(batch_id)}/cancel")
    if as_json:
        print_json("cancelled", found)
    elif not current().quiet:
        click.echo(f"{found['status']}: {counts(counts_of(found))}")


def retry_batch(settings: Settings, batch_id: str, *, wait: bool, as_json: bool) -> int:
    """Take the failed jobs of a batch up again, and follow it if that is asked."""
    with Service(settings) as service:
        found = service.post(f"/api/v1/batches/{segment(batch_id)}/retry-failed")
        if wait:
            return RemoteFollowing(service, as_json, settings.server_wait_s).batches([batch_id])
    if as_json:
        print_json("queued", found)
    elif not current().quiet:
        click.echo("Taken up again: `voicejobs batch watch` follows them.", err=True)
    return 0


def watch_batch(settings: Settings, batch_id: str, *, as_json: bool) -> int:
    """Follow a batch to its end."""
    with Service(settings) as service:
        return RemoteFollowing(service, as_json, settings.server_wait_s).batches([batch_id])


def list_jobs(settings: Settings, limit: int, *, as_json: bool, dead: bool, **filters: str | None) -> None:
    """List the jobs of the service, newest first.

    Raises:
        BadOption: a filter is one that only the database knows.
    """
    if dead or filters.get("error_code"):
        raise BadOption("--dead and --error look into the database", hint="At a service use --state failed.")
    asked = {
        "status": filters["state"], "batch_id": filters["batch_id"], "q": filters["name"], "after": filters["after"],
    }  # fmt: skip
    with Service(settings) as service:
        found = records(service, "/api/v1/jobs", limit, **asked)
    if as_json:
        print_json("jobs", found)
        return
    rows = [
        (
            one["id"],
            one["status"],
            duration(audio_s(one)),
            _when(one["created_at"]),
            (one["error"] or {}).get("code", ""),
            display_name(name_of(one)),
        )
        for one in found
    ]
    print_table(("JOB", "STATE", "AUDIO", "CREATED", "ERROR", "FILE"), rows)
    _tell_more(found, limit)


def show_job(settings: Settings, job_id: str, *, as_json: bool) -> None:
    """Show what the service tells of a job, with the attempts at its steps."""
    with Service(settings) as service:
        job = service.get(f"/api/v1/jobs/{segment(job_id)}")
        attempts = service.get(f"/api/v1/jobs/{segment(job_id)}/attempts")["data"]
    if as_json:
        print_json("job", {**job, "attempts": attempts})
        return
    click.echo(f"{job['id']}  {job['status']}  {display_name(name_of(job))}")
    click.echo(
        f"  pipeline  {job['pipeline']}, {job['engine']} {job['model']}, audio {duration(audio_s(job))}".rstrip()
    )
    click.echo(f"  batch     {job['batch_id'] or '-'}   trace {job['trace_id']}")
    click.echo(
        f"  created   {_when(job['created_at'])}   started {_when(job['started_at'])}"
        f"   finished {_when(job['finished_at'])}"
    )
    if job["error"]:
        click.echo(f"  error     {_error(job)}")
    for one in attempts:
        error = f"  {one['error']['detail']} [{one['error']['code']}]" if one["error"] else ""
        shard = f" #{one['shard']}" if one["shard"] else ""
        click.echo(f"  attempt {one['attempt']} at {one['node']}{shard}  {one['outcome']}{display_name(error)}")
    for artifact in job["artifacts"]:
        click.echo(f"  artifact  {artifact['id']}  {artifact['kind']}  {display_name(artifact['filename'])}")


def watch_jobs(settings: Settings, job_ids: Sequence[str], *, as_json: bool) -> int:
    """Follow jobs to their end."""
    with Service(settings) as service:
        return RemoteFollowing(service, as_json, settings.server_wait_s).jobs(job_ids)


def cancel_jobs(settings: Settings, job_ids: Sequence[str], *, as_json: bool) -> int:
    """Cancel jobs."""
    with Service(settings) as service:
        done, refused = _each(service, job_ids, "cancel")
    if as_json:
        print_json("cancelled", done)
    elif not current().quiet:
        click.echo(f"{len(done)} cancelled")
    return _code(done, refused)


def retry_jobs(settings: Settings, job_ids: Sequence[str], *, wait: bool, as_json: bool) -> int:
    """Take ended jobs up again, and follow them if that is asked."""
    with Service(settings) as service:
        done, refused = _each(service, job_ids, "retry")
        if wait and done:
            following = RemoteFollowing(service, as_json, settings.server_wait_s)
            return following.jobs(done) or _code(done, refused)
    if as_json:
        print_json("queued", done)
    elif not current().quiet:
        click.echo(f"{len(done)} queued")
    return _code(done, refused)


def _each(service: Service, job_ids: Sequence[str], what: str) -> tuple[list[str], int]:
    """Ask for something to be done with each job; return the jobs with which it was, and how many were refused."""
    done, refused = [], 0
    for job_id in job_ids:
        try:
            done.append(str(service.post(f"/api/v1/jobs/{segment(job_id)}/{what}")["id"]))
        except (AccessDenied, Transient):
            raise  # the next one would end in the same way
        except VoicejobsError as error:
            complain(error, name=job_id)
            refused += 1
    return done, refused


def _code(done: Sequence[str], refused: int) -> int:
    """Return the exit code where some were refused."""
    if not refused:
        return 0
    return EXIT_SOME_FAILED if done else EXIT_REJECTED


def _when(moment: str | None) -> str:
    """Return a time of the service as local text."""
    return when(seconds_of(moment))


def _error(job: Mapping[str, Any]) -> str:
    """Return what a job died of."""
    return display_name(f"{job['error']['detail']} [{job['error']['code']}]")


def _tell_more(found: Sequence[Mapping[str, Any]], limit: int) -> None:
    """Say where a list goes on."""
    if len(found) == limit and not current().quiet:
        click.echo(f"More: --after {found[-1]['id']}", err=True)
