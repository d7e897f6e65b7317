"""One run of `voicejobs watch`: look, take what has stood still, show what becomes of it, until somebody ends it."""

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import click

from voicejobs import __version__, queries
from voicejobs.cli.broker import require_answer
from voicejobs.cli.events import Events
from voicejobs.cli.globals import current, current_settings
from voicejobs.cli.inputs import RECORDINGS, Argument, Found, Search, find_inputs
from voicejobs.cli.main import exit_code as code_of
from voicejobs.cli.naming import Places
from voicejobs.cli.outputs import ending, require_writable
from voicejobs.cli.patterns import Pattern, parse_size
from voicejobs.cli.progress import human_view
from voicejobs.cli.recognising import Recognising
from voicejobs.cli.remote import remote_settings
from voicejobs.cli.report import Reporter, Summary
from voicejobs.cli.running import (
    EXIT_INTERRUPTED,
    EXIT_TERMINATED,
    Run,
    Terminated,
    exit_code,
    interruptible,
)
from voicejobs.cli.settling import Settling, is_temporary
from voicejobs.cli.store import opened
from voicejobs.embedded.stack import Stack
from voicejobs.errors import BadOption, NotFound, QueueFull, QuotaReached, RateLimited, VoicejobsError
from voicejobs.models.parts import PullEvent
from voicejobs.settings import Settings
from voicejobs.store.database import Database
from voicejobs.store.paths import display_name
from voicejobs.store.remote_blobs import blob_store
from voicejobs.submit import InputFile, Submission

LOOK_S = 0.2
"""Time between two looks at the rows while something is at work."""
LOOK_SHARE = 10
"""A look at the folder takes at most this part of the time: the longer it takes, the longer is the pause after it."""
MOST_WAITING = 200
"""Files that are taken before the first ones have ended: more would only make the rows of a huge folder at once."""
FULL_PAUSE_S = 5.0


def run(folder: Path, flags: dict[str, Any]) -> int:
    """Watch until Ctrl-C or SIGTERM, or with `--once` to the end of what is there, and return the exit code.

    Raises:
        VoicejobsError: the whole run ended with it.
    """
    began = time.monotonic()
    summary = Summary(output_dir=str(flags["output_dir"]))
    reporter: Reporter = Events() if flags["as_json"] else human_view(current(), no_progress=flags["no_progress"])
    with ExitStack() as cleanup:
        cleanup.enter_context(interruptible())
        cleanup.enter_context(reporter)
        try:
            _watch(_watched(folder), flags, reporter, summary, cleanup)
            summary.exit_code = exit_code(summary)
        except KeyboardInterrupt as interrupt:
            is_term = isinstance(interrupt, Terminated)
            summary.ended = "terminated" if is_term else "interrupted"
            summary.exit_code = EXIT_TERMINATED if is_term else EXIT_INTERRUPTED
        except VoicejobsError as error:
            summary.ended, summary.exit_code = "error", code_of(error)
            reporter.fail(error)
            raise
        finally:
            summary.elapsed_s = time.monotonic() - began
            reporter.summary(summary)
    return summary.exit_code


def _watched(folder: Path) -> str:
    """Return the folder without links in its path, so that the output folder is known wherever it lies in it.

    Raises:
        NotFound, BadOption: there is none.
    """
    if not folder.exists():
        raise NotFound(f"{display_name(folder)} is not there", hint="Make the folder first.")
    if not folder.is_dir():
        raise BadOption(f"{display_name(folder)} is no folder", hint="`voicejobs transcribe` takes single files.")
    return str(folder.resolve())


def _watch(root: str, flags: dict[str, Any], reporter: Reporter, summary: Summary, cleanup: ExitStack) -> None:
    """Check what can be checked, begin, and go on."""
    settings = current_settings()
    errand = Recognising()
    formats = errand.formats(flags)
    out = flags["output_dir"]
    require_writable(out)

    def tell(event: PullEvent) -> None:
        if event.text not in told:
            told.add(event.text)
            reporter.warn("fetching_model", f"{event.model}: {event.text}")

    told: set[str] = set()
    remote = remote_settings(settings, flags["server"], by_setting=False)
    if remote is None and settings.broker_url:
        require_answer(settings.broker_url)
    options = errand.options(settings, flags, formats, tell, fetch=remote is None)
    facts = {
        "version": __version__, "dry_run": False, "files": 0, "output_dir": display_name(str(out)),
        "formats": formats, **errand.facts(options), "watched": display_name(root),
    }  # fmt: skip
    reporter.start(facts)
    for warning in errand.warnings(flags):
        reporter.warn("option_without_effect", warning)
    places = Places.below(out, formats)
    if remote is None:
        stack = cleanup.enter_context(Stack(settings))
        database = cleanup.enter_context(opened(settings))
        run = Run(stack, _submission(settings, database, options, root, out), reporter, summary)
        work: Work = Embedded(run, places)
    else:
        from voicejobs.cli.remote_watch import Remote  # noqa: PLC0415 - only with --server

        work = cleanup.enter_context(Remote.begun(remote, root, flags, places, reporter, summary))
    _see_to(Watcher(root, work, Inbox(_search(root, flags), _own(out, formats)), Settling(flags["settle"])), flags)


