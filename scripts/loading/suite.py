"""The before and after of our own optimisations, and the highest rate of a real model, each against its own server."""

import argparse
import asyncio
import gc
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from benchmarks.recordings import speech
from benchmarks.report import print_table
from loading.clients import GrpcClient, GrpcOptions, sounds
from loading.openloop import Schedule, drive
from loading.servers import ServerPlan, serving
from loading.watching import Watch

from voicejobs.audio import resample

LENGTH_S = 5.0
LEAST_OK = 0.99
MOST_P95_S = 0.8
MOST_SLOPE_KB_PER_S = 100.0
LEAST_SECONDS = 60.0
MOST_LATE_S = 0.1
ON_TIME = "the load was sent on time: 99 of 100 requests at most 0.1 s late"
"""Else the generator measured itself."""
WARM_UP_REQUESTS = 40
HONEST_P95_OF_LENGTH = 1.0
"""The highest rate of a real model is that at which 95 of 100 answers come within the length of the sound."""
_ROUNDS = 5


@dataclass(frozen=True)
class Variant:
    """Name one way to do it.

    Args:
        name: in the table.
        batch_size: windows of one engine call.
        channels: shared channels; 0: one for each request.
        audio_format: of the requests: what is not 16 kHz is resampled by the server.
        single_window: without a search for speech.
    """

    name: str
    batch_size: int
    channels: int
    audio_format: str = "pcm_s16le_16k"
    single_window: bool = False


VARIANTS = (
    Variant("before: batch 1, channel per call", 1, 0),
    Variant("batch 1, pooled channels", 1, 2),
    Variant("batching, channel per call", 8, 0),
    Variant("after: batching, pooled channels", 8, 2),
    Variant("after, sound at 44.1 kHz", 8, 2, "pcm_s16le_44100"),
    Variant("after, no search for speech", 8, 2, single_window=True),
)
CLAIMED = "after: batching, pooled channels"
"""The one that must hold."""


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run all variants, then the real model, and return the figures with what they say."""
    found = {variant.name: asyncio.run(_variant(variant, arguments)) for variant in VARIANTS}
    print_table(
        [
            (
                "fake engine",
                "OK",
                "refused",
                "errors",
                "mean s",
                "p50",
                "p95",
                "p99",
                "OK/s",
                "cores",
                "peak MB",
                "KB/s",
            ),
            *((name, *cells(one)) for name, one in found.items()),
        ]
    )
    print(
        f"\n{arguments.rate:g} requests a second, {LENGTH_S:g} s of audio each, for {arguments.seconds:g} s; one engine"
    )
    print("process that sleeps 30 ms a call and 4 ms a window: no model is that fast, and these are not its figures.")
    resampling = _resampling()
    print_table([("resampling 5 s at 44.1 kHz", "ms"), *((name, f"{value:.1f}") for name, value in resampling.items())])
    honest = {model: asyncio.run(_honest(model, arguments)) for model in arguments.honest}
    for model, one in honest.items():
        print(f"{model}: highest rate {one['rate']:g} a second with p95 {one['p95_s']:.1f} s within {LENGTH_S:g} s")
    after = found[CLAIMED]
    holds = {
        f"{CLAIMED}: at least {LEAST_OK:.0%} answered OK": after["ok_share"] >= LEAST_OK,
        f"{CLAIMED}: p95 under {MOST_P95_S} s": after["p95_s"] < MOST_P95_S,
        ON_TIME: max(one["generator_late_p99_s"] for one in found.values()) < MOST_LATE_S,
    }
    if arguments.seconds >= LEAST_SECONDS:  # before that, pools and caches still fill
        slope = after["server_kb_per_s"]
        holds[f"{CLAIMED}: memory grows by less than {MOST_SLOPE_KB_PER_S:g} KB/s"] = slope < MOST_SLOPE_KB_PER_S
    return {"variants": found, "resampling_ms": resampling, "honest": honest, "holds": holds}


def cells(one: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of one run."""
    return (
        f"{one['ok_share']:.1%}",
        str(one["refused"]),
        str(one["errors"]),
        *(f"{one[name]:.3f}" for name in ("mean_s", "p50_s", "p95_s", "p99_s")),
        f"{one['ok_per_s']:.1f}",
        f"{one.get('server_cores', 0.0):.2f}",
        f"{one.get('server_peak_mb', 0.0):.0f}",
        f"{one.get('server_kb_per_s', 0.0):+.0f}",
    )


