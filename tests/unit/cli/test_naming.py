"""Names of outputs: templates, collisions, and names that are too long."""

import os
import time
from pathlib import Path

import pytest

from voicejobs.cli.inputs import Found
from voicejobs.cli.naming import name_outputs
from voicejobs.cli.template import parse_template
from voicejobs.errors import BadOption
from voicejobs.store.paths import HASH8


def targets(relatives: list[str], template: str = "{relpath}/{stem}.{ext}", *formats: str) -> list[str]:
    """Return the targets of inputs, below the output folder."""
    found = [Found(f"/in/{number}/{relative}", relative) for number, relative in enumerate(relatives)]
    parsed = parse_template(template, model="base", language="de")
    named = name_outputs(found, Path("/nowhere/out"), formats or ("txt",), parsed)
    assert all(file.target.startswith("/nowhere/out/") for file in named)
    return [file.target.removeprefix("/nowhere/out/") for file in named]


def test_the_tree_is_mirrored_and_the_ending_goes() -> None:
    """The default."""
    assert targets(["a.wav", "b/c.tar.mp3", "..wav", "x"]) == ["a", "b/c.tar", "..wav", "x"]


def test_equal_stems_keep_their_endings_and_equal_names_get_numbers() -> None:
    """No two inputs share an output."""
    assert targets(["a.wav", "a.mp3", "b/a.wav"]) == ["a.wav", "a.mp3", "b/a"]
    assert targets(["a.wav", "a.wav", "a.wav", "a.wav-2"]) == ["a.wav", "a.wav-2", "a.wav-3", "a.wav-2-2"]


def test_a_folder_that_may_not_be_searched_is_no_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """That it cannot be written is told later, as an error of the option."""

    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", refuse)
    assert targets(["a.wav"]) == ["a"]


@pytest.mark.parametrize(
    ("template", "target"),
    [
        ("{relpath}/{stem}.{ext}", "b/c"),
        ("{stem}", "c"),
        ("{relpath}/{name}", "b/c.mp3"),
        ("{suffix}/{stem}.{ext}", "mp3/c"),
        ("{model}-{language}/{stem}", "base-de/c"),
        ("{{x}} {stem}.{ext}", "{x} c"),
        ("{stem}-{hash8}.{ext}", f"c-{HASH8}"),
    ],
)
def test_a_template_says_where_outputs_go(template: str, target: str) -> None:
    """Its fields are those of docs/cli.md; the ending is added in any case."""
    assert targets(["b/c.mp3"], template) == [target]


@pytest.mark.parametrize(
    "template",
    ["{stme}.{ext}", "{ext}/{stem}.{ext}", "x.{ext}", "../{stem}.{ext}", "/abs/{stem}", "{stem", "{stem}}", "{stem!r}",
     "{stem:>9}", "{stem.x}", "{0}", "{}", "", "a/../../{stem}", "{stem}/", "{relpath}.{ext}", "{stem}\0"],
)  # fmt: skip
def test_a_template_that_cannot_be_is_refused(template: str) -> None:
    """Before any work: unknown fields, names that all inputs would share, ways out of the output folder."""
    with pytest.raises(BadOption) as error:
        parse_template(template)
    assert error.value.hint


def test_a_mistyped_field_is_met_with_a_suggestion() -> None:
    """The nearest one is named."""
    with pytest.raises(BadOption) as error:
        parse_template("{stme}.{ext}")
    assert "{stem}" in error.value.hint


def test_a_value_never_leads_out_of_its_folder() -> None:
    """Names of models and languages stand for no folder."""
    template = parse_template("{model}/{stem}", model="../../x", language="en")
    (file,) = name_outputs([Found("/in/a.wav", "a.wav")], Path("/out"), ["txt"], template)
    assert Path(file.target) == Path("/out/..-..-x/a")


@pytest.mark.parametrize("stem", ["a" * 251, "\u00fc" * 125, "\U0001f3a4" * 62, "x" * 250 + "\u00fc"])
def test_a_name_that_leaves_no_room_for_the_ending_is_cut(stem: str) -> None:
    """Between characters, and with a mark that keeps names apart which begin alike."""
    one, other = targets([f"{stem}.wav", f"{stem[:-1]}y.wav"], "{stem}", "textgrid", "srt")
    for target in (one, other):
        assert len(os.fsencode(target + ".TextGrid")) <= 255
        target.encode()
    assert one != other


def test_bytes_that_are_no_text_are_kept_or_cut_as_well() -> None:
    """A name of 255 odd bytes has an output, too."""
    (target,) = targets([os.fsdecode(b"\xe9" * 251 + b".wav")])
    assert len(os.fsencode(f"{target}.txt")) <= 255
    (target,) = targets([os.fsdecode(b"caf\xe9.wav")])
    assert target == os.fsdecode(b"caf\xe9")


def test_long_names_that_collide_stay_apart() -> None:
    """Their endings, too, have to fit."""
    stem = "a" * 251
    names = targets([f"{stem}.wav", f"{stem}.mp3"], "{stem}", "srt")
    assert len(set(names)) == 2
    assert all(len(f"{name}.srt") <= 255 for name in names)


def test_many_equal_names_are_numbered_in_a_moment() -> None:
    """Each looks for its number once."""
    began = time.perf_counter()
    names = targets(["take.wav"] * 20_000)
    assert len(set(names)) == 20_000
    assert time.perf_counter() - began < 10