def _see_to(watcher: "Watcher", flags: Mapping[str, Any]) -> None:
    """Watch, and say in the end what is left to others."""
    tells = not current().quiet and not flags["as_json"]
    if tells:
        click.echo(f"Watching {display_name(watcher.root)}; Ctrl-C ends it", err=True)
    try:
        if flags["once"]:
            watcher.see_through(flags["settle"])
        else:
            watcher.watch(flags["poll"])
    finally:
        watcher.work.leave()
        if watcher.work.waiting and tells:
            click.echo(f"{watcher.work.waiting} at work; the same command goes on with them", err=True)


def _submission(
    settings: Settings, database: Database, options: Mapping[str, Mapping[str, Any]], root: str, out: Path
) -> Submission:
    """Return what takes the files in: once for all that lies below the output folder."""
    return Submission(
        database,
        Recognising().pipeline({}),
        options,
        label=f"watch {display_name(Path(root).name)}",
        max_queued_jobs=settings.max_queued_jobs,
        once_below=os.path.abspath(out),  # noqa: PTH100 - as `Places` has it
        blobs=blob_store(settings),
    )


def _search(root: str, flags: Mapping[str, Any]) -> Search:
    """Return what to look for; the output folder is not entered where it lies in the watched one."""
    out = str(flags["output_dir"].resolve())
    return Search(
        recursive=flags["recursive"],
        include=tuple(Pattern(text, anywhere=True) for text in flags["include"]),
        exclude=tuple(Pattern(text, anywhere=True) for text in flags["exclude"]),
        min_size=parse_size(flags["min_size"]),
        barred="" if out == root else out,
        kind=RECORDINGS,
    )


