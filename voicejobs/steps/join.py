"""Join pieces of speech: pauses, cross-fades, one level; block after block, with two pieces in memory at most."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from voicejobs.units import MILLISECONDS_PER_SECOND, samples_to_seconds, seconds_to_samples

Block = NDArray[np.float32]
"""Mono samples, shape (samples,), full scale 1.0."""

PEAK = 0.95
SILENT_PEAK = 1e-3
"""Sound that never gets above this (-60 dB) is silence: it is not made louder."""

_SLICE_SAMPLES = 16_384
"""So much is worked on at once where a result of the same length is needed for a moment: it stays in the cache, where
new memory for the whole of a long piece costs more than the work."""

_EDGE_DB = -40.0
_MARGIN_S = 0.02
"""Soft consonants reach below the threshold: so much of the silence beside a piece stays, pause or none."""


@dataclass(frozen=True, slots=True)
class Take:
    """Hold the sound of one piece.

    Args:
        samples: mono, shape (samples,).
        pause_after_s: silence that is to follow, in seconds.
        starts_s: when it is to begin in the whole; None as soon as the pause before it is over.
        continues: the take before, in which something is heard, goes on with it: they are one piece.
    """

    samples: Block
    pause_after_s: float = 0.0
    starts_s: float | None = None
    continues: bool = False


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """Say how pieces are joined.

    Args:
        crossfade_ms: how long one piece fades into the next, and into a pause; 0 cuts hard.
        edge_silence_ms: silence that may stay at both ends of the whole.
    """

    crossfade_ms: float = 10.0
    edge_silence_ms: float = 100.0


@dataclass(slots=True)
class Joiner:
    """Join pieces as they come.

    Silence at the edges of a piece counts towards the pause beside it: what is too much is cut, what is missing is
    added. After `blocks` is used up, `times_s` has begin and end of each piece in the whole, and `samples` its length.

    Args:
        rate_hz: sampling rate of all pieces.
        options: how they are joined.
    """

    rate_hz: int
    options: JoinOptions = field(default_factory=JoinOptions)
    times_s: list[tuple[float, float]] = field(default_factory=list)
    samples: int = 0
    _held: Block = field(default_factory=lambda: np.zeros(0, np.float32))
    _held_tail: int = 0
    _owed_s: float = 0.0

    def blocks(self, takes: Iterable[Take]) -> Iterator[Block]:
        """Yield the whole in blocks of any length."""
        for take in takes:
            yield from self._add(take)
        edge = self._length(self.options.edge_silence_ms)
        yield from self._out(self._held[: len(self._held) - max(0, self._held_tail - edge)])

    @property
    def _position(self) -> int:
        """Return where the speech of the piece that is held ends, in samples of the whole."""
        return self.samples + len(self._held) - self._held_tail

    def _add(self, take: Take) -> Iterator[Block]:
        """Give out what was held, up to where the next piece begins, and hold that."""
        if take.continues:
            yield from self._go_on(take)
            return
        lead, tail = edges(take.samples)
        if lead == len(take.samples):  # nothing to hear: it leaves its pause behind
            place_s = samples_to_seconds(self._position, self.rate_hz)
            self.times_s.append((place_s, place_s))
            self._owed_s = max(self._owed_s, take.pause_after_s)
            return
        wanted = self._wanted(take)
        if not self.times_s and wanted is None:
            kept_tail, kept_lead, added = 0, min(lead, self._length(self.options.edge_silence_ms)), 0
            fade = 0
        else:
            fade = self._length(self.options.crossfade_ms)
            margin = seconds_to_samples(_MARGIN_S, self.rate_hz)
            kept_tail, kept_lead, added = _shares(self._held_tail, lead, wanted or 0, fade if wanted else 2 * margin)
            if wanted and not added:
                fade = kept_tail + kept_lead - wanted  # they overlap by no more than keeps the pause as it should be
        before = self._held[: len(self._held) - self._held_tail + kept_tail]
        after = take.samples[lead - kept_lead :]
        if fade:
            after = after.copy()  # it is faded in place
        yield from self._fade(before, after, added, fade)
        start = self.samples + kept_lead
        self._held, self._held_tail, self._owed_s = after, tail, take.pause_after_s
        if self.times_s:  # pieces that fade into each other meet where the later one begins
            before_s, ends_s = self.times_s[-1]
            self.times_s[-1] = (before_s, max(before_s, min(ends_s, samples_to_seconds(start, self.rate_hz))))
        self.times_s.append((samples_to_seconds(start, self.rate_hz), samples_to_seconds(self._position, self.rate_hz)))
        yield from self._settled()

    def _go_on(self, take: Take) -> Iterator[Block]:
        """Put more of the piece that is held behind it."""
        lead, tail = edges(take.samples)
        self._held = np.concatenate([self._held, take.samples])
        self._held_tail = self._held_tail + lead if lead == len(take.samples) else tail
        self._owed_s = take.pause_after_s
        self.times_s[-1] = (self.times_s[-1][0], samples_to_seconds(self._position, self.rate_hz))
        yield from self._settled()

    def _settled(self) -> Iterator[Block]:
        """Give out what no cross-fade can change: whoever listens need not wait for the next piece."""
        margin = 2 * seconds_to_samples(_MARGIN_S, self.rate_hz)
        kept = self._held_tail + max(self._length(self.options.crossfade_ms), margin)
        ready, self._held = self._held[: max(0, len(self._held) - kept)], self._held[max(0, len(self._held) - kept) :]
        yield from self._out(ready)

    def _wanted(self, take: Take) -> int | None:
        """Return the samples of silence that are to lie before a piece; None at the very beginning."""
        if take.starts_s is not None:
            return max(0, seconds_to_samples(take.starts_s, self.rate_hz) - self._position)
        return seconds_to_samples(self._owed_s, self.rate_hz) if self.times_s else None

    def _fade(self, before: Block, after: Block, added: int, fade: int) -> Iterator[Block]:
        """Give out a piece and `added` samples of silence, and fade the next one in, in place."""
        fade = min(fade, len(before), len(after))
        if not fade:
            yield from self._out(before)
            yield from self._silence(added)
            return
        rise = np.sqrt((np.arange(fade, dtype=np.float32) + 0.5) / fade)
        fall = rise[::-1]
        if added:
            yield from self._out(before[:-fade])
            yield from self._out(before[-fade:] * fall)
            yield from self._silence(added)
            after[:fade] *= rise
        else:
            yield from self._out(before[:-fade])
            after[:fade] = after[:fade] * rise + before[-fade:] * fall

    def _silence(self, samples: int) -> Iterator[Block]:
        """Give out silence, a second at a time."""
        while samples > 0:
            part = min(samples, self.rate_hz)
            yield from self._out(np.zeros(part, np.float32))
            samples -= part

    def _out(self, block: Block) -> Iterator[Block]:
        """Give out a block and count it."""
        if len(block):
            self.samples += len(block)
            yield block

    def _length(self, milliseconds: float) -> int:
        """Return a length in samples."""
        return seconds_to_samples(milliseconds / MILLISECONDS_PER_SECOND, self.rate_hz)


def edges(samples: Block) -> tuple[int, int]:
    """Return how many samples of silence are before and after the sound of a piece; all before if there is none."""
    loudest = peak_of(samples)
    if loudest < SILENT_PEAK:
        return len(samples), 0
    threshold = loudest * 10 ** (_EDGE_DB / 20)
    return _silent(samples, threshold), _silent(samples[::-1], threshold)


def peak_of(samples: Block) -> float:
    """Return the largest absolute value; 0 if there are no samples."""
    return max(float(np.max(samples, initial=0.0)), -float(np.min(samples, initial=0.0)))


def _silent(samples: Block, threshold: float) -> int:
    """Return how many samples come before the first one above a threshold, which one is."""
    for start in range(0, len(samples), _SLICE_SAMPLES):
        heard = np.abs(samples[start : start + _SLICE_SAMPLES]) > threshold
        first = int(np.argmax(heard))
        if heard[first]:
            return start + first
    return len(samples)


def _shares(tail: int, lead: int, wanted: int, more: int) -> tuple[int, int, int]:
    """Return what stays of the silence after one piece and before the next, and how much is added between them.

    Args:
        tail: silence after the one, in samples like all of these.
        lead: silence before the other.
        wanted: length of the pause.
        more: what may stay beyond that.
    """
    have = tail + lead
    if have <= wanted:
        return tail, lead, wanted - have
    kept = min(have, wanted + more)
    kept_tail = round(kept * tail / have)
    return kept_tail, kept - kept_tail, 0


@dataclass(slots=True)
class Meter:
    """Measure the peak of sound that passes."""

    peak: float = 0.0
    samples: int = 0

    def through(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield blocks as they are."""
        for block in blocks:
            self.peak = max(self.peak, peak_of(block))
            self.samples += len(block)
            yield block

    @property
    def gain(self) -> float:
        """Return the factor that brings the peak to `PEAK`; 1 for silence."""
        return PEAK / self.peak if self.peak >= SILENT_PEAK else 1.0


def louder(blocks: Iterable[Block], gain: float) -> Iterator[Block]:
    """Yield blocks times `gain`, in slices."""
    for block in blocks:
        for start in range(0, len(block), _SLICE_SAMPLES):
            yield np.multiply(block[start : start + _SLICE_SAMPLES], gain, dtype=np.float32)
