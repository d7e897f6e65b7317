"""Which accelerators the workers of this machine use, and which share of their memory each may take."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from voicejobs.accelerators import Device
from voicejobs.errors import BadOption, DeviceRefused

DEFAULT_FRACTION = 0.9
"""What a worker alone on a card takes: the rest is for contexts and libraries that no allocator counts."""

_ROUNDING = 1e-9
_WORDS = re.compile(r"^(?P<what>auto|cpu|(?:cuda:)?\d+(?:/\d+)?|(?:GPU|MIG)-[^@\s]+)(?:@(?P<share>[0-9.]+))?$")

CPU = Device("cpu", "", "CPU", 0)


@dataclass(frozen=True, slots=True)
class Placement:
    """Give a worker a device and a share 0..1 of its memory (0 on the CPU, where nothing is shared out)."""

    device: Device
    fraction: float = 0.0


def place(words: str, found: Sequence[Device]) -> list[Placement]:
    """Return where the workers go: one for each item of a list such as `cuda:0@0.45,cuda:0@0.45,cpu`.

    `auto` is every accelerator, and the CPU where there is none. `@` gives the share of the memory; items that share a
    device and give none share what is left.

    Raises:
        BadOption: an item has no such form.
        DeviceRefused: there is no such device, or more than all of its memory is given away.
    """
    items = [_item(word.strip()) for word in words.split(",") if word.strip()]
    if not items:
        raise BadOption("No device was named", hint="Say auto, cpu, or a list such as cuda:0,cuda:1.")
    chosen: list[tuple[Device, float | None]] = []
    for what, share in items:
        if what == "auto":
            chosen += [(device, share) for device in found] or [(CPU, None)]
        else:
            chosen.append((CPU if what == "cpu" else _named(what, found), share))
    return _shared_out(chosen)


def _item(word: str) -> tuple[str, float | None]:
    """Return the device and the share that one item names."""
    match = _WORDS.match(word)
    share = None
    try:
        share = float(match["share"]) if match and match["share"] else None
    except ValueError:
        match = None
    if match is None or (share is not None and not 0 < share <= 1):
        raise BadOption(
            f"{word!r} names no device", hint="Forms: auto, cpu, cuda:0, cuda:0@0.45, GPU-<uuid>, MIG-<uuid>."
        )
    return match["what"], share


def _named(what: str, found: Sequence[Device]) -> Device:
    """Return the device of this label, number or UUID."""
    label = f"cuda:{what}" if what[0].isdigit() else what
    for device in found:
        if label == device.label or what == device.uuid:
            return device
    known = ", ".join(device.label for device in found) or "none"
    raise DeviceRefused(f"There is no device {what!r} here", hint=f"Accelerators of this machine: {known}.")


def _shared_out(chosen: Sequence[tuple[Device, float | None]]) -> list[Placement]:
    """Give each placement its share of the memory of its device."""
    placements: list[Placement] = []
    for device, share in chosen:
        same = [other for other, _ in chosen if other == device]
        named = sum(other_share for other, other_share in chosen if other == device and other_share is not None)
        if device == CPU:
            if len(same) > 1:
                raise DeviceRefused("The CPU is named twice", hint="One worker uses all cores; name cpu once.")
            placements.append(Placement(CPU))
            continue
        unnamed = sum(1 for other, other_share in chosen if other == device and other_share is None)
        left = 1.0 - named
        if named > 1.0 + _ROUNDING or (unnamed and left <= _ROUNDING):
            raise DeviceRefused(
                f"More than all memory of {device.label} is given away",
                hint="The shares after @ of one device may add up to 1 at most.",
            )
        placements.append(Placement(device, share if share is not None else left * DEFAULT_FRACTION / unnamed))
    return placements
