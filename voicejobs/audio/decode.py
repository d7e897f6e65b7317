"""The one decoder of the code base: any accepted recording to 16 kHz int16 PCM, streamed in blocks.

It runs in the decoder's child process (voicejobs.hosting.zygote), never in a worker: the bytes are not trusted.
Nothing that a header says is believed: samples are counted as they appear. docs/decoding.md tells the rules.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio import accept
from voicejobs.audio.container import choose_stream, opened
from voicejobs.audio.mix import Mixer, Samples, to_float, to_pcm
from voicejobs.audio.resample import Resampler
from voicejobs.audio.timeline import Timeline
from voicejobs.audio.types import Pcm
from voicejobs.errors import BadOption, Damaged, EmptyFile, TooLong, Unreadable
from voicejobs.units import SAMPLE_RATE_HZ, samples_to_seconds

if TYPE_CHECKING:
    import av
    from av.audio.stream import AudioStream
    from av.container import InputContainer

ChannelMode = Literal["mix", "split", "left", "right"]

BLOCK_S = 5.0
MAX_SPLIT_CHANNELS = 8
MAX_READ_ERRORS = 100
MOST_UNDECODABLE = 20
"""Packets that cannot be decoded, for each that can, beyond which the file is no recording."""
_BYTES_PER_SAMPLE = 2
_NUMPY_FORMATS = frozenset({"u8", "u8p", "s16", "s16p", "s32", "s32p", "flt", "fltp", "dbl", "dblp"})
# PyAV walks the planes of a frame up to a null pointer that FFmpeg only promises below eight of them.
_MAX_PLANES = 7
_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """Say what to make of the channels, and where to stop.

    Args:
        channels: `mix` to one channel, `split` into one signal for each channel, or one side only.
        max_audio_s: longest decoded audio in seconds.
        max_bytes: most bytes of decoded PCM, over all channels; None sets no limit of its own.
        memory_bytes: address space of the decoder process.
        stall_timeout_s: seconds without any decoded audio after which the decoder counts as hung.
        name: how messages call the recording; empty for its path.
    """

    channels: ChannelMode = "mix"
    max_audio_s: float = 48 * 3600.0
    max_bytes: int | None = None
    memory_bytes: int = 1 << 30
    stall_timeout_s: float = 60.0
    name: str = ""

    def named(self, path: str | os.PathLike[str]) -> str:
        """Return how messages call the recording at `path`."""
        return self.name or accept.printable(path)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Build options from `to_json`."""
        return cls(**data)


