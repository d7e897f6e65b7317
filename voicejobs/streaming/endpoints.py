"""Find where segments begin and end while the sound comes, and keep the sound of the one that lasts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio.types import Pcm, Span
from voicejobs.engines.base import VoiceActivityDetector
from voicejobs.steps.plan import PlanOptions, Speech, plan
from voicejobs.steps.windows import WindowOptions, speech_spans
from voicejobs.streaming.options import StreamOptions
from voicejobs.units import SAMPLE_RATE_HZ, seconds_to_samples

LISTEN_FRAMES = 2
"""Frames of one call of the detector, 64 ms: a call each 20 ms would cost more round trips than listening."""
_SPARE_FRAMES = 4


class Ear:
    """Ask the detector for the speech probability of each frame, whatever the sizes in which the sound comes."""

    def __init__(self, detector: VoiceActivityDetector) -> None:
        self._detector = detector
        self.frame_samples = type(detector).frame_samples
        self._waiting: list[Pcm] = []
        self._waiting_samples = 0
        self._state = b""

    def listen(self, piece: Pcm) -> NDArray[np.float32]:
        """Return the probabilities of the frames that are complete with `piece`, a multiple of `LISTEN_FRAMES`."""
        self._waiting.append(piece)
        self._waiting_samples += len(piece)
        together = LISTEN_FRAMES * self.frame_samples
        if self._waiting_samples < together:
            return np.zeros(0, np.float32)
        return self._ask(self._waiting_samples // together * together)

    def finish(self) -> NDArray[np.float32]:
        """Return the probabilities of what is left; the detector pads the last frame."""
        return self._ask(self._waiting_samples) if self._waiting_samples else np.zeros(0, np.float32)

    def _ask(self, samples: int) -> NDArray[np.float32]:
        """Pass the first `samples` of what waits to the detector."""
        together = np.concatenate(self._waiting)
        self._waiting = [together[samples:].copy()]
        self._waiting_samples -= samples
        probabilities, self._state = self._detector.probabilities(together[:samples], self._state)
        return probabilities


class Tape:
    """Keep the last stretch of a stream; places count in samples from its start."""

    def __init__(self) -> None:
        self._samples = np.empty(SAMPLE_RATE_HZ, np.int16)
        self._length = 0
        self.start = 0

    @property
    def end(self) -> int:
        """Return how many samples came in all."""
        return self.start + self._length

    def append(self, piece: Pcm) -> None:
        """Add samples at the end."""
        wanted = self._length + len(piece)
        if wanted > len(self._samples):
            larger = np.empty(max(wanted, 2 * len(self._samples)), np.int16)
            larger[: self._length] = self._samples[: self._length]
            self._samples = larger
        self._samples[self._length : wanted] = piece
        self._length = wanted

    def drop_before(self, place: int) -> None:
        """Forget what is before `place`; a tape that became long and is nearly empty gives its memory back."""
        gone = min(max(place - self.start, 0), self._length)
        if gone == 0:
            return
        left = self._samples[gone : self._length]
        spacious = max(2 * len(left), SAMPLE_RATE_HZ)
        if spacious * 4 <= len(self._samples):
            self._samples = np.concatenate([left, np.empty(spacious - len(left), np.int16)])
        else:
            self._samples[: len(left)] = left.copy()
        self._length = len(left)
        self.start += gone

    def read(self, span: Span) -> Pcm:
        """Return a copy of the samples of a span that is on the tape."""
        return self._samples[span.start_samples - self.start : span.end_samples - self.start].copy()


@dataclass(frozen=True, slots=True, eq=False)
class Utterance:
    """Hold a window of the stream, its sound, and the speech in it, all in samples from the start of the stream."""

    segment_id: int
    window: Span
    samples: Pcm
    speech: list[Speech]


class Endpointer:
    """Cut a stream into segments; the windows are those that a job would decode, as far as the future is not needed.

    A segment ends after `end_silence_s` without speech. One that grows longer than a window is cut in its best pause,
    or, where there is none, where speech is least likely.
    """

    def __init__(self, options: StreamOptions, frame_samples: int) -> None:
        self._options = options.window
        self._end_silence = seconds_to_samples(options.end_silence_s)
        self._pad = seconds_to_samples(options.window.pad_s)
        self._edge = seconds_to_samples(options.window.edge_s)
        self._most = seconds_to_samples(options.window.max_window_s)
        self._longest = seconds_to_samples(options.window.max_window_s - 2 * options.window.pad_s)
        self._frame = frame_samples
        lead_s = options.window.pad_s + options.window.min_speech_s + options.window.min_silence_s
        self._lead_frames = seconds_to_samples(lead_s) // frame_samples + _SPARE_FRAMES
        self._tape = Tape()
        self._probabilities = np.zeros(0, np.float32)
        self._first_frame = 0
        self._spans: list[Span] = []
        self._floor = 0
        self._reach = 0  # no segment that follows begins before, whatever the tape still holds
        self._held_from: int | None = None
        self._holds = options.together
        self.segment_id = 1

    @property
    def is_open(self) -> bool:
        """Tell whether a segment lasts."""
        return bool(self._spans)

    @property
    def end(self) -> int:
        """Return how many samples came."""
        return self._tape.end

    @property
    def speech_start(self) -> int:
        """Return where the speech of the segment that lasts begins."""
        return self._spans[0].start_samples if self._spans else 0

    @property
    def speech_end(self) -> int:
        """Return where the speech of the segment that lasts ends so far."""
        return self._spans[-1].end_samples if self._spans else 0

    @property
    def start(self) -> int:
        """Return where the window of the segment that lasts begins; it moves up by a little when that grows long."""
        return self._start(self.speech_end)

    @property
    def pause(self) -> int:
        """Return the samples of silence since the speech of the segment that lasts."""
        return self._heard - self.speech_end

    @property
    def settled_end(self) -> int | None:
        """Return where the window would end if the pause that lasts were to end it; None while that may change."""
        if not self._spans or self.pause < self._pad or 2 * self._pad > self._end_silence:
            return None
        return self.speech_end + self._pad

    @property
    def _heard(self) -> int:
        """Return up to which sample speech is told from silence."""
        return min((self._first_frame + len(self._probabilities)) * self._frame, self._tape.end)

    def take(self, piece: Pcm, probabilities: NDArray[np.float32]) -> list[Utterance]:
        """Return the segments that end with `piece`.

        Args:
            piece: sound, at most a second of it.
            probabilities: of the frames that became complete with it.
        """
        self._tape.append(piece)
        ended: list[Utterance] = []
        # In steps of one size, so that the segments do not depend on the sizes in which the sound comes.
        for start in range(0, len(probabilities), LISTEN_FRAMES):
            self._probabilities = np.concatenate([self._probabilities, probabilities[start : start + LISTEN_FRAMES]])
            ended += self._cut()
        return ended

    def finish(self, probabilities: NDArray[np.float32]) -> list[Utterance]:
        """Return the segments that end with the stream; `probabilities` are those of the last frames."""
        ended = self.take(np.zeros(0, np.int16), probabilities)
        if self._spans:
            rest = self._tape.end - self.speech_end
            near = rest - self._pad <= self._edge and self._tape.end - self.start <= self._most
            ended.append(self._close(rest if near else self._pad))
        return ended

    def hold_from(self, place: int | None) -> None:
        """Keep the sound from `place` on, None for what is needed to go on: what is decoded together is read later."""
        self._held_from = place
        self._forget_before(self._reach)

    def read(self, window: Span) -> Pcm:
        """Return a copy of the sound of a window that is kept."""
        return self._tape.read(window)

    def utterance(self, window: Span) -> Utterance:
        """Return a window of the segment that lasts."""
        return Utterance(self.segment_id, window, self._tape.read(window), self._speech(window))

    def _start(self, speech_end: int) -> int:
        """Return where the window begins whose speech ends there."""
        first = self._spans[0].start_samples
        is_first = self._floor == 0 and self._reach == 0
        if is_first and first - self._pad <= self._edge and speech_end + self._pad <= self._most:
            return 0  # a recording that begins so is decoded from its beginning
        return max(first - self._pad, self._floor, self._reach)

    def _cut(self) -> list[Utterance]:
        """Return the segments that end with the last frames."""
        ended: list[Utterance] = []
        self._find_spans()
        while self._spans and self._spans[-1].end_samples - self._spans[0].start_samples > self._longest:
            ended.append(self._split())
        if self._spans and self.pause >= self._end_silence:
            ended.append(self._close(min(self._pad, self.pause // 2)))
        if not self._spans:
            self._forget_silence()
        return ended

    def _find_spans(self) -> None:
        """Look for speech in all frames that are kept."""
        offset = self._first_frame * self._frame
        found = speech_spans(self._probabilities, self._heard - offset, self._frame, self._options)
        moved = [Span(one.start_samples + offset, one.end_samples + offset) for one in found]
        # What lies before the floor belongs to the segment before, and was cut off from it.
        self._spans = [one for one in moved if one.end_samples > self._floor]

    def _split(self) -> Utterance:
        """End the segment that lasts in its best pause, and begin another after it."""
        cut = best_cut(self._spans, self._longest, self._options)
        before, after = self._spans[cut - 1], self._spans[cut]
        middle = (before.end_samples + after.start_samples) // 2
        window = Span(self._start(before.end_samples), min(before.end_samples + self._pad, middle))
        return self._end(window, middle)

    def _close(self, pad: int) -> Utterance:
        """End the segment that lasts with so much of the silence after it."""
        window = Span(self.start, min(self.speech_end + pad, self._tape.end))
        return self._end(window, window.end_samples)

    def _end(self, window: Span, floor: int) -> Utterance:
        """Return the utterance of a window, and forget it; nothing that follows begins before `floor`."""
        ended = self.utterance(window)
        if self._holds and self._held_from is None:
            self._held_from = window.start_samples
        self.segment_id += 1
        self._floor = floor
        self._spans = [one for one in self._spans if one.start_samples >= floor]
        self._keep_from(floor // self._frame)
        self._forget_before(floor)
        return ended

    def _forget_silence(self) -> None:
        """Keep what may yet be the lead of a segment; at first, what may belong to it from the beginning."""
        heard = self._first_frame + len(self._probabilities)
        if heard * self._frame > self._edge + self._pad + self._lead_frames * self._frame:
            self._keep_from(heard - self._lead_frames)
            self._forget_before((heard - self._lead_frames) * self._frame)

    def _forget_before(self, place: int) -> None:
        """Give up the sound before `place`, as far as nobody holds it."""
        self._reach = max(self._reach, place)
        self._tape.drop_before(self._reach if self._held_from is None else min(self._reach, self._held_from))

    def _keep_from(self, frame: int) -> None:
        """Forget the probabilities of earlier frames."""
        gone = max(0, frame - self._first_frame)
        self._probabilities = self._probabilities[gone:].copy()
        self._first_frame += gone

    def _speech(self, window: Span) -> list[Speech]:
        """Return the speech in the frames that are kept, as a job would plan it."""
        offset = self._first_frame * self._frame
        options = PlanOptions(window=self._options)
        found = plan(self._probabilities, self._heard - offset, self._frame, options).speech or []
        moved = [
            Speech(Span(one.span.start_samples + offset, one.span.end_samples + offset), one.peak) for one in found
        ]
        start, end = window.start_samples, window.end_samples
        return [one for one in moved if one.span.end_samples > start and one.span.start_samples < end]


def best_cut(spans: Sequence[Span], longest: int, options: WindowOptions) -> int:
    """Return the index of the span before which to cut: in the longest pause, late rather than early.

    Pauses in the second half of what fits come first, so that parts are not needlessly short; a pause beyond
    `good_pause_s` is as good as any longer one.

    Args:
        spans: at least two, together longer than a window may be.
        longest: samples from the start of the first span within which the part before the cut must end.
        options: limits.
    """
    start = spans[0].start_samples
    good = seconds_to_samples(options.good_pause_s)
    fitting = [at for at in range(1, len(spans)) if spans[at - 1].end_samples - start <= longest]

    def worth(at: int) -> tuple[bool, int, int]:
        pause = min(spans[at].start_samples - spans[at - 1].end_samples, good)
        return spans[at - 1].end_samples - start >= longest // 2, pause, at

    return max(fitting, key=worth)
