"""Where the log of a command goes: to the file of `--log-file` as JSON lines, and with `-v` to standard error."""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from voicejobs.errors import OutputUnwritable
from voicejobs.logs import JsonFormatter

logger = logging.getLogger("voicejobs.cli")


@contextmanager
def logging_to(log_file: Path | None, verbose: int, command: str) -> Iterator[None]:
    """Send logs to their places for the time of the block, which is logged itself.

    Raises:
        OutputUnwritable: the file cannot be opened.
    """
    root = logging.getLogger()
    before = root.level
    handlers = list(_handlers(log_file, verbose))
    for handler in handlers:
        if verbose <= 1:
            handler.addFilter(_is_ours)
        root.addHandler(handler)
    root.setLevel(logging.DEBUG if verbose > 1 else logging.INFO)
    began = time.monotonic()
    try:
        logger.info("command started", extra={"command": command})
        yield
        logger.info("command ended", extra={"command": command, "seconds": round(time.monotonic() - began, 3)})
    except BaseException as error:
        code = getattr(error, "code", type(error).__name__)
        logger.info("command ended with an error", extra={"command": command, "code": code})
        raise
    finally:
        root.setLevel(before)
        for handler in handlers:
            root.removeHandler(handler)
            handler.close()


def _is_ours(record: logging.LogRecord) -> bool:
    """Tell whether a line is of voicejobs, or a warning: libraries talk too much."""
    return record.name.startswith("voicejobs") or record.levelno >= logging.WARNING


def _handlers(log_file: Path | None, verbose: int) -> Iterator[logging.Handler]:
    """Yield the places where the log goes."""
    if log_file is not None:
        try:
            file = logging.FileHandler(log_file, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise OutputUnwritable(
                f"The log file {log_file} cannot be written: {error.strerror}",
                hint="Name a file with --log-file in a folder that is there and that you can write.",
            ) from error
        file.setFormatter(JsonFormatter())
        yield file
    if verbose:
        shown = logging.StreamHandler(sys.stderr)
        shown.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
        yield shown
