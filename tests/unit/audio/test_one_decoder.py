"""There is one decoder in the code base, and everything goes through it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
FORBIDDEN = re.compile(
    r"\bav\.open\s*\(|\bav\.container\.open|from av import[^\n]*\bopen\b"
    # A SoundFile that is opened to write is an encoder.
    r"|\b(soundfile|sf)\.(read|blocks)\b|\b(soundfile|sf)\.SoundFile\b(?!\([^()]*\"[wx]\")"
    r"|\btorchaudio\b[^\n]*\bload\b|\blibrosa\b|\baudioread\b|\bpydub\b|\bdecode_audio\b"
    r"|[\"']ff(mpeg|probe)[\"']"
)


def test_only_one_module_opens_recordings() -> None:
    """No module of voicejobs/ or workers/ but audio/container.py opens media, by any library or program."""
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for folder in ("voicejobs", "workers")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for match in FORBIDDEN.finditer(path.read_text(encoding="utf-8"))
        if path != ROOT / "voicejobs" / "audio" / "container.py"
    ]
    assert not found


def test_the_search_sees_what_it_looks_for() -> None:
    """The pattern finds the ways that are forbidden, or the test above would prove nothing."""
    for line in (
        'av.open("a")',
        "soundfile.read(path)",
        "torchaudio.load(path)",
        'run(["ffmpeg"])',
        "sf.read(x)",
        "sf.SoundFile(x)",
    ):
        assert FORBIDDEN.search(line)
    assert not FORBIDDEN.search('soundfile.SoundFile(sink, "w", 16000, 1)')
    assert FORBIDDEN.search((ROOT / "voicejobs" / "audio" / "container.py").read_text(encoding="utf-8"))
