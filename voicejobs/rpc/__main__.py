"""Serve the voice engine: `voicejobs serve engine` becomes this process."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voicejobs import logs
from voicejobs.errors import Transient, VoicejobsError
from voicejobs.rpc.engines import EnginePlan
from voicejobs.rpc.server import DEFAULT_ADDRESS, ServerOptions, Tls, run
from voicejobs.settings import Settings

EXIT_REFUSED, EXIT_TEMPORARY = 7, 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal, and return the exit code; errors go to standard error."""
    options = options_of(arguments)
    try:
        settings = Settings.from_env()
        logs.configure(settings.log_level)
        run(options, settings)
    except VoicejobsError as error:
        print(f"error: {error.message} [{error.code}]", file=sys.stderr)  # noqa: T201 - for whoever started us
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)  # noqa: T201
        return EXIT_TEMPORARY if isinstance(error, Transient) else EXIT_REFUSED
    return 0


def options_of(arguments: Sequence[str] | None) -> ServerOptions:
    """Return the options that the words say; `voicejobs serve engine` has checked them."""
    parser = argparse.ArgumentParser(prog="voicejobs serve engine")
    parser.add_argument("--plan", type=json.loads, required=True)
    parser.add_argument("--address", default=DEFAULT_ADDRESS)
    parser.add_argument("--slots", type=int, default=0)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    parser.add_argument("--client-ca", type=Path)
    parser.add_argument("--allow-public", action="store_true")
    parser.add_argument("--ready-file", type=Path)
    parser.add_argument("--metrics-port", type=int)
    parser.add_argument("--grace", type=float, default=10.0)
    given: Any = parser.parse_args(arguments)
    tls = None
    if given.tls_cert is not None:
        tls = Tls(given.tls_cert, given.tls_key, given.client_ca)
    return ServerOptions(
        plan=EnginePlan(**given.plan),
        address=given.address,
        slots=given.slots,
        streams=given.streams,
        tls=tls,
        allow_public=given.allow_public,
        ready_file=given.ready_file,
        grace_s=given.grace,
        metrics_port=given.metrics_port,
    )


if __name__ == "__main__":
    sys.exit(main())
