"""Time to speak sentences and pages: voicejobs, a bare loop over the engine, the command `piper`; start-up apart."""

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from benchmarks.report import finish, machine, print_table
from sqlalchemy import func, select

from tests.servers.valkey import Valkey
from voicejobs.models.catalogue import find
from voicejobs.models.installed import resolve
from voicejobs.pipelines.pipeline import SPEAK
from voicejobs.settings import Settings, inherited_environment
from voicejobs.store import migrate
from voicejobs.store.blobs import BlobStore
from voicejobs.store.database import Database
from voicejobs.store.schema import jobs
from voicejobs.store.states import FINAL_JOB
from voicejobs.submit import InputFile, Submission
from voicejobs.text import plan_pieces

MODEL = "en_US-joe-medium"
PAGE_CHARS = 2_500
SENTENCES_LIMIT, PAGES_LIMIT, COMMAND_LIMIT = 0.90, 0.95, 3.0
FLAT_LIMIT = 1.15
_NAMES = [
    "harbour", "lantern", "captain", "village", "letter", "garden", "station", "winter", "bridge", "orchard", "river",
    "market",
]  # fmt: skip
_VERBS = ["watched", "followed", "remembered", "crossed", "painted", "carried", "repaired", "described"]
_KINDS = ["quiet", "narrow", "golden", "heavy", "distant", "friendly", "early", "broken"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--pages", type=int, default=12, help=f"texts of {PAGE_CHARS} characters")
    parser.add_argument("--files", type=int, default=20, help="of the sentences, those that the command `piper` speaks")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--memory-pages", type=int, default=0, help="speak one text of so many pages, and of a tenth")
    parser.add_argument("--engine", choices=("piper", "fake_voice"), default="piper", help="of --memory-pages")


def main(arguments: argparse.Namespace) -> int:
    """Run each in turns, compare the best of each."""
    if arguments.memory_pages:
        return _memory(arguments)
    processes = machine()["cores"]
    texts = {"sentences": sentences(arguments.sentences), "pages": pages(arguments.pages)}
    figures: dict[str, dict[str, list[Figure]]] = {name: {"bare": [], "voicejobs": []} for name in texts}
    with tempfile.TemporaryDirectory(prefix="vj-bench-") as name:
        work = Path(name)
        with stack(work, processes) as bench:
            bench.speak(sentences(2 * processes, seed=99), work / "warm")
            for run in range(arguments.runs):
                for kind, given in texts.items():
                    folder = work / f"{kind}{run}"
                    figures[kind]["voicejobs"].append(bench.speak(given, folder / "ours"))
                    figures[kind]["bare"].append(bare(given, folder / "bare", processes))
                    print(f"run {run + 1}: {kind}: {figures[kind]}", file=sys.stderr)
        command_s = piper(texts["sentences"][: arguments.files], work) if arguments.files else 0.0
    return _report(arguments, texts, figures, command_s)


@dataclass(frozen=True)
class Figure:
    """Hold what speaking some texts took: seconds of the clock, and of all processors."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class Bench:
    """Hold a warm worker with its store."""

    database: Database
    blobs: BlobStore
    worker: psutil.Process
    options: dict[str, Any]

    def speak(self, texts: Sequence[str], out: Path) -> Figure:
        """Submit texts, and wait until all are spoken."""
        out.mkdir(parents=True)
        before_s = _tree_cpu_s(self.worker) + _own_cpu_s()
        began = time.perf_counter()
        submission = Submission(
            self.database, SPEAK, SPEAK.options({"synthesise": self.options}), blobs=self.blobs, force=True
        )
        files = [InputFile(f"text:{n}", f"text {n}", str(out / str(n)), text=text) for n, text in enumerate(texts)]
        submission.add(files)
        submission.seal()
        while self._open():
            time.sleep(0.1)
        wall_s = time.perf_counter() - began
        cpu_s = _tree_cpu_s(self.worker) + _own_cpu_s() - before_s
        missing = [file.name for file in files if not Path(f"{file.target}.wav").exists()]
        if missing:
            sys.exit(f"not spoken: {missing}")
        return Figure(wall_s, cpu_s)

    def _open(self) -> int:
        """Return how many jobs have not ended."""
        query = select(func.count()).select_from(jobs).where(jobs.c.state.not_in([str(one) for one in FINAL_JOB]))
        with self.database.read() as connection:
            return int(connection.execute(query).scalar_one())


@contextlib.contextmanager
def stack(work: Path, processes: int, engine: str = "piper", **settings: str) -> Iterator[Bench]:
    """Start a broker and a worker with so many engine processes, and end them."""
    url = f"sqlite:///{work / 'jobs.db'}"
    models = Settings.from_env().models_dir
    here = Settings(state_dir=work / "state", models_dir=models)
    blobs = BlobStore(here.blobs_dir)
    blobs.make_folders()
    broker = Valkey().start()
    database = Database(url)
    migrate.upgrade(database)
    ours = {
        "VOICEJOBS_BROKER_URL": broker.broker_url(),
        "VOICEJOBS_DATABASE_URL": url,
        "VOICEJOBS_STATE_DIR": str(here.state_dir),
        "VOICEJOBS_MODELS_DIR": str(models),
        "VOICEJOBS_ENGINE_PROCESSES": str(processes),
        **settings,
    }
    command = [sys.executable, "-m", "voicejobs_workers", "--die-with-parent"]
    with (work / "worker.log").open("wb") as log:
        worker = subprocess.Popen(command, stdout=log, stderr=log, env={**inherited_environment(), **ours})
    options = {"engine": engine, "model": ""}
    if engine == "piper":
        options = {"model_sha256": find(MODEL).sha256}
    try:
        yield Bench(database, blobs, psutil.Process(worker.pid), options)
    finally:
        worker.terminate()
        worker.wait(30)
        database.close()
        broker.close()


def sentences(count: int, seed: int = 1) -> list[str]:
    """Return different sentences of some twelve words."""
    pick = random.Random(seed)  # noqa: S311 - the same texts each time
    form = "In the {} {} of the {} the {} {} {} the {} {} near a {}."
    return [
        form.format(
            pick.choice(_KINDS), pick.choice(_NAMES), pick.choice(_NAMES), pick.choice(_KINDS), pick.choice(_NAMES),
            pick.choice(_VERBS), pick.choice(_KINDS), pick.choice(_NAMES), pick.choice(_NAMES),
        )
        for _ in range(count)
    ]  # fmt: skip


def pages(count: int) -> list[str]:
    """Return different texts of a page each, in paragraphs of some sentences."""
    texts = []
    for number in range(count):
        lines, size = [], 0
        for line in sentences(100, seed=1000 + number):
            if size + len(line) > PAGE_CHARS:
                break
            lines.append(line)
            size += len(line) + 1
        texts.append("\n\n".join(" ".join(lines[start : start + 5]) for start in range(0, len(lines), 5)))
    return texts


def bare(texts: Sequence[str], out: Path, processes: int) -> Figure:
    """Speak texts in a loop, the sentences of each given."""
    model_dir = str(resolve(find(MODEL), Settings.from_env()).dir)
    script = str(Path(__file__).with_name("spoken.py"))
    given = json.dumps([[piece.spoken for piece in plan_pieces(text, "en")] for text in texts])
    process = subprocess.Popen(
        [sys.executable, script, model_dir, str(out), str(processes)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=inherited_environment(),
    )  # fmt: skip
    with process, process.stdin as give, process.stdout as take:  # type: ignore[union-attr]
        give.write(given + "\n")
        give.flush()
        take.readline()
        give.write("go\n")
        give.flush()
        found = json.loads(take.readline())
    return Figure(found["wall_s"], found["cpu_s"])


def piper(texts: Sequence[str], work: Path) -> float:
    """Return the seconds that the command takes for each of some texts, one after the other."""
    model = resolve(find(MODEL), Settings.from_env()).dir / f"{MODEL}.onnx"
    began = time.perf_counter()
    for number, text in enumerate(texts):
        target = str(work / f"piper{number}.wav")
        command = [sys.executable, "-m", "piper", "-m", str(model), "-f", target, "--", text]
        subprocess.run(command, check=True, capture_output=True)
    return (time.perf_counter() - began) / len(texts)


def _tree_cpu_s(process: psutil.Process) -> float:
    """Return the CPU time of a process, of what it reaped, and of its living children."""
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system
    return total


def _own_cpu_s() -> float:
    """Return the CPU time of this process."""
    times = os.times()
    return times.user + times.system


def _report(
    arguments: argparse.Namespace,
    texts: dict[str, list[str]],
    figures: dict[str, dict[str, list[Figure]]],
    command_s: float,
) -> int:
    """Print the table and write the JSON."""
    rows = [("texts", "bare loop s", "voicejobs s", "speed of the loop", "CPU of the loop")]
    result: dict[str, Any] = {"runs": arguments.runs, "holds": {}}
    for kind, limit in (("sentences", SENTENCES_LIMIT), ("pages", PAGES_LIMIT)):
        loop, ours = figures[kind]["bare"], figures[kind]["voicejobs"]
        walls = [min(one.wall_s for one in several) for several in (loop, ours)]
        cpus = [min(one.cpu_s for one in several) for several in (loop, ours)]
        ratio = walls[0] / walls[1]
        rows.append(
            (f"{len(texts[kind])} {kind}", f"{walls[0]:.1f}", f"{walls[1]:.1f}", f"{ratio:.3f}",
             f"{cpus[1] / cpus[0]:.3f}")
        )  # fmt: skip
        result[kind] = {
            "texts": len(texts[kind]), "ratio": ratio, "cpu_ratio": cpus[1] / cpus[0],
            "bare": [vars_of(one) for one in loop], "voicejobs": [vars_of(one) for one in ours],
        }  # fmt: skip
        result["holds"][f"{kind}: at least {limit} of the bare loop"] = ratio >= limit
    print_table(rows)
    if command_s:
        ours_s = min(one.wall_s for one in figures["sentences"]["voicejobs"]) / len(texts["sentences"])
        times = command_s / ours_s
        print(f"`piper` file by file: {command_s:.2f} s for each sentence, voicejobs {ours_s:.2f} s: {times:.1f} times")
        result["command"] = {"files": arguments.files, "s_each": command_s, "times": times}
        result["holds"][f"at least {COMMAND_LIMIT:g} times as fast as the command file by file"] = (
            times >= COMMAND_LIMIT
        )
    return finish("speech", result, arguments.json)


def vars_of(figure: Figure) -> dict[str, float]:
    """Return a figure as JSON values."""
    return {"wall_s": figure.wall_s, "cpu_s": figure.cpu_s}


def _memory(arguments: argparse.Namespace) -> int:
    """Speak one long text and one of a tenth of its length, and compare the largest memory of the worker."""
    peaks: dict[int, float] = {}
    rows = [("pages", "audio s", "wall s", "worker MB at most")]
    for count in (max(1, arguments.memory_pages // 10), arguments.memory_pages):
        with tempfile.TemporaryDirectory(prefix="vj-bench-") as name:
            work = Path(name)
            more = {"VOICEJOBS_FAKE_CHARACTER_S": "0.06"}
            with stack(work, machine()["cores"], arguments.engine, **more) as bench:
                watch = Path(f"/proc/{bench.worker.pid}/status")
                figure = bench.speak(["\n\n".join(pages(count))], work / "out")
                # The worker proper: launcher and Celery are one process or two, the larger one counts.
                tree = [watch, *(Path(f"/proc/{one.pid}/status") for one in bench.worker.children(recursive=True))]
                peaks[count] = max(_peak_mb(path) for path in tree if _is_worker(path))
                with bench.database.read() as connection:
                    audio_s = float(connection.execute(select(func.sum(jobs.c.audio_s))).scalar_one())
        rows.append((str(count), f"{audio_s:.0f}", f"{figure.wall_s:.0f}", f"{peaks[count]:.0f}"))
    print_table(rows)
    few, many = peaks.values()
    holds = {f"ten times the pages take at most {FLAT_LIMIT} of the memory": many <= FLAT_LIMIT * few}
    return finish("speech-memory", {"engine": arguments.engine, "peak_mb": peaks, "holds": holds}, arguments.json)


def _is_worker(path: Path) -> bool:
    """Tell whether a process is no engine and no decoder."""
    command = path.with_name("cmdline").read_bytes()
    return b"hosting" not in command


def _peak_mb(path: Path) -> float:
    """Return the largest resident memory that a process has had."""
    (line,) = (line for line in path.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1000
