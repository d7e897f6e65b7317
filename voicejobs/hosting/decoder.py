"""The worker's side of decoding: keeps one zygote alive and turns each file into a stream of PCM blocks.

Nothing of PyAV is loaded here. Many threads may decode at once; each stream belongs to the thread that opened it.
"""

import itertools
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

import numpy as np

from voicejobs import logs
from voicejobs.audio.decode import ChannelMode, DecodedInfo, DecodeOptions
from voicejobs.audio.types import Pcm
from voicejobs.errors import Cancelled, DecoderCrash, DecoderTimeout, ExtraMissing, error_from_json
from voicejobs.hosting.decoder_wire import (
    FRAME,
    HEADER,
    MAX_FRAME_BYTES,
    PCM,
    REPORT,
    TRAILER,
    receive_message,
    send_message,
)
from voicejobs.settings import Settings, inherited_environment

START_TIMEOUT_S = 60.0
SEND_TIMEOUT_S = 30.0
EXIT_TIMEOUT_S = 10.0
CANCEL_POLL_S = 0.5
_KEPT_VARIABLES = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR")
_SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def _never() -> bool:
    """Say that nobody cancels."""
    return False


class Decoder:
    """Decode recordings in child processes; thread-safe.

    Args:
        settings: limits of decoding come from here.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._zygote: _Zygote | None = None
        self._ids = itertools.count(1)

    def options(self, channels: ChannelMode = "mix", *, name: str = "") -> DecodeOptions:
        """Return options with the limits of the settings; messages call the recording `name`, or by its path."""
        return DecodeOptions(
            channels=channels,
            max_audio_s=self._settings.max_audio_s,
            max_bytes=self._settings.max_decoded_bytes,
            memory_bytes=self._settings.decode_memory_bytes,
            name=name,
        )

    def start(self) -> None:
        """Start the zygote unless it runs; `open` does so too.

        Raises:
            ExtraMissing: PyAV is not installed.
            DecoderCrash: the zygote did not come up.
        """
        with self._lock:
            self._running()

    def close(self) -> None:
        """End the zygote and with it every decode that still runs."""
        with self._lock:
            if self._zygote is not None:
                self._zygote.close()
                self._zygote = None

    def __enter__(self) -> Self:
        """Start the zygote."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the zygote."""
        self.close()

    @contextmanager
    def open(
        self,
        path: str | os.PathLike[str],
        options: DecodeOptions | None = None,
        *,
        cancelled: Callable[[], bool] = _never,
    ) -> "Iterator[DecodeStream]":
        """Open a recording and yield its stream; the child ends with the block, whatever happens in it.

        Args:
            path: the recording; relative names count from this process' folder.
            options: what to make of it; those of the settings by default.
            cancelled: asked about twice a second while the stream is read; true ends it with `Cancelled`.

        Raises:
            InputError: the recording is at fault (see `voicejobs.audio.decode.decode`).
            DecoderCrash, DecoderTimeout: its child died, or made no progress.
            Cancelled: `cancelled` said so.
        """
        absolute = os.path.abspath(os.fspath(path))  # noqa: PTH100 - links stay as they are, and bytes stay bytes
        chosen = self.options() if options is None else options
        stream = self._start_stream(absolute, chosen, cancelled)
        try:
            if not stream.read_info():
                # The zygote died before it forked: another one gets a second chance.
                stream.close()
                stream = self._start_stream(absolute, chosen, cancelled)
                if not stream.read_info():
                    raise DecoderCrash(f"{chosen.named(absolute)}: no decoder process could be started")
            yield stream
        finally:
            stream.close()

    def _start_stream(self, path: str, options: DecodeOptions, cancelled: Callable[[], bool]) -> "DecodeStream":
        """Ask the zygote for a child; a dead zygote is replaced."""
        decode_id = next(self._ids)
        message = {"decode": decode_id, "path": path, "options": options.to_json(), "trace_id": logs.bound("trace_id")}
        (data_in, data_out), (report_in, report_out) = _two_pipes()
        try:
            zygote = self._send(message, (data_out, report_out), options.named(path))
        except BaseException:
            os.close(data_in)
            os.close(report_in)
            raise
        finally:
            os.close(data_out)
            os.close(report_out)
        return DecodeStream(path, options, cancelled, _Link(zygote, decode_id, data_in, report_in))

    def _send(self, message: dict[str, Any], fds: tuple[int, ...], name: str) -> "_Zygote":
        """Send a request about the recording `name` to the zygote that runs, or else to a new one."""
        with self._lock:
            for _ in range(2):
                zygote = self._running()
                try:
                    zygote.send(message, fds)
                except OSError:
                    zygote.close()
                    self._zygote = None
                else:
                    return zygote
        raise DecoderCrash(f"{name}: the decoder process takes no request")

    def _running(self) -> "_Zygote":
        """Return the zygote, started anew where it is gone; the lock is held."""
        if self._zygote is not None and not self._zygote.alive:
            self._zygote.close()
            self._zygote = None
        if self._zygote is None:
            self._zygote = _Zygote()
        return self._zygote


