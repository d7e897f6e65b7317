"""Speak lines, group by group: into their room where they have one, and again where they are not understood."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from voicejobs.audio.types import Sound
from voicejobs.engines.base import SynthesiseOptions, Synthesiser
from voicejobs.errors import BadOption, Internal
from voicejobs.steps.join import edges
from voicejobs.steps.lines import Line
from voicejobs.steps.stretch import MAX_FACTOR, stretch
from voicejobs.steps.wording import error_rate
from voicejobs.text import speakable
from voicejobs.units import samples_to_seconds, seconds_to_samples

GROUP_LINES = 16
"""Lines of one call: enough for several engine processes, few enough to lose little when a worker dies."""
GROUP_CHARS = 2_000
_CLOSER = 1.03
"""A line that is to get shorter is asked to get a little shorter than it must."""
_SLOWER = 0.92


@dataclass(frozen=True, slots=True)
class Spoken:
    """Hold the sound of a line, and what should be known of it.

    Args:
        sound: of the line.
        facts: `skipped`, the letters that the voice does not know; `speed` where it is not what was asked for;
            `stretch`, the factor by which it was made shorter; `over_s` where the line is longer than its room even so;
            `cer` and `tries` where it was listened to.
    """

    sound: Sound
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Verify:
    """Say how lines are listened to.

    Args:
        hear: gives the text of each sound.
        max_cer: share of characters that may differ between what was to be said and what was heard.
        tries: how often a line is spoken at most.
        language: of the text.
        slows: whether the engine can speak slower, which may help where a line has no room to keep.
    """

    hear: Callable[[Sequence[Sound]], list[str]]
    max_cer: float
    tries: int
    language: str
    slows: bool = True


@dataclass(frozen=True, slots=True)
class Fit:
    """Say how far a line may be sped up to fit its room.

    Args:
        max_speed: the engine speaks it again, up to so many times the speed that was asked for; 1 leaves that out.
        max_stretch: what is still too long is made shorter, its pitch kept, by up to this factor; 1 leaves that out.
    """

    max_speed: float = 1.5
    max_stretch: float = 1.25

    def __post_init__(self) -> None:
        if not 1 <= self.max_stretch <= MAX_FACTOR:
            raise BadOption(f"max_stretch is {self.max_stretch:g}", hint=f"It takes 1 to {MAX_FACTOR:g}.")


@dataclass(frozen=True, slots=True)
class _Speaker:
    """Hold who speaks, how, and into which room."""

    synthesiser: Synthesiser
    options: SynthesiseOptions
    fit: Fit | None


VERIFY_DEFAULTS = {"engine": "whisper", "model": "base", "model_sha256": "", "max_cer": 0.2, "tries": 3}
"""What `verify` of the step `synthesise` may say, where it is not empty."""


def verify_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return `verify` with its defaults.

    Raises:
        BadOption: it says what nobody knows.
    """
    unknown = sorted(set(given) - set(VERIFY_DEFAULTS))
    if unknown:
        raise BadOption(f"`verify` has no option {unknown[0]!r}", hint=f"It has: {', '.join(VERIFY_DEFAULTS)}.")
    return {**VERIFY_DEFAULTS, **given}


def groups(lines: Sequence[Line]) -> Iterator[Sequence[Line]]:
    """Yield lines in the parts that are spoken, and noted, together."""
    first = chars = 0
    for number, line in enumerate(lines):
        if number > first and (number - first >= GROUP_LINES or chars + len(line.spoken) > GROUP_CHARS):
            yield lines[first:number]
            first, chars = number, 0
        chars += len(line.spoken)
    if first < len(lines):
        yield lines[first:]


def speak(
    lines: Sequence[Line],
    synthesiser: Synthesiser,
    options: SynthesiseOptions,
    *,
    fit: Fit | None = None,
    verify: Verify | None = None,
    languages: Sequence[str] = (),
) -> list[Spoken]:
    """Return the sound of each line.

    Args:
        lines: a group of them.
        synthesiser: the engine.
        options: how to speak.
        fit: how to get lines into their room.
        verify: how to find out whether they can be understood.
        languages: those of the voice, where it says them: letters of other scripts are left out, and told of.

    Raises:
        Internal: the engine changed its sampling rate.
    """
    said = [speakable(line.spoken, languages) for line in lines]
    lines = [replace(line, spoken=" ".join(one.text.split())) for line, one in zip(lines, said, strict=True)]
    sounds = synthesiser.synthesise([line.spoken for line in lines], options)
    found = [Spoken(sound, {}) for sound in sounds]
    if fit is not None:
        found = [_fitted(line, one, synthesiser, options, fit) for line, one in zip(lines, found, strict=True)]
    if verify is not None:
        found = _understood(lines, found, _Speaker(synthesiser, options, fit), verify)
    if len({one.sound.rate_hz for one in found}) > 1:
        raise Internal("the engine gave sounds of several sampling rates")
    return [
        Spoken(one.sound, {**one.facts, "skipped": list(what.skipped)}) if what.skipped else one
        for one, what in zip(found, said, strict=True)
    ]


