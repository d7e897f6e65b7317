"""CUDA libraries of Python packages: found where the packages have them, loaded so that others find them by name."""

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from voicejobs.engines import cuda_libraries

ALL = ["libcublasLt.so.12", "libcublas.so.12", "libcudnn.so.9"]


def package(folder: Path, names: list[str]) -> None:
    """Put files of these names where the packages put their libraries."""
    for name in names:
        path = folder / "nvidia" / ("cudnn" if "cudnn" in name else "cublas") / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


def test_they_are_loaded_in_the_order_of_their_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that are there, for all to see; one that cannot be loaded is left to whoever asks for it."""
    package(tmp_path, ALL[::-1])
    monkeypatch.syspath_prepend(str(tmp_path))
    asked: list[tuple[str, int]] = []

    def load(path: str, mode: int) -> None:
        asked.append((Path(path).name, mode))
        if "cudnn" in path:
            raise OSError(path)

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert cuda_libraries.preload() == ALL[:2]
    assert asked == [(name, ctypes.RTLD_GLOBAL) for name in ALL]


def test_without_the_packages_nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without them, or with those of the system, is left alone."""
    monkeypatch.setattr(cuda_libraries, "find_spec", lambda name: None)
    assert cuda_libraries.preload() == []


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler")
def test_a_library_that_is_loaded_by_path_is_then_found_by_its_name(tmp_path: Path) -> None:
    """What the engine relies on: the system's loader knows a loaded library by the name that it bears."""
    package(tmp_path, [])
    folder = tmp_path / "nvidia" / "cublas" / "lib"
    folder.mkdir(parents=True)
    library = folder / "libcublas.so.12"
    (tmp_path / "empty.c").write_text("int answer(void) { return 42; }\n")
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-Wl,-soname,libcublas.so.12", "-o", library, tmp_path / "empty.c"], check=True
    )
    code = (
        "import ctypes, sys; sys.path.insert(0, sys.argv[1]); from voicejobs.engines.cuda_libraries import preload;"
        "assert preload() == ['libcublas.so.12']; assert ctypes.CDLL('libcublas.so.12').answer() == 42"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=30)
