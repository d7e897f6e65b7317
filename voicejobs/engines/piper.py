"""Synthesis by Piper, a sentence at a time.

piper-tts is GPL-3.0: an extra that voicejobs never needs, imported in the engine process alone, and only here.
"""

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio.types import Sound
from voicejobs.engines.base import EngineFacts, EngineSpec, SynthesiseOptions, Voice
from voicejobs.engines.seeded_noise import with_noise_inputs
from voicejobs.errors import BadOption, ExtraMissing, ModelCorrupt

MIN_SPEED, MAX_SPEED = 0.25, 4.0
_POOL_NUMBERS = 1 << 22
"""Normal numbers kept in memory (16 MB), enough for a sentence of two minutes."""
_OFFSETS = 1 << 21
_PHONEME_BLOCK = "[["
_CUDA = "CUDAExecutionProvider"


class PiperEngine:
    """Speak with a Piper voice on onnxruntime.

    The sound is a function of text, options and weights: the noise that makes speech lively is cut from one fixed row
    of random numbers, at a place that the text, the speaker, the speed and the seed choose.
    """

    name: ClassVar[str] = "piper"

    def __init__(self, voice: Any, noise: list[str], model: str) -> None:
        self._voice = voice
        self._noise = noise
        self._model = model
        self._numbers = np.random.default_rng(0).standard_normal(_POOL_NUMBERS, dtype=np.float32)

    @classmethod
    def facts(cls, spec: EngineSpec) -> EngineFacts:
        """Return the facts; a sentence costs the same alone and in a batch, so that a call holds one."""
        return EngineFacts(
            kind="synthesiser",
            needs_model=True,
            max_batch=1,
            call_timeout_s=180.0,
            memory_bytes=420_000_000,
            doubt=False,
        )

    @classmethod
    def load(cls, spec: EngineSpec) -> Self:
        """Open the voice.

        Raises:
            ExtraMissing: piper-tts is not installed.
            ModelCorrupt: the folder holds no voice.
        """
        try:
            import onnxruntime
            from piper import PiperVoice
            from piper.config import PiperConfig
        except ImportError as error:
            raise ExtraMissing("piper-tts is not installed", hint="pip install 'voicejobs[piper]'") from error
        path = Path(spec.model_dir) / f"{spec.model}.onnx"
        try:
            config = PiperConfig.from_dict(json.loads(path.with_name(f"{path.name}.json").read_text("utf-8")))
            model, noise = with_noise_inputs(path.read_bytes())
        except (OSError, KeyError, ValueError) as error:
            raise ModelCorrupt(f"{path} is no Piper voice: {error}", hint="Run: voicejobs models verify.") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = spec.threads
        options.inter_op_num_threads = 1
        options.enable_mem_pattern = False  # no two sentences have one length: a plan for each is memory for nothing
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        # The package of onnxruntime for cards is another one; without it a card's worker speaks on its CPU.
        on_card = spec.device != "cpu" and _CUDA in onnxruntime.get_available_providers()
        providers = [_CUDA] if on_card else ["CPUExecutionProvider"]
        session = onnxruntime.InferenceSession(model, options, providers=providers)
        return cls(PiperVoice(session=session, config=config), noise, spec.model)

    def synthesise(self, texts: Sequence[str], options: SynthesiseOptions) -> list[Sound]:
        """Return the sound of each text; one without anything to say gives an empty sound.

        Raises:
            BadOption: the voice is unknown, or the speed out of range.
        """
        speaker = self._speaker(options.voice)
        if not MIN_SPEED <= options.speed <= MAX_SPEED:
            raise BadOption(
                f"The speed {options.speed:g} is out of range", hint=f"piper takes {MIN_SPEED:g} to {MAX_SPEED:g}."
            )
        return [self._speak(text, speaker, options) for text in texts]

    def voices(self) -> list[Voice]:
        """Return the speakers of the voice; one alone has the name of the model."""
        config = self._voice.config
        language = str(config.espeak_voice).partition("-")[0]
        names = [self._model] if config.num_speakers <= 1 else list(config.speaker_id_map) or [self._model]
        return [Voice(name, (language,), config.sample_rate, f"Piper {self._model}") for name in names]

    def _speaker(self, voice: str) -> int | None:
        """Return the number of a speaker; None for the default."""
        if voice in {"", self._model}:
            return None
        found = self._voice.config.speaker_id_map.get(voice)
        if found is None:
            known = ", ".join(one.name for one in self.voices()[:20])
            raise BadOption(f"The model {self._model!r} has no voice {voice!r}", hint=f"It has: {known}.")
        return int(found)

    def _speak(self, text: str, speaker: int | None, options: SynthesiseOptions) -> Sound:
        """Return the sound of one text."""
        voice, config = self._voice, self._voice.config
        parts: list[NDArray[np.float32]] = []
        # What stands in double brackets is phonemes to Piper; to us it is text like any other.
        for phonemes in voice.phonemize(text.replace(_PHONEME_BLOCK, "[ [")):
            if phonemes:
                ids = np.array(voice.phonemes_to_ids(phonemes), np.int64)
                parts.append(self._run(ids, speaker, config.length_scale / options.speed, options.seed))
        return Sound(np.concatenate(parts) if parts else np.zeros(0, np.float32), config.sample_rate)

    def _run(
        self, ids: NDArray[np.int64], speaker: int | None, length_scale: float, seed: int | None
    ) -> NDArray[np.float32]:
        """Run the model on one sentence of phonemes."""
        config = self._voice.config
        inputs: dict[str, Any] = {
            "input": ids[np.newaxis],
            "input_lengths": np.array([len(ids)], np.int64),
            "scales": np.array([config.noise_scale, length_scale, config.noise_w_scale], np.float32),
        }
        if config.num_speakers > 1:
            inputs["sid"] = np.array([config.default_speaker_id if speaker is None else speaker], np.int64)
        key = f"{speaker} {length_scale:.6f} {seed or 0}".encode() + ids.tobytes()
        for number, name in enumerate(self._noise):
            digest = sha256(key + bytes([number])).digest()
            inputs[name] = self._numbers[int.from_bytes(digest[:8], "little") % _OFFSETS :]
        (found,) = self._voice.session.run(None, inputs)[:1]
        samples: NDArray[np.float32] = np.clip(found.reshape(-1), -1.0, 1.0).astype(np.float32, copy=False)
        return samples
