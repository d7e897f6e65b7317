"""A voice that needs no model: its sound tells which text it was made from, its time is a + b*n for n texts."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import ClassVar, Self
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio.types import Sound
from voicejobs.engines.base import EngineFacts, EngineSpec, SynthesiseOptions, Voice
from voicejobs.engines.cost import Cost
from voicejobs.errors import BadOption

RATE_HZ = 22_050
VOICES = ("low", "high")
_SYMBOL_S = 0.02
_HEAD_HZ, _TAIL_HZ = 3300.0, 3700.0
_DIGITS = 12
"""Hexadecimal digits of a piece: four of its length, eight of its checksum."""
_DIGIT_HZ = tuple(500.0 + 150.0 * digit for digit in range(16))
_LEVELS = {"low": 0.3, "high": 0.6}
_LOOK_S = 0.01
_STEP_S = 0.0025
_QUIET = 0.02


class FakeVoiceEngine:
    """Speak each text as tones: a head, the length and the CRC-32 of the text in hexadecimal, a tail.

    A piece that is lost, swapped, doubled or damaged on its way shows to `hear`. `params` of the spec: `cost_base_s`
    and `cost_window_s` (seconds of a call and of each text in it), `cost_mode` (`sleep` or `busy`), `max_batch`, and
    `character_s`, by which the tail grows with each character. The speed shortens every tone, the voice sets the level.
    """

    name: ClassVar[str] = "fake_voice"

    def __init__(self, cost: Cost, character_s: float) -> None:
        self._cost = cost
        self._character_s = character_s

    @classmethod
    def facts(cls, spec: EngineSpec) -> EngineFacts:
        """Return the facts; `max_batch` is the parameter of that name, or 8."""
        max_batch = int(dict(spec.params).get("max_batch", 8))
        return EngineFacts(
            kind="synthesiser", needs_model=False, max_batch=max_batch, memory_bytes=40_000_000, doubt=False
        )

    @classmethod
    def load(cls, spec: EngineSpec) -> Self:
        """Build the engine from the parameters.

        Raises:
            BadOption: `cost_mode` is neither `sleep` nor `busy`.
        """
        params = dict(spec.params)
        return cls(Cost.of(params, cls.name), float(params.get("character_s", 0.0)))

    def synthesise(self, texts: Sequence[str], options: SynthesiseOptions) -> list[Sound]:
        """Spend the time of the batch and return the tones of each text.

        Raises:
            BadOption: there is no such voice.
        """
        voice = options.voice or VOICES[0]
        if voice not in VOICES:
            raise BadOption(f"The engine fake_voice has no voice {voice!r}", hint=f"It has: {', '.join(VOICES)}.")
        self._cost.spend(len(texts))
        return [self._speak(text, _LEVELS[voice], options.speed) for text in texts]

    def voices(self) -> list[Voice]:
        """Return the two voices, which differ in their level."""
        return [Voice(name, (), RATE_HZ, f"tones at {_LEVELS[name]:g} of full scale", "Apache-2.0") for name in VOICES]

    def _speak(self, text: str, level: float, speed: float) -> Sound:
        """Return the tones of one text; blanks alone are silent."""
        if not text.strip():
            return Sound(np.zeros(0, np.float32), RATE_HZ)
        symbol_s = _SYMBOL_S / speed
        tail_s = 2 * symbol_s + self._character_s * len(text) / speed
        length, checksum = describe(text)
        digits = f"{length:04x}{checksum:08x}"
        tones = [
            (_HEAD_HZ, 2 * symbol_s), *((_DIGIT_HZ[int(digit, 16)], symbol_s) for digit in digits), (_TAIL_HZ, tail_s),
        ]  # fmt: skip
        samples = np.concatenate([_tone(hz, seconds) for hz, seconds in tones])
        return Sound(np.multiply(samples, level, dtype=np.float32), RATE_HZ)


def describe(text: str) -> tuple[int, int]:
    """Return what the sound of a text says of it: its length, up to 65,535 characters, and its CRC-32."""
    return min(len(text), 0xFFFF), crc32(text.encode())


def hear(samples: NDArray[np.float32], rate_hz: int) -> list[tuple[int, int]]:
    """Return what `describe` said of each text whose tones are in `samples`, in order.

    Level, resampling (from 8 kHz up), pauses and cross-fades of up to 20 ms do no harm.

    Args:
        samples: mono sound, shape (samples,).
        rate_hz: its sampling rate.
    """
    step = max(1, round(_STEP_S * rate_hz))
    tones = [(tone, len(list(run))) for tone, run in groupby(_tones(samples, rate_hz, step))]
    found: list[tuple[int, int]] = []
    symbols: list[tuple[int, int]] | None = None
    for tone, steps in tones:
        if tone == _HEAD:
            symbols = []
        elif tone == _TAIL and symbols is not None:
            digits = _read(symbols)
            found.append((int(digits[:4], 16), int(digits[4:], 16)))
            symbols = None
        elif symbols is not None and tone >= 0:
            symbols.append((tone, steps))
    return found


_HEAD, _TAIL, _NOTHING = 16, 17, -1


def _read(symbols: Sequence[tuple[int, int]]) -> str:
    """Return the digits between a head and a tail: each lasts a twelfth of the whole, equal ones run together."""
    row = np.repeat([tone for tone, _ in symbols], [steps for _, steps in symbols])
    if not len(row):
        return "0" * _DIGITS
    places = ((np.arange(_DIGITS) + 0.5) * len(row) / _DIGITS).astype(int)
    return "".join(f"{int(row[place]):x}" for place in places)


def _tones(samples: NDArray[np.float32], rate_hz: int, step: int) -> Iterator[int]:
    """Yield the number of the tone that is heard at each step, `_NOTHING` where it is quiet."""
    look = round(_LOOK_S * rate_hz)
    times = np.arange(look) / rate_hz
    pitches = np.array([*_DIGIT_HZ, _HEAD_HZ, _TAIL_HZ])
    probes = np.exp(-2j * np.pi * np.outer(times, pitches)) * np.hanning(look)[:, np.newaxis]
    block = 4096
    padded = np.pad(samples, (look // 2, look))
    loudest = float(np.max(np.abs(samples), initial=0.0))
    count = len(samples) // step
    for first in range(0, count, block):
        starts = np.arange(first, min(first + block, count)) * step
        frames = np.lib.stride_tricks.sliding_window_view(padded, look)[starts]
        best = np.argmax(np.abs(frames @ probes), axis=1)
        quiet = np.sqrt(np.mean(np.square(frames), axis=1)) < _QUIET * loudest
        yield from (int(tone) for tone in np.where(quiet, _NOTHING, best))


def _tone(pitch_hz: float, seconds: float) -> NDArray[np.float32]:
    """Return a sine of full scale, shape (samples,)."""
    times = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    return np.sin(2 * np.pi * pitch_hz * times).astype(np.float32)
