"""Where outputs go: a folder that must take them, found out before the work, or standard output."""

import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from voicejobs.audio import encode
from voicejobs.errors import BadOption, DiskFull
from voicejobs.formats import extension
from voicejobs.store.blobs import map_os_error
from voicejobs.store.paths import display_name
from voicejobs.submit import InputFile

STDOUT = Path("-")


def require_writable(folder: Path) -> None:
    """Make the output folder and try to write there, before any work is done for it.

    Raises:
        BadOption: it cannot be made or written.
        DiskFull: it has no room.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as trial:  # has no name, so that a kill leaves none behind
            trial.write(b"\0" * 4096)
            trial.flush()
    except OSError as error:
        if isinstance(map_os_error(error, folder), DiskFull):
            raise DiskFull(
                f"The output folder {display_name(folder)} cannot be written: {error.strerror}",
                hint="Free some space, then run the command again.",
            ) from error
        raise BadOption(
            f"The output folder {display_name(folder)} cannot be written: {error.strerror}",
            hint="Choose another with -o, or change its rights.",
        ) from error


def require_folders(files: Iterable[InputFile], root: Path) -> None:
    """Refuse an output folder in which a file stands where a folder of the tree must be.

    Raises:
        BadOption: one does.
    """
    folders = {folder for folder in {Path(file.target.replace("\0", "")).parent for file in files} if folder != root}
    checked: set[Path] = set()
    for folder in folders:
        for part in (folder, *folder.parents):
            if part in checked or part == root:
                break
            checked.add(part)
            if part.exists() and not part.is_dir():
                raise BadOption(
                    f"{display_name(part)} is in the way: a folder of that name is needed",
                    hint="Move it away, or choose another output folder with -o.",
                )


def ending(name: str) -> str:
    """Return the ending of the files of a format, of sound or of text; no two have the same name."""
    return encode.extension(name) if name in encode.FORMATS else extension(name)


def formats_of(file: InputFile, formats: Sequence[str]) -> list[str]:
    """Return the formats of the outputs of an input: those of the command, or the format of sound that it asks for."""
    own = [name for options in file.options.values() for name in options.get("formats", ())]
    return [*own, *(name for name in formats if name not in encode.FORMATS)] if own else list(formats)


def output_paths(file: InputFile, formats: Sequence[str]) -> list[str]:
    """Return the paths of the outputs of an input."""
    return [file.target + ending(name) for name in formats_of(file, formats)]


def all_exist(file: InputFile, formats: Sequence[str]) -> bool:
    """Tell whether every output of an input is there, whoever wrote it."""
    return all(Path(path).exists() for path in output_paths(file, formats))


def print_output(folder: Path) -> None:
    """Copy the one output in a private folder to standard output; on a terminal, what would control it is escaped."""
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        if sys.stdout.isatty():
            data = _harmless(data.decode("utf-8", "replace")).encode()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _harmless(text: str) -> str:
    """Return text whose characters move nothing but the cursor, and that only onwards."""
    text = text.replace("\r\n", "\n")
    return "".join(
        character if character.isprintable() or character in "\n\t\u200d\u3000\u00a0" else ascii(character)[1:-1]
        for character in text
    )
