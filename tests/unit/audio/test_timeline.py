"""The clock of the container: which gaps are silence."""

import pytest

from voicejobs.audio.timeline import Timeline


def test_a_late_start_is_padded_in_any_container() -> None:
    """Sound that starts 40 s after its film has 40 s of silence before it."""
    assert Timeline(1.5, clocked=False).place(41.5, 0.02, 0) == pytest.approx(40.0)


def test_a_start_within_rounding_is_not_padded() -> None:
    """The delay of a codec, up to 50 ms, is no silence."""
    assert Timeline(0.0, clocked=True).place(0.045, 0.02, 0) == 0.0


def test_a_gap_counts_only_where_there_is_a_clock() -> None:
    """A pause of the recorder is silence in WebM and nothing in a format that merely counts samples."""
    for clocked, expected in ((True, 2.0), (False, 0.0)):
        timeline = Timeline(0.0, clocked=clocked)
        timeline.place(0.0, 1.0, 0)
        assert timeline.place(3.0, 1.0, 0) == pytest.approx(expected)


def test_small_losses_add_up_to_a_gap() -> None:
    """Lost packets of 20 ms each are made up for once they pass 50 ms together."""
    timeline = Timeline(0.0, clocked=True)
    silence_s = [timeline.place(0.04 * number, 0.02, 0) for number in range(50)]
    assert sum(silence_s) == pytest.approx(49 * 0.02, abs=0.05)


def test_a_packet_that_was_skipped_leaves_silence() -> None:
    """After an undecodable packet the time stamps are believed in any format."""
    timeline = Timeline(0.0, clocked=False)
    timeline.place(0.0, 1.0, 0)
    assert timeline.place(1.5, 1.0, 1) == pytest.approx(0.5)


def test_another_clock_in_mid_stream_is_no_silence() -> None:
    """Time stamps that jump back or hours ahead start a new clock, and gaps count from there."""
    timeline = Timeline(0.0, clocked=True)
    timeline.place(0.0, 10.0, 0)
    assert timeline.place(0.0, 10.0, 0) == 0.0
    assert timeline.place(90_000.0, 1.0, 0) == 0.0
    assert timeline.place(90_003.0, 1.0, 0) == pytest.approx(2.0)


def test_frames_without_time_stamps_follow_one_another() -> None:
    """No time stamp means no gap."""
    timeline = Timeline(0.0, clocked=True)
    assert timeline.place(None, 1.0, 0) == 0.0
    assert timeline.place(None, 1.0, 0) == 0.0
    assert timeline.place(2.0, 1.0, 0) == 0.0
