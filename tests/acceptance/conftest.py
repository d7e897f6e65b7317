"""A state folder for each test, whose processes end with the test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.harness import Tree, missing
from voicejobs.embedded.valkey import find_server
from voicejobs.errors import ExtraMissing

MakeTree = Callable[..., Tree]


@pytest.fixture(scope="session")
def private_server() -> None:
    """Skip where there is no server for the embedded stack."""
    try:
        find_server()
    except ExtraMissing as error:
        missing(error.message)


@pytest.fixture
def make_tree(tmp_path: Path, models_dir: Path, private_server: None) -> Iterator[MakeTree]:
    """Return a function that makes a state folder: `make_tree("name", VOICEJOBS_SETTING="value")`."""
    trees: list[Tree] = []

    def make(name: str = "tree", **settings: str) -> Tree:
        folder = tmp_path / name
        folder.mkdir()
        trees.append(Tree(folder, {"VOICEJOBS_MODELS_DIR": str(models_dir), **settings}))
        return trees[-1]

    yield make
    for tree in trees:
        tree.close()


@pytest.fixture
def tree(make_tree: MakeTree) -> Tree:
    """Return a state folder with the default settings."""
    return make_tree()


@pytest.fixture
def need_model(models_dir: Path) -> Callable[[str], None]:
    """Return a function that skips where a model's weights are not on this machine."""

    def need(name: str) -> None:
        if not (models_dir / name / "model.bin").is_file():
            missing(f"model {name} is not in {models_dir}: voicejobs models pull {name}")

    return need
