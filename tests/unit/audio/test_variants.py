"""A corpus of odd recordings: each decodes to its length, or is refused with an error that says what is wrong."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from tests.unit.audio.recordings import encode, frames_for, tones, write_wav
from tests.unit.audio.variants import (
    RATE_HZ,
    TOLERANCE_S,
    flac_with_picture,
    id3_picture,
    id3_tag,
    noise,
    outcome,
    patched_wav,
    run,
    seconds,
    without_id3,
)
from voicejobs.errors import BadHeader, Damaged, EmptyFile, InputError, NoAudioStream, NotAudio

pytest.importorskip("av", reason="the extra `worker` is not installed")

LONGEST_FRAME_S = 0.14
"""A frame of AAC at 7350 Hz: what an encoder may add at the end to fill its last one."""


def wav_of(path: Path, length_s: float = 3.0) -> bytes:
    """Return a WAV file of a tone, 16 kHz mono int16."""
    signal = tones(0.5, seconds=length_s, rate_hz=RATE_HZ)
    return encode(path, signal, "pcm_s16le", "mono", rate_hz=RATE_HZ).read_bytes()


# --- cut off

CUT_KINDS = [
    ("a.wav", "pcm_s16le"), ("a.w64", "pcm_s16le"), ("a.aiff", "pcm_s16be"), ("a.au", "pcm_s16be"),
    ("a.flac", "flac"), ("a.oga", "flac"), ("a.mp3", "libmp3lame"), ("a.aac", "aac"), ("a.ac3", "ac3"),
    ("a.opus", "libopus"), ("a.webm", "libopus"), ("a.mkv", "aac"), ("a.ts", "aac"), ("a.wma", "wmav2"),
    ("a.avi", "mp2"), ("a.caf", "pcm_s16be"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "codec"), CUT_KINDS)
def test_what_is_left_of_a_cut_file_is_decoded(tmp_path: Path, name: str, codec: str) -> None:
    """A file that is cut at a tenth of its length decodes to about that tenth, and never to more than there is."""
    data = encode(tmp_path / name, tones(0.5, seconds=10), codec, "mono").read_bytes()
    path = tmp_path / f"cut-{name}"
    before_s = 0.0
    for tenth in range(2, 10):
        path.write_bytes(data[: len(data) * tenth // 10])
        length_s = outcome(path)
        if isinstance(length_s, InputError) and tenth <= 3:
            assert isinstance(length_s, Damaged)  # Ogg: not one page of sound is whole
            continue
        assert not isinstance(length_s, InputError), length_s
        assert before_s < length_s <= tenth + 0.4, tenth
        before_s = length_s
    assert before_s >= 8.0


@pytest.mark.parametrize(("name", "codec"), [*CUT_KINDS, ("a.m4a", "aac"), ("a.mov", "alac"), ("b.caf", "alac")])
def test_the_first_bytes_of_a_recording_are_an_ordinary_error(tmp_path: Path, name: str, codec: str) -> None:
    """However few bytes are left, the error is one of the input, names the file, and says no header what it is not."""
    data = encode(tmp_path / name, tones(0.5), codec, "mono").read_bytes()
    path = tmp_path / f"cut-{name}"
    for size in (1, 3, 4, 8, 12, 20):
        path.write_bytes(data[:size])
        with pytest.raises((NotAudio, Damaged, EmptyFile, NoAudioStream), match=path.name) as caught:
            run(path)
        assert caught.value.hint


@pytest.mark.parametrize(("name", "codec"), [("a.m4a", "aac"), ("a.mov", "alac"), ("a.mp4", "ac3"), ("a.caf", "alac")])
def test_a_file_without_its_index_is_damaged(tmp_path: Path, name: str, codec: str) -> None:
    """Where the index lies at the end, whatever is cut off takes it along, and the message says what it was."""
    data = encode(tmp_path / name, tones(0.5, seconds=10), codec, "mono").read_bytes()
    for tenth in range(1, 10):
        (tmp_path / name).write_bytes(data[: len(data) * tenth // 10])
        with pytest.raises(Damaged, match="starts like"):
            run(tmp_path / name)


@pytest.mark.parametrize("flags", ["faststart", "frag_keyframe+empty_moov+default_base_moof"])
def test_an_mp4_with_its_index_in_front_may_be_cut(tmp_path: Path, flags: str) -> None:
    """With the index in front, or in fragments, the sound up to the cut is decoded."""
    import av
    from av.audio.stream import AudioStream

    path = tmp_path / "a.mp4"
    with av.open(str(path), "w", options={"movflags": flags}) as output:
        stream = output.add_stream("aac", rate=48_000, layout="mono")
        assert isinstance(stream, AudioStream)
        for frame in frames_for(stream, tones(0.5, seconds=10)):
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    data = path.read_bytes()
    for tenth in (3, 6, 9):
        path.write_bytes(data[: len(data) * tenth // 10])
        assert seconds(path) == pytest.approx(tenth, abs=0.25)


# --- headers


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"rate": 0}, BadHeader), ({"rate": 1}, BadHeader), ({"rate": 7}, BadHeader),
        ({"rate": 4_000_000_000}, BadHeader), ({"channels": 0}, BadHeader), ({"channels": 33}, BadHeader),
        ({"channels": 65_535}, BadHeader), ({"channels": 2}, 1.5), ({"channels": 3}, 1.0), ({"channels": 6}, 0.5),
        ({"channels": 8}, 0.375), ({"channels": 32}, 0.09375), ({"align": 0}, 3.0), ({"align": 65_535}, 3.0),
        ({"bits": 0}, NotAudio), ({"bits": 65_535}, NotAudio), ({"bits": 12}, 3.0),
        ({"tag": 0}, NotAudio), ({"tag": 0x11}, Damaged), ({"tag": 0x55}, Damaged), ({"tag": 0xFFFF}, NotAudio),
        ({"data_size": 0}, 3.0), ({"data_size": 1}, Damaged), ({"data_size": 2**31}, 3.0),
        ({"data_size": 2**32 - 1}, 3.0), ({"riff_size": 0}, 3.0), ({"riff_size": 2**32 - 1}, 3.0),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_numbers_in_the_header_of_a_wav(
    tmp_path: Path, fields: dict[str, int], expected: type[InputError] | float
) -> None:
    """Each wrong number has its outcome: refused under its code, or decoded to the samples that are there."""
    path = tmp_path / "a.wav"
    path.write_bytes(patched_wav(wav_of(path), **fields))
    if isinstance(expected, float):
        assert seconds(path) == pytest.approx(expected, abs=0.001)
        return
    with pytest.raises(expected, match=r"a\.wav"):
        run(path)


def test_the_message_tells_the_numbers_of_the_header(tmp_path: Path) -> None:
    """It is the file's own number of channels that the message names, not what FFmpeg made of it."""
    with pytest.raises(BadHeader, match="65535 channels at 16000 Hz"):
        run(write_wav(tmp_path / "a.wav", channels=65_535))


