"""Serve the REST service: `voicejobs serve api` becomes this process."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voicejobs import logs
from voicejobs.api.server import ApiOptions, run
from voicejobs.errors import Transient, VoicejobsError
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


def options_of(arguments: Sequence[str] | None) -> ApiOptions:
    """Return the options that the words say; `voicejobs serve api` has checked them."""
    parser = argparse.ArgumentParser(prog="voicejobs serve api")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    parser.add_argument("--client-ca", type=Path)
    parser.add_argument("--allow-public", action="store_true")
    parser.add_argument("--ready-file", type=Path)
    parser.add_argument("--grace", type=float, default=10.0)
    given: Any = parser.parse_args(arguments)
    return ApiOptions(
        host=given.host,
        port=given.port,
        tls_cert=given.tls_cert,
        tls_key=given.tls_key,
        client_ca=given.client_ca,
        allow_public=given.allow_public,
        ready_file=given.ready_file,
        grace_s=given.grace,
    )


if __name__ == "__main__":
    sys.exit(main())
