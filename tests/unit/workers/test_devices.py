"""Devices: what the driver tells, and who may use which of them with which share."""

from collections.abc import Callable, Sequence

import pytest
from voicejobs_workers.devices import CPU, DEFAULT_FRACTION, place
from voicejobs_workers.slots import Slot, plan_slots

from voicejobs.accelerators import Device, driver_versions, find_devices, memory_in_use, sharing_service
from voicejobs.errors import BadOption, DeviceRefused
from voicejobs.settings import Settings

GIB = 1 << 30
CARDS = "0, GPU-aaaa, Some Card, 81920, [N/A]\n1, GPU-bbbb, Some Card, 81920, Disabled\n"
WITH_MIG = "0, GPU-aaaa, Big Card, 40960, Enabled\n1, GPU-bbbb, Big Card, 40960, Disabled\n"
LISTING = """GPU 0: Big Card (UUID: GPU-aaaa)
  MIG 3g.20gb     Device  0: (UUID: MIG-1111)
  MIG 1g.5gb      Device  1: (UUID: MIG-2222)
GPU 1: Big Card (UUID: GPU-bbbb)
"""
TWO = [Device("cuda:0", "GPU-aaaa", "Some Card", 80 * GIB), Device("cuda:1", "GPU-bbbb", "Some Card", 80 * GIB)]
SETTINGS = Settings.from_env({"HOME": "/nowhere"})


def driver(query: str = "", listing: str = "", usage: str = "") -> Callable[[Sequence[str]], str]:
    """Return a driver's tool that gives these answers."""

    def ask(words: Sequence[str]) -> str:
        if words[0] == "-L":
            return listing
        return query if "query-gpu" in words[0] else usage

    return ask


def test_cards_are_found_as_the_driver_tells_them() -> None:
    """Each card has its number, UUID, name and memory; a machine without a driver has none."""
    assert find_devices(driver(CARDS)) == TWO
    assert find_devices(driver()) == []
    assert find_devices(driver("NVIDIA-SMI has failed because it could not talk to the driver")) == []


def test_a_card_in_mig_mode_is_its_instances() -> None:
    """Nothing can use the card as a whole then; the other card stays as it is."""
    found = find_devices(driver(WITH_MIG, LISTING))
    assert [(one.label, one.uuid, one.memory_bytes, one.is_mig) for one in found] == [
        ("cuda:0/0", "MIG-1111", 20 * GIB, True),
        ("cuda:0/1", "MIG-2222", 5 * GIB, True),
        ("cuda:1", "GPU-bbbb", 40 * GIB, False),
    ]
    assert place("MIG-2222", found)[0].device.label == "cuda:0/1"


def test_memory_in_use_counts_the_processes_asked_for() -> None:
    """Whatever allocator took it: the driver counts by process."""
    ask = driver(usage="10, GPU-aaaa, 300\n11, GPU-aaaa, 50\n12, GPU-bbbb, [N/A]\n")
    assert memory_in_use([10, 12], ask) == 300 << 20
    assert memory_in_use([], ask) == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("auto", [("cuda:0", DEFAULT_FRACTION), ("cuda:1", DEFAULT_FRACTION)]),
        ("cpu", [("cpu", 0.0)]),
        ("cuda:1", [("cuda:1", DEFAULT_FRACTION)]),
        ("0,1", [("cuda:0", DEFAULT_FRACTION), ("cuda:1", DEFAULT_FRACTION)]),
        ("GPU-bbbb@0.5", [("cuda:1", 0.5)]),
        ("cuda:0@0.45,cuda:0@0.45", [("cuda:0", 0.45), ("cuda:0", 0.45)]),
        ("cuda:0,cuda:0", [("cuda:0", DEFAULT_FRACTION / 2), ("cuda:0", DEFAULT_FRACTION / 2)]),
        ("cuda:0@0.5,cuda:0, cpu", [("cuda:0", 0.5), ("cuda:0", 0.5 * DEFAULT_FRACTION), ("cpu", 0.0)]),
    ],
)
def test_a_list_of_devices_is_placed(words: str, expected: list[tuple[str, float]]) -> None:
    """Each item is a worker; shares after @ hold, and items without one share what is left."""
    placed = place(words, TWO)
    assert [one.device.label for one in placed] == [label for label, _ in expected]
    assert [one.fraction for one in placed] == pytest.approx([fraction for _, fraction in expected])