@pytest.mark.parametrize("name", ["a.mp3", "a.ac3", "a.flac", "a.aac", "a.gsm", "a.amr", "a.ts", "a.m4a", "a", "a.wav"])
@pytest.mark.parametrize("kind", ["zeros", "ones", "noise", "text"])
def test_what_is_no_recording_is_none_under_any_name(tmp_path: Path, name: str, kind: str) -> None:
    """Bytes without a format are refused whatever they are called: FFmpeg guesses by the ending, and must not win."""
    data = {"zeros": bytes(300_000), "ones": b"\xff" * 300_000, "noise": noise(300_000), "text": b"no sound\n" * 30_000}
    (tmp_path / name).write_bytes(data[kind])
    with pytest.raises((NotAudio, Damaged), match=name):
        run(tmp_path / name)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"FLV\x01\x05\x00\x00\x00\x09" + bytes(99), "Flash film"), (b"\x00\x00\x01\xba" + bytes(99), "MPEG program"),
        (b"wvpk" + bytes(99), "WavPack"), (b".RMF" + bytes(99), "RealMedia"), (b"MThd" + bytes(99), "MIDI"),
        (gzip.compress(b"x" * 99, mtime=0), "gzip archive"), (b"Rar!\x1a\x07\x01\x00", "RAR archive"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(99), "7z archive"), (b"<?xml version='1.0'?><x/>", "XML"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"), (b"\x7fELF" + bytes(99), "program"),
    ],
)  # fmt: skip
def test_known_files_that_are_not_read_are_called_by_their_name(tmp_path: Path, data: bytes, says: str) -> None:
    """The message says what the file is, so that one knows what to do with it."""
    (tmp_path / "a.mp3").write_bytes(data)
    with pytest.raises(NotAudio, match=says):
        run(tmp_path / "a.mp3")


