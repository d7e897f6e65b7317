"""A command line of whisper works with the word swapped."""

from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import CliRunner

from voicejobs.cli.main import cli
from voicejobs.cli.spelling import Command
from voicejobs.cli.whisper import Rewriter

PARAMETERS = [
    click.Argument(["paths"], nargs=-1),
    click.Option(["-m", "--model"]),
    click.Option(["-o", "--output-dir"]),
    click.Option(["-f", "--format"], multiple=True),
    click.Option(["--word-timestamps/--no-word-timestamps"]),
    click.Option(["--force"], is_flag=True),
    click.Option(["--beam-size"], type=int),
    click.Option(["--max-line-width"], type=int),
    click.Option(["--limit"], metavar="NUMBER|none"),
    click.Option(["-v", "--verbose"], count=True),
]


def rewritten(line: str) -> tuple[list[str], list[str]]:
    """Return the words that click gets, and what is told."""
    told: list[str] = []
    return list(Rewriter(PARAMETERS, told.append).words(line.split())), told


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a.mp3 --output_dir out", "a.mp3 --output-dir out"),
        ("--output_format srt a.mp3", "--format srt a.mp3"),
        ("--output_format=srt", "--format srt"),
        ("--word_timestamps True --force False a", "--word-timestamps a"),
        ("--word_timestamps False", "--no-word-timestamps"),
        ("--word_timestamps=false", "--no-word-timestamps"),
        ("--word-timestamps a.mp3", "--word-timestamps a.mp3"),
        ("--verbose False a", "a"),
        ("--verbose True a", "--verbose a"),
        ("-v a", "-v a"),
        ("--beam_size None a", "--beam-size 1 a"),
        ("--max_line_width None a", "a"),
        ("--limit None a", "--limit None a"),
        ("--model --fp16 a", "--model --fp16 a"),
        ("-o --force a", "-o --force a"),
        ("--word_timestamps false a", "--no-word-timestamps a"),
        ("-- --word_timestamps True", "-- --word_timestamps True"),
        ("--frobnicate x", "--frobnicate x"),
        ("--model", "--model"),
        ("-", "-"),
    ],
)
def test_words_are_rewritten(line: str, words: str) -> None:
    """Underscores, other names, True and False after switches, and None; values and what follows -- stay."""
    assert rewritten(line) == (words.split(), [])


@pytest.mark.parametrize(
    ("line", "words", "flags"),
    [
        ("--fp16 False a.mp3", "a.mp3", ["--fp16"]),
        ("--speaker_num -1 a.mp3", "a.mp3", ["--speaker-num"]),
        ("--fp16 --force a.mp3", "--force a.mp3", ["--fp16"]),
        ("--batched a.mp3", "a.mp3", ["--batched"]),
        ("--batched true a.mp3", "a.mp3", ["--batched"]),
        ("-p True a.mp3", "a.mp3", ["-p"]),
        ("--hf_token=x --print_colors True a", "a", ["--hf-token", "--print-colors"]),
    ],
)
def test_flags_without_meaning_are_taken_with_a_warning(line: str, words: str, flags: list[str]) -> None:
    """They and their values go, and one line for each says why."""
    found, told = rewritten(line)
    assert found == words.split()
    assert [text.split()[1] for text in told] == flags


WHISPER = (
    "--model base --model_dir /m --device cpu --output_dir out --output_format srt --verbose False --task transcribe"
    " --language English --temperature 0 --best_of 5 --beam_size 5 --patience 1.0 --length_penalty 1.0"
    " --suppress_tokens -1 --initial_prompt Hello --carry_initial_prompt False --condition_on_previous_text False"
    " --fp16 False --temperature_increment_on_fallback 0.2 --compression_ratio_threshold 2.4 --logprob_threshold -1.0"
    " --no_speech_threshold 0.6 --word_timestamps True --prepend_punctuations x --append_punctuations y"
    " --highlight_words False --max_line_width 42 --max_line_count 2 --max_words_per_line 8 --threads 2"
    " --clip_timestamps 0 --hallucination_silence_threshold 2"
)
CTRANSLATE2 = (
    "--model base --model_directory /m --compute_type int8 --device_index 0 --vad_filter True --vad_threshold 0.5"
    " --vad_min_speech_duration_ms 250 --vad_max_speech_duration_s 30 --vad_min_silence_duration_ms 2000"
    " --vad_speech_pad_ms 400 -p False --hotwords fox --batched True --batch_size 8 --hf_token x --speaker_name S"
    " --pretty_json True --print_colors False --multilingual False --repetition_penalty 1 --no_repeat_ngram_size 0"
    " --local_files_only False --output_format json --verbose True"
)


@pytest.mark.parametrize("line", [WHISPER, CTRANSLATE2])
def test_the_real_command_takes_every_flag(line: str) -> None:
    """All flags of openai-whisper and of whisper-ctranslate2 are understood by `transcribe`."""
    from voicejobs.cli.transcribe import transcribe

    root = click.Context(cli, info_name="voicejobs")
    context = transcribe.make_context("transcribe", ["a.mp3", *line.split()], parent=root)
    assert context.params["paths"] == ("a.mp3",)
    assert context.params["model"] == "base"


@pytest.fixture
def command() -> Callable[..., Any]:
    """Return a runner of a small command of our class."""

    @click.command(cls=Command, uses_configuration=False)
    @click.argument("paths", nargs=-1)
    @click.option("--word-timestamps", is_flag=True)
    def small(paths: tuple[str, ...], *, word_timestamps: bool) -> None:
        click.echo(f"{paths} {word_timestamps}")

    return lambda *words: CliRunner().invoke(small, words)


def test_warnings_go_to_standard_error_unless_quiet(command: Callable[..., Any]) -> None:
    """A result can be piped on; -q keeps the warning back."""
    loud, quiet = command("a", "--fp16", "False"), command("a", "--fp16", "False", "-q")
    assert loud.stdout == quiet.stdout == "('a',) False\n"
    assert loud.stderr.startswith("warning: --fp16 has no meaning here and is ignored: ")
    assert quiet.stderr == ""


def test_files_whose_names_begin_with_a_dash(command: Callable[..., Any], tmp_path: Any, monkeypatch: Any) -> None:
    """The error says how to name such a file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-odd.wav").touch()
    assert "write ./-odd.wav" in command("-odd.wav").stderr
