"""The decoder service: streams, faults that cost one file only, and nothing left behind."""

import contextlib
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.audio.recordings import encode, tones, write_wav
from voicejobs.audio.decode import DecodeOptions
from voicejobs.audio.types import Pcm
from voicejobs.errors import (
    Cancelled,
    DecoderCrash,
    DecoderTimeout,
    ExtraMissing,
    InputError,
    NotAudio,
    NotFound,
    TooLong,
    VoicejobsError,
    error_from_json,
)
from voicejobs.hosting.decoder import Decoder, DecodeStream
from voicejobs.settings import Settings

pytest.importorskip("av", reason="the extra `worker` is not installed")

RATE_HZ = 16_000


@pytest.fixture
def decoder(tmp_path: Path) -> Iterator[Decoder]:
    """Return a decoder that runs."""
    with Decoder(Settings(state_dir=tmp_path / "state", models_dir=tmp_path / "models")) as running:
        yield running


@pytest.fixture(scope="session")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an hour of silence, half a megabyte of FLAC: long enough to be caught in the middle."""
    path = tmp_path_factory.mktemp("hour") / "hour.flac"
    return encode(path, np.zeros((1, 3600 * RATE_HZ), dtype=np.float32), "flac", "mono", rate_hz=RATE_HZ)


def zygote_of(decoder: Decoder) -> psutil.Process:
    """Return the zygote's process."""
    assert decoder._zygote is not None
    return psutil.Process(decoder._zygote.pid)


def read(decoder: Decoder, path: Path, options: DecodeOptions | None = None) -> Pcm:
    """Decode a recording to one channel."""
    with decoder.open(path, options) as stream:
        return np.concatenate([block for (block,) in stream.blocks()])


def drain(stream: DecodeStream, pause_s: float = 0.0) -> None:
    """Read a stream to its end."""
    for _ in stream.blocks():
        time.sleep(pause_s)


def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    """Wait for something that happens elsewhere."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def gone(pid: int) -> bool:
    """Return whether a process has ended; one that only waits to be collected has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_stream_tells_what_it_opened_and_counts_what_it_gave(decoder: Decoder, tmp_path: Path) -> None:
    """Two channels come as two arrays a block, with the facts before them and the count after them."""
    path = encode(tmp_path / "a.flac", tones(0.5, 0.1, seconds=12, rate_hz=44_100), "flac", "stereo", rate_hz=44_100)
    with decoder.open(path, decoder.options(channels="split")) as stream:
        assert (stream.info.codec, stream.info.container) == ("flac", "flac")
        assert (stream.info.rate_hz, stream.info.channels, stream.info.output_channels) == (44_100, 2, 2)
        assert stream.info.claimed_duration_s == pytest.approx(12)
        blocks = list(stream.blocks())
        assert stream.samples == sum(len(left) for left, _ in blocks) == 12 * RATE_HZ
        assert stream.skipped_packets == 0
    assert all(left.dtype == right.dtype == np.int16 and left.shape == right.shape for left, right in blocks)


