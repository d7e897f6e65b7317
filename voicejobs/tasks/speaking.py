"""The bodies of the tasks that speak: load, call the pure step, hand back the product."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from voicejobs.audio.encode import resampled, to_pcm
from voicejobs.audio.pcm import PcmWriter
from voicejobs.audio.types import Pcm, Segment, Sound
from voicejobs.engines.base import RecogniseOptions, SynthesiseOptions, Voice
from voicejobs.engines.registry import engine_class
from voicejobs.errors import DatabaseUnavailable, Internal, NotFound, TooLong
from voicejobs.formats.subtitles import read_subtitles
from voicejobs.hosting.specs import engine_spec
from voicejobs.pipelines.pipeline import pipeline
from voicejobs.steps import prompt
from voicejobs.steps.lines import CHARS_PER_SECOND, Line, LineOptions, lines_of, replaced, shards, timed_lines
from voicejobs.steps.registry import PLAN_CAPTIONS, PLAN_TEXT, RECOGNISE, RETELL, SYNTHESISE
from voicejobs.steps.speak import Fit, Spoken, Verify, groups, speak, verify_options
from voicejobs.steps.windows import MAX_WINDOW_SAMPLES
from voicejobs.store import artifacts, leases
from voicejobs.store.blobs import BlobStore
from voicejobs.store.jobs import NewArtifact
from voicejobs.store.leases import Lease
from voicejobs.tasks import scratch
from voicejobs.tasks.base import Body, Product
from voicejobs.tasks.inputs import check_not_replaced, opened_path
from voicejobs.tasks.joining import join
from voicejobs.tasks.keeper import Hold
from voicejobs.tasks.prompts import read_prompt
from voicejobs.tasks.runtime import Runtime
from voicejobs.tasks.steps import transcript_of
from voicejobs.text import decode_text, markup_of
from voicejobs.text.tags import base_language
from voicejobs.units import MILLISECONDS_PER_SECOND, SAMPLE_RATE_HZ, samples_to_seconds, seconds_to_samples

MAX_TEXT_BYTES = 64_000_000
"""A text of this size takes weeks to speak."""

AUTO = "auto"
"""Markup that the name and the first words of a text tell."""

CAPTIONS = "captions"
"""Markup of SRT and WebVTT files, of which only the text is read out."""

SOUND_PER_PROCESS_S = 150
"""Sound in memory at once for each engine process: more than a group of lines, and flat however long texts are."""


def plan_text(runtime: Runtime, lease: Lease, hold: Hold) -> Product:
    """Read the text of the job, and plan what is spoken in one go."""
    options = PLAN_TEXT.options(lease.options[lease.node])
    data = _source(runtime, lease)
    hold.check()
    name = str(lease.source["name"])
    markup = options["markup"]
    if markup == CAPTIONS or (markup == AUTO and name.lower().endswith((".srt", ".vtt"))):
        text, markup = " ".join(segment.text for segment in _segments(data, name)), "plain"
    else:
        text = decode_text(data, name)
        markup = markup_of(text, name) if markup == AUTO else markup
    return _planned(lines_of(text, options["language"], LineOptions.from_step(options), markup), options["language"])


def plan_captions(runtime: Runtime, lease: Lease, hold: Hold) -> Product:
    """Read the subtitles of the job, and plan lines that keep their times."""
    options = PLAN_CAPTIONS.options(lease.options[lease.node])
    segments = _segments(_source(runtime, lease), str(lease.source["name"]))
    hold.check()
    return _planned(timed_lines(segments, options["language"], LineOptions.from_step(options)), options["language"])


def retell(runtime: Runtime, lease: Lease, hold: Hold) -> Product:
    """Plan what is to be spoken of what was heard; the transcript is kept."""
    options = RETELL.options(lease.options[lease.node])
    transcript = transcript_of(lease)
    hold.check()
    language = options["language"] or transcript.language or PLAN_TEXT.defaults["language"]
    wanted = LineOptions.from_step(options)
    if options["keep_times"]:
        changed = [
            Segment(one.start_s, one.end_s, replaced(one.text, options["replace"])) for one in transcript.segments
        ]
        lines = timed_lines(changed, language, wanted)
    else:
        lines = lines_of(replaced(transcript.text, options["replace"]), language, wanted)
    artifact = runtime.blobs.store(transcript.dump(), "transcript", {"type": "application/json"})
    return _planned(lines, language, [artifact])


def _planned(lines: Sequence[Line], language: str, kept: Sequence[NewArtifact] = ()) -> Product:
    """Return the lines as shards."""
    characters = sum(len(line.spoken) for line in lines)
    output = {
        "language": language,
        "characters": characters,
        "shards": [{"lines": [line.to_json() for line in shard]} for shard in shards(lines)],
    }
    # Those who watch want to know how much there will be; the join notes how much there is.
    return Product(output=output, artifacts=kept, audio_s=None if kept else characters / CHARS_PER_SECOND)


def _source(runtime: Runtime, lease: Lease) -> bytes:
    """Return the bytes of the text: of the file that was submitted, or of what was given with the job.

    Raises:
        TooLong: nobody wants to hear so much.
        InputError: the file is gone, or not what it was.
    """
    if lease.source.get("artifact"):
        return artifacts.load_kind(runtime.database, runtime.blobs, lease.job_id, str(lease.source["artifact"]))
    path = opened_path(runtime.blobs, lease.source)
    if lease.source["size"] > MAX_TEXT_BYTES:
        raise TooLong(f"{lease.source['name']} has more than {MAX_TEXT_BYTES // 1_000_000} MB of text")
    data = Path(path).read_bytes()
    check_not_replaced(path, lease.source)
    return data


def _segments(data: bytes, name: str) -> list[Segment]:
    """Return the cues of a file of subtitles as segments, in the order of their begin."""
    cues = sorted(read_subtitles(data, name).cues, key=lambda cue: cue.start_ms)
    return [
        Segment(
            cue.start_ms / MILLISECONDS_PER_SECOND,
            max(cue.start_ms, cue.end_ms) / MILLISECONDS_PER_SECOND,
            " ".join(cue.lines),
        )
        for cue in cues
    ]


@dataclass(slots=True)
class _Part:
    """Name a file with the sound of lines behind one another: what one claim of a step run has spoken.

    Args:
        file: its path.
        sizes: samples of each line.
        facts: what should be known of each line.
    """

    file: str
    sizes: list[int] = field(default_factory=list)
    facts: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"file": self.file, "sizes": self.sizes, "facts": self.facts}


@dataclass(slots=True)
class _Recording:
    """Keep the sound of a shard: parts of earlier claims, and the one that this claim adds."""

    parts: list[_Part]
    rate_hz: int = 0
    writer: PcmWriter | None = None

    @property
    def lines(self) -> int:
        """Return how many lines are spoken."""
        return sum(len(part.sizes) for part in self.parts)

    @property
    def seconds(self) -> float:
        """Return how long they are."""
        return samples_to_seconds(sum(sum(part.sizes) for part in self.parts), self.rate_hz or 1)

    def add(self, spoken: Sequence[Spoken], open_writer: Callable[[], PcmWriter]) -> None:
        """Append lines.

        Raises:
            Internal: the engine changed its sampling rate between two claims.
        """
        rate_hz = spoken[0].sound.rate_hz
        if self.rate_hz not in {0, rate_hz}:
            raise Internal(f"the engine spoke at {self.rate_hz} Hz, and then at {rate_hz} Hz")
        self.rate_hz = rate_hz
        if self.writer is None:
            self.writer = open_writer()
            self.parts.append(_Part(self.writer.path))
        for one in spoken:
            self.writer.write(to_pcm(one.sound.samples))
            self.parts[-1].sizes.append(len(one.sound.samples))
            self.parts[-1].facts.append(one.facts)

    def state(self) -> dict[str, Any]:
        """Return what the next claim, or the join, needs to know."""
        return {"rate_hz": self.rate_hz, "parts": [part.to_json() for part in self.parts]}

    def close(self) -> None:
        """Finish the file of this claim; a short one may have gone elsewhere."""
        if self.writer is not None:
            self.writer.close()
            self.parts[-1].file = self.writer.path


def synthesise_shard(runtime: Runtime, lease: Lease, hold: Hold) -> Product:
    """Speak the lines of one shard, going on where an earlier claim left off."""
    lines = [Line.from_json(item) for item in lease.inputs["lines"]]
    hold.allow(sum(len(line.spoken) for line in lines) / CHARS_PER_SECOND)
    recording = _recording(runtime.blobs, lease.checkpoint)
    todo = lines[recording.lines :]
    voice = _voice(runtime, lease, hold, todo)
    try:
        for group in groups(todo):
            hold.check()
            with _room(runtime, hold, group, voice.processes):
                recording.add(voice.speak(group), lambda: _writer(runtime, lease, todo))
            hold.check()
            if recording.lines < len(lines):  # the commit follows at once otherwise
                with suppress(DatabaseUnavailable):  # the next checkpoint, or the commit, holds these lines too
                    leases.checkpoint(runtime.database, lease, recording.state(), recording.seconds)
        recording.close()
        scratch.share(runtime, [part.file for part in recording.parts], stays=_stays(lease))
    except BaseException:
        if recording.writer is not None:
            recording.writer.release()  # what a checkpoint names stays for the next claim
        raise
    output = {"lines": lease.inputs["lines"], **recording.state()}
    return Product(output=output, progress_s=recording.seconds)


def _recording(blobs: BlobStore, checkpoint: Mapping[str, Any] | None) -> _Recording:
    """Return what earlier claims have spoken; nothing where it lies on another machine, and nobody shared it."""
    state = checkpoint or {"rate_hz": 0, "parts": []}
    if not all(scratch.is_there(blobs, one["file"]) for one in state["parts"]):
        return _Recording([])
    return _Recording([_Part(one["file"], one["sizes"], one["facts"]) for one in state["parts"]], state["rate_hz"])


def _writer(runtime: Runtime, lease: Lease, lines: Sequence[Line]) -> PcmWriter:
    """Open the file of this claim; what needs no checkpoint may be short."""
    name = f"{lease.job_id}.{lease.fence}-{lease.node}{lease.shard}.s16le"
    return scratch.open_writer(runtime, name, stays=_stays(lease), small=len(list(groups(lines))) == 1)


def _stays(lease: Lease) -> bool:
    """Tell whether the sound of this shard is all that there is: the join then follows in this worker."""
    return int(lease.inputs.get("of", 1)) == 1


def _room(runtime: Runtime, hold: Hold, lines: Sequence[Line], processes: int) -> AbstractContextManager[None]:
    """Wait until the sound of a group has room in memory, and hold that for the time of a block."""
    seconds = sum(len(line.spoken) for line in lines) / CHARS_PER_SECOND
    limit = SOUND_PER_PROCESS_S * processes * SAMPLE_RATE_HZ
    return runtime.sound.reserve(seconds_to_samples(seconds), limit, hold.check)


@dataclass(frozen=True, slots=True)
class _Voice:
    """Hold what speaks a group of lines, and how many engine processes may do so at once."""

    speak: Callable[[Sequence[Line]], list[Spoken]]
    processes: int


def _voice(runtime: Runtime, lease: Lease, hold: Hold, lines: Sequence[Line]) -> _Voice:
    """Return the engine processes of this worker as the options want them."""
    options = _with_prompt(runtime, hold, SYNTHESISE.options(lease.options[lease.node]))
    spec = engine_spec(options, runtime.settings, runtime.place)
    synthesiser = runtime.host.synthesiser(spec, lane=lease.lane, cancelled=lambda: hold.is_stopped)
    planned = next(lease.outputs(pipeline(lease.pipeline).node(lease.node).inputs[0]))
    takes_speed = engine_class(spec.engine).facts(spec).takes_speed
    fit = Fit(options["max_speed"] if takes_speed else 1.0, options["max_stretch"])
    verify = _verify(runtime, hold, options, planned["language"], slows=takes_speed) if options["verify"] else None
    wanted = synthesise_options(options, planned["language"])
    languages = _languages(synthesiser.voices(), options["voice"])
    return _Voice(
        lambda group: speak(group, synthesiser, wanted, fit=fit, verify=verify, languages=languages),
        synthesiser.processes,
    )


def _with_prompt(runtime: Runtime, hold: Hold, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with the samples of the recording that they name.

    Raises:
        NotFound: its blob is not there any more.
        BadOption, InputError: it cannot be spoken with.
    """
    digest = prompt.digest_in(options["prompt_audio"])
    if not digest:
        return options
    name = "The recording of the voice"
    try:
        path = runtime.blobs.raw_path(digest)
    except NotFound as error:
        raise NotFound(f"{name} was deleted", hint="Give it again, with the text.") from error
    return {**options, "prompt_audio": read_prompt(runtime.decoder, path, name, lambda: hold.is_stopped)}


