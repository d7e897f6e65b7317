"""Open recordings with FFmpeg, under the allow-lists, and choose the sound track: the one place that does so."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from voicejobs.audio import accept
from voicejobs.errors import NoAudioStream, NotAudio

if TYPE_CHECKING:
    from av.audio.stream import AudioStream
    from av.container import InputContainer


@contextmanager
def opened(path: str | os.PathLike[str], name: str, look: accept.Look) -> "Iterator[InputContainer]":
    """Open the container under the allow-lists, and close it at the end.

    Args:
        path: the recording.
        name: its name as text, for messages.
        look: the first look at it.

    Raises:
        NotAudio, Damaged, BadHeader, Unreadable, NotFound: as their names say.
    """
    import av

    options = {"format_whitelist": ",".join(accept.FORMATS), "protocol_whitelist": "file"}
    if look.plain_wav:
        # FFmpeg would search up to 2500 packets for DTS hidden in PCM: 1 to 20 ms for each file.
        options["max_probe_packets"] = "1"
    absolute = os.path.abspath(path)  # noqa: PTH100 - resolving links is the caller's choice
    with _ffmpeg_name(absolute) as (url, forced_format):
        try:
            container = av.open(url, format=forced_format, options=options, metadata_errors="replace")
        except MemoryError:
            raise
        except (av.error.FFmpegError, OSError) as error:
            if error.errno in {errno.EIO, errno.ESTALE, errno.EACCES, errno.ENOENT}:
                raise accept.reading_error(name, OSError(error.errno, error.strerror)) from error
            raise accept.refusal(name, look) from error
        with container:
            yield container


@contextmanager
def _ffmpeg_name(absolute: str) -> Iterator[tuple[str, str | None]]:
    """Yield (URL, format) under which FFmpeg opens this very file and takes nothing in its name for a command.

    A name that is not UTF-8 cannot cross PyAV: the file is opened here and named by its descriptor. Its ending is
    lost by that, and with it the one format that FFmpeg knows by ending alone.
    """
    try:
        absolute.encode()
    except UnicodeEncodeError:
        fd = os.open(absolute, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield f"file:/dev/fd/{fd}", "gsm" if Path(absolute).suffix.lower() == ".gsm" else None
        finally:
            os.close(fd)
    else:
        yield f"file:{absolute}", None


def choose_stream(container: "InputContainer", name: str) -> "AudioStream":
    """Return the audio stream to decode: the first that is marked as default, else the first; commentary comes last.

    Raises:
        NoAudioStream: there is none.
        NotAudio: none of them has a codec that may run.
    """
    from av.stream import Discard, Disposition

    aside = Disposition.comment | Disposition.visual_impaired | Disposition.clean_effects
    streams = list(container.streams.audio)
    if not streams:
        raise NoAudioStream(f"{name}: has no sound track")
    accepted = [stream for stream in streams if getattr(stream.codec_context, "name", None) in accept.CODECS]
    if not accepted:
        codec = getattr(streams[0].codec_context, "name", "unknown")
        raise NotAudio(f"{name}: its sound is coded as {codec}, which voicejobs does not decode", codec=codec)
    chosen = min(
        accepted,
        key=lambda stream: (
            bool(stream.disposition & aside),
            not stream.disposition & Disposition.default,
            stream.index,
        ),
    )
    for stream in container.streams:
        if stream.index != chosen.index:
            stream.discard = Discard.all
    chosen.codec_context.thread_count = 1
    return chosen
