"""The commands of `scripts/load`."""

import argparse
import asyncio
import io
from typing import Any

import numpy as np
import soundfile as sf
from benchmarks.recordings import speech
from benchmarks.report import finish, print_table
from loading import service, suite
from loading.clients import GrpcClient, GrpcOptions, RestClient, RestOptions, sounds
from loading.openloop import Schedule, drive
from loading.watching import Watch


def run(arguments: argparse.Namespace) -> int:
    """Run a command and return the exit status.

    Raises:
        ValueError: an option is out of its bounds.
    """
    given = {name: str(value) for name, value in vars(arguments).items() if name not in {"key_file", "json"}}
    whole = {"voice-engine": suite.run, "rest-upload": service.run_upload, "rest-service": service.run_polls}
    found = whole[arguments.command](arguments) if arguments.command in whole else asyncio.run(_one(arguments))
    return finish(f"load-{arguments.command}", {"options": given, **found}, arguments.json)


async def _one(arguments: argparse.Namespace) -> dict[str, Any]:
    """Load one service that runs."""
    schedule = Schedule(arguments.rate, arguments.seconds, arguments.count, poisson=arguments.poisson)
    schedule.arrivals_s()  # refused before anything is sent
    async with _client(arguments) as client:
        with Watch(arguments.pid) as watch:
            account = await drive(schedule, client.send)
    found = {**account.summary(), **watch.summary()}
    print_table(
        [
            ("target", "OK", "refused", "errors", "mean s", "p50", "p95", "p99", "OK/s", "cores", "peak MB", "KB/s"),
            (arguments.command, *suite.cells(found)),
        ]
    )
    print(f"sent {found['sent_per_s']:.1f} a second, p99 {found['generator_late_p99_s'] * 1000:.0f} ms late; answers: ")
    print(", ".join(f"{count} {status}" for status, count in sorted(found["statuses"].items())))
    return {"found": found, "holds": {suite.ON_TIME: found["generator_late_p99_s"] < suite.MOST_LATE_S}}


def _client(arguments: argparse.Namespace) -> GrpcClient | RestClient:
    """Return the client that the options ask for."""
    key = arguments.key_file.read_text().strip() if arguments.key_file else ""
    voice = None if arguments.tone else speech()
    if arguments.command == "grpc":
        rate = arguments.audio_format.split("_")[-1]
        rate_hz = round(float(rate.removesuffix("k")) * (1000 if rate.endswith("k") else 1))
        grpc_options = GrpcOptions(
            arguments.address,
            channels=arguments.channels,
            audio_format=arguments.audio_format,
            language=arguments.language,
            single_window=arguments.single_window,
            timeout_s=arguments.timeout,
            key=key,
        )
        return GrpcClient(grpc_options, sounds(arguments.audio_s, rate_hz, speech=voice))
    options = RestOptions(
        arguments.url,
        keep_alive=not arguments.per_call,
        content_type=arguments.content_type,
        timeout_s=arguments.timeout,
        key=key,
    )
    payloads = sounds(arguments.audio_s, 16_000, speech=voice)
    if arguments.content_type == "audio/wav":
        payloads = [_wav(payload) for payload in payloads]
    return RestClient(options, payloads)


def _wav(payload: bytes) -> bytes:
    """Return PCM as a WAV file."""
    file = io.BytesIO()
    sf.write(file, np.frombuffer(payload, np.int16), 16_000, format="WAV", subtype="PCM_16")
    return file.getvalue()
