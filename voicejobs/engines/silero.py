"""Voice activity detection by silero v6, run through onnxruntime with its state carried from block to block."""

from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio.types import Pcm
from voicejobs.engines.base import EngineFacts, EngineSpec
from voicejobs.engines.silero_frames import FRAME_SAMPLES, Vectors, speech_probabilities
from voicejobs.errors import ExtraMissing, ModelCorrupt

MODEL_SHA256 = "4cbf549b8326f60f80f2536d9eefeb450a9abe83365a098031c89719f1be17d2"
_MODEL_FILE = "assets/silero_vad_v6.onnx"


class SileroEngine:
    """Give the speech probability of each 32 ms."""

    name: ClassVar[str] = "silero"
    frame_samples: ClassVar[int] = FRAME_SAMPLES

    def __init__(self, session: Any) -> None:
        self._session = session

    @classmethod
    def facts(cls, spec: EngineSpec) -> EngineFacts:
        """Return the facts; the model travels with the package faster-whisper, so the catalogue need not have it."""
        return EngineFacts(kind="vad", needs_model=False, call_timeout_s=120.0, memory_bytes=110_000_000)

    @classmethod
    def load(cls, spec: EngineSpec) -> Self:
        """Verify the model file and open it.

        Raises:
            ExtraMissing: faster-whisper or onnxruntime is not installed.
            ModelCorrupt: the file is not the one this code was measured with.
        """
        model = model_path().read_bytes()
        found = sha256(model).hexdigest()
        if found != MODEL_SHA256:
            raise ModelCorrupt(
                f"{model_path()} has SHA-256 {found}, expected {MODEL_SHA256}",
                hint="Install faster-whisper 1.2 again: pip install --force-reinstall 'faster-whisper>=1.2,<1.3'.",
            )
        try:
            import onnxruntime
        except ImportError as error:
            raise ExtraMissing("onnxruntime is not installed", hint="pip install 'voicejobs[worker]'") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = spec.threads
        options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        return cls(onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]))

    def probabilities(self, block: Pcm, state: bytes) -> tuple[NDArray[np.float32], bytes]:
        """Return the probability of each frame of `block` (float32, shape (frames,)), and the state after it."""
        return speech_probabilities(block, state, self._run)

    def _run(self, rows: Vectors, hidden: Vectors, cell: Vectors) -> tuple[Vectors, Vectors, Vectors]:
        """Run the model over rows of samples."""
        found, hidden, cell = self._session.run(None, {"input": rows, "h": hidden, "c": cell})
        return found, hidden, cell


def model_path() -> Path:
    """Return where the installed faster-whisper keeps the model, without importing it.

    Raises:
        ExtraMissing: faster-whisper is not installed, or has no such file.
    """
    spec = find_spec("faster_whisper")
    path = Path(spec.origin).parent / _MODEL_FILE if spec is not None and spec.origin else None
    if path is None or not path.is_file():
        raise ExtraMissing(
            f"the package faster-whisper with {_MODEL_FILE} is not installed", hint="pip install 'voicejobs[worker]'"
        )
    return path
