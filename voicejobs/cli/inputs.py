"""Find the inputs of a command: files, folders, patterns and lists of them; and say what was left aside, and why."""

import difflib
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from voicejobs.audio import accept
from voicejobs.cli.patterns import Pattern, is_pattern, spelled_ending, split_pattern
from voicejobs.errors import BadText, InputError, NotAudio, NotFound, Unreadable
from voicejobs.store.paths import display_name

_ENDINGS = (
    "3gp aac ac3 aif aifc aiff amr asf au avi caf eac3 f4a f4v flac gsm m2ts m4a m4b m4r m4v mka mkv mov mp2 mp3 mp4 "
    "mpeg mpg mts oga ogg ogv opus ra rf64 spx ts w64 wav wave webm wma wmv"
)
AUDIO_ENDINGS = frozenset(_ENDINGS.split())
"""Endings that make a file in a folder an input; a file that is named itself may end as it likes."""

TEXT_ENDINGS = frozenset(["txt", "text", "md", "markdown", "srt", "vtt", "csv", "ssml"])
"""Endings of the texts in a folder that are spoken."""

_ARCHIVES = "7z bz2 cab cpio dmg gz iso jar lz4 lzma rar tar tbz tgz txz xz zip zst"
ARCHIVE_ENDINGS = frozenset(_ARCHIVES.split())
SKIPPED_FOLDERS = frozenset({"__MACOSX", ".voicejobs"})
STDIN = "-"
_NAMES_LOOKED_AT = 10_000
"""Names of a folder among which one like that of a missing file is looked for."""

REASONS = {
    "archive": "an archive: unpack it, and name the folder",
    "excluded": "matches --exclude",
    "not_included": "matches no --include",
    "too_small": "smaller than --min-size",
    "special": "a pipe, socket or device",
    "output_folder": "the output folder",
    "exists": "its outputs exist",
    "archived": "named in the archive",
    "not_failed": "did not fail before",
}
"""Why a file is left aside, by the code that `--json` gives."""


@dataclass(frozen=True, slots=True)
class Found:
    """Name an input.

    Args:
        path: absolute path; of a text that lies in no file of its own, only what tells it from others.
        relative: its place below what was named; its outputs are named after it.
        error: what is known to be wrong with it.
        text: the input itself, where it lies in no file of its own.
        shown: how people know it, where that is not its place.
        options: what it wants otherwise than the other inputs, by node and option.
    """

    path: str
    relative: str
    error: InputError | None = None
    text: str | None = None
    shown: str = ""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kind:
    """Say what sort of files a search is for.

    Args:
        endings: those that make a file in a folder an input.
        noun: what people call one.
        begins_like: whether a file without an ending is one, by its first bytes.
        refused: error for what is named and can be none.
    """

    endings: frozenset[str]
    noun: str
    begins_like: Callable[[str], bool]
    refused: type[InputError]


def begins_like_audio(path: str) -> bool:
    """Tell whether the first bytes of a file without an ending are those of a recording."""
    try:
        look = accept.look_at(path)
    except InputError:
        return False
    return not isinstance(accept.refusal(path, look), NotAudio)


RECORDINGS = Kind(AUDIO_ENDINGS, "recording", begins_like_audio, NotAudio)
TEXTS = Kind(TEXT_ENDINGS, "text", lambda path: False, BadText)


