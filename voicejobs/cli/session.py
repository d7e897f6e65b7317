"""One run of a command over many inputs, from its arguments to its exit code."""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from voicejobs import __version__, queries
from voicejobs.cli.archive import Archive
from voicejobs.cli.broker import require_answer
from voicejobs.cli.errand import Desk, Errand
from voicejobs.cli.events import Events, SummaryFile
from voicejobs.cli.globals import current
from voicejobs.cli.inputs import REASONS, Found, Search, Selection, holds_any
from voicejobs.cli.main import EXIT_REJECTED, EXIT_UNEXPECTED, EXIT_USAGE, complain, exit_code
from voicejobs.cli.naming import name_outputs
from voicejobs.cli.outputs import STDOUT, all_exist, print_output, require_folders, require_writable
from voicejobs.cli.patterns import Pattern, parse_size
from voicejobs.cli.progress import human_view
from voicejobs.cli.report import FAILED, SKIPPED, FileReport, Reporter, Several, Summary, error_json
from voicejobs.cli.running import (
    EXIT_INTERRUPTED,
    EXIT_TERMINATED,
    Limits,
    Run,
    Terminated,
    interruptible,
)
from voicejobs.cli.spool import spool_folder, spool_parent
from voicejobs.cli.store import opened
from voicejobs.cli.template import Template, parse_template
from voicejobs.embedded.stack import Stack
from voicejobs.errors import BadOption, VoicejobsError
from voicejobs.models.parts import Progress, PullEvent
from voicejobs.settings import Settings
from voicejobs.store.paths import display_name
from voicejobs.store.remote_blobs import blob_store
from voicejobs.submit import InputFile, Submission

EXIT_NO_INPUT = 4
TARGETS_AT_ONCE = 500
RESUMABLE = frozenset({"interrupted", "terminated", "timed_out", "too_many_failures"})


def run(errand: Errand, paths: Sequence[str], flags: dict[str, Any]) -> int:
    """Do what the command line says, and return the exit code of docs/cli.md.

    Raises:
        VoicejobsError: the whole run ended with it.
    """
    began = time.monotonic()
    summary = Summary(output_dir=str(flags["output_dir"]), command=errand.command)
    with ExitStack() as cleanup:
        cleanup.enter_context(interruptible())
        reporter = cleanup.enter_context(_reporter(flags))
        try:
            _take(errand, paths, flags, Desk(reporter, summary, cleanup))
        except KeyboardInterrupt as interrupt:  # a second one, or one before there was anything to leave
            is_term = isinstance(interrupt, Terminated)
            summary.ended = "terminated" if is_term else "interrupted"
            summary.exit_code = EXIT_TERMINATED if is_term else EXIT_INTERRUPTED
        except VoicejobsError as error:
            summary.ended, summary.exit_code = "error", exit_code(error)
            reporter.fail(error)
            raise
        except BaseException as error:
            summary.ended = "error"
            summary.exit_code = EXIT_USAGE if isinstance(error, click.UsageError) else EXIT_UNEXPECTED
            raise
        finally:
            summary.elapsed_s = time.monotonic() - began
            reporter.summary(summary)
    if summary.ended in RESUMABLE and not current().quiet:
        click.echo("Run the same command again to go on from here.", err=True)
    return summary.exit_code


def _reporter(flags: Mapping[str, Any]) -> Reporter:
    """Return what shows the run.

    Raises:
        BadOption: two things are to be on standard output, or the summary cannot be written.
    """
    if flags["as_json"] and flags["output_dir"] == STDOUT:
        raise BadOption("--json and -o - both want standard output", hint="Choose one of them.")
    if flags["as_json"]:
        view: Reporter = Events()
    elif flags["dry_run"]:
        from voicejobs.cli.plan import PlanLines  # noqa: PLC0415 - a real run needs none of it

        view = PlanLines()
    else:
        view = human_view(current(), no_progress=flags["no_progress"])
    if flags["summary"] is None or flags["dry_run"]:
        return view
    return Several(view, SummaryFile(flags["summary"]))


def _take(errand: Errand, paths: Sequence[str], flags: dict[str, Any], desk: Desk) -> None:
    """Check everything that can be checked, find the inputs, and take them to their end."""
    settings = _settings(flags)
    formats = errand.formats(flags)
    desk.summary.output_dir = str(flags["output_dir"])
    model, language = errand.names(flags)
    template = parse_template(flags["output_template"], model=model, language=language)
    _demand_together(flags, formats, template)
    options = errand.options(settings, flags, formats, _teller(desk.reporter), fetch=False)
    search = _search(errand, flags, settings, desk)
    selection = errand.select(paths, flags, search, desk)
    _tell_start(errand, flags, formats, options, selection, desk)
    _tell_skipped(selection, search, desk)
    if not selection.found:
        _say_no_input(errand, selection, desk)
    elif all(one.error is not None for one in selection.found):
        _refuse_all(selection.found, flags, desk)
    else:
        folder = _output_folder(flags, settings, selection.found, desk)
        files = name_outputs(selection.found, folder, formats, template)
        files = _leave_aside(settings, files, flags, formats, desk)
        if flags["dry_run"]:
            _plan(errand, settings, files, options, flags, desk)
        elif files:
            if not _is_piped(flags):
                require_writable(folder)
                require_folders(files, folder)
            _follow(errand, settings, files, flags, formats, desk)
            if _is_piped(flags):
                print_output(folder)


