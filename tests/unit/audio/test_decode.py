"""Decoding: what opens, what is refused and how, and that only what is decoded counts."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.audio.recordings import encode, tones, write_film, write_wav
from voicejobs.audio.decode import ChannelMode, DecodedAudio, DecodeOptions, decode
from voicejobs.audio.types import Pcm
from voicejobs.errors import (
    BadHeader,
    BadOption,
    Damaged,
    EmptyFile,
    InputError,
    NoAudioStream,
    NotAudio,
    NotFound,
    TooLong,
    Unreadable,
)

pytest.importorskip("av", reason="the extra `worker` is not installed")


RATE_HZ = 16_000


def run(path: str | bytes | Path, **options: Any) -> tuple[list[Pcm], DecodedAudio]:
    """Decode a whole recording; return one array for each channel, and the reader."""
    name = os.fsdecode(path)
    with decode(name, DecodeOptions(**options)) as audio:
        blocks = list(audio.blocks())
    return [np.concatenate(channel) for channel in zip(*blocks, strict=True)], audio


def level_of(pcm: Pcm) -> float:
    """Return the root mean square, full scale 1."""
    return float(np.sqrt(np.mean(np.square(pcm / 32768.0))))


# --- what opens


def test_every_real_recording_decodes_to_its_length(shared: Path) -> None:
    """All recordings of ../shared/speech decode to the length that their manifest tells; headerless PCM is refused."""
    for line in (shared / "speech" / "manifest.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        path = shared / "speech" / entry["file"]
        if path.suffix == ".raw":
            with pytest.raises(NotAudio):
                run(path)
            continue
        (pcm,), audio = run(path)
        assert len(pcm) / 16_000 == pytest.approx(entry["duration_s"], abs=0.06), entry["file"]
        assert (audio.samples, audio.skipped_packets) == (len(pcm), 0), entry["file"]
        assert level_of(pcm) > 0.001, entry["file"]


def test_every_odd_recording_has_its_outcome(shared: Path) -> None:
    """All rows of kind `audio` in ../shared/cases open, or are refused with the code that the row names."""
    rows = [json.loads(line) for line in (shared / "cases" / "cases.jsonl").read_text(encoding="utf-8").splitlines()]
    for row in rows:
        if row["kind"] != "audio":
            continue
        path = shared / "cases" / row["files"][0]
        outcome = row["expect"]["outcome"]
        if outcome == ["error"]:
            with pytest.raises(InputError) as caught:
                run(path)
            assert caught.value.code == row["expect"]["error_kind"], row["id"]
            assert path.name in caught.value.message
        else:
            (pcm,), _ = run(path)
            assert len(pcm) > 0, row["id"]


@pytest.mark.parametrize(
    ("name", "codec", "layout"),
    [
        ("a.mkv", "libopus", "7.1"), ("a.ogg", "libopus", "mono"), ("a.flac", "flac", "5.1"),
        ("a.mp3", "libmp3lame", "stereo"), ("a.ts", "aac", "stereo"), ("a.aac", "aac", "mono"),
        ("a.eac3", "eac3", "stereo"), ("a.avi", "pcm_s16le", "mono"),
        ("a.wma", "wmav2", "stereo"), ("a.au", "pcm_s16be", "mono"), ("a.caf", "pcm_s16be", "mono"),
        ("a.w64", "pcm_s24le", "stereo"), ("a.mov", "alac", "mono"), ("a.mp2", "mp2", "stereo"),
        ("a.wav", "pcm_u8", "mono"), ("a.wav", "adpcm_ms", "mono"), ("a.wav", "pcm_s64le", "stereo"),
        ("a.mkv", "wavpack", "mono"),
    ],
)  # fmt: skip
def test_every_accepted_kind_opens(tmp_path: Path, name: str, codec: str, layout: str) -> None:
    """A second of tones in each accepted container and codec decodes to a second at about its level."""
    channels = {"mono": 1, "stereo": 2, "5.1": 6, "7.1": 8}[layout]
    (pcm,), audio = run(encode(tmp_path / name, tones(*[0.5] * channels), codec, layout))
    assert len(pcm) / 16_000 == pytest.approx(1.0, abs=0.13)
    assert 0.1 < level_of(pcm) < 0.4
    assert audio.info.channels == channels


def test_int16_at_16_khz_comes_through_unchanged(shared: Path) -> None:
    """Audio that already has our format is not touched: no sample differs."""
    path = shared / "speech" / "pv_l_test.wav"
    (pcm,), _ = run(path)
    assert pcm.tobytes() == path.read_bytes()[-len(pcm) * 2 :]


def test_blocks_are_neither_tiny_nor_large(tmp_path: Path) -> None:
    """A long recording comes in blocks of one to ten seconds."""
    with decode(write_wav(tmp_path / "a.wav", samples=16_000 * 63), DecodeOptions()) as audio:
        lengths = [len(block) for (block,) in audio.blocks()]
    assert sum(lengths) == audio.samples == 16_000 * 63
    assert all(16_000 <= length <= 160_000 for length in lengths[:-1])


def test_names_are_only_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that FFmpeg or a shell would obey, or that is no text at all, opens the file of that name."""
    data = write_wav(tmp_path / "a.wav").read_bytes()
    monkeypatch.chdir(tmp_path)
    names = [
        b"concat:secret.wav", b"-x.wav", b"subfile,,start,0,end,9,,:a.wav", b"http:", b"a\nb.wav",
        b"\xf0\x9f\x8e\x89.wav", b"caf\xe9 \xff.wav", b"%03d.wav", b"a:b?c#d.wav",
        b"x" * 251 + b".wav", b"file:b.wav", b"pipe:0",
    ]  # fmt: skip
    for name in names:
        Path(os.fsdecode(name)).write_bytes(data)
        (pcm,), _ = run(name)
        assert len(pcm) == 16_000, name


