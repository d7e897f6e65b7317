"""Why workers begin no job, for those who wait for theirs."""

from dataclasses import dataclass

from voicejobs import notices
from voicejobs.embedded.stack import Stack
from voicejobs.settings import Settings

_WORDS = {notices.DISK_LOW: "disk low", notices.MEMORY_LOW: "memory low"}
CODES = frozenset(_WORDS)


@dataclass(frozen=True, slots=True)
class Pause:
    """Tell why workers begin no job: a code, and a sentence."""

    code: str
    message: str


def pause(stack: Stack) -> Pause | None:
    """Return why workers begin no job: ours, or those at the servers that the settings name; mostly None."""
    settings = stack.settings
    if not settings.broker_url:
        reason = notices.disk_low(settings)
        if reason:
            return _pause(notices.DISK_LOW, f". {reason}. Work goes on by itself once there is room")
    told = sorted(notices.read(settings.broker_url or _private_broker(settings)).items())
    if not told:
        return None
    code = told[0][1].code
    where = "; ".join(f"{worker}: {notice.text}" for worker, notice in told if notice.code == code)
    return _pause(code, f" on {where}. Work goes on there by itself once there is room")


def _private_broker(settings: Settings) -> str:
    """Return the address of the embedded stack's own broker."""
    from voicejobs.embedded import valkey  # noqa: PLC0415 - only those who wait need it
    from voicejobs.embedded.supervisor import BROKER_SOCKET  # noqa: PLC0415

    return valkey.url(settings.runtime_dir / BROKER_SOCKET)


def _pause(code: str, rest: str) -> Pause:
    """Return a pause of this kind."""
    return Pause(code, f"Intake paused: {_WORDS.get(code, code)}{rest}")