async def _variant(variant: Variant, arguments: argparse.Namespace) -> dict[str, Any]:
    """Start a server for a variant, load it, and return the figures."""
    plan = ServerPlan(batch_size=variant.batch_size, processes=arguments.processes)
    schedule = Schedule(arguments.rate, arguments.seconds, poisson=arguments.poisson)
    options = GrpcOptions(
        "", channels=variant.channels, audio_format=variant.audio_format, single_window=variant.single_window
    )
    return await _load(plan, schedule, options)


async def _load(plan: ServerPlan, schedule: Schedule, options: GrpcOptions) -> dict[str, Any]:
    """Start a server, warm it up, load it."""
    rate_hz = 44_100 if options.audio_format.endswith("44100") else 16_000
    payloads = sounds(LENGTH_S, rate_hz, speech=speech())
    with serving(plan) as server:
        async with GrpcClient(replace(options, address=server.address), payloads) as client:
            for number in range(WARM_UP_REQUESTS if not plan.model else 2):
                await client.send(number)
            gc.collect()
            with Watch(server.pid) as watch:
                account = await drive(schedule, client.send)
    return {**account.summary(), **watch.summary()}


def _resampling() -> dict[str, float]:
    """Return milliseconds for five seconds in frames of 20 ms: filter and state made anew each time, or kept."""
    sound = np.random.default_rng(1).uniform(-0.3, 0.3, 5 * 44_100).astype(np.float32)
    frames = [sound[start : start + 882] for start in range(0, len(sound), 882)]

    def anew() -> None:
        for frame in frames:
            resample._filters.cache_clear()  # noqa: SLF001 - what it would be without
            one = resample.FrameResampler(44_100)
            one.feed(frame)
            one.finish()

    def kept() -> None:
        one = resample.FrameResampler(44_100)
        for frame in frames:
            one.feed(frame)

    def whole(*, cached: bool) -> None:
        if not cached:
            resample._filters.cache_clear()  # noqa: SLF001
        resample.FrameResampler(44_100).feed(sound)

    return {
        "20 ms frames, filter made for each": _best_ms(anew),
        "20 ms frames, filter cached, state kept": _best_ms(kept),
        "at once, filter made anew": _best_ms(lambda: whole(cached=False)),
        "at once, filter cached": _best_ms(lambda: whole(cached=True)),
    }


def _best_ms(work: Any) -> float:
    """Return the shortest of some runs in milliseconds."""
    taken = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return min(taken) * 1000


async def _honest(model: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the highest rate at which a real model answers in time: doubled while it does, then halved in between."""
    plan = ServerPlan(batch_size=0, processes=0, model=model)
    good: dict[str, Any] = {"rate": 0.0, "p95_s": 0.0}
    low, high = 0.0, 0.0
    rate = 0.5
    for _ in range(arguments.honest_steps):
        schedule = Schedule(rate, arguments.honest_seconds, poisson=arguments.poisson)
        one = await _load(plan, schedule, GrpcOptions("", channels=2, timeout_s=60.0))
        if one["ok_share"] >= LEAST_OK and one["p95_s"] <= HONEST_P95_OF_LENGTH * LENGTH_S:
            low, good = rate, {"rate": rate, **one}
        else:
            high = rate
        rate = (low + high) / 2 if high else 2 * rate
    return good