def test_a_raw_gsm_file_is_found_by_its_ending_under_any_name(shared: Path, tmp_path: Path) -> None:
    """The one headerless format that is known by its ending opens even where the name is no UTF-8."""
    data = (shared / "speech" / "ast_agent-alreadyon.gsm").read_bytes()
    for name in (b"a.gsm", b"\xff.GSM"):
        path = tmp_path / os.fsdecode(name)
        path.write_bytes(data)
        (pcm,), audio = run(path)
        assert audio.info.codec == "gsm"
        assert len(pcm) / 16_000 == pytest.approx(5.42)


# --- what is refused


@pytest.fixture
def canary() -> Iterator[tuple[int, list[str]]]:
    """Listen on loopback and record whoever comes."""
    visitors: list[str] = []
    stop = threading.Event()
    tcp = socket.create_server(("127.0.0.1", 0))
    port = tcp.getsockname()[1]
    tcp.settimeout(0.05)

    def listen() -> None:
        while not stop.is_set():
            try:
                connection, _ = tcp.accept()
            except TimeoutError:
                continue
            visitors.append("tcp")
            connection.close()

    thread = threading.Thread(target=listen)
    thread.start()
    yield port, visitors
    stop.set()
    thread.join()
    tcp.close()


@pytest.mark.parametrize("name", ["list.m3u8", "list.mp3", "list", "session.sdp", "talk.wav", "a.ffconcat", "a.mpd"])
@pytest.mark.parametrize("kind", ["hls", "hls-file", "sdp", "concat", "dash"])
def test_files_that_point_elsewhere_are_refused_without_traffic(
    tmp_path: Path, canary: tuple[int, list[str]], kind: str, name: str
) -> None:
    """Playlists and session descriptions are no recordings, whatever they are called, and nothing is fetched."""
    port, visitors = canary
    url = f"http://127.0.0.1:{port}/a.ts"
    text = {
        "hls": f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{url}\n#EXT-X-ENDLIST\n",
        "hls-file": "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
        "sdp": f"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio {port} RTP/AVP 0\n",
        "concat": f"ffconcat version 1.0\nfile '{url}'\n",
        "dash": f'<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><BaseURL>{url}</BaseURL></MPD>',
    }[kind]
    path = tmp_path / name
    path.write_text(text * 3, encoding="ascii")
    with pytest.raises(NotAudio, match=name):
        run(path)
    assert not visitors


@pytest.mark.parametrize(
    "name", ["http://127.0.0.1:9/a.wav", "concat:a.wav|b.wav", "/dev/null", "/proc/self/maps", "."]
)
def test_names_of_things_that_are_no_files(name: str) -> None:
    """URLs, devices, folders and the files of /proc are not opened as recordings."""
    with pytest.raises((NotFound, Unreadable, EmptyFile)):
        run(name)