@dataclass(frozen=True, slots=True)
class Skipped:
    """Name a file or folder that is left aside for a reason that users care for."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Search:
    """Say what a search takes.

    Args:
        recursive: whether folders are searched to their leaves.
        include: where given, only what one of them matches is taken.
        exclude: what one of them matches is left aside.
        min_size: bytes that an input must have.
        barred: absolute path of a folder that is not entered, unless it is named itself.
        stdin: gives the input that `-` stands for.
        kind: what sort of files it is for.
    """

    recursive: bool = True
    include: tuple[Pattern, ...] = ()
    exclude: tuple[Pattern, ...] = ()
    min_size: int = 0
    barred: str = ""
    stdin: Callable[[], Found] | None = None
    kind: Kind = RECORDINGS


@dataclass(slots=True)
class Selection:
    """Hold what a search has found.

    Args:
        found: the inputs, each path once.
        skipped: what was left aside for a reason worth a line.
        passed_over: how many others were not taken: hidden files, other files, links to folders.
    """

    found: list[Found] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    passed_over: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Argument:
    """Hold one path as the user gave it; a literal one has no wildcards, whatever its characters."""

    text: str
    is_literal: bool = False


def find_inputs(arguments: Sequence[Argument], search: Search | None = None) -> Selection:
    """Return what `arguments` name or hold, each file once.

    Inside folders and patterns, hidden files and files that do not end like inputs are passed over, and links to
    folders are not followed. Several folders keep their own names in front, so that they do not mix. What cannot be
    read is found with its error: it costs the others nothing.
    """
    finder = _Finder(search or Search())
    prefixes = _prefixes([one.text for one in arguments if _is_folder(one.text)])
    for one in arguments:
        finder.take(one, prefixes.get(_absolute(one.text), ""))
    finder.selection.found = list(finder.found.values())
    return finder.selection


class _Finder:
    """Collect the inputs of one command."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.found: dict[str, Found] = {}
        self.selection = Selection()
        self._matched = 0
        self._spelled = {ending for pattern in search.include if (ending := spelled_ending(pattern.text))}

    def take(self, argument: Argument, prefix: str) -> None:
        """Take one argument."""
        path = argument.text
        if path == STDIN and not argument.is_literal and self.search.stdin is not None:
            found = self.search.stdin()
            self.found.setdefault(found.path, found)
        elif _is_folder(path):
            _Walk(self, _absolute(path), prefix).run()
        elif _exists(path):
            self._take_named(path)
        elif is_pattern(path) and not argument.is_literal:
            self._take_pattern(path)
        else:
            error = NotFound(f"{display_name(path) or repr(path)} is not there", hint=_near(path))
            self._add(path, Path(path).name, error)

    def _add(self, path: str, relative: str, error: InputError | None = None) -> None:
        """Note an input, unless it was found before."""
        absolute = _absolute(path)
        self.found.setdefault(absolute, Found(absolute, relative, error))

    def _skip(self, relative: str, reason: str) -> None:
        """Note what is left aside."""
        self.selection.skipped.append(Skipped(relative, reason))

    def _take_named(self, path: str) -> None:
        """Take a file that the user named: whatever it is called, but nothing that may never end."""
        name = Path(path).name
        try:
            status = Path(path).stat()
        except OSError:
            self._add(path, name)  # submission says what is wrong with it
            return
        if not stat.S_ISREG(status.st_mode):
            kind = self.search.kind
            hint = f"Name a file that holds a {kind.noun}; `-` reads from a pipe."
            self._add(path, name, kind.refused(f"{display_name(path)} is not a regular file", hint=hint))
        elif reason := self._refused_by_options(name, status.st_size):
            self._skip(name, reason)
        else:
            self._add(path, name)

    def _take_pattern(self, text: str) -> None:
        """Take what a pattern matches."""
        base, below = split_pattern(text)
        before = self._matched
        ending = spelled_ending(text)
        if _is_folder(base):
            _Walk(self, _absolute(base), "", Pattern(below), {ending} if ending else set()).run()
        if self._matched == before:
            self._add(text, text, self._no_match(text))

    def _no_match(self, text: str) -> NotFound:
        """Return the error for a pattern that finds nothing."""
        return NotFound(f"{display_name(text)} matches no {self.search.kind.noun}", hint="Check the pattern.")

    def consider(self, path: str, relative: str, name: str, spelled: set[str]) -> None:
        """Take a file found in a search, or leave it aside."""
        reason, size = self._judge(path, name, spelled)
        if reason is None:
            reason = self._refused_by_options(relative, size)
        if reason is not None and reason not in REASONS:
            self.selection.passed_over[reason] += 1
            return
        self._matched += 1
        if reason is None:
            self._add(path, relative)
        else:
            self._skip(relative, reason)

    def _judge(self, path: str, name: str, spelled: set[str]) -> tuple[str | None, int]:
        """Return why a file is no input, None where it is one, and its size."""
        ending = name.rpartition(".")[2].lower() if "." in name else ""
        wanted = ending in self.search.kind.endings or ending in spelled or (ending != "" and ending in self._spelled)
        if not wanted and ending:
            return ("archive" if ending in ARCHIVE_ENDINGS else "other"), 0
        try:
            status = Path(path).stat()
        except OSError:
            # It is named like an input: better an error that names it than silence.
            return (None if wanted else "other"), self.search.min_size
        if not stat.S_ISREG(status.st_mode):
            return ("special" if wanted else "other"), 0
        if not wanted and not self.search.kind.begins_like(path):
            return "other", 0
        return None, status.st_size

    def _refused_by_options(self, relative: str, size: int) -> str | None:
        """Return which option leaves a file aside, None for none."""
        if any(pattern.matches(relative) for pattern in self.search.exclude):
            return "excluded"
        if self.search.include and not any(pattern.matches(relative) for pattern in self.search.include):
            return "not_included"
        return "too_small" if size < self.search.min_size else None


