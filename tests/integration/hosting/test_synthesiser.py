import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.hosting.conftest import MakeHost
from voicejobs.engines.base import EngineSpec, SynthesiseOptions, Synthesiser
from voicejobs.engines.fake_voice import VOICES, describe, hear
from voicejobs.errors import BadOption, Cancelled, EngineCrash, EngineTimeout, Internal, OutOfMemory

FINE = 0
DIE, HANG, MEMORY, ERROR, _, DIE_ONCE, SLOW = range(1, 8)
OPTIONS = SynthesiseOptions()


def faulty(**params: Any) -> EngineSpec:
    """Return the voice that fails as its texts want."""
    return EngineSpec("faulty_voice", params=tuple(params.items()))


def speak(host: Any, spec: EngineSpec, *texts: str, **how: Any) -> list[tuple[int, int]]:
    """Return number and batch size of each text."""
    sounds = host.synthesiser(spec, **how).synthesise(list(texts), OPTIONS)
    assert all(sound.rate_hz == 8000 + sound.samples[0] for sound in sounds)
    return [(int(sound.samples[0]), int(sound.samples[1])) for sound in sounds]


def test_every_task_gets_the_sound_of_its_own_texts_in_order(make_host: MakeHost) -> None:
    """Texts of many tasks that share processes and batches come back to their own task, in order."""
    host = make_host(2)

    def task(number: int) -> bool:
        texts = [f"task {number} says {n} times {'ha' * n}" for n in range(1 + number % 5)]
        options = SynthesiseOptions(voice=VOICES[number % 2])
        sounds = host.synthesiser(EngineSpec("fake_voice")).synthesise(texts, options)
        heard = [hear(sound.samples, sound.rate_hz) for sound in sounds]
        return heard == [[describe(text)] for text in texts]

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(task, range(60)))
    assert len(host.pids()) <= 2


def test_the_proxy_fulfils_the_protocol(make_host: MakeHost) -> None:
    """A proxy can stand wherever a synthesiser is asked for, its voices included."""
    synthesiser = make_host().synthesiser(EngineSpec("fake_voice"))
    assert isinstance(synthesiser, Synthesiser)
    assert [voice.name for voice in synthesiser.voices()] == list(VOICES)
    assert synthesiser.synthesise([], OPTIONS) == []
    assert [sound.samples.size for sound in synthesiser.synthesise([" "], OPTIONS)] == [0]
    assert synthesiser.processes == 2


def test_texts_of_different_tasks_share_a_batch(plugin: None, make_host: MakeHost) -> None:
    """While a call runs, the texts of other tasks gather and go together in the next one."""
    host, spec = make_host(1), faulty(max_batch=4, call_s=0.4)
    speak(host, spec, f"{FINE} 0")
    with ThreadPoolExecutor(5) as threads:
        found = list(threads.map(lambda n: speak(host, spec, f"{FINE} {n}")[0], range(5)))
    assert [number for number, _ in found] == list(range(5))
    assert max(size for _, size in found) == 4


def test_a_text_that_kills_its_processes_costs_only_its_own_task(plugin: None, make_host: MakeHost) -> None:
    """A batch with a deadly text is halved until that text stands alone, and the others are spoken."""
    host, spec = make_host(1), faulty(max_batch=8, call_s=0.05)

    def task(number: int) -> object:
        try:
            return speak(host, spec, f"{DIE if number == 3 else FINE} {number}")[0][0]
        except EngineCrash as error:
            return error.message

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(task, range(8)))
    assert found == ["engine process faulty_voice was killed by SIGKILL" if n == 3 else n for n in range(8)]


def test_a_process_killed_from_outside_costs_nothing(plugin: None, make_host: MakeHost, tmp_path: Path) -> None:
    """A text whose process died once is spoken again in a new one; one that died idle is replaced."""
    host, spec = make_host(1), faulty(marker=str(tmp_path / "died"))
    assert speak(host, spec, f"{DIE_ONCE} 7") == [(7, 1)]
    os.kill(host.pids()[0], signal.SIGKILL)
    assert speak(host, spec, f"{FINE} 8") == [(8, 1)]


def test_a_hanging_call_ends_in_time_and_leaves_no_process(plugin: None, make_host: MakeHost) -> None:
    """A call that does not answer is stopped, its process with it, and other texts go on."""
    host, spec = make_host(1), faulty(timeout_s=1.0)
    speak(host, spec, f"{FINE} 0")
    (pid,) = host.pids()
    with pytest.raises(EngineTimeout):
        speak(host, spec, f"{HANG} 1")
    assert not psutil.pid_exists(pid)
    assert speak(host, spec, f"{FINE} 4") == [(4, 1)]


def test_out_of_memory_halves_the_batch_and_an_error_keeps_its_text(plugin: None, make_host: MakeHost) -> None:
    """What fits is spoken; what does not fit alone, and what the engine refuses, ends in the error that says so."""
    host, spec = make_host(1), faulty(max_batch=8, memory_for=2, call_s=0.02)
    found = speak(host, spec, *(f"{FINE} {n}" for n in range(16)))
    assert [number for number, _ in found] == list(range(16))
    assert max(size for _, size in found) == 2
    with pytest.raises(OutOfMemory):
        speak(host, spec, f"{MEMORY} 1")
    with pytest.raises(Internal, match="not to my taste"):
        speak(host, spec, f"{ERROR} 1")


def test_interactive_texts_overtake_bulk_ones_and_cancelling_ends_the_wait(plugin: None, make_host: MakeHost) -> None:
    """A text of the interactive lane is next though many wait, and a cancelled task does not wait for its turn."""
    host, spec = make_host(1), faulty()
    ends: dict[str, float] = {}

    def task(lane: Any, count: int) -> None:
        speak(host, spec, *(f"{SLOW} {n}" for n in range(count)), lane=lane)
        ends[lane] = time.monotonic()

    bulk = threading.Thread(target=task, args=("bulk", 8))
    bulk.start()
    time.sleep(0.3)
    task("interactive", 1)
    started = time.monotonic()
    with pytest.raises(Cancelled):
        speak(host, spec, f"{SLOW} 1", f"{SLOW} 2", cancelled=lambda: True)
    assert time.monotonic() - started < 2.0
    bulk.join()
    assert ends["interactive"] < ends["bulk"]


def test_a_synthesiser_is_no_recogniser(make_host: MakeHost) -> None:
    """Asking an engine for what it does not do is an error with words, before any process starts."""
    host = make_host()
    with pytest.raises(BadOption, match="is a synthesiser, not a recogniser"):
        host.recogniser(EngineSpec("fake_voice"))
    with pytest.raises(BadOption, match="is a recogniser, not a synthesiser"):
        host.synthesiser(EngineSpec("fake"))
    assert host.pids() == []