def heard_s(sound: Sound) -> float:
    """Return how long something is heard, without the silence at both ends."""
    before, after = edges(sound.samples)
    return (len(sound.samples) - before - after) / sound.rate_hz


def _fitted(line: Line, spoken: Spoken, synthesiser: Synthesiser, options: SynthesiseOptions, fit: Fit) -> Spoken:
    """Speak a line faster that is too long for its room; say by how much it still is."""
    if line.room_s is None:
        return spoken
    length_s = heard_s(spoken.sound)
    if length_s <= line.room_s:
        return spoken
    sound, facts = spoken.sound, dict(spoken.facts)
    faster = min(fit.max_speed, length_s / line.room_s * _CLOSER)
    if faster > 1:
        speed = options.speed * faster
        (sound,) = synthesiser.synthesise([line.spoken], replace(options, speed=speed))
        facts["speed"] = round(speed, 3)
    return _squeezed(Spoken(sound, facts), line.room_s, fit)


def _squeezed(spoken: Spoken, room_s: float, fit: Fit) -> Spoken:
    """Make what is heard of a line as short as its room, to the sample, or as short as may be; say what is over."""
    sound = spoken.sound
    before, after = edges(sound.samples)
    heard = (before, len(sound.samples) - after)
    length, room = heard[1] - heard[0], seconds_to_samples(room_s, sound.rate_hz)
    if length <= room:
        return spoken
    facts = dict(spoken.facts)
    shorter = max(room, math.ceil(length / fit.max_stretch))
    if shorter < length:
        facts["stretch"] = round(length / shorter, 3)
        sound = Sound(stretch(sound.samples, sound.rate_hz, heard, shorter), sound.rate_hz)
    if shorter > room:
        facts["over_s"] = round(samples_to_seconds(shorter - room, sound.rate_hz), 3)
    return Spoken(sound, facts)


def _understood(lines: Sequence[Line], spoken: Sequence[Spoken], speaker: _Speaker, verify: Verify) -> list[Spoken]:
    """Listen to lines, and speak again those that are not understood: with other seeds, and slower where there is time.

    The one of all tries that was understood best is kept.
    """
    best = _scored(lines, spoken, verify)
    for number in range(1, verify.tries):
        again = [place for place, one in enumerate(best) if one.facts["cer"] > verify.max_cer]
        if not again:
            break
        fresh = [_another(lines[place], best[place], speaker, verify, number) for place in again]
        for place, one in zip(again, _scored([lines[place] for place in again], fresh, verify), strict=True):
            facts = {**one.facts, "tries": number + 1}
            if one.facts["cer"] < best[place].facts["cer"]:
                best[place] = Spoken(one.sound, facts)
            else:
                best[place] = Spoken(best[place].sound, {**best[place].facts, "tries": number + 1})
    return best


def _scored(lines: Sequence[Line], spoken: Sequence[Spoken], verify: Verify) -> list[Spoken]:
    """Return lines with the share of characters that were heard otherwise."""
    heard = verify.hear([one.sound for one in spoken])
    return [
        Spoken(one.sound, {**one.facts, "cer": round(error_rate(line.spoken, text, verify.language), 4)})
        for line, one, text in zip(lines, spoken, heard, strict=True)
    ]


def _another(line: Line, before: Spoken, speaker: _Speaker, verify: Verify, number: int) -> Spoken:
    """Speak a line again, otherwise than before."""
    options = speaker.options
    facts = {name: value for name, value in before.facts.items() if name == "speed"}
    speed = float(facts.get("speed", options.speed))
    if line.room_s is None and verify.slows:
        speed *= _SLOWER
        facts["speed"] = round(speed, 3)
    changed = replace(options, seed=(options.seed or 0) + number, speed=speed)
    (sound,) = speaker.synthesiser.synthesise([line.spoken], changed)
    spoken = Spoken(sound, facts)
    return spoken if line.room_s is None or speaker.fit is None else _squeezed(spoken, line.room_s, speaker.fit)
