"""The bodies of the tasks: load, call the pure step, hand back the product. The frame is in `base`."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from voicejobs.audio.pcm import PcmWriter
from voicejobs.audio.types import Pcm, Segment, Span, Transcript, WindowResult
from voicejobs.engines.base import Recogniser
from voicejobs.engines.registry import engine_class
from voicejobs.errors import AudioGone, DatabaseUnavailable, NotFound
from voicejobs.hosting.specs import engine_spec, recognise_options, vad_spec
from voicejobs.steps.merge import Piece, language_of, merge
from voicejobs.steps.plan import PlanOptions, Speech, plan
from voicejobs.steps.prepare import Heard, listen
from voicejobs.steps.recognise import Work, detect_language, language_windows, recognise
from voicejobs.steps.registry import PREPARE, RECOGNISE
from voicejobs.steps.windows import MAX_WINDOW_SAMPLES
from voicejobs.store import artifacts, leases
from voicejobs.store.jobs import NewResult
from voicejobs.store.leases import Lease
from voicejobs.tasks import scratch
from voicejobs.tasks.base import Body, Product
from voicejobs.tasks.delivery import deliver_files
from voicejobs.tasks.inputs import check_not_replaced, name_of, opened_path
from voicejobs.tasks.keeper import Hold
from voicejobs.tasks.runtime import Runtime
from voicejobs.units import samples_to_seconds

SHARD_WINDOWS = 16
"""Windows of one step run of `recognise`, some eight minutes of speech: longer recordings fork."""

WINDOWS_PER_PROCESS = 8
"""Windows in memory at once for each engine process: enough to keep it busy, and flat however long recordings are."""

PROGRESS_EVERY_S = 60.0
"""Decoded audio between two notes of progress."""


def prepare(runtime: Runtime, lease: Lease, hold: Hold) -> Product:
    """Decode the input into the job's scratch folder and plan the windows of each channel."""
    path = opened_path(runtime.blobs, lease.source)
    wanted = PREPARE.options(lease.options["prepare"])  # those of a job of an older version lack some
    options = runtime.decoder.options(channels=wanted["channels"], name=name_of(lease.source))
    if wanted["max_audio_s"]:
        options = replace(options, max_audio_s=min(options.max_audio_s, wanted["max_audio_s"]))
    detector = runtime.host.vad(vad_spec(wanted, runtime.settings, runtime.place))
    folder = runtime.blobs.scratch
    writers: list[PcmWriter] = []
    try:
        with runtime.decoder.open(path, options, cancelled=lambda: hold.is_stopped) as stream:
            heard = listen(
                stream.blocks(),
                detector,
                _keep_in(runtime, lease, writers),
                _note_progress(runtime, lease, hold),
            )
            media = {**stream.info.to_json(), "skipped_packets": stream.skipped_packets}
        check_not_replaced(path, lease.source)
    except BaseException:
        for writer in writers:
            writer.discard()
        hold.check()  # a decoder that was stopped on purpose is no failure
        raise
    for writer in writers:
        writer.close()
    product = _prepared(lease, heard, writers, media, folder)
    hold.check()
    scratch.share(runtime, [writer.path for writer in writers], stays=len(product.output["shards"]) == 1)
    return product


def _keep_in(runtime: Runtime, lease: Lease, writers: list[PcmWriter]) -> Callable[[int, Pcm], None]:
    """Return a sink that writes each channel to a file of its own, named by the fencing number."""
    stays = lease.options["prepare"]["channels"] != "split"  # what is short enough for memory has one shard otherwise

    def keep(channel: int, block: Pcm) -> None:
        while len(writers) <= channel:
            name = f"{lease.job_id}.{lease.fence}-{len(writers)}.s16le"
            writers.append(scratch.open_writer(runtime, name, stays=stays))
        writers[channel].write(block)

    return keep


def _note_progress(runtime: Runtime, lease: Lease, hold: Hold) -> Callable[[int], None]:
    """Return a function that looks for a reason to stop, and now and then notes how far we are."""
    noted_s = 0.0

    def progress(samples: int) -> None:
        nonlocal noted_s
        hold.check()
        seconds = samples_to_seconds(samples)
        hold.allow(seconds)
        if seconds - noted_s >= PROGRESS_EVERY_S:
            noted_s = seconds
            with suppress(DatabaseUnavailable):  # the next note says this too
                leases.report_progress(runtime.database, lease, seconds)

    return progress


