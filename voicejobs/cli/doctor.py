"""`voicejobs doctor`: look at everything that voicejobs needs, and say what to do about what is missing."""

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click
from sqlalchemy import select

from voicejobs import __version__
from voicejobs.accelerators import driver_versions, find_devices, sharing_service
from voicejobs.cli.broker import require_answer
from voicejobs.cli.globals import current_settings
from voicejobs.cli.main import EXIT_PROBLEMS_FOUND
from voicejobs.cli.show import print_json
from voicejobs.cli.spelling import Command
from voicejobs.embedded import valkey
from voicejobs.embedded.supervisor import orphans
from voicejobs.engines import cosyvoice, openai, remote
from voicejobs.engines.base import EngineSpec
from voicejobs.engines.configured import with_settings
from voicejobs.engines.registry import list_engines
from voicejobs.errors import SecretUnusable, VoicejobsError
from voicejobs.models.catalogue import CATALOGUE
from voicejobs.models.installed import state
from voicejobs.outbound.address import Policy
from voicejobs.outbound.signing import source_of
from voicejobs.settings import Settings, environment
from voicejobs.store import migrate
from voicejobs.store.database import Database, now_s
from voicejobs.store.remote_blobs import blob_store

LOW_DISK_BYTES = 2_000_000_000
CLOCKS_APART_S = 5.0
CTRANSLATE2_CUDA = "12"
"""The CUDA whose libraries CTranslate2 4.8 opens; docs/dependencies.md, extra `gpu`."""
ANSWER_S = 5.0
_SERVERS: Mapping[str, tuple[str, Callable[[EngineSpec, float], str]]] = {
    "openai": ("openai_url", openai.probe),
    "cosyvoice": ("cosyvoice_url", cosyvoice.probe),
    "remote": ("remote_url", remote.probe),
}
"""Engines that are clients, the settings that name their servers, and how to ask these."""
FLOORS = {"av": (18, 1), "faster-whisper": (1, 2), "celery": (5, 7)}


@dataclass(frozen=True, slots=True)
class Finding:
    """Hold the outcome of one check."""

    check: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    fix: str = ""


@click.command(cls=Command)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def doctor(as_json: bool) -> int:
    """Check Python, packages, engines, models, folders, disk, blobs, database, broker and webhooks.

    Exits with 9 where something must be mended.
    """
    settings = current_settings()
    findings = [_guarded(check, settings) for check in _CHECKS]
    if as_json:
        print_json("findings", [asdict(finding) for finding in findings])
    else:
        for finding in findings:
            click.echo(f"{finding.status:4}  {finding.check}: {finding.detail}")
            if finding.fix:
                click.echo(f"      {finding.fix}")
    return EXIT_PROBLEMS_FOUND if any(finding.status == "fail" for finding in findings) else 0


def _guarded(check: Callable[[Settings], Finding], settings: Settings) -> Finding:
    """Run a check; one that breaks is a finding too."""
    name = check.__name__.strip("_").replace("_", " ")
    try:
        return check(settings)
    except VoicejobsError as error:
        return Finding(name, "fail", f"{error.message} [{error.code}]", error.hint)
    except OSError as error:
        return Finding(name, "fail", str(error), "Change the rights of that path, or the setting that names it.")


