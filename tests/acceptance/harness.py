"""Run the installed command as a user does, find every process of a state folder, and kill them all at once."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from voicejobs.settings import Settings

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
COMMAND = Path(sys.executable).with_name("voicejobs")
RATE_HZ = 16_000
IN_CI = os.environ.get("CI", "").lower() == "true"
Argument = str | os.PathLike[str]


@dataclass(slots=True)
class Tree:
    """Hold a state folder of its own, and run commands in it.

    Args:
        folder: a new folder of this test.
        settings: further settings, by their full names.
        shared_state: a state folder that others use as well; by default `state` in `folder`.
        launcher: words in front of each command, such as those of `powerless`.
    """

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    shared_state: Path | None = None
    launcher: Sequence[str] = ()
    _started: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    @property
    def state(self) -> Path:
        """Return the state folder."""
        return self.shared_state or self.folder / "state"

    @property
    def out(self) -> Path:
        """Return the output folder."""
        return self.folder / "out"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of the commands."""
        ours = {"VOICEJOBS_STATE_DIR": str(self.state), "VOICEJOBS_LINGER_S": "0", "PYTHONUNBUFFERED": "1"}
        return {**os.environ, **ours, **self.settings}

    def values(self) -> Settings:
        """Return the settings as the commands read them."""
        return Settings.from_env(self.environment)

    def start(
        self,
        *arguments: Argument,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        cwd: Path | None = None,
    ) -> "subprocess.Popen[bytes]":
        """Start the command in a session of its own."""
        process = subprocess.Popen(
            [*self.launcher, COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=self.environment,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def run(self, *arguments: Argument, timeout_s: float = 100.0, cwd: Path | None = None) -> "Outcome":
        """Run the command to its end."""
        process = self.start(*arguments, cwd=cwd)
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            _, stderr = process.communicate()
            pytest.fail(f"the command did not end within {timeout_s} s:\n{stderr.decode(errors='replace')}")
        return Outcome(process.returncode, (stdout or b"").decode("utf-8", "replace"), (stderr or b"").decode())

    def transcribe(self, *arguments: Argument, timeout_s: float = 100.0) -> "Outcome":
        """Run `voicejobs transcribe` with the engine fake into the output folder."""
        words = ("transcribe", *arguments, "-o", self.out, "--engine", "fake", "--no-progress")
        return self.run(*words, timeout_s=timeout_s)

    def show(self, *arguments: Argument) -> Any:
        """Return the JSON document of a command, without its frame."""
        done = self.run(*arguments, "--json")
        assert done.code == 0, done.stderr
        frame = json.loads(done.stdout)
        assert frame.pop("v") == 1
        (document,) = frame.values()
        return document

    def processes(self) -> set[psutil.Process]:
        """Return every process of this state folder: by its environment or its words, and all that these started."""
        found: set[psutil.Process] = set()
        marks = (str(self.state), str(self.values().runtime_dir))
        for process in psutil.process_iter():
            with _gone_is_fine():
                environment = process.environ()
                if environment.get("VOICEJOBS_STATE_DIR") == marks[0] or any(
                    mark in word for word in process.cmdline() for mark in marks
                ):
                    found |= {process, *process.children(recursive=True)}
        return {process for process in found if _is_alive(process) and process.pid != os.getpid()}

    def kill(self) -> set[psutil.Process]:
        """`kill -9` the whole tree at one moment: everything is stopped first, so that nothing is born meanwhile."""
        stopped: set[psutil.Process] = set()
        while new := self.processes() - stopped:
            for process in new:
                with _gone_is_fine():
                    process.suspend()
            stopped |= new
        for process in stopped:
            with _gone_is_fine():
                process.kill()
        # A zombie is dead: it waits only for its parent, which may be this process.
        wait_for(lambda: not any(_is_alive(process) for process in stopped), "the end of the killed processes")
        return stopped

    def close(self) -> None:
        """End what is left, and the pipes to it."""
        self.kill()
        self.close_pipes()
        shutil.rmtree(self.values().runtime_dir, ignore_errors=True)

    def close_pipes(self) -> None:
        """Close the pipes to commands that have ended."""
        for process in self._started:
            process.wait(timeout=10)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


@dataclass(frozen=True, slots=True)
class Outcome:
    """Hold what a command returned and wrote."""

    code: int
    stdout: str
    stderr: str


def wait_for(condition: Callable[[], Any], what: str, timeout_s: float = 30.0) -> Any:
    """Return the first true value of `condition`; fail after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout_s} s for {what}")
        time.sleep(0.02)
    return value


def missing(reason: str) -> NoReturn:
    """Skip on a laptop, fail in CI."""
    if IN_CI:
        pytest.fail(f"{reason} (and CI=true)", pytrace=False)
    pytest.skip(reason)


def powerless() -> Sequence[str]:
    """Return the words that make a command obey the rights of files, which root does not; skip where nothing does.

    Another user could not run an interpreter that lies in root's home. Without these two capabilities root is to files
    what anybody else is to his own.
    """
    if os.geteuid() != 0:
        return ()
    setpriv = shutil.which("setpriv")
    lost = "-dac_override,-dac_read_search"
    words = [str(setpriv), f"--bounding-set={lost}", f"--inh-caps={lost}"]
    with tempfile.NamedTemporaryFile() as locked:
        Path(locked.name).chmod(0)
        able = setpriv is not None and subprocess.run([*words, "true"], check=False).returncode == 0
        if not able or subprocess.run([*words, "cat", locked.name], capture_output=True, check=False).returncode == 0:
            missing("root cannot give up its power over files here (setpriv)")
    return words


def shared_speech(*names: str) -> list[Path]:
    """Return recordings of ../shared/speech; skip where they are missing."""
    paths = [SHARED / "speech" / name for name in names]
    for path in paths:
        if not path.is_file():
            pytest.skip(f"{path} is missing")
    return paths


def manifest() -> list[dict[str, Any]]:
    """Return the rows of ../shared/speech/manifest.jsonl; skip where it is missing."""
    path = SHARED / "speech" / "manifest.jsonl"
    if not path.is_file():
        pytest.skip(f"{path} is missing")
    return [json.loads(line) for line in path.read_text().splitlines()]


def word_errors(said: Sequence[str], heard: Sequence[str]) -> float:
    """Return the pooled word error rate, case and punctuation aside."""
    import jiwer

    return float(jiwer.wer(list(map(_plain_words, said)), list(map(_plain_words, heard))))


def _plain_words(text: str) -> str:
    """Return the words of a text without case and punctuation."""
    return " ".join(re.sub(r"[^\w\s]", "", unicodedata.normalize("NFKC", text).lower()).split())


def example_speech() -> NDArray[np.int16]:
    """Return the speech of an example of ours at 16 kHz, one channel."""
    import soundfile

    samples, rate = soundfile.read(ROOT / "examples" / "harbor.flac", dtype="int16", always_2d=True)
    places = np.arange(0, len(samples) - 1, rate / RATE_HZ)
    return np.asarray(np.interp(places, np.arange(len(samples)), samples[:, 0]), np.int16)


def write_recording(path: Path, samples: NDArray[np.int16]) -> Path:
    """Write samples at 16 kHz in the format that the path's ending names."""
    import soundfile

    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, RATE_HZ, subtype="PCM_16")
    return path


def speech_files(folder: Path, count: int, seed: int = 1) -> list[Path]:
    """Write `count` different short recordings of speech, some below other folders."""
    speech = example_speech()
    random = np.random.default_rng(seed)
    paths = []
    for number in range(count):
        name = f"part {number % 3}/{number:03}.flac" if number % 2 else f"{number:03}.wav"
        length, loudness = int(random.integers(3, 6) * RATE_HZ), random.uniform(0.4, 0.9)
        start = int(random.integers(0, len(speech) - length)) if length < len(speech) else 0
        paths.append(write_recording(folder / name, (speech[start : start + length] * loudness).astype(np.int16)))
    return paths


def files_below(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder, hidden ones too, by relative path.

    A file that is renamed while we look, as outputs are when they are whole, is passed over under its old name.
    """
    paths: Sequence[Path] = sorted(path for path in folder.rglob("*") if path.is_file())
    found: dict[str, str] = {}
    for path in paths:
        with suppress(FileNotFoundError):
            found[os.fspath(path.relative_to(folder))] = sha256(path.read_bytes()).hexdigest()
    return found


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    """Pass over processes that end while we look at them, and those of other users."""
    try:
        yield
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return


def _is_alive(process: psutil.Process) -> bool:
    """Tell whether a process runs; a zombie does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
