"""Times as the native surface writes them."""

from datetime import UTC, datetime


def moment(seconds: float | None) -> str | None:
    """Return unix seconds as RFC 3339 in UTC, to the millisecond; None for None."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
