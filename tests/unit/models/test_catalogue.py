"""The catalogue: names, hashes and sources."""

import pytest

from voicejobs.errors import BadOption, UnknownModel
from voicejobs.models.catalogue import CATALOGUE, ModelEntry, PackageSource, find, require_engine


def test_unknown_name_gets_the_nearest_one_as_hint() -> None:
    """A mistyped name is refused with the name that was probably meant."""
    with pytest.raises(UnknownModel, match="bsae") as caught:
        find("bsae")
    assert "'base'" in caught.value.hint


def test_a_model_of_another_engine_is_neither_taken_nor_offered() -> None:
    """A voice recognises nothing: nobody shall fetch it to find out, or be sent to it by a hint."""
    require_engine("base", "whisper")
    with pytest.raises(BadOption, match="piper") as refused:
        require_engine("en_US-joe-medium", "whisper")
    assert "base" in refused.value.hint
    with pytest.raises(UnknownModel) as caught:
        require_engine("medium", "whisper")
    assert "en_US-joe-medium" not in caught.value.hint


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=list(CATALOGUE))
def test_every_file_is_pinned_and_carried_by_a_package(entry: ModelEntry) -> None:
    """Each file has a full hash and a size, and some Python package with an exact version carries it."""
    package = next(source for source in entry.sources if isinstance(source, PackageSource))
    for file in entry.files:
        assert len(bytes.fromhex(file.sha256)) == 32
        assert file.bytes > 0
        assert all("==" in piece.requirement for piece in package.pieces_of(file.name))
        assert package.pieces_of(file.name)


def test_hashes_of_the_weights_are_those_of_the_design() -> None:
    """The pinned weights are the ones that were checked with their engines."""
    pinned = {file.name: file.sha256 for entry in CATALOGUE.values() for file in entry.files}
    assert pinned["en_US-joe-medium.onnx"] == "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06"
    base = {file.name: file for file in find("base").files}["model.bin"]
    assert (base.bytes, base.sha256[:8]) == (145_217_532, "d01c3014")
    tiny = {file.name: file for file in find("tiny.en").files}["model.bin"]
    assert (tiny.bytes, tiny.sha256[:8]) == (75_537_502, "1a5afae0")


def test_model_hash_depends_on_content_and_names_but_not_on_order() -> None:
    """Two lists of the same files in another order are the same model; another file is another model."""
    entry = find("base")
    values = {name: getattr(entry, name) for name in ModelEntry.__slots__}
    assert ModelEntry(**{**values, "files": entry.files[::-1]}).sha256 == entry.sha256
    assert ModelEntry(**{**values, "files": entry.files[1:]}).sha256 != entry.sha256
