"""`voicejobs convert`: transcripts rendered again from JSON, without recognising again."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import click

from voicejobs.cli.completers import complete_formats
from voicejobs.cli.documents import STDIN, Document, find_documents
from voicejobs.cli.globals import current
from voicejobs.cli.main import complain
from voicejobs.cli.spelling import Command
from voicejobs.cli.subtitle_options import render_flags, subtitle_options
from voicejobs.errors import BadOption, NotTranscript, OutputExists, VoicejobsError
from voicejobs.formats import FORMATS, RenderOptions, chosen, extension, render
from voicejobs.formats.reading import read_transcript
from voicejobs.store.blobs import map_os_error, write_atomic
from voicejobs.store.paths import display_name

EXIT_SOME_FAILED = 3
EXIT_NO_INPUT = 4
EXIT_ALL_FAILED = 8
FILE_MODE = 0o644

_ENDINGS = (".voicejobs.json", ".verbose.json", ".json")
"""Endings of JSON transcripts, the one that tells most first."""


@dataclass(slots=True)
class _Tally:
    """Count what has become of the files of this run."""

    converted: int = 0
    failed: int = 0
    passed_over: int = 0

    @property
    def exit_code(self) -> int:
        """Return the exit code of docs/cli.md."""
        if not self.failed:
            return 0
        return EXIT_SOME_FAILED if self.converted else EXIT_ALL_FAILED


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  voicejobs convert talk.voicejobs.json -f srt,vtt\n"
    "  voicejobs convert texts/ -f srt -o subtitles/ --subtitle-profile bbc\n"
    "  voicejobs convert talk.json -f vtt -o - | less",
)
@click.argument("paths", metavar="IN.json...", nargs=-1, required=True, type=click.Path(readable=False))
@click.option(
    "-f", "--format", "formats", multiple=True, default=("srt",), show_default=True,
    shell_complete=complete_formats,
    help=f"Output formats: {', '.join(FORMATS)}, or all; repeat, or separate by commas.",
)  # fmt: skip
@click.option(
    "-o", "--output-dir", default=None, type=click.Path(), help="Output folder, or - for standard output; "
    "left out, each output is written beside its input.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace files that are in the way.")
@subtitle_options
def convert(paths: tuple[str, ...], **flags: Any) -> int:
    """Render transcripts again from native json, whisper's json or verbose_json, files and folders of them.

    Nothing is recognised again: other formats, other line lengths or another profile cost no time.
    """
    formats = chosen(flags["formats"])
    options = RenderOptions.from_json(render_flags(flags))
    documents, errors = find_documents(paths, (".json",))
    for error in errors:
        complain(error)
    if not documents and not errors:
        return _no_input()
    to_stdout = flags["output_dir"] == STDIN or (flags["output_dir"] is None and paths == (STDIN,))
    if to_stdout and errors:
        return EXIT_ALL_FAILED
    if to_stdout:
        return _to_stdout(documents, formats, options)
    tally = _Tally(failed=len(errors))
    _convert_all(_Run(paths, formats, options, flags["output_dir"], flags["force"]), documents, tally)
    if not tally.converted and not tally.failed:
        return _no_input()
    if not current().quiet:
        noun = "transcript" if tally.converted == 1 else "transcripts"
        failed = f", {tally.failed} failed" if tally.failed else ""
        click.echo(f"{tally.converted} {noun} converted{failed}", err=True)
    return tally.exit_code


def _no_input() -> int:
    """Say that there is nothing to convert."""
    click.echo("error: no transcripts were found there [no_input]", err=True)
    click.echo("  Name JSON transcripts, or folders that hold some.", err=True)
    return EXIT_NO_INPUT


@dataclass(frozen=True, slots=True)
class _Run:
    """Hold what holds for all files."""

    paths: Sequence[str]
    formats: Sequence[str]
    options: RenderOptions
    output_dir: str | None
    force: bool


def _to_stdout(documents: Sequence[Document], formats: Sequence[str], options: RenderOptions) -> int:
    """Write the one output to standard output.

    Raises:
        BadOption: there is more than one.
    """
    if len(documents) != 1 or len(formats) != 1:
        raise BadOption("Standard output takes one transcript in one format", hint="Name one file and one -f.")
    (document,) = documents
    transcript = read_transcript(document.read(), document.shown)
    data = render(replace(transcript, source_name=Path(_stem(document.relative)).name), formats[0], options)
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return 0


def _convert_all(run: _Run, documents: Sequence[Document], tally: _Tally) -> None:
    """Convert each file; an error costs the others nothing."""
    written: dict[str, Document] = {}
    for document in _best(documents, run.paths):
        try:
            _convert(run, document, written)
        except NotTranscript as error:
            if document.path not in run.paths and _ending(document.path) == ".json":
                tally.passed_over += 1  # folders hold other JSON, too
                continue
            tally.failed += 1
            complain(error)
        except VoicejobsError as error:
            tally.failed += 1
            complain(error)
        else:
            tally.converted += 1


def _best(documents: Sequence[Document], named: Sequence[str]) -> list[Document]:
    """Return the files that were named, and of those in folders, where several have one stem, what tells most."""
    best: dict[str, Document] = {}
    for document in documents:
        stem = _stem(document.path)
        rival = best.get(stem)
        if rival is None or _ENDINGS.index(_ending(document.path)) < _ENDINGS.index(_ending(rival.path)):
            best[stem] = document
    return [one for one in documents if one.path in named or best[_stem(one.path)] is one]


def _convert(run: _Run, document: Document, written: dict[str, Document]) -> None:
    """Write the outputs of one file; nothing at all is written if one of them is in the way of another file.

    Raises:
        NotTranscript: the file holds none.
        OutputExists: a file is in the way, or an output of this run.
    """
    transcript = read_transcript(document.read(), document.shown)
    if run.output_dir is None:
        stem = _stem("stdin" if document.path == STDIN else document.path)
    else:
        stem = os.path.join(run.output_dir, _stem("stdin" if document.path == STDIN else document.relative))  # noqa: PTH118 - pathlib would tidy names that must stay as they are
    transcript = replace(transcript, source_name=Path(stem).name)
    outputs = [(Path(stem + extension(name)), render(transcript, name, run.options)) for name in run.formats]
    for path, data in outputs:
        other = written.get(str(path))
        if other is not None:
            raise OutputExists(
                f"{document.shown} and {other.shown} would both be written to {display_name(path)}",
                hint="Convert one of them into another folder.",
            )
        _demand_free(path, data, force=run.force)
    for path, data in outputs:
        write_atomic(path, data, mode=FILE_MODE & ~_umask())
        written[str(path)] = document


def _demand_free(path: Path, data: bytes, *, force: bool) -> None:
    """Refuse to replace a file that holds something else."""
    try:
        present = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise map_os_error(error, path) from error
    if not force and present != data:
        raise OutputExists(f"{display_name(path)} is there already, and holds something else")


def _ending(path: str) -> str:
    """Return which of the endings of JSON transcripts a path has; the least of them for any other."""
    return next((ending for ending in _ENDINGS if path.lower().endswith(ending)), _ENDINGS[-1])


def _stem(path: str) -> str:
    """Return a path without the ending that names its format."""
    ending = _ending(path)
    if path.lower().endswith(ending) and not path.endswith(f"/{ending}"):
        return path[: -len(ending)]
    return os.path.splitext(path)[0]  # noqa: PTH122 - `.with_suffix` fails on names such as `..json`


@cache
def _umask() -> int:
    """Return the process's umask; reading it means setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
