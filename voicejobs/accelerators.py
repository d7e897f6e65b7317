"""What accelerators this machine has, told by the driver's own tool: a library that was loaded would hold a card."""

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

ASK_TIMEOUT_S = 20.0

_MIB = 1 << 20
_GIB = 1 << 30
_QUERY = "--query-gpu=index,uuid,name,memory.total,mig.mode.current"
_USAGE_QUERY = "--query-compute-apps=pid,gpu_uuid,used_memory"
_CSV = "--format=csv,noheader,nounits"
_CARD_LINE = re.compile(r"^GPU (\d+): .*\(UUID: (GPU-[0-9a-fA-F-]+)\)")
_MIG_LINE = re.compile(r"^\s+MIG (\S+)\s+Device\s+(\d+):\s+\(UUID: (MIG-[^)]+)\)")
_VERSIONS = re.compile(r"Driver Version:\s*(\S+).*?CUDA(?: UMD)? Version:\s*(\d+(?:\.\d+)*)")
_MIG_SIZE = re.compile(r"(\d+)gb", re.IGNORECASE)


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


def driver_versions(ask: Ask = ask_driver) -> tuple[str, str]:
    """Return the version of the driver, and the newest version of CUDA that it knows; both empty without a driver."""
    found = _VERSIONS.search(ask([]))
    return (found[1], found[2]) if found else ("", "")


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


def sharing_service(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of NVIDIA's Multi-Process Service that are set: through it processes share a card."""
    return {name: value for name, value in sorted(environment.items()) if name.startswith("CUDA_MPS_")}