def _own(out: Path, formats: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return where our outputs lie, and how they end."""
    return f"{out.resolve()}{os.sep}", tuple(ending(name) for name in formats)


@dataclass(slots=True)
class Inbox:
    """Look into the folder.

    Args:
        search: what is taken.
        own: folder and endings of our own outputs, which are never taken.
    """

    search: Search
    own: tuple[str, tuple[str, ...]]

    def look(self, root: str) -> tuple[list[Found], list[VoicejobsError]]:
        """Return what could be taken, and what could not be looked at."""
        found = find_inputs([Argument(root, is_literal=True)], self.search).found
        files = [one for one in found if one.error is None and not self._is_passed_over(one.path)]
        return files, [one.error for one in found if one.error is not None]

    def _is_passed_over(self, path: str) -> bool:
        """Tell whether a file is one of our outputs, or its writer says by its name that it is not done."""
        folder, endings = self.own
        return is_temporary(os.path.basename(path)) or (path.startswith(folder) and path.endswith(endings))  # noqa: PTH119 - names stay as they are


class Work(Protocol):
    """Take files in, and show what becomes of them."""

    @property
    def reporter(self) -> Reporter:
        """Return what shows it."""
        ...

    @property
    def waiting(self) -> int:
        """Return how many files are at work or wait."""
        ...

    def works_on(self, path: str) -> bool:
        """Tell whether a file is at work, or what was in it before."""
        ...

    def take(self, one: Found) -> None:
        """Take a file.

        Raises:
            QueueFull, QuotaReached, RateLimited: there is no room for it now.
        """
        ...

    def look(self) -> None:
        """Show what has ended since the last look."""
        ...

    def rest(self) -> None:
        """Note that all that was taken has ended."""
        ...

    def leave(self) -> None:
        """Note that nobody looks any more."""
        ...


@dataclass(slots=True)
class Embedded:
    """Have the database and the workers that the settings name do the work.

    Args:
        run: takes files in, and shows what becomes of them.
        places: tells where outputs go.
    """

    run: Run
    places: Places

    @property
    def reporter(self) -> Reporter:
        """Return what shows it."""
        return self.run.reporter

    @property
    def waiting(self) -> int:
        """Return how many files are at work or wait."""
        return self.run.waiting

    def works_on(self, path: str) -> bool:
        """Tell whether a file waits for its end."""
        return self.run.works_on(path)

    def take(self, one: Found) -> None:
        """Submit a file."""
        self.run.take([InputFile(one.path, one.relative, self._place(one))])

    def look(self) -> None:
        """Look at the rows."""
        self.run.look()

    def rest(self) -> None:
        """Close the batch."""
        self.run.rest()

    def leave(self) -> None:
        """Seal the batch: what it has goes on without us."""
        submission, summary = self.run.submission, self.run.summary
        with contextlib.suppress(VoicejobsError):
            submission.seal()
        summary.batches = sorted({*summary.batches, *([submission.batch_id] if submission.batch_id else [])})

    def _place(self, one: Found) -> str:
        """Return where the outputs go: by the stem, or by the whole name where another file's outputs have the stem."""
        database = self.run.submission.database
        return free_place(self.places, one, lambda place: queries.sources_of(database, display_name(place)))


def free_place(places: Places, one: Found, sources: Callable[[str], set[str]]) -> str:
    """Return the first place for the outputs of a file that is not another file's.

    Args:
        places: tells which places there are.
        one: the file.
        sources: returns the paths of the files whose outputs have a place.
    """
    number = 1
    place = places.of(one.relative)
    while sources(place) - {one.path}:
        place = places.of(f"{one.relative}{f'-{number}' if number > 1 else ''}.out")
        number += 1
    return place


@dataclass(slots=True)
class Watcher:
    """Take files from a folder as they stand still, and follow their jobs.

    Args:
        root: the folder.
        work: takes files in, and shows what becomes of them.
        inbox: looks into the folder.
        settling: remembers what has been seen.
    """

    root: str
    work: Work
    inbox: Inbox
    settling: Settling
    _pending: deque[Found] = field(default_factory=deque)
    _told: set[str] = field(default_factory=set)
    _full_until: float = 0.0
    _changed: int = 0

    def watch(self, poll_s: float) -> None:
        """Go on until an exception ends it, with `poll_s` seconds between two looks."""
        next_look = 0.0
        while True:
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + max(poll_s, self._look())
            self._work()
            busy = self.work.waiting or self._pending
            time.sleep(min(LOOK_S, poll_s) if busy else max(0.01, next_look - time.monotonic()))

    def see_through(self, settle_s: float) -> None:
        """Look twice, and follow what has stood still in between to its end."""
        self._look()
        time.sleep(settle_s)
        self._look()
        self._tell_moving(self.settling.moving)
        while self._pending or self.work.waiting:
            self._work()
            time.sleep(LOOK_S)
        self._tell_moving(self._changed)
        self.work.rest()

    def _tell_moving(self, count: int) -> None:
        """Say how many files are left aside."""
        if count:
            files = "file is" if count == 1 else "files are"
            self.work.reporter.warn("still_written", f"{count} {files} left aside: still being written")

    def _look(self) -> float:
        """Look into the folder once, and return the least seconds until the next look."""
        began = time.monotonic()
        files, errors = self.inbox.look(self.root)
        for error in errors:
            if error.message not in self._told:
                self.work.reporter.warn(error.code, error.message)
        self._told = {error.message for error in errors}
        # What cannot be looked at has not gone: only a whole look may forget files.
        if not errors or files:
            there = {one.path for one in self._pending}
            ready = self.settling.ready(files, time.monotonic())
            self._pending.extend(one for one in ready if one.path not in there)
        return (time.monotonic() - began) * (LOOK_SHARE - 1)

    def _work(self) -> None:
        """Take what waits here as far as there is room, and show what has ended."""
        was_busy = self.work.waiting > 0
        held = []
        while self._pending and self.work.waiting < MOST_WAITING and time.monotonic() >= self._full_until:
            one = self._pending.popleft()
            if self.work.works_on(one.path):  # the outputs of what was in it before are to come first
                held.append(one)
                continue
            was_busy = True
            if not self.settling.is_still(one):  # somebody has begun to write it while it waited here
                self._changed += 1
            elif not self._take(one):
                held.append(one)
        self._pending.extendleft(reversed(held))
        if self.work.waiting:
            self.work.look()
        if was_busy and not self.work.waiting and not self._pending:
            self.work.rest()

    def _take(self, one: Found) -> bool:
        """Submit a file; False where there is no room for it now."""
        try:
            self.work.take(one)
        except (QueueFull, QuotaReached, RateLimited) as error:
            self.work.reporter.warn(error.code, error.message)
            self._full_until = time.monotonic() + FULL_PAUSE_S
            return False
        return True
