"""Encode mono sound as it comes: wav, flac, mp3, opus in ogg, aac, and bare PCM, in flat memory.

The samples of a format without loss are those that were given, rounded to 16 bits; players ask for no more.
"""

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio import aac
from voicejobs.audio.resample import Resampler
from voicejobs.errors import BadOption

if TYPE_CHECKING:
    from soundfile import SoundFile

Format = Literal["wav", "flac", "mp3", "opus", "aac", "pcm"]
FORMATS: tuple[Format, ...] = get_args(Format)
"""What sound can be encoded as; `pcm` is 16-bit little-endian mono without a header."""

Block = NDArray[np.float32]
"""Mono samples, shape (samples,), full scale 1.0; what is beyond it is clipped."""

MIN_RATE_HZ, MAX_RATE_HZ = 8_000, 192_000
_BYTES_PER_SAMPLE = 2
_FULL_SCALE = 32_767.0
_SLICE_SAMPLES = 16_384
"""Converted at once: what lies between stays in the cache, where new memory for all of it costs more than the work."""
_READ_BYTES = 1 << 18
_RIFF_LIMIT_BYTES = 0xFFFFFFFF
_UNKNOWN = 0xFFFFFFFF
_RIFF_BYTES, _RF64_BYTES = 44, 80
_MP3_HZ = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
_OPUS_HZ = (8_000, 12_000, 16_000, 24_000, 48_000)
_LIBSNDFILE = {"flac": ("FLAC", "PCM_16"), "mp3": ("MP3", "MPEG_LAYER_III"), "opus": ("OGG", "OPUS")}


class Sink(Protocol):
    """What an encoder writes to: a file opened for writing bytes, or what looks like one."""

    def write(self, data: bytes | memoryview, /) -> int:
        """Take bytes at the place."""
        ...

    def seek(self, place: int, whence: int = 0, /) -> int:
        """Go to a place."""
        ...

    def tell(self) -> int:
        """Return the place."""
        ...


def extension(name: str) -> str:
    """Return the ending of the files of a format, with its dot.

    Raises:
        BadOption: no format has this name.
    """
    demand_format(name)
    return f".{name}"


def demand_format(name: str) -> None:
    """Refuse a name that no format has.

    Raises:
        BadOption: it has none.
    """
    if name not in FORMATS:
        raise BadOption(f"{name!r} is no format of sound", hint=f"The formats are {', '.join(FORMATS)}.")


def encoded_rate_hz(name: str, rate_hz: int) -> int:
    """Return the rate at which a format keeps sound of `rate_hz`: the next one that it knows.

    Raises:
        BadOption: no format has the name, or no sound the rate.
    """
    demand_format(name)
    if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
        raise BadOption(
            f"{rate_hz} Hz is no sampling rate of speech", hint=f"Take one from {MIN_RATE_HZ} to {MAX_RATE_HZ} Hz."
        )
    known = {"mp3": _MP3_HZ, "opus": _OPUS_HZ, "aac": aac.RATES_HZ}.get(name, (rate_hz,))
    return next((rate for rate in known if rate >= rate_hz), known[-1])


class Encoder:
    """Write sound to a file, or to anything that can be written and sought like one.

    Args:
        sink: where to; it stays open.
        name: one of `FORMATS`.
        rate_hz: rate of the blocks; formats that know only some rates get the next one.
        samples: how many there will be, for the header of `wav`; without it the header says that nobody knows.

    Raises:
        BadOption: no format has the name, or no sound the rate.
        OSError: `sink` cannot be written; also from `write` and `close`.
    """

    def __init__(self, sink: Sink, name: str, rate_hz: int, samples: int | None = None) -> None:
        self.rate_hz = encoded_rate_hz(name, rate_hz)
        self._resampler = Resampler(rate_hz, self.rate_hz)
        self._file: SoundFile | None = None
        self._aac: aac.AacWriter | None = None
        sink = self._sink = _Honest(sink)
        if name in _LIBSNDFILE:
            import soundfile  # noqa: PLC0415 - commands need the names of the formats alone

            kind, subtype = _LIBSNDFILE[name]
            self._file = soundfile.SoundFile(sink, "w", self.rate_hz, 1, subtype, format=kind)
        elif name == "aac":
            self._aac = aac.AacWriter(sink.write, self.rate_hz)
        elif name == "wav":
            sink.write(_wav_header(self.rate_hz, samples))

    def write(self, block: Block) -> None:
        """Encode a block."""
        self._write(self._resampler.feed(block))

    def close(self) -> None:
        """Write what is still held; the encoder cannot be used after it."""
        self._write(self._resampler.finish())
        if self._aac is not None:
            self._aac.close()
        if self._file is not None:
            self._file.close()
        self._sink.check()
        self.discard()

    def discard(self) -> None:
        """Give up, after an error or for any other reason; the sink is not touched any more. Does no harm twice."""
        self._sink.let_go()
        if self._file is not None:
            self._file.close()

    def _write(self, block: Block) -> None:
        """Write samples at the rate of the format."""
        if len(block) == 0:
            return
        data = to_pcm(block)
        if self._aac is not None:
            self._aac.write(data)
        elif self._file is not None:
            self._file.write(data)
        else:
            self._sink.write(data.data.cast("B"))
        self._sink.check()


def to_pcm(block: Block) -> NDArray[np.int16]:
    """Return samples as 16-bit integers, rounded and clipped."""
    data: NDArray[np.int16] = np.empty(len(block), "<i2")
    room = np.empty(min(len(block), _SLICE_SAMPLES), np.float32)
    for start in range(0, len(block), _SLICE_SAMPLES):
        part = block[start : start + _SLICE_SAMPLES]
        scaled = np.clip(part, -1.0, 1.0, out=room[: len(part)])
        scaled *= _FULL_SCALE
        data[start : start + len(part)] = np.rint(scaled, out=scaled)
    return data


