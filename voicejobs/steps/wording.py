"""How far a text that was heard is from the one that was to be said."""

import unicodedata

import numpy as np

from voicejobs.text import read_out


def error_rate(wanted: str, heard: str, language: str) -> float:
    """Return the character error rate: edits for each character of `wanted`, spelling of numbers and marks aside.

    Args:
        wanted: text as it was to be read out.
        heard: what a recogniser wrote, digits and all.
        language: of both.
    """
    one, two = letters(read_out(wanted, language)), letters(read_out(heard, language))
    if not one:
        return 0.0 if not two else 1.0
    return distance(one, two) / len(one)


def letters(text: str) -> str:
    """Return the letters and digits of a text, in lower case and without their accents."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    return "".join(character for character in plain if character.isalnum())


def distance(one: str, two: str) -> int:
    """Return the fewest insertions, deletions and replacements that make `two` of `one` (Levenshtein)."""
    if not one or not two:
        return len(one) + len(two)
    other = np.array([ord(character) for character in two])
    places = np.arange(len(two) + 1)
    row = places.copy()
    for character in one:
        changed = np.empty_like(row)
        changed[0] = row[0] + 1
        np.minimum(row[1:] + 1, row[:-1] + (other != ord(character)), out=changed[1:])
        # What an insertion costs runs along the row: the least of what is to the left, plus one for each step.
        row = np.minimum.accumulate(changed - places) + places
    return int(row[-1])
