"""The detector that a job asks for, in real workers and in the key of the job."""

from pathlib import Path

import pytest

from tests.bench import Bench
from tests.rows import steps
from voicejobs.engines.base import EngineSpec
from voicejobs.errors import ModelCorrupt, ModelUnavailable, UnknownEngine
from voicejobs.hosting.specs import VAD_SPEC, Seat, vad_spec
from voicejobs.models.catalogue import find
from voicejobs.models.installed import resolve
from voicejobs.pipelines.pipeline import TRANSCRIBE
from voicejobs.settings import Settings
from voicejobs.steps.registry import PREPARE
from voicejobs.submit import InputFile, Submission

pytestmark = pytest.mark.timeout(150)
SHA256 = find("silero-vad").sha256
ON_CARD = Seat(engine_device="cuda:0", memory_fraction=0.45, memory_bytes=1000)
ON_CPU = Seat(engine_device="cpu")


@pytest.fixture
def settings(models_dir: Path, tmp_path: Path) -> Settings:
    """Return settings with the models of this machine; skip where the detector's is not among them."""
    settings = Settings(tmp_path, models_dir)
    try:
        resolve("silero-vad", settings)
    except ModelUnavailable as error:
        pytest.skip(error.message)
    return settings


def submit(bench: Bench, path: Path, engine: str, sha256: str = "") -> str:
    """Submit a recording for a detector."""
    detector = {"vad_engine": engine, "vad_model_sha256": sha256}
    options = TRANSCRIBE.options({"prepare": detector, "recognise": {"engine": "fake", "model": ""}})
    submission = Submission(bench.database, TRANSCRIBE, options)
    (accepted,) = submission.add([InputFile(str(path), path.name, str(bench.folder / "out" / path.stem))])
    submission.seal()
    return accepted.job_id


@pytest.mark.models
def test_a_worker_runs_the_detector_that_the_job_names(bench: Bench, settings: Settings) -> None:
    """One file with each of the two makes two jobs; both succeed, and find the same stretch of speech."""
    pytest.importorskip("torch", reason="torch is not installed")
    bench.settings["models_dir"] = str(settings.models_dir)
    path = bench.recording("one.wav", 7.0)
    ids = [submit(bench, path, "silero"), submit(bench, path, "silero_torch", SHA256)]
    assert len(set(ids)) == 2
    bench.start_worker()
    assert set(bench.wait_ended(*ids, timeout_s=90).values()) == {"succeeded"}
    spoken = [steps(bench.database, job_id)["recognise"].progress_s for job_id in ids]
    assert spoken[1] == pytest.approx(spoken[0], abs=0.5)


def test_a_job_whose_detector_is_unknown_here_fails_with_its_name(bench: Bench) -> None:
    """The job ends with the code of the error."""
    job_id = submit(bench, bench.recording("one.wav"), "no_such_detector")
    bench.start_worker()
    assert bench.wait_ended(job_id)[job_id] == "failed"
    assert steps(bench.database, job_id)["prepare"].error_code == "unknown_engine"


@pytest.mark.models
def test_only_a_detector_on_torch_goes_to_the_card(settings: Settings) -> None:
    """It takes the worker's device and share; the other stays on the CPU, where one process serves all."""
    torch_options = PREPARE.options({"vad_engine": "silero_torch", "vad_model_sha256": SHA256})
    folder = str(resolve("silero-vad", settings).dir)
    assert vad_spec(PREPARE.options({}), settings, ON_CARD) == VAD_SPEC
    assert vad_spec(torch_options, settings, ON_CPU) == EngineSpec("silero_torch", "silero-vad", folder)
    assert vad_spec(torch_options, settings, ON_CARD) == EngineSpec(
        "silero_torch", "silero-vad", folder, "cuda:0", memory_fraction=0.45, memory_bytes=1000
    )
    with pytest.raises(ModelCorrupt, match="silero-vad"):
        vad_spec({**torch_options, "vad_model_sha256": "0" * 64}, settings, ON_CPU)


def test_a_detector_without_its_model_or_its_engine_is_refused(tmp_path: Path) -> None:
    """The errors name the model and the engine."""
    settings = Settings(tmp_path, tmp_path / "models")
    with pytest.raises(ModelUnavailable, match="silero-vad"):
        vad_spec(PREPARE.options({"vad_engine": "silero_torch"}), settings, ON_CPU)
    with pytest.raises(UnknownEngine, match="nothing"):
        vad_spec(PREPARE.options({"vad_engine": "nothing"}), settings, ON_CPU)
