"""Makers of odd recordings: cut, patched, tagged and re-timed, out of whole ones that PyAV writes."""

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.unit.audio.recordings import frames_for
from voicejobs.audio.decode import DecodedAudio, DecodeOptions, decode
from voicejobs.audio.types import Pcm
from voicejobs.errors import InputError

RATE_HZ = 16_000
TOLERANCE_S = 0.05


def run(path: Path) -> tuple[Pcm, DecodedAudio]:
    """Decode a whole recording to one channel."""
    with decode(path, DecodeOptions()) as audio:
        blocks = [block for (block,) in audio.blocks()]
    return np.concatenate(blocks), audio


def seconds(path: Path) -> float:
    """Return the length of what a recording decodes to."""
    return len(run(path)[0]) / RATE_HZ


def first_sound_s(pcm: Pcm) -> float:
    """Return when the sound starts."""
    return float(np.flatnonzero(np.abs(pcm.astype(np.int32)) > 1500)[0]) / RATE_HZ


def outcome(path: Path) -> float | InputError:
    """Return the length of what a recording decodes to, or the error that it is refused with."""
    try:
        return seconds(path)
    except InputError as error:
        return error


def noise(size_bytes: int, seed: int = 1, below: int = 256) -> bytes:
    """Return random bytes; those below 250 hold nothing that looks like the start of an MPEG frame."""
    return np.random.default_rng(seed).integers(0, below, size_bytes, dtype=np.uint8).tobytes()


def patched_wav(wav: bytes, **fields: int) -> bytes:
    """Return a WAV file with other numbers in its header: tag, channels, rate, align, bits, data_size, riff_size."""
    data = bytearray(wav)
    fmt = data.index(b"fmt ") + 8
    size = data.index(b"data") + 4
    places = {
        "tag": ("<H", fmt), "channels": ("<H", fmt + 2), "rate": ("<I", fmt + 4), "align": ("<H", fmt + 12),
        "bits": ("<H", fmt + 14), "data_size": ("<I", size), "riff_size": ("<I", 4),
    }  # fmt: skip
    for name, value in fields.items():
        struct.pack_into(places[name][0], data, places[name][1], value)
    return bytes(data)


def id3_tag(body: bytes, claimed_bytes: int | None = None) -> bytes:
    """Return an ID3v2.3 tag around `body`, of the size that it claims to have."""
    size = len(body) if claimed_bytes is None else claimed_bytes
    return b"ID3\x03\x00\x00" + bytes((size >> shift) & 127 for shift in (21, 14, 7, 0)) + body


def id3_picture(picture: bytes) -> bytes:
    """Return the frame of an ID3v2.3 tag that holds a picture, called a JPEG whatever it is."""
    body = b"\x00image/jpeg\x00\x03\x00" + picture
    return b"APIC" + struct.pack(">I", len(body)) + b"\x00\x00" + body


def without_id3(mp3: bytes) -> bytes:
    """Return an MP3 file without the tag at its start."""
    if not mp3.startswith(b"ID3"):
        return mp3
    size = mp3[6] << 21 | mp3[7] << 14 | mp3[8] << 7 | mp3[9]
    return mp3[10 + size :]


def flac_with_picture(flac: bytes, picture: bytes) -> bytes:
    """Return a FLAC file with a picture block behind STREAMINFO, which is always the first block."""
    kind = b"image/png"
    block = struct.pack(">II", 3, len(kind)) + kind + struct.pack(">I", 0) + bytes(16)
    block += struct.pack(">I", len(picture)) + picture
    stream_info_ends = 4 + 4 + 34
    head = bytearray(flac[:stream_info_ends])
    head[4] &= 0x7F  # no longer the last block
    return bytes(head) + b"\x06" + len(block).to_bytes(3, "big") + block + flac[stream_info_ends:]


def with_edits(mp4: bytes, edits: Sequence[tuple[int, int]]) -> bytes:
    """Return an MP4 file whose index lies at its end with another edit list: (duration, media time) for each edit.

    Durations count in the time scale of the film, media times in that of the track; -1 is a pause.
    """
    entry = struct.pack(">4sII", b"elst", 0, len(edits))
    entry += b"".join(struct.pack(">IiI", length, start, 1 << 16) for length, start in edits)
    data = mp4
    where = data.index(b"elst") - 4
    old_bytes = struct.unpack_from(">I", data, where)[0]
    grown = len(entry) + 4 - old_bytes
    changed = bytearray(data[:where] + struct.pack(">I", len(entry) + 4) + entry + data[where + old_bytes :])
    for parent in (b"edts", b"trak", b"moov"):
        place = changed.rindex(parent, 0, where) - 4
        struct.pack_into(">I", changed, place, struct.unpack_from(">I", changed, place)[0] + grown)
    return bytes(changed)


def write_pieces(
    path: Path, codec: str, pieces: Sequence[tuple[float, NDArray[np.float32]]], *, rate_hz: int = 48_000
) -> Path:
    """Write one sound track whose pieces start at these seconds, with nothing between them.

    The pieces must not be much shorter than a frame of the codec: each is cut to whole frames.
    """
    import av
    from av.audio.stream import AudioStream

    with av.open(str(path), "w") as output:
        stream = output.add_stream(codec, rate=rate_hz, layout="mono")
        assert isinstance(stream, AudioStream)
        together = np.concatenate([signal for _, signal in pieces], axis=1)
        edges = np.cumsum([signal.shape[1] for _, signal in pieces])
        for frame in frames_for(stream, together):
            assert frame.pts is not None
            number = int(np.searchsorted(edges, frame.pts, side="right"))
            number = min(number, len(pieces) - 1)
            began = int(edges[number]) - pieces[number][1].shape[1]
            frame.pts += round(pieces[number][0] * rate_hz) - began
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return path
