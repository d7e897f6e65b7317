"""Read the recording of a voice, in its sandbox like every other, as the engines take it."""

import base64
import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from voicejobs.audio.types import Pcm
from voicejobs.errors import BadOption, TooLong
from voicejobs.hosting.decoder import Decoder
from voicejobs.steps import prompt

_FULL_SCALE = 32_768
_SILENT_PEAK = 1e-3


def _never() -> bool:
    """Say that nobody cancels."""
    return False


def read_prompt(
    decoder: Decoder, path: str | os.PathLike[str], name: str, cancelled: Callable[[], bool] = _never
) -> str:
    """Return a recording as engines take it: base64 of 16-bit mono PCM at 16 kHz.

    Args:
        decoder: what decodes it.
        path: the file.
        name: how messages call it.
        cancelled: asked while it is decoded.

    Raises:
        BadOption: it is longer than `prompt.LONGEST_S`, or nothing can be heard in it.
        InputError, DecoderCrash, DecoderTimeout, Cancelled: as in `Decoder.open`.
    """
    options = replace(decoder.options("mix", name=name), max_audio_s=prompt.LONGEST_S)
    try:
        with decoder.open(path, options, cancelled=cancelled) as stream:
            blocks: list[Pcm] = [channels[0] for channels in stream.blocks()]
    except TooLong as error:
        raise BadOption(
            f"{name} is longer than {prompt.LONGEST_S:g} s", hint="Cut it; five to ten seconds of speech are enough."
        ) from error
    pcm = np.concatenate(blocks) if blocks else np.zeros(0, np.int16)
    if float(np.max(np.abs(pcm.astype(np.float32)), initial=0.0)) < _SILENT_PEAK * _FULL_SCALE:
        raise BadOption(f"{name} is silent", hint="It must hold the voice that is to speak.")
    return base64.b64encode(pcm.astype("<i2").tobytes()).decode()