def _is_piped(flags: Mapping[str, Any]) -> bool:
    """Tell whether the output goes to standard output."""
    return bool(flags["output_dir"] == STDOUT)


def _settings(flags: Mapping[str, Any]) -> Settings:
    """Return the settings, with what this command changes of them.

    Raises:
        BadOption: a setting is wrong, or `--jobs` is given where the workers are elsewhere.
    """
    settings = current().settings()
    if flags["jobs"] is None:
        return settings
    if not Stack(settings).is_needed:
        raise BadOption(
            "--jobs counts processes of this machine, and the workers are elsewhere",
            hint="Leave it out: they take as many files as they can.",
        )
    return replace(settings, engine_processes=flags["jobs"])


def _demand_together(flags: Mapping[str, Any], formats: Sequence[str], template: Template) -> None:
    """Refuse options that do not go together.

    Raises:
        BadOption: two of them do not.
    """
    if flags["output_dir"] == STDOUT and len(formats) > 1:
        raise BadOption("-o - takes one format", hint="Name one with -f, or a folder with -o.")
    if template.needs_hash and (flags["skip_existing"] or flags["retry_failed"]):
        option = "--skip-existing" if flags["skip_existing"] else "--retry-failed"
        raise BadOption(
            f"{option} does not go with {{hash8}} in --output-template: the hash is known only once a file was read",
            hint="Leave one of them out; what is done is not done again anyway.",
        )
    if flags["force"] and flags["skip_existing"]:
        raise BadOption("--force and --skip-existing contradict each other", hint="Choose one of them.")


def _teller(reporter: Reporter) -> Progress:
    """Return what tells of the fetching of a model, each thing once."""
    told: set[str] = set()

    def tell(event: PullEvent) -> None:
        if event.text not in told:
            told.add(event.text)
            reporter.warn("fetching_model", f"{event.model}: {event.text}")

    return tell


def _search(errand: Errand, flags: Mapping[str, Any], settings: Settings, desk: Desk) -> Search:
    """Return what to take as input."""
    return Search(
        recursive=flags["recursive"],
        include=tuple(Pattern(text, anywhere=True) for text in flags["include"]),
        exclude=tuple(Pattern(text, anywhere=True) for text in flags["exclude"]),
        min_size=parse_size(flags["min_size"]),
        barred="" if _is_piped(flags) else os.path.abspath(flags["output_dir"]),  # noqa: PTH100 - no links resolved
        stdin=errand.spooled(flags, settings, desk),
        kind=errand.kind,
    )


def _tell_start(
    errand: Errand,
    flags: Mapping[str, Any],
    formats: Sequence[str],
    options: Mapping[str, Mapping[str, Any]],
    selection: Selection,
    desk: Desk,
) -> None:
    """Say what is going to be done, and which options will have no effect."""
    desk.reporter.start(
        {
            "version": __version__,
            "dry_run": flags["dry_run"],
            "files": len(selection.found),
            "output_dir": display_name(str(flags["output_dir"])),
            "formats": list(formats),
            **errand.facts(options),
        }
    )
    for warning in errand.warnings(flags):
        desk.reporter.warn("option_without_effect", warning)


def _tell_skipped(selection: Selection, search: Search, desk: Desk) -> None:
    """Show what the search has left aside."""
    for one in selection.skipped:
        desk.note(FileReport(display_name(one.name), SKIPPED, reason=one.reason))
        if one.reason == "output_folder" and holds_any(search.barred, search.kind):
            desk.reporter.warn(
                "output_folder_skipped",
                f"{display_name(one.name)} is the output folder:"
                f" {search.kind.noun}s in it are passed over, unless you name it",
            )


def _say_no_input(errand: Errand, selection: Selection, desk: Desk) -> None:
    """Say that there is nothing to do, and why."""
    desk.summary.exit_code, desk.summary.ended = EXIT_NO_INPUT, "no_input"
    reasons = sorted({REASONS[one.reason] for one in selection.skipped})
    left = f" ({len(selection.skipped)} left aside: {'; '.join(reasons)})" if reasons else ""
    click.echo(f"error: {errand.none_found[0]}{left} [no_input]", err=True)
    click.echo(f"  {errand.none_found[1]}", err=True)


