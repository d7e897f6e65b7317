"""Decide what of a channel is recognised: the stretches that the user wants, the speech in them, the windows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio.types import Span
from voicejobs.steps.windows import DEFAULT, WindowOptions, plan_windows, speech_spans, whole_spans
from voicejobs.units import SAMPLE_RATE_HZ, seconds_to_samples

_HYSTERESIS = 0.25
_LOWEST_RELEASE = 0.01
_THOUSAND = 1000
_HARDLY_A_PAUSE = SAMPLE_RATE_HZ // 5


@dataclass(frozen=True, slots=True)
class Speech:
    """Name a stretch of speech, and how sure the detector was of it at its surest."""

    span: Span
    peak: float

    def to_json(self) -> list[int]:
        """Return start, end and thousandths of the probability."""
        return [self.span.start_samples, self.span.end_samples, round(self.peak * _THOUSAND)]

    @classmethod
    def from_json(cls, data: Sequence[int]) -> Self:
        """Build it from `to_json`."""
        return cls(Span(data[0], data[1]), data[2] / _THOUSAND)


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Say what to recognise of a recording.

    Args:
        window: what counts as speech and how windows are cut.
        clips: stretches in seconds, ordered and disjoint, the end None for that of the recording; none: everything.
        vad_filter: leave out what is no speech; without it the detector only says where to cut.
    """

    window: WindowOptions = DEFAULT
    clips: tuple[tuple[float, float | None], ...] = ()
    vad_filter: bool = True

    @classmethod
    def from_step(cls, options: Mapping[str, Any]) -> Self:
        """Build them from the options of the step `prepare`."""
        threshold = options["vad_threshold"]
        window = replace(
            DEFAULT,
            threshold=threshold,
            release=max(_LOWEST_RELEASE, round(threshold - _HYSTERESIS, 6)),
            min_speech_s=options["vad_min_speech_ms"] / _THOUSAND,
            min_silence_s=options["vad_min_silence_ms"] / _THOUSAND,
            pad_s=min(options["vad_pad_ms"] / _THOUSAND, options["vad_max_window_s"] / 4),
            max_window_s=options["vad_max_window_s"],
        )
        clips = tuple((start_s, end_s) for start_s, end_s in options["clips"])
        return cls(window, clips, options["vad_filter"])


@dataclass(frozen=True, slots=True)
class Plan:
    """Hold what is to be recognised; `speech` is None where the user does not want it to count."""

    windows: list[Span]
    speech: list[Speech] | None

    @property
    def speech_samples(self) -> int:
        """Return how much speech there is."""
        return sum(one.span.length_samples for one in self.speech or ())


def plan(probabilities: NDArray[np.float32], samples: int, frame_samples: int, options: PlanOptions) -> Plan:
    """Return the windows of one channel and the speech in them; no window reaches over the end of a clip.

    Args:
        probabilities: speech probability of each frame, float32, shape (frames,).
        samples: length of the channel.
        frame_samples: samples of one frame.
        options: what to recognise.
    """
    windows: list[Span] = []
    speech: list[Speech] = []
    for clip in _clips(options.clips, samples):
        first = clip.start_samples // frame_samples
        inside = probabilities[first : -(-clip.end_samples // frame_samples)]
        find_spans = speech_spans if options.vad_filter else whole_spans
        offset = first * frame_samples
        found = _moved(find_spans(inside, clip.end_samples - offset, frame_samples, options.window), offset)
        spans = [Span(max(span.start_samples, clip.start_samples), span.end_samples) for span in found]
        spans = [span for span in spans if span.length_samples > 0]
        planned = plan_windows(_moved(spans, -clip.start_samples), clip.length_samples, options.window)
        windows += _moved(planned, clip.start_samples)
        speech += [Speech(span, _peak(probabilities, span, frame_samples)) for span in _joined(spans)]
    return Plan(windows, speech if options.vad_filter else None)


def _clips(clips: Sequence[tuple[float, float | None]], samples: int) -> list[Span]:
    """Return the clips in samples, as far as they lie in the recording; all of it where there are none."""
    found = [
        Span(seconds_to_samples(start_s), samples if end_s is None else min(samples, seconds_to_samples(end_s)))
        for start_s, end_s in clips or ((0.0, None),)
    ]
    return [clip for clip in found if clip.length_samples > 0]


def _moved(spans: Sequence[Span], by_samples: int) -> list[Span]:
    """Return the spans, moved."""
    return [Span(span.start_samples + by_samples, span.end_samples + by_samples) for span in spans]


def _joined(spans: Sequence[Span]) -> list[Span]:
    """Return the spans, those with hardly a pause between them as one: hours of speech have many."""
    joined: list[Span] = []
    for span in spans:
        if joined and span.start_samples - joined[-1].end_samples < _HARDLY_A_PAUSE:
            joined[-1] = Span(joined[-1].start_samples, span.end_samples)
        else:
            joined.append(span)
    return joined


def _peak(probabilities: NDArray[np.float32], span: Span, frame_samples: int) -> float:
    """Return the highest probability in a span."""
    inside = probabilities[span.start_samples // frame_samples : -(-span.end_samples // frame_samples)]
    return float(inside.max(initial=0.0))