def encode(blocks: Iterable[Block], rate_hz: int, name: str) -> Iterator[bytes]:
    """Yield the bytes of sound as they become ready; errors as in `Encoder`."""
    sink = _Drain()
    encoder = Encoder(sink, name, rate_hz)
    try:
        for block in blocks:
            encoder.write(block)
            if data := sink.drain():
                yield data
        encoder.close()
    finally:
        encoder.discard()
    if data := sink.drain():
        yield data


def resampled(blocks: Iterable[Block], rate_hz: int, to_hz: int) -> Iterator[Block]:
    """Yield sound at another rate; its length is that of the whole, rounded up."""
    resampler = Resampler(rate_hz, to_hz)
    for block in blocks:
        found = resampler.feed(block)
        if len(found):
            yield found
    rest = resampler.finish()
    if len(rest):
        yield rest


def read_wav(path: Path) -> tuple[int, int, Iterator[Block]]:
    """Return rate, samples and blocks of a WAV file that an `Encoder` wrote; a header that is no other's.

    Raises:
        ValueError: it is another file.
        OSError: it cannot be read.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_RF64_BYTES)
    large = head.startswith(b"RF64")
    start = _RF64_BYTES if large else _RIFF_BYTES
    rate_hz = int.from_bytes(head[start - 20 : start - 16], "little")
    samples = (size - start) // _BYTES_PER_SAMPLE
    if samples < 0 or head[:start] != _wav_header(rate_hz, samples):
        raise ValueError(f"{path} was written by somebody else")
    return rate_hz, samples, _pcm_blocks(path, start)


def _pcm_blocks(path: Path, start: int) -> Iterator[Block]:
    """Yield 16-bit samples from a place in a file on."""
    with path.open("rb") as file:
        file.seek(start)
        while data := file.read(_READ_BYTES):
            yield np.divide(np.frombuffer(data, "<i2"), np.float32(_FULL_SCALE), dtype=np.float32)


class _Honest:
    """Keep the error of a sink: libsndfile swallows what is raised while it calls back; it does so again at its end."""

    def __init__(self, sink: Sink) -> None:
        self._sink: Sink | None = sink
        self._error: OSError | None = None

    def check(self) -> None:
        """Raise the error, if there was one."""
        if self._error is not None:
            raise self._error

    def let_go(self) -> None:
        """Touch the sink no more: it may be closed."""
        self._sink = None

    def write(self, data: bytes | memoryview) -> int:
        """Write bytes; nothing more after an error."""
        if self._sink is None:
            return len(data)
        try:
            return self._sink.write(data)
        except OSError as error:
            self._error = error
            self.let_go()
            return len(data)

    def read(self, size: int = -1) -> bytes:
        """Return nothing: what was written is not read again."""
        return b""

    def readinto(self, buffer: memoryview) -> int:
        """Read nothing, see `read`."""
        return 0

    def seek(self, place: int, whence: int = 0) -> int:
        """Go to a place; `whence` as for files."""
        return 0 if self._sink is None else self._sink.seek(place, whence)

    def tell(self) -> int:
        """Return the place."""
        return 0 if self._sink is None else self._sink.tell()

    def flush(self) -> None:
        """Hold nothing back."""


class _Drain:
    """Take what an encoder writes, and give it out; what is out cannot be written again.

    Encoders go back once, at the end, to note the length in a header that has long been sent: readers of streams do
    without it.
    """

    def __init__(self) -> None:
        self._out = 0
        self._held = bytearray()
        self._place = 0

    def drain(self) -> bytes:
        """Return what was written since the last call."""
        data = bytes(self._held)
        self._out += len(data)
        self._held.clear()
        return data

    def write(self, data: bytes | memoryview) -> int:
        """Take bytes at the place that was sought."""
        view = memoryview(data).cast("B")
        late = max(0, min(len(view), self._out - self._place))
        start = self._place + late - self._out
        self._held[start : start + len(view) - late] = view[late:]
        self._place += len(view)
        return len(view)

    def seek(self, place: int, whence: int = 0) -> int:
        """Go to a place; `whence` as for files."""
        start = (0, self._place, self._out + len(self._held))[whence]
        self._place = start + place
        return self._place

    def tell(self) -> int:
        """Return the place."""
        return self._place


def _wav_header(rate_hz: int, samples: int | None) -> bytes:
    """Return the header of a WAV file; RF64 (EBU Tech 3306) where 32 bits cannot hold its length."""
    data_bytes = None if samples is None else samples * _BYTES_PER_SAMPLE
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate_hz, rate_hz * _BYTES_PER_SAMPLE, _BYTES_PER_SAMPLE, 16)
    if data_bytes is None:
        return struct.pack("<4sI4s", b"RIFF", _UNKNOWN, b"WAVE") + form + struct.pack("<4sI", b"data", _UNKNOWN)
    if _RIFF_BYTES - 8 + data_bytes <= _RIFF_LIMIT_BYTES:
        whole = _RIFF_BYTES - 8 + data_bytes
        return struct.pack("<4sI4s", b"RIFF", whole, b"WAVE") + form + struct.pack("<4sI", b"data", data_bytes)
    sizes = struct.pack("<4sIQQQI", b"ds64", 28, _RF64_BYTES - 8 + data_bytes, data_bytes, samples or 0, 0)
    head = struct.pack("<4sI4s", b"RF64", _UNKNOWN, b"WAVE")
    return head + sizes + form + struct.pack("<4sI", b"data", _UNKNOWN)
