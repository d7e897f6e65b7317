"""The lowest versions that we accept, against the security floors that were looked up by hand."""

from configparser import ConfigParser
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
FLOORS = {
    # Each with the advisories behind it; docs/dependencies.md tells more.
    "av": "18.1",  # FFmpeg 8.1: CVE-2026-40962, CVE-2026-30999, IAMF parser corruption
    "celery": "5.2.2",  # CVE-2021-23727
    "fastapi": "0.65.2",  # CVE-2021-32677
    "flower": "2.1",  # CVE-2022-30034, and read_only
    "python-multipart": "0.0.32",  # CVE-2024-53981, CVE-2026-24486, CVE-2026-42561, GHSA-vffw-93wf-4j4q and later
    "starlette": "1.5.1",  # CVE-2024-47874, CVE-2025-54121, CVE-2025-62727, CVE-2026-48710 and later
    "torch": "2.10",  # CVE-2025-32434, CVE-2026-24747
}


def requirements() -> list[Requirement]:
    """Return every requirement of setup.cfg, those of the extras included."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    texts = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    found = [Requirement(line) for text in texts for line in text.splitlines() if line]
    return [requirement for requirement in found if requirement.name != "voicejobs"]


@pytest.mark.parametrize("name", FLOORS)
def test_floor_is_not_below_the_known_holes(name: str) -> None:
    """setup.cfg asks for the component, and accepts no version older than its floor."""
    lowest = [
        Version(clause.version)
        for requirement in requirements()
        if canonicalize_name(requirement.name) == name
        for clause in requirement.specifier
        if clause.operator in {">=", "==", "~="}
    ]
    assert lowest
    assert min(lowest) >= Version(FLOORS[name])


@pytest.mark.parametrize("name", FLOORS)
def test_installed_version_is_not_below_the_floor(name: str) -> None:
    """What this environment has installed of the list is above the floor too."""
    try:
        installed = version(name)
    except PackageNotFoundError:
        pytest.skip(f"{name} is not installed here")
    assert Version(installed) >= Version(FLOORS[name])


def test_every_dependency_is_explained() -> None:
    """docs/dependencies.md has a row for each requirement of setup.cfg."""
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    assert not [requirement.name for requirement in requirements() if f"| {requirement.name}" not in text]
