"""Which accelerators this machine has, told without loading a library."""

from pathlib import Path

_DRIVER = Path("/proc/driver/nvidia/gpus")
_DEVICES = Path("/dev")


def gpu_count() -> int:
    """Return how many NVIDIA GPUs this machine shows; containers may show the device files alone."""
    by_driver = len(list(_DRIVER.iterdir())) if _DRIVER.is_dir() else 0
    by_device = sum(path.name.removeprefix("nvidia").isdigit() for path in _DEVICES.glob("nvidia*"))
    return max(by_driver, by_device)


def resolve_device(device: str) -> str:
    """Return `device`, or for `auto` the first GPU where there is one, else the CPU."""
    if device != "auto":
        return device
    return "cuda:0" if gpu_count() else "cpu"
