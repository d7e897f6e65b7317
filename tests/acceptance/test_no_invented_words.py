"""Sound without speech gives an empty, successful transcript: no model may hear words in it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.harness import SHARED, Tree, write_recording
from tests.acceptance.sounds import RATE_HZ, SOUNDS, sound

SECONDS = 16.0
LOUD, SOFT = 0.4, 0.02
# Each of these once gave a word, or a span of speech: (name, seed, level).
ONCE_HEARD = [
    ("saw-melody", 3, 0.05), ("saw-melody", 5, 0.05), ("saw-melody", 5, 0.005), ("trumpet", 3, 0.3),
    ("hum-60", 2, 0.05), ("hum-60", 3, 0.3), ("hum-120", 4, 0.3),
]  # fmt: skip
CASES = ("silence-30s/muted.wav", "music-only-40s/hold music.ogg", "click-50ms/tap.wav")
pytestmark = [pytest.mark.services, pytest.mark.models, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def noises(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with ten minutes of sounds, every other one soft, and those that once were heard as words."""
    folder = tmp_path_factory.mktemp("noises")
    for number, name in enumerate(SOUNDS):
        write_recording(folder / f"{name}.flac", sound(name, SECONDS, SOFT if number % 2 else LOUD))
    for name, seed, level in ONCE_HEARD:
        write_recording(folder / f"{name} {seed} {level}.flac", sound(name, 12.0, level, seed))
    for name in CASES:
        path = SHARED / "cases" / name
        if path.is_file():
            (folder / path.name).symlink_to(path)
    return folder


@pytest.mark.parametrize("model", ["base", "tiny.en"])
def test_sound_without_speech_gives_no_word(
    tree: Tree, noises: Path, model: str, need_model: Callable[[str], None]
) -> None:
    """Hiss, hum, clicks, tones, sweeps, rain, fans, applause and music: 0 words, one empty file each, exit code 0."""
    need_model(model)
    done = tree.run("transcribe", noises, "-o", tree.out, "-m", model, "-f", "txt", "--no-progress", timeout_s=580)
    assert done.code == 0, done.stderr
    texts = {path.stem: path.read_text(encoding="utf-8").strip() for path in tree.out.iterdir()}
    assert len(texts) == len(list(noises.iterdir()))
    assert {name: text for name, text in texts.items() if text} == {}


def test_the_sounds_are_ten_minutes_and_differ() -> None:
    """The sounds last ten minutes together, and each is the same every time."""
    assert len(SOUNDS) * SECONDS >= 600
    for name in SOUNDS:
        samples = sound(name, 1.0, LOUD)
        assert len(samples) == RATE_HZ
        assert 0.3 < abs(samples / 32768).max() < 0.5
        assert (samples == sound(name, 1.0, LOUD)).all()


@pytest.mark.parametrize("prompt", ["Thank you for watching the annual meeting of the harbour committee."])
def test_a_prompt_does_not_leak_into_silence(
    tree: Tree, noises: Path, prompt: str, need_model: Callable[[str], None]
) -> None:
    """What the user says about the recording beforehand is no word of it."""
    need_model("tiny.en")
    files = [noises / f"{name}.flac" for name in ("hiss-pink", "hum-120", "organ", "saw-melody", "buzz")]
    options = ["-m", "tiny.en", "-f", "txt", "--initial-prompt", prompt, "--no-progress"]
    done = tree.run("transcribe", *files, "-o", tree.out, *options)
    assert done.code == 0, done.stderr
    assert {path.name: path.read_text(encoding="utf-8").strip() for path in tree.out.iterdir()} == {
        f"{path.stem}.txt": "" for path in files
    }
