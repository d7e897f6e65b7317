"""How far a run is, by seconds of audio, and how long the rest takes: only what is known, or follows from it."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from voicejobs.cli.report import ActiveFile, Snapshot
from voicejobs.queries import Active

WORKING = frozenset(("recognise", "synthesise"))
"""Steps that tell how many seconds of audio they have behind them."""
WRITING = frozenset(("deliver", "join"))
"""Steps that have only the files to write."""
ETA_AFTER_S = 2.0
"""No time is foretold from less work than this."""
FEW_S = 1.0
MAX_ACTIVE = 8


@dataclass(slots=True)
class _Sums:
    """Sum up the files of one ending."""

    known_audio_s: float = 0.0
    known_bytes: int = 0
    pending_bytes: int = 0


@dataclass(slots=True)
class _Watched:
    """Remember since when a file has been seen at work, and how much of it is done at least."""

    since: float
    first_s: float
    done_s: float


@dataclass(slots=True)
class Estimate:
    """Follow the jobs of a run.

    The length of a file is known once it has been decoded. Until then it is taken to be as long for its bytes as the
    known ones of its ending are, or all known ones.
    """

    clock: Callable[[], float] = time.monotonic
    files: int = 0
    files_done: int = 0
    _pending: dict[str, tuple[str, int]] = field(default_factory=dict)
    _sums: defaultdict[str, _Sums] = field(default_factory=lambda: defaultdict(_Sums))
    _finished_s: float = 0.0
    _watched: dict[str, _Watched] = field(default_factory=dict)
    _active: list[ActiveFile] = field(default_factory=list)
    _began: float | None = None

    def expect(self, job_id: str, name: str, size: int) -> None:
        """Note a file that is to be done."""
        ending = name.rpartition(".")[2].lower()
        self._pending[job_id] = (ending, size)
        self._sums[ending].pending_bytes += size

    def finished(self, job_id: str, audio_s: float | None, *, succeeded: bool = True) -> None:
        """Note a file that has ended."""
        self._start()
        ending, size = self._pending.pop(job_id, ("", 0))
        self._watched.pop(job_id, None)
        sums = self._sums[ending]
        sums.pending_bytes -= size
        if succeeded and audio_s:
            sums.known_bytes += size
            sums.known_audio_s += audio_s
            self._finished_s += audio_s

    def active(self, jobs: Sequence[Active]) -> None:
        """Note what is at work."""
        ours = [job for job in jobs if job.job_id in self._pending]
        if ours:
            self._start()
        self._active = [self._watch(job) for job in ours]
        self._watched = {one.job: self._watched[one.job] for one in self._active}

    def snapshot(self) -> Snapshot:
        """Return how far the run is."""
        done_s = self._finished_s + sum(one.done_s for one in self._active)
        total_s, is_estimate = self._total()
        elapsed_s = 0.0 if self._began is None else self.clock() - self._began
        speed = done_s / elapsed_s if done_s and elapsed_s >= FEW_S else None
        eta_s = None
        if speed and total_s is not None and elapsed_s >= ETA_AFTER_S:
            eta_s = max(0.0, total_s - done_s) / speed
        return Snapshot(
            files=self.files,
            files_done=self.files_done,
            audio_done_s=done_s,
            audio_total_s=total_s,
            is_estimate=is_estimate,
            speed=speed,
            eta_s=eta_s,
            active=tuple(self._active[:MAX_ACTIVE]),
        )

    def _start(self) -> None:
        """Start the clock with the first sign of work."""
        if self._began is None:
            self._began = self.clock()

    def _watch(self, job: Active) -> ActiveFile:
        """Return how far a file is; it never goes back, whatever step it is in."""
        now = self.clock()
        seconds = job.progress_s if job.step in WORKING else (job.audio_s or 0.0) if job.step in WRITING else 0.0
        if job.audio_s is not None:
            seconds = min(seconds, job.audio_s)
        watched = self._watched.setdefault(job.job_id, _Watched(now, seconds, seconds))
        watched.done_s = max(watched.done_s, seconds)
        spent_s = now - watched.since
        gained_s = watched.done_s - watched.first_s
        speed = gained_s / spent_s if gained_s and spent_s >= FEW_S else None
        left_s = None if job.audio_s is None else job.audio_s - watched.done_s
        eta_s = left_s / speed if speed and left_s is not None else None
        return ActiveFile(job.job_id, job.name, job.step, watched.done_s, job.audio_s, speed, eta_s)

    def _total(self) -> tuple[float | None, bool]:
        """Return the seconds of audio of the whole run, and whether some of it is estimated."""
        known_s = self._finished_s + sum(one.total_s or 0.0 for one in self._active)
        waiting = {ending: sums.pending_bytes for ending, sums in self._sums.items()}
        sums = {ending: _Sums(one.known_audio_s, one.known_bytes) for ending, one in self._sums.items()}
        for one in self._active:
            if one.total_s is not None:
                ending, size = self._pending[one.job]
                waiting[ending] -= size
                sums[ending].known_audio_s += one.total_s
                sums[ending].known_bytes += size
        if not any(waiting.values()):
            return known_s, False
        all_bytes = sum(one.known_bytes for one in sums.values())
        if not all_bytes:
            return None, True
        overall = sum(one.known_audio_s for one in sums.values()) / all_bytes
        for ending, size in waiting.items():
            like = sums[ending]
            known_s += size * (like.known_audio_s / like.known_bytes if like.known_bytes else overall)
        return known_s, True
