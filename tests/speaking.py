"""What tests of speaking share: jobs of the pipelines that speak, and what is heard in their files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import soundfile as sf

from tests.bench import Bench
from voicejobs.engines.fake_voice import describe, hear
from voicejobs.pipelines.pipeline import SPEAK, Pipeline
from voicejobs.settings import Settings
from voicejobs.store.blobs import BlobStore
from voicejobs.submit import Accepted, InputFile, Submission
from voicejobs.text import plan_pieces

FAKE = {"engine": "fake_voice", "model": ""}


def submission(
    bench: Bench, pipeline: Pipeline = SPEAK, options: Mapping[str, Mapping[str, Any]] | None = None, **how: Any
) -> Submission:
    """Return a submission to a pipeline that speaks with the fake voice."""
    given = dict(options or {})
    given["synthesise"] = {**FAKE, **given.get("synthesise", {})}
    blobs = BlobStore(Settings(state_dir=bench.folder / "state", models_dir=bench.folder / "models").blobs_dir)
    blobs.make_folders()
    return Submission(bench.database, pipeline, pipeline.options(given), blobs=blobs, **how)


def text_file(bench: Bench, name: str, text: str) -> InputFile:
    """Write a text, and name where its sound goes."""
    path = bench.folder / "in" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, "utf-8")
    return InputFile(str(path), name, str(target(bench, name)))


def target(bench: Bench, name: str) -> Path:
    """Return where the files of a text go, without their endings."""
    folder = bench.folder / "out"
    folder.mkdir(exist_ok=True)
    return folder / Path(name).stem


def speak(bench: Bench, *files: InputFile, pipeline: Pipeline = SPEAK, **options: Mapping[str, Any]) -> list[Accepted]:
    """Submit inputs, and return what became of them."""
    batch = submission(bench, pipeline, options)
    accepted = batch.add(files)
    batch.seal()
    return accepted


def heard(path: Path) -> list[tuple[int, int]]:
    """Return what the fake voice said in a file."""
    samples, rate_hz = sf.read(path, dtype="float32")
    return hear(samples, rate_hz)


def expected(text: str, language: str = "en") -> list[tuple[int, int]]:
    """Return what the fake voice is to say of a text."""
    return [describe(piece.spoken) for piece in plan_pieces(text, language)]
