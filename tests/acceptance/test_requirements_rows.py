"""Rows of docs/requirements.md that only the whole program can prove."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from numpy.typing import NDArray

from tests.servers.valkey import Valkey
from voicejobs.audio.decode import DecodeOptions, decode
from voicejobs.audio.resample import Resampler
from voicejobs.engines.base import EngineSpec
from voicejobs.engines.silero import SileroEngine
from voicejobs.steps.prepare import listen

ROOT = Path(__file__).parents[2]
PLUGIN = Path(__file__).with_name("plugin")
COMMAND = Path(sys.executable).with_name("voicejobs")
RATE_HZ = 16_000
MESSAGE_LIMIT_BYTES = 16 * 1024


@pytest.fixture
def speech() -> NDArray[np.int16]:
    """Return some seconds of speech at 16 kHz, one channel."""
    path = ROOT / "examples" / "harbor.flac"
    samples, rate = sf.read(path, dtype="int16", always_2d=True)
    places = np.arange(0, len(samples) - 1, rate / RATE_HZ)
    sound = np.interp(places, np.arange(len(samples)), samples[:, 0])
    return np.asarray(sound * (20_000 / np.abs(sound).max()), dtype=np.int16)


def run_voicejobs(
    *arguments: str | Path, state: Path, settings: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run the installed command with a state folder of its own."""
    environment = {**os.environ, "VOICEJOBS_STATE_DIR": str(state), "VOICEJOBS_MODELS_DIR": str(state / "models")}
    environment |= {"VOICEJOBS_LINGER_S": "0", "PYTHONPATH": str(PLUGIN), **(settings or {})}
    return subprocess.run(
        [str(COMMAND), *map(str, arguments)], capture_output=True, text=True, env=environment, check=False, timeout=150
    )


