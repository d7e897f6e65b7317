import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import psutil
import pytest

from voicejobs.audio.types import Pcm, WindowResult
from voicejobs.engines.base import EngineSpec, RecogniseOptions, Recogniser
from voicejobs.errors import (
    BadOption,
    Cancelled,
    EngineCrash,
    EngineTimeout,
    Internal,
    OutOfMemory,
    ShuttingDown,
    UnknownEngine,
)
from voicejobs.hosting.host import EngineHost

FINE, DIE, HANG, MEMORY, ERROR, LOST_IN_BATCH, DIE_ONCE, SLOW = range(8)
PLUGIN = Path(__file__).parent / "plugin"
OPTIONS = RecogniseOptions()
MakeHost = Callable[..., EngineHost]


def window(order: int, text: int = 0, size: int = 16000) -> Pcm:
    """Return a window that tells the faulty engine what to do and which text to give."""
    samples = np.zeros(size, np.int16)
    samples[:2] = order, text
    return samples


def faulty(**params: Any) -> EngineSpec:
    """Return the spec of the faulty engine."""
    return EngineSpec("faulty", params=tuple(sorted(params.items())))


def text(result: WindowResult) -> str:
    """Return the text of the first segment."""
    return result.segments[0].text.strip() if result.segments else ""


def eventually(fact: Callable[[], bool], within_s: float = 5.0) -> bool:
    """Tell whether `fact` becomes true in time."""
    deadline = time.monotonic() + within_s
    while not fact():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def is_gone(pid: int) -> bool:
    """Tell whether no process of this id runs any more."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_every_task_gets_the_results_of_its_own_windows_in_order(make_host: MakeHost) -> None:
    """Windows of many tasks that share processes and batches come back to their own task, in order."""
    host = make_host(2)
    rng = np.random.default_rng(5)

    def task(number: int) -> bool:
        windows = [rng.integers(-9, 9, 100 + number * 10 + n).astype(np.int16) for n in range(1 + number % 5)]
        found = host.recogniser(EngineSpec("fake")).recognise(windows, OPTIONS)
        return [text(one) for one in found] == [f"n{w.size} c{crc32(w.tobytes()):08x}" for w in windows]

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(task, range(200)))
    assert len(host.pids()) <= 2


def test_proxies_fulfil_the_engine_protocols(make_host: MakeHost) -> None:
    """A proxy can stand wherever a recogniser is asked for, language detection included."""
    recogniser = make_host().recogniser(EngineSpec("fake"))
    assert isinstance(recogniser, Recogniser)
    assert recogniser.detect_language(window(FINE)) == ("en", 1.0)
    assert recogniser.recognise([], OPTIONS) == []
    assert recogniser.processes == 2


def test_one_call_keeps_all_processes_busy(plugin: None, make_host: MakeHost) -> None:
    """The windows of one long recording are shared among the processes."""
    found = make_host(2).recogniser(faulty()).recognise([window(SLOW, n) for n in range(6)], OPTIONS)
    assert [text(one) for one in found] == [str(n) for n in range(6)]
    assert len({one.segments[0].tokens[1] for one in found}) == 2


def test_windows_of_different_tasks_share_a_batch(plugin: None, make_host: MakeHost) -> None:
    """While a call runs, the windows of other tasks gather and go together in the next one."""
    recogniser = make_host(1).recogniser(faulty(max_batch=4, call_s=0.4))
    recogniser.recognise([window(FINE)], OPTIONS)
    with ThreadPoolExecutor(5) as threads:
        found = list(threads.map(lambda n: recogniser.recognise([window(FINE, n)], OPTIONS)[0], range(5)))
    assert [text(one) for one in found] == [str(n) for n in range(5)]
    assert max(one.segments[0].tokens[0] for one in found) == 4


def test_a_window_that_kills_its_processes_costs_only_its_own_task(plugin: None, make_host: MakeHost) -> None:
    """A batch with a deadly window is halved until that window stands alone, and the others get their results."""
    recogniser = make_host(1).recogniser(faulty(max_batch=8, call_s=0.05))

    def task(number: int) -> str:
        try:
            return text(recogniser.recognise([window(DIE if number == 3 else FINE, number)], OPTIONS)[0])
        except EngineCrash as error:
            return error.message

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(task, range(8)))
    assert found == ["engine process faulty was killed by SIGKILL" if n == 3 else str(n) for n in range(8)]


def test_a_process_killed_from_outside_costs_nothing(plugin: None, make_host: MakeHost, tmp_path: Path) -> None:
    """A window whose process died once is decoded again in a new one."""
    recogniser = make_host(1).recogniser(faulty(marker=str(tmp_path / "died")))
    assert text(recogniser.recognise([window(DIE_ONCE, 7)], OPTIONS)[0]) == "7"


def test_kill_9_of_an_idle_process_is_noticed_by_the_next_call(make_host: MakeHost) -> None:
    """A process that died between two calls is replaced without an error."""
    host = make_host(1)
    recogniser = host.recogniser(EngineSpec("fake"))
    recogniser.recognise([window(FINE)], OPTIONS)
    (pid,) = host.pids()
    os.kill(pid, signal.SIGKILL)
    assert text(recogniser.recognise([window(FINE)], OPTIONS)[0]).startswith("n16000")
    assert host.pids() != [pid]
    os.kill(host.pids()[0], signal.SIGKILL)
    assert recogniser.detect_language(window(FINE)) == ("en", 1.0)


def test_a_hanging_call_ends_in_time_and_leaves_no_process(plugin: None, make_host: MakeHost) -> None:
    """A call that does not answer is stopped, its process with it, and other windows go on."""
    host = make_host(1)
    recogniser = host.recogniser(faulty(timeout_s=1.0))
    recogniser.recognise([window(FINE)], OPTIONS)
    (pid,) = host.pids()
    with pytest.raises(EngineTimeout):
        recogniser.recognise([window(HANG)], OPTIONS)
    assert is_gone(pid)
    assert text(recogniser.recognise([window(FINE, 4)], OPTIONS)[0]) == "4"


def test_out_of_memory_lowers_the_batch_limit(plugin: None, make_host: MakeHost) -> None:
    """A batch that needs too much memory is halved, and later batches keep to what fits."""
    recogniser = make_host(1).recogniser(faulty(max_batch=8, memory_for=2, call_s=0.02))
    found = recogniser.recognise([window(FINE, n) for n in range(16)], OPTIONS)
    assert [text(one) for one in found] == [str(n) for n in range(16)]
    assert max(one.segments[0].tokens[0] for one in found) == 2


def test_out_of_memory_of_one_window_reaches_its_task(plugin: None, make_host: MakeHost) -> None:
    """A window that does not fit alone, in a fresh process either, ends in the error that says so."""
    with pytest.raises(OutOfMemory):
        make_host(1).recogniser(faulty()).recognise([window(MEMORY)], OPTIONS)


def test_an_error_of_the_engine_keeps_its_text(plugin: None, make_host: MakeHost) -> None:
    """What an engine raises reaches the task that gave the window, and the process lives on."""
    host = make_host(1)
    recogniser = host.recogniser(faulty(max_batch=4))
    with pytest.raises(Internal, match="not to my taste"):
        recogniser.recognise([window(ERROR)], OPTIONS)
    pids = host.pids()
    assert text(recogniser.recognise([window(FINE, 5)], OPTIONS)[0]) == "5"
    assert host.pids() == pids


def test_a_doubtful_window_of_a_batch_is_decoded_again_alone(plugin: None, make_host: MakeHost) -> None:
    """A window that a shared batch left empty gets the text that it has alone."""
    recogniser = make_host(1).recogniser(faulty(max_batch=4))
    windows = [window(FINE, 1234), window(LOST_IN_BATCH, 5678, 32000), window(FINE, 9999)]
    found = recogniser.recognise(windows, OPTIONS)
    assert [text(one) for one in found] == ["1234", "5678", "9999"]
    assert [one.segments[0].tokens[0] for one in found] == [3, 1, 3]


def test_interactive_windows_overtake_bulk_ones(plugin: None, make_host: MakeHost) -> None:
    """A window in the interactive lane does not wait for those that queued before it in bulk."""
    host = make_host(1)
    ended: list[str] = []

    def task(lane: str, count: int) -> None:
        recogniser = host.recogniser(faulty(), lane="interactive" if lane == "interactive" else "bulk")
        recogniser.recognise([window(SLOW)] * count, OPTIONS)
        ended.append(lane)

    bulk = threading.Thread(target=task, args=("bulk", 4))
    bulk.start()
    time.sleep(0.3)
    task("interactive", 1)
    bulk.join()
    assert ended == ["interactive", "bulk"]


def test_a_short_recording_does_not_wait_for_a_long_one(plugin: None, make_host: MakeHost) -> None:
    """Tasks take turns: one window is served between the many windows of another task."""
    recogniser = make_host(1).recogniser(faulty())
    ended: list[str] = []

    def task(name: str, count: int) -> None:
        recogniser.recognise([window(SLOW)] * count, OPTIONS)
        ended.append(name)

    long = threading.Thread(target=task, args=("long", 5))
    long.start()
    time.sleep(0.3)
    task("short", 1)
    long.join()
    assert ended == ["short", "long"]


def test_telling_a_language_does_not_wait_for_all_queued_windows(plugin: None, make_host: MakeHost) -> None:
    """A call for the language gets the next process that comes free."""
    recogniser = make_host(1).recogniser(faulty())
    bulk = threading.Thread(target=recogniser.recognise, args=([window(SLOW)] * 8, OPTIONS))
    bulk.start()
    time.sleep(0.3)
    assert recogniser.detect_language(window(FINE)) == ("mi", 0.75)
    assert bulk.is_alive()
    bulk.join()


def test_cancelling_ends_the_wait(plugin: None, make_host: MakeHost) -> None:
    """A task that was cancelled gives up the windows that still wait."""
    host = make_host(1)
    recogniser = host.recogniser(faulty(), cancelled=lambda: True)
    started = time.monotonic()
    with pytest.raises(Cancelled):
        recogniser.recognise([window(SLOW)] * 20, OPTIONS)
    assert time.monotonic() - started < 4


def test_loading_that_fails_reaches_the_task(plugin: None, make_host: MakeHost) -> None:
    """An engine that cannot be loaded gives its reason to each call, not a hang."""
    host = make_host(2)
    spec = faulty(load_error="no such weights")
    host.warm(spec)
    for _ in range(2):
        with pytest.raises(Internal, match="no such weights"):
            host.recogniser(spec).recognise([window(FINE)] * 3, OPTIONS)
    assert eventually(lambda: host.pids() == [])


def test_warm_loads_all_processes_at_the_same_time(plugin: None, make_host: MakeHost) -> None:
    """Processes load side by side in the background."""
    host = make_host(2)
    started = time.monotonic()
    host.warm(faulty(load_s=1.5))
    assert time.monotonic() - started < 0.5
    host.recogniser(faulty(load_s=1.5)).recognise([window(FINE)] * 4, OPTIONS)
    assert time.monotonic() - started < 2.9
    assert eventually(lambda: len(host.pids()) == 2)


def test_an_idle_process_gives_its_memory_back(make_host: MakeHost) -> None:
    """A process that nobody used for the set time ends, and the next call starts one again."""
    host = make_host(1, idle_s=0.2)
    recogniser = host.recogniser(EngineSpec("fake"))
    recogniser.recognise([window(FINE)], OPTIONS)
    (pid,) = host.pids()
    assert eventually(lambda: host.pids() == [] and is_gone(pid))
    assert recogniser.recognise([window(FINE)], OPTIONS)


def test_close_ends_calls_and_processes_at_once(plugin: None, make_host: MakeHost) -> None:
    """Closing takes less than two seconds in the middle of calls, and leaves no process."""
    host = make_host(2)
    recogniser = host.recogniser(faulty())
    errors: list[BaseException] = []

    def task(count: int) -> None:
        try:
            recogniser.recognise([window(HANG)] * count, OPTIONS)
        except ShuttingDown as error:
            errors.append(error)

    threads = [threading.Thread(target=task, args=(count,)) for count in (1, 1, 3)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: len(host.pids()) == 2)
    time.sleep(0.3)
    pids = host.pids()
    started = time.monotonic()
    host.close()
    assert time.monotonic() - started < 2
    for thread in threads:
        thread.join(2)
    assert len(errors) == 3
    assert all(is_gone(pid) for pid in pids)
    with pytest.raises(ShuttingDown):
        recogniser.recognise([window(FINE)], OPTIONS)
    with pytest.raises(ShuttingDown):
        host.recogniser(EngineSpec("fake"))


@pytest.mark.parametrize("order", [HANG, FINE])
def test_kill_9_of_the_worker_leaves_no_engine_process(order: int) -> None:
    """Engine processes end with their worker, in the middle of a call and between calls."""
    code = (
        "import sys, threading, time, pathlib, numpy as np\n"
        "from voicejobs.hosting.host import EngineHost\n"
        "from voicejobs.settings import Settings\n"
        "from voicejobs.engines.base import EngineSpec, RecogniseOptions\n"
        "host = EngineHost(Settings(pathlib.Path('s'), pathlib.Path('m'), engine_processes=1))\n"
        "spec = EngineSpec('faulty')\n"
        "w = np.zeros(100, np.int16)\n"
        "host.recogniser(spec).recognise([w], RecogniseOptions())\n"
        f"w[0] = {order}\n"
        "threading.Thread(target=host.recogniser(spec).recognise, args=([w], RecogniseOptions())).start()\n"
        "time.sleep(0.2)\n"
        "print(*host.pids(), flush=True)\n"
        "time.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(PLUGIN)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as worker:
        assert worker.stdout is not None
        pid = int(worker.stdout.readline())
        assert not is_gone(pid)
        worker.kill()
    assert eventually(lambda: is_gone(pid), 2.0)


def test_a_process_stays_when_the_thread_that_asked_for_it_ends(make_host: MakeHost) -> None:
    """The parent-death signal does not fire when a task's thread ends while the worker lives."""
    host = make_host(1)
    recogniser = host.recogniser(EngineSpec("fake"))
    thread = threading.Thread(target=recogniser.recognise, args=([window(FINE)], OPTIONS))
    thread.start()
    thread.join()
    (pid,) = host.pids()
    time.sleep(0.2)
    recogniser.recognise([window(FINE)], OPTIONS)
    assert host.pids() == [pid]


