"""Templates of output names: what `--output-template` takes."""

import difflib
import os
import string
from dataclasses import dataclass

from voicejobs.errors import BadOption
from voicejobs.store.paths import HASH8

DEFAULT_TEMPLATE = "{relpath}/{stem}.{ext}"
FIELDS = ("relpath", "stem", "name", "suffix", "model", "language", "hash8", "ext")
_ENDING = ".{ext}"


@dataclass(frozen=True, slots=True)
class Template:
    """Hold where the output of an input goes, below the output folder; made by `parse_template`.

    Args:
        parts: literal text and the name of the field after it, in turns.
        constants: fields that are the same for all inputs.
    """

    parts: tuple[tuple[str, str | None], ...]
    constants: dict[str, str]

    @property
    def needs_hash(self) -> bool:
        """Tell whether a name is known only once its file has been read."""
        return any(field == "hash8" for _, field in self.parts)

    def stem(self, relative: str, *, whole_name: bool = False) -> str:
        """Return the relative path of the outputs without their ending.

        Args:
            relative: the input's path below what was named.
            whole_name: keep the input's ending, since another input would share the name otherwise.
        """
        folder, name = os.path.split(relative)
        stem, suffix = os.path.splitext(name)  # noqa: PTH122 - `.with_suffix` fails on names such as `..wav`
        values = {
            **self.constants,
            "relpath": folder or ".",
            "stem": name if whole_name else stem,
            "name": name,
            "suffix": suffix[1:],
            "hash8": HASH8,
        }
        return os.path.normpath("".join(text + (values[field] if field else "") for text, field in self.parts))


def parse_template(text: str, *, model: str = "", language: str = "") -> Template:
    """Return the template that `text` writes; `.{ext}` at its end may be left out.

    Raises:
        BadOption: a field is unknown, braces do not fit, it leads out of the output folder, or inputs would share one
            name.
    """
    body = text.removesuffix(_ENDING)
    try:
        parsed = [
            (before, field, spec, conversion) for before, field, spec, conversion in string.Formatter().parse(body)
        ]
    except ValueError as error:
        raise BadOption(
            f"--output-template {text!r} cannot be read: {error}", hint="A brace itself is written twice."
        ) from None
    for _, field, spec, conversion in parsed:
        _demand_field(text, field, f"{spec or ''}{conversion or ''}")
    folders = "".join(before + ("x" if field else "") for before, field, *_ in parsed).split("/")
    if body.startswith("/") or ".." in folders:
        raise BadOption(f"--output-template {text!r} leads out of the output folder", hint="Name that with -o.")
    if "\0" in body or not folders[-1]:
        raise BadOption(f"--output-template {text!r} names no file", hint=f"The default is {DEFAULT_TEMPLATE}.")
    if not {field for _, field, *_ in parsed} & {"stem", "name", "hash8"}:
        raise BadOption(
            f"--output-template {text!r} gives every input the same name", hint="Use {stem}, {name} or {hash8} in it."
        )
    constants = {"model": _one_name(model) or "none", "language": _one_name(language) or "auto"}
    return Template(tuple((before, field) for before, field, *_ in parsed), constants)


def _demand_field(text: str, field: str | None, extra: str) -> None:
    """Refuse what is no field of ours."""
    if field is None:
        return
    if field == "ext":
        raise BadOption(
            f"In --output-template {text!r}, {{ext}} must be the end",
            hint=f"All formats of an input lie side by side: write ...{_ENDING}, or leave it out.",
        )
    if extra or field not in FIELDS:
        near = difflib.get_close_matches(field, FIELDS, n=1)
        meant = f"Did you mean {{{near[0]}}}? " if near and not extra else ""
        raise BadOption(
            f"--output-template {text!r} has the unknown field {{{field}}}" if not extra
            else f"In --output-template {text!r}, {{{field}}} takes no format",
            hint=f"{meant}The fields are {', '.join(FIELDS)}.",
        )  # fmt: skip


def _one_name(text: str) -> str:
    """Return text that stands for no folder."""
    return text.replace("/", "-").replace("\0", "")
