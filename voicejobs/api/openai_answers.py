"""Answers of the OpenAI-compatible audio endpoints: a transcript in each form, and the events of streams."""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from voicejobs.audio.types import Segment, Transcript
from voicejobs.formats import RenderOptions, render
from voicejobs.formats.clean import encodable
from voicejobs.formats.json_values import plain, rounded_s

JSON = "application/json"
MEDIA_TYPES: Mapping[str, str] = {
    "json": JSON,
    "verbose_json": JSON,
    "diarized_json": JSON,
    "text": "text/plain; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
}
"""Media type of each form of a transcription."""
SOUND_TYPES: Mapping[str, str] = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
"""Media type of each format of sound."""
DELTA_BYTES = 48 * 1024
"""Sound of one event of a stream: a multiple of three, so that all events but the last are base64 without padding."""


def answer_document(transcript: Transcript, wanted: Mapping[str, Any]) -> Any:
    """Return an answer as a JSON value: an object, or a text for the forms that are texts.

    Args:
        transcript: what was heard.
        wanted: what `TranscriptionWish.to_json` told.
    """
    form = wanted["response_format"]
    if form == "json":
        return {"text": encodable(transcript.text), "usage": _usage(transcript)}
    if form == "verbose_json":
        return _verbose(transcript, wanted)
    if form == "diarized_json":
        return {
            "task": "transcribe",
            "duration": rounded_s(transcript.duration_s) or 0.0,
            "text": encodable(transcript.text),
            "segments": list(speaker_segments(transcript)),
            "usage": _usage(transcript),
        }
    return _text_of(transcript, wanted)


def answer_body(transcript: Transcript, wanted: Mapping[str, Any]) -> bytes:
    """Return the body of an answer: JSON, or the bare text for the forms that are texts."""
    document = answer_document(transcript, wanted)
    return document.encode() if isinstance(document, str) else _dump(document)


def _text_of(transcript: Transcript, wanted: Mapping[str, Any]) -> str:
    """Return subtitles, or the text with the line end that OpenAI's servers write."""
    form = wanted["response_format"]
    if form == "text":
        return encodable(transcript.text) + "\n"
    return render(transcript, form, RenderOptions.from_json(wanted.get("render", {}))).decode()


def _verbose(transcript: Transcript, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return OpenAI's longest form, with the lists that were asked for."""
    document: dict[str, Any] = json.loads(render(transcript, "verbose_json"))
    words = document.pop("words", [])
    if "word" in wanted["granularities"]:
        document["words"] = words
    if "segment" not in wanted["granularities"]:
        del document["segments"]
    document["language"] = document["language"] or ""
    return {**document, "model": transcript.model, "engine": transcript.engine}


def speaker_segments(transcript: Transcript) -> Iterator[dict[str, Any]]:
    """Yield the segments with the channel of each as its speaker."""
    for number, segment in enumerate(transcript.segments):
        yield {
            "type": "transcript.text.segment",
            "id": f"seg_{number:05d}",
            "speaker": _speaker(segment),
            "start": rounded_s(segment.start_s) or 0.0,
            "end": rounded_s(segment.end_s) or 0.0,
            "text": encodable(segment.text),
        }


def _speaker(segment: Segment) -> str:
    """Return the label of a segment's channel, counted from 1."""
    return f"channel_{(segment.channel or 0) + 1}"


def _usage(transcript: Transcript) -> dict[str, Any]:
    """Return how much was heard, as OpenAI's servers count what is billed by its length."""
    return {"type": "duration", "seconds": rounded_s(transcript.duration_s) or 0.0}


class Deltas:
    """Give a text out piece by piece, as it becomes known: what was given, joined, is the text without outer blanks."""

    def __init__(self) -> None:
        self._sent = ""
        self._blank = ""
        self._count = 0

    def more(self, texts: Sequence[str]) -> Iterator[bytes]:
        """Yield the events of what is new among the texts of all segments so far."""
        new, self._count = texts[self._count :], max(self._count, len(texts))
        for text in new:
            whole = self._blank + encodable(text) if self._sent else encodable(text).lstrip()
            piece = whole.rstrip()
            self._blank = whole[len(piece) :]
            if piece:
                self._sent += piece
                yield event({"type": "transcript.text.delta", "delta": piece})

    def finish(self, text: str) -> Iterator[bytes]:
        """Yield the event of what the whole text has besides; nothing where it begins otherwise."""
        if text.startswith(self._sent) and text != self._sent:
            rest, self._sent = text[len(self._sent) :], text
            yield event({"type": "transcript.text.delta", "delta": rest})


def transcript_events(
    transcript: Transcript, wanted: Mapping[str, Any], deltas: Deltas | None = None
) -> Iterator[bytes]:
    """Yield the events of a transcription: each segment, and the whole at the end; the deltas joined are its text.

    Args:
        transcript: what was heard.
        wanted: what `TranscriptionWish.to_json` told.
        deltas: what was told already, while the job ran.
    """
    if wanted["response_format"] == "diarized_json":
        yield from map(event, speaker_segments(transcript))
    deltas = deltas or Deltas()
    text = encodable(transcript.text)
    yield from deltas.more([segment.text for segment in transcript.segments])
    yield from deltas.finish(text)
    yield event({"type": "transcript.text.done", "text": text, "usage": _usage(transcript)})


def speech_events(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the events of speech: its sound in pieces of base64 that decode to the file when joined, and the end."""
    held = b""
    for part in parts:
        held += part
        while len(held) >= DELTA_BYTES:
            yield _sound_event(held[:DELTA_BYTES])
            held = held[DELTA_BYTES:]
    if held:
        yield _sound_event(held)
    yield event({"type": "speech.audio.done"})


def _sound_event(data: bytes) -> bytes:
    """Return the event of some sound."""
    return event({"type": "speech.audio.delta", "audio": base64.b64encode(data).decode()})


def event(document: Mapping[str, Any]) -> bytes:
    """Return one server-sent event, named by its type, as OpenAI's clients read it."""
    data = json.dumps(plain(dict(document)), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return f"event: {document['type']}\ndata: {data}\n\n".encode()


def _dump(document: Any) -> bytes:
    """Return compact JSON."""
    return json.dumps(plain(document), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
