"""Inputs that lie elsewhere, by URL or by path: check them when they are named, take them when their job runs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from voicejobs.errors import AddressRefused, EmptyFile
from voicejobs.outbound.address import Policy, Resolver, resolve
from voicejobs.outbound.paths import check_path, read_beneath, roots_of
from voicejobs.settings import PREFIX, Settings

URL = "url"
LOCAL = "local"
"""Members of the source of a job that say where its input lies, until a worker has taken it."""

Keep = Callable[[Iterable[bytes]], tuple[str, int]]
"""Keeps bytes and returns their SHA-256 and how many they were."""


def is_elsewhere(source: Mapping[str, Any]) -> bool:
    """Tell whether the input of a job is still to be taken from where it lies."""
    return URL in source or LOCAL in source


def url_source(settings: Settings, url: str) -> dict[str, str]:
    """Return what goes into the source of a job whose input lies at `url`; its host is not asked for yet.

    Raises:
        AddressRefused: URL sources are off, or this one is not allowed.
    """
    _demand_urls(settings)
    return {URL: str(Policy.of_sources(settings).check(url))}


def path_source(settings: Settings, path: str) -> dict[str, str]:
    """Return what goes into the source of a job whose input lies at `path` on the machines of the workers.

    Raises:
        AddressRefused: path sources are off, or this one is not allowed.
    """
    check_path(roots_of(settings.source_path_roots), path)
    return {LOCAL: path}


def shown_name(source: Mapping[str, str]) -> str:
    """Return how people know such an input: the last part of its path, and never the query of a URL."""
    place = source[URL].partition("?")[0] if URL in source else source[LOCAL]
    last = place.rstrip("/").rpartition("/")[2]
    return last or place


def take(
    settings: Settings,
    source: Mapping[str, Any],
    keep: Keep,
    check: Callable[[], None],
    resolver: Resolver = resolve,
) -> tuple[str, int]:
    """Take an input from where it lies; return SHA-256 and size of what was kept.

    What was allowed when the job was submitted is looked at again, by the settings of this process.

    Args:
        settings: what may be asked and read.
        source: the source of the job.
        keep: takes the bytes.
        check: called between two chunks, to stop.
        resolver: gives the addresses of a host.

    Raises:
        AddressRefused, SourceRefused, SourceTooLarge, InputError: it cannot be had.
        AddressUnavailable: not now.
    """
    name = str(source.get("name", ""))
    if LOCAL in source:
        return keep(read_beneath(roots_of(settings.source_path_roots), source[LOCAL], name, check))
    from voicejobs.outbound.fetch import Fetcher, Limits  # noqa: PLC0415 - few jobs need it

    _demand_urls(settings)
    limits = Limits(settings.source_url_timeout_s, settings.source_url_max_bytes)
    with Fetcher(Policy.of_sources(settings), resolver).download(source[URL], limits) as download:
        return keep(_watched(download.chunks, name, check))


def _watched(chunks: Iterable[bytes], name: str, check: Callable[[], None]) -> Iterator[bytes]:
    """Yield chunks, and look for a reason to stop between them.

    Raises:
        EmptyFile: there was none.
    """
    is_empty = True
    for chunk in chunks:
        check()
        is_empty = is_empty and not chunk
        yield chunk
    if is_empty:
        raise EmptyFile(f"{name} holds no bytes")


def _demand_urls(settings: Settings) -> None:
    """Refuse URL sources where the operator has not turned them on.

    Raises:
        AddressRefused: they are off.
    """
    if not settings.source_url_enabled:
        raise AddressRefused(
            "Sources by URL are off", hint=f"{PREFIX}SOURCE_URL_ENABLED=1 and {PREFIX}SOURCE_URL_HOSTS turn them on."
        )
