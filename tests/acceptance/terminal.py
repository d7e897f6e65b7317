"""A terminal for the command: what it writes there, the keys that people press, and what they would see."""

import os
import pty
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fcntl import ioctl
from typing import Any

from tests.acceptance.harness import COMMAND, Tree

CTRL_C = b"\x03"


class Screen:
    """Hold what a terminal would show at the end: enough of one for what rich writes."""

    def __init__(self) -> None:
        self.lines: list[str] = [""]
        self.row = self.column = 0
        self.cursor_is_shown = True

    def feed(self, text: str) -> "Screen":
        """Write a text with its control sequences."""
        for part in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+|\x1b", text):
            if part.startswith("\x1b"):
                self._control(part[2:-1], part[-1])
            elif part == "\r":
                self.column = 0
            elif part == "\n":
                self.row, self.column = self.row + 1, 0
                self.lines += [""] * (self.row + 1 - len(self.lines))
            else:
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + part + line[self.column + len(part) :]
                self.column += len(part)
        return self

    def _control(self, numbers: str, letter: str) -> None:
        """Obey one sequence."""
        if letter == "A":
            self.row = max(0, self.row - int(numbers or 1))
        elif letter == "K":
            self.lines[self.row] = "" if numbers == "2" else self.lines[self.row][: self.column]
        elif letter in "lh" and numbers == "?25":
            self.cursor_is_shown = letter == "h"
        else:
            assert letter == "m", f"the test knows no {letter}"


@dataclass(slots=True)
class Terminal:
    """Hold a command that runs on a terminal of its own, which is its controlling one: keys reach it as signals."""

    process: "subprocess.Popen[bytes]"
    master: int
    seen: bytearray = field(default_factory=bytearray)

    def press(self, key: bytes) -> None:
        """Press a key."""
        os.write(self.master, key)

    def resize(self, rows: int, columns: int) -> None:
        """Give the terminal another size; the kernel sends SIGWINCH."""
        ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def text(self) -> str:
        """Return all that was written to it."""
        return bytes(self.seen).decode("utf-8", "replace")

    @property
    def screen(self) -> Screen:
        """Return what it shows."""
        return Screen().feed(self.text)

    def read(self) -> None:
        """Read to the end; in a thread, since a terminal that nobody reads stops the command."""
        try:
            while data := os.read(self.master, 65536):
                self.seen += data
        except OSError:  # Linux says so when the last writer has left
            return


@contextmanager
def terminal(tree: Tree, words: Sequence[Any], *, stdout: int | None = None) -> Iterator[Terminal]:
    """Run a command on a terminal of 100 columns; standard output goes there, too, unless it is redirected."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    environment = {**tree.environment, "TERM": "xterm-256color"}
    for name in ("CI", "NO_COLOR", "COLUMNS", "LINES"):
        environment.pop(name, None)
    process = subprocess.Popen(
        ["setsid", "--ctty", COMMAND, *words],
        stdin=slave,
        stdout=slave if stdout is None else stdout,
        stderr=slave,
        env=environment,
    )
    os.close(slave)
    shown = Terminal(process, master)
    reader = threading.Thread(target=shown.read)
    reader.start()
    try:
        yield shown
        process.wait(timeout=60)
    finally:
        process.kill()
        process.wait()
        reader.join(timeout=10)
        os.close(master)


def on_terminal(tree: Tree, words: Sequence[Any]) -> tuple[int, str, bytes]:
    """Run a command whose standard error is a terminal; return code, what the terminal got, and standard output."""
    reading, writing = os.pipe()
    with terminal(tree, words, stdout=writing) as shown:
        os.close(writing)
        with os.fdopen(reading, "rb") as stream:
            stdout = stream.read()
        code = shown.process.wait(timeout=60)
    return code, shown.text, stdout
