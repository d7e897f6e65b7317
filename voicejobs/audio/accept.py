"""What decoding accepts: formats, codecs, rates and channels; and what to say of a file that it refuses."""

import errno
import os
import stat
import struct
from dataclasses import dataclass

from voicejobs.errors import BadHeader, Damaged, EmptyFile, InputError, NotAudio, NotFound, Unreadable

FORMATS = (
    "wav", "w64", "mp3", "flac", "ogg", "mov", "matroska", "aac", "aiff", "caf", "amr", "au",
    "ac3", "eac3", "gsm", "mpegts", "asf", "avi",
)  # fmt: skip
"""FFmpeg's names of the containers that may be opened: none of them refers to another file or to the network."""

CODECS = frozenset({
    "aac", "aac_latm", "ac3", "alac", "amrnb", "amrwb", "dca", "eac3", "flac", "mlp", "opus", "speex", "truehd",
    "vorbis", "wavpack", "wmalossless", "wmapro", "wmav1", "wmav2", "wmavoice",
    "mp1", "mp1float", "mp2", "mp2float", "mp3", "mp3float",
    "adpcm_ima_qt", "adpcm_ima_wav", "adpcm_ms", "adpcm_yamaha", "g722", "g723_1", "g726", "g726le", "g729",
    "gsm", "gsm_ms", "truespeech",
    "pcm_alaw", "pcm_mulaw", "pcm_u8", "pcm_s8", "pcm_s16le", "pcm_s16be", "pcm_u16le", "pcm_u16be", "pcm_s24le",
    "pcm_s24be", "pcm_u24le", "pcm_u24be", "pcm_s32le", "pcm_s32be", "pcm_u32le", "pcm_u32be", "pcm_s64le",
    "pcm_s64be", "pcm_f32le", "pcm_f32be", "pcm_f64le", "pcm_f64be",
})  # fmt: skip
"""Decoders that may run, by FFmpeg's names; checked in Python, since FFmpeg's own list does not hold for decoding."""

CLOCKED_FORMATS = frozenset({"ogg", "mov", "matroska", "mpegts", "asf"})
"""Containers whose time stamps are a clock, so that a gap between them is silence; others merely count samples."""

MIN_RATE_HZ = 1000
"""Speech has nothing left below it; and one second at 1 Hz would become 16,000 samples for each of the file's."""
MAX_RATE_HZ = 384_000
MAX_CHANNELS = 32
HEAD_BYTES = 4096
_TS_PACKET_BYTES = 188
_TS_SYNC = 0x47
_GSM_FRAME_BYTES = 33
_GSM_MAGIC = 0xD

# Words that start a DTS or IEC 61937 stream: their presence in a WAV file means that its samples are no samples.
_DISGUISED = (b"\x7f\xfe\x80\x01", b"\xfe\x7f\x01\x80", b"\x1f\xff\xe8\x00", b"\xff\x1f\x00\xe8", b"\x72\xf8\x1f\x4e")

