"""Find the inputs of a command, and name their outputs: the tree is mirrored, and no two inputs share a name."""

import os
import stat
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from voicejobs.errors import BadOption, NotAudio, NotFound, Unreadable
from voicejobs.store.paths import display_name
from voicejobs.submit import InputFile

_ENDINGS = (
    "3gp aac ac3 aif aifc aiff amr asf au avi caf eac3 f4a f4v flac gsm m2ts m4a m4b m4r m4v mka mkv mov mp2 mp3 mp4 "
    "mpeg mpg mts oga ogg ogv opus ra rf64 spx ts w64 wav wave webm wma wmv"
)
AUDIO_ENDINGS = frozenset(_ENDINGS.split())
"""Endings that make a file in a folder an input; a file that is named itself may end as it likes."""

SKIPPED_FOLDERS = frozenset({"__MACOSX", ".voicejobs"})


@dataclass(frozen=True, slots=True)
class Found:
    """Name an input: its path, and its place below the folder that was named."""

    path: str
    relative: str


def find_inputs(paths: Sequence[str]) -> list[Found]:
    """Return the regular files that `paths` name or hold, each once, folders searched to their leaves.

    Inside folders, hidden files and files that do not end like audio are passed over, and links to folders are not
    followed. Several folders keep their own names in front, so that they do not mix.

    Raises:
        NotFound, Unreadable, NotAudio: a path that was named does not exist, cannot be listed, or is a pipe or device.
    """
    folders = [path for path in paths if Path(path).is_dir()]
    found: dict[str, Found] = {}
    for path in paths:
        if path in folders:
            prefix = Path(os.path.abspath(path)).name if len(set(folders)) > 1 else ""  # noqa: PTH100 - no links resolved
            for one in _walk(path, prefix):
                found.setdefault(one.path, one)
        elif os.path.lexists(path):
            _demand_regular(path)
            absolute = os.path.abspath(path)  # noqa: PTH100 - the name the user gave, not what a link points to
            found.setdefault(absolute, Found(absolute, Path(path).name))
        else:
            raise NotFound(f"{display_name(path)} is not there")
    return list(found.values())


def _demand_regular(path: str) -> None:
    """Refuse what is no file on a disk: reading a pipe or a device may never end.

    Raises:
        NotAudio: it is one of these.
    """
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return  # submission says what is wrong with it
    if not stat.S_ISREG(mode):
        raise NotAudio(f"{display_name(path)} is not a regular file", hint="Name a file that holds a recording.")


def _walk(folder: str, prefix: str) -> Iterator[Found]:
    """Yield the inputs below a folder, in the order of their names."""
    root = os.path.abspath(folder)  # noqa: PTH100 - see above

    def give_up(error: OSError) -> None:
        if error.filename == root:
            raise Unreadable(f"{display_name(folder)} cannot be listed: {error.strerror}")

    for current, folders, files in os.walk(root, onerror=give_up):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED_FOLDERS)
        for name in sorted(files):
            path = os.path.join(current, name)  # noqa: PTH118 - pathlib would tidy names that must stay as they are
            if _is_input(path, name):
                yield Found(path, os.path.join(prefix, os.path.relpath(path, root)))  # noqa: PTH118


def _is_input(path: str, name: str) -> bool:
    """Tell whether a file found in a folder looks like audio."""
    if name.startswith(".") or name.rpartition(".")[2].lower() not in AUDIO_ENDINGS:
        return False
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except OSError:
        return True  # it is named like audio: better an error that names it than silence


def name_outputs(found: Sequence[Found], output_dir: Path) -> list[InputFile]:
    """Return the inputs with the stems of their outputs: without the ending, or with it where stems would collide."""
    root = os.path.abspath(output_dir)  # noqa: PTH100 - see above
    stems = Counter(_stem(one.relative) for one in found)
    used: set[str] = set()
    files = []
    for one in found:
        stem = one.relative if stems[_stem(one.relative)] > 1 else _stem(one.relative)
        number = 2
        candidate = stem
        while candidate in used:
            candidate = f"{stem}-{number}"
            number += 1
        used.add(candidate)
        files.append(InputFile(one.path, one.relative, os.path.join(root, candidate)))  # noqa: PTH118
    return files


def _stem(relative: str) -> str:
    """Return a relative path without the ending of its file name."""
    return os.path.splitext(relative)[0]  # noqa: PTH122 - `.with_suffix` fails on names such as `..wav`


def require_writable(folder: Path) -> None:
    """Make the output folder and try to write there, before any work is done for it.

    Raises:
        BadOption: it cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # has no name, so that a kill leaves none behind
            pass
    except OSError as error:
        raise BadOption(
            f"The output folder {display_name(folder)} cannot be written: {error.strerror}",
            hint="Choose another with -o, or change its rights.",
        ) from error
