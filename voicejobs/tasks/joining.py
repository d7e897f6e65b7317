"""The body of the task that joins spoken lines, and the files that it writes: two passes, in flat memory."""

import json
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import numpy as np

from voicejobs import formats
from voicejobs.audio import encode
from voicejobs.audio.encode import Block, Encoder, resampled
from voicejobs.audio.types import Segment, Span, Transcript
from voicejobs.errors import AudioGone, EmptyText, Internal, NotFound
from voicejobs.formats import RenderOptions, render
from voicejobs.formats.media_types import media_type
from voicejobs.pipelines.pipeline import pipeline
from voicejobs.steps.join import Joiner, JoinOptions, Meter, Take, louder
from voicejobs.steps.lines import Line
from voicejobs.steps.registry import JOIN, SYNTHESISE
from voicejobs.steps.speak import verify_options
from voicejobs.store import artifacts
from voicejobs.store.blobs import BlobStore, map_blob_error, map_os_error, sync_folder
from voicejobs.store.jobs import NewArtifact, NewResult
from voicejobs.store.leases import Lease
from voicejobs.store.paths import decode_path, encode_path
from voicejobs.tasks.base import Product
from voicejobs.tasks.delivery import demand_free, file_mode, part_of, remove_parts
from voicejobs.tasks.keeper import Hold
from voicejobs.tasks.runtime import Runtime
from voicejobs.tasks.scratch import read_samples
from voicejobs.text.tags import base_language
from voicejobs.units import samples_to_seconds

_FULL_SCALE = np.float32(32_767.0)
KEPT_S = 20.0
"""Sound of up to this length is kept for the second pass, 2 MB at most; longer sound is joined once more."""


def join(runtime: Runtime, lease: Lease, hold: Hold) -> Product:
    """Join the lines of all shards, and write sound and captions."""
    options = JOIN.options(lease.options[lease.node])
    if lease.inputs.get("sound"):
        return _from_known(runtime, lease, hold, options)
    spoken = _Lines(runtime.blobs, lease)
    hold.allow(spoken.seconds)
    rate_hz = options["sample_rate_hz"] or spoken.rate_hz
    for name in options["formats"]:
        encode.encoded_rate_hz(name, rate_hz)  # refused before the work, not after it
    wanted = JoinOptions(crossfade_ms=options["crossfade_ms"])
    meter, joiner = Meter(), Joiner(spoken.rate_hz, wanted)
    first = meter.through(resampled(joiner.blocks(spoken.takes(hold)), spoken.rate_hz, rate_hz))
    kept = kept_blocks(first, int(KEPT_S * rate_hz))
    transcript = _transcript(lease, spoken, joiner, samples_to_seconds(meter.samples, rate_hz))

    def blocks() -> Iterator[Block]:
        if kept is not None:
            return louder(kept, meter.gain)
        again = Joiner(spoken.rate_hz, wanted).blocks(spoken.takes(hold))
        return louder(resampled(again, spoken.rate_hz, rate_hz), meter.gain)

    sound = _Sound(blocks, rate_hz, meter.samples)
    return _product(runtime, lease, options, transcript, sound, list(spoken.findings()))


def kept_blocks(blocks: Iterable[Block], most_samples: int) -> list[Block] | None:
    """Use blocks up; return them, unless they have more samples than that, pauses included."""
    kept: list[Block] = []
    samples = 0
    for block in blocks:
        samples += len(block)
        if samples > most_samples:
            kept.clear()
            deque(blocks, maxlen=0)
            return None
        kept.append(block)
    return kept


def _from_known(runtime: Runtime, lease: Lease, hold: Hold, options: Mapping[str, Any]) -> Product:
    """Write other files of a sound that an earlier job has written, or kept.

    Raises:
        AudioGone: its file is not there any more, or another one: then everything is spoken.
    """
    known = lease.inputs["sound"]
    try:
        path = runtime.blobs.raw_path(known["sha256"]) if "artifact" in known else Path(decode_path(known))
        with path.open("rb") as file:
            same = file_digest(file, "sha256").hexdigest() == known["sha256"]
        rate_hz, samples, _ = encode.read_wav(path)
    except (OSError, ValueError, NotFound) as error:
        raise AudioGone(f"The sound of {lease.source['name']} is gone") from error
    if not same:
        raise AudioGone(f"The sound of {lease.source['name']} was changed")
    hold.allow(samples_to_seconds(samples, rate_hz))
    transcript = Transcript.from_json(
        json.loads(artifacts.load(runtime.database, runtime.blobs, lease.inputs["transcript"]))
    )

    def blocks() -> Iterator[Block]:
        for block in encode.read_wav(path)[2]:
            hold.check()
            yield block

    warnings = [{"code": code} for code in transcript.warnings]
    return _product(runtime, lease, options, transcript, _Sound(blocks, rate_hz, samples), warnings)