def test_an_engine_process_leads_its_own_session_with_bounded_threads(make_host: MakeHost) -> None:
    """Ctrl-C in the terminal does not reach an engine process, and native pools are held to the spec."""
    host = make_host(1)
    host.recogniser(EngineSpec("fake", threads=3)).recognise([window(FINE)], OPTIONS)
    (pid,) = host.pids()
    assert os.getsid(pid) == pid
    assert psutil.Process(pid).environ()["OMP_NUM_THREADS"] == "3"
    os.kill(pid, signal.SIGINT)
    time.sleep(0.1)
    assert not is_gone(pid)


def test_a_broken_third_party_engine_does_not_harm_the_others(plugin: None, make_host: MakeHost) -> None:
    """Only the engine that cannot be imported, or is none, is refused; ours and the plugin's good one work."""
    host = make_host(1)
    for name in ("broken", "empty", "nobody"):
        with pytest.raises(UnknownEngine):
            host.recogniser(EngineSpec(name))
    assert host.recogniser(EngineSpec("fake")).recognise([window(FINE)], OPTIONS)
    assert host.recogniser(faulty()).detect_language(window(FINE)) == ("mi", 0.75)


def test_a_recogniser_is_no_voice_activity_detector(make_host: MakeHost) -> None:
    """Asking an engine for what it does not do is a wrong option."""
    with pytest.raises(BadOption):
        make_host().vad(EngineSpec("fake"))
    with pytest.raises(BadOption):
        make_host().recogniser(EngineSpec("silero"))


def test_the_hosted_detector_gives_what_the_whole_recording_would(make_host: MakeHost) -> None:
    """Blocks sent one after another, by several tasks at once, give the probabilities of the whole."""
    host = make_host(2)
    rng = np.random.default_rng(1)
    recordings = [(rng.normal(0, 900, 512 * 40)).astype(np.int16) for _ in range(4)]

    def task(samples: Pcm) -> float:
        detector = host.vad(EngineSpec("silero"))
        whole, _ = detector.probabilities(samples, b"")
        state, parts = b"", []
        for start in range(0, samples.size, 512 * 7):
            part, state = detector.probabilities(samples[start : start + 512 * 7], state)
            parts.append(part)
        return float(np.abs(np.concatenate(parts) - whole).max())

    with ThreadPoolExecutor(4) as threads:
        assert max(threads.map(task, recordings)) < 1e-5
    assert len(host.pids()) == 1
