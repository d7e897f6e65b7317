"""`voicejobs lint`: what is wrong with subtitles, by the numbers of a profile."""

from typing import Any

import click

from voicejobs.cli.documents import Document, find_documents
from voicejobs.cli.globals import current
from voicejobs.cli.main import EXIT_PROBLEMS_FOUND, complain
from voicejobs.cli.show import print_json
from voicejobs.cli.spelling import Command
from voicejobs.errors import VoicejobsError
from voicejobs.formats.lint import Finding, lint
from voicejobs.formats.options import RenderOptions
from voicejobs.formats.profiles import Profile, profile_of
from voicejobs.formats.subtitles import read_subtitles
from voicejobs.formats.timestamps import srt_time

EXIT_SOME_FAILED = 3
EXIT_NO_INPUT = 4
EXIT_ALL_FAILED = 8


@click.command(
    "lint",
    cls=Command,
    epilog="\b\nExamples:\n  voicejobs lint talk.srt\n  voicejobs lint subtitles/ --profile bbc --json",
)
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(readable=False))
@click.option(
    "--profile", "subtitle_profile", type=click.Choice(["netflix", "bbc"]), default="netflix", show_default=True,
    help="The rules to check by.",
)  # fmt: skip
@click.option(
    "-l", "--language", default=None, help="Language of the text: zh, yue, ja and ko have limits of their own."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def lint_command(paths: tuple[str, ...], subtitle_profile: str, language: str | None, *, as_json: bool) -> int:
    """Check SRT and WebVTT files (those in folders too) for what readers stumble over.

    Ends with 9 if there is anything to say.
    """
    profile = profile_of(RenderOptions(subtitle_profile=subtitle_profile), language) or Profile()
    documents, errors = find_documents(paths, (".srt", ".vtt"))
    if not documents and not errors:
        click.echo("error: no subtitles were found there [no_input]", err=True)
        click.echo("  Name SRT or WebVTT files, or folders that hold some.", err=True)
        return EXIT_NO_INPUT
    reports: list[dict[str, Any]] = []
    findings = 0
    for document in documents:
        try:
            file = read_subtitles(document.read(), document.shown)
        except VoicejobsError as error:
            errors.append(error)
            continue
        found = lint(file, profile)
        findings += len(found)
        reports.append(_report(document, len(file.cues), found, as_json=as_json))
    for wrong in errors:
        complain(wrong)
    if as_json:
        _print(reports, errors, subtitle_profile)
    elif not current().quiet:
        click.echo(f"{findings} problems in {len(reports)} files", err=True)
    return _exit_code(findings, len(reports), len(errors))


def _exit_code(findings: int, checked: int, failed: int) -> int:
    """Return the exit code of docs/cli.md: findings weigh more than a file that could not be read."""
    if findings:
        return EXIT_PROBLEMS_FOUND
    if failed:
        return EXIT_SOME_FAILED if checked else EXIT_ALL_FAILED
    return 0


def _report(document: Document, cues: int, found: list[Finding], *, as_json: bool) -> dict[str, Any]:
    """Print the findings of a file as lines, unless they are wanted as JSON, and return them."""
    for one in found if not as_json else ():
        place = "" if one.cue is None else f" cue {one.cue} at {srt_time(one.start_ms or 0)}:"
        click.echo(f"{document.shown}:{one.line}:{place} {one.category}: {one.message}")
    return {"file": document.shown, "cues": cues, "problems": [one.to_json() for one in found]}


def _print(reports: list[dict[str, Any]], errors: list[VoicejobsError], profile: str) -> None:
    """Print the document."""
    print_json("lint", {"profile": profile, "files": reports, "errors": [error.to_json() for error in errors]})
