"""The tree of errors: complete, coded, and drawn as it is."""

import re
from collections.abc import Iterator

import pytest

from voicejobs import errors
from voicejobs.errors import Interruption, NotAudio, Permanent, Transient, VoicejobsError


def tree(base: type[VoicejobsError] = VoicejobsError) -> Iterator[type[VoicejobsError]]:
    """Yield a class and all classes below it."""
    yield base
    for child in base.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


def test_every_class_has_a_code_of_its_own() -> None:
    """Codes are unique, in lower case, and defined by the class itself."""
    found = list(tree())
    assert len({one.code for one in found}) == len(found)
    for one in found:
        assert "code" in vars(one)
        assert re.fullmatch(r"[a-z_]+", one.code)


def test_the_diagram_names_every_class() -> None:
    """The drawing at the head of the module has every class once, and no other."""
    diagram = str(errors.__doc__).partition("\n\n")[2].partition("\n\n")[0]
    drawn = re.findall(r"\b[A-Z][a-z]+[A-Za-z]*\b", diagram)
    assert sorted(drawn) == sorted(one.__name__ for one in tree())


def test_every_class_is_of_one_kind() -> None:
    """Each error is permanent, transient or an interruption, so that a task knows what to do."""
    for one in set(tree()) - {VoicejobsError}:
        assert sum(issubclass(one, kind) for kind in (Permanent, Transient, Interruption)) == 1


@pytest.mark.parametrize("one", list(tree()))
def test_errors_tell_what_and_what_to_do(one: type[VoicejobsError]) -> None:
    """An error shows its message, gives JSON with code, message, hint and details, and takes a hint of its own."""
    error = one("a.wav is odd", limit_s=3)
    assert str(error) == "a.wav is odd"
    assert error.to_json() == {
        "code": one.code,
        "message": "a.wav is odd",
        "hint": one.default_hint,
        "details": {"limit_s": 3},
    }
    assert one("x", hint="do that").hint == "do that"
    assert one("x", hint="").hint == ""


def test_errors_of_inputs_say_what_to_do() -> None:
    """Every error that one input can cause has a hint."""
    assert all(one.default_hint for one in tree(errors.InputError))
    assert NotAudio("x").hint
