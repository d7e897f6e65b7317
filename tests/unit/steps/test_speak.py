from collections.abc import Sequence

import numpy as np
import pytest

from voicejobs.audio.types import Sound
from voicejobs.engines.base import SynthesiseOptions, Voice
from voicejobs.errors import BadOption, Internal
from voicejobs.steps.lines import Line
from voicejobs.steps.speak import Fit, Verify, groups, speak, verify_options

RATE_HZ = 1_000


class Counting:
    """Speak a tenth of a second for each character, faster at higher speed; keep what was asked for."""

    def __init__(self, rates: Sequence[int] = (RATE_HZ,)) -> None:
        self.asked: list[tuple[tuple[str, ...], float, int | None]] = []
        self._rates = rates

    def synthesise(self, texts: Sequence[str], options: SynthesiseOptions) -> list[Sound]:
        """Return ones."""
        self.asked.append((tuple(texts), round(options.speed, 3), options.seed))
        return [
            Sound(
                np.ones(int(len(text) * 0.1 * RATE_HZ / options.speed), np.float32), self._rates[n % len(self._rates)]
            )
            for n, text in enumerate(texts)
        ]

    def voices(self) -> list[Voice]:
        """Return none."""
        return []


def test_groups_are_bounded_and_hold_every_line() -> None:
    """At most 16 lines, at most 2,000 characters unless one line has more."""
    lines = [Line("a", "x" * size) for size in [10] * 40 + [1500, 1500, 3000, 5]]
    found = list(groups(lines))
    assert [line for group in found for line in group] == lines
    assert [len(group) for group in found] == [16, 16, 9, 1, 1, 1]
    assert list(groups([])) == []


def test_a_line_that_is_too_long_is_spoken_faster() -> None:
    """As fast as it must be, no faster than it may be; by how much it is still too long is told."""
    voice = Counting()
    lines = [
        Line("a" * 10, "a" * 10, room_s=2.0),
        Line("b" * 10, "b" * 10, room_s=0.8),
        Line("c" * 10, "c" * 10, room_s=0.4),
    ]
    found = speak(lines, voice, SynthesiseOptions(), fit=Fit(1.5, max_stretch=1.0))
    assert [round(one.sound.duration_s, 2) for one in found] == [1.0, 0.78, 0.67]
    assert [one.facts for one in found] == [{}, {"speed": 1.288}, {"speed": 1.5, "over_s": 0.266}]
    assert len(voice.asked) == 3


def test_a_line_that_is_still_too_long_is_stretched_into_its_room() -> None:
    """To the sample where the factor allows it, else as far as it does; without speed the sound is stretched alone."""
    lines = [Line("a" * 10, "a" * 10, room_s=0.6), Line("b" * 10, "b" * 10, room_s=0.4)]
    found = speak(lines, Counting(), SynthesiseOptions(), fit=Fit(1.5, max_stretch=1.25))
    assert [len(one.sound.samples) for one in found] == [600, 533]
    assert [one.facts for one in found] == [
        {"speed": 1.5, "stretch": 1.11}, {"speed": 1.5, "stretch": 1.25, "over_s": 0.133}
    ]  # fmt: skip
    voice = Counting()
    (alone,) = speak([Line("c" * 10, "c" * 10, room_s=0.9)], voice, SynthesiseOptions(), fit=Fit(1.0))
    assert (len(alone.sound.samples), alone.facts) == (900, {"stretch": 1.111})
    assert len(voice.asked) == 1
    with pytest.raises(BadOption, match="max_stretch"):
        Fit(max_stretch=2.5)


def test_another_reading_of_a_line_is_stretched_too() -> None:
    """A line that is spoken again since it was not understood fits into its room as the first reading did."""
    answers = iter([["xx"], ["word"]])
    verify = Verify(lambda sounds: next(answers), 0.1, 3, "en", slows=False)
    (found,) = speak([Line("word", "word", room_s=0.35)], Counting(), SynthesiseOptions(), fit=Fit(1.0), verify=verify)
    assert len(found.sound.samples) == 350
    assert found.facts == {"stretch": 1.143, "cer": 0.0, "tries": 2}


def test_a_line_that_is_not_understood_is_spoken_again_and_the_best_is_kept() -> None:
    """With another seed and slower; a line with a room keeps its speed; one that was understood is left alone."""
    voice = Counting()
    answers = iter([["good", "bad", "worse"], ["xxx", "wor"], ["wo", "xx"]])
    verify = Verify(lambda sounds: next(answers), 0.1, 3, "en")
    lines = [Line("good", "good"), Line("word", "word"), Line("other", "other", room_s=9.0)]
    found = speak(lines, voice, SynthesiseOptions(seed=5), fit=Fit(), verify=verify)
    assert [one.facts.get("tries") for one in found] == [None, 3, 3]
    assert [one.facts["cer"] for one in found] == [0.0, 0.5, 0.8]
    assert found[1].facts["speed"] == pytest.approx(0.92**1, abs=0.08)
    assert voice.asked[1:3] == [(("word",), 0.92, 6), (("other",), 1.0, 6)]


def test_an_engine_that_changes_its_rate_is_refused() -> None:
    """Sounds of two rates cannot be joined."""
    with pytest.raises(Internal, match="several sampling rates"):
        speak([Line("a", "a"), Line("b", "b")], Counting((1_000, 2_000)), SynthesiseOptions())


def test_letters_that_the_voice_does_not_know_are_left_out_and_told_of() -> None:
    """Where the voice says its languages; where nobody says them, everything is spoken."""
    voice = Counting()
    lines = [Line("Hello 你好 π", "Hello 你好 π"), Line("Привет", "Привет")]
    found = speak(lines, voice, SynthesiseOptions(), languages=("en",))
    assert [one.facts for one in found] == [{"skipped": ["你好"]}, {"skipped": ["Привет"]}]
    assert [len(one.sound.samples) > 0 for one in found] == [True, False]
    assert [one.facts for one in speak(lines, voice, SynthesiseOptions())] == [{}, {}]
    assert [texts for texts, _, _ in voice.asked] == [("Hello π", ""), ("Hello 你好 π", "Привет")]


def test_what_verify_says_is_checked() -> None:
    """Defaults fill what is left out; a word that nobody knows is refused."""
    assert verify_options({"tries": 1}) == {**verify_options({}), "tries": 1}
    with pytest.raises(BadOption, match="retries"):
        verify_options({"retries": 1})
