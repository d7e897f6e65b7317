"""Speak lines, group by group: into their room where they have one, and again where they are not understood."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from voicejobs.audio.types import Sound
from voicejobs.engines.base import SynthesiseOptions, Synthesiser
from voicejobs.errors import BadOption, Internal
from voicejobs.steps.join import edges
from voicejobs.steps.lines import Line
from voicejobs.steps.wording import error_rate
from voicejobs.text import speakable

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
        facts: `skipped`, the letters that the voice does not know; `speed` where it is not what was asked for; `over_s`
            where the line is longer than its room; `cer` and `tries` where it was listened to.
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
    """

    hear: Callable[[Sequence[Sound]], list[str]]
    max_cer: float
    tries: int
    language: str


@dataclass(frozen=True, slots=True)
class Fit:
    """Say how far a line may be sped up to fit its room: `max_speed` times the speed that was asked for."""

    max_speed: float = 1.5


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
        found = _understood(lines, found, synthesiser, options, verify)
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
    speed = options.speed * min(fit.max_speed, length_s / line.room_s * _CLOSER)
    (sound,) = synthesiser.synthesise([line.spoken], replace(options, speed=speed))
    over_s = heard_s(sound) - line.room_s
    facts = {"speed": round(speed, 3)} | ({"over_s": round(over_s, 3)} if over_s > 0 else {})
    return Spoken(sound, {**spoken.facts, **facts})


def _understood(
    lines: Sequence[Line],
    spoken: Sequence[Spoken],
    synthesiser: Synthesiser,
    options: SynthesiseOptions,
    verify: Verify,
) -> list[Spoken]:
    """Listen to lines, and speak again those that are not understood: with other seeds, and slower where there is time.

    The one of all tries that was understood best is kept.
    """
    best = _scored(lines, spoken, verify)
    for number in range(1, verify.tries):
        again = [place for place, one in enumerate(best) if one.facts["cer"] > verify.max_cer]
        if not again:
            break
        fresh = [_another(lines[place], best[place], synthesiser, options, number) for place in again]
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


def _another(line: Line, before: Spoken, synthesiser: Synthesiser, options: SynthesiseOptions, number: int) -> Spoken:
    """Speak a line again, otherwise than before."""
    facts = {name: value for name, value in before.facts.items() if name in {"speed", "over_s"}}
    speed = float(facts.get("speed", options.speed))
    if line.room_s is None:
        speed *= _SLOWER
        facts["speed"] = round(speed, 3)
    changed = replace(options, seed=(options.seed or 0) + number, speed=speed)
    (sound,) = synthesiser.synthesise([line.spoken], changed)
    return Spoken(sound, facts)