def _refuse_all(found: Sequence[Found], flags: Mapping[str, Any], desk: Desk) -> None:
    """Say what is wrong with each path: nothing is begun."""
    desk.summary.exit_code, desk.summary.ended = EXIT_REJECTED, "error"
    for one in found:
        if one.error is not None:
            report = FileReport(display_name(one.relative), FAILED, one.path, error=error_json(one.error))
            desk.summary.note(report)
            if flags["as_json"]:
                desk.reporter.file(report)
            complain(one.error)


def _output_folder(flags: Mapping[str, Any], settings: Settings, found: Sequence[Found], desk: Desk) -> Path:
    """Return the folder of the outputs: a private one where they go to standard output.

    Raises:
        BadOption: several files would go to standard output.
    """
    folder: Path = flags["output_dir"]
    if folder != STDOUT:
        return folder
    if len(found) > 1:
        raise BadOption(
            f"-o - takes one file, and {len(found)} were found", hint="Name a single file, or a folder with -o."
        )
    if flags["dry_run"]:
        return folder
    private = desk.cleanup.enter_context(spool_folder(settings)) / "output"
    private.mkdir()
    return private


def _leave_aside(
    settings: Settings, files: list[InputFile], flags: Mapping[str, Any], formats: Sequence[str], desk: Desk
) -> list[InputFile]:
    """Return the files without those that an option leaves aside by what became of them before."""
    reasons: dict[str, str] = {}
    if flags["retry_failed"]:
        failed = _failed_before(settings, files, touch=not flags["dry_run"])
        reasons |= {file.path: "not_failed" for file in files if display_name(file.target) not in failed}
    if flags["skip_existing"]:
        reasons |= {file.path: "exists" for file in files if all_exist(file, formats)}
    for file in files:
        if file.path in reasons:
            desk.note(FileReport(display_name(file.name), SKIPPED, file.path, reason=reasons[file.path]))
    return [file for file in files if file.path not in reasons]


def _failed_before(settings: Settings, files: Sequence[InputFile], *, touch: bool) -> set[str]:
    """Return the targets of the files that failed or were not done the last time."""
    from voicejobs.cli.plan import readable  # noqa: PLC0415 - a run without this option needs none of it

    failed: set[str] = set()
    with ExitStack() as stack:
        database = stack.enter_context(opened(settings)) if touch else readable(settings)
        if database is not None:
            for first in range(0, len(files), TARGETS_AT_ONCE):
                targets = [display_name(file.target) for file in files[first : first + TARGETS_AT_ONCE]]
                failed |= queries.failed_targets(database, targets)
            if not touch:
                database.close()
    return failed


def _plan(
    errand: Errand,
    settings: Settings,
    files: Sequence[InputFile],
    options: Mapping[str, Mapping[str, Any]],
    flags: dict[str, Any],
    desk: Desk,
) -> None:
    """Show what would be done."""
    from voicejobs.cli.plan import Wish, make_plan  # noqa: PLC0415 - a real run needs none of it

    archived = frozenset(Archive.read(flags["archive"]).hashes if flags["archive"] else ())
    pipeline, pace = errand.pipeline(flags), errand.pace(options)
    wish = Wish(pipeline, options, errand.formats(flags), flags["force"], archived, pace, _is_piped(flags))
    reports, desk.summary.plan = make_plan(settings, files, wish, errand.measure)
    for report in reports:
        desk.note(report)


def _follow(
    errand: Errand,
    settings: Settings,
    files: Sequence[InputFile],
    flags: dict[str, Any],
    formats: Sequence[str],
    desk: Desk,
) -> None:
    """Submit the files to a stack of our own or a running one, and follow them to their end."""
    limits = Limits.of(max_failures=1 if flags["fail_fast"] else flags["max_failures"], timeout_s=flags["timeout"])
    archive: Archive | None = None
    if flags["archive"] is not None:
        archive = Archive.read(flags["archive"])
        archive.open()
        desk.cleanup.callback(archive.close)
    options = errand.options(settings, flags, formats, _teller(desk.reporter), fetch=True)
    if settings.broker_url:  # workers would wait for it, since servers come back; a wrong address is worth a word
        require_answer(settings.broker_url)
    with Stack(settings) as stack, opened(settings) as database:
        submission = Submission(
            database,
            errand.pipeline(flags),
            options,
            label=f"{errand.command} {len(files)} file{'s' if len(files) != 1 else ''}",
            force=flags["force"],
            leave_out=frozenset(archive.hashes) if archive else (),
            max_queued_jobs=settings.max_queued_jobs,
            expires_after_s=flags["expires_after"],
            blobs=blob_store(settings),
        )
        run = Run(stack, submission, desk.reporter, desk.summary, limits, archive, hidden=str(spool_parent(settings)))
        run.follow(files)
