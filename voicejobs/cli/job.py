"""`voicejobs job`: list, show, watch, cancel and retry jobs, and read their logs."""

from typing import Any

import click

from voicejobs import control, queries
from voicejobs.cli import remote_records
from voicejobs.cli.completers import complete_batches, complete_jobs
from voicejobs.cli.follow import Following
from voicejobs.cli.globals import current, current_settings
from voicejobs.cli.job_logs import as_text, lines_of
from voicejobs.cli.main import complain
from voicejobs.cli.remote import remote_settings, server_option
from voicejobs.cli.show import duration, print_json, print_table, when
from voicejobs.cli.spelling import Group
from voicejobs.cli.store import opened
from voicejobs.errors import BadOption
from voicejobs.store.database import Database
from voicejobs.store.paths import decode_path, display_name
from voicejobs.store.states import JobState

EXIT_SOME_FAILED = 3
EXIT_REJECTED = 7


@click.group(
    cls=Group,
    help=(
        "List, show, watch, cancel and retry jobs.\n\n\b\nExamples:\n  voicejobs job list --state failed\n"
        "  voicejobs job show JOB\n  voicejobs job retry JOB --wait"
    ),
)
def job() -> None:
    """Jobs: one input file each."""


@job.command("list")
@click.option("--state", type=click.Choice([state.value for state in JobState]), help="Only jobs in this state.")
@click.option("--batch", "batch_id", shell_complete=complete_batches, help="Only jobs of this batch.")
@click.option("--name", help="Only jobs whose file name holds this text.")
@click.option("--error", "error_code", metavar="CODE", help="Only jobs that ended with this error code.")
@click.option("--dead", is_flag=True, help="Only dead letters: given up after all their attempts, or as poison.")
@click.option("--after", metavar="JOB", help="Go on after this job, the last one of a page.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000), help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@server_option
def list_jobs(
    state: str | None, batch_id: str | None, dead: bool, limit: int, as_json: bool, **filters: str | None
) -> None:
    """List jobs, newest first."""
    if (remote := remote_settings(current_settings(), filters.pop("server"))) is not None:
        filters |= {"state": state, "batch_id": batch_id}
        remote_records.list_jobs(remote, limit, as_json=as_json, dead=dead, **filters)
        return
    if dead and state not in {None, JobState.FAILED}:
        raise BadOption(f"--dead shows failed jobs, and --state {state} others", hint="Leave one of them out.")
    matches = {name: text for name in ("name", "error_code") if (text := filters[name])}
    with opened(current_settings()) as database:
        found = queries.list_jobs(
            database,
            state=queries.DEAD if dead else state,
            batch_id=batch_id,
            matches=matches,
            after=filters["after"] or "",
            limit=limit,
        )
    if as_json:
        print_json("jobs", found)
        return
    rows = [
        (
            one["id"],
            one["state"],
            duration(one["audio_s"]),
            when(one["created_at"]),
            one["error_code"] or "",
            one["name"],
        )
        for one in found
    ]
    print_table(("JOB", "STATE", "AUDIO", "CREATED", "ERROR", "FILE"), rows)
    if len(found) == limit and not current().quiet:
        click.echo(f"More: --after {found[-1]['id']}", err=True)


@job.command("show")
@click.argument("job_id", metavar="JOB", shell_complete=complete_jobs)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@server_option
def show_job(job_id: str, as_json: bool, server: str | None) -> None:
    """Show the whole story of a job.

    Its steps, their workers, attempts, times, errors and artifacts.
    """
    if (remote := remote_settings(current_settings(), server)) is not None:
        remote_records.show_job(remote, job_id, as_json=as_json)
        return
    with opened(current_settings()) as database:
        story = queries.show_job(database, job_id)
    if as_json:
        print_json("job", story)
    else:
        _print_story(story)


@job.command("watch")
@click.argument("job_ids", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_jobs)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@server_option
def watch_jobs(job_ids: tuple[str, ...], as_json: bool, server: str | None) -> int:
    """Follow jobs to their end.

    Workers are started where none run; Ctrl-C leaves the jobs alone.
    Exits like `transcribe`: 0 where all succeeded, 3 where some failed, 8 where all did.
    """
    if (remote := remote_settings(current_settings(), server)) is not None:
        return remote_records.watch_jobs(remote, job_ids, as_json=as_json)
    with opened(current_settings()) as database:
        return _watch(database, job_ids, as_json=as_json)


@job.command("cancel")
@click.argument("job_ids", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_jobs)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@server_option
def cancel_jobs(job_ids: tuple[str, ...], as_json: bool, server: str | None) -> int:
    """Cancel jobs.

    Those that wait end at once, those that run as soon as their worker notices.
    """
    if (remote := remote_settings(current_settings(), server)) is not None:
        return remote_records.cancel_jobs(remote, job_ids, as_json=as_json)
    with opened(current_settings()) as database:
        touched = control.cancel_jobs(database, job_ids)
    if as_json:
        print_json("cancelled", touched)
    elif not current().quiet:
        click.echo(f"{len(touched)} cancelled")
    return 0


@job.command("retry")
@click.argument("job_ids", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_jobs)
@click.option("--wait", is_flag=True, help="Start workers where none run, and follow the jobs to their end.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document; with --wait, one object a line.")
@server_option
def retry_jobs(job_ids: tuple[str, ...], wait: bool, as_json: bool, server: str | None) -> int:
    """Take ended jobs up again.

    Those that failed, were cancelled or expired; what has run stays where it can serve again.
    """
    if (remote := remote_settings(current_settings(), server)) is not None:
        return remote_records.retry_jobs(remote, job_ids, wait=wait, as_json=as_json)
    with opened(current_settings()) as database:
        outcome = control.retry_jobs(database, job_ids)
        return after_retry(database, outcome, wait=wait, as_json=as_json)


@job.command("logs")
@click.argument("job_id", metavar="JOB", shell_complete=complete_jobs)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show_logs(job_id: str, as_json: bool) -> None:
    """Print what log files say of a job."""
    settings = current_settings()
    with opened(settings) as database:
        queries.batches_of(database, [job_id])
    found = lines_of(settings.logs_dir, job_id)
    if as_json:
        print_json("logs", found)
        return
    for line in found:
        click.echo("\n".join(display_name(part) for part in as_text(line).split("\n")))
    if not found and not current().quiet:
        click.echo(f"No log file in {settings.logs_dir} has a line about {job_id}.", err=True)
        click.echo(f"  `voicejobs job show {job_id}` tells what the database knows of it.", err=True)


def after_retry(database: Database, outcome: control.Retried, *, wait: bool, as_json: bool) -> int:
    """Say what was taken up again, follow it if that was asked, and return the exit code."""
    for job_id, error in outcome.refused.items():
        complain(error, name=job_id)
    code = 0
    if outcome.refused:
        code = EXIT_SOME_FAILED if outcome.queued else EXIT_REJECTED
    if wait and outcome.queued:
        return _watch(database, outcome.queued, as_json=as_json) or code
    if as_json and not wait:
        print_json("queued", outcome.queued)
    elif not as_json and not current().quiet:
        click.echo(f"{len(outcome.queued)} queued")
        if outcome.queued:
            click.echo("The next worker, or the next `voicejobs transcribe`, runs them; --wait does it now.", err=True)
    return code


def _watch(database: Database, job_ids: tuple[str, ...] | list[str], *, as_json: bool) -> int:
    """Follow jobs to their end."""
    batch_ids = sorted(set(queries.batches_of(database, job_ids).values()))
    name = f"job show {job_ids[0]}" if len(job_ids) == 1 else f"batch show {batch_ids[0]}"
    return Following(current_settings(), database, batch_ids, frozenset(job_ids), as_json).run(name)


def _print_story(story: dict[str, Any]) -> None:
    """Print the story for people."""
    click.echo(f"{story['id']}  {story['state']}  {story['source_name']}")
    click.echo(f"  source    {story['source']}")
    click.echo(f"  pipeline  {story['pipeline']} {story['pipeline_version']}, audio {duration(story['audio_s'])}")
    click.echo(f"  batch     {story['batch_id']}   trace {story['trace_id']}")
    click.echo(
        f"  created   {when(story['created_at'])}   started {when(story['started_at'])}"
        f"   finished {when(story['finished_at'])}"
    )
    if story["error"]:
        click.echo(f"  error     {story['error']['message']} [{story['error']['code']}]")
        click.echo(f"            {story['error']['hint']}")
    for step in story["steps"]:
        _print_step(step)
    for output in story["outputs"]:
        place = output["artifact"] if "artifact" in output else display_name(decode_path(output))
        click.echo(f"  output    {output['format']}  {place}  {output['size']} bytes")


def _print_step(step: dict[str, Any]) -> None:
    """Print one step run with its attempts and artifacts."""
    shard = f" #{step['shard']}" if step["shard"] else ""
    click.echo(
        f"  step      {step['node']}{shard}  {step['state']}  on {step['worker'] or '-'} ({step['device'] or '-'})"
    )
    for attempt in step["attempts"]:
        seconds = attempt["finished_at"] - attempt["started_at"] if attempt["started_at"] else 0.0
        reason = f"  {attempt['message']} [{attempt['error_code']}]" if attempt["error_code"] else ""
        click.echo(
            f"    attempt {attempt['fence']}  {attempt['outcome']}  {when(attempt['started_at'])}"
            f"  {seconds:.2f} s  {attempt['worker'] or ''}{reason}"
        )
        if attempt["traceback"]:
            click.echo("      " + attempt["traceback"].strip().replace("\n", "\n      "))
    for artifact in step["artifacts"]:
        click.echo(f"    artifact {artifact['kind']}  {artifact['size_bytes']} bytes  sha256 {artifact['sha256']}")