# --- codecs and samples


@pytest.mark.parametrize(
    ("name", "codec", "layout", "rate_hz"),
    [
        ("a.wav", "pcm_alaw", "mono", 8000), ("a.wav", "pcm_mulaw", "stereo", 8000), ("a.wav", "pcm_u8", "mono", 8000),
        ("a.wav", "adpcm_ima_wav", "mono", 22_050), ("a.wav", "adpcm_ms", "stereo", 22_050),
        ("a.mov", "adpcm_ima_qt", "mono", 22_050), ("a.wav", "g722", "mono", 16_000), ("a.wav", "g726", "mono", 8000),
        ("a.wav", "pcm_s24le", "stereo", 96_000), ("a.wav", "pcm_s32le", "mono", 192_000),
        ("a.wav", "pcm_f64le", "mono", 11_025), ("a.aiff", "pcm_s24be", "stereo", 44_100),
        ("a.w64", "pcm_f64le", "7.1", 48_000), ("a.caf", "pcm_f32be", "5.1", 48_000),
        ("a.amr", "libopencore_amrnb", "mono", 8000), ("a.3gp", "libopencore_amrnb", "mono", 8000),
        ("a.mkv", "wavpack", "stereo", 44_100), ("a.flac", "flac", "5.1", 48_000), ("a.ac3", "ac3", "5.1", 48_000),
        ("a.m4a", "alac", "5.1", 48_000), ("a.m4a", "aac", "mono", 7350), ("a.m4a", "aac", "stereo", 96_000),
        ("a.mp3", "libmp3lame", "mono", 8000), ("a.mp3", "libmp3lame", "stereo", 44_100),
        ("a.opus", "libopus", "mono", 8000), ("a.mka", "mp2", "stereo", 48_000), ("a.wma", "wmav1", "mono", 16_000),
        ("a.wma", "wmav2", "stereo", 44_100),
    ],
)  # fmt: skip
def test_lengths_are_right_in_every_codec(tmp_path: Path, name: str, codec: str, layout: str, rate_hz: int) -> None:
    """Three seconds come out as three seconds, to 50 ms or the last frame that the encoder had to fill."""
    channels = {"mono": 1, "stereo": 2, "5.1": 6, "7.1": 8}[layout]
    try:
        path = encode(
            tmp_path / name, tones(*[0.5] * channels, seconds=3, rate_hz=rate_hz), codec, layout, rate_hz=rate_hz
        )
    except ValueError as error:  # an encoder that this build of FFmpeg lacks
        pytest.skip(f"{codec}: {error}")
    assert 3.0 - TOLERANCE_S < seconds(path) < 3.0 + max(TOLERANCE_S, LONGEST_FRAME_S)


@pytest.mark.parametrize("codec", ["pcm_f32le", "pcm_f64le"])
@pytest.mark.parametrize("kind", ["loud", "endless", "nan", "huge", "denormal"])
def test_float_samples_out_of_range_stay_in_it(tmp_path: Path, codec: str, kind: str) -> None:
    """Values above 1 are cut, NaN and infinity are silence, denormals are zero; no sample wraps around."""
    signal = tones(0.5, rate_hz=RATE_HZ)
    odd = {"loud": signal * 4, "huge": signal * np.float32(1e30), "denormal": signal * np.float32(1e-40)}
    odd["endless"], odd["nan"] = signal.copy(), signal.copy()
    odd["endless"][:, ::7], odd["nan"][:, ::7] = -np.inf, np.nan
    path = tmp_path / "a.wav"
    encode(path, odd[kind], codec, "mono", rate_hz=RATE_HZ, sample_format="flt" if codec == "pcm_f32le" else "dbl")
    pcm, _ = run(path)
    assert len(pcm) == RATE_HZ
    if kind == "denormal":
        assert not pcm.any()
        return
    heard, said = pcm[2::7], signal[0, 2::7]
    loud = np.abs(said) > 0.001
    assert np.all(np.sign(heard[loud]) == np.sign(said[loud])), "no sample changes its sign"
    if kind in {"endless", "nan"}:
        assert not pcm[::7].any()


