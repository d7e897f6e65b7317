"""Values that cross to messages and back, times that stay inside, confidence, errors as statuses."""

from dataclasses import replace
from math import inf

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicejobs import errors
from voicejobs.audio.types import Segment, WindowResult, Word
from voicejobs.engines.base import RecogniseOptions
from voicejobs.errors import BadOption, QueueFull, VoicejobsError
from voicejobs.proto import voice_engine_pb2 as pb
from voicejobs.rpc import faults
from voicejobs.rpc.values import (
    confidence_of,
    options_message,
    options_of,
    result_of,
    segment_message,
    time_below,
    word_message,
)

SEGMENT = Segment(0.5, 2.25, " Hello there", (Word(0.5, 1.0, " Hello", 0.5), Word(1.25, 2.25, " there", 0.25)))


def family(kind: type[VoicejobsError] = VoicejobsError) -> list[type[VoicejobsError]]:
    """Return all errors of the tree."""
    return [
        kind,
        *(one for child in kind.__subclasses__() if child.__module__ == errors.__name__ for one in family(child)),
    ]


@given(st.floats(0, 1e5), st.floats(0, 1e5))
def test_a14_no_time_is_beyond_the_end(time_s: float, limit_s: float) -> None:
    """As float32 too a time is at most the duration, and near what it was."""
    found = word_message(Word(time_s, time_s, "x"), limit_s).end_time
    assert found <= limit_s
    assert found == pytest.approx(min(time_s, limit_s), rel=1e-6, abs=1e-6)


@given(st.lists(st.floats(0, 1e5), min_size=2, max_size=20))
def test_a14_times_keep_their_order(times_s: list[float]) -> None:
    """What rises rises as float32 too."""
    found = [time_below(one, max(times_s)) for one in sorted(times_s)]
    assert found == sorted(found)


@pytest.mark.parametrize(
    "options",
    [
        RecogniseOptions(),
        RecogniseOptions(word_timestamps=True, beam_size=1, temperatures=(0.0,), hotwords="Celery", task="translate"),
        RecogniseOptions(compression_ratio_threshold=None, logprob_threshold=None, no_speech_threshold=None),
        RecogniseOptions(patience=0.7, length_penalty=1.3, suppress_tokens=(-1, 5), condition_on_previous_text=True),
    ],
)
def test_options_come_back_as_they_were(options: RecogniseOptions) -> None:
    """Every option that a client names arrives with its very value, `no limit` included."""
    sent = pb.RecognitionOptions.FromString(options_message(options).SerializeToString())
    assert RecogniseOptions.from_json({**RecogniseOptions().to_json(), **options_of(sent)}) == options


def test_options_that_are_no_numbers_are_refused() -> None:
    """A task that does not exist and a NaN are errors that name the option."""
    with pytest.raises(BadOption, match="task"):
        options_of(pb.RecognitionOptions(task="sing"))
    with pytest.raises(BadOption, match="patience"):
        options_of(pb.RecognitionOptions(patience=float("nan")))


def test_results_come_back_as_they_were() -> None:
    """Words keep their spaces, figures that the engine does not give stay unknown, those that are 0 stay 0."""
    known = replace(SEGMENT, avg_logprob=0.0, no_speech_prob=0.0, temperature=0.0, tokens=(1, 2))
    for segment in (SEGMENT, known, replace(SEGMENT, words=(), text="你好")):
        message = pb.RecognizeResponse(segments=[segment_message(segment)], language="en", language_probability=0.5)
        again = pb.RecognizeResponse.FromString(message.SerializeToString())
        assert result_of(again) == WindowResult((segment,), "en", 0.5)
    assert result_of(pb.RecognizeResponse()) == WindowResult()


def test_a15_confidence_is_told_from_none() -> None:
    """Probabilities of words count first, then those of segments by their length; without either there is none."""
    assert confidence_of([SEGMENT]) == 0.375
    plain = replace(SEGMENT, words=(), avg_logprob=0.0)
    assert confidence_of([plain]) == 1.0
    assert confidence_of([replace(plain, avg_logprob=-inf)]) == 0.0
    assert confidence_of([replace(SEGMENT, words=())]) is None
    assert confidence_of([]) is None


@pytest.mark.parametrize("kind", family())
def test_every_error_crosses_and_comes_back(kind: type[VoicejobsError]) -> None:
    """Code, message, hint and details arrive whatever the letters in them; the status is never OK or UNKNOWN."""
    error = kind("größer als 5: 音声", hint="tu was", limit_s=3)
    status = faults.status_of(error)
    assert status not in {grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN}
    found = faults.error_of(status, error.message, faults.metadata_of(error, "trace"), "host:1")
    assert type(found) is kind
    assert found.to_json() == error.to_json()


def test_long_errors_fit_into_metadata() -> None:
    """What would pass the limit of metadata is cut, and is still an error of its kind."""
    error = QueueFull("x" * 100_000, rows=["y" * 1000] * 100, retry_after_ms=5)
    sent = faults.metadata_of(error)
    assert sum(len(key) + len(value) for key, value in sent) < 5000
    assert type(faults.error_of(faults.status_of(error), "", sent, "host:1")) is QueueFull


@pytest.mark.parametrize(
    ("status", "details", "code"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (5 vs. 4)", "message_too_large"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!", "queue_full"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", "deadline_passed"),
        (grpc.StatusCode.UNAVAILABLE, "failed to connect", "engine_unavailable"),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", "not_served"),
        (grpc.StatusCode.PERMISSION_DENIED, "no", "access_denied"),
        (grpc.StatusCode.CANCELLED, "", "cancelled"),
        (grpc.StatusCode.UNKNOWN, "odd", "internal"),
    ],
)
def test_statuses_of_others_have_their_error(status: grpc.StatusCode, details: str, code: str) -> None:
    """A status that gRPC or a server that is not ours sends becomes the error that says the same."""
    found = faults.error_of(status, details, (("error-bin", b"not json"),), "host:1")
    assert found.code == code
    assert "host:1" in found.message


def test_retry_after_of_others_is_read() -> None:
    """The time after which to come again is taken from the metadata, one second where there is none."""
    found = faults.error_of(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy", (("retry-after-ms", "250"),), "host:1")
    assert found.details == {"retry_after_ms": 250}
    found = faults.error_of(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy", (("retry-after-ms", "soon"),), "host:1")
    assert found.details == {"retry_after_ms": 1000}
