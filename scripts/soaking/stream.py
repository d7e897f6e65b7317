"""The stream of jobs of a soak, and the verdict on what became of them."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import soundfile as sf
from sqlalchemy import func, select

from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.store.database import Database
from voicejobs.store.schema import artifacts, attempts, jobs, results, step_runs
from voicejobs.store.states import FINAL_JOB, OPEN_STEP
from voicejobs.submit import InputFile, Submission

RATE_HZ = 16_000
RECORDINGS = 40
LONG_EVERY = 10
LONG_S = 150.0
OPTIONS = TRANSCRIBE.options({"recognise": {"engine": "fake", "model": ""}})


@dataclass(frozen=True)
class Verdict:
    """Count jobs and what went wrong with them; `stories` tells of each."""

    jobs: int
    lost: int
    doubled: int
    stories: Sequence[str]


@dataclass
class Stream:
    """Submit recordings without end, each with a target of its own, and know what each must become.

    Args:
        database: the store.
        folder: for recordings and outputs.
        speech: some speech at 16 kHz.
        dice: choices that do not belong to the sequence of faults.
    """

    database: Database
    folder: Path
    speech: np.ndarray
    dice: random.Random
    expected: dict[str, str] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    _number: int = 0

    def prepare(self) -> list[str]:
        """Write the recordings and submit each once, to learn what an undisturbed run makes of it."""
        (self.folder / "in").mkdir()
        for number in range(RECORDINGS):
            seconds = LONG_S if number % LONG_EVERY == 0 else self.dice.uniform(1.0, 4.0)
            samples = np.resize(self.speech, int(seconds * RATE_HZ))
            samples[0] = number
            sf.write(self.folder / "in" / f"{number}.wav", samples, RATE_HZ, subtype="PCM_16")
        return self._submit([self.folder / "in" / f"{number}.wav" for number in range(RECORDINGS)], "calm")

    def learn(self) -> None:
        """Read what the undisturbed run has written."""
        for number in range(RECORDINGS):
            self.texts[f"{number}.wav"] = (self.folder / "calm" / f"{number}.txt").read_bytes()

    def feed(self, count: int) -> None:
        """Submit some recordings."""
        self._submit([self.folder / "in" / f"{self.dice.randrange(RECORDINGS)}.wav" for _ in range(count)])

    def feed_poison(self, kind: str) -> None:
        """Submit a file that must fail: `segv` crashes the decoder, `noise` is no audio."""
        path = self.folder / "in" / f"{kind}-{self._number}.wav"
        if kind == "segv":
            sf.write(path, self.speech, RATE_HZ, subtype="PCM_16")
        else:
            path.write_bytes(b"no audio at all " * 100)
        self._submit([path], verdict={"segv": "decoder_crash", "noise": "not_audio"}[kind])

    def _submit(self, paths: Sequence[Path], target: str = "", verdict: str = "") -> list[str]:
        """Submit files one by one, so that equal ones make jobs of their own."""
        submission = Submission(self.database, TRANSCRIBE, OPTIONS, force=True)
        ids = []
        for path in paths:
            self._number += 1
            stem = self.folder / target / path.stem if target else self.folder / "out" / f"{self._number}"
            (accepted,) = submission.add([InputFile(str(path), path.name, str(stem))])
            self.expected[accepted.job_id] = verdict
            ids.append(accepted.job_id)
        submission.seal()
        return ids

    def unfinished(self) -> int:
        """Return how many jobs have not ended."""
        with self.database.read() as connection:
            query = select(func.count()).select_from(jobs).where(jobs.c.state.not_in(FINAL_JOB))
            return int(connection.execute(query).scalar_one())

    def step_runs(self, count: int, dice: random.Random) -> list[tuple[str, str, str, str]]:
        """Return (step, job id, step run id, queue) of some step runs of late jobs, in whatever state."""
        with self.database.read() as connection:
            query = select(step_runs.c.step, step_runs.c.job_id, step_runs.c.id, step_runs.c.queue)
            found = connection.execute(query.order_by(step_runs.c.created_at.desc()).limit(count * 4)).all()
        rows = [(row.step, row.job_id, row.id, row.queue) for row in found]
        return dice.sample(rows, min(count, len(rows)))

    def judge(self) -> Verdict:
        """Compare what the rows and the files say with what must be."""
        with self.database.read() as connection:
            rows = {row.id: row for row in connection.execute(select(jobs))}
            runs = connection.execute(select(step_runs.c.id, step_runs.c.job_id, step_runs.c.state)).all()
            succeeded = Counter(
                connection.execute(select(attempts.c.step_run_id).where(attempts.c.outcome == "succeeded")).scalars()
            )
            kept = Counter(connection.execute(select(artifacts.c.job_id)).scalars())
            kept_texts = Counter(connection.execute(select(results.c.job_id)).scalars())
        stories = []
        lost = doubled = 0
        open_runs = {run.job_id for run in runs if run.state in OPEN_STEP}
        twice = {run.job_id for run in runs if succeeded[run.id] > 1}
        for job_id, verdict in self.expected.items():
            row = rows.get(job_id)
            problem = self._problem(row, verdict) or ("a step run is open" if job_id in open_runs else "")
            if problem:
                lost += 1
                stories.append(f"lost {job_id}: {problem}")
            if job_id in twice or kept[job_id] > 1 or kept_texts[job_id] > 1:
                doubled += 1
                stories.append(f"doubled {job_id}")
        return Verdict(len(self.expected), lost, doubled, stories)

    def _problem(self, row: object, verdict: str) -> str:
        """Tell what is wrong with a job; nothing where all is as it must be."""
        if row is None:
            return "no row"
        state, code, source = row.state, row.error_code, Path(json.loads(row.source)["path"])
        if verdict:
            return "" if (state, code) == ("failed", verdict) else f"{state} {code}, not failed {verdict}"
        if state != "succeeded":
            return f"{state}: {row.error}"
        (output,) = json.loads(row.outputs)
        if Path(output["path"]).read_bytes() != self.texts[source.name]:
            return "another text than without faults"
        return ""
