"""Recognise the audio of one request with the steps of a job, in the thread that calls."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from voicejobs.audio.types import Pcm, Segment, Span
from voicejobs.engines.base import RecogniseOptions
from voicejobs.engines.languages import language_code
from voicejobs.errors import BadOption, Cancelled
from voicejobs.hosting.host import HostedRecogniser
from voicejobs.hosting.specs import recognise_options
from voicejobs.proto import voice_engine_pb2 as pb
from voicejobs.rpc import audio_formats
from voicejobs.rpc.engines import Engines, Served
from voicejobs.rpc.sounds import read_sound
from voicejobs.rpc.values import confidence_of, options_of, segment_message, word_message
from voicejobs.steps.merge import Piece, language_of, merge
from voicejobs.steps.plan import Plan, PlanOptions, plan
from voicejobs.steps.prepare import listen
from voicejobs.steps.recognise import Work, recognise
from voicejobs.steps.registry import PREPARE
from voicejobs.steps.windows import MAX_WINDOW_SAMPLES
from voicejobs.units import SAMPLE_RATE_HZ, samples_to_seconds

_BLOCK_SAMPLES = 5 * SAMPLE_RATE_HZ


@dataclass(frozen=True, slots=True)
class Heard:
    """Hold what a request gave."""

    segments: tuple[Segment, ...]
    language: str | None
    probability: float | None
    samples: int


class Recognition:
    """Answer requests for recognition; every method may be called from any thread."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    def check(self, request: pb.RecognizeRequest) -> None:
        """Refuse what needs no engine to be refused; errors as in `answer`."""
        wanted_options(self._engines.recogniser, request.language, request.options)
        audio_formats.parse(request.audio_format)

    def answer(self, request: pb.RecognizeRequest, cancelled: Callable[[], bool]) -> pb.RecognizeResponse:
        """Return the answer to a request.

        Args:
            request: what came in.
            cancelled: asked between pieces of work; True ends it with `Cancelled`.

        Raises:
            BadAudioFormat: the format is unknown, or the audio is not of it.
            BadOption: an option is wrong.
            InputError: the audio is at fault.
            NotServed: the server has no recogniser.
            VoicejobsError: what the engine raised.
        """
        served = self._engines.recogniser
        wanted = wanted_options(served, request.language, request.options)
        sound = read_sound(self._engines, request.audio_data, request.audio_format, cancelled)
        recogniser = self._engines.host.recogniser(served.spec, lane="interactive", cancelled=cancelled)
        if request.language_only:
            heard = _language(sound, recogniser)
        elif request.single_window:
            heard = _one_window(sound, recogniser, wanted)
        else:
            heard = self._whole(sound, recogniser, wanted, self._plan(sound, request.options, cancelled), cancelled)
        told = replace(heard, language=wanted.language or heard.language) if not request.language_only else heard
        return _response(told, served)

    def _whole(
        self,
        sound: Pcm,
        recogniser: HostedRecogniser,
        options: RecogniseOptions,
        planned: Plan,
        cancelled: Callable[[], bool],
    ) -> Heard:
        """Recognise the windows of a recording as the steps of a job do."""

        def read(window: Span) -> Pcm:
            _check(cancelled)
            return sound[window.start_samples : window.end_samples]

        work = Work(planned.windows, read, speech=planned.speech, doubt=self._engines.recogniser.facts.doubt)
        pieces = [Piece(planned.windows, recognise(work, recogniser, options))]
        language, probability = language_of(pieces)
        segments = merge(pieces, samples_to_seconds(sound.size))
        return Heard(segments, language, None if options.language else probability, sound.size)

    def _plan(self, sound: Pcm, message: pb.RecognitionOptions, cancelled: Callable[[], bool]) -> Plan:
        """Return the windows to recognise.

        What is one window anyway, and where no speech is looked for, needs no detector.
        """
        vad_filter = message.vad_filter if message.HasField("vad_filter") else True
        options = PlanOptions.from_step(PREPARE.options({"vad_filter": vad_filter}))
        if not vad_filter and sound.size <= MAX_WINDOW_SAMPLES:
            return Plan([Span(0, sound.size)], None)
        detector = self._engines.host.vad(self._engines.detector)
        blocks = ([sound[start : start + _BLOCK_SAMPLES]] for start in range(0, sound.size, _BLOCK_SAMPLES))
        (heard,) = listen(blocks, detector, lambda channel, block: None, lambda samples: _check(cancelled))
        return plan(heard.probabilities, heard.samples, detector.frame_samples, options)


def wanted_options(served: Served, language: str, message: pb.RecognitionOptions) -> RecogniseOptions:
    """Return the options for the engine: those of the server, with what a request asks for.

    Raises:
        BadOption: the language is none, or an option is wrong.
    """
    changes = options_of(message)
    strict = served.spec.engine == "whisper"
    code = language_code(language, strict=strict) if language else served.options["language"]
    return recognise_options({**served.options, **changes, "language": code}, split=False)


def _language(sound: Pcm, recogniser: HostedRecogniser) -> Heard:
    """Tell the language of the first half minute."""
    language, probability = recogniser.detect_language(sound[:MAX_WINDOW_SAMPLES])
    return Heard((), language, probability, sound.size)


def _one_window(sound: Pcm, recogniser: HostedRecogniser, options: RecogniseOptions) -> Heard:
    """Give the sound to the engine as it is."""
    if sound.size > MAX_WINDOW_SAMPLES:
        raise BadOption(
            f"single_window: {samples_to_seconds(sound.size):.1f} s are more than one window",
            hint="Send 30 s at most, or leave single_window out.",
        )
    (result,) = recogniser.recognise([sound], options)
    return Heard(result.segments, result.language, result.language_probability, sound.size)


def _response(heard: Heard, served: Served) -> pb.RecognizeResponse:
    """Return the message for what was heard."""
    duration_s = samples_to_seconds(heard.samples)
    confidence = confidence_of(heard.segments)
    response = pb.RecognizeResponse(
        text="".join(segment.text for segment in heard.segments).strip(),
        words=[word_message(word, duration_s) for segment in heard.segments for word in segment.words],
        confidence=confidence or 0.0,
        has_confidence=confidence is not None,
        language=heard.language or "",
        duration=duration_s,
        segments=[segment_message(segment, duration_s) for segment in heard.segments],
        engine=served.spec.engine,
        model=served.spec.model,
    )
    if heard.probability is not None:
        response.language_probability = heard.probability
    return response


def _check(cancelled: Callable[[], bool]) -> None:
    """Give up what nobody waits for."""
    if cancelled():
        raise Cancelled("the caller has gone")