def _product(
    runtime: Runtime,
    lease: Lease,
    options: Mapping[str, Any],
    transcript: Transcript,
    sound: "_Sound",
    warnings: Sequence[Mapping[str, Any]],
) -> Product:
    """Write the files, or keep them as artifacts where they have no place; return what the step leaves behind."""
    kept: list[NewArtifact] = []
    if options["target"]:
        files = _write(lease, options, transcript, sound)
    else:
        kept = _keep(runtime.blobs, options, transcript, sound)
        files = [_named(artifact) for artifact in kept]
    artifact = runtime.blobs.store(transcript.dump(), "captions", {"type": "application/json"})
    result = NewResult(
        result_key=lease.result_key or "",
        artifact_id="",
        language=transcript.language,
        duration_s=transcript.duration_s,
        words=len(transcript.text.split()),
        text=transcript.text,
    )
    return Product(
        output={"files": files, "warnings": list(warnings)},
        audio_s=transcript.duration_s,
        progress_s=transcript.duration_s,
        artifacts=[artifact, *kept],
        result=result,
        files=files,
    )


class _Lines:
    """Read what the shards of a job have spoken, line by line."""

    def __init__(self, blobs: BlobStore, lease: Lease) -> None:
        self._blobs = blobs
        self._lease = lease
        self._planned, self._node = pipeline(lease.pipeline).node(lease.node).inputs
        self.language: str = next(lease.outputs(self._planned))["language"]
        rates = set()
        samples = 0
        for shard in self._shards():
            rates.add(shard["rate_hz"])
            samples += sum(sum(part["sizes"]) for part in shard["parts"])
        if not samples:
            raise EmptyText(f"The voice can say nothing of {lease.source['name']}", hint="Choose another voice.")
        if len(rates) != 1:
            raise Internal(f"the shards were spoken at {len(rates)} sampling rates")
        self.rate_hz: int = rates.pop()
        self.seconds = samples_to_seconds(samples, self.rate_hz)

    def _shards(self) -> Iterator[Mapping[str, Any]]:
        """Yield the outputs of the shards."""
        return self._lease.outputs(self._node)

    def lines(self) -> Iterator[tuple[Line, Mapping[str, Any]]]:
        """Yield each line with what should be known of it."""
        for shard in self._shards():
            facts = [one for part in shard["parts"] for one in part["facts"]]
            yield from zip(map(Line.from_json, shard["lines"]), facts, strict=True)

    def takes(self, hold: Hold) -> Iterator[Take]:
        """Yield the sound of each line.

        Raises:
            AudioGone: a file is not there any more, or not whole.
        """
        for shard in self._shards():
            lines = map(Line.from_json, shard["lines"])
            for part in shard["parts"]:
                place = 0
                for size in part["sizes"]:
                    hold.check()
                    line = next(lines)
                    yield Take(self._read(part["file"], Span(place, place + size)), line.pause_after_s, line.starts_s)
                    place += size

    def _read(self, file: str, span: Span) -> Block:
        """Return the samples of a line."""
        try:
            return np.divide(read_samples(self._blobs, file, span), _FULL_SCALE, dtype=np.float32)
        except (NotFound, Internal) as error:
            raise AudioGone(f"The sound of {self._lease.source['name']} is gone") from error

    def findings(self) -> Iterator[dict[str, Any]]:
        """Yield what a user should know: lines that do not fit, that were not understood, or not spoken whole."""
        options = SYNTHESISE.options(self._lease.options[self._node])
        limit = verify_options(options["verify"])["max_cer"]
        for number, (line, facts) in enumerate(self.lines()):
            if "skipped" in facts:
                yield {"code": "not_spoken", "line": number, "text": line.text, "skipped": facts["skipped"]}
            if "over_s" in facts:
                yield {"code": "does_not_fit", "line": number, "text": line.text, "over_s": facts["over_s"]}
            if facts.get("cer", 0.0) > limit:
                yield {"code": "not_understood", "line": number, "text": line.text, "cer": facts["cer"]}


def _transcript(lease: Lease, spoken: _Lines, joiner: Joiner, duration_s: float) -> Transcript:
    """Return the text that was spoken, a segment for each line."""
    options = lease.options[pipeline(lease.pipeline).node(lease.node).inputs[1]]
    segments = tuple(
        Segment(start_s, min(end_s, duration_s), f" {line.text}")
        for (line, _), (start_s, end_s) in zip(spoken.lines(), joiner.times_s, strict=True)
    )
    return Transcript(
        segments=segments,
        language=base_language(spoken.language),
        duration_s=duration_s,
        engine=options["engine"],
        model=options["model"],
        model_sha256=options["model_sha256"],
        source_name=str(lease.source.get("name", "")),
        source_sha256=lease.input_sha256 or "",
        options={"voice": options["voice"], "speed": options["speed"]},
        warnings=tuple(sorted({finding["code"] for finding in spoken.findings()})),
    )