def _python(settings: Settings) -> Finding:
    """Tell the versions."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Finding(
        "python",
        "ok",
        f"voicejobs {__version__}, Python {platform.python_version()}, {cores} cores, {memory_gb:.1f} GB of memory",
    )


def _packages(settings: Settings) -> Finding:
    """Compare what a worker needs with what is installed."""
    missing = []
    found = []
    for name, floor in FLOORS.items():
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
            continue
        found.append(f"{name} {version}")
        if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < floor:
            missing.append(f"{name}>={'.'.join(map(str, floor))}")
    if missing:
        return Finding("packages", "fail", f"missing: {', '.join(missing)}", "pip install 'voicejobs[worker,embedded]'")
    return Finding("packages", "ok", ", ".join(found))


def _engines(settings: Settings) -> Finding:
    """List the engines that can be found."""
    return Finding("engines", "ok", ", ".join(list_engines()))


def _engine_servers(settings: Settings) -> Finding:
    """Ask the servers of engines that the settings name whether they answer."""
    told, wrong, fixes = [], [], []
    for name, (url, probe) in _SERVERS.items():
        if not getattr(settings, url):
            continue
        try:
            told.append(f"{name}: {probe(with_settings(EngineSpec(name), settings), ANSWER_S)}")
        except VoicejobsError as error:
            wrong.append(f"{name}: {error.message} [{error.code}]")
            fixes.append(error.hint)
    if wrong:
        return Finding("engine servers", "fail", "; ".join([*wrong, *told]), " ".join(fixes))
    return Finding("engine servers", "ok", "; ".join(told) or "none is set")


def _models(settings: Settings) -> Finding:
    """List the models that are on this machine."""
    states = {entry.name: state(entry, settings) for entry in CATALOGUE.values()}
    ready = [name for name, value in states.items() if value in {"ready", "unverified"}]
    if not ready:
        return Finding("models", "warn", f"none in {settings.models_dir}", "voicejobs models pull base")
    return Finding("models", "ok", f"{', '.join(ready)} in {settings.models_dir}")


def _folders(settings: Settings) -> Finding:
    """Try to write where we must."""
    for folder in (settings.state_dir, settings.models_dir):
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            return Finding("folders", "fail", f"{folder} cannot be written", "Change its rights or its setting.")
    return Finding("folders", "ok", f"{settings.state_dir}, {settings.models_dir}")


def _disk(settings: Settings) -> Finding:
    """Look at the free space."""
    free = shutil.disk_usage(_existing(settings.state_dir)).free
    if free < settings.disk_floor_bytes:
        floor = f"below the floor of {settings.disk_floor_bytes / 1e9:.1f} GB: no job is begun"
        return Finding(
            "disk", "fail", f"{free / 1e9:.1f} GB free for {settings.state_dir}, {floor}", "Free some space."
        )
    if free < LOW_DISK_BYTES:
        return Finding("disk", "warn", f"{free / 1e9:.1f} GB free for {settings.state_dir}", "Free some space.")
    return Finding("disk", "ok", f"{free / 1e9:.1f} GB free")


def _blobs(settings: Settings) -> Finding:
    """Write to the blob store, read it back, and remove it."""
    began = time.monotonic()
    place = blob_store(settings).probe()
    return Finding("blobs", "ok", f"{place}, {(time.monotonic() - began) * 1000:.0f} ms")


def _devices(settings: Settings) -> Finding:
    """List the accelerators, their parts, and the service through which processes would share one."""
    found = find_devices()
    shared = ", ".join(f"{name}={value}" for name, value in sharing_service(environment()).items())
    told = [f"{one.label} {one.name} ({one.memory_bytes / (1 << 30):.0f} GiB, {one.uuid})" for one in found]
    if shared:
        told.append(f"processes share through MPS ({shared})")
        fix = "A fault of one process on a card then ends the others on it. Unset CUDA_MPS_* unless you want that."
        return Finding("devices", "warn", "; ".join(told), fix)
    return Finding("devices", "ok", "; ".join(told) or "no accelerator; work runs on the CPU")


def _cuda(settings: Settings) -> Finding:
    """Tell the versions that must go together: of the driver, and of the libraries that were built for some CUDA."""
    driver, knows = driver_versions()
    built = {name: cuda for name, cuda in _built_for().items() if cuda}
    told = [f"driver {driver}, which knows CUDA {knows}" if driver else "no driver of NVIDIA answers"]
    told += [f"{name} is for CUDA {cuda}" for name, cuda in built.items()]
    newest = int(knows.partition(".")[0]) if knows else 0
    beyond = [name for name, cuda in built.items() if int(cuda.partition(".")[0]) > newest]
    if driver and beyond:
        fix = "Install a newer driver, or a build of these for the CUDA that the driver knows."
        return Finding("cuda", "warn", f"{'; '.join(told)}: the driver is too old for {', '.join(beyond)}", fix)
    return Finding("cuda", "ok", "; ".join(told))


def _built_for() -> dict[str, str]:
    """Return for each library that uses a card the CUDA that it was built for, found without loading any."""
    found: dict[str, str] = {}
    for name in ("ctranslate2", "nvidia-cublas-cu12", "nvidia-cudnn-cu12"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[f"{name} {importlib.metadata.version(name)}"] = CTRANSLATE2_CUDA
    spec = importlib.util.find_spec("torch")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        with contextlib.suppress(OSError):
            text = (Path(folder) / "version.py").read_text(encoding="utf-8")
            cuda = re.search(r"^cuda[^=]*= '([\d.]+)'", text, re.MULTILINE)
            version = re.search(r"^__version__ = '([^']+)'", text, re.MULTILINE)
            found[f"torch {version[1] if version else ''}".rstrip()] = cuda[1] if cuda else ""
    return found


def _orphans(settings: Settings) -> Finding:
    """Look for servers of our own whose supervisor was killed."""
    left = orphans(settings)
    if not left:
        return Finding("private servers", "ok", "none is left over")
    pids = ", ".join(map(str, left))
    return Finding(
        "private servers", "warn", f"left over: process {pids}", "The next `voicejobs transcribe` ends them."
    )


def _clock(settings: Settings) -> Finding:
    """Compare this machine's clock with the database's, which is the only one that decides anything."""
    if not settings.database_url:
        return Finding("clock", "ok", "the database is on this machine")
    database = Database(settings.database_url, pool_size=1)
    try:
        with database.read() as connection:
            apart = time.time() - float(connection.execute(select(now_s())).scalar_one())
    finally:
        database.close()
    if abs(apart) > CLOCKS_APART_S:
        return Finding(
            "clock", "warn", f"{apart:+.0f} s from the database's", "Set the clock (NTP): logs will mislead."
        )
    return Finding("clock", "ok", f"{apart:+.1f} s from the database's")


def _database(settings: Settings) -> Finding:
    """Ask the database for its revision and its clock."""
    if not settings.database_url and not (settings.state_dir / "voicejobs.db").exists():
        return Finding("database", "ok", "SQLite in the state folder, not made yet")
    database = Database(settings.effective_database_url, pool_size=1)
    try:
        began = time.monotonic()
        revision = migrate.current_revision(database)
        kind = "SQLite" if database.is_sqlite else "Postgres"
        if revision != migrate.HEAD and not settings.database_url:
            return Finding("database", "ok", f"{kind} at revision {revision}, upgraded by the next command")
        if revision != migrate.HEAD:
            return Finding("database", "fail", f"{kind} at revision {revision}", "Run `voicejobs db upgrade`.")
        return Finding("database", "ok", f"{kind} at revision {revision}, {(time.monotonic() - began) * 1000:.0f} ms")
    finally:
        database.close()


def _broker(settings: Settings) -> Finding:
    """Ask the broker for a ping, or look for the program of the private one."""
    if not settings.broker_url:
        return Finding("broker", "ok", f"private Valkey ({valkey.find_server().name})")
    require_answer(settings.broker_url)
    return Finding("broker", "ok", "answers")


def _webhooks(settings: Settings) -> Finding:
    """Look at what the service tells webhooks with: its settings, and the secret that all others are derived from."""
    Policy.of_webhooks(settings)
    try:
        return Finding("webhooks", "ok", f"signed with {source_of(settings)}")
    except SecretUnusable as error:
        if settings.webhook_secret or not settings.database_url:
            raise  # it was to be there
        fix = f"{error.hint} Until then the service tells no webhook."
        return Finding("webhooks", "warn", f"{error.message} [{error.code}]", fix)


def _existing(folder: Path) -> Path:
    """Return the nearest folder above that exists."""
    while not folder.exists():
        folder = folder.parent
    return folder


_CHECKS: tuple[Callable[[Settings], Finding], ...] = (
    _python,
    _packages,
    _engines,
    _engine_servers,
    _models,
    _folders,
    _disk,
    _blobs,
    _devices,
    _cuda,
    _database,
    _clock,
    _broker,
    _webhooks,
    _orphans,
)
