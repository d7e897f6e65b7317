"""Find the CUDA libraries that come in Python packages, for libraries that open them by name alone."""

import ctypes
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

NAMES = ("libcublasLt.so.12", "libcublas.so.12", "libcudnn.so.9")
"""What CTranslate2 4.8 opens on Linux, each after those that it needs itself."""

_FOLDERS = ("cublas/lib", "cudnn/lib")
"""Where the packages nvidia-cublas-cu12 and nvidia-cudnn-cu12 keep theirs, below the namespace `nvidia`."""


def preload() -> list[str]:
    """Load the CUDA libraries of installed packages into this process, and return the names of those that were.

    The packages put them where no loader looks. But a library that is loaded is found by its name. Libraries of the
    system are left to the loader: where no package has one, or it cannot be loaded, nothing is done.
    """
    loaded = []
    for path in _packaged():
        try:
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError:  # of another machine or driver: CTranslate2 says what it lacks
            continue
        loaded.append(path.name)
    return loaded


def _packaged() -> Iterator[Path]:
    """Yield the libraries that packages bring, in the order of their names."""
    spec = find_spec("nvidia")
    roots = (spec.submodule_search_locations or ()) if spec else ()
    places = [Path(root) / folder for root in roots for folder in _FOLDERS]
    for name in NAMES:
        for place in places:
            if (place / name).is_file():
                yield place / name
                break
