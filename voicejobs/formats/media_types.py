"""Media types of what jobs make: sounds, transcripts and captions."""

MEDIA_TYPES = {
    "wav": "audio/wav",
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "pcm": "application/octet-stream",
    "txt": "text/plain; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
    "json": "application/json",
    "verbose_json": "application/json",
    "native": "application/json",
    "tsv": "text/tab-separated-values; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "ctm": "text/plain; charset=utf-8",
    "textgrid": "text/plain; charset=utf-8",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
}
"""By the name of the format; `opus` lies in Ogg, and `pcm` says nothing of itself."""

DEFAULT = "application/octet-stream"


def media_type(name: str) -> str:
    """Return the media type of a format; bytes of no known kind for one that is not listed."""
    return MEDIA_TYPES.get(name, DEFAULT)
