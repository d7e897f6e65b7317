"""Name the outputs: no two inputs alike, and no name longer than a file can have."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Self

from voicejobs.cli.inputs import Found
from voicejobs.cli.outputs import ending
from voicejobs.cli.template import DEFAULT_TEMPLATE, Template, parse_template
from voicejobs.store.paths import HASH8
from voicejobs.submit import InputFile

MAX_NAME_BYTES = 255
_MARK_HEX = 8


def name_outputs(
    found: Sequence[Found], output_dir: Path, formats: Sequence[str], template: Template | None = None
) -> list[InputFile]:
    """Return the inputs with the stems of their outputs: without the ending, or with it where stems would collide."""
    template = template or parse_template(DEFAULT_TEMPLATE)
    root = os.path.abspath(output_dir)  # noqa: PTH100 - the name that the user gave, not what a link points to
    longest = _longest_name(root) - max((len(ending(name)) for name in formats), default=0)
    plain = [template.stem(one.relative) for one in found]
    shared = Counter(plain)
    used: dict[str, int] = {}
    files = []
    for one, stem in zip(found, plain, strict=True):
        # Texts without a file of their own have no ending that could tell them apart.
        is_alone = shared[stem] == 1 or one.text is not None
        wanted = stem if is_alone else template.stem(one.relative, whole_name=True)
        free = _unused(_shortened(wanted, longest), used, longest)
        target = os.path.join(root, free)  # noqa: PTH118
        files.append(
            InputFile(one.path, one.shown or one.relative, target, one.error, text=one.text, options=one.options)
        )
    return files


@dataclass(frozen=True, slots=True)
class Places:
    """Tell where the outputs of inputs go that are named one by one, without knowing the others.

    Args:
        root: absolute path of the output folder.
        longest: bytes that the last name of a path may have.
    """

    root: str
    longest: int

    @classmethod
    def below(cls, output_dir: Path, formats: Sequence[str]) -> Self:
        """Return the places below a folder, for outputs in some formats."""
        root = os.path.abspath(output_dir)  # noqa: PTH100 - the name that the user gave, not what a link points to
        return cls(root, _longest_name(root) - max((len(ending(name)) for name in formats), default=0))

    def of(self, name: str) -> str:
        """Return the place for an input: the tree above it is mirrored, its ending left out."""
        parts = [part for part in name.split("/") if part not in {"", ".", ".."}] or ["_"]
        stem = os.path.splitext("/".join(parts))[0]  # noqa: PTH122 - `.with_suffix` fails on names such as `..wav`
        fits = len(os.fsencode(stem)) <= self.longest
        return f"{self.root}/{stem if fits else _shortened(stem, self.longest)}"

    def named(self, target: str) -> str:
        """Return the place that somebody has named: an absolute path, or one below the folder."""
        return os.path.normpath(os.path.join(self.root, target))  # noqa: PTH118 - see above


def _unused(stem: str, used: dict[str, int], longest: int) -> str:
    """Return a stem that no other input has, numbered where need be."""
    candidate = stem
    while candidate in used:
        used[stem] += 1  # the last number is kept, so that many inputs of one name cost no search each
        candidate = _shortened(f"{stem}-{used[stem]}", longest)
    used[candidate] = 1
    return candidate


def _shortened(relative: str, longest: int) -> str:
    """Return a path whose names fit: a longer one is cut between characters, and marked by a hash of the whole."""
    names = relative.split("/")
    limits = [MAX_NAME_BYTES] * (len(names) - 1) + [longest]
    # The place of a hash that is not known yet is taken to be as long as the hash.
    return "/".join(
        name if len(os.fsencode(name)) <= limit else _cut(name, limit)
        for name, limit in zip(names, limits, strict=True)
    )


def _cut(name: str, limit: int) -> str:
    """Return at most `limit` bytes for a name, different for different names."""
    mark = f"~{sha256(os.fsencode(name)).hexdigest()[:_MARK_HEX]}"
    if HASH8 in name:
        mark += f"-{HASH8}"
    kept = os.fsencode(name.replace(HASH8, ""))[: max(1, limit - len(mark))]
    while kept and kept[-1] & 0xC0 == 0x80:  # in the middle of a character, perhaps: drop it whole  # noqa: PLR2004
        kept = kept[:-1]
    if kept and kept[-1] >= 0xC0:  # noqa: PLR2004 - a lead byte without what follows it
        kept = kept[:-1]
    return os.fsdecode(kept).rstrip() + mark


def _longest_name(folder: str) -> int:
    """Return the most bytes that a name can have there; the folder itself may not exist yet."""
    place = Path(folder)
    # `Path.is_dir` raises where a folder above may not be searched.
    while not os.path.isdir(place) and place != place.parent:  # noqa: PTH112
        place = place.parent
    try:
        return min(MAX_NAME_BYTES, os.pathconf(place, "PC_NAME_MAX"))
    except (OSError, ValueError):
        return MAX_NAME_BYTES