@pytest.mark.parametrize("length_s", [1 / 48_000, 0.01, 0.05])
@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("a.wav", "pcm_s16le"), ("a.flac", "flac"), ("a.mp3", "libmp3lame"), ("a.m4a", "aac"), ("a.opus", "libopus"),
        ("a.webm", "libopus"), ("a.aac", "aac"), ("a.wma", "wmav2"), ("a.ts", "aac"), ("a.aiff", "pcm_s16be"),
        ("a.caf", "alac"), ("a.mkv", "flac"), ("a.oga", "flac"),
    ],
)  # fmt: skip
def test_very_short_recordings_are_short_or_empty(tmp_path: Path, name: str, codec: str, length_s: float) -> None:
    """A sample, ten and fifty milliseconds decode to about their length, or are refused as what they are."""
    path = encode(tmp_path / name, tones(0.5, seconds=length_s + 1e-9), codec, "mono")
    found = outcome(path)
    if isinstance(found, InputError):
        assert isinstance(found, EmptyFile | Damaged)  # less than a frame of WMA or MPEG-TS
        assert name in found.message
    else:
        assert found <= length_s + TOLERANCE_S


# --- what surrounds the sound


def tagged(tmp_path: Path, kind: str) -> Path:
    """Write three seconds of MP3 behind something that is no sound."""
    path = tmp_path / "a.mp3"
    mp3 = without_id3(encode(path, tones(0.5, seconds=3), "libmp3lame", "mono").read_bytes())
    front = {
        "a tag of 8 MB": id3_tag(bytes(8_000_000)),
        "a tag of noise": id3_tag(noise(4_000_000)),
        "two tags": id3_tag(bytes(1000)) + id3_tag(bytes(2000)),
        "a tag and noise": id3_tag(bytes(1000)) + noise(100_000, below=250),
        "a megabyte of noise": noise(1_000_000, below=250),
        "zeros": bytes(3_000_000),
        "a broken picture": id3_tag(id3_picture(b"\x89PNG\r\n\x1a\n" + noise(200_000))),
        "an empty picture": id3_tag(id3_picture(b"")),
    }
    path.write_bytes(front[kind] + mp3)
    return path


@pytest.mark.parametrize(
    "kind",
    ["a tag of 8 MB", "a tag of noise", "two tags", "a tag and noise", "a megabyte of noise", "zeros",
     "a broken picture", "an empty picture"],
)  # fmt: skip
def test_what_lies_before_an_mp3_does_not_stop_it(tmp_path: Path, kind: str) -> None:
    """Tags of megabytes, noise, silence and broken pictures in front cost nothing but themselves."""
    assert seconds(tagged(tmp_path, kind)) == pytest.approx(3, abs=TOLERANCE_S)


@pytest.mark.parametrize("behind", [b"", b"text and no sound " * 900, bytes(5000)])
def test_a_tag_without_sound_is_damaged(tmp_path: Path, behind: bytes) -> None:
    """A tag alone, or one that claims more than the file holds, is no recording."""
    for tag in (id3_tag(bytes(1000)), id3_tag(b"", claimed_bytes=200_000_000)):
        (tmp_path / "a.mp3").write_bytes(tag + behind)
        with pytest.raises(Damaged, match="ID3"):
            run(tmp_path / "a.mp3")


@pytest.mark.parametrize("picture", [b"", b"\x89PNG\r\n\x1a\n" + noise(5000), bytes(100_000)])
def test_a_broken_picture_does_not_stop_a_flac(tmp_path: Path, picture: bytes) -> None:
    """The picture of a FLAC file may be anything."""
    path = encode(tmp_path / "a.flac", tones(0.5, seconds=3), "flac", "mono", sample_format="s16")
    path.write_bytes(flac_with_picture(path.read_bytes(), picture))
    assert seconds(path) == pytest.approx(3, abs=TOLERANCE_S)


def test_text_tags_of_other_formats_do_not_stop_them(tmp_path: Path) -> None:
    """An ID3 tag before FLAC or AAC, and rubbish behind WAV, change nothing."""
    flac = encode(tmp_path / "a.flac", tones(0.5, seconds=3), "flac", "mono")
    flac.write_bytes(id3_tag(bytes(1000)) + flac.read_bytes())
    aac = encode(tmp_path / "a.aac", tones(0.5, seconds=3), "aac", "mono")
    aac.write_bytes(id3_tag(bytes(1000)) + aac.read_bytes())
    wav = tmp_path / "a.wav"
    wav.write_bytes(wav_of(wav) + noise(100_000))
    for path in (flac, aac, wav):
        assert seconds(path) == pytest.approx(3, abs=TOLERANCE_S), path.name
