"""Recognise speech while it comes: feed sound from one thread, take events from another.

No thread belongs to a stream while nothing is decoded. `feed` cuts the sound into segments in the thread that calls it
(a call of the detector each 64 ms) and hands at most one decode at a time for each recogniser to an executor, so that
sound goes on coming in meanwhile. What is late is skipped, not queued: a partial result always listens to all the sound
there is, and the next one begins only when the last one is done and its share of the time allows. Segments that have
ended are never skipped: when more of them wait than `max_waiting`, or more events than `max_events`, `feed` blocks,
which a client over a network sees as flow control.
"""

import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import pairwise
from types import TracebackType
from typing import Self

import numpy as np

from voicejobs.audio.types import Pcm, Span, WindowResult
from voicejobs.engines.base import Recogniser, VoiceActivityDetector
from voicejobs.errors import BadOption, Cancelled, Internal, Interruption, QueueFull, VoicejobsError
from voicejobs.streaming.agreement import text_of
from voicejobs.streaming.endpoints import Ear, Endpointer, Utterance
from voicejobs.streaming.events import End, Event, Result, SpeechStarted, is_newer
from voicejobs.streaming.lane import Job, Lane, Track, placed, result, results, words_in
from voicejobs.streaming.options import StreamOptions
from voicejobs.streaming.together import Part, Together, window_of
from voicejobs.units import SAMPLE_RATE_HZ, samples_to_seconds, seconds_to_samples

_PIECE_SAMPLES = SAMPLE_RATE_HZ
_TAIL_SAMPLES = SAMPLE_RATE_HZ // 6
"""Words end softly: they go on for a little after the detector hears no more."""


def _nobody() -> None:
    """Tell nobody."""