def test_a_fifo_does_not_wait_for_its_writer(tmp_path: Path) -> None:
    """A fifo is refused at once."""
    os.mkfifo(tmp_path / "pipe.wav")
    with pytest.raises(Unreadable, match=r"pipe\.wav"):
        run(tmp_path / "pipe.wav")


def test_a_name_with_nul_is_not_found() -> None:
    """A name that no file can have is an ordinary error."""
    with pytest.raises(NotFound):
        run("a\0b.wav")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_the_right_to_read_is_named(tmp_path: Path) -> None:
    """Missing rights are told apart from a missing file."""
    path = write_wav(tmp_path / "a.wav")
    path.chmod(0)
    with pytest.raises(Unreadable, match=r"a\.wav"):
        run(path)


@pytest.mark.parametrize(
    ("rate_hz", "channels"),
    [(0, 1), (1, 1), (999, 1), (384_001, 1), (4_000_000_000, 1), (16_000, 0), (16_000, 33), (16_000, 65_535)],
)
def test_impossible_headers_are_refused_before_decoding(tmp_path: Path, rate_hz: int, channels: int) -> None:
    """Rates and channel counts that no recording has are the header's fault."""
    with pytest.raises(BadHeader):
        run(write_wav(tmp_path / "a.wav", rate_hz=rate_hz, channels=channels))


@pytest.mark.parametrize(("rate_hz", "channels"), [(1000, 1), (384_000, 1), (16_000, 32)])
def test_the_ends_of_the_allowed_ranges_decode(tmp_path: Path, rate_hz: int, channels: int) -> None:
    """The limits themselves are allowed, and the length is that of the samples."""
    (pcm,), _ = run(write_wav(tmp_path / "a.wav", samples=3200, rate_hz=rate_hz, channels=channels))
    assert len(pcm) == pytest.approx(3200 * 16_000 / rate_hz, abs=1)


def test_a_codec_off_the_list_does_not_run(tmp_path: Path) -> None:
    """A decoder that is not on the list is refused before its first packet, by name."""
    with pytest.raises(NotAudio, match="dfpwm"):
        run(encode(tmp_path / "a.wav", tones(0.5), "dfpwm", "mono", sample_format="u8"))


def test_a_film_without_sound_says_so(shared: Path) -> None:
    """A container with pictures alone has no sound track."""
    with pytest.raises(NoAudioStream):
        run(shared / "cases" / "mp4-video-only" / "screen.mp4")


def test_a_header_without_samples_is_empty(tmp_path: Path) -> None:
    """A WAV file of no samples is empty, not damaged."""
    with pytest.raises(EmptyFile):
        run(write_wav(tmp_path / "a.wav", samples=0))


def test_a_cut_off_container_is_damaged_not_foreign(shared: Path, tmp_path: Path) -> None:
    """An MP4 file that lost its index is called damaged: it was a recording once."""
    path = tmp_path / "cut.m4a"
    path.write_bytes((shared / "cases" / "m4a-moov-at-end" / "voice memo.m4a").read_bytes()[:100_000])
    with pytest.raises(Damaged, match="MP4"):
        run(path)


def test_sound_that_cannot_be_decoded_at_all_is_damaged(tmp_path: Path) -> None:
    """A FLAC file whose frames are noise opens, yields nothing, and is damaged."""
    path = encode(tmp_path / "a.flac", tones(0.5), "flac", "mono", sample_format="s16")
    data = path.read_bytes()
    head = data.index(b"\xff\xf8")
    path.write_bytes(
        data[:head] + np.random.default_rng(1).integers(0, 250, len(data) - head, dtype=np.uint8).tobytes()
    )
    with pytest.raises(Damaged):
        run(path)


# --- damage in the middle


