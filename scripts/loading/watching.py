"""Memory and CPU time of a server with all its children, looked at while a load test runs."""

import statistics
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import psutil

LOOK_EVERY_S = 1.0
WARM_UP_SHARE = 0.3
_FEWEST_LOOKS = 3


class Watch:
    """Look at a process tree every second, in a thread, while a block runs.

    Args:
        pid: of the server; None watches nothing.
    """

    def __init__(self, pid: int | None) -> None:
        self._root = None if pid is None else psutil.Process(pid)
        self._looks: list[tuple[float, float]] = []
        self._cpu_s: dict[tuple[int, float], float] = {}
        self._cpu_before_s = 0.0
        self._began = 0.0
        self._wall_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        if self._root is not None:
            self._look()
            self._cpu_before_s = sum(self._cpu_s.values())
            self._began = time.monotonic()
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._root is not None:
            self._stop.set()
            self._thread.join()
            self._look()
            self._wall_s = time.monotonic() - self._began

    def summary(self) -> dict[str, Any]:
        """Return peak and end of the memory in MB, its slope after the warm-up in KB/s, and the cores kept busy."""
        if self._root is None or not self._looks:
            return {}
        looks = self._looks[int(len(self._looks) * WARM_UP_SHARE) :]
        slope = 0.0
        if len(looks) >= _FEWEST_LOOKS:
            slope = statistics.linear_regression([at for at, _ in looks], [size for _, size in looks]).slope * 1000
        used_s = sum(self._cpu_s.values()) - self._cpu_before_s
        return {
            "server_mb": self._looks[-1][1],
            "server_peak_mb": max(size for _, size in self._looks),
            "server_kb_per_s": slope,
            "server_cores": used_s / self._wall_s if self._wall_s else 0.0,
        }

    def _run(self) -> None:
        """Look until the block ends."""
        while not self._stop.wait(LOOK_EVERY_S):
            self._look()

    def _look(self) -> None:
        """Add the memory of all processes of the tree, shared pages counted once, and note their CPU time."""
        total = 0.0
        with suppress(psutil.Error):
            for process in [self._root, *self._root.children(recursive=True)] if self._root else []:
                with suppress(psutil.Error):
                    total += process.memory_full_info().pss / 1e6
                    times = process.cpu_times()
                    self._cpu_s[process.pid, process.create_time()] = times.user + times.system
        self._looks.append((time.monotonic() - self._began, total))
