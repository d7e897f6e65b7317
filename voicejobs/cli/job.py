"""`voicejobs job`: list jobs, and show the story of one."""

from typing import Any

import click

from voicejobs import queries
from voicejobs.cli.show import duration, print_json, print_table, when
from voicejobs.cli.store import opened
from voicejobs.settings import Settings
from voicejobs.store.paths import decode_path, display_name
from voicejobs.store.states import JobState


@click.group()
def job() -> None:
    """List jobs, and show the story of one."""


@job.command("list")
@click.option("--state", type=click.Choice([state.value for state in JobState]), help="Only jobs in this state.")
@click.option("--batch", "batch_id", help="Only jobs of this batch.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000), help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_jobs(state: str | None, batch_id: str | None, limit: int, as_json: bool) -> None:
    """List jobs, newest first."""
    with opened(Settings.from_env()) as database:
        found = queries.list_jobs(database, state=state, batch_id=batch_id, limit=limit)
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


@job.command("show")
@click.argument("job_id", metavar="JOB")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show_job(job_id: str, as_json: bool) -> None:
    """Show everything about a job: steps, workers, attempts, times, errors and artifacts."""
    with opened(Settings.from_env()) as database:
        story = queries.show_job(database, job_id)
    if as_json:
        print_json("job", story)
    else:
        _print_story(story)


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
        click.echo(f"  output    {output['format']}  {display_name(decode_path(output))}  {output['size']} bytes")


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
