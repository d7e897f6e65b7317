"""Speak texts in a bare loop over the engine, in several processes: python spoken.py MODEL_DIR OUT PROCESSES < texts.

Texts are JSON, a list of lists of sentences; each list becomes one file. Prints `ready`, waits for a line, and prints
the seconds that it took from then on, and the CPU seconds of all processes.
"""

import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile as sf

from voicejobs.engines.base import EngineSpec, SynthesiseOptions
from voicejobs.engines.piper import PiperEngine

MODEL = "en_US-joe-medium"
SHARE = 0.95


def work(model_dir: str, out: str, todo: Any, start: Any, done: Any) -> None:
    """Load the engine, and speak texts until there are none."""
    engine = PiperEngine.load(EngineSpec("piper", MODEL, model_dir))
    engine.synthesise(["One to get warm."], SynthesiseOptions())
    done.put(("ready", 0.0))
    start.wait()
    before_s = _cpu_s()
    while (job := todo.get()) is not None:
        number, sentences = job
        sounds = engine.synthesise(sentences, SynthesiseOptions(language="en"))
        whole = np.concatenate([sound.samples for sound in sounds])
        sf.write(f"{out}/{number}.wav", whole * (SHARE / float(np.max(np.abs(whole)))), sounds[0].rate_hz)
    done.put(("done", _cpu_s() - before_s))


def _cpu_s() -> float:
    """Return the CPU time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(arguments: Sequence[str]) -> None:
    """Speak all texts."""
    model_dir, out, processes = arguments[0], arguments[1], int(arguments[2])
    texts = json.loads(sys.stdin.readline())
    Path(out).mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    todo, done, start = context.Queue(), context.Queue(), context.Event()
    for job in [*enumerate(texts), *[None] * processes]:
        todo.put(job)
    workers = [context.Process(target=work, args=(model_dir, out, todo, start, done)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    for _ in workers:
        done.get()
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    start.set()
    cpu_s = sum(done.get()[1] for _ in workers)
    print(json.dumps({"wall_s": time.perf_counter() - began, "cpu_s": cpu_s}), flush=True)
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main(sys.argv[1:])