def test_without_accelerators_auto_is_the_cpu() -> None:
    """A laptop runs one worker on its cores."""
    assert [one.device for one in place("auto", [])] == [CPU]


@pytest.mark.parametrize("words", ["", "gpu", "cuda", "cuda:x", "cuda:0@", "cuda:0@2", "cuda:0@0", "cuda:0@0.5.5", ","])
def test_what_names_no_device_is_a_usage_error(words: str) -> None:
    """The message shows the forms."""
    with pytest.raises(BadOption):
        place(words, TWO)


@pytest.mark.parametrize(
    "words", ["cuda:2", "GPU-cccc", "cuda:0@0.6,cuda:0@0.5", "cuda:0@1,cuda:0", "cpu,cpu", "cuda:0/1"]
)
def test_what_does_not_fit_is_refused(words: str) -> None:
    """A device that is not there, or memory given away twice, is refused before any worker starts."""
    with pytest.raises(DeviceRefused):
        place(words, TWO)


def test_no_card_waits_for_decoding() -> None:
    """Beside cards the CPU serves CPU-only steps and each card the engines; alone, the CPU serves all."""
    slots = plan_slots(SETTINGS, place("cuda:0@0.45,cuda:0@0.45,cpu", TWO))
    assert [(slot.name, slot.device, slot.queues) for slot in slots] == [
        ("cuda0", "cuda:0", ("asr", "tts")),
        ("cuda0.2", "cuda:0", ("asr", "tts")),
        ("cpu", "cpu", ("cpu",)),
    ]
    assert [slot.memory_bytes for slot in slots] == [int(80 * GIB * 0.45)] * 2 + [0]
    (alone,) = plan_slots(SETTINGS, place("cpu", TWO))
    assert set(alone.queues) == {"cpu", "asr", "tts"}


def test_each_worker_sees_its_device_alone() -> None:
    """The environment names the card by UUID; on the CPU it hides all cards. Inside, the card is cuda:0 whichever."""
    first, second, cpu = plan_slots(SETTINGS, place("cuda:0,cuda:1,cpu", TWO))
    assert [slot.environment()["CUDA_VISIBLE_DEVICES"] for slot in (first, second, cpu)] == ["GPU-aaaa", "GPU-bbbb", ""]
    assert [slot.engine_device for slot in (first, second, cpu)] == ["cuda:0", "cuda:0", "cpu"]
    assert Slot.parse(second.dump()) == second


def test_the_sharing_service_shows_in_the_environment() -> None:
    """Its variables are what tells whether a worker's processes go through it."""
    assert sharing_service({"CUDA_MPS_PIPE_DIRECTORY": "/run/mps", "PATH": "/bin"}) == {
        "CUDA_MPS_PIPE_DIRECTORY": "/run/mps"
    }


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: 12.4     |", ("550.54.15", "12.4")),
        ("| NVIDIA-SMI 580.82.07    Driver Version: 580.82.07    CUDA Version: 13.0     |", ("580.82.07", "13.0")),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", ("", "")),
        ("", ("", "")),
    ],
)
def test_b25_the_driver_tells_its_versions(said: str, expected: tuple[str, str]) -> None:
    """The heading of nvidia-smi names the driver and the newest CUDA that it knows; without a driver there is none."""
    assert driver_versions(lambda words: f"Mon Nov 30\n+---+\n{said}\n") == expected
