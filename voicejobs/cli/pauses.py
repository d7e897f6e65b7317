"""Why workers begin no job, for those who wait for theirs."""

from voicejobs import notices
from voicejobs.embedded.stack import Stack

DISK_LOW = "disk_low"


def pause(stack: Stack) -> str:
    """Return why workers begin no job: ours, or those at the servers that the settings name; mostly empty."""
    settings = stack.settings
    if not settings.broker_url:
        reason = notices.disk_low(settings)
        return f"Intake paused: disk low. {reason}. Work goes on by itself once there is room" if reason else ""
    told = [f"{worker}: {text}" for worker, text in sorted(notices.read(settings.broker_url).items())]
    if not told:
        return ""
    return f"Intake paused: disk low on {'; '.join(told)}. Work goes on there by itself once there is room"
