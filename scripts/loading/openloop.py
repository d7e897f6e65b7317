"""Send requests on a schedule, whatever becomes of those before, and account for each from when it was due.

A loop that waits for answers before it sends again (closed loop) slows down with the server and hides its delays. Here
request `n` is due at a time that was fixed before the first was sent, and its latency counts from then.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MOST_REQUESTS = 200_000
MOST_SECONDS = 3600.0
MOST_RATE = 2000.0
OK = "OK"
REFUSED = frozenset({"RESOURCE_EXHAUSTED", "UNAVAILABLE", "429", "503"})
"""Answers of a server that sheds load."""
NOT_SENT = "not sent"


@dataclass(frozen=True)
class Schedule:
    """Say what arrives when; all bounded.

    Args:
        rate: requests a second.
        seconds: length of the run.
        count: requests at most; 0: as many as rate and length give.
        poisson: arrivals at random, as from many independent users; else evenly spaced.
        seed: of the arrivals at random.
        in_flight: requests without an answer at most; further ones are counted as not sent.
    """

    rate: float
    seconds: float
    count: int = 0
    poisson: bool = False
    seed: int = 1
    in_flight: int = 2000

    def arrivals_s(self) -> np.ndarray:
        """Return the times in seconds at which requests are due.

        Raises:
            ValueError: it would be longer or larger than a load test may be.
        """
        if not (0 < self.rate <= MOST_RATE and 0 < self.seconds <= MOST_SECONDS):
            raise ValueError(f"rate must be at most {MOST_RATE:g} a second, for at most {MOST_SECONDS:g} s")
        wanted = int(self.rate * self.seconds)
        if self.poisson:
            gaps = np.random.default_rng(self.seed).exponential(1 / self.rate, 2 * wanted + 100)
            times = np.cumsum(gaps)
            times = times[times < self.seconds]
        else:
            times = np.arange(wanted) / self.rate
        times = times[: self.count or MOST_REQUESTS]
        if len(times) > MOST_REQUESTS:
            raise ValueError(f"{len(times)} requests; at most {MOST_REQUESTS} are sent")
        return times


@dataclass
class Account:
    """Collect what became of each request; latencies in seconds from when it was due."""

    latencies_s: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    late_s: list[float] = field(default_factory=list)
    sent: int = 0
    wall_s: float = 0.0
    last_sent_s: float = 0.0

    def summary(self) -> dict[str, Any]:
        """Return the figures; latencies are those of requests answered OK."""
        done = self.statuses[OK]
        total = sum(self.statuses.values())
        refused = sum(count for status, count in self.statuses.items() if status in REFUSED)
        found = np.array(self.latencies_s or [0.0])
        return {
            "requests": total,
            "ok": done,
            "ok_share": done / total if total else 0.0,
            "refused": refused,
            "errors": total - done - refused,
            "statuses": dict(self.statuses),
            "sent_per_s": self.sent / self.last_sent_s if self.last_sent_s else 0.0,
            "ok_per_s": done / self.wall_s if self.wall_s else 0.0,
            "mean_s": float(found.mean()),
            **{f"p{share}_s": float(np.percentile(found, share)) for share in (50, 95, 99)},
            "max_s": float(found.max()),
            # A generator that is late itself measures itself: the figures are then no good.
            "generator_late_p99_s": float(np.percentile(self.late_s, 99)) if self.late_s else 0.0,
            "wall_s": self.wall_s,
        }


async def drive(schedule: Schedule, send: Callable[[int], Awaitable[str]]) -> Account:
    """Send every request of a schedule when it is due, wait for the answers, and return the account.

    Args:
        schedule: when what is due.
        send: sends request `n` and returns the status of its answer; must have a timeout.
    """
    account = Account()
    waiting: set[asyncio.Task[None]] = set()
    began = time.perf_counter()

    async def one(number: int, due: float) -> None:
        account.late_s.append(time.perf_counter() - due)
        status = await send(number)
        if status == OK:
            account.latencies_s.append(time.perf_counter() - due)
        account.statuses[status] += 1

    for number, at_s in enumerate(schedule.arrivals_s()):
        due = began + float(at_s)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        if len(waiting) >= schedule.in_flight:
            account.statuses[NOT_SENT] += 1
            continue
        account.sent += 1
        task = asyncio.create_task(one(number, due))
        waiting.add(task)
        task.add_done_callback(waiting.discard)
    account.last_sent_s = max(time.perf_counter() - began, 1 / schedule.rate)
    if waiting:
        await asyncio.gather(*waiting)
    account.wall_s = time.perf_counter() - began
    return account
