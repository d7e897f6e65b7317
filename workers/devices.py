"""What accelerators this machine has, and which of them a worker may use with which share of their memory."""

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from voicejobs.errors import BadOption, DeviceRefused

ASK_TIMEOUT_S = 20.0
DEFAULT_FRACTION = 0.9
"""What a worker alone on a card takes: the rest is for contexts and libraries that no allocator counts."""

_ROUNDING = 1e-9
_MIB = 1 << 20
_GIB = 1 << 30
_QUERY = "--query-gpu=index,uuid,name,memory.total,mig.mode.current"
_USAGE_QUERY = "--query-compute-apps=pid,gpu_uuid,used_memory"
_CSV = "--format=csv,noheader,nounits"
_CARD_LINE = re.compile(r"^GPU (\d+): .*\(UUID: (GPU-[0-9a-fA-F-]+)\)")
_MIG_LINE = re.compile(r"^\s+MIG (\S+)\s+Device\s+(\d+):\s+\(UUID: (MIG-[^)]+)\)")
_MIG_SIZE = re.compile(r"(\d+)gb", re.IGNORECASE)
_WORDS = re.compile(r"^(?P<what>auto|cpu|(?:cuda:)?\d+(?:/\d+)?|(?:GPU|MIG)-[^@\s]+)(?:@(?P<share>[0-9.]+))?$")


@dataclass(frozen=True, slots=True)
class Device:
    """Describe one accelerator, or the part of one that MIG makes.

    Args:
        label: how people name it: `cuda:0`, or `cuda:0/1` for the second instance on a card with MIG.
        uuid: what CUDA_VISIBLE_DEVICES takes; it stays the same when cards are renumbered.
        name: as the driver gives it.
        memory_bytes: its memory.
        is_mig: whether it is an instance, and no whole card.
    """

    label: str
    uuid: str
    name: str
    memory_bytes: int
    is_mig: bool = False


CPU = Device("cpu", "", "CPU", 0)


@dataclass(frozen=True, slots=True)
class Placement:
    """Give a worker a device and a share 0..1 of its memory (0 on the CPU, where nothing is shared out)."""

    device: Device
    fraction: float = 0.0


Ask = Callable[[Sequence[str]], str]
"""Run nvidia-smi with these words and return what it prints; empty where there is none."""


def ask_driver(words: Sequence[str]) -> str:
    """Ask the driver's own tool; no accelerator library is loaded, for that would hold the card."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    try:
        answer = subprocess.run(  # noqa: S603 - the words are ours
            [tool, *words], capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout if answer.returncode == 0 else ""


def find_devices(ask: Ask = ask_driver) -> list[Device]:
    """Return the accelerators of this machine; a card in MIG mode is its instances, for nothing else can use it."""
    found: list[Device] = []
    instances = _instances(ask(["-L"]))
    for line in ask([_QUERY, _CSV]).splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 5 or not fields[3].isdigit():  # noqa: PLR2004 - the fields of the query
            continue
        index, uuid, name, memory_mib, mig = fields
        if mig == "Enabled":
            found += instances.get(index, [])
        else:
            found.append(Device(f"cuda:{index}", uuid, name, int(memory_mib) * _MIB))
    return found


def _instances(listing: str) -> dict[str, list[Device]]:
    """Return the MIG instances by the index of their card."""
    found: dict[str, list[Device]] = {}
    card = ""
    for line in listing.splitlines():
        if match := _CARD_LINE.match(line):
            card = match[1]
        elif match := _MIG_LINE.match(line):
            size = _MIG_SIZE.search(match[1])
            memory = int(size[1]) * _GIB if size else 0
            label = f"cuda:{card}/{match[2]}"
            found.setdefault(card, []).append(Device(label, match[3], f"MIG {match[1]}", memory, is_mig=True))
    return found


def memory_in_use(pids: Sequence[int], ask: Ask = ask_driver) -> int:
    """Return the device memory in bytes that these processes hold together, whichever allocator took it."""
    total = 0
    for line in ask([_USAGE_QUERY, _CSV]).splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 3 and fields[0].isdigit() and int(fields[0]) in pids and fields[2].isdigit():  # noqa: PLR2004
            total += int(fields[2]) * _MIB
    return total


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
