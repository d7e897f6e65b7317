"""JSON as the audio endpoints of OpenAI answer with `verbose_json`."""

from typing import Any

from voicejobs.audio.languages import LANGUAGES
from voicejobs.audio.types import Transcript
from voicejobs.formats.json_values import dump, rounded_s
from voicejobs.formats.options import RenderOptions
from voicejobs.formats.whisper_json import channel_value, segment_values


def write_verbose_json(transcript: Transcript, options: RenderOptions) -> bytes:
    """Return OpenAI's keys as UTF-8: the language as an English word, words (where the engine gave them) in one list.

    Beyond OpenAI's keys, `language_code` is there, and `channel` where channels were kept apart. The words have no
    blanks at their ends.
    """
    code = transcript.language
    duration_s = rounded_s(transcript.duration_s) or 0.0
    document: dict[str, Any] = {
        "task": transcript.options.get("task", "transcribe"),
        "language": None if code is None else LANGUAGES.get(code, code),
        "language_code": code,
        "duration": duration_s,
        "text": transcript.text,
        "segments": [
            segment_values(number, segment) | channel_value(segment.channel)
            for number, segment in enumerate(transcript.segments)
        ],
    }
    words = [
        {"word": word.text.strip(), "start": rounded_s(word.start_s), "end": rounded_s(word.end_s)}
        | channel_value(word.channel)
        for segment in transcript.segments
        for word in segment.words
    ]
    if words or not transcript.segments:
        document["words"] = words
    document["usage"] = {"type": "duration", "seconds": duration_s}
    return dump(document)
