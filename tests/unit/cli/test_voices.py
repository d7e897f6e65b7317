"""`voicejobs voices list` where something is missing."""

import json
from typing import Self

import pytest

from voicejobs.cli import voices
from voicejobs.cli.main import run
from voicejobs.engines.base import EngineSpec
from voicejobs.errors import ExtraMissing, ModelCorrupt, VoicejobsError


class _Broken:
    """Stand for engine processes that do not come up."""

    def __init__(self, error: VoicejobsError) -> None:
        self._error = error

    def __call__(self, settings: object) -> "_Broken":
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def synthesiser(self, spec: EngineSpec) -> "_Broken":
        """Load nothing."""
        raise self._error


def listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: VoicejobsError
) -> tuple[int, list[str], str]:
    """List the voices, with models that are here and engines that raise; return exit code, names, and what was said."""
    monkeypatch.setattr(voices, "EngineHost", _Broken(error))
    monkeypatch.setattr(voices, "state", lambda entry, settings: "installed")
    code = run(["voices", "list", "--json"])
    said = capsys.readouterr()
    return code, [one["name"] for one in json.loads(said.out)["voices"]], said.err


def test_voices_are_listed_without_their_engine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names of the catalogue are there, the note says what to install, and nothing counts as failed."""
    error = ExtraMissing("piper-tts is not installed", hint="pip install 'voicejobs[piper]'")
    code, names, said = listed(monkeypatch, capsys, error)
    assert code == 0
    assert "en_US-joe-medium" in names
    assert "note: voices of en_US-joe-medium" in said
    assert "voicejobs[piper]" in said


def test_a_broken_model_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It is told by its code, and the exit code says that something is missing from the list."""
    code, names, said = listed(monkeypatch, capsys, ModelCorrupt("en_US-joe-medium is no Piper voice"))
    assert (code, names) == (3, [])
    assert "[model_corrupt]" in said
