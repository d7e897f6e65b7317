"""How far a run is, and what is foretold: only what is known, or follows from it."""

from dataclasses import dataclass

import pytest

from voicejobs.cli.estimate import Estimate
from voicejobs.queries import Active


@dataclass(slots=True)
class Clock:
    """Stand for the time."""

    now: float = 0.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands still."""
    return Clock()


def test_nothing_is_foretold_while_nothing_is_known(clock: Clock) -> None:
    """No total, no speed, no time left before the first file was opened."""
    estimate = Estimate(clock, files=2)
    estimate.expect("a", "a.wav", 1000)
    clock.now = 60.0
    shown = estimate.snapshot()
    assert (shown.audio_total_s, shown.speed, shown.eta_s, shown.is_estimate) == (None, None, None, True)


def test_the_total_counts_seconds_of_audio_not_files(clock: Clock) -> None:
    """One long file weighs what it is; files of one ending are taken to be alike until they were opened."""
    estimate = Estimate(clock, files=3)
    for job, size in (("a", 1000), ("b", 9000), ("c", 10_000)):
        estimate.expect(job, f"{job}.mp3", size)
    estimate.active([Active("a", "a.mp3", "recognise", 10.0, 4.0)])
    shown = estimate.snapshot()
    assert (shown.audio_total_s, shown.audio_done_s, shown.is_estimate) == (200.0, 4.0, True)
    estimate.finished("a", 10.0)
    estimate.active([])
    assert estimate.snapshot().audio_total_s == 200.0


def test_each_ending_has_its_own_measure(clock: Clock) -> None:
    """A byte of wav is less sound than one of mp3."""
    estimate = Estimate(clock, files=4)
    for job, name, size in (("a", "a.wav", 320), ("b", "b.mp3", 20), ("c", "c.wav", 640), ("d", "d.mp3", 40)):
        estimate.expect(job, name, size)
    estimate.finished("a", 10.0)
    estimate.finished("b", 10.0)
    assert estimate.snapshot().audio_total_s == 60.0


def test_the_time_left_follows_from_the_speed_since_work_began(clock: Clock) -> None:
    """Not from the start of the command: waiting for workers is no work."""
    estimate = Estimate(clock, files=2)
    estimate.expect("a", "a.wav", 100)
    estimate.expect("b", "b.wav", 300)
    clock.now = 100.0
    estimate.active([Active("a", "a.wav", "prepare", None, 0.0)])
    clock.now = 105.0
    estimate.finished("a", 50.0)
    shown = estimate.snapshot()
    assert (shown.speed, shown.eta_s) == (10.0, 15.0)


def test_a_file_never_goes_back(clock: Clock) -> None:
    """Also when another step, which counts anew, begins."""
    estimate = Estimate(clock, files=1)
    estimate.expect("a", "a.wav", 100)
    done = []
    for step, seconds in (("prepare", 60.0), ("recognise", 0.0), ("recognise", 30.0), ("recognise", 20.0)):
        estimate.active([Active("a", "a.wav", step, 60.0, seconds)])
        done.append(estimate.snapshot().audio_done_s)
    estimate.active([Active("a", "a.wav", "deliver", 60.0, 0.0)])
    done.append(estimate.snapshot().audio_done_s)
    assert done == [0.0, 0.0, 30.0, 30.0, 60.0]


def test_channels_kept_apart_do_not_count_twice(clock: Clock) -> None:
    """A file is done no further than its length."""
    estimate = Estimate(clock, files=1)
    estimate.expect("a", "a.wav", 100)
    estimate.active([Active("a", "a.wav", "recognise", 60.0, 100.0)])
    assert estimate.snapshot().audio_done_s == 60.0


def test_a_failed_file_leaves_the_total(clock: Clock) -> None:
    """What cannot be done is no work that is left."""
    estimate = Estimate(clock, files=2)
    estimate.expect("a", "a.wav", 100)
    estimate.expect("b", "b.wav", 100)
    estimate.finished("a", 10.0)
    assert estimate.snapshot().audio_total_s == 20.0
    estimate.finished("b", None, succeeded=False)
    shown = estimate.snapshot()
    assert (shown.audio_total_s, shown.is_estimate) == (10.0, False)


def test_jobs_of_others_are_none_of_our_business(clock: Clock) -> None:
    """A batch that we joined holds files of another command."""
    estimate = Estimate(clock, files=1)
    estimate.expect("a", "a.wav", 100)
    estimate.active([Active("x", "x.wav", "recognise", 60.0, 30.0)])
    assert estimate.snapshot().active == ()
