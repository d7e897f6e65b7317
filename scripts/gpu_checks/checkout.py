"""Let children import voicejobs from the checkout, also where it was never installed."""

import os
import tempfile
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path


@contextmanager
def python_path(root: Path) -> Iterator[str]:
    """Return a PYTHONPATH with our scripts, tests and packages.

    Engines are found by the metadata of an installation. A machine that is lent for some minutes has none: there a
    folder is put up with links to the packages and with the entry points of setup.cfg.
    """
    parts = [str(root / "scripts"), str(root), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    if _is_installed():
        yield os.pathsep.join(parts)
        return
    with tempfile.TemporaryDirectory(prefix="vj-checkout-") as name:
        folder = Path(name)
        config = ConfigParser()
        config.read(root / "setup.cfg")
        packages = {"voicejobs": "voicejobs", **_pairs(config["options"]["package_dir"])}
        for package, place in packages.items():
            (folder / package).symlink_to(root / place)
        information = folder / "voicejobs-0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: voicejobs\nVersion: 0\n")
        points = config["options.entry_points"]["voicejobs.engines"].strip()
        (information / "entry_points.txt").write_text(f"[voicejobs.engines]\n{points}\n")
        yield os.pathsep.join([name, *parts])


def _is_installed() -> bool:
    """Tell whether this Python has voicejobs, with its workers."""
    try:
        return bool(distribution("voicejobs").entry_points)
    except PackageNotFoundError:
        return False


def _pairs(text: str) -> dict[str, str]:
    """Return the pairs of a mapping as setup.cfg writes it."""
    lines = [line.split("=") for line in text.splitlines() if "=" in line]
    return {name.strip(): value.strip() for name, value in lines}