@dataclass(slots=True)
class _Walk:
    """Search one folder without following links to folders, and without recursion: trees may be deep.

    What a pattern matches is taken; a folder that it matches is searched as one that was named.
    """

    finder: _Finder
    root: str
    prefix: str
    pattern: Pattern | None = None
    spelled: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Walk through the tree in the order of the names: the files of a folder first, then its folders."""
        waiting = [(self.root, "", self.pattern is None)]
        while waiting:
            path, relative, is_free = waiting.pop()
            try:
                with os.scandir(path) as entries:
                    present = sorted(entries, key=lambda entry: entry.name)
            except OSError as error:
                self._cannot_list(path, relative, error)
                continue
            folders = []
            for entry in present:
                place = _join(relative, entry.name)
                if self._is_passed_over(entry):
                    continue
                matches = is_free or self.pattern is None or self.pattern.matches(place)
                if not entry.is_dir(follow_symlinks=False):
                    if matches:
                        self.finder.consider(entry.path, _join(self.prefix, place), entry.name, self.spelled)
                elif self._enters(entry.path, place, is_below=is_free, matches=matches):
                    folders.append((entry.path, place, matches))
            waiting.extend(reversed(folders))

    def _cannot_list(self, path: str, relative: str, error: OSError) -> None:
        """Note a folder that the operating system does not show us."""
        shown = display_name(_join(self.prefix, relative) if relative else path)
        problem = Unreadable(f"The folder {shown} cannot be listed: {error.strerror}")
        self.finder.found.setdefault(path, Found(path, shown, problem))

    def _is_passed_over(self, entry: "os.DirEntry[str]") -> bool:
        """Tell whether an entry is none of our business: hidden, of macOS, or a link to a folder."""
        over = self.finder.selection.passed_over
        if entry.name.startswith(".") or entry.name in SKIPPED_FOLDERS:
            over["hidden"] += 1
            return True
        if entry.is_symlink() and _is_folder(entry.path):
            over["link"] += 1
            return True
        return False

    def _enters(self, path: str, place: str, *, is_below: bool, matches: bool) -> bool:
        """Tell whether a folder is searched: `is_below` one that was named, or towards what the pattern may match."""
        search = self.finder.search
        if not matches and (self.pattern is None or not self.pattern.may_match_below(place)):
            return False
        if is_below and not search.recursive:
            self.finder.selection.passed_over["folder"] += 1
            return False
        reason = "output_folder" if path == search.barred else ""
        if any(pattern.matches(place) for pattern in search.exclude):
            reason = "excluded"
        if reason:
            self.finder.selection.skipped.append(Skipped(_join(self.prefix, place) + os.sep, reason))
        return not reason


def holds_any(folder: str, kind: Kind) -> bool:
    """Tell whether a folder, searched to its leaves, holds a file that ends like an input."""
    found: Iterator[Any] = os.walk(folder)
    return any(name.rpartition(".")[2].lower() in kind.endings for _, _, names in found for name in names)


def _prefixes(folders: Sequence[str]) -> dict[str, str]:
    """Return what stands in front of the paths below each folder: nothing for a single one, else its name."""
    roots = list(dict.fromkeys(map(_absolute, folders)))
    if len(roots) < 2:  # noqa: PLR2004 - a single folder needs no name
        return dict.fromkeys(roots, "")
    names = [Path(root).name for root in roots]
    if len(set(names)) == len(names):
        return dict(zip(roots, names, strict=True))
    common = os.path.commonpath(roots)
    return {root: "" if root == common else os.path.relpath(root, common) for root in roots}


def _near(path: str) -> str:
    """Return advice that names what its folder has of nearly the same name."""
    folder, name = os.path.split(path)
    try:
        with os.scandir(folder or ".") as entries:
            names = [entry.name for entry in islice(entries, _NAMES_LOOKED_AT)]
    except (OSError, ValueError):
        return "Check the path."
    near = difflib.get_close_matches(name, names, n=1)
    return f"Did you mean {display_name(str(Path(folder, near[0])))}?" if near else "Check the path."


def _is_folder(path: str) -> bool:
    """Tell whether a path leads to a folder; where it cannot be told, it does not."""
    try:
        return path != "" and stat.S_ISDIR(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return False


def _exists(path: str) -> bool:
    """Tell whether something is there, even if we may not look at it."""
    if path == "":
        return False
    try:
        Path(path).lstat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True  # submission says what is wrong with it
    return True


def _join(folder: str, name: str) -> str:
    """Join names as they are: pathlib would tidy those that must stay."""
    return os.path.join(folder, name)  # noqa: PTH118 - see the docstring


def _absolute(path: str) -> str:
    """Return the absolute path by the name that the user gave, not by what a link points to."""
    return os.path.abspath(path)  # noqa: PTH100 - see the docstring
