"""Settings of the service, read once before it serves: a slip ends the start, and not the request that meets it."""

from urllib.parse import urlsplit

from voicejobs import spans
from voicejobs.api.headers import words
from voicejobs.api.live import check_engine
from voicejobs.api.openai_names import aliases_of, pairs_of
from voicejobs.errors import BadOption
from voicejobs.outbound.address import Policy
from voicejobs.outbound.paths import roots_of
from voicejobs.outbound.signing import check_setting
from voicejobs.settings import Settings

_FORM = "docs/settings.md shows the form."
_ANY = "*"


def check_settings(settings: Settings) -> None:
    """Read every setting that has a form of its own.

    Raises:
        BadOption: one has another form; the message names it.
        ExtraMissing: one asks for what is not installed.
    """
    if settings.broker_url and not settings.broker_url.startswith("redis"):
        # The address is not repeated: it may hold a password.
        raise BadOption(
            "VOICEJOBS_BROKER_URL is no address of a Redis-protocol server", hint="Write redis://host:6379/0."
        )
    aliases_of(settings)
    pairs_of(settings.api_voices, "VOICEJOBS_API_VOICES")
    _check_sites(settings)
    Policy.of_sources(settings)
    Policy.of_webhooks(settings)
    roots_of(settings.source_path_roots)
    check_setting(settings)
    check_engine(settings)
    spans.configure(settings.otel_endpoint, "api")


def _check_sites(settings: Settings) -> None:
    """Read the names of the service and of the sites that may ask it.

    Raises:
        BadOption: one is none.
    """
    for host in words(settings.api_hosts):
        if any(mark in host for mark in " /@"):
            raise BadOption(f"VOICEJOBS_API_HOSTS: {host!r} is no name of a host", hint=_FORM)
    for origin in words(settings.api_origins):
        found = urlsplit(origin)
        if origin != _ANY and (found.scheme not in {"http", "https"} or not found.netloc or found.path):
            raise BadOption(f"VOICEJOBS_API_ORIGINS: {origin!r} is no site", hint="Write https://app.example.org.")