def _languages(voices: Sequence[Voice], name: str) -> tuple[str, ...]:
    """Return the languages of a voice, the first one where it is not named; none where nobody says."""
    found = next((voice for voice in voices if voice.name == name), voices[0] if voices else None)
    return found.languages if found is not None else ()


def synthesise_options(options: Mapping[str, Any], language: str) -> SynthesiseOptions:
    """Return the engine's options."""
    names = ("voice", "speed", "seed", "mode", "instruct", "prompt_text", "prompt_audio")
    return SynthesiseOptions(language=base_language(language), **{name: options[name] for name in names})


def _verify(runtime: Runtime, hold: Hold, options: Mapping[str, Any], language: str, *, slows: bool) -> Verify:
    """Return how lines are listened to: by a recogniser of this worker."""
    given = verify_options(options["verify"])
    spec = engine_spec({**RECOGNISE.defaults, **given}, runtime.settings, runtime.place)
    recogniser = runtime.host.recogniser(spec, cancelled=lambda: hold.is_stopped)
    wanted = RecogniseOptions(language=base_language(language))

    def hear(sounds: Sequence[Sound]) -> list[str]:
        windows = [list(_windows(sound)) for sound in sounds]
        found = iter(recogniser.recognise([one for several in windows for one in several], wanted))
        results = [[next(found) for _ in several] for several in windows]
        return ["".join(one.text for result in several for one in result.segments) for several in results]

    return Verify(hear, given["max_cer"], given["tries"], language, slows)


def _windows(sound: Sound) -> Iterator[Pcm]:
    """Yield a sound as a recogniser takes it: 16 kHz, at most 30 s at a time."""
    if not len(sound.samples):
        return
    pcm = to_pcm(np.concatenate(list(resampled([sound.samples], sound.rate_hz, SAMPLE_RATE_HZ))))
    for start in range(0, len(pcm), MAX_WINDOW_SAMPLES):
        yield pcm[start : start + MAX_WINDOW_SAMPLES]


BODIES: dict[str, Body] = {
    "plan_text": plan_text,
    "plan_captions": plan_captions,
    "retell": retell,
    "synthesise": synthesise_shard,
    "join": join,
}
"""The body of the task of each step."""
