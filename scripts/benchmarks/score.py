"""Word error rate, over all files of a run together."""

import json
import unicodedata
from pathlib import Path

import jiwer
import opencc

UNSPACED_LANGUAGES = {"zh", "ja", "th", "yue"}
"""Languages whose words no blank divides: characters are counted there."""
HAN_LANGUAGES = {"zh", "ja", "yue"}
"""Languages whose characters are compared in their simplified form: which one a model writes says nothing."""


def normalise(text: str) -> str:
    """Return NFKC, lower case, without punctuation, blanks shrunk."""
    kept = (" " if unicodedata.category(mark).startswith("P") and mark != "'" else mark for mark in _fold(text))
    return " ".join("".join(kept).replace("'", "").split())


def _fold(text: str) -> str:
    """Return NFKC and lower case, with one kind of apostrophe."""
    return unicodedata.normalize("NFKC", text).lower().replace("\u2019", "'")


def pooled_error_rate(references: dict[str, str], folder: Path, language: str) -> float:
    """Return the errors of all files over the words of all files; a missing output counts as empty.

    Args:
        references: text of each recording, by the name of its output without the ending.
        folder: where the outputs are.
        language: decides between words and characters.
    """
    names = [name for name in references if normalise(references[name])]
    if not names:
        return 0.0
    expected = [comparable(references[name], language) for name in names]
    heard = [comparable(_read(folder / f"{name}.txt"), language) for name in names]
    measure = jiwer.cer if language in UNSPACED_LANGUAGES else jiwer.wer
    return float(measure(expected, heard))


def comparable(text: str, language: str) -> str:
    """Return the normalised text; without blanks, and in simplified characters, where the language wants that."""
    if language in HAN_LANGUAGES:
        text = opencc.OpenCC("t2s").convert(text)
    text = normalise(text)
    return text.replace(" ", "") if language in UNSPACED_LANGUAGES else text


def _read(path: Path) -> str:
    """Return the text of an output, nothing where there is none."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


def read_manifest(folder: Path) -> dict[str, dict[str, str]]:
    """Return language and text of the recordings that `manifest.jsonl` in `folder` names; empty without one."""
    manifest = folder / "manifest.jsonl"
    if not manifest.exists():
        return {}
    rows = (json.loads(line) for line in manifest.read_text(encoding="utf-8").splitlines() if line.strip())
    return {row["file"]: {"language": row.get("language", ""), "text": row.get("text", "")} for row in rows}
