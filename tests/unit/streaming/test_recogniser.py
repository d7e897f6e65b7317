"""A stream of sound becomes events, whatever the pace of either side."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tests.unit.streaming.sounds import LevelDetector, LevelRecogniser, frames, silence, speech
from tests.waiting import wait_until
from voicejobs.audio.types import Pcm, Span
from voicejobs.engines.base import RecogniseOptions
from voicejobs.errors import BadOption, Cancelled, EngineCrash, Internal, QueueFull
from voicejobs.steps.plan import PlanOptions, plan
from voicejobs.steps.recognise import Work, recognise
from voicejobs.streaming.events import End, Event, Result, SpeechStarted
from voicejobs.streaming.options import StreamOptions
from voicejobs.streaming.recogniser import StreamingRecogniser

WORDS = StreamOptions(recognise=RecogniseOptions(language="en", word_timestamps=True))
TWO_PHRASES = np.concatenate([silence(0.5), speech(*range(1000, 1005)), silence(1.2), speech(2000, 2001), silence(1)])


def run(stream: StreamingRecogniser, sound: Pcm, *, pace: float = 0.0, size: int = 320) -> list[Event]:
    """Feed the sound from a thread of its own, `pace` seconds a frame, and return all events."""

    def feed() -> None:
        for frame in frames(sound, size):
            stream.feed(frame)
            time.sleep(pace)
        stream.finish()

    feeder = threading.Thread(target=feed)
    feeder.start()
    events = list(stream.events())
    feeder.join()
    return events


def results(events: list[Event], kind: str) -> list[Result]:
    """Return the results of one kind."""
    return [event for event in events if isinstance(event, Result) and event.kind == kind]


def test_each_phrase_begins_grows_and_becomes_final() -> None:
    """Two phrases give two starts, partial results and two final ones with rising ids, then the end."""
    with StreamingRecogniser(LevelRecogniser(), LevelDetector(), WORDS) as stream:
        events = run(stream, TWO_PHRASES, pace=0.001)
    assert [event.segment_id for event in events if isinstance(event, SpeechStarted)] == [1, 2]
    assert [one.text for one in results(events, "final")] == ["w1000 w1001 w1002 w1003 w1004", "w2000 w2001"]
    assert [one.segment_id for one in results(events, "final")] == [1, 2]
    assert {one.segment_id for one in results(events, "partial")} == {1, 2}
    assert events[-1] == End(len(TWO_PHRASES) / 16_000)


def test_the_first_partial_result_comes_before_the_sound_ends() -> None:
    """While the client still sends the first phrase, words of it arrive."""
    stream = StreamingRecogniser(LevelRecogniser(), LevelDetector(), WORDS)
    for frame in frames(speech(*range(1000, 1005))):
        stream.feed(frame)
        time.sleep(0.001)
    wait_until(lambda: any(isinstance(event, Result) for event in stream._events), 5)
    stream.close()


@pytest.mark.parametrize("size", [1, 37, 320, 512, 16_000, 100_000])
def test_the_size_of_the_frames_changes_no_final_result(size: int) -> None:
    """Frames of one sample, 20 ms, a second or everything at once give the same final words and times."""
    sound = TWO_PHRASES if size > 1 else TWO_PHRASES[:16_000]
    quiet = StreamOptions(recognise=WORDS.recognise, partials=False)
    with StreamingRecogniser(LevelRecogniser(), LevelDetector(), quiet) as stream:
        found = results(run(stream, sound, size=size), "final")
    with StreamingRecogniser(LevelRecogniser(), LevelDetector(), quiet) as stream:
        wanted = results(run(stream, sound, size=1000), "final")
    assert found == wanted


def test_final_results_equal_those_of_a_job() -> None:
    """Speech with pauses above the end of a segment is cut into the windows of a job with the same gap, same words."""
    sound = np.concatenate(
        [
            silence(1),
            *(np.concatenate([speech(*range(1000 + at, 1004 + at)), silence(1 + at / 40)]) for at in range(0, 60, 4)),
        ]
    )
    with StreamingRecogniser(LevelRecogniser(), LevelDetector(), WORDS) as stream:
        events = run(stream, sound)
    probabilities, _ = LevelDetector().probabilities(sound, b"")
    planned = plan(probabilities, len(sound), LevelDetector.frame_samples, PlanOptions())
    work = Work(planned.windows, lambda span: sound[span.start_samples : span.end_samples], speech=planned.speech)
    wanted = recognise(work, LevelRecogniser(), WORDS.recognise)
    said = "".join(segment.text for one in wanted for segment in one.segments).strip()
    assert " ".join(one.text for one in results(events, "final")) == said


def test_times_rise_and_lie_inside_the_sound() -> None:
    """Words of final results neither go back nor reach out of the sound, across segments cut at 30 s too."""
    sound = np.concatenate([silence(2.1), speech(*range(1000, 1200)), silence(0.3), speech(*range(3000, 3003))])
    with StreamingRecogniser(LevelRecogniser(), LevelDetector(), WORDS) as stream:
        finals = results(run(stream, sound), "final")
    words = [word for one in finals for word in one.words]
    assert len(finals) >= 3
    assert all(before.end_s <= after.start_s for before, after in pairwise(words))
    assert 0 <= words[0].start_s
    assert words[-1].end_s <= len(sound) / 16_000
    assert all(one.heard_s - one.start_s <= 30 for one in finals)
    assert all(before.heard_s <= after.start_s for before, after in pairwise(finals))
    assert len([word for word in words if not word.text.endswith("-")]) >= 199


def test_settled_words_stay() -> None:
    """What a partial result calls stable stands in every later partial result of its segment."""
    with StreamingRecogniser(LevelRecogniser(), LevelDetector(), WORDS) as stream:
        events = run(stream, np.concatenate([speech(*range(1000, 1030)), silence(1)]), pace=0.002)
    partials = results(events, "partial")
    assert len(partials) > 5
    assert max(one.stable_words for one in partials) > 10
    for before, after in pairwise(partials):
        stable = [word.text for word in before.words[: before.stable_words]]
        assert [word.text for word in after.words[: len(stable)]] == stable


def test_decodes_of_partial_results_stay_short() -> None:
    """In 25 s of speech without a pause no partial decode is much longer than `trim_s`, and no word is lost."""
    engine = LevelRecogniser()
    options = StreamOptions(recognise=WORDS.recognise, trim_s=4.0)
    with StreamingRecogniser(engine, LevelDetector(), options) as stream:
        events = run(stream, speech(*range(1000, 1071)), pace=0.002)
    assert max(len(window) for window in engine.windows[:-1]) < 6 * 16_000
    assert results(events, "partial")[-1].text.split()[:60] == [f"w{level}" for level in range(1000, 1060)]
    assert results(events, "final")[0].text.split() == [f"w{level}" for level in range(1000, 1071)]


def test_a_slow_engine_is_never_asked_twice_at_once() -> None:
    """While a decode takes 0.1 s and frames come each 2 ms, one decode runs at a time and late ones are skipped."""
    engine = LevelRecogniser(delay_s=0.1)
    with StreamingRecogniser(engine, LevelDetector(), WORDS) as stream:
        run(stream, np.concatenate([speech(*range(1000, 1020)), silence(1)]), pace=0.002)
    assert engine.most_running == 1
    assert len(engine.windows) < 15


def test_decoding_takes_its_share_of_the_time_and_no_more() -> None:
    """With a share of a quarter, partial decodes of 50 ms begin 0.2 s apart."""
    engine = LevelRecogniser(delay_s=0.05)
    options = StreamOptions(recognise=WORDS.recognise, partial_share=0.25, partial_every_s=0.02)
    stream = StreamingRecogniser(engine, LevelDetector(), options)
    began = time.monotonic()
    for frame in frames(speech(*range(1000, 1060))):
        stream.feed(frame)
        time.sleep(0.001)
    most = (time.monotonic() - began) / 0.2 + 1
    stream.close()
    assert 1 <= len(engine.windows) <= most


def test_feed_goes_on_while_a_decode_runs() -> None:
    """A decode that hangs holds up no frame of the segment that lasts."""
    engine = LevelRecogniser()
    engine.gate = threading.Event()
    stream = StreamingRecogniser(engine, LevelDetector(), WORDS)
    for frame in frames(speech(*range(1000, 1040))):
        stream.feed(frame, timeout_s=5)
    assert engine.running == 1
    stream.close()
    engine.gate.set()


def test_feed_blocks_when_segments_pile_up() -> None:
    """With an engine that hangs, two waiting segments are taken; then a feed with a timeout says queue_full."""
    engine = LevelRecogniser()
    engine.gate = threading.Event()
    stream = StreamingRecogniser(engine, LevelDetector(), StreamOptions(recognise=WORDS.recognise, max_waiting=2))
    phrase = np.concatenate([speech(1000, 1001), silence(1)])

    def feed_much() -> None:
        for _ in range(20):
            for frame in frames(phrase):
                stream.feed(frame, timeout_s=0.05)

    with pytest.raises(QueueFull) as refused:
        feed_much()
    assert refused.value.details == {"taken_samples": 0}
    assert len(stream._first.waiting) == 2
    engine.gate.set()
    stream.feed(phrase[:320], timeout_s=5)
    stream.close()


def test_a_consumer_that_takes_nothing_slows_the_producer() -> None:
    """Where nobody takes events, decoding pauses at `max_events` and feed blocks; taking them sets both going."""
    options = StreamOptions(recognise=WORDS.recognise, max_events=4, max_waiting=1, partials=False)
    engine = LevelRecogniser()
    stream = StreamingRecogniser(engine, LevelDetector(), options)
    sound = np.tile(np.concatenate([speech(1000, 1001), silence(1)]), 12)
    fed: list[int] = []

    def feed() -> None:
        for number, frame in enumerate(frames(sound)):
            stream.feed(frame)
            fed.append(number)
        stream.finish()

    feeder = threading.Thread(target=feed)
    feeder.start()
    wait_until(lambda: len(stream._events) >= 4, 5)
    before = len(fed)
    time.sleep(0.2)
    assert len(fed) - before <= 1
    assert len(stream._events) <= 6
    assert len(results(list(stream.events()), "final")) == 12
    feeder.join()


def test_partial_results_that_nobody_took_are_replaced() -> None:
    """A consumer that comes late finds one partial result of the segment, the newest."""
    stream = StreamingRecogniser(LevelRecogniser(), LevelDetector(), WORDS)
    for frame in frames(speech(*range(1000, 1010))):
        stream.feed(frame)
        time.sleep(0.001)
    waiting = list(stream._events)
    stream.close()
    assert len(results(waiting, "partial")) == 1


@pytest.mark.parametrize("together", [True, False])
def test_a_second_recogniser_revises_each_final_result(*, together: bool) -> None:
    """With two recognisers each segment has a final result, later a revised one, by the same id."""
    better = LevelRecogniser(prefix="better", delay_s=0.02)
    options = replace(WORDS, together=together)
    with StreamingRecogniser(LevelRecogniser(), LevelDetector(), options, second=better) as stream:
        events = run(stream, TWO_PHRASES)
    assert [one.text for one in results(events, "revised")] == [
        "better1000 better1001 better1002 better1003 better1004",
        "better2000 better2001",
    ]
    order = [(event.kind, event.segment_id) for event in events if isinstance(event, Result)]
    assert all(order.index(("final", number)) < order.index(("revised", number)) for number in (1, 2))
    assert isinstance(events[-1], End)
    assert better.most_running == 1
    assert len(better.windows) == (1 if together else 2)


def test_segments_that_a_job_decodes_together_are_decoded_together_in_the_end() -> None:
    """The last decode has the window that a job plans, and each segment gets its own words of it."""
    engine = LevelRecogniser()
    with StreamingRecogniser(engine, LevelDetector(), WORDS) as stream:
        events = run(stream, TWO_PHRASES)
    probabilities, _ = LevelDetector().probabilities(TWO_PHRASES, b"")
    (window,) = plan(probabilities, len(TWO_PHRASES), LevelDetector.frame_samples, PlanOptions()).windows
    assert np.array_equal(engine.windows[-1], TWO_PHRASES[window.start_samples : window.end_samples])
    revised = results(events, "revised")
    assert [(one.segment_id, one.text) for one in revised] == [
        (one.segment_id, one.text) for one in results(events, "final")
    ]
    assert isinstance(events[-1], End)


def test_segments_far_apart_are_left_as_they_are() -> None:
    """After 5 s of silence another window begins: a segment alone in its window is not decoded again."""
    sound = np.concatenate([speech(1000, 1001), silence(5), speech(2000, 2001), silence(1)])
    with StreamingRecogniser(LevelRecogniser(), LevelDetector(), WORDS) as stream:
        events = run(stream, sound)
    assert len(results(events, "final")) == 2
    assert results(events, "revised") == []


def test_windows_of_many_segments_are_no_longer_than_a_window_may_be() -> None:
    """A minute of short phrases is decoded in windows of at most 30 s, and no word is lost by that."""
    sound = np.concatenate([np.concatenate([speech(*range(n, n + 4)), silence(1)]) for n in range(1000, 1100, 4)])
    engine = LevelRecogniser()
    with StreamingRecogniser(engine, LevelDetector(), replace(WORDS, partials=False)) as stream:
        events = run(stream, sound)
    assert max(len(window) for window in engine.windows) <= 30 * 16_000
    last = {one.segment_id: one.text for kind in ("final", "revised") for one in results(events, kind)}
    said = " ".join(last.values())
    assert said == " ".join(f"w{level}" for level in range(1000, 1100))
    order = [(event.kind, event.segment_id) for event in events if isinstance(event, Result)]
    revised = [number for kind, number in order if kind == "revised"]
    assert all(order.index(("final", number)) < order.index(("revised", number)) for number in revised)


def test_a_pause_is_decoded_in_advance() -> None:
    """The decode in the pause that ends a segment is its final result: that window is not decoded again."""
    engine = LevelRecogniser()
    with StreamingRecogniser(engine, LevelDetector(), WORDS) as stream:
        finals = results(run(stream, TWO_PHRASES, pace=0.002), "final")
    spans = [Span(round(one.start_s * 16_000), round(one.heard_s * 16_000)) for one in finals]
    for span in spans:
        sound = TWO_PHRASES[span.start_samples : span.end_samples]
        assert sum(np.array_equal(window, sound) for window in engine.windows) == 1


@pytest.mark.parametrize("when", ["idle", "decoding"])
def test_closing_is_at_once(when: str) -> None:
    """Close returns while an engine call hangs, blocked feeders and takers hear of it, and no thread stays behind."""
    engine = LevelRecogniser()
    engine.gate = threading.Event()
    options = StreamOptions(recognise=WORDS.recognise, max_waiting=1)
    stream = StreamingRecogniser(engine, LevelDetector(), options)
    ended: list[str] = []

    def feed() -> None:
        try:
            while True:
                stream.feed(np.concatenate([speech(1000), silence(1)]) if when == "decoding" else silence(1))
                time.sleep(0.001)
        except Cancelled:
            ended.append("feed")

    def take() -> None:
        list(stream.events())
        ended.append("events")

    threads = [threading.Thread(target=feed), threading.Thread(target=take)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    began = time.monotonic()
    stream.close()
    for thread in threads:
        thread.join(5)
    assert time.monotonic() - began < 1
    assert sorted(ended) == ["events", "feed"]
    assert stream._ends.end == 0
    assert not stream._first.waiting
    engine.gate.set()
    wait_until(lambda: not any(thread.name.startswith("stream") for thread in threading.enumerate()), 5)
    assert stream.closed
    assert stream.next_event(0) is None


def test_streams_share_an_executor() -> None:
    """Ten streams on one executor of two threads all come to their end, and the executor lives on."""
    with ThreadPoolExecutor(2) as executor:
        streams = [StreamingRecogniser(LevelRecogniser(), LevelDetector(), WORDS, executor=executor) for _ in range(10)]
        with ThreadPoolExecutor(10) as clients:
            found = list(clients.map(lambda stream: run(stream, TWO_PHRASES), streams))
        for stream in streams:
            stream.close()
        assert executor.submit(lambda: 7).result() == 7
    assert all(len(results(events, "final")) == 2 for events in found)


def test_a_job_that_waited_for_the_executor_hears_what_came_meanwhile() -> None:
    """A partial decode that a busy executor held up listens to all the sound there is when it begins."""
    gate, engine = threading.Event(), LevelRecogniser()
    with ThreadPoolExecutor(1) as executor:
        executor.submit(gate.wait, 10)
        stream = StreamingRecogniser(engine, LevelDetector(), WORDS, executor=executor)
        for frame in frames(speech(*range(1000, 1020))):
            stream.feed(frame)
        assert engine.windows == []
        gate.set()
        wait_until(lambda: engine.windows, 5)
        stream.close()
    assert len(engine.windows[0]) > 6.5 * 16_000


def test_an_executor_that_is_gone_ends_the_stream() -> None:
    """A stream whose executor was shut down fails with cancelled, not with silence."""
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    stream = StreamingRecogniser(LevelRecogniser(), LevelDetector(), WORDS, executor=executor)
    with pytest.raises(Cancelled, match="cannot decode"):
        run_until_error(stream, TWO_PHRASES)


def run_until_error(stream: StreamingRecogniser, sound: Pcm) -> None:
    """Feed and take in one thread, until either raises."""
    for frame in frames(sound):
        stream.feed(frame)
        stream.next_event(0.001)
    stream.finish()
    list(stream.events())


def test_a_partial_decode_that_fails_is_just_not_there() -> None:
    """An engine that crashes under a partial result costs that result and no word of the final one."""
    engine = LevelRecogniser()
    engine.fail_next = [EngineCrash("the engine died")]
    with StreamingRecogniser(engine, LevelDetector(), WORDS) as stream:
        events = run(stream, TWO_PHRASES, pace=0.001)
    assert len(results(events, "final")) == 2


@pytest.mark.parametrize(
    ("raised", "wanted"), [(EngineCrash("the engine died"), EngineCrash), (ValueError("no"), Internal)]
)
def test_a_final_decode_that_fails_ends_the_stream(raised: Exception, wanted: type[Exception]) -> None:
    """Whoever takes events, and whoever feeds, gets the error of the engine, as one of ours."""
    engine = LevelRecogniser()
    options = StreamOptions(recognise=WORDS.recognise, partials=False)
    engine.fail_next = [raised]
    with StreamingRecogniser(engine, LevelDetector(), options) as stream:
        stream.feed(np.concatenate([speech(1000), silence(0.9)]))
        with pytest.raises(wanted):
            list(stream.events())
        with pytest.raises(wanted):
            stream.feed(silence(0.02))


def test_silence_costs_no_decode_and_no_memory() -> None:
    """Ten minutes of silence give nothing but the end; the stream keeps two seconds of it."""
    engine = LevelRecogniser()
    with StreamingRecogniser(engine, LevelDetector(), WORDS) as stream:
        for _ in range(600):
            stream.feed(silence(1))
        assert stream._ends.end - stream._ends._tape.start < 3 * 16_000
        stream.finish()
        assert list(stream.events()) == [End(600.0)]
    assert engine.windows == []


def test_an_hour_of_speech_is_held_in_bounded_memory() -> None:
    """However long a stream is, what it keeps of the sound and of the probabilities is bounded."""
    options = StreamOptions(recognise=WORDS.recognise, partials=False)
    stream = StreamingRecogniser(LevelRecogniser(), LevelDetector(), options)
    taker = threading.Thread(target=lambda: list(stream.events()))
    taker.start()
    sound = np.concatenate([speech(*range(1000, 1025)), silence(0.25)])
    most = 0
    for _ in range(400):  # an hour
        for frame in frames(sound, 8000):
            stream.feed(frame)
        most = max(most, len(stream._ends._tape._samples), 512 * len(stream._ends._probabilities))
    stream.finish()
    taker.join(30)
    assert most <= 128 * 16_000


def test_the_language_is_kept_once_two_segments_agree() -> None:
    """Without a language each segment asks for it until two in a row were sure; then all are decoded in that one."""
    engine = LevelRecogniser()
    options = StreamOptions(recognise=RecogniseOptions(word_timestamps=True), partials=False, together=False)
    with StreamingRecogniser(engine, LevelDetector(), options) as stream:
        run(stream, np.tile(np.concatenate([speech(1000, 1001), silence(1)]), 4))
    assert [one.language for one in engine.options] == [None, None, "en", "en"]


def test_final_results_use_the_options_of_a_job() -> None:
    """Final decodes get the options as they are; partial ones a single pass with word times."""
    engine = LevelRecogniser()
    options = StreamOptions(recognise=RecogniseOptions(language="en", beam_size=3))
    with StreamingRecogniser(engine, LevelDetector(), options) as stream:
        events = run(stream, TWO_PHRASES, pace=0.002)
    assert {one for one in engine.options if one.beam_size == 3} == {options.recognise}
    assert {one for one in engine.options if one.beam_size == 1} == {options.draft}
    assert results(events, "final")[0].words == ()
    assert results(events, "partial")[0].words != ()


def test_events_tell_whoever_waits() -> None:
    """Each event is announced by `on_event`, so that a loop can wait for many streams."""
    told = threading.Event()
    stream = StreamingRecogniser(LevelRecogniser(), LevelDetector(), WORDS, on_event=told.set)
    stream.feed(speech(1000, 1001))
    assert told.wait(5)
    assert stream.next_event(0) == SpeechStarted(1, 0.0)
    told.clear()
    stream.close()
    assert told.is_set()


@pytest.mark.parametrize(
    "feed",
    [
        lambda stream: stream.feed(np.zeros(320, np.float32)),
        lambda stream: stream.feed(np.zeros((2, 320), np.int16)),
    ],
)
def test_other_sound_is_refused(feed: Callable[[StreamingRecogniser], None]) -> None:
    """Sound that is not mono int16 is a bad option, not noise."""
    with StreamingRecogniser(LevelRecogniser(), LevelDetector(), WORDS) as stream, pytest.raises(BadOption):
        feed(stream)


def test_nothing_can_be_fed_after_the_end() -> None:
    """After `finish` both `feed` and `finish` raise."""
    with StreamingRecogniser(LevelRecogniser(), LevelDetector(), WORDS) as stream:
        stream.finish()
        with pytest.raises(Cancelled):
            stream.feed(silence(1))
        with pytest.raises(Cancelled):
            stream.finish()


@pytest.mark.parametrize(
    "values", [{"end_silence_s": 9.0}, {"partial_share": 0.0}, {"max_waiting": 0}, {"trim_s": 40.0}]
)
def test_options_out_of_range_are_refused(values: dict[str, float]) -> None:
    """Each option has its range, and the error names it."""
    with pytest.raises(BadOption, match=next(iter(values))):
        StreamOptions(**values)  # type: ignore[arg-type]
