"""What a decoder child may no longer do."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, socket, sys
from voicejobs.hosting.sandbox import Sandbox
sandbox = Sandbox()
sandbox.lock()
deeds = {
    "socket": lambda: socket.socket(),
    "fork": lambda: os.fork(),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "write": lambda: os.open("new", os.O_WRONLY | os.O_CREAT),
    "append": lambda: os.open("kept", os.O_WRONLY | os.O_APPEND),
    "truncate": lambda: os.truncate("kept", 0),
    "unlink": lambda: os.unlink("kept"),
    "rename": lambda: os.rename("kept", "lost"),
    "link": lambda: os.link("kept", "again"),
    "mkdir": lambda: os.mkdir("folder"),
    "chmod": lambda: os.chmod("kept", 0o777),
    "kill": lambda: os.kill(os.getppid(), 0),
}
for name, deed in deeds.items():
    try:
        deed()
    except PermissionError:
        print("denied", name)
    else:
        os.write(1, b"allowed\\n")
with open("kept") as file:
    print("read", file.read())
"""


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in {"x86_64", "aarch64"}, reason="the filter is Linux's"
)
def test_only_reading_and_computing_are_left(tmp_path: Path) -> None:
    """Network, processes and every change to files are denied; reading goes on, and no file was touched."""
    (tmp_path / "kept").write_text("sound")
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[-1] == "read sound"
    assert [line.split()[0] for line in lines[:-1]] == ["denied"] * 12
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
