"""The decoder zygote: a small single-threaded process with PyAV loaded that forks one child for each file.

`python -m voicejobs.hosting.zygote FD` with FD the control socket (voicejobs.hosting.decoder starts it so). It lives
exactly as long as the other end of that socket is open, so a worker that is killed leaves nothing behind.
"""

import contextlib
import gc
import logging
import os
import selectors
import signal
import socket
import sys
import tempfile
import wave
from dataclasses import dataclass
from typing import Any

from voicejobs import logs
from voicejobs.audio.decode import DecodeOptions, decode
from voicejobs.hosting import decoder_child
from voicejobs.hosting.decoder_wire import REPORT, receive_message, send_message
from voicejobs.hosting.sandbox import Sandbox

logger = logging.getLogger("voicejobs.hosting.zygote")  # `__name__` is that of a script here

_WARM_RATE_HZ = 44_100
_WARM_BYTES = 40_000
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class _Child:
    """Name a running child: the decode it works on and the pipe for its exit report."""

    decode_id: int
    report_fd: int


class Zygote:
    """Serve the control socket until its other end is closed."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, _Child] = {}
        self._selector = selectors.DefaultSelector()
        self._sandbox = Sandbox()
        self._pid = os.getpid()

    def serve(self) -> None:
        """Fork, reap and kill as asked; returns when the worker is gone and every child with it."""
        wake_in, wake_out = socket.socketpair()
        for end in (wake_in, wake_out):
            end.setblocking(False)
        signal.set_wakeup_fd(wake_out.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in _IGNORED:
            # A signal to the whole process group is the worker's to answer: it may want to finish its files.
            signal.signal(number, signal.SIG_IGN)
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(wake_in, selectors.EVENT_READ)
        send_message(self._control, {"ready": True})
        while True:
            ready = {key.fileobj for key, _ in self._selector.select()}
            if wake_in in ready:
                with contextlib.suppress(BlockingIOError):
                    wake_in.recv(4096)
                self._reap()
            if self._control in ready and not self._obey():
                break
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)

    def _obey(self) -> bool:
        """Carry out one control message; return False once the worker is gone."""
        try:
            received = receive_message(self._control)
        except ConnectionError:
            return False
        if received is None:
            return False
        message, fds = received
        if "kill" in message:
            self._kill(message["kill"])
        else:
            self._fork(message, *fds)
        return True

    def _kill(self, decode_id: int) -> None:
        """Kill the child of one decode, unless it is gone: only this process knows that its pid is still its own."""
        for pid, child in self._children.items():
            if child.decode_id == decode_id:
                os.kill(pid, signal.SIGKILL)

    def _fork(self, message: dict[str, Any], data_fd: int, report_fd: int) -> None:
        """Start the child of one decode."""
        try:
            pid = os.fork()
        except OSError:
            # The worker sees both pipes end without a pid, and tries again.
            os.close(report_fd)
        else:
            if pid == 0:
                self._become_child(message, data_fd)
            self._children[pid] = _Child(message["decode"], report_fd)
            _report(report_fd, pid)
            # The child may write to no file, its log included.
            logger.info("decoding", extra={"child": pid, "trace_id": message.get("trace_id")})
        os.close(data_fd)

    def _become_child(self, message: dict[str, Any], data_fd: int) -> None:
        """Turn into a decoder; never returns."""
        try:
            gc.disable()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._sandbox.tie_to_parent()
            if os.getppid() == self._pid:
                options = DecodeOptions.from_json(message["options"])
                decoder_child.run(data_fd, message["path"], options, self._sandbox)
        finally:
            os._exit(1)

    def _reap(self) -> None:
        """Collect every child that has ended, and report how."""
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            child = self._children.pop(pid)
            _report(child.report_fd, status)
            os.close(child.report_fd)


def _report(fd: int, number: int) -> None:
    """Write a number of the exit report; a worker that no longer listens does not matter."""
    with contextlib.suppress(BrokenPipeError):
        os.write(fd, REPORT.pack(number))


def _load() -> None:
    """Load what decoding needs, once for all children, and decode a little sound of our own.

    What the first decode touches (symbols to bind, tables, pages of code) is then ready in every child: it halves the
    page faults of a fork, and they are nearly all that a short file costs.
    """
    import av

    av.logging.set_level(None)
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        with wave.open(file, "wb") as sound:
            sound.setparams((2, 2, _WARM_RATE_HZ, 0, "NONE", ""))
            sound.writeframes(bytes(_WARM_BYTES))
        with decode(file.name, DecodeOptions()) as audio:
            for _ in audio.blocks():
                pass
    # The collector would write to pages that the children share.
    gc.collect()
    gc.freeze()


def main() -> None:
    """Serve the control socket whose descriptor is the first argument."""
    control = socket.socket(fileno=int(sys.argv[1]))
    logs.configure(sys.argv[2] if len(sys.argv) > 2 else "WARNING")  # noqa: PLR2004
    try:
        _load()
    except ImportError as error:
        send_message(control, {"ready": False, "missing": str(error)})
        return
    Zygote(control).serve()


if __name__ == "__main__":
    main()
