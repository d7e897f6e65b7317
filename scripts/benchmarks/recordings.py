"""The recordings of a benchmark, copied under names whose stems differ, and made ones."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile as sf
from benchmarks.score import read_manifest

from voicejobs.settings import inherited_environment

ROOT = Path(__file__).parents[2]
SPEECH = ROOT.parent / "shared" / "speech"
RATE_HZ = 16_000
PAUSE_S = 1.5


@dataclass(frozen=True)
class Staged:
    """Hold copies of recordings, and their texts where they are known.

    Args:
        folder: holds the copies and nothing else.
        files: the copies.
        references: text by stem.
        left_out: names that plain faster-whisper cannot decode, so that nobody is measured on them.
    """

    folder: Path
    files: list[Path]
    references: dict[str, str]
    left_out: list[str]


def stage(source: Path, language: str, folder: Path) -> Staged:
    """Copy the recordings of `source` in this language that faster-whisper can decode.

    Where `source` has a manifest.jsonl, it says which files there are, their language and text; else every visible
    file counts, and there are no texts.
    """
    manifest = read_manifest(source)
    if manifest:
        names = [name for name, row in manifest.items() if not language or row["language"] == language]
    else:
        names = sorted(path.name for path in source.iterdir() if path.is_file() and not path.name.startswith("."))
    opened = _that_open([source / name for name in names])
    folder.mkdir()
    files, references = [], {}
    for number, path in enumerate(opened):
        copy = folder / f"{number:04d}_{path.stem}{path.suffix}"
        shutil.copyfile(path, copy)
        files.append(copy)
        if manifest.get(path.name, {}).get("text"):
            references[copy.stem] = manifest[path.name]["text"]
    return Staged(folder, files, references, sorted(set(names) - {path.name for path in opened}))


def _that_open(paths: list[Path]) -> list[Path]:
    """Return the paths that faster-whisper decodes, asked in a process of its own."""
    plain = Path(__file__).with_name("plain.py")
    answer = subprocess.run(
        [sys.executable, str(plain), "--can-open", *map(str, paths)],
        capture_output=True,
        text=True,
        env=inherited_environment(),
        check=True,
    )
    return [Path(line) for line in answer.stdout.splitlines()]


def speech() -> "np.ndarray[Any, np.dtype[np.int16]]":
    """Return some seconds of speech at 16 kHz: our own examples, or the recordings beside the checkout."""
    pieces = []
    for path in sorted([*(ROOT / "examples").glob("*.wav"), *(ROOT / "examples").glob("*.flac")]) or [
        SPEECH / "jfk.flac"
    ]:
        samples, rate = sf.read(path, dtype="int16", always_2d=True)
        mono = samples[:, 0]
        wanted = np.linspace(0, len(mono) - 1, len(mono) * RATE_HZ // rate)
        pieces += [
            np.interp(wanted, np.arange(len(mono)), mono).astype(np.int16),
            np.zeros(int(PAUSE_S * RATE_HZ), np.int16),
        ]
    return np.concatenate(pieces)


def write_seconds(folder: Path, count: int) -> None:
    """Write `count` WAV files of one second of speech, no two alike."""
    folder.mkdir(parents=True)
    sound = speech()
    loudness = np.convolve(np.abs(sound.astype(np.float32)), np.ones(RATE_HZ, np.float32), "valid")
    start = int(loudness.argmax())
    second = sound[start : start + RATE_HZ]
    for number in range(count):
        copy = second.copy()
        bits = np.array([(number >> bit) & 1 for bit in range(32)], np.int16)
        copy[:32] = bits  # the number, in the last bit of the first samples: nobody hears it, every hash sees it
        sf.write(folder / f"{number:06d}.wav", copy, RATE_HZ, subtype="PCM_16")


def write_long(path: Path, hours: float) -> None:
    """Write one FLAC of speech and pauses over and over; each round is scaled, so that no two are alike."""
    sound, left, generator = speech(), int(hours * 3600 * RATE_HZ), np.random.default_rng(7)
    with sf.SoundFile(path, "w", RATE_HZ, 1, "PCM_16", format="FLAC") as file:
        while left > 0:
            round_ = (sound * generator.uniform(0.5, 1.0)).astype(np.int16)[:left]
            file.write(round_)
            left -= len(round_)
