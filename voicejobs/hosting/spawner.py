"""The thread that starts engine processes.

Linux sends the parent-death signal when the *thread* that started a child ends, so that children must be started by
a thread that lives as long as their host, not by one of a pool.
"""

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from voicejobs.errors import ShuttingDown
from voicejobs.settings import inherited_environment

_CHILD = "voicejobs.hosting.child"


@dataclass
class _Order:
    """Ask for one child that inherits the socket `fd`."""

    fd: int
    environment: dict[str, str]
    started: Future["subprocess.Popen[bytes]"] = field(default_factory=Future)


class Spawner:
    """Start children from one long-lived thread, and call `sweep` every `sweep_s` seconds between (None never)."""

    def __init__(self, sweep: Callable[[], None], sweep_s: float | None) -> None:
        self._sweep = sweep
        self._sweep_s = sweep_s
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def spawn(self, fd: int, threads: int) -> "subprocess.Popen[bytes]":
        """Start an engine process of `threads` threads that inherits `fd`.

        Raises:
            ShuttingDown: `close` was called.
        """
        order = _Order(fd, child_environment(threads))
        with self._lock:
            if self._closed:
                raise ShuttingDown("the engine host is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="engine-spawner", daemon=True)
                self._thread.start()
            self._orders.put(order)
        return order.started.result()

    def close(self) -> None:
        """End the thread; children must have ended before, for they die with it."""
        with self._lock:
            self._closed = True
            self._orders.put(None)
        if self._thread is not None:
            self._thread.join()

    def _serve(self) -> None:
        """Start what is asked for until `close`."""
        while True:
            try:
                order = self._orders.get(timeout=self._sweep_s)
            except queue.Empty:
                self._sweep()
                continue
            if order is None:
                return
            try:
                order.started.set_result(_start(order))
            except Exception as error:  # noqa: BLE001  (the thread that asked must hear of it)
                order.started.set_exception(error)


def child_environment(threads: int) -> dict[str, str]:
    """Return the environment of an engine process: ours, with the native thread pools held to `threads`."""
    pools = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    return {
        "GRPC_VERBOSITY": "ERROR",  # its remarks on connections are no lines of our log
        **inherited_environment(),
        **dict.fromkeys(pools, str(threads)),
        "HF_HUB_OFFLINE": "1",  # an engine loads local files only, whatever its library would like to ask
        "PYTHONUNBUFFERED": "1",
    }


def _start(order: _Order) -> "subprocess.Popen[bytes]":
    """Start one child: own session, so that Ctrl-C in the terminal does not reach it; standard output to our log."""
    return subprocess.Popen(  # noqa: S603  (our own interpreter and module, no shell)
        # -P: a file numpy.py in the folder that the user stands in must not be imported.
        [sys.executable, "-P", "-m", _CHILD, str(order.fd), str(os.getpid())],
        env=order.environment,
        pass_fds=(order.fd,),
        stdin=subprocess.DEVNULL,
        stdout=2,
        start_new_session=True,
    )