def test_names_cross_as_they_are(decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative names count from the worker's folder, and any bytes are a name."""
    monkeypatch.chdir(tmp_path)
    for name in (b"concat:secret.wav", b"-x.wav", b"caf\xe9\n.wav", "🎉.wav".encode()):
        write_wav(Path(os.fsdecode(name)))
        assert len(read(decoder, Path(os.fsdecode(name)))) == RATE_HZ


def test_errors_come_back_as_their_own_class(decoder: Decoder, tmp_path: Path) -> None:
    """What the child raises, the worker raises: class, message, hint and details."""
    page = tmp_path / "page.mp3"
    page.write_text("<html>no sound</html>" * 99)
    with pytest.raises(NotAudio, match=r"page\.mp3.*web page") as caught:
        read(decoder, page)
    assert caught.value.details == {"looks_like": "a web page"}
    assert caught.value.hint == NotAudio.default_hint
    with pytest.raises(NotFound, match=r"none\.wav"):
        read(decoder, tmp_path / "none.wav")


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return small recordings of several kinds, by their endings."""
    folder = tmp_path_factory.mktemp("originals")
    codecs = {
        ".wav": "pcm_s24le",
        ".flac": "flac",
        ".mp3": "libmp3lame",
        ".m4a": "aac",
        ".ogg": "libopus",
        ".mkv": "aac",
    }
    return {
        ending: encode(folder / f"a{ending}", tones(0.5, 0.5, seconds=0.5), codec, "stereo").read_bytes()
        for ending, codec in codecs.items()
    }


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_bytes_give_sound_or_an_error_about_the_input(
    decoder: Decoder, originals: dict[str, bytes], tmp_path: Path, data: st.DataObject
) -> None:
    """Flipped bits and cut-off ends give samples or an InputError: no crash, no error that we did not foresee."""
    ending = data.draw(st.sampled_from(sorted(originals)))
    content = bytearray(originals[ending])
    for place in data.draw(st.lists(st.integers(0, len(content) * 8 - 1), max_size=30)):
        content[place // 8] ^= 1 << place % 8
    path = tmp_path / f"damaged{ending}"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with contextlib.suppress(InputError):
        assert len(read(decoder, path, DecodeOptions(max_audio_s=600))) > 0


def test_every_error_survives_json() -> None:
    """Every class of the tree is rebuilt from its JSON."""
    waiting = [VoicejobsError]
    while waiting:
        kind = waiting.pop()
        waiting += [one for one in kind.__subclasses__() if one.__module__.startswith("voicejobs.")]
        sent = kind("what", hint="do", limit=3)
        error = error_from_json(sent.to_json())
        # One that shares the code of its parent is a matter between two modules, and arrives as its parent.
        assert isinstance(sent, type(error))
        assert (error.code, error.message, error.hint, error.details) == (kind.code, "what", "do", {"limit": 3})


def test_too_long_is_told_by_what_was_decoded(decoder: Decoder, hour: Path) -> None:
    """The limit strikes after as much audio as it allows, not by the header."""
    given: list[int] = []
    with decoder.open(hour, DecodeOptions(max_audio_s=20)) as stream, pytest.raises(TooLong):
        given.extend(len(block) for (block,) in stream.blocks())
    assert 15 * RATE_HZ <= sum(given) <= 20 * RATE_HZ


def test_many_threads_decode_at_once(decoder: Decoder, tmp_path: Path) -> None:
    """Streams of many threads do not mix."""
    paths = [write_wav(tmp_path / f"{number}.wav", samples=1000 * number) for number in range(1, 25)]
    with ThreadPoolExecutor(8) as pool:
        lengths = list(pool.map(lambda path: len(read(decoder, path)), paths))
    assert lengths == [1000 * number for number in range(1, 25)]


def test_a_reader_that_stops_holds_the_child_back(decoder: Decoder, hour: Path) -> None:
    """Nothing is decoded ahead of the reader but what the pipe holds, so memory stays flat."""
    with decoder.open(hour) as stream:
        next(stream.blocks())
        (child,) = zygote_of(decoder).children()
        assert wait_until(lambda: child.status() == psutil.STATUS_SLEEPING)
        time.sleep(0.2)
        before_s = child.cpu_times().user
        time.sleep(0.5)
        assert child.cpu_times().user == before_s


def test_a_bomb_stays_flat(decoder: Decoder, hour: Path) -> None:
    """An hour out of half a megabyte never takes a decoder above 120 MB, and gives every sample."""
    assert hour.stat().st_size < 1_000_000
    peak_bytes = samples = 0
    with decoder.open(hour) as stream:
        (child,) = zygote_of(decoder).children()
        for (block,) in stream.blocks():
            samples += len(block)
            if samples < 3500 * RATE_HZ and samples // RATE_HZ % 50 == 0:
                peak_bytes = max(peak_bytes, child.memory_info().rss)
    assert samples == stream.samples == 3600 * RATE_HZ
    assert 0 < peak_bytes < 120e6


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_crash_costs_one_file_only(decoder: Decoder, hour: Path, number: signal.Signals) -> None:
    """A child that dies gives DecoderCrash with its signal; the stream beside it goes on to its end."""
    with decoder.open(hour) as healthy:
        assert next(healthy.blocks())
        beside = set(zygote_of(decoder).children())
        with decoder.open(hour) as stream:
            (child,) = set(zygote_of(decoder).children()) - beside
            child.send_signal(number)
            with pytest.raises(DecoderCrash, match=rf"hour\.flac.*signal {number.value}"):
                drain(stream)
        drain(healthy)
        assert healthy.samples == 3600 * RATE_HZ


def test_a_decoder_that_wants_too_much_memory_is_stopped(decoder: Decoder, hour: Path, tmp_path: Path) -> None:
    """An address space that is too small fails that file with an error that says so, and no other."""
    with pytest.raises(DecoderCrash, match=r"hour\.flac"):
        read(decoder, hour, DecodeOptions(memory_bytes=1 << 27))
    assert len(read(decoder, write_wav(tmp_path / "a.wav"))) == RATE_HZ


def test_a_child_that_hangs_is_ended(decoder: Decoder, hour: Path) -> None:
    """Without progress for the time allowed the file fails, and the stopped child is gone."""
    with decoder.open(hour, DecodeOptions(stall_timeout_s=1)) as stream:
        (child,) = zygote_of(decoder).children()
        child.suspend()
        with pytest.raises(DecoderTimeout, match=r"hour\.flac"):
            drain(stream)
    assert gone(child.pid)


def test_cancelling_ends_the_child(decoder: Decoder, hour: Path) -> None:
    """Once `cancelled` says so, reading raises Cancelled, and the child is gone before it does."""
    flag = threading.Event()
    threading.Timer(0.7, flag.set).start()
    with decoder.open(hour, cancelled=flag.is_set) as stream:
        (child,) = zygote_of(decoder).children()
        with pytest.raises(Cancelled, match=r"hour\.flac"):
            drain(stream, pause_s=0.05)
    assert gone(child.pid)


def test_leaving_early_ends_the_child(decoder: Decoder, hour: Path) -> None:
    """A block that is left, by an error or not, leaves no process."""
    with decoder.open(hour) as stream:
        next(stream.blocks())
        (child,) = zygote_of(decoder).children()
    assert gone(child.pid)
    assert not zygote_of(decoder).children()


def test_a_dead_zygote_is_replaced(decoder: Decoder, hour: Path, tmp_path: Path) -> None:
    """When the zygote dies its streams fail as crashes, its children end with it, and the next file gets a new one."""
    first = zygote_of(decoder)
    with decoder.open(hour) as stream:
        (child,) = first.children()
        first.kill()
        with pytest.raises(DecoderCrash, match=r"hour\.flac"):
            drain(stream)
    assert wait_until(lambda: gone(child.pid))
    assert len(read(decoder, write_wav(tmp_path / "a.wav"))) == RATE_HZ
    assert zygote_of(decoder).pid != first.pid


def test_a_zygote_that_died_between_two_files_goes_unnoticed(decoder: Decoder, tmp_path: Path) -> None:
    """A request that meets a dead or dying zygote is served by the next one."""
    path = write_wav(tmp_path / "a.wav")
    for _ in range(5):
        zygote_of(decoder).kill()
        assert len(read(decoder, path)) == RATE_HZ


@pytest.mark.timeout(120)
def test_five_hundred_files_leave_nothing_behind(decoder: Decoder, tmp_path: Path) -> None:
    """After hundreds of files, good, bad and left early, no descriptor and no process is left on either side."""
    good, bad = write_wav(tmp_path / "a.wav"), tmp_path / "bad.mp3"
    bad.write_bytes(b"nothing" * 100)

    def decode_some(count: int) -> None:
        for number in range(count):
            with contextlib.suppress(NotAudio), decoder.open(bad if number % 5 == 0 else good) as stream:
                if number % 3:
                    list(stream.blocks())

    decode_some(20)
    me, zygote = psutil.Process(), zygote_of(decoder)
    assert wait_until(lambda: not zygote.children())
    before = (me.num_fds(), zygote.num_fds(), me.num_threads())
    resident_bytes = zygote.memory_info().rss
    decode_some(500)
    assert wait_until(lambda: not zygote.children())
    assert (me.num_fds(), zygote.num_fds(), me.num_threads()) == before
    assert zygote.num_threads() == 1
    assert zygote.memory_info().rss < resident_bytes + 4e6


@pytest.mark.benchmark
def test_a_short_file_costs_little(decoder: Decoder, tmp_path: Path) -> None:
    """A second of WAV costs at most 13 ms of CPU time in zygote, child and worker together."""
    path, count = write_wav(tmp_path / "a.wav"), 300
    zygote = zygote_of(decoder)
    before, own_before_s = zygote.cpu_times(), time.process_time()
    for _ in range(count):
        read(decoder, path)
    assert wait_until(lambda: not zygote.children())
    after, own_s = zygote.cpu_times(), time.process_time() - own_before_s
    assert (sum(after[:4]) - sum(before[:4]) + own_s) / count <= 0.013


WORKER = """
import sys, time
from pathlib import Path
from voicejobs.hosting.decoder import Decoder
from voicejobs.settings import Settings
decoder = Decoder(Settings(state_dir=Path("/nonexistent"), models_dir=Path("/nonexistent")))
with decoder.open(sys.argv[1]) as stream:
    next(stream.blocks())
    print("reading", flush=True)
    time.sleep(60)
"""


def test_killing_the_worker_leaves_nothing(hour: Path) -> None:
    """SIGKILL of the worker ends its zygote and the child that waits for a reader."""
    with subprocess.Popen([sys.executable, "-c", WORKER, str(hour)], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"reading\n"
        family = [process.pid for process in psutil.Process(worker.pid).children(recursive=True)]
        assert len(family) == 2
        worker.kill()
    assert wait_until(lambda: all(gone(pid) for pid in family))


def test_a_child_is_locked_in(decoder: Decoder, hour: Path) -> None:
    """A child has limits, no environment of ours, no descriptor but its pipe, and no core dumps."""
    with decoder.open(hour, DecodeOptions(memory_bytes=1 << 29)) as stream:
        next(stream.blocks())
        (child,) = zygote_of(decoder).children()
        assert child.rlimit(psutil.RLIMIT_AS) == (1 << 29, 1 << 29)
        assert child.rlimit(psutil.RLIMIT_FSIZE) == (0, 0)
        assert child.rlimit(psutil.RLIMIT_CORE) == (0, 0)
        assert child.rlimit(psutil.RLIMIT_NOFILE) == (32, 32)
        soft_s, hard_s = child.rlimit(psutil.RLIMIT_CPU)
        assert 0 < soft_s <= 60 < hard_s
        assert child.num_fds() == 5  # /dev/null twice, standard error, the pipe, the recording
        allowed = {"PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR"}
        assert {name for name in child.environ() if not name.endswith("_NUM_THREADS")} <= allowed
        assert child.cwd() == "/"
        if platform.machine() in {"x86_64", "aarch64"}:
            assert "Seccomp:\t2" in Path(f"/proc/{child.pid}/status").read_text(encoding="ascii")


def test_no_pyav_is_told_as_a_missing_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PyAV is not installed, starting says which extra brings it."""
    (tmp_path / "av.py").write_text("raise ImportError('No module named av')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    decoder = Decoder(Settings(state_dir=tmp_path / "state", models_dir=tmp_path / "models"))
    with pytest.raises(ExtraMissing, match="av"):
        decoder.start()
    decoder.close()


def test_the_worker_never_loads_pyav() -> None:
    """Importing the worker's side loads no media library."""
    code = "import sys, voicejobs.hosting.decoder; sys.exit('av' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