def _prepared(
    lease: Lease, heard: Sequence[Heard], writers: Sequence[PcmWriter], media: Mapping[str, Any], folder: Path
) -> Product:
    """Plan the windows, and cut them into shards: at least one, so that the join always has an input."""
    wanted = PlanOptions.from_step(PREPARE.options(lease.options["prepare"]))
    channels: list[dict[str, Any]] = []
    shards: list[dict[str, Any]] = []
    for number, (channel, writer) in enumerate(zip(heard, writers, strict=True)):
        planned = plan(channel.probabilities, channel.samples, channel.frame_samples, wanted)
        windows = planned.windows
        channels.append(
            {
                "file": writer.path,
                "sha256": writer.sha256,
                "speech_samples": planned.speech_samples,
                "language_windows": _spans_to_json(language_windows(windows, planned.speech)),
            }
        )
        shards += [
            _shard(number, windows[first : first + SHARD_WINDOWS], planned.speech)
            for first in range(0, max(1, len(windows)), SHARD_WINDOWS)
        ]
    samples = max((channel.samples for channel in heard), default=0)
    audio_s = samples_to_seconds(samples)
    output = {
        "folder": str(folder),
        "samples": samples,
        "split": lease.options["prepare"]["channels"] == "split",
        "channels": channels,
        "shards": shards,
        "media": dict(media),
    }
    return Product(output=output, audio_s=audio_s, progress_s=audio_s)


def _shard(channel: int, windows: Sequence[Span], speech: Sequence[Speech] | None) -> dict[str, Any]:
    """Return the inputs of a shard: its own windows, and the speech in them, so that none holds those of all."""
    if speech is not None and windows:
        first, last = windows[0].start_samples, windows[-1].end_samples
        speech = [one for one in speech if one.span.end_samples > first and one.span.start_samples < last]
    return {
        "channel": channel,
        "windows": _spans_to_json(windows),
        "speech": None if speech is None else [one.to_json() for one in speech],
    }


def _spans_to_json(spans: Sequence[Span]) -> list[list[int]]:
    """Return spans as pairs of samples."""
    return [[span.start_samples, span.end_samples] for span in spans]


def _spans_of(pairs: Sequence[Sequence[int]]) -> list[Span]:
    """Return the spans that `_spans_to_json` wrote."""
    return [Span(start, end) for start, end in pairs]


def recognise_shard(runtime: Runtime, lease: Lease, hold: Hold) -> Product:
    """Recognise the windows of one shard, going on where an earlier claim left off."""
    audio = next(lease.outputs("prepare"))
    shard = lease.inputs
    channel = audio["channels"][shard["channel"]]
    windows = _spans_of(shard["windows"])
    done = [WindowResult.from_json(item) for item in (lease.checkpoint or {}).get("results", [])]
    hold.allow(_speech_s(windows))

    def read(window: Span) -> Pcm:
        hold.check()
        try:
            return scratch.read_samples(runtime.blobs, channel["file"], window)
        except NotFound as error:
            raise AudioGone(f"The decoded audio of {lease.source['name']} is gone") from error

    def checkpoint(first: int, results: list[WindowResult]) -> None:
        done.extend(results)
        hold.check()
        if len(done) < len(windows):  # the commit follows at once otherwise
            state = {"results": [item.to_json() for item in done]}
            with suppress(DatabaseUnavailable):  # the next checkpoint, or the commit, holds these results too
                leases.checkpoint(runtime.database, lease, state, _speech_s(windows[: len(done)]))

    if len(done) < len(windows):
        options = RECOGNISE.options(lease.options["recognise"])  # those of a job of an older version lack some
        spec = engine_spec(options, runtime.settings, runtime.place)
        recogniser = runtime.host.recogniser(spec, lane=lease.lane, cancelled=lambda: hold.is_stopped)
        budget_samples = WINDOWS_PER_PROCESS * recogniser.processes * MAX_WINDOW_SAMPLES
        work = Work(
            windows,
            read,
            speech=None if shard["speech"] is None else [Speech.from_json(item) for item in shard["speech"]],
            doubt=engine_class(spec.engine).facts(spec).doubt,
            first=len(done),
            checkpoint=checkpoint,
            turn=lambda samples: runtime.audio.reserve(samples, budget_samples, hold.check),
        )
        wanted = recognise_options(options, split=audio["split"])
        told = _language_of_all(runtime, lease, read, recogniser) if shard["of"] > 1 and not wanted.language else None
        recognise(work, recogniser, replace(wanted, language=told[0]) if told else wanted)
        if told:
            done = [replace(one, language=told[0], language_probability=told[1]) for one in done]
    output = {"channel": shard["channel"], "windows": shard["windows"], "results": [item.to_json() for item in done]}
    return Product(output=output, progress_s=_speech_s(windows))


