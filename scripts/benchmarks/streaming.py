"""Streaming recognition at real pace: how late the first results are, final text against offline, memory."""

import argparse
import statistics
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import jiwer
import numpy as np
import psutil
from benchmarks.recordings import SPEECH
from benchmarks.report import finish, print_table
from benchmarks.score import normalise, read_manifest

from voicejobs.audio.decode import DecodeOptions, decode
from voicejobs.audio.types import Pcm, Word
from voicejobs.engines.base import EngineSpec, RecogniseOptions
from voicejobs.engines.registry import engine_class
from voicejobs.errors import InputError, VoicejobsError
from voicejobs.hosting.host import EngineHost
from voicejobs.models.installed import resolve
from voicejobs.settings import Settings
from voicejobs.steps.merge import Piece, merge
from voicejobs.steps.plan import PlanOptions, Speech, plan
from voicejobs.steps.prepare import listen
from voicejobs.steps.recognise import Work, recognise
from voicejobs.streaming.events import Event, Result
from voicejobs.streaming.options import StreamOptions
from voicejobs.streaming.recogniser import StreamingRecogniser
from voicejobs.units import SAMPLE_RATE_HZ, samples_to_seconds

PAUSE_S = 1.5
FAKE = {"cost_base_s": 0.03, "cost_window_s": 0.004, "cost_mode": "sleep"}
LIMITS_S = {"fake": 0.3, "tiny.en": 1.5}
WER_MARGIN = 0.03
MOST_GROWTH_MB = 20.0
WARM_UP_SHARE = 0.3
NEAR_S = 0.6
SHORTEST_WORD_S = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--engines", nargs="+", default=["fake", "tiny.en", "base"], help="fake, or names of models")
    parser.add_argument("--minutes", type=float, default=10.0, help="length of the stream, for each engine")
    parser.add_argument("--frame-ms", type=int, default=20)
    parser.add_argument("--second", default="", help="model that revises each final result")


def main(arguments: argparse.Namespace) -> int:
    """Run each engine over the same stream."""
    sound, reference = joined(arguments.minutes)
    if not len(sound):
        sys.exit(f"{SPEECH}: no recordings in English with their text")
    found: dict[str, dict[str, Any]] = {}
    with EngineHost(Settings.from_env()) as host:
        for name in arguments.engines:
            print(f"{name}: {len(sound) / SAMPLE_RATE_HZ:.0f} s at real pace", file=sys.stderr)
            found[name] = measure(host, name, sound, reference, arguments)
    print_table(
        [
            (
                "engine",
                "partial p50",
                "p95",
                "first p50",
                "p95",
                "word p50",
                "word p95",
                "final p50",
                "at once",
                "WER",
                "offline",
                "between",
                "MB",
            ),
            *((name, *_cells(one)) for name, one in found.items()),
        ]
    )
    print("partial: s from the end of the first word of a segment to the first result, with words, of sound so far;")
    print("first, word: to the first result with that same word as offline, for the first of each segment and for")
    print("all; final: s from the end of a segment's last word to its final result. WER against the text of the")
    print("recordings: of final results at once, of the last word on each segment, and offline; between the last two.")
    print("MB: growth of this process after the warm-up.")
    holds: dict[str, bool] = {}
    for name, one in found.items():
        if name in LIMITS_S:
            holds[f"{name}: p95 of the first result within {LIMITS_S[name]} s"] = one["partial_p95_s"] <= LIMITS_S[name]
        if name != "fake":
            margin = one["wer"] - one["offline_wer"]
            holds[f"{name}: WER at most {WER_MARGIN} above offline ({margin:+.4f})"] = margin <= WER_MARGIN
        holds[f"{name}: memory grows by less than {MOST_GROWTH_MB:g} MB"] = one["growth_mb"] < MOST_GROWTH_MB
    values = {"seconds": len(sound) / SAMPLE_RATE_HZ, "frame_ms": arguments.frame_ms}
    return finish("streaming", {**values, "engines": found, "holds": holds}, arguments.json)


def joined(minutes: float) -> tuple[Pcm, str]:
    """Return the English recordings one after another with pauses, whole ones only, and what they say."""
    names = [name for name, row in read_manifest(SPEECH).items() if row["language"] == "en" and row["text"]]
    texts = {name: row["text"] for name, row in read_manifest(SPEECH).items()}
    sounds: dict[str, Pcm] = {}
    for name in names:
        with suppress(InputError), decode(SPEECH / name, DecodeOptions()) as stream:
            sounds[name] = np.concatenate([channels[0] for channels in stream.blocks()])
    names = list(sounds)
    wanted, pause = int(minutes * 60 * SAMPLE_RATE_HZ), np.zeros(int(PAUSE_S * SAMPLE_RATE_HZ), np.int16)
    parts, said, length, generator = [pause], [], len(pause), np.random.default_rng(7)
    while length < wanted and names:
        for name in names:
            fits = length + len(sounds[name]) + len(pause) <= wanted or not said
            if fits:
                # Each round is scaled, so that no two are alike.
                parts += [(sounds[name] * generator.uniform(0.6, 1.0)).astype(np.int16), pause]
                said.append(texts[name])
                length += len(parts[-2]) + len(pause)
        names = [name for name in names if length + len(sounds[name]) + len(pause) <= wanted]
    return np.concatenate(parts), " ".join(said)


