"""The grammar of `audio_format` for speech that goes out, and its encodings."""

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio.encode import Block, Encoder, encode, encoded_rate_hz, resampled, to_pcm
from voicejobs.errors import BadAudioFormat, BadOption
from voicejobs.rpc import audio_formats

FILES = ("wav", "flac", "opus", "mp3")
ACCEPTED = "wav, flac, opus, mp3, pcm_{s16le,f32le,mulaw,alaw}, and each of them with _RATE (in Hz or as 16k)"
DEFAULT = "wav"
NAMES = (*FILES, *(f"pcm_{name}" for name in audio_formats.ENCODINGS))
_FORM = re.compile(
    r"(wav|flac|opus|mp3|pcm_s16le|pcm_f32le|pcm_mulaw|pcm_alaw)(?:_(\d{1,6}|\d{1,3}(?:\.\d{1,3})?k))?(?:_1ch)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class SpeechFormat:
    """Name an encoding of `FILES`, or `pcm_` and one of `audio_formats.ENCODINGS`; rate 0 is that of the voice."""

    encoding: str
    rate_hz: int = 0

    def rate_for(self, voice_hz: int) -> int:
        """Return the rate of the encoded sound of a voice: opus and mp3 know only some.

        Raises:
            BadAudioFormat: no sound has the rate.
        """
        name = self.encoding if self.encoding in FILES else "pcm"
        try:
            return encoded_rate_hz(name, self.rate_hz or voice_hz)
        except BadOption as error:
            raise BadAudioFormat(f"audio_format: {error.message}", hint=error.hint) from error


def parse(text: str) -> SpeechFormat:
    """Return the format that a text names, in any case; nothing is `wav`.

    Raises:
        BadAudioFormat: there is no such format.
    """
    match = _FORM.fullmatch(text.strip().lower() or DEFAULT)
    if match is None:
        shown = text[: audio_formats.MAX_FORMAT_CHARACTERS]
        raise BadAudioFormat(f"audio_format {shown!r} is unknown for speech; accepted: {ACCEPTED}")
    found = SpeechFormat(match[1], audio_formats.rate_of(match[2]) if match[2] else 0)
    if found.rate_hz:
        found.rate_for(found.rate_hz)
    return found


def whole(blocks: Iterable[Block], voice_hz: int, samples: int, wanted: SpeechFormat) -> bytes:
    """Return the bytes of a sound whose length is known, so that the header of a file can say it."""
    if wanted.encoding not in FILES:
        return b"".join(parts(blocks, voice_hz, wanted))
    rate_hz = wanted.rate_for(voice_hz)
    sink = io.BytesIO()
    encoder = Encoder(sink, wanted.encoding, rate_hz, samples)
    for block in resampled(blocks, voice_hz, rate_hz):
        encoder.write(block)
    encoder.close()
    return sink.getvalue()


def parts(blocks: Iterable[Block], voice_hz: int, wanted: SpeechFormat) -> Iterator[bytes]:
    """Yield the bytes of a sound as they become ready."""
    rate_hz = wanted.rate_for(voice_hz)
    ready = resampled(blocks, voice_hz, rate_hz)
    if wanted.encoding in FILES:
        yield from encode(ready, rate_hz, wanted.encoding)
        return
    for block in ready:
        yield _raw(block, wanted.encoding.removeprefix("pcm_"))


def _raw(block: Block, encoding: str) -> bytes:
    """Return samples without a header."""
    if encoding == "f32le":
        return np.clip(block, -1.0, 1.0).astype("<f4").tobytes()
    pcm = to_pcm(block)
    if encoding == "s16le":
        return pcm.tobytes()
    return _companded(encoding)[pcm.astype(np.int32) + (1 << 15)].tobytes()


@cache
def _companded(encoding: str) -> NDArray[np.uint8]:
    """Return the byte of each 16-bit sample, from the lowest: the one whose sample is nearest."""
    table = audio_formats.samples_of_bytes(encoding).astype(np.int32)
    order = np.argsort(table, kind="stable")
    values = table[order]
    middles = (values[1:] + values[:-1]) / 2
    places = np.searchsorted(middles, np.arange(-(1 << 15), 1 << 15))
    return order[places].astype(np.uint8)
