"""Speak the text of one request with the steps of a job, in the thread that calls."""

import base64
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from voicejobs.audio.encode import Block
from voicejobs.audio.types import Sound
from voicejobs.engines.base import SynthesiseOptions, Voice
from voicejobs.errors import Cancelled, EngineBusy, EngineUnavailable, MessageTooLarge
from voicejobs.hosting.host import HostedSynthesiser
from voicejobs.proto import voice_engine_pb2 as pb
from voicejobs.rpc import speech_formats
from voicejobs.rpc.engines import Engines, Served
from voicejobs.rpc.sounds import read_sound
from voicejobs.rpc.speech_formats import SpeechFormat
from voicejobs.steps.join import PEAK, SILENT_PEAK, Joiner, JoinOptions, Meter, Take, edges, louder
from voicejobs.steps.lines import Line, LineOptions, lines_of
from voicejobs.steps.registry import JOIN, PLAN_TEXT
from voicejobs.steps.speak import groups, speak
from voicejobs.units import samples_to_seconds

CHANNELS = 1
_ENGLISH = "en"
_PLAIN = "plain"
_AS_IT_COMES = 1.0
"""What sound is multiplied by at most whose loudest sample is still to come."""
_OPTIONS = ("voice", "speed", "seed", "mode", "instruct", "prompt_text", "prompt_audio")


@dataclass(frozen=True, slots=True)
class _Wish:
    """Hold what a request asks for: its lines, how to speak, the form of the answer, the engine."""

    lines: Sequence[Line]
    options: SynthesiseOptions
    form: SpeechFormat
    served: Served
    synthesiser: HostedSynthesiser