def _two_pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Return two pipes, or none where the process has no descriptors left."""
    first = os.pipe()
    try:
        return first, os.pipe()
    except OSError:
        for fd in first:
            os.close(fd)
        raise


def _level() -> str:
    """Return the name of the level at which this process logs: its children do as it does."""
    return logging.getLevelName(logging.getLogger().getEffectiveLevel())


class _Zygote:
    """Own one zygote process and the control socket that keeps it alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair()
        self._control = ours
        inherited = inherited_environment()
        environment = {name: inherited[name] for name in _KEPT_VARIABLES if name in inherited}
        # No PR_SET_PDEATHSIG here: it would strike when the *thread* that starts the zygote ends.
        with theirs:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                    [sys.executable, "-P", "-m", "voicejobs.hosting.zygote", str(theirs.fileno()), _level()],
                    env=environment | _SINGLE_THREADED,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    cwd="/",
                )
            except OSError as error:
                ours.close()
                raise DecoderCrash(f"the decoder process cannot be started ({error.strerror})") from error
        self._await_ready()

    @property
    def alive(self) -> bool:
        """Return whether the process runs."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Return the pid of the process."""
        return self._process.pid

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Send a control message."""
        with self._lock:
            send_message(self._control, message, fds)

    def close(self) -> None:
        """Close the socket, on which the zygote ends with all its children, and wait for it."""
        with self._lock:
            self._control.close()
        try:
            self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _await_ready(self) -> None:
        """Wait until the zygote has loaded PyAV."""
        self._control.settimeout(START_TIMEOUT_S)
        try:
            received = receive_message(self._control)
        except OSError:
            received = None
        self._control.settimeout(SEND_TIMEOUT_S)
        if received is not None and received[0]["ready"]:
            return
        self._process.kill()
        self.close()
        if received is not None:
            raise ExtraMissing(
                f"recordings cannot be decoded: {received[0]['missing']}",
                hint="Install the worker's libraries: pip install 'voicejobs[worker]'.",
            )
        raise DecoderCrash(f"the decoder process did not start (exit status {self._process.returncode})")


class _Link:
    """Own the descriptors of one decode, and read from them without waiting for ever."""

    def __init__(self, zygote: _Zygote, decode_id: int, data_fd: int, report_fd: int) -> None:
        self._zygote = zygote
        self._decode_id = decode_id
        self._data_fd = data_fd
        self._report_fd = report_fd
        self._poll = select.poll()
        self._poll.register(data_fd, select.POLLIN)

    def wait(self, timeout_s: float) -> bool:
        """Return whether there is something to read within `timeout_s`."""
        return bool(self._poll.poll(timeout_s * 1000))

    def read_into(self, view: memoryview) -> int:
        """Read what there is; 0 means that the child is gone."""
        return os.readv(self._data_fd, [view])

    def exit_report(self) -> list[int]:
        """Wait until the child is gone and return its pid and wait status, or as much of that as is known."""
        poll = select.poll()
        poll.register(self._report_fd, select.POLLIN)
        data = b""
        while poll.poll(EXIT_TIMEOUT_S * 1000):
            part = os.read(self._report_fd, 2 * REPORT.size)
            if not part:
                break
            data += part
        return [number for (number,) in REPORT.iter_unpack(data)]

    def close(self, *, ended: bool) -> None:
        """Close everything; a child that has not `ended` by itself is killed first, and waited for."""
        os.close(self._data_fd)
        if not ended:
            with suppress(OSError):
                self._zygote.send({"kill": self._decode_id})
            self.exit_report()
        os.close(self._report_fd)


class DecodeStream:
    """Read one recording while it is decoded; not thread-safe.

    `info` tells what was opened. After `blocks` has ended, `samples` counts the samples of each channel, and
    `skipped_packets` those stretches of the file that could not be decoded.
    """

    info: DecodedInfo

    def __init__(self, path: str, options: DecodeOptions, cancelled: Callable[[], bool], link: _Link) -> None:
        self._name = options.named(path)
        self._options = options
        self._cancelled = cancelled
        self._link: _Link | None = link
        self._ended = False
        self._asked_at = 0.0
        self.samples = 0
        self.skipped_packets = 0

    def blocks(self) -> Iterator[tuple[Pcm, ...]]:
        """Yield blocks of at most about ten seconds, one array for each channel; a single one unless split."""
        while not self._ended:
            kind, payload = self._read_frame()
            if kind == TRAILER:
                self._take_trailer(payload)
                return
            channels = np.frombuffer(payload, dtype=np.int16).reshape(self.info.output_channels, -1)
            yield tuple(channels)

    def read_info(self) -> bool:
        """Wait for the header; return False where no child was started at all. Called by `Decoder.open`."""
        try:
            kind, payload = self._read_frame()
        except _NoChild:
            return False
        if kind == TRAILER:
            self._take_trailer(payload)
        self.info = DecodedInfo.from_json(json.loads(payload))
        return True

    def close(self) -> None:
        """End the child, if need be by killing it; a second call does nothing."""
        if self._link is not None:
            self._link.close(ended=self._ended)
            self._link = None

    def _take_trailer(self, payload: bytearray) -> None:
        """Remember what the child counted, or raise the error that it met."""
        self._ended = True
        trailer = json.loads(payload)
        if "error" in trailer:
            raise error_from_json(trailer["error"])
        self.samples = trailer["samples"]
        self.skipped_packets = trailer["skipped_packets"]

    def _read_frame(self) -> tuple[bytes, bytearray]:
        """Return the next frame."""
        kind, length = FRAME.unpack(self._read_exactly(FRAME.size))
        if kind not in {HEADER, PCM, TRAILER} or length > MAX_FRAME_BYTES:
            raise DecoderCrash(f"{self._name}: the decoder process sent nonsense")
        return kind, self._read_exactly(length)

    def _read_exactly(self, length: int) -> bytearray:
        """Read `length` bytes, watching for cancellation, for a stall and for the end of the child."""
        if self._link is None:
            raise ValueError("the stream is closed")
        data = bytearray(length)
        view = memoryview(data)
        done = 0
        deadline = time.monotonic() + self._options.stall_timeout_s
        while done < length:
            self._check_cancelled()
            if not self._link.wait(CANCEL_POLL_S):
                if time.monotonic() > deadline:
                    raise DecoderTimeout(
                        f"{self._name}: no sound decoded for {self._options.stall_timeout_s:g} s",
                        limit_s=self._options.stall_timeout_s,
                    )
                continue
            count = self._link.read_into(view[done:])
            if count == 0:
                raise self._crash(self._link.exit_report())
            done += count
        return data

    def _check_cancelled(self) -> None:
        """Ask whether the work is still wanted, at most about twice a second."""
        now = time.monotonic()
        if now - self._asked_at < CANCEL_POLL_S:
            return
        self._asked_at = now
        if self._cancelled():
            raise Cancelled(f"{self._name}: cancelled while it was decoded")

    def _crash(self, report: list[int]) -> Exception:
        """Return the error for a child that ended without a trailer."""
        self._ended = True
        if not report:
            return _NoChild()
        if len(report) == 1:
            return DecoderCrash(f"{self._name}: the decoder service died while it was decoded")
        code = os.waitstatus_to_exitcode(report[1])
        if code == -signal.SIGXCPU:
            return DecoderTimeout(f"{self._name}: decoding takes too much CPU time")
        reason = f"signal {-code}" if code < 0 else f"exit status {code}"
        return DecoderCrash(f"{self._name}: the decoder process died of it ({reason})", exit_code=code)


class _NoChild(Exception):  # noqa: N818 - a signal between two functions of this module, no error to show
    """The zygote ended before it forked a child for this stream."""