_AUDIO_MAGIC = (
    (0, b"RIFF", "a WAV or AVI file"), (0, b"RF64", "a WAV file"), (0, b"riff", "a W64 file"), (0, b"fLaC", "FLAC"),
    (0, b"OggS", "an Ogg file"), (0, b"ID3", "an MP3 file or another with an ID3 tag"), (4, b"ftyp", "an MP4 file"),
    (0, b"\x1a\x45\xdf\xa3", "a Matroska or WebM file"), (0, b"FORM", "an AIFF file"), (0, b"caff", "a CAF file"),
    (0, b"#!AMR", "an AMR file"), (0, b".snd", "an AU file"), (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "a WMA file"),
)  # fmt: skip
_OTHER_MAGIC = (
    (b"<!doctype html", "a web page"), (b"<html", "a web page"), (b"<?xml", "a text file (XML)"),
    (b"pk\x03\x04", "a ZIP archive"), (b"rar!\x1a\x07", "a RAR archive"), (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x1f\x8b", "a gzip archive"), (b"bzh", "a bzip2 archive"), (b"\xfd7zxz", "an xz archive"),
    (b"%pdf", "a PDF document"), (b"#extm3u", "a playlist, not the sound itself"),
    (b"ffconcat", "a playlist, not the sound itself"), (b"v=0", "a session description, not the sound itself"),
    (b"\x89png", "a picture"), (b"\xff\xd8\xff", "a picture"), (b"gif8", "a picture"), (b"{", "a text file"),
    (b"\x7felf", "a program"), (b"mz\x90", "a program"), (b"mthd", "MIDI, which holds notes and no sound"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself"), (b"sqlite format 3", "a database"),
)  # fmt: skip
_UNREAD_MAGIC = (
    (b"FLV\x01", "a Flash film (FLV)"), (b"\x00\x00\x01\xba", "an MPEG program stream (MPG, VOB)"),
    (b".RMF", "a RealMedia file"), (b".ra\xfd", "a RealAudio file"), (b"wvpk", "a WavPack file"),
    (b"TTA1", "a True Audio file"), (b"MAC ", "a Monkey's Audio file"), (b"MPCK", "a Musepack file"),
    (b"MP+", "a Musepack file"), (b"Creative Voice File", "a Creative Voice file"), (b"DSD ", "a DSD file"),
    (b"NIST_1A", "a NIST SPHERE file"),
)  # fmt: skip
"""Sound in containers that are not on the list: what is wrong is the container, and another one cures it."""


@dataclass(frozen=True, slots=True)
class Look:
    """Hold what the first look at a file shows: its size and its first bytes."""

    size_bytes: int
    head: bytes

    @property
    def plain_wav(self) -> bool:
        """Return whether it is a WAV file whose samples hide no DTS or AC-3 stream, as far as the head shows."""
        is_wav = self.head[:4] in {b"RIFF", b"RF64"} and self.head[8:12] == b"WAVE"
        return is_wav and not any(word in self.head for word in _DISGUISED)

    @property
    def counts_from_zero(self) -> bool:
        """Return whether it is an MP4 file whose edit lists say where on its clock, which starts at 0, the sound lies.

        One made of fragments is often a piece of a stream: its stamps count from the start of that.
        """
        return self.head[4:8] == b"ftyp" and b"mvex" not in self.head


def printable(path: str | os.PathLike[str]) -> str:
    """Return a path as text that can be written anywhere: bytes that are not UTF-8 become replacement characters."""
    return os.fsencode(path).decode("utf-8", "replace")


def look_at(path: str | os.PathLike[str], name: str = "") -> Look:
    """Read the head of a regular file, which messages call `name`, or by its path.

    Raises:
        NotFound, Unreadable, EmptyFile: as their names say.
    """
    name = name or printable(path)
    try:
        # O_NONBLOCK: opening a fifo would wait for its writer for ever.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:
        raise NotFound(f"{name!r}: no file can have this name") from error
    except OSError as error:
        raise reading_error(name, error) from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable(f"{name}: not a regular file", hint="Give the name of a recording.")
        if status.st_size == 0:
            raise EmptyFile(f"{name}: the file is empty (0 bytes)")
        return Look(status.st_size, os.pread(fd, HEAD_BYTES, 0))
    except OSError as error:
        raise reading_error(name, error) from error
    finally:
        os.close(fd)


def reading_error(name: str, error: OSError) -> InputError:
    """Return the error of the tree for a failed `open` or `read`."""
    if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}:
        return NotFound(f"{name}: there is no such file")
    return Unreadable(f"{name}: cannot be read ({error.strerror})")


def refusal(name: str, look: Look) -> InputError:
    """Return what to say of a file that no accepted container opens."""
    header = _wav_header(look.head)
    if header is not None:
        channels, rate_hz = header
        if not (MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ and 1 <= channels <= MAX_CHANNELS):
            return bad_header(name, rate_hz, channels)
    for offset, magic, kind in _AUDIO_MAGIC:
        if look.head[offset : offset + len(magic)] == magic:
            return Damaged(
                f"{name}: starts like {kind}, but cannot be opened: it is cut off or damaged", looks_like=kind
            )
    if _is_transport_stream(look.head):
        kind = "an MPEG transport stream"
        return Damaged(f"{name}: starts like {kind}, but cannot be opened: it is cut off or damaged", looks_like=kind)
    for magic, kind in _UNREAD_MAGIC:
        if look.head.startswith(magic):
            return NotAudio(f"{name}: is {kind}, a format that voicejobs does not read", looks_like=kind)
    text = look.head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for magic, kind in _OTHER_MAGIC:
        if text.startswith(magic):
            return NotAudio(f"{name}: is not a recording; it looks like {kind}", looks_like=kind)
    return NotAudio(f"{name}: is not a recording in any format that voicejobs reads")


def check_header(name: str, rate_hz: int, channels: int, look: Look | None = None) -> None:
    """Raise what is wrong where no recording has this rate or this number of channels.

    Args:
        name: the file's name as text.
        rate_hz: sampling rate as FFmpeg has it, 0 where it found none.
        channels: number of channels as FFmpeg has it, 0 where it found none.
        look: the first look at the file; without it the numbers are taken as those of the header.

    Raises:
        BadHeader: the header promises the impossible.
        Damaged, NotAudio: there is no header; FFmpeg opened the file for its name, or for a few bytes in it.
    """
    if MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ and 1 <= channels <= MAX_CHANNELS:
        return
    unknown = rate_hz == 0 or channels == 0
    raise refusal(name, look) if unknown and look is not None else bad_header(name, rate_hz, channels)


def check_gsm(name: str, look: Look) -> None:
    """Raise `NotAudio` where a file whose ending alone says GSM does not start with frames of it."""
    nibbles = [byte >> 4 for byte in look.head[::_GSM_FRAME_BYTES]]
    if nibbles.count(_GSM_MAGIC) * 2 <= len(nibbles):
        raise refusal(name, look)


def bad_header(name: str, rate_hz: int, channels: int) -> BadHeader:
    """Return the error for a rate or a number of channels out of bounds."""
    return BadHeader(
        f"{name}: the header promises {channels} channels at {rate_hz} Hz; "
        f"1 to {MAX_CHANNELS} channels at {MIN_RATE_HZ} to {MAX_RATE_HZ} Hz are possible",
        rate_hz=rate_hz,
        channels=channels,
    )


def _is_transport_stream(head: bytes) -> bool:
    """Tell whether every packet in the head of a file starts with the byte that MPEG-TS packets start with."""
    starts = head[::_TS_PACKET_BYTES]
    return len(head) >= _TS_PACKET_BYTES and set(starts) == {_TS_SYNC}


def _wav_header(head: bytes) -> tuple[int, int] | None:
    """Return (channels, rate in Hz) as the `fmt ` chunk of a WAV file says, or None where there is none."""
    if head[:4] not in {b"RIFF", b"RF64"} or head[8:12] != b"WAVE":
        return None
    position = 12
    while position + 16 <= len(head):
        chunk, size_bytes = struct.unpack_from("<4sI", head, position)
        if chunk == b"fmt ":
            channels, rate_hz = struct.unpack_from("<HI", head, position + 10)
            return int(channels), int(rate_hz)
        position += 8 + size_bytes + size_bytes % 2
    return None
