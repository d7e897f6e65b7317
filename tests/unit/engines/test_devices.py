from pathlib import Path

import pytest

from voicejobs.engines import devices


@pytest.mark.parametrize(
    ("names", "count"), [((), 0), (("nvidiactl", "nvidia-uvm"), 0), (("nvidia0", "nvidia1", "nvidiactl"), 2)]
)
def test_gpus_are_counted_by_their_device_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], count: int
) -> None:
    """Containers often show the device files and nothing of the driver."""
    for name in names:
        (tmp_path / name).touch()
    monkeypatch.setattr(devices, "_DEVICES", tmp_path)
    monkeypatch.setattr(devices, "_DRIVER", tmp_path / "none")
    assert devices.gpu_count() == count
    assert devices.resolve_device("auto") == ("cuda:0" if count else "cpu")
    assert devices.resolve_device("cuda:3") == "cuda:3"
