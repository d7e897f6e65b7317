"""What users install: the wheel holds the whole tree, and runs where no checkout is."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {"voicejobs": "voicejobs", "workers": "voicejobs_workers", "migrations": "voicejobs_migrations"}


def package_files() -> list[Path]:
    """Return every file of the package folders, relative to the root, save what Python and git ignore."""
    return [
        path.relative_to(ROOT)
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]


def installed_name(path: Path) -> str:
    """Return the path of a file inside the wheel."""
    return "/".join((FOLDERS[path.parts[0]], *path.parts[1:]))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the sources, so that no leftover of an earlier build comes in."""
    work = tmp_path_factory.mktemp("wheel")
    source = work / "source"
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(work / "dist"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next((work / "dist").glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an environment of its own that borrows only our dependencies; return its folder.

    The dependencies come in by a path, whose `.pth` files Python does not read: the editable install of the
    development environment stays out.
    """
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(command, capture_output=True, check=True)
    site = next((folder / "venv" / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
    return folder


def run_installed(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of the installed wheel, with a state folder of its own and outside the checkout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("VOICEJOBS_", "PYTHON"))}
    environment["VOICEJOBS_STATE_DIR"] = str(folder / "state")
    command = [str(folder / "venv" / "bin" / arguments[0]), *arguments[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)


def test_listed_packages_are_the_folders() -> None:
    """setup.cfg lists by hand exactly the folders that hold Python files, under the names they are installed as."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    folders = {path.parent for path in package_files() if path.suffix == ".py"}
    assert config["options"]["packages"].split() == sorted(
        (installed_name(folder).replace("/", ".") for folder in folders),
        key=lambda name: (list(FOLDERS.values()).index(name.split(".")[0]), name),
    )
    assert not [str(folder) for folder in folders if not (ROOT / folder / "__init__.py").exists()]


@pytest.mark.timeout(120)
def test_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    """No module and no data file that the tree has is missing from the wheel, and the licence is in it."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {installed_name(path) for path in package_files()} <= names
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in names)


@pytest.mark.timeout(120)
def test_wheel_contents_are_sound(wheel: Path) -> None:
    """check-wheel-contents finds nothing, and the wheel brings our three top-level packages and no other."""
    # W004: a migration's file name begins with its number. W009: three top-level packages are on purpose.
    command = [str(Path(sys.executable).parent / "check-wheel-contents"), "--ignore", "W004,W009"]
    command += ["--toplevel", ",".join(FOLDERS.values()), str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=wheel.parent)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(180)
def test_installed_wheel_runs_outside_the_checkout(installed: Path) -> None:
    """The command, its migrations and its database check work from the wheel alone."""
    where = run_installed(installed, "python", "-c", "import voicejobs; print(voicejobs.__file__)")
    assert where.stdout.startswith(str(installed)), where.stdout + where.stderr
    for arguments in (("version",), ("db", "upgrade"), ("db", "check")):
        done = run_installed(installed, "voicejobs", *arguments)
        assert done.returncode == 0, f"voicejobs {arguments}: {done.stdout}{done.stderr}"