@pytest.mark.services
@pytest.mark.timeout(120)
def test_a1_one_call_tells_the_whole_story_of_a_job(tmp_path: Path, speech: NDArray[np.int16]) -> None:
    """A job of five step runs whose third fails: `job show` names it, with its traceback, worker and trace id."""
    recording = tmp_path / "call.wav"
    # Three channels are three step runs of `recognise`; the engine stumbles over the quiet one in the middle.
    sf.write(recording, np.stack([speech, speech // 10, speech], axis=1), RATE_HZ, subtype="PCM_16")
    options = ["--engine", "choosy", "--channels", "split", "--no-progress"]
    state, settings = tmp_path / "state", {"VOICEJOBS_MAX_ATTEMPTS": "1"}
    done = run_voicejobs("transcribe", recording, "-o", tmp_path / "out", *options, state=state, settings=settings)
    assert done.returncode == 8, done.stderr
    assert "[internal]" in done.stderr
    listed = json.loads(run_voicejobs("job", "list", "--json", state=state).stdout)
    (job_id,) = [job["id"] for job in listed["jobs"]]

    told = run_voicejobs("job", "show", job_id, "--json", state=state)

    story: dict[str, Any] = json.loads(told.stdout)["job"]
    steps = story["steps"]
    assert [(step["step"], step["shard"]) for step in steps] == [
        ("prepare", 0),
        ("recognise", 0),
        ("recognise", 1),
        ("recognise", 2),
        ("deliver", 0),
    ]
    failing = steps[2]
    (attempt,) = failing["attempts"]
    assert (failing["state"], failing["error_code"], steps[4]["state"]) == ("failed", "internal", "skipped")
    assert "ZeroDivisionError: nobody can hear that" in attempt["traceback"]
    assert "Traceback (most recent call last)" in attempt["traceback"]
    assert failing["worker"] == attempt["worker"] != ""
    assert attempt["started_at"] <= attempt["finished_at"]
    assert (story["state"], story["error"]["code"]) == ("failed", "internal")
    logs = "".join(path.read_text() for path in (state / "logs").iterdir() if path.is_file())
    assert story["trace_id"], "the story names the trace"
    assert story["trace_id"] in logs, "and the logs can be searched for it"
    assert "nobody can hear that" in run_voicejobs("job", "show", job_id, state=state).stdout


class _Listener:
    """Collect what is sent to a server."""

    def __init__(self, server: Valkey) -> None:
        self._client = server.client(timeout_s=None)
        self._commands: list[str] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._ready = threading.Event()
        self._stop = f"stop-{time.monotonic_ns()}"
        self._server = server
        self._thread.start()
        assert self._ready.wait(10)

    def _listen(self) -> None:
        """Read the server's log of commands until our own mark appears."""
        with self._client.monitor() as monitor:  # type: ignore[no-untyped-call]
            self._ready.set()
            for entry in monitor.listen():
                self._commands.append(entry["command"])
                if self._stop in entry["command"]:
                    return

    def finish(self) -> list[str]:
        """Return all commands."""
        with self._server.client() as client:
            client.echo(self._stop)
        self._thread.join(30)
        self._client.close()
        return self._commands


@pytest.mark.timeout(180)
def test_a4_messages_stay_small_for_an_hour_of_audio(
    tmp_path: Path, speech: NDArray[np.int16], start_valkey: Callable[..., Valkey]
) -> None:
    """No message of a 60-minute recording passes 16 KB; what encoding them costs is printed."""
    recording, hour = tmp_path / "hour.flac", 3600 * RATE_HZ
    with sf.SoundFile(recording, "w", RATE_HZ, 1, "PCM_16", format="FLAC") as file:
        for _ in range(0, hour, len(speech)):
            file.write(speech)
    server = start_valkey()
    listener = _Listener(server)
    began = time.monotonic()
    options = ["--engine", "fake", "--word-timestamps", "-f", "json", "--no-progress"]
    done = run_voicejobs(
        "transcribe",
        recording,
        "-o",
        tmp_path / "out",
        *options,
        state=tmp_path / "state",
        settings={"VOICEJOBS_BROKER_URL": server.broker_url()},
    )
    wall_s = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    commands = listener.finish()
    messages = [command for command in commands if command.split(" ", maxsplit=1)[0].upper() in {"LPUSH", "RPUSH"}]
    assert len(messages) >= 3, "prepare, recognise and deliver are separate messages"
    assert max(map(len, commands)) < MESSAGE_LIMIT_BYTES
    began = time.monotonic()
    for message in messages:
        json.loads(json.dumps(message))
    coding_s = time.monotonic() - began
    print(  # noqa: T201 - the row asks for the figure
        f"{len(messages)} messages, largest {max(map(len, messages))} bytes, for {recording.stat().st_size} bytes of "
        f"audio; encoding and decoding them takes {coding_s / wall_s:.6%} of {wall_s:.1f} s"
    )
    text = json.loads((tmp_path / "out" / "hour.json").read_text())["text"]
    assert text.count(" n") > 100, "the recording was cut into windows, and each has its text"


def test_a20_a_full_scale_square_wave_is_clipped_and_not_wrapped(tmp_path: Path) -> None:
    """Resampling overshoots full scale: the overshoot is cut off, and no sample changes its sign."""
    rate_hz, half = 48_000, 480
    signs = np.where(np.arange(rate_hz) // half % 2 == 0, 1, -1)
    wave = np.where(signs > 0, 32_767, -32_768).astype(np.int16)
    sf.write(tmp_path / "square.wav", np.stack([wave, wave], axis=1), rate_hz, subtype="PCM_16")
    with decode(tmp_path / "square.wav", DecodeOptions()) as audio:
        pcm = np.concatenate([block for (block,) in audio.blocks()])
    expected = signs[::3][: len(pcm)]
    flat = np.ones(len(pcm), bool)
    for edge in range(0, len(pcm) + 1, half // 3):
        flat[max(0, edge - 16) : edge + 16] = False
    assert (np.sign(pcm[flat]) == expected[flat]).all()
    assert np.abs(pcm[flat].astype(int)).min() > 30_000
    assert (pcm.max(), pcm.min()) == (32_767, -32_768)


def test_a20_channels_are_mixed_before_they_are_resampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The resampler sees one channel, whatever the recording has: half the work for stereo."""
    seen: list[int] = []
    feed = Resampler.feed

    def watched(resampler: Resampler, signal: Any) -> Any:
        assert signal.ndim == 1
        seen.append(len(signal))
        return feed(resampler, signal)

    monkeypatch.setattr(Resampler, "feed", watched)
    noise = np.random.default_rng(1).integers(-9000, 9000, (44_100, 2)).astype(np.int16)
    sf.write(tmp_path / "noise.wav", noise, 44_100, subtype="PCM_16")
    with decode(tmp_path / "noise.wav", DecodeOptions()) as audio:
        samples = sum(len(block) for (block,) in audio.blocks())
    assert sum(seen) == 44_100
    assert abs(samples - RATE_HZ) <= 1


def test_a25_processing_time_grows_with_the_length(tmp_path: Path, speech: NDArray[np.int16]) -> None:
    """CPU time of decoding and of voice activity over 10, 20, 40 and 80 s lies on a line (R2 of the fit)."""
    detector = SileroEngine.load(EngineSpec("silero"))
    lengths_s, measured = (10, 20, 40, 80), []
    for length_s in lengths_s:
        path = tmp_path / f"{length_s}.flac"
        sf.write(path, np.resize(speech, length_s * RATE_HZ), RATE_HZ, subtype="PCM_16")
        measured.append(min(_cpu_s_of(path, detector) for _ in range(3)))
    seconds, costs = np.array(lengths_s, np.float64), np.array(measured, np.float64)
    slope, offset = np.polyfit(seconds, costs, 1)
    beside = costs - (slope * seconds + offset)
    fit = 1 - np.sum(beside**2) / np.sum((costs - costs.mean()) ** 2)
    assert slope > 0
    assert fit > 0.95, measured


def _cpu_s_of(path: Path, detector: SileroEngine) -> float:
    """Return the CPU time that preparing a recording takes in this process."""
    began = time.process_time()
    with decode(path, DecodeOptions()) as audio:
        listen(audio.blocks(), detector, lambda channel, block: None)
    return time.process_time() - began
