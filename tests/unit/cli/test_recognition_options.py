from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from voicejobs.cli import recognition_options as module
from voicejobs.cli.option_types import seconds_of
from voicejobs.cli.recognition_options import ladder, option_warnings, pipeline_options, recognition_options
from voicejobs.engines.base import RecogniseOptions
from voicejobs.errors import BadOption, UnknownEngine, VoicejobsError
from voicejobs.hosting.specs import recognise_options
from voicejobs.models.catalogue import CATALOGUE
from voicejobs.settings import Settings
from voicejobs.steps.registry import PREPARE, RECOGNISE

FOLDER = Path("nowhere")
SETTINGS = Settings(state_dir=FOLDER, models_dir=FOLDER)


def flags_of(*arguments: str) -> dict[str, Any]:
    """Return what click makes of the arguments; fails where it refuses them."""
    found: dict[str, Any] = {}

    @click.command()
    @recognition_options
    def command(**flags: Any) -> None:
        found.update(flags)

    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    if result.exit_code:
        raise click.UsageError(result.stderr)
    return found


def options_of(*arguments: str, formats: tuple[str, ...] = ("txt",)) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of the steps for the arguments, without fetching a model."""
    return pipeline_options(SETTINGS, flags_of(*arguments), formats, lambda event: None, fetch=False)


def test_without_flags_the_steps_have_their_defaults() -> None:
    """The command line and the registry agree on every default; only the hash of the model is added."""
    prepare, recognise = options_of()
    assert prepare == PREPARE.options({})
    assert recognise == RECOGNISE.options({"model_sha256": CATALOGUE["base"].sha256})
    assert recognise_options(recognise, split=False) == RecogniseOptions()


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["-l", "German"], "language", "de"),
        (["--language", "pt-BR"], "language", "pt"),
        (["-l", "auto"], "language", None),
        (["--task", "translate"], "task", "translate"),
        (["--word-timestamps"], "word_timestamps", True),
        (["--beam-size", "2"], "beam_size", 2),
        (["--best-of", "3"], "best_of", 3),
        (["--patience", "2"], "patience", 2.0),
        (["--length-penalty", "0.5"], "length_penalty", 0.5),
        (["--repetition-penalty", "1.1"], "repetition_penalty", 1.1),
        (["--no-repeat-ngram-size", "3"], "no_repeat_ngram_size", 3),
        (["--suppress-tokens", "-1,50,60"], "suppress_tokens", (-1, 50, 60)),
        (["--suppress-tokens", ""], "suppress_tokens", ()),
        (["--temperature", "0.4"], "temperatures", (0.4, 0.6, 0.8, 1.0)),
        (["--temperature", "0,0.5,0.9"], "temperatures", (0.0, 0.5, 0.9)),
        (["--temperature-increment-on-fallback", "none"], "temperatures", (0.0,)),
        (["--temperature-increment-on-fallback", "0.5"], "temperatures", (0.0, 0.5, 1.0)),
        (["--compression-ratio-threshold", "2"], "compression_ratio_threshold", 2.0),
        (["--logprob-threshold", "none"], "logprob_threshold", None),
        (["--no-speech-threshold", "0.4"], "no_speech_threshold", 0.4),
        (["--condition-on-previous-text"], "condition_on_previous_text", True),
        (["--initial-prompt", "Glossary: Celery."], "initial_prompt", "Glossary: Celery."),
        (["--hotwords", "Celery"], "hotwords", "Celery"),
    ],
)
def test_each_flag_reaches_the_engine_and_the_key(arguments: list[str], name: str, value: object) -> None:
    """A flag changes one option of the engine, and with it the key by which done work is found again."""
    _, recognise = options_of(*arguments)
    expected = {**RecogniseOptions().to_json(), name: value}
    assert recognise_options(recognise, split=False).to_json() == expected
    changed = RECOGNISE.key_options(recognise) != RECOGNISE.key_options(options_of()[1])
    assert changed == (expected != RecogniseOptions().to_json())


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--channels", "split"], "channels", "split"),
        (["--no-vad-filter"], "vad_filter", False),
        (["--vad-threshold", "0.6"], "vad_threshold", 0.6),
        (["--vad-min-speech-duration-ms", "250"], "vad_min_speech_ms", 250),
        (["--vad-min-silence-duration-ms", "500"], "vad_min_silence_ms", 500),
        (["--vad-speech-pad-ms", "200"], "vad_pad_ms", 200),
        (["--vad-max-speech-duration-s", "20"], "vad_max_window_s", 20.0),
        (["--offset", "1:30"], "clips", [[90.0, None]]),
        (["--clip", "1:30-2:00", "--clip", "5-"], "clips", [[5.0, None]]),
        (["--clip", "-10", "--clip", "8-12", "--clip", "20-30"], "clips", [[0.0, 12.0], [20.0, 30.0]]),
        (["--clip", "5-10", "--clip", "20-30", "--offset", "7"], "clips", [[7.0, 10.0], [20.0, 30.0]]),
        (["--clip-timestamps", "0,5,1:00"], "clips", [[0.0, 5.0], [60.0, None]]),
        (["--clip-timestamps", "0"], "clips", []),
    ],
)
def test_each_flag_of_the_preparation_reaches_its_step(arguments: list[str], name: str, value: object) -> None:
    """What is heard, and which stretches of it, are options of the step `prepare`."""
    prepare, _ = options_of(*arguments)
    assert prepare == PREPARE.options({name: value})


def test_the_detector_and_its_weights_count_in_the_key() -> None:
    """Another detector is other work; one with weights of the catalogue is named with their hash."""
    prepare, _ = options_of("--vad-engine", "silero_torch")
    expected = {"vad_engine": "silero_torch", "vad_model_sha256": CATALOGUE["silero-vad"].sha256}
    assert prepare == PREPARE.options(expected)
    assert PREPARE.key_options(prepare) != PREPARE.key_options(options_of()[0])


@pytest.mark.parametrize(
    ("engine", "error", "told"), [("whisper", BadOption, "does not detect"), ("silent", UnknownEngine, "silent")]
)
def test_what_is_no_detector_is_refused(engine: str, error: type[VoicejobsError], told: str) -> None:
    """A recogniser and a name that nobody has are refused before any work."""
    with pytest.raises(error, match=told):
        options_of("--vad-engine", engine)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-l", "germn"], "german"),
        (["-l", "klingon"], "klingon"),
        (["--beam-size", "0"], "0"),
        (["--temperature", "hot"], "hot"),
        (["--temperature", "3"], "3"),
        (["--temperature", ""], "''"),
        (["--suppress-tokens", "1.5"], "1.5"),
        (["--suppress-tokens", "-2"], "-2"),
        (["--logprob-threshold", "1"], "1"),
        (["--no-speech-threshold", "nan"], "nan"),
        (["--vad-threshold", "1"], "1"),
        (["--offset", "-3"], "-3"),
        (["--offset", "1:75"], "1:75"),
        (["--clip", "9-8"], "before"),
        (["--clip", "9"], "no end"),
        (["--clip", "-"], "no end"),
        (["--clip", "a-b"], "no stretch"),
        (["--clip-timestamps", "5,3"], "rise"),
        (["--clip-timestamps", "x"], "no list"),
        (["--device", "tpu"], "tpu"),
        (["--compute-type", "int3"], "int3"),
        (["--clip", "1-2", "--offset", "5"], "--offset"),
        (["-m", "tiny.en", "-l", "de"], "English alone"),
        (["-m", "tiny.en", "--task", "translate"], "translate"),
        (["--compute-type", "float16"], "GPU"),
    ],
)
def test_wrong_values_are_usage_errors_before_the_work(arguments: list[str], told: str) -> None:
    """What cannot work ends with exit code 2, and the message names it."""
    with pytest.raises(click.UsageError) as caught:
        options_of(*arguments)
    assert told in caught.value.message


def test_a_gpu_that_is_not_there_is_refused_unless_workers_are_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """With workers of our own the machine must have one; those behind a broker may."""
    monkeypatch.setattr(module, "gpu_count", lambda: 0)
    with pytest.raises(click.UsageError, match="GPU"):
        options_of("--device", "cuda")
    monkeypatch.setattr(module, "gpu_count", lambda: 1)
    assert options_of("--device", "cuda", "--compute-type", "float16")[1]["device"] == "cuda:0"


def test_other_engines_may_know_other_languages() -> None:
    """A code that whisper lacks is passed on to an engine that is not whisper."""
    assert options_of("--engine", "fake", "-l", "tlh")[1]["language"] == "tlh"


@pytest.mark.parametrize(
    ("arguments", "formats", "expected"),
    [
        ([], ("txt", "json"), False),
        ([], ("txt", "srt"), True),
        (["--no-word-timestamps"], ("srt",), False),
        (["--word-timestamps"], ("txt",), True),
    ],
)
def test_words_get_times_where_a_format_needs_them(
    arguments: list[str], formats: tuple[str, ...], *, expected: bool
) -> None:
    """Subtitles bring word times with them; what the user says comes first."""
    assert options_of(*arguments, formats=formats)[1]["word_timestamps"] is expected


def test_what_has_no_effect_is_told() -> None:
    """Taken, and said plainly: nothing that the user typed is passed over in silence."""
    assert option_warnings(flags_of()) == []
    told = option_warnings(flags_of("--condition-on-previous-text", "--batch-size", "8"))
    assert [line.split()[0] for line in told] == ["--condition-on-previous-text", "--batch-size"]


def test_where_and_how_fast_it_runs_does_not_change_the_key() -> None:
    """A transcript made by one thread serves a command that asks for two."""
    here = RECOGNISE.key_options(options_of()[1])
    assert RECOGNISE.key_options(options_of("--threads", "2", "--device", "auto", "--batch-size", "4")[1]) == here
    assert RECOGNISE.key_options(options_of("--compute-type", "float32")[1]) != here


def test_times_are_read_as_people_write_them() -> None:
    """Seconds, minutes and hours, with a point or a comma."""
    assert [seconds_of(text) for text in ("90", "1:30", "0:01:30.5", ".5", "2,5", "90s")] == [
        90,
        90,
        90.5,
        0.5,
        2.5,
        90,
    ]


def test_the_ladder_ends_at_one() -> None:
    """Steps that do not fit end below it, and a start above it stays alone."""
    assert ladder([0.0], 0.2) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ladder([0.5], 0.4) == [0.5, 0.9]
    assert ladder([1.5], 0.2) == [1.5]
