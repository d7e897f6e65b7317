"""What people type and write down: whisper's command lines, and files of the configuration."""

import json

import pytest

from tests.acceptance.harness import Tree, speech_files

pytestmark = [pytest.mark.services, pytest.mark.timeout(120)]

WHISPER = (
    "--model base --output_format srt --word_timestamps True --fp16 False --verbose False --language English"
    " --max_line_width 42 --max_line_count 2 --threads 2 --condition_on_previous_text False --beam_size 5 --best_of 5"
    " --temperature 0 --suppress_tokens -1 --task transcribe"
)


def test_a_command_line_of_whisper_works(tree: Tree) -> None:
    """With the word swapped it writes the file that whisper would; what has no meaning is told on standard error."""
    (file,) = speech_files(tree.folder / "in", 1)
    done = tree.run("transcribe", file, *WHISPER.split(), "--output_dir", tree.out, "--engine", "fake")
    assert done.code == 0, done.stderr
    assert [path.name for path in tree.out.iterdir() if path.suffix] == [f"{file.stem}.srt"]
    assert "warning: --fp16 has no meaning here" in done.stderr
    (job,) = tree.show("job", "list")
    options = tree.show("job", "show", job["id"])["options"]["recognise"]
    assert (options["language"], options["word_timestamps"]) == ("en", True)


def test_a_recording_without_a_command(tree: Tree) -> None:
    """`voicejobs a.wav` does nothing and says what to type."""
    (file,) = speech_files(tree.folder / "in", 1)
    done = tree.run(file)
    assert done.code == 2
    assert f"voicejobs transcribe {file}" in done.stderr


def test_a_file_of_the_configuration_reaches_commands_and_workers(tree: Tree) -> None:
    """Defaults of options come from `voicejobs.toml`, and so do the settings of the workers that a command starts."""
    speech_files(tree.folder / "in", 1)
    (tree.folder / "voicejobs.toml").write_text(
        '[transcribe]\nengine = "fake"\nformat = ["txt", "srt"]\noutput-dir = "out"\nno-progress = true\n'
        "[profile.short]\nmax_audio_s = 1\n"
    )
    assert tree.run("transcribe", "in", cwd=tree.folder).code == 0
    assert sorted(path.name for path in tree.out.iterdir() if path.suffix) == ["000.srt", "000.txt"]
    done = tree.run("transcribe", "in", "--force", "--profile", "short", cwd=tree.folder)
    assert done.code == 8
    assert "[too_long]" in done.stderr
    shown = tree.run("config", "show", "--json", "--profile", "short", cwd=tree.folder)
    settings = json.loads(shown.stdout)["config"]["settings"]
    assert settings["max_audio_s"] == {"value": 1.0, "origin": "voicejobs.toml:7 profile.short.max_audio_s"}


def test_color_is_asked_for_and_never_needed(tree: Tree) -> None:
    """No escape without a terminal, escapes with --color always, and the same words either way."""
    plain = tree.run("job", "show", "none").stderr
    assert "\x1b" not in plain
    colored = tree.run("job", "show", "none", "--color", "always").stderr
    assert "\x1b[" in colored
    assert colored.replace("\x1b[31m", "").replace("\x1b[1m", "").replace("\x1b[0m", "") == plain
