"""Read the audio that a request carries, in the thread that calls: raw by ourselves, files by the decoder."""

import tempfile
from collections.abc import Callable

import numpy as np

from voicejobs.audio.types import Pcm
from voicejobs.errors import BadAudioFormat, EmptyFile, InputError, TooLong
from voicejobs.rpc import audio_formats
from voicejobs.rpc.audio_formats import CONTAINERS, AudioFormat, read_pcm
from voicejobs.rpc.engines import Engines


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
    if len(data) / sound.frame_bytes / sound.rate_hz > engines.settings.max_audio_s:
        raise TooLong(f"the audio is longer than {engines.settings.max_audio_s:g} s")
    return read_pcm(data, sound)


def _decoded(engines: Engines, data: bytes, sound: AudioFormat, cancelled: Callable[[], bool]) -> Pcm:
    """Return a file as the decoder, in its sandbox, reads it."""
    decoder = engines.decoder
    with tempfile.NamedTemporaryFile(dir=engines.folder) as file:
        file.write(data)
        file.flush()
        try:
            with decoder.open(file.name, decoder.options(), cancelled=cancelled) as stream:
                if stream.info.container not in CONTAINERS[sound.encoding]:
                    raise BadAudioFormat(
                        f"audio_format is {sound.encoding!r}, and the audio is {stream.info.container}; "
                        f"accepted: {audio_formats.ACCEPTED}"
                    )
                blocks = [channels[0] for channels in stream.blocks()]
        except InputError as error:  # people did not name the file, and need not know where it was
            message = error.message.replace(file.name, "the audio")
            raise type(error)(message, hint=error.hint, **error.details) from error
    return np.concatenate(blocks)
