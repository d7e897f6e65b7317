"""Keep child processes running: start them again with back-off, and end them in time."""

import logging
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from voicejobs.errors import StackUnavailable

logger = logging.getLogger(__name__)

MAX_QUICK_DEATHS = 5
QUICK_DEATH_S = 10.0
BACK_OFF_S = 0.1
BACK_OFF_CAP_S = 30.0


@dataclass(slots=True)
class Child:
    """Hold a process that must run, and how often it died young.

    Args:
        name: for logs and messages.
        start: starts it; told whether the process before it died by itself.
        grace_s: time between SIGTERM and SIGKILL.
        ready: waits until it can be used.
        log: where it writes, for messages.
        max_quick_deaths: deaths in a row, each within seconds of the start, after which nobody tries again.
    """

    name: str
    start: Callable[[bool], "subprocess.Popen[bytes]"]
    grace_s: float
    ready: Callable[["subprocess.Popen[bytes]"], None] = lambda process: None
    log: str = ""
    max_quick_deaths: int = MAX_QUICK_DEATHS
    process: "subprocess.Popen[bytes] | None" = None
    started_at: float = 0.0
    has_died: bool = False
    quick_deaths: int = 0
    not_before: float = 0.0
    is_expected_to_end: bool = False

    @property
    def is_running(self) -> bool:
        """Tell whether the process is there."""
        return self.process is not None and self.process.poll() is None


@dataclass(slots=True)
class Children:
    """Mind several children in the order of their start.

    Args:
        children: who they are.
        on_start: called after each start, for example to note the pids.
    """

    children: Sequence[Child]
    on_start: Callable[[], None] = lambda: None
    killed: list[str] = field(default_factory=list)

    def mind(self) -> None:
        """Start what does not run, with back-off for what dies young; a later child waits for those before it.

        Raises:
            StackUnavailable: a child died young too often.
        """
        now = time.monotonic()
        for child in self.children:
            if child.is_running:
                continue
            if child.process is not None:
                self._note_end(child, now)
            if now < child.not_before:
                return
            child.process = child.start(child.has_died)
            child.started_at = now
            self.on_start()
            child.ready(child.process)

    def pids(self) -> list[int]:
        """Return the ids of the processes that were started last."""
        return [child.process.pid for child in self.children if child.process is not None]

    @staticmethod
    def _note_end(child: Child, now: float) -> None:
        """Count a death, and wait the longer the more often it happens; an end that we asked for is none."""
        code = child.process.returncode if child.process else None
        child.process = None
        child.has_died = not child.is_expected_to_end
        if child.is_expected_to_end:
            child.is_expected_to_end = False
            return
        logger.warning("child ended", extra={"child": child.name, "code": code})
        child.quick_deaths = child.quick_deaths + 1 if now - child.started_at < QUICK_DEATH_S else 0
        if child.quick_deaths >= child.max_quick_deaths:
            where = f"; see {child.log}" if child.log else ""
            raise StackUnavailable(f"The {child.name} ended {child.quick_deaths} times in a row (code {code}){where}")
        child.not_before = now + min(BACK_OFF_CAP_S, BACK_OFF_S * 2.0**child.quick_deaths)

    def stop_in_turn(self) -> None:
        """End the children one by one, those that were started last first: a server outlives who uses it."""
        for child in reversed(self.children):
            if child.is_running and child.process is not None:
                child.process.terminate()
                self._wait(child, time.monotonic() + child.grace_s)

    def stop_together(self, *, hurry: Callable[[], bool] = lambda: False) -> None:
        """Ask all children to end at once, and kill those that are still there after their time.

        Args:
            hurry: asked again and again; True kills at once.
        """
        for child in self.children:
            if child.is_running and child.process is not None:
                child.process.terminate()
        asked_at = time.monotonic()
        for child in self.children:
            self._wait(child, asked_at + child.grace_s, hurry)

    def _wait(self, child: Child, deadline: float, hurry: Callable[[], bool] = lambda: False) -> None:
        """Wait for the end of a child, and kill it where it takes too long."""
        process = child.process
        while process is not None and process.poll() is None:
            if time.monotonic() > deadline or hurry():
                self.killed.append(child.name)
                process.kill()
                process.wait()
                return
            try:
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