class StreamingRecogniser:
    """Turn one stream of sound into events.

    One thread feeds, another takes events; `close` may be called from any. Whoever feeds more than `max_waiting`
    segments without anybody taking events blocks for good, unless `feed` has a timeout.

    Args:
        recogniser: decodes partial and final results.
        detector: tells speech from silence; called in the thread that feeds.
        options: how to cut and to decode.
        second: a better and slower recogniser that revises final results; None for none.
        executor: runs the decodes, for many streams if wanted; a stream has at most one task in it for each
            recogniser. None for a thread of its own, which ends with the stream.
        on_event: called after events were added, and after the stream failed or was closed, from any thread; it must
            not block.
    """

    def __init__(
        self,
        recogniser: Recogniser,
        detector: VoiceActivityDetector,
        options: StreamOptions,
        *,
        second: Recogniser | None = None,
        executor: Executor | None = None,
        on_event: Callable[[], None] = _nobody,
    ) -> None:
        self._options = options
        self._every_samples = seconds_to_samples(options.partial_every_s)
        self._ear = Ear(detector)
        self._ends = Endpointer(options, self._ear.frame_samples)
        self._first = Lane(recogniser, options.recognise, doubt=options.doubt)
        self._second = (
            None if second is None else Lane(second, options.revise or options.recognise, doubt=options.revise_doubt)
        )
        self._executor = ThreadPoolExecutor(2, thread_name_prefix="stream") if executor is None else executor
        self._owns_executor = executor is None
        self._on_event = on_event
        self._feeding = threading.Lock()
        self._changed = threading.Condition(threading.Lock())
        self._events: deque[Event] = deque()
        self._track: Track | None = None
        self._together = Together(options.window)
        self._last_final = 0
        self._next_partial_at = 0.0
        self._finished = False
        self._ended = False
        self._closed = False
        self._error: VoicejobsError | None = None

    @property
    def closed(self) -> bool:
        """Tell whether the stream was closed; a hosted recogniser may be told by it that waiting is for nothing."""
        return self._closed

    # ---- sound in

    def feed(self, pcm: Pcm, timeout_s: float | None = None) -> None:
        """Take sound, int16 at 16 kHz, shape (samples,), any length; blocks while too much waits.

        Args:
            pcm: copied where it is kept.
            timeout_s: how long to block at most; None for as long as it takes.

        Raises:
            BadOption: the sound is no array of int16.
            QueueFull: too much still waits after `timeout_s`; `details["taken_samples"]` says how much was taken.
            Cancelled: the stream was closed, or `finish` was called.
            VoicejobsError: what the recogniser or the detector raised.
        """
        if pcm.dtype != np.int16 or pcm.ndim != 1:
            raise BadOption(f"sound of a stream is {pcm.dtype} of shape {pcm.shape}", hint="Give int16, mono, 16 kHz.")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._feeding:
            for start, end in pairwise([*range(0, len(pcm), _PIECE_SAMPLES), len(pcm)]):
                self._await_room(deadline, start)
                piece = pcm[start:end].copy()
                probabilities = self._ear.listen(piece)
                with self._changed:
                    self._raise_if_over()
                    told = self._note(self._ends.take(piece, probabilities))
                self._go_on(told=told)

    def finish(self) -> None:
        """Say that no more sound comes: what is there becomes final, then `End` follows. Does not wait for it.

        Raises:
            Cancelled: the stream was closed, or this was called before.
            VoicejobsError: what the recogniser or the detector raised.
        """
        with self._feeding:
            with self._changed:
                self._raise_if_over()
            probabilities = self._ear.finish()
            with self._changed:
                self._raise_if_over()
                told = self._note(self._ends.finish(probabilities))
                self._decode_together(self._together.finish(), to_end=True)
                self._finished = True
            self._go_on(told=told)

    def close(self) -> None:
        """Give everything up at once and forget all sound; a decode in flight ends by itself and is dropped."""
        with self._changed:
            self._closed = True
            self._ends = Endpointer(self._options, self._ear.frame_samples)
            self._track = None
            self._events.clear()
            for lane in self._lanes():
                lane.clear()
            self._changed.notify_all()
        if self._owns_executor:
            self._executor.shutdown(wait=False, cancel_futures=True)
        self._on_event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ---- events out

    def events(self) -> Iterator[Event]:
        """Give the events as they come, `End` as the last; ends without it where the stream was closed.

        Raises:
            VoicejobsError: what the recogniser raised, after the events before it.
        """
        while (event := self.next_event()) is not None:
            yield event

    def next_event(self, timeout_s: float | None = None) -> Event | None:
        """Return the next event; None after `End`, after `close`, and where none came in `timeout_s` seconds.

        Raises:
            VoicejobsError: what the recogniser raised, after the events before it.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._is_over(), timeout_s)
            if not self._events:
                if self._error is not None and not self._closed:
                    raise self._error
                return None
            event = self._events.popleft()
            self._changed.notify_all()
        self._go_on()
        return event

    # ---- state, all under the lock

    def _lanes(self) -> list[Lane]:
        """Return the recognisers of the stream."""
        return [self._first] if self._second is None else [self._first, self._second]

    def _is_over(self) -> bool:
        """Tell whether no further event comes."""
        return self._closed or self._ended or self._error is not None

    def _raise_if_over(self) -> None:
        """Refuse sound that nobody will hear."""
        if self._error is not None and not self._closed:
            raise self._error
        if self._closed or self._finished:
            raise Cancelled("the stream is closed" if self._closed else "the stream was finished")

    def _await_room(self, deadline: float | None, taken_samples: int) -> None:
        """Wait until sound may come in."""
        with self._changed:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._changed.wait_for(lambda: self._is_over() or self._has_room(), left_s):
                raise QueueFull(
                    "the stream is heard more slowly than it comes",
                    hint="Send more slowly, and take the events; a smaller model is faster.",
                    taken_samples=taken_samples,
                )
            self._raise_if_over()

    def _has_room(self) -> bool:
        """Tell whether little enough waits."""
        waiting = max(len(lane.waiting) + len(lane.together) for lane in self._lanes())
        return waiting < self._options.max_waiting and len(self._events) < self._options.max_events

    def _note(self, ended: list[Utterance]) -> bool:
        """Follow the segments after sound came in; return whether there are new events."""
        count = len(self._events)
        for utterance in ended:
            track = self._track_of(utterance.segment_id, utterance.window.start_samples)
            self._first.waiting.append((utterance, track))
            self._track = None
            if self._options.together:
                self._decode_together(self._together.add(utterance))
        if self._ends.is_open:
            self._track_of(self._ends.segment_id, self._ends.start)
            self._decode_together(self._together.release(self._ends.start, self._ends.speech_end))
        else:
            self._decode_together(self._together.release(self._ends.end, self._ends.end))
        if self._options.together:
            self._ends.hold_from(self._together.start)
        return len(self._events) > count

    def _decode_together(self, parts: list[Part], *, to_end: bool = False) -> None:
        """Queue segments that are over to be decoded together; one alone is no news to the same recogniser."""
        if len(parts) > (1 if self._second is None else 0):
            window = window_of(parts, self._options.window, self._ends.end if to_end else None)
            speech = [one for part in parts for one in part.speech]
            joined = Utterance(parts[-1].segment_id, window, self._ends.read(window), speech)
            (self._second or self._first).together.append((joined, tuple(parts)))

    def _track_of(self, segment_id: int, start: int) -> Track:
        """Return the track of a segment, telling of it where it is new."""
        if self._track is None or self._track.segment_id != segment_id:
            self._track = Track(segment_id, max(start, self._ends.speech_start))
            self._next_partial_at = 0.0
            self._tell(SpeechStarted(segment_id, samples_to_seconds(start)))
        return self._track

    def _tell(self, event: Event) -> None:
        """Queue an event; a partial result takes the place of one of the same segment that nobody took."""
        if self._events and is_newer(event, self._events[-1]):
            self._events.pop()
        self._events.append(event)
        self._changed.notify_all()

    def _fail(self, error: VoicejobsError) -> None:
        """End the stream with an error."""
        self._error = self._error or error
        for lane in self._lanes():
            lane.clear()
        self._changed.notify_all()

    # ---- decodes

    def _go_on(self, *, told: bool = False) -> None:
        """Begin what is due, and tell of what is new."""
        jobs: list[tuple[Lane, Job]] = []
        with self._changed:
            count = len(self._events)
            for lane in self._lanes():
                job = None if lane.busy or self._is_over() else self._next_job(lane)
                if job is not None:
                    lane.busy = True
                    jobs.append((lane, job))
            done = self._finished and not self._is_over() and all(lane.is_idle for lane in self._lanes())
            if done:
                self._ended = True
                self._tell(End(samples_to_seconds(self._ends.end)))
            told = told or len(self._events) > count
        for lane, job in jobs:
            try:
                self._executor.submit(contextvars.copy_context().run, self._run, lane, job)
            except RuntimeError as error:  # the executor was shut down
                with self._changed:
                    self._fail(Cancelled(f"the stream cannot decode: {error}"))
                told = True
        if told:
            self._on_event()

    def _next_job(self, lane: Lane) -> Job | None:
        """Return what the lane is to decode next; events that nobody takes hold it up."""
        while lane.waiting and len(self._events) < self._options.max_events:
            utterance, track = lane.waiting.popleft()
            self._changed.notify_all()
            early = track.result_of(utterance) if lane is self._first else None
            if early is None:
                return Job("whole", utterance, track)
            self._take_whole(lane, utterance, early)
        if len(self._events) >= self._options.max_events:
            return None
        look = self._look() if lane is self._first and self._options.partials and self._ends.is_open else None
        is_first_look = look is not None and look.track.looks == 0
        if lane.together and not is_first_look and self._last_final >= lane.together[0][0].segment_id:
            joined, parts = lane.together.popleft()
            self._changed.notify_all()
            return Job("together", joined, Track(joined.segment_id, 0), parts)
        return look

    def _look(self) -> Job | None:
        """Return a decode of the segment that lasts, if one is due."""
        track = self._track_of(self._ends.segment_id, self._ends.start)
        settled = self._ends.settled_end
        if settled is not None:
            window = Span(self._ends.start, settled)
            if track.early is None or track.early[0].window != window:
                return Job("early", self._ends.utterance(window), track)
            return None
        fresh = (self._ends.end - track.decoded_end) * (1 if track.looks else 2)
        silent = self._ends.speech_end + _TAIL_SAMPLES <= track.decoded_end
        if fresh < self._every_samples or silent or time.monotonic() < self._next_partial_at:
            return None
        start = max(track.decode_start, self._ends.start)
        longest = seconds_to_samples(self._options.window.max_window_s)
        return Job("partial", self._ends.utterance(Span(start, min(self._ends.end, start + longest))), track)

    def _run(self, lane: Lane, job: Job) -> None:
        """Decode in a thread of the executor."""
        if job.kind in {"partial", "early"}:
            fresh = self._refreshed(lane)
            if fresh is None:
                self._go_on(told=True)
                return
            job = fresh
        if self._closed:
            return
        began = time.monotonic()
        found, error = self._decode(lane, job)
        took_s = time.monotonic() - began
        with self._changed:
            lane.busy = False
            if self._is_over():
                return
            if error is not None:
                self._fail(error)
            elif job.kind == "whole" and found is not None:
                self._take_whole(lane, job.utterance, found)
            elif job.kind == "together" and found is not None:
                for event in results(job.utterance, job.parts, found):
                    self._tell(event)
            else:
                self._take_partial(job, found)
            if job.kind == "partial":
                self._next_partial_at = began + took_s / self._options.partial_share
        self._go_on(told=True)

    def _refreshed(self, lane: Lane) -> Job | None:
        """Return what is due by now: where many streams share an executor, a job may have waited in front of it."""
        with self._changed:
            job = None if self._is_over() else self._next_job(lane)
            lane.busy = job is not None
            return job

    def _decode(self, lane: Lane, job: Job) -> tuple[WindowResult | None, VoicejobsError | None]:
        """Return what was heard, or why the stream cannot go on; a partial result that fails is just not there."""
        try:
            if job.kind == "partial":
                return lane.glance(job.utterance, self._options.draft), None
            return lane.whole(job.utterance), None
        except VoicejobsError as error:
            is_final = job.kind in {"whole", "together"}
            return None, error if is_final or isinstance(error, Interruption) else None
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever takes events must hear of it
            return None, Internal(f"{type(error).__name__}: {error}")

    def _take_partial(self, job: Job, found: WindowResult | None) -> None:
        """Tell what is heard of a segment so far; a decode that failed counts as made, so that it is not repeated."""
        utterance, track = job.utterance, job.track
        track.decoded_end = max(track.decoded_end, utterance.window.end_samples)
        track.looks += 1
        if job.kind == "early":
            track.early = (utterance, found)
        if found is None:
            return
        track.agreement.take(words_in(placed(utterance, found)))
        start_s = samples_to_seconds(utterance.window.start_samples)
        border_s = track.agreement.border_s(start_s, self._options.trim_s)
        track.decode_start = max(track.decode_start, seconds_to_samples(border_s))
        words = track.agreement.words
        stable = len(track.agreement.settled)
        if words:
            self._tell(
                Result(
                    kind="partial",
                    segment_id=track.segment_id,
                    start_s=min(start_s, words[0].start_s),
                    heard_s=samples_to_seconds(utterance.window.end_samples),
                    text=text_of(words),
                    words=tuple(words),
                    stable_words=stable,
                    stability=stable / len(words),
                    language=found.language,
                )
            )

    def _take_whole(self, lane: Lane, utterance: Utterance, found: WindowResult) -> None:
        """Tell what a segment was, and pass it on to the second recogniser."""
        lane.note_language(found)
        self._tell(result("final" if lane is self._first else "revised", utterance, found))
        if lane is self._first:
            self._last_final = utterance.segment_id
        if lane is self._first and self._second is not None and not self._options.together:
            self._second.waiting.append((utterance, Track(utterance.segment_id, 0)))
