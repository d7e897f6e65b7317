"""Real speech through the real command: a check of sanity; scripts/bench accuracy compares exactly."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.harness import SHARED, Tree, files_below, manifest, word_errors

LONGEST_S = 20.0
MAX_WER = 0.2
DURATION_TOLERANCE_S = 0.1
pytestmark = [pytest.mark.services, pytest.mark.models, pytest.mark.timeout(150)]


@pytest.fixture
def recordings() -> list[dict[str, Any]]:
    """Return the manifest's short English recordings with a text."""
    return [row for row in manifest() if row["language"] == "en" and row["text"] and row["duration_s"] < LONGEST_S]


def test_english_is_understood_and_durations_are_right(
    tree: Tree, tmp_path: Path, recordings: list[dict[str, Any]], need_model: Callable[[str], None]
) -> None:
    """Fewer than one word in five is wrong over all files, and each duration is that of the manifest."""
    need_model("base")
    recordings = [row for row in recordings if not row["file"].endswith(".raw")]  # no header: nothing to open
    folder = tmp_path / "in"
    folder.mkdir()
    for row in recordings:
        (folder / row["file"]).symlink_to(SHARED / "speech" / row["file"])
    done = tree.run("transcribe", folder, "-o", tree.out, "-m", "base", "-l", "en", "--no-progress", timeout_s=140)
    assert done.code == 0, done.stderr
    assert len(files_below(tree.out)) == len(recordings) >= 10
    jobs = {job["name"]: job for job in tree.show("job", "list", "--limit", "100")}
    heard, said = [], []
    for row in recordings:
        stem = tree.out / Path(row["file"]).stem
        output = stem.with_suffix(".txt") if stem.with_suffix(".txt").exists() else tree.out / f"{row['file']}.txt"
        heard.append(output.read_text())
        said.append(row["text"])
        assert jobs[row["file"]]["audio_s"] == pytest.approx(row["duration_s"], abs=DURATION_TOLERANCE_S)
    wer = word_errors(said, heard)
    print(f"pooled WER over {len(recordings)} recordings: {wer:.3f}")  # noqa: T201 - a figure worth seeing
    assert wer < MAX_WER