class Synthesis:
    """Answer requests for synthesis; every method may be called from any thread."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._voices: list[Voice] | None = None

    def check(self, request: pb.SynthesizeRequest) -> None:
        """Refuse what needs no engine to be refused; errors as in `answer`."""
        _ = self._engines.synthesiser
        speech_formats.parse(request.audio_format)

    def answer(self, request: pb.SynthesizeRequest, cancelled: Callable[[], bool]) -> pb.SynthesizeResponse:
        """Return the sound of a text as a whole, its loudest sample at the level of every job's.

        Args:
            request: what came in.
            cancelled: asked between pieces of work; True ends it with `Cancelled`.

        Raises:
            BadAudioFormat: the format is unknown, or the prompt is not of its own.
            EmptyText: there is nothing to say.
            BadOption: the engine has no such voice, or an option is wrong.
            NotServed: the server has no synthesiser.
            MessageTooLarge: the sound is too long for one message.
            VoicejobsError: what the engine raised.
        """
        wish = self._wish(request, cancelled)
        if request.single_piece:
            (sound,) = wish.synthesiser.synthesise([request.text], wish.options)
            return self._response(wish, [sound.samples], sound.rate_hz, sound.samples.size, ())
        takes, rate_hz = _begun(_takes(wish, groups(wish.lines), cancelled))
        joiner = Joiner(rate_hz, _join_options())
        meter = Meter()
        blocks = list(meter.through(joiner.blocks(takes)))
        pieces = _pieces(wish.lines, joiner.times_s, 0, len(wish.lines))
        return self._response(wish, louder(blocks, meter.gain), rate_hz, meter.samples, pieces)

    def parts(
        self, request: pb.SynthesizeRequest, cancelled: Callable[[], bool]
    ) -> Iterator[pb.SynthesizeStreamResponse]:
        """Yield the sound of a text as it becomes ready; errors as in `answer`.

        The whole is not known, so that its level is that of the loudest piece so far: it falls, and never rises. What
        comes before its line is spoken to its end is not made louder.
        """
        wish = self._wish(request, cancelled)
        if wish.synthesiser.streams:
            takes, rate_hz = _begun(_streamed(wish, cancelled))
        else:
            parts = [wish.lines[:1], *groups(wish.lines[1:])]  # the first line alone: it should be heard soon
            takes, rate_hz = _begun(_takes(wish, parts, cancelled))
        most = _AS_IT_COMES if wish.synthesiser.streams else math.inf
        joiner = Joiner(rate_hz, _join_options())
        told = 0
        for data in speech_formats.parts(joiner.blocks(_levelled(takes, most)), rate_hz, wish.form):
            known = max(0, len(joiner.times_s) - 1)  # the end of the last one may move when the next fades in
            yield _part(wish, data, rate_hz, _pieces(wish.lines, joiner.times_s, told, known))
            told = known
        yield _part(wish, b"", rate_hz, _pieces(wish.lines, joiner.times_s, told, len(wish.lines)))

    def voices(self, language: str) -> list[pb.VoiceInfo]:
        """Return the voices that speak a language, all where it is empty; errors as in `answer`."""
        code = language.partition("-")[0].lower()
        return [
            pb.VoiceInfo(
                name=voice.name,
                languages=voice.languages,
                sample_rate=voice.rate_hz,
                description=voice.description,
                licence=voice.licence,
            )
            for voice in self._known_voices()
            if not code or not voice.languages or code in voice.languages
        ]

    def _wish(self, request: pb.SynthesizeRequest, cancelled: Callable[[], bool]) -> _Wish:
        """Read a request."""
        served = self._engines.synthesiser
        options = self._options(request, served, cancelled)
        language = request.language or self._language_of(options.voice)
        defaults = PLAN_TEXT.options({})
        lines = (
            [Line(request.text, request.text)]
            if request.single_piece
            else lines_of(request.text, language, LineOptions.from_step(defaults), request.markup or _PLAIN)
        )
        synthesiser = self._engines.host.synthesiser(served.spec, lane="interactive", cancelled=cancelled)
        return _Wish(lines, options, speech_formats.parse(request.audio_format), served, synthesiser)

    def _options(
        self, request: pb.SynthesizeRequest, served: Served, cancelled: Callable[[], bool]
    ) -> SynthesiseOptions:
        """Return how to speak: as the server does, with what the request says."""
        options = SynthesiseOptions(**{name: served.options[name] for name in _OPTIONS})
        changes = {name: getattr(request, name) for name in ("voice", "mode", "instruct", "prompt_text")}
        options = replace(options, **{name: value for name, value in changes.items() if value})
        if request.HasField("speed"):
            options = replace(options, speed=round(request.speed, 6))
        if request.HasField("seed"):
            options = replace(options, seed=request.seed)
        if request.prompt_audio:
            pcm = read_sound(self._engines, request.prompt_audio, request.prompt_audio_format, cancelled)
            options = replace(options, prompt_audio=base64.b64encode(pcm.astype("<i2").tobytes()).decode())
        return replace(options, language=request.language.partition("-")[0].lower() or None)

    def _language_of(self, voice: str) -> str:
        """Return the language of a voice, by which its texts are read out."""
        voices = self._known_voices()
        found = next((one for one in voices if one.name == voice), voices[0] if voices else None)
        return found.languages[0] if found is not None and found.languages else _ENGLISH

    def _known_voices(self) -> list[Voice]:
        """Return the voices of the engine, asked for once."""
        if self._voices is None:
            self._voices = self._engines.host.synthesiser(self._engines.synthesiser.spec).voices()
        return self._voices

    def _response(
        self,
        wish: _Wish,
        blocks: Iterable[Block],
        voice_hz: int,
        samples: int,
        pieces: Iterable[pb.PieceInfo],
    ) -> pb.SynthesizeResponse:
        """Return the message for a whole sound."""
        rate_hz = wish.form.rate_for(voice_hz)
        encoded = -(-samples * rate_hz // voice_hz)
        data = speech_formats.whole(blocks, voice_hz, encoded, wish.form)
        limit = self._engines.settings.rpc_max_message_bytes
        response = pb.SynthesizeResponse(
            audio_data=data,
            sample_rate=rate_hz,
            channels=CHANNELS,
            encoding=wish.form.encoding,
            duration=samples_to_seconds(encoded, rate_hz),
            samples=encoded,
            engine=wish.served.spec.engine,
            model=wish.served.spec.model,
            pieces=pieces,
        )
        if response.ByteSize() > limit:
            raise MessageTooLarge(
                f"the sound takes {len(data)} bytes, and a message holds {limit}",
                hint="Call SynthesizeStream, or ask for opus or mp3.",
            )
        return response


def _takes(wish: _Wish, parts: Iterable[Sequence[Line]], cancelled: Callable[[], bool]) -> Iterator[tuple[Take, Sound]]:
    """Yield the sound of each line, as soon as its group was spoken."""
    for part in parts:
        if cancelled():
            raise Cancelled("the caller has gone")
        for line, spoken in zip(part, speak(part, wish.synthesiser, wish.options), strict=True):
            yield Take(spoken.sound.samples, line.pause_after_s), spoken.sound


def _streamed(wish: _Wish, cancelled: Callable[[], bool]) -> Iterator[tuple[Take, Sound]]:
    """Yield the sound of each line in pieces, as the engine gives them; the first has something that is heard.

    A server that is busy before its first piece is asked again for the whole line, which has patience; after that
    nothing is tried again. To stop closes the call of the engine.
    """
    for line in wish.lines:
        silent: list[Block] = []
        is_begun = False
        text = " ".join(line.spoken.split())
        last: Sound | None = None
        with closing(_pieces_of(wish, text)) as pieces:
            for sound in pieces:
                if cancelled():
                    raise Cancelled("the caller has gone")
                last = sound
                samples = np.concatenate([*silent, sound.samples])
                if not is_begun and edges(samples)[0] == len(samples):
                    silent.append(sound.samples)
                    continue
                yield Take(samples, line.pause_after_s, continues=is_begun), sound
                silent, is_begun = [], True
        if not is_begun and last is not None:
            yield Take(np.concatenate([last.samples[:0], *silent]), line.pause_after_s), last


def _pieces_of(wish: _Wish, text: str) -> Generator[Sound, None, None]:
    """Yield the sound of a text in pieces, or as one where its server has no time for it yet."""
    is_begun = False
    try:
        with closing(wish.synthesiser.stream(text, wish.options)) as sounds:
            for sound in sounds:
                is_begun = True
                yield sound
    except (EngineBusy, EngineUnavailable) as error:
        if is_begun or error.details.get("begun"):
            raise
    else:
        if is_begun:
            return
    yield from wish.synthesiser.synthesise([text], wish.options)


def _begun(takes: Iterator[tuple[Take, Sound]]) -> tuple[Iterator[Take], int]:
    """Return the takes and their sampling rate, which the first one tells."""
    first = next(takes)
    return (take for take, _ in chain([first], takes)), first[1].rate_hz


def _levelled(takes: Iterable[Take], most: float) -> Iterator[Take]:
    """Yield takes, none louder than `PEAK`, and as loud as the loudest so far allows, up to `most` times."""
    loudest = 0.0
    for take in takes:
        loudest = max(loudest, float(np.max(np.abs(take.samples), initial=0.0)))
        gain = min(most, PEAK / loudest) if loudest >= SILENT_PEAK else 1.0
        yield replace(take, samples=np.multiply(take.samples, gain, dtype=np.float32))


def _join_options() -> JoinOptions:
    """Return how lines are joined, as jobs join them."""
    return JoinOptions(crossfade_ms=JOIN.options({})["crossfade_ms"])


def _pieces(
    lines: Sequence[Line], times_s: Sequence[tuple[float, float]], first: int, until: int
) -> list[pb.PieceInfo]:
    """Return lines with their times."""
    return [
        pb.PieceInfo(text=line.text, start_time=start_s, end_time=end_s)
        for line, (start_s, end_s) in zip(lines[first:until], times_s[first:until], strict=True)
    ]


def _part(wish: _Wish, data: bytes, voice_hz: int, pieces: Sequence[pb.PieceInfo]) -> pb.SynthesizeStreamResponse:
    """Return the message for a part of a sound."""
    return pb.SynthesizeStreamResponse(
        audio_data=data,
        sample_rate=wish.form.rate_for(voice_hz),
        channels=CHANNELS,
        encoding=wish.form.encoding,
        pieces=pieces,
    )