@dataclass(frozen=True, slots=True)
class DecodedInfo:
    """Tell what was opened.

    Args:
        codec: FFmpeg's name of the decoder, for example `mp3float`.
        container: FFmpeg's name of the container, for example `wav`.
        rate_hz: sampling rate of the source as the header has it.
        channels: channels of the source.
        layout: FFmpeg's name of their layout, for example `stereo`.
        output_channels: signals that come out: 1, or with `split` one for each channel.
        start_offset_s: how much later than its container the sound starts; already padded with silence.
        claimed_duration_s: what the header says, good for progress bars only; None where it says nothing.
    """

    codec: str
    container: str
    rate_hz: int
    channels: int
    layout: str
    output_channels: int
    start_offset_s: float
    claimed_duration_s: float | None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Build it from `to_json`."""
        return cls(**data)


@contextmanager
def decode(path: str | os.PathLike[str], options: DecodeOptions) -> "Iterator[DecodedAudio]":
    """Open a recording and yield it as `DecodedAudio`, ready to be read block by block.

    Raises:
        NotFound, Unreadable, EmptyFile, NotAudio, NoAudioStream, BadHeader, Damaged, BadOption: as their names say.
    """
    name = options.named(path)
    look = accept.look_at(path, name)
    with opened(path, name, look) as container:
        stream = choose_stream(container, name)
        if container.format.name == "gsm":
            accept.check_gsm(name, look)
        codec = stream.codec_context
        accept.check_header(name, codec.sample_rate, codec.layout.nb_channels, look)
        yield DecodedAudio(container, stream, options, name, starts_at_zero=look.counts_from_zero)


class DecodedAudio:
    """Read an open recording: `info` first, then `blocks`; `samples` counts what came out of each channel.

    `skipped_packets` counts what could not be decoded; gaps that it leaves are filled with silence.

    Args:
        container: what was opened.
        stream: the sound track to decode.
        options: what to make of it.
        name: the file's name as text, for messages.
        starts_at_zero: the clock of the container starts at 0, rather than at the first time stamp in it.
    """

    def __init__(
        self,
        container: "InputContainer",
        stream: "AudioStream",
        options: DecodeOptions,
        name: str,
        *,
        starts_at_zero: bool = False,
    ) -> None:
        self._container = container
        self._stream = stream
        self._options = options
        self._name = name
        self.samples = 0
        self.skipped_packets = 0
        self._decoded = 0
        self._undecodable = 0
        start_s = (container.start_time or 0) / _MICROSECONDS
        self._origin_s = min(0.0, start_s) if starts_at_zero else start_s
        self.info = self._describe()
        clocked = not accept.CLOCKED_FORMATS.isdisjoint(self.info.container.split(","))
        self._timeline = Timeline(self._origin_s, clocked=clocked)

    def blocks(self) -> Iterator[tuple[Pcm, ...]]:
        """Yield blocks of about five seconds, one array for each output channel, all of the same length.

        Raises:
            TooLong: the audio passes a limit of the options.
            EmptyFile: no samples at all.
            Damaged: nothing could be decoded.
        """
        route: _Route | None = None
        for planes, source in self._gathered():
            if route is None or route.source != source:
                if route is not None:
                    yield from self._counted(route.finish())
                route = _Route(source, self._options.channels, self.info.output_channels)
            yield from self._counted(route.feed(planes))
        if route is not None:
            yield from self._counted(route.finish())
        self._demand_sound()

    def _demand_sound(self) -> None:
        """Raise what is wrong where nothing was decoded, or so little of so much that chance explains it.

        A few bytes in a thousand of noise look like a frame of MP3; a recording that is damaged keeps more than that.
        """
        if self.samples == 0:
            if self.skipped_packets or self.info.claimed_duration_s:
                raise Damaged(f"{self._name}: none of its sound can be decoded", skipped_packets=self.skipped_packets)
            raise EmptyFile(f"{self._name}: holds no sound (0 samples)")
        if self._undecodable > MOST_UNDECODABLE * self._decoded:
            raise Damaged(
                f"{self._name}: nearly none of its sound can be decoded "
                f"({self._undecodable} of {self._undecodable + self._decoded} packets cannot)",
                skipped_packets=self.skipped_packets,
            )

    def _describe(self) -> DecodedInfo:
        """Collect what is known before decoding."""
        stream, container = self._stream, self._container
        codec = stream.codec_context
        rate_hz, channels = codec.sample_rate, codec.layout.nb_channels
        split = self._options.channels == "split"
        if split and channels > MAX_SPLIT_CHANNELS:
            raise BadOption(
                f"{self._name}: has {channels} channels; at most {MAX_SPLIT_CHANNELS} can be split",
                hint="Use --channels mix.",
            )
        offset_s = 0.0
        if stream.start_time is not None and stream.time_base is not None:
            offset_s = float(stream.start_time * stream.time_base) - self._origin_s
        duration = container.duration
        return DecodedInfo(
            codec=codec.name,
            container=container.format.name,
            rate_hz=rate_hz,
            channels=channels,
            layout=codec.layout.name,
            output_channels=channels if split else 1,
            start_offset_s=max(0.0, offset_s),
            claimed_duration_s=None if duration is None or duration < 0 else duration / _MICROSECONDS,
        )

    def _counted(self, signals: list[Pcm]) -> Iterator[tuple[Pcm, ...]]:
        """Count the samples of a block and check the limits."""
        count = len(signals[0])
        if count == 0:
            return
        self.samples += count
        options = self._options
        if self.samples > options.max_audio_s * SAMPLE_RATE_HZ:
            raise TooLong(f"{self._name}: is longer than {options.max_audio_s:g} s", limit_s=options.max_audio_s)
        size_bytes = self.samples * len(signals) * _BYTES_PER_SAMPLE
        if options.max_bytes is not None and size_bytes > options.max_bytes:
            raise TooLong(
                f"{self._name}: decodes to more than {options.max_bytes} bytes",
                hint="Cut the recording, or raise VOICEJOBS_MAX_DECODED_BYTES.",
                limit_bytes=options.max_bytes,
                decoded_s=samples_to_seconds(self.samples),
            )
        yield tuple(signals)

    def _gathered(self) -> "Iterator[tuple[NDArray[Any], _Source]]":
        """Yield arrays (channels, samples) of at most a block each, joined from the small ones of the frames."""
        pending: list[NDArray[Any]] = []
        held_samples = 0
        current: _Source | None = None
        for planes, source in self._pieces():
            full = held_samples + planes.shape[1] > source.block_samples
            if pending and current is not None and (full or source != current):
                yield np.concatenate(pending, axis=1), current
                pending, held_samples = [], 0
            current = source
            pending.append(planes)
            held_samples += planes.shape[1]
        if pending and current is not None:
            yield np.concatenate(pending, axis=1), current

    def _pieces(self) -> "Iterator[tuple[NDArray[Any], _Source]]":
        """Yield the samples of each frame, none longer than a block, and the silence that belongs between them."""
        for frame in self._frames():
            planes = _to_planes(frame)
            source = _Source.of(frame, planes)
            accept.check_header(self._name, source.rate_hz, planes.shape[0])
            gap_s = self._timeline.place(frame.time, planes.shape[1] / source.rate_hz, self.skipped_packets)
            gap_samples = round(gap_s * source.rate_hz)
            while gap_samples > 0:
                step = min(gap_samples, source.block_samples)
                yield source.silence(step), source
                gap_samples -= step
            for start in range(0, planes.shape[1], source.block_samples):
                yield planes[:, start : start + source.block_samples], source

    def _frames(self) -> "Iterator[av.AudioFrame]":
        """Decode packet after packet; one that cannot be decoded is skipped and counted."""
        import av

        for packet in self._packets():
            try:
                frames = [frame for frame in packet.decode() if frame.samples]
            except MemoryError:
                raise
            except av.error.FFmpegError:
                self.skipped_packets += 1
                self._undecodable += 1
                continue
            self._decoded += bool(frames)
            yield from frames

    def _packets(self) -> "Iterator[av.Packet[AudioStream]]":
        """Read packets; after a damaged stretch of the container reading goes on, as long as that leads anywhere."""
        import av

        errors = 0
        while True:
            try:
                for packet in self._container.demux(self._stream):
                    errors = 0
                    yield packet
                return
            except MemoryError:
                raise
            except av.error.FFmpegError as error:
                if error.errno in {errno.EIO, errno.ESTALE}:
                    raise Unreadable(f"{self._name}: reading failed ({error.strerror})") from error
                errors += 1
                self.skipped_packets += 1
                if errors >= MAX_READ_ERRORS:
                    return


@dataclass(frozen=True, slots=True)
class _Source:
    """Describe the samples of a frame; another value in mid-stream starts another route."""

    rate_hz: int
    speakers: tuple[str, ...]
    dtype: str

    @classmethod
    def of(cls, frame: "av.AudioFrame", planes: NDArray[Any]) -> Self:
        """Describe a frame."""
        speakers = tuple(channel.name for channel in frame.layout.channels)
        return cls(frame.sample_rate, speakers[: planes.shape[0]], planes.dtype.str)

    @property
    def block_samples(self) -> int:
        """Return the length of a block at this rate."""
        return max(1, int(BLOCK_S * self.rate_hz))

    def silence(self, samples: int) -> NDArray[Any]:
        """Return silence in this format."""
        dtype = np.dtype(self.dtype)
        return np.full((len(self.speakers), samples), 128 if dtype == np.uint8 else 0, dtype=dtype)


class _Route:
    """Take blocks of one source format to the output channels: mix or select, then resample."""

    def __init__(self, source: _Source, mode: ChannelMode, outputs: int) -> None:
        self.source = source
        self._mode = mode
        # Nothing to mix, to resample or to round: the way through float would change no sample, only cost time.
        plain = source.rate_hz == SAMPLE_RATE_HZ and np.dtype(source.dtype) == np.int16
        self._untouched = plain and len(source.speakers) == outputs == 1
        self._mixer = Mixer(source.speakers, source.rate_hz)
        self._resamplers = [Resampler(source.rate_hz) for _ in range(outputs)]

    def feed(self, planes: NDArray[Any]) -> list[Pcm]:
        """Return the samples of each output channel that are complete."""
        if self._untouched:
            return [np.ascontiguousarray(planes[0])]
        signals = self._select(to_float(planes))
        return [to_pcm(resampler.feed(signal)) for resampler, signal in zip(self._resamplers, signals, strict=True)]

    def finish(self) -> list[Pcm]:
        """Return what the resamplers still hold."""
        return [to_pcm(resampler.finish()) for resampler in self._resamplers]

    def _select(self, block: Samples) -> list[Samples]:
        """Return one signal for each output channel."""
        channels, samples = block.shape
        if self._mode == "mix":
            return [self._mixer.mix(block)]
        if self._mode == "left":
            return [block[0]]
        if self._mode == "right":
            return [block[min(1, channels - 1)]]
        # The number of channels may change in mid-stream; the number of signals may not.
        missing = [np.zeros(samples, dtype=np.float32)] * (len(self._resamplers) - channels)
        return [*block[: len(self._resamplers)], *missing]


def _to_planes(frame: "av.AudioFrame") -> NDArray[Any]:
    """Return the samples of a frame, shape (channels, samples), in their own type."""
    channels = frame.layout.nb_channels
    if frame.format.name not in _NUMPY_FORMATS or (frame.format.is_planar and channels > _MAX_PLANES):
        import av

        converted = av.AudioResampler(format="flt", layout=frame.layout, rate=frame.sample_rate).resample(frame)
        return np.concatenate([part.to_ndarray().reshape(-1, channels).T for part in converted], axis=1)
    planes = frame.to_ndarray()
    return planes if frame.format.is_planar else planes.reshape(-1, channels).T
