"""Sounds without a word, synthesised from seeds: what whisper likes to hear words in."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 16_000
Signal = NDArray[np.float64]


def _times(seconds: float) -> Signal:
    """Return the time of each sample."""
    return np.arange(int(seconds * RATE_HZ)) / RATE_HZ


def scaled_to_one(signal: Signal) -> Signal:
    """Return a signal whose loudest sample is 1."""
    scaled: Signal = signal / np.abs(signal).max()
    return scaled


def coloured(random: np.random.Generator, seconds: float, slope: float, lowest_hz: float = 20.0) -> Signal:
    """Return noise whose amplitude falls with frequency to the power of `slope`: 0 white, 0.5 pink, 1 brown."""
    spectrum = np.fft.rfft(random.standard_normal(int(seconds * RATE_HZ)))
    frequencies = np.fft.rfftfreq(int(seconds * RATE_HZ), 1 / RATE_HZ)
    shaped = spectrum * np.where(frequencies < lowest_hz, 0.0, np.maximum(frequencies, lowest_hz) ** -slope)
    signal: Signal = np.fft.irfft(shaped, int(seconds * RATE_HZ))
    return scaled_to_one(signal)


def band(random: np.random.Generator, seconds: float, low_hz: float, high_hz: float) -> Signal:
    """Return noise between two frequencies."""
    spectrum = np.fft.rfft(random.standard_normal(int(seconds * RATE_HZ)))
    frequencies = np.fft.rfftfreq(int(seconds * RATE_HZ), 1 / RATE_HZ)
    signal: Signal = np.fft.irfft(
        np.where((frequencies >= low_hz) & (frequencies <= high_hz), spectrum, 0), int(seconds * RATE_HZ)
    )
    return scaled_to_one(signal)


def bursts(random: np.random.Generator, seconds: float, per_second: float, decay_s: float) -> Signal:
    """Return short noises that die away, at random moments: clicks, drops, hands, keys."""
    signal = np.zeros(int(seconds * RATE_HZ))
    length = int(decay_s * 6 * RATE_HZ)
    fade = np.exp(-np.arange(length) / (decay_s * RATE_HZ))
    for start in random.integers(0, max(1, len(signal) - length), int(seconds * per_second)):
        signal[start : start + length] += random.standard_normal(length) * fade * random.uniform(0.2, 1.0)
    return scaled_to_one(signal)


def hum(seconds: float, mains_hz: float) -> Signal:
    """Return the hum of the mains with its harmonics."""
    times = _times(seconds)
    return sum(
        (np.sin(2 * np.pi * mains_hz * number * times) / number for number in range(1, 12)), np.zeros(len(times))
    )


def keyed(seconds: float, pairs: list[tuple[float, float]], on_s: float, off_s: float) -> Signal:
    """Return pairs of tones one after the other, as a telephone gives them."""
    times = _times(seconds)
    step = np.floor(times / (on_s + off_s)).astype(int) % len(pairs)
    low, high = np.array([pair[0] for pair in pairs])[step], np.array([pair[1] for pair in pairs])[step]
    sounding = times % (on_s + off_s) < on_s
    return np.where(sounding, np.sin(2 * np.pi * low * times) + np.sin(2 * np.pi * high * times), 0.0)


def sweep(seconds: float, low_hz: float, high_hz: float, period_s: float) -> Signal:
    """Return a tone that rises over and over."""
    times = _times(seconds)
    place = times % period_s / period_s
    return buzz(low_hz * (high_hz / low_hz) ** place, 1)


def chords(seconds: float, beat_s: float, harmonics: int, attack_s: float) -> Signal:
    """Return a progression of chords, like an organ or a plucked instrument, with a bass."""
    times = _times(seconds)
    roots = np.array([261.63, 220.0, 174.61, 196.0])
    step = np.floor(times / beat_s).astype(int)
    root = roots[step // 2 % 4]
    third = np.where(step // 2 % 4 == 1, 1.1892, 1.2599)
    envelope = np.minimum(times % beat_s / attack_s, 1) * np.exp(-(times % beat_s) / beat_s)
    signal = np.zeros(len(times))
    for ratio, level in ((np.ones(len(times)), 1.0), (third, 0.8), (np.full(len(times), 1.4983), 0.8)):
        for number in range(1, harmonics + 1):
            signal += level / number**1.5 * np.sin(2 * np.pi * number * np.cumsum(root * ratio) / RATE_HZ)
    bass = np.sin(2 * np.pi * np.cumsum(root / 2) / RATE_HZ)
    together: Signal = signal * envelope + bass
    return together


def drums(random: np.random.Generator, seconds: float) -> Signal:
    """Return a drum machine: a kick, a snare and a hat at 120 beats a minute."""
    times = _times(seconds)
    beat = times % 0.5
    kick = np.sin(2 * np.pi * (50 + 80 * np.exp(-beat * 30)) * beat) * np.exp(-beat * 10)
    noise = random.standard_normal(len(times))
    snare = noise * np.exp(-((times + 0.5) % 1.0) * 18)
    return kick + 0.5 * snare + 0.2 * noise * np.exp(-(times % 0.25) * 60)


def swelling(signal: Signal, period_s: float, depth: float = 1.0) -> Signal:
    """Return a sound that swells and fades, like wind, waves or breath."""
    level: Signal = 1 - depth / 2 + depth / 2 * np.sin(2 * np.pi * np.arange(len(signal)) / RATE_HZ / period_s)
    return signal * level


def buzz(pitch_hz: Signal, harmonics: int, slope: float = 1.0) -> Signal:
    """Return a tone with harmonics whose pitch moves: the nearest that a machine comes to a vowel."""
    phase = 2 * np.pi * np.cumsum(pitch_hz) / RATE_HZ
    together: Signal = np.zeros(len(pitch_hz))
    for number in range(1, harmonics + 1):
        together += np.sin(number * phase) / number**slope
    return together


def steps(random: np.random.Generator, seconds: float, values: list[float], per_second: float) -> Signal:
    """Return a value for each sample that jumps between some, so many times a second: notes, or bits."""
    length = int(seconds * RATE_HZ)
    chosen = random.choice(values, int(seconds * per_second) + 1)
    held: Signal = np.repeat(chosen, int(RATE_HZ / per_second) + 1)[:length]
    return held


def calls(seconds: float, low_hz: float, rise_hz: float, period_s: float) -> Signal:
    """Return the voice of an animal, over and over: harmonics under an arch."""
    place = _times(seconds) % period_s / period_s
    voice: Signal = buzz(low_hz + rise_hz * np.sin(np.pi * place), 8) * np.sin(np.pi * place) ** 2
    return voice


_DTMF = [(697.0, 1209.0), (770.0, 1336.0), (852.0, 1477.0), (941.0, 1336.0), (697.0, 1477.0), (770.0, 1209.0)]

SOUNDS: dict[str, Callable[[np.random.Generator, float], Signal]] = {
    "hiss-white": lambda random, seconds: coloured(random, seconds, 0.0),
    "hiss-pink": lambda random, seconds: coloured(random, seconds, 0.5),
    "hiss-brown": lambda random, seconds: coloured(random, seconds, 1.0),
    "hiss-telephone": lambda random, seconds: band(random, seconds, 300, 3400),
    "hum-50": lambda random, seconds: hum(seconds, 50.0),
    "hum-60": lambda random, seconds: hum(seconds, 60.0) + 0.05 * coloured(random, seconds, 0.5),
    "clicks": lambda random, seconds: bursts(random, seconds, 3, 0.0005),
    "clock": lambda random, seconds: bursts(random, 1.0, 1, 0.002)[np.arange(int(seconds * RATE_HZ)) % RATE_HZ],
    "keyboard": lambda random, seconds: bursts(random, seconds, 6, 0.006),
    "crackle": lambda random, seconds: bursts(random, seconds, 40, 0.001),
    "tone-440": lambda random, seconds: np.sin(2 * np.pi * 440 * _times(seconds)),
    "tone-1000": lambda random, seconds: np.sin(2 * np.pi * 1000 * _times(seconds)),
    "dial-tone": lambda random, seconds: keyed(seconds, [(350.0, 440.0)], seconds, 0.0),
    "ringing": lambda random, seconds: keyed(seconds, [(440.0, 480.0)], 2.0, 4.0),
    "busy": lambda random, seconds: keyed(seconds, [(480.0, 620.0)], 0.5, 0.5),
    "dtmf": lambda random, seconds: keyed(seconds, _DTMF, 0.12, 0.1),
    "sweep-slow": lambda random, seconds: sweep(seconds, 50, 7000, 10),
    "siren": lambda random, seconds: sweep(seconds, 500, 1500, 0.8),
    "chirps": lambda random, seconds: swelling(sweep(seconds, 2500, 5000, 0.15), 0.9),
    "rain": lambda random, seconds: coloured(random, seconds, 0.3) + 0.4 * bursts(random, seconds, 60, 0.002),
    "fan": lambda random, seconds: swelling(coloured(random, seconds, 0.7), 0.04, 0.4) + 0.1 * hum(seconds, 100),
    "wind": lambda random, seconds: swelling(coloured(random, seconds, 1.2), 5.0),
    "waves": lambda random, seconds: swelling(coloured(random, seconds, 0.6), 7.0),
    "breath": lambda random, seconds: swelling(band(random, seconds, 400, 2500), 3.5),
    "applause": lambda random, seconds: bursts(random, seconds, 250, 0.008),
    "engine": lambda random, seconds: hum(seconds, 27.0) * (1 + 0.3 * coloured(random, seconds, 1.0)),
    "organ": lambda random, seconds: chords(seconds, 1.0, 6, 0.05),
    "plucked": lambda random, seconds: chords(seconds, 0.25, 10, 0.003),
    "drums": drums,
    "hum-120": lambda random, seconds: hum(seconds, 120.0) + 0.2 * coloured(random, seconds, 0.5),
    "buzz": lambda random, seconds: buzz(130 + 8 * np.sin(2 * np.pi * 5 * _times(seconds)), 19),
    "saw-melody": lambda random, seconds: buzz(steps(random, seconds, [220, 247, 262, 294, 330, 392], 4), 11),
    "trumpet": lambda random, seconds: swelling(buzz(steps(random, seconds, [262, 330, 392, 523], 3), 13, 0.7), 1 / 3),
    "modem": lambda random, seconds: buzz(steps(random, seconds, [1200, 2200], 160), 1),
    "morse": lambda random, seconds: (
        buzz(np.full(int(seconds * RATE_HZ), 700.0), 1) * steps(random, seconds, [0, 1], 10)
    ),
    "dog": lambda random, seconds: calls(seconds, 400, 200, 0.7),
    "cat": lambda random, seconds: calls(seconds, 500, 250, 1.5),
    "babble-noise": lambda random, seconds: swelling(band(random, seconds, 200, 3500), 0.25),
    "band": lambda random, seconds: drums(random, seconds) + 0.5 * chords(seconds, 0.5, 8, 0.01),
}
"""By name: a function from a source of chance and a length to a signal."""


def sound(name: str, seconds: float, level: float, seed: int = 7) -> NDArray[np.int16]:
    """Return a sound as int16 at 16 kHz, its loudest sample at `level` of full scale."""
    random = np.random.default_rng([seed, *name.encode()])
    signal = SOUNDS[name](random, seconds)
    whole: NDArray[np.int16] = np.round(signal / np.abs(signal).max() * level * 32767).astype(np.int16)
    return whole
