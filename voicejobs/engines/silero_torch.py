"""Voice activity detection by silero's TorchScript model on torch, on the CPU or on a card."""

import warnings
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio.types import Pcm
from voicejobs.engines.base import EngineFacts, EngineSpec
from voicejobs.engines.silero_frames import FRAME_SAMPLES, Vectors, speech_probabilities
from voicejobs.errors import ExtraMissing, ModelCorrupt

MODEL_FILE = "silero_vad.jit"


class SileroTorchEngine:
    """Give the speech probability of each 32 ms.

    The model's own forward takes one frame at a time and keeps the state to itself. So its parts are called instead:
    transform and encoder with all frames of a block at once, and the recurrent cell, with its weights, as a layer that
    goes through them in one call and takes and returns its state.
    """

    name: ClassVar[str] = "silero_torch"
    frame_samples: ClassVar[int] = FRAME_SAMPLES

    def __init__(self, torch: Any, network: Any, device: str) -> None:
        self._torch = torch
        self._network = network
        self._device = device
        self._recurrent = _as_layer(torch, network.decoder.rnn, device)

    @classmethod
    def facts(cls, spec: EngineSpec) -> EngineFacts:
        """Return the facts; the host holds torch to the share that the spec names."""
        return EngineFacts(
            kind="vad", needs_model=True, call_timeout_s=120.0, memory_bytes=270_000_000, uses_torch=True
        )

    @classmethod
    def load(cls, spec: EngineSpec) -> Self:
        """Open the model, whose file has been verified, on the device of the spec.

        Raises:
            ExtraMissing: torch is not installed.
            ModelCorrupt: torch cannot read the file, or it is another network.
        """
        try:
            import torch
        except ImportError as error:
            raise ExtraMissing(
                f"torch cannot be imported: {error}", hint="pip install 'voicejobs[gpu]', or torch for the CPU alone."
            ) from error
        torch.set_num_threads(spec.threads)
        path = Path(spec.model_dir) / MODEL_FILE
        try:
            with warnings.catch_warnings():
                # torch wants people to publish their models otherwise; this one is published so.
                warnings.simplefilter("ignore", DeprecationWarning)
                network = torch.jit.load(path, map_location=spec.device).eval()._model  # noqa: SLF001 - see the class
            return cls(torch, network, spec.device)
        except (AttributeError, ValueError) as error:
            raise _not_the_model(path, error) from error
        except RuntimeError as error:
            if "out of memory" in str(error).lower() or "cuda" in str(error).lower():
                raise
            raise _not_the_model(path, error) from error

    def probabilities(self, block: Pcm, state: bytes) -> tuple[NDArray[np.float32], bytes]:
        """Return the probability of each frame of `block` (float32, shape (frames,)), and the state after it."""
        return speech_probabilities(block, state, self._run)

    def _run(self, rows: Vectors, hidden: Vectors, cell: Vectors) -> tuple[Vectors, Vectors, Vectors]:
        """Run the model over rows of samples."""
        torch, network = self._torch, self._network
        with torch.inference_mode():
            encoded = network.encoder(network.run_extractors(self._there(rows)))
            out, (hidden_out, cell_out) = self._recurrent(
                encoded.squeeze(-1).unsqueeze(1), (self._there(hidden), self._there(cell))
            )
            found = network.decoder.decoder(out.squeeze(1).unsqueeze(-1))
            return _here(found), _here(hidden_out), _here(cell_out)

    def _there(self, values: Vectors) -> Any:
        """Return a tensor on the device of the engine; what came out of the bytes of a state cannot be written to."""
        return self._torch.tensor(values, device=self._device)


def _as_layer(torch: Any, cell: Any, device: str) -> Any:
    """Return a recurrent layer with the weights of a cell; the two order their gates alike."""
    layer = torch.nn.LSTM(cell.weight_ih.shape[1], cell.weight_hh.shape[1]).to(device).eval()
    layer.load_state_dict({f"{name}_l0": values for name, values in cell.state_dict().items()})
    return layer


def _here(tensor: Any) -> Vectors:
    """Return the values of a tensor of any device."""
    values: Vectors = tensor.cpu().numpy()
    return values


def _not_the_model(path: Path, error: Exception) -> ModelCorrupt:
    """Return the error for a file that holds something else."""
    return ModelCorrupt(f"torch cannot load {path}: {error}", hint="Run `voicejobs models pull silero-vad`.")
