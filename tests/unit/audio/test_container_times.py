"""Times: sound that starts late, gaps, edit lists, and lengths that headers invent."""

import struct
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tests.unit.audio.recordings import encode, frames_for, tones, write_film
from tests.unit.audio.variants import RATE_HZ, TOLERANCE_S, first_sound_s, run, seconds, with_edits, write_pieces
from voicejobs.errors import Damaged

pytest.importorskip("av", reason="the extra `worker` is not installed")


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("a.mkv", "libopus"), ("a.mkv", "aac"), ("a.mkv", "flac"), ("a.mkv", "ac3"), ("a.mp4", "libopus"),
        ("a.mp4", "aac"), ("a.mp4", "alac"), ("a.mov", "pcm_s16le"), ("a.3gp", "aac"), ("a.ts", "aac"), ("a.ts", "mp2"),
        ("a.asf", "wmav2"),
    ],
)  # fmt: skip
def test_sound_that_starts_late_in_a_film_keeps_its_time(tmp_path: Path, name: str, codec: str) -> None:
    """Sound that starts 3.2 s into a film starts there in the decoded audio, in every container with a clock."""
    pcm, _ = run(write_film(tmp_path / name, codec, sound_at_s=3.2))
    assert first_sound_s(pcm) == pytest.approx(3.2, abs=TOLERANCE_S)


@pytest.mark.parametrize("gap_s", [5.0, 20.0])
@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("a.mkv", "pcm_s16le"), ("a.mkv", "libopus"), ("a.mkv", "flac"), ("a.webm", "libopus"), ("a.mp4", "aac"),
        ("a.ts", "aac"), ("a.ts", "mp2"), ("a.asf", "wmav2"), ("a.mkv", "libmp3lame"),
    ],
)  # fmt: skip
def test_a_gap_in_the_middle_is_silence(tmp_path: Path, name: str, codec: str, gap_s: float) -> None:
    """Where packets were never recorded the clock goes on, so that what follows keeps its time."""
    second = tones(0.5, seconds=1.536)
    pcm, _ = run(write_pieces(tmp_path / name, codec, [(0.0, second), (1.536 + gap_s, second)]))
    assert len(pcm) / RATE_HZ == pytest.approx(2 * 1.536 + gap_s, abs=0.11)
    middle = pcm[int(1.8 * RATE_HZ) : int((1.3 + gap_s) * RATE_HZ)]
    assert not np.abs(middle.astype(np.int32)).max() > 300
    assert first_sound_s(pcm[int(1.8 * RATE_HZ) :]) + 1.8 == pytest.approx(1.536 + gap_s, abs=0.11)


@pytest.mark.parametrize(
    ("edits", "length_s", "starts_s"),
    [
        ([(3000, 1024)], 3.0, 0.0), ([(2000, 1024 + 48_000)], 2.0, 0.0), ([(2000, 1024)], 2.0, 0.0),
        ([(3200, -1), (3000, 1024)], 6.2, 3.2), ([(2**31 - 1, -1), (3000, 1024)], 3.0, 0.0),
    ],
)  # fmt: skip
def test_edit_lists_are_obeyed(tmp_path: Path, edits: list[tuple[int, int]], length_s: float, starts_s: float) -> None:
    """What an edit list cuts away is not heard, and a pause in front of the sound counts, up to a day of it."""
    path = encode(tmp_path / "a.m4a", tones(0.5, seconds=3), "aac", "mono")
    path.write_bytes(with_edits(path.read_bytes(), edits))
    pcm, audio = run(path)
    assert len(pcm) / RATE_HZ == pytest.approx(length_s, abs=TOLERANCE_S)
    assert first_sound_s(pcm) == pytest.approx(starts_s, abs=TOLERANCE_S)
    if starts_s:
        assert audio.info.start_offset_s == pytest.approx(starts_s, abs=TOLERANCE_S)


def test_an_edit_list_that_leads_nowhere_is_damaged(tmp_path: Path) -> None:
    """An edit that starts behind the end of the sound leaves nothing to decode."""
    path = encode(tmp_path / "a.m4a", tones(0.5, seconds=3), "aac", "mono")
    path.write_bytes(with_edits(path.read_bytes(), [(3000, 2**31 - 1)]))
    with pytest.raises(Damaged, match=r"a\.m4a"):
        run(path)


@pytest.mark.parametrize("claimed", [0, 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("box", [b"mvhd", b"mdhd"])
def test_a_duration_that_an_mp4_invents_changes_nothing(tmp_path: Path, box: bytes, claimed: int) -> None:
    """The film's length and the track's may be anything: samples are counted as they appear."""
    path = encode(tmp_path / "a.m4a", tones(0.5, seconds=3), "aac", "mono")
    data = bytearray(path.read_bytes())
    struct.pack_into(">I", data, data.index(box) + 20, claimed)
    path.write_bytes(data)
    assert seconds(path) == pytest.approx(3, abs=TOLERANCE_S)


def test_a_number_of_frames_that_an_mp3_invents_changes_nothing(tmp_path: Path) -> None:
    """The frame count in the Xing header is a claim like any other."""
    path = encode(tmp_path / "a.mp3", tones(0.5, seconds=3), "libmp3lame", "mono")
    data = bytearray(path.read_bytes())
    for mark in (b"Xing", b"Info"):
        if mark in data:
            struct.pack_into(">I", data, data.index(mark) + 8, 2**31 - 1)
    path.write_bytes(data)
    assert seconds(path) == pytest.approx(3, abs=TOLERANCE_S)


def test_a_number_of_frames_that_an_aiff_invents_changes_nothing(tmp_path: Path) -> None:
    """The number of frames in an AIFF header is not believed either: as many as there are come out."""
    path = encode(tmp_path / "a.aiff", tones(0.5, seconds=3), "pcm_s16be", "mono")
    data = bytearray(path.read_bytes())
    struct.pack_into(">I", data, data.index(b"COMM") + 10, 2**30)
    path.write_bytes(data)
    assert seconds(path) == pytest.approx(3, abs=TOLERANCE_S)


@pytest.mark.parametrize("name", ["a.mkv", "a.m4b", "a.mp4"])
def test_chapters_do_not_get_in_the_way(tmp_path: Path, name: str) -> None:
    """Chapters, even those that end after the file, leave the sound as it is."""
    import av
    from av.audio.stream import AudioStream

    path = tmp_path / name
    with av.open(str(path), "w", format="mp4" if name == "a.m4b" else None) as output:
        stream = output.add_stream("aac", rate=48_000, layout="mono")
        assert isinstance(stream, AudioStream)
        output.set_chapters(
            [
                {"id": number, "start": number * 1000, "end": number * 90_000 + 1000, "time_base": Fraction(1, 1000),
                 "metadata": {"title": f"chapter {number}"}}
                for number in range(3)
            ]
        )  # fmt: skip
        for frame in frames_for(stream, tones(0.5, seconds=3)):
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    assert seconds(path) == pytest.approx(3, abs=TOLERANCE_S)