def _language_of_all(
    runtime: Runtime, lease: Lease, read: Callable[[Span], Pcm], recogniser: Recogniser
) -> tuple[str, float]:
    """Return the language of a channel, told from all of it: the same in every shard, and told once here."""
    number = lease.inputs["channel"]
    chosen = _spans_of(next(lease.outputs("prepare"))["channels"][number]["language_windows"])
    return runtime.languages.get((lease.job_id, number), lambda: detect_language(chosen, read, recogniser))


def _speech_s(windows: Sequence[Span]) -> float:
    """Return the seconds of audio in `windows`."""
    return samples_to_seconds(sum(window.length_samples for window in windows))


def deliver(runtime: Runtime, lease: Lease, hold: Hold) -> Product:
    """Merge the pieces, keep the transcript, and write the files."""
    known = lease.inputs.get("transcript")
    if known:
        transcript = Transcript.from_json(json.loads(artifacts.load(runtime.database, runtime.blobs, known)))
    else:
        transcript = transcript_of(lease)
    hold.allow(transcript.duration_s)
    hold.check()
    files = deliver_files(transcript, lease.options["deliver"], lease)
    artifact = runtime.blobs.store(transcript.dump(), "transcript", {"type": "application/json"})
    result = NewResult(
        result_key=lease.result_key or "",
        artifact_id="",
        language=transcript.language,
        duration_s=transcript.duration_s,
        words=len(transcript.text.split()),
        text=transcript.text,
    )
    return Product(
        output={"files": files, **({"warnings": list(transcript.warnings)} if transcript.warnings else {})},
        audio_s=transcript.duration_s,
        progress_s=transcript.duration_s,
        artifacts=[artifact],
        result=result,
        files=files,
    )


def transcript_of(lease: Lease) -> Transcript:
    """Build the transcript from what the shards heard."""
    audio = next(lease.outputs("prepare"))
    pieces = [
        Piece(
            windows=_spans_of(shard["windows"]),
            results=[WindowResult.from_json(item) for item in shard["results"]],
            channel=shard["channel"] if audio["split"] else None,
        )
        for shard in lease.outputs("recognise")
    ]
    options = lease.options["recognise"]
    duration_s = samples_to_seconds(audio["samples"])
    segments = merge(pieces, duration_s)
    language, probability = language_of(pieces)
    return Transcript(
        segments=segments,
        language=options["language"] or language,
        language_probability=None if options["language"] else probability,
        duration_s=duration_s,
        engine=options["engine"],
        model=options["model"],
        model_sha256=options["model_sha256"],
        source_name=str(lease.source.get("name", "")),
        source_sha256=lease.input_sha256 or "",
        options={"word_timestamps": options["word_timestamps"], "task": options["task"]},
        warnings=_warnings(audio, segments, lease.options["prepare"]["clips"]),
    )


def _warnings(
    audio: Mapping[str, Any], segments: Sequence[Segment], clips: Sequence[Sequence[float | None]]
) -> tuple[str, ...]:
    """Return short codes for what a reader of the transcript should know."""
    warnings = []
    duration_s = samples_to_seconds(audio["samples"])
    if any((start_s or 0.0) >= duration_s > 0 for start_s, _ in clips):
        warnings.append("clip_past_end")
    if not segments:
        warnings.append("no_speech")
    if audio["media"].get("skipped_packets"):
        warnings.append("damaged_passages")
    return tuple(warnings)


BODIES: dict[str, Body] = {"prepare": prepare, "recognise": recognise_shard, "deliver": deliver}
"""The body of the task of each step."""
