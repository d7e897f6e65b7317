"""Read the audio that a request carries, in the thread that calls: raw by ourselves, files by the decoder."""

import tempfile
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from voicejobs.audio.pcm import BYTES_PER_SAMPLE
from voicejobs.audio.types import Pcm
from voicejobs.errors import BadAudioFormat, EmptyFile, InputError, TooLong
from voicejobs.rpc import audio_formats
from voicejobs.rpc.audio_formats import CONTAINERS, AudioFormat, read_pcm
from voicejobs.rpc.engines import Engines
from voicejobs.units import samples_to_seconds

SOUND_PER_MESSAGE = 4
"""Decoded audio of a request, in messages of the largest size: 1 h 49 min by default."""
_ADVICE = "Send it as a stream, or in parts, or give the file to `voicejobs transcribe`."


def read_sound(engines: Engines, data: bytes, audio_format: str, cancelled: Callable[[], bool]) -> Pcm:
    """Return the audio of a request at 16 kHz, mono.

    Args:
        engines: whose decoder and limits count.
        data: the audio.
        audio_format: what it is.
        cancelled: asked while a file is decoded.

    Raises:
        BadAudioFormat: the format is unknown, or the audio is not of it.
        EmptyFile: there is none.
        InputError: the audio is at fault.
    """
    sound = audio_formats.parse(audio_format)
    if not data:
        raise EmptyFile("the request holds no audio", hint="Send some.")
    if not sound.is_raw:
        return _decoded(engines, data, sound, cancelled)
    longest_s = most_seconds(engines)
    if len(data) / sound.frame_bytes / sound.rate_hz > longest_s:
        raise TooLong(f"the audio is longer than {longest_s:.0f} s", hint=_ADVICE, limit_s=longest_s)
    return read_pcm(data, sound)


def most_seconds(engines: Engines) -> float:
    """Return how long the audio of one request may be: it is in memory as a whole, however well it was packed."""
    held_s = samples_to_seconds(SOUND_PER_MESSAGE * engines.settings.rpc_max_message_bytes // BYTES_PER_SAMPLE)
    return min(engines.settings.max_audio_s, held_s)


def _decoded(engines: Engines, data: bytes, sound: AudioFormat, cancelled: Callable[[], bool]) -> Pcm:
    """Return a file as the decoder, in its sandbox, reads it."""
    decoder = engines.decoder
    with tempfile.NamedTemporaryFile(dir=engines.folder) as file:
        file.write(data)
        file.flush()
        try:
            options = replace(decoder.options(), max_audio_s=most_seconds(engines))
            with decoder.open(file.name, options, cancelled=cancelled) as stream:
                if stream.info.container not in CONTAINERS[sound.encoding]:
                    raise BadAudioFormat(
                        f"audio_format is {sound.encoding!r}, and the audio is {stream.info.container}; "
                        f"accepted: {audio_formats.ACCEPTED}"
                    )
                blocks = [channels[0] for channels in stream.blocks()]
        except InputError as error:  # people did not name the file, and need not know where it was
            message = error.message.replace(file.name, "the audio")
            hint = _ADVICE if isinstance(error, TooLong) else error.hint
            raise type(error)(message, hint=hint, **error.details) from error
    return np.concatenate(blocks)