def damaged_middle(path: Path) -> Path:
    """Encode eight seconds of tone and two of silence by the ending of `path`, and put noise over a second of it."""
    codec = {".mp3": "libmp3lame", ".flac": "flac", ".mkv": "libopus"}[path.suffix]
    signal = tones(0.5, seconds=10)
    signal[:, 8 * 48_000 :] = 0
    data = bytearray(encode(path, signal, codec, "mono").read_bytes())
    hole = slice(len(data) * 3 // 10, len(data) * 4 // 10)
    data[hole] = np.random.default_rng(2).integers(0, 250, hole.stop - hole.start, dtype=np.uint8).tobytes()
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", ["a.mp3", "a.flac", "a.mkv"])
def test_damage_in_the_middle_costs_only_itself(tmp_path: Path, name: str) -> None:
    """Noise over a second in the middle of ten costs no more than about that second."""
    (pcm,), _ = run(damaged_middle(tmp_path / name))
    assert len(pcm) / 16_000 == pytest.approx(9.4, abs=0.8)
    assert level_of(pcm[: 2 * 16_000]) > 0.3
    loud = np.abs(pcm.astype(np.float64)) > 3000
    assert loud[-5 * 16_000 : -int(2.2 * 16_000)].mean() > 0.6
    assert level_of(pcm[-int(1.8 * 16_000) :]) < 0.01


def test_damage_keeps_the_times_where_the_container_has_a_clock(tmp_path: Path) -> None:
    """In Matroska what was lost is replaced by silence, so that the rest stays where it was."""
    (pcm,), _ = run(damaged_middle(tmp_path / "a.mkv"))
    assert len(pcm) / 16_000 == pytest.approx(10, abs=0.1)


def test_bad_float_samples_count_as_silence(tmp_path: Path) -> None:
    """NaN and infinity in a float file become silence; the samples beside them stay."""
    signal = tones(0.5, rate_hz=16_000)
    signal[0, 1000:2000], signal[0, 3000] = np.nan, np.inf
    (pcm,), _ = run(encode(tmp_path / "a.wav", signal, "pcm_f32le", "mono", rate_hz=16_000, sample_format="flt"))
    assert not pcm[1000:2000].any()
    assert pcm[3000] == 0
    assert np.abs(pcm[2000:3000] / 32768 - signal[0, 2000:3000]).max() < 1e-4


def test_joined_files_are_read_to_the_end(tmp_path: Path) -> None:
    """Ogg files joined end to end, as web radio leaves them, give the sound of both."""
    path = encode(tmp_path / "a.ogg", tones(0.5, seconds=2), "libopus", "mono")
    path.write_bytes(path.read_bytes() * 2)
    (pcm,), _ = run(path)
    assert len(pcm) / 16_000 == pytest.approx(4, abs=0.05)


def test_rate_and_channels_may_change_in_mid_stream(tmp_path: Path) -> None:
    """Where mono at 48 kHz becomes stereo at 24 kHz, the signals stay as many as they were and the sound goes on."""
    first = encode(tmp_path / "a.aac", tones(0.5, seconds=2), "aac", "mono")
    second = encode(tmp_path / "b.aac", tones(0.5, 0.5, seconds=2, rate_hz=24_000), "aac", "stereo", rate_hz=24_000)
    first.write_bytes(first.read_bytes() + second.read_bytes())
    for mode, level in (("mix", 0.25), ("split", 0.354)):
        (pcm,), _ = run(first, channels=mode)
        assert len(pcm) / 16_000 == pytest.approx(4.07, abs=0.05)
        assert level_of(pcm[-RATE_HZ:]) == pytest.approx(level, abs=0.02)


# --- limits


def test_the_limit_counts_decoded_samples(tmp_path: Path) -> None:
    """Exactly the longest audio passes; one sample more is too long, after no more than that was decoded."""
    path = write_wav(tmp_path / "a.wav", samples=160_000)
    run(path, max_audio_s=10.0)
    with pytest.raises(TooLong, match=r"a\.wav") as caught:
        run(path, max_audio_s=10.0 - 1 / 16_000)
    assert caught.value.code == "too_long"


def test_the_limit_on_bytes_counts_every_channel(tmp_path: Path) -> None:
    """Split channels count together against the limit on bytes."""
    path = write_wav(tmp_path / "a.wav", samples=16_000, channels=2)
    run(path, channels="split", max_bytes=64_000)
    with pytest.raises(TooLong, match="63999 bytes"):
        run(path, channels="split", max_bytes=63_999)
    run(path, max_bytes=32_000)


def test_a_header_that_lies_about_the_length_changes_nothing(shared: Path) -> None:
    """A FLAC file that claims 49 days yields its three seconds, under a limit of ten."""
    (pcm,), audio = run(shared / "cases" / "flac-claims-forever" / "endless.flac", max_audio_s=10)
    assert len(pcm) / 16_000 == pytest.approx(2.87, abs=0.01)
    assert audio.info.claimed_duration_s is not None
    assert audio.info.claimed_duration_s > 4e6


# --- channels


def test_channels_can_be_split_or_chosen(tmp_path: Path) -> None:
    """`split` gives each side by itself, `left` and `right` one of them; a mono file is the same from all."""
    stereo = encode(tmp_path / "stereo.wav", tones(0.6, 0.2), "pcm_s16le", "stereo")
    (left, right), audio = run(stereo, channels="split")
    assert (audio.info.output_channels, audio.info.channels) == (2, 2)
    assert [level_of(left), level_of(right)] == pytest.approx([0.424, 0.141], abs=0.01)
    assert np.array_equal(run(stereo, channels="left")[0][0], left)
    assert np.array_equal(run(stereo, channels="right")[0][0], right)
    mono = encode(tmp_path / "mono.wav", tones(0.6), "pcm_s16le", "mono")
    modes: list[ChannelMode] = ["mix", "split", "left", "right"]
    results = [run(mono, channels=mode)[0] for mode in modes]
    assert all(len(channels) == 1 and np.array_equal(channels[0], results[0][0]) for channels in results)


def test_too_many_channels_cannot_be_split(tmp_path: Path) -> None:
    """Nine channels are mixed, not split."""
    path = write_wav(tmp_path / "a.wav", channels=9)
    assert len(run(path)[0]) == 1
    with pytest.raises(BadOption, match="9 channels"):
        run(path, channels="split")


def test_the_voice_of_a_film_is_in_front(shared: Path) -> None:
    """In the 5.1 case with speech in the centre alone, the mix is the centre with the music far behind."""
    path = shared / "cases" / "surround-centre-only" / "film.ac3"
    (mixed,), _ = run(path)
    centre = run(path, channels="split")[0][2].astype(np.float64)
    share = float(np.dot(mixed, centre) / np.dot(centre, centre))
    rest = mixed - share * centre
    assert 10 * np.log10(np.dot(centre, centre) * share**2 / np.dot(rest, rest)) > 15


def test_inverted_stereo_keeps_its_level(shared: Path) -> None:
    """Where the sides cancel, the mix is as loud as one of them."""
    path = shared / "cases" / "stereo-out-of-phase" / "inverted.wav"
    assert level_of(run(path)[0][0]) == pytest.approx(level_of(run(path, channels="left")[0][0]), rel=0.01)


# --- the clock


@pytest.mark.parametrize(("name", "codec"), [("a.mkv", "libopus"), ("a.mkv", "flac"), ("a.mp4", "aac")])
def test_sound_that_starts_late_in_a_film_is_padded(tmp_path: Path, name: str, codec: str) -> None:
    """Sound that starts 2.5 s after the picture comes out with 2.5 s of silence before it, and says so."""
    (pcm,), audio = run(write_film(tmp_path / name, codec, sound_at_s=2.5))
    assert audio.info.start_offset_s == pytest.approx(2.5, abs=0.03)
    assert len(pcm) / 16_000 == pytest.approx(3.5, abs=0.1)
    assert level_of(pcm[: int(2.4 * 16_000)]) < 0.001
    assert level_of(pcm[int(2.6 * 16_000) : int(3.4 * 16_000)]) > 0.2


def test_the_second_track_is_taken_where_it_is_the_default(tmp_path: Path) -> None:
    """Of two tracks the one marked as default is decoded, and a commentary never before a plain one."""
    import av
    from av.stream import Disposition

    for marks, expected in (
        ((Disposition(0), Disposition.default), 0.1),
        ((Disposition.default, Disposition.default), 0.6),
        ((Disposition.default | Disposition.comment, Disposition(0)), 0.1),
    ):
        path = tmp_path / "tracks.mkv"
        with av.open(str(path), "w") as output:
            streams = [output.add_stream("pcm_s16le", rate=16_000, layout="mono") for _ in marks]
            for stream, mark in zip(streams, marks, strict=True):
                stream.disposition = mark
            for stream, level in zip(streams, (0.6, 0.1), strict=True):
                samples = (tones(level, rate_hz=16_000) * 32767).astype(np.int16)
                frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
                frame.sample_rate = 16_000
                output.mux(stream.encode(frame))
                output.mux(stream.encode(None))
        assert level_of(run(path)[0][0]) == pytest.approx(expected * 0.707, rel=0.05)
