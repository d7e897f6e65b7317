"""Work that somebody waits for goes before bulk inside one engine, at the borders of windows."""

from pathlib import Path

import numpy as np
import soundfile as sf

from tests.bench import RATE_HZ, Bench
from tests.rows import job
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.store.states import LIVE_JOB
from voicejobs.submit import InputFile, Submission

WINDOW_S = 0.4


def submit(bench: Bench, path: Path, lane: str) -> str:
    """Submit a recording whose windows are 30 s long, and return the id of its job."""
    options = TRANSCRIBE.options({"prepare": {"vad_filter": False}, "recognise": {"engine": "fake", "model": ""}})
    submission = Submission(bench.database, TRANSCRIBE, options, lane=lane)
    (accepted,) = submission.add([InputFile(str(path), path.name)])
    submission.seal()
    return accepted.job_id


def test_an_interactive_recording_overtakes_one_at_work(bench: Bench, tmp_path: Path) -> None:
    """Of one engine process, the bulk recording has windows to go when the other is done."""
    bench.settings["fake_cost_window_s"] = str(WINDOW_S)
    long, short = tmp_path / "long.wav", tmp_path / "short.wav"
    noise = np.random.default_rng(1).normal(0, 0.1, 12 * 30 * RATE_HZ).astype(np.float32)
    sf.write(long, noise, RATE_HZ)
    sf.write(short, noise[: 3 * RATE_HZ], RATE_HZ)
    bench.start_worker()
    bulk = submit(bench, long, "bulk")
    bench.wait_running(bulk)
    waited_for = submit(bench, short, "interactive")
    assert bench.wait_ended(waited_for) == {waited_for: "succeeded"}
    assert job(bench.database, bulk).state in LIVE_JOB
    assert bench.wait_ended(bulk) == {bulk: "succeeded"}