@dataclass
class Heard:
    """Hold the events of a stream with the time at which each came, and memory every second."""

    began: float = 0.0
    events: list[tuple[float, Event]] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    latest_frame_s: float = 0.0


def measure(host: EngineHost, name: str, sound: Pcm, reference: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one engine."""
    spec = spec_of(name)
    options = RecogniseOptions(language="en", word_timestamps=True)
    doubt = engine_class(spec.engine).facts(spec).doubt
    offline, offline_text = _offline(host, spec, sound, options, doubt=doubt)
    words = offline if name != "fake" else _offline(host, spec_of("tiny.en"), sound, options, doubt=True)[0]
    stream_options = StreamOptions(recognise=options, doubt=doubt)
    second = host.recogniser(spec_of(arguments.second), lane="interactive") if arguments.second else None
    stream = StreamingRecogniser(
        host.recogniser(spec, lane="interactive"),
        host.vad(EngineSpec(engine="silero")),
        stream_options,
        second=second,
    )
    heard = _stream(stream, sound, arguments.frame_ms)
    finals = {one.segment_id: one for _, one in heard.events if isinstance(one, Result) and one.kind == "final"}
    revised = {one.segment_id: one for _, one in heard.events if isinstance(one, Result) and one.kind == "revised"}
    at_once = " ".join(one.text for one in finals.values())
    text = " ".join(one.text for one in {**finals, **revised}.values())
    return {
        **_latencies(heard, words, by_text=name != "fake"),
        "at_once_wer": _rate(reference, at_once) if name != "fake" else 0.0,
        "wer": _rate(reference, text) if name != "fake" else 0.0,
        "offline_wer": _rate(reference, offline_text) if name != "fake" else 0.0,
        "between_wer": _rate(offline_text, text) if name != "fake" else 0.0,
        "segments": len(finals),
        "partials": sum(isinstance(one, Result) and one.kind == "partial" for _, one in heard.events),
        "revised": len(revised),
        "latest_frame_s": heard.latest_frame_s,
        **_memory(heard.memory_mb),
    }


def spec_of(name: str) -> EngineSpec:
    """Return the engine of a name: `fake`, or whisper with a model."""
    if name == "fake":
        return EngineSpec(engine="fake", params=tuple(FAKE.items()))
    try:
        folder = str(resolve(name, Settings.from_env()).dir)
    except VoicejobsError as error:
        sys.exit(f"{error.message}; {error.hint}")
    return EngineSpec(engine="whisper", model=name, model_dir=folder)


def _offline(
    host: EngineHost, spec: EngineSpec, sound: Pcm, options: RecogniseOptions, *, doubt: bool
) -> tuple[list[Word], str]:
    """Return the words with plausible times, and the text, that a job gives for the whole sound, by the same steps."""
    detector = host.vad(EngineSpec(engine="silero"))
    blocks = ([sound[start : start + SAMPLE_RATE_HZ]] for start in range(0, len(sound), SAMPLE_RATE_HZ))
    (heard,) = listen(blocks, detector, lambda channel, block: None)
    planned = plan(heard.probabilities, heard.samples, detector.frame_samples, PlanOptions())
    work = Work(
        planned.windows,
        lambda span: sound[span.start_samples : span.end_samples],
        speech=planned.speech,
        doubt=doubt,
    )
    results = recognise(work, host.recogniser(spec), options)
    segments = merge([Piece(planned.windows, results)], samples_to_seconds(len(sound)))
    words = [word for segment in segments for word in segment.words]
    return [word for word in words if _is_spoken(word, planned.speech or [])], "".join(one.text for one in segments)


def _is_spoken(word: Word, speech: list[Speech]) -> bool:
    """Tell whether the detector hears speech up to about the end of a word: the times of some words are wrong."""
    spans = [(samples_to_seconds(one.span.start_samples), samples_to_seconds(one.span.end_samples)) for one in speech]
    return any(start_s + SHORTEST_WORD_S <= word.end_s <= end_s + SHORTEST_WORD_S for start_s, end_s in spans)


def _stream(stream: StreamingRecogniser, sound: Pcm, frame_ms: int) -> Heard:
    """Feed the sound frame by frame when it would have been spoken, and note when events come."""
    heard = Heard()
    size = SAMPLE_RATE_HZ * frame_ms // 1000
    process = psutil.Process()

    def take() -> None:
        heard.events.extend((time.monotonic(), event) for event in stream.events())

    taker = threading.Thread(target=take)
    taker.start()
    heard.began = time.monotonic()
    for start in range(0, len(sound), size):
        due = heard.began + (start + size) / SAMPLE_RATE_HZ  # a frame exists once its last sample was spoken
        time.sleep(max(0.0, due - time.monotonic()))
        stream.feed(sound[start : start + size])
        heard.latest_frame_s = max(heard.latest_frame_s, time.monotonic() - due)
        if start // SAMPLE_RATE_HZ > len(heard.memory_mb):
            heard.memory_mb.append(process.memory_info().rss / 1e6)
    stream.finish()
    taker.join()
    stream.close()
    return heard


def _latencies(heard: Heard, words: list[Word], *, by_text: bool) -> dict[str, Any]:
    """Return how long after its end a word first stands in a result: first words of segments, all words, final ones.

    An engine without real words is taken at its word: a result counts once it has listened to the end of the word.
    """
    results = [(at - heard.began, event) for at, event in heard.events if isinstance(event, Result)]
    partial: list[float] = []
    first: list[float] = []
    every: list[float] = []
    final: list[float] = []
    missing = 0
    for segment_id in sorted({event.segment_id for _, event in results}):
        own = [(at, event) for at, event in results if event.segment_id == segment_id and event.kind != "revised"]
        start_s, end_s = own[-1][1].start_s, own[-1][1].heard_s
        inside = [word for word in words if start_s <= (word.start_s + word.end_s) / 2 < end_s]
        delays = [_delay(word, own, by_text=by_text) for word in inside]
        known = [delay for delay in delays if delay is not None]
        missing += len(delays) - len(known)
        every += known
        first += known[:1]
        heard_first = [_delay(word, own, by_text=False) for word in inside[:1]]
        partial += [delay for delay in heard_first if delay is not None]
        if inside and own[-1][1].kind == "final":
            final.append(own[-1][0] - inside[-1].end_s)
    return {
        "partial_p50_s": _quantile(partial, 0.5),
        "partial_p95_s": _quantile(partial, 0.95),
        "first_p50_s": _quantile(first, 0.5),
        "first_p95_s": _quantile(first, 0.95),
        "word_p50_s": _quantile(every, 0.5),
        "word_p95_s": _quantile(every, 0.95),
        "final_p50_s": _quantile(final, 0.5),
        "final_p95_s": _quantile(final, 0.95),
        "first_s": [round(delay, 3) for delay in first],
        "words": len(every),
        "words_in_no_result": missing,
    }


def _delay(word: Word, results: list[tuple[float, Result]], *, by_text: bool) -> float | None:
    """Return the seconds from the end of a word to the first result with it, None where there is none."""
    for at, event in results:
        if by_text and any(_is_same(word, other) for other in event.words):
            return at - word.end_s
        if not by_text and event.words and event.heard_s >= word.end_s:
            return at - word.end_s
    return None


def _is_same(word: Word, other: Word) -> bool:
    """Tell whether two words are the same one of the sound."""
    return normalise(word.text) == normalise(other.text) and abs(word.end_s - other.end_s) <= NEAR_S


def _quantile(values: list[float], share: float) -> float:
    """Return a quantile, 0 of nothing."""
    return float(np.quantile(values, share)) if values else 0.0


def _rate(reference: str, text: str) -> float:
    """Return the word error rate."""
    return float(jiwer.wer(normalise(reference), normalise(text) or "-"))


def _memory(looks_mb: list[float]) -> dict[str, float]:
    """Return where memory stood after the warm-up and how it grew from there, by the line that fits best."""
    looks = looks_mb[int(len(looks_mb) * WARM_UP_SHARE) :]
    if len(looks) < 3:  # noqa: PLR2004 - a line through fewer says nothing
        return {"memory_mb": looks_mb[-1] if looks_mb else 0.0, "growth_mb": 0.0, "slope_kb_per_minute": 0.0}
    slope = statistics.linear_regression(range(len(looks)), looks).slope
    return {"memory_mb": looks[-1], "growth_mb": slope * len(looks), "slope_kb_per_minute": slope * 60 * 1000}


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of one engine."""
    times = ("partial_p50_s", "partial_p95_s", "first_p50_s", "first_p95_s", "word_p50_s", "word_p95_s", "final_p50_s")
    rates = ("at_once_wer", "wer", "offline_wer", "between_wer")
    return (
        *(f"{one[name]:.2f}" for name in times),
        *(f"{one[name]:.4f}" for name in rates),
        f"{one['growth_mb']:+.1f}",
    )