@dataclass(frozen=True, slots=True)
class _Sound:
    """Hold what is written: a source of blocks that can be asked again, their rate, and how many samples they have."""

    blocks: Any
    rate_hz: int
    samples: int


@dataclass(slots=True)
class _File:
    """Name an output, its temporary name, and what is in it."""

    format: str
    path: Path
    part: Path
    sha256: str = ""
    size: int = 0

    def described(self) -> dict[str, Any]:
        """Return what the job says of it."""
        return {"format": self.format, **encode_path(self.path), "sha256": self.sha256, "size": self.size}


def _write(lease: Lease, options: Mapping[str, Any], transcript: Transcript, sound: _Sound) -> list[dict[str, Any]]:
    """Write every file under a temporary name, and give them their own once all are whole and none is in the way.

    Raises:
        OutputExists: another file is in the way; nothing was replaced then.
        DiskFull, OutputUnwritable: as their names say.
    """
    stem = decode_path(options["target"])
    files = [_file(stem, name, encode.extension(name), lease) for name in options["formats"]]
    captions = [_file(stem, name, formats.extension(name), lease) for name in options["captions"]]
    try:
        _encode(files, sound, mode=file_mode())
        chosen = RenderOptions.from_json(options["render"])
        for one in captions:
            data = render(transcript, one.format, chosen)
            with _created(one.part, file_mode()) as file:
                file.write(data)
            one.sha256, one.size = sha256(data).hexdigest(), len(data)
        for one in (*files, *captions):
            demand_free(one.path, one.sha256, options)
        for one in (*files, *captions):
            one.part.replace(one.path)
        for folder in {one.path.parent for one in (*files, *captions)}:
            sync_folder(folder)
    except OSError as error:
        raise map_os_error(error, Path(stem)) from error
    finally:
        for one in (*files, *captions):
            one.part.unlink(missing_ok=True)
    return [one.described() for one in (*files, *captions)]


def _keep(blobs: BlobStore, options: Mapping[str, Any], transcript: Transcript, sound: _Sound) -> list[NewArtifact]:
    """Keep the sound in each format, and the captions, as artifacts that hold them as they are.

    Raises:
        DiskFull, OutputUnwritable: as their names say.
    """
    files: list[_File] = []
    try:
        for name in options["formats"]:
            path = blobs.work_file()
            files.append(_File(name, path, path))
        _encode(files, sound, mode=0o600)
        kept = [
            blobs.store_raw(
                one.part, "sound", {**_kind(one.format), "rate_hz": encode.encoded_rate_hz(one.format, sound.rate_hz)}
            )
            for one in files
        ]
    except OSError as error:
        raise map_blob_error(error) from error
    finally:
        for one in files:
            one.part.unlink(missing_ok=True)
    chosen = RenderOptions.from_json(options["render"])
    return kept + [
        blobs.store_plain(render(transcript, name, chosen), "subtitles", _kind(name)) for name in options["captions"]
    ]


def _kind(name: str) -> dict[str, object]:
    """Return what an artifact says of its bytes."""
    return {"format": name, "type": media_type(name)}


def _named(artifact: NewArtifact) -> dict[str, Any]:
    """Return what the job says of a file that is an artifact."""
    size, digest = artifact.size_bytes, artifact.sha256
    return {"format": artifact.meta["format"], "artifact": artifact.id, "sha256": digest, "size": size}


def _file(stem: str, name: str, ending: str, lease: Lease) -> _File:
    """Return an output with the temporary name of this claim; what earlier ones have left is removed."""
    path = Path(stem + ending)
    remove_parts(path, name, lease)
    return _File(name, path, part_of(path, name, lease, lease.fence))


class _created:  # noqa: N801 - used like a function
    """Create a file for the time of a block; its bytes are on the disk after it."""

    def __init__(self, path: Path, mode: int) -> None:
        self._mode = mode
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "w+b")

    def __enter__(self) -> Any:
        return self._file

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        with self._file:
            if kind is None:
                self._file.flush()
                os.fchmod(self._file.fileno(), self._mode)
                os.fsync(self._file.fileno())


def _encode(files: Sequence[_File], sound: _Sound, *, mode: int) -> None:
    """Encode the sound into all files in one pass; they get these permissions."""
    with ExitStack() as stack:
        sinks = [stack.enter_context(_created(one.part, mode)) for one in files]
        encoders = [
            Encoder(sink, one.format, sound.rate_hz, sound.samples) for one, sink in zip(files, sinks, strict=True)
        ]
        for encoder in encoders:
            stack.callback(encoder.discard)  # before the files are closed under them
        for block in sound.blocks():
            for encoder in encoders:
                encoder.write(block)
        for encoder in encoders:
            encoder.close()
    for one in files:
        with one.part.open("rb") as file:
            one.sha256 = file_digest(file, "sha256").hexdigest()
            one.size = file.tell()
