from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RecognizeRequest(_message.Message):
    __slots__ = ("audio_data", "audio_format", "language", "options", "language_only", "single_window")
    AUDIO_DATA_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FORMAT_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_ONLY_FIELD_NUMBER: _ClassVar[int]
    SINGLE_WINDOW_FIELD_NUMBER: _ClassVar[int]
    audio_data: bytes
    audio_format: str
    language: str
    options: RecognitionOptions
    language_only: bool
    single_window: bool
    def __init__(self, audio_data: _Optional[bytes] = ..., audio_format: _Optional[str] = ..., language: _Optional[str] = ..., options: _Optional[_Union[RecognitionOptions, _Mapping]] = ..., language_only: _Optional[bool] = ..., single_window: _Optional[bool] = ...) -> None: ...

class RecognitionOptions(_message.Message):
    __slots__ = ("word_times", "vad_filter", "task", "initial_prompt", "hotwords", "beam_size", "best_of", "patience", "length_penalty", "repetition_penalty", "no_repeat_ngram_size", "suppress_tokens", "temperatures", "compression_ratio_threshold", "logprob_threshold", "no_speech_threshold", "condition_on_previous_text")
    WORD_TIMES_FIELD_NUMBER: _ClassVar[int]
    VAD_FILTER_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    INITIAL_PROMPT_FIELD_NUMBER: _ClassVar[int]
    HOTWORDS_FIELD_NUMBER: _ClassVar[int]
    BEAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    BEST_OF_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_FIELD_NUMBER: _ClassVar[int]
    LENGTH_PENALTY_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    NO_REPEAT_NGRAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    SUPPRESS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURES_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_RATIO_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    NO_SPEECH_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    CONDITION_ON_PREVIOUS_TEXT_FIELD_NUMBER: _ClassVar[int]
    word_times: bool
    vad_filter: bool
    task: str
    initial_prompt: str
    hotwords: str
    beam_size: int
    best_of: int
    patience: float
    length_penalty: float
    repetition_penalty: float
    no_repeat_ngram_size: int
    suppress_tokens: _containers.RepeatedScalarFieldContainer[int]
    temperatures: _containers.RepeatedScalarFieldContainer[float]
    compression_ratio_threshold: float
    logprob_threshold: float
    no_speech_threshold: float
    condition_on_previous_text: bool
    def __init__(self, word_times: _Optional[bool] = ..., vad_filter: _Optional[bool] = ..., task: _Optional[str] = ..., initial_prompt: _Optional[str] = ..., hotwords: _Optional[str] = ..., beam_size: _Optional[int] = ..., best_of: _Optional[int] = ..., patience: _Optional[float] = ..., length_penalty: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., no_repeat_ngram_size: _Optional[int] = ..., suppress_tokens: _Optional[_Iterable[int]] = ..., temperatures: _Optional[_Iterable[float]] = ..., compression_ratio_threshold: _Optional[float] = ..., logprob_threshold: _Optional[float] = ..., no_speech_threshold: _Optional[float] = ..., condition_on_previous_text: _Optional[bool] = ...) -> None: ...

class RecognizeResponse(_message.Message):
    __slots__ = ("text", "words", "confidence", "has_confidence", "language", "language_probability", "duration", "segments", "engine", "model")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    HAS_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    text: str
    words: _containers.RepeatedCompositeFieldContainer[WordInfo]
    confidence: float
    has_confidence: bool
    language: str
    language_probability: float
    duration: float
    segments: _containers.RepeatedCompositeFieldContainer[SegmentInfo]
    engine: str
    model: str
    def __init__(self, text: _Optional[str] = ..., words: _Optional[_Iterable[_Union[WordInfo, _Mapping]]] = ..., confidence: _Optional[float] = ..., has_confidence: _Optional[bool] = ..., language: _Optional[str] = ..., language_probability: _Optional[float] = ..., duration: _Optional[float] = ..., segments: _Optional[_Iterable[_Union[SegmentInfo, _Mapping]]] = ..., engine: _Optional[str] = ..., model: _Optional[str] = ...) -> None: ...

class WordInfo(_message.Message):
    __slots__ = ("word", "start_time", "end_time", "probability", "leading_space")
    WORD_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    LEADING_SPACE_FIELD_NUMBER: _ClassVar[int]
    word: str
    start_time: float
    end_time: float
    probability: float
    leading_space: bool
    def __init__(self, word: _Optional[str] = ..., start_time: _Optional[float] = ..., end_time: _Optional[float] = ..., probability: _Optional[float] = ..., leading_space: _Optional[bool] = ...) -> None: ...

class SegmentInfo(_message.Message):
    __slots__ = ("text", "start_time", "end_time", "words", "tokens", "temperature", "avg_logprob", "compression_ratio", "no_speech_prob")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    AVG_LOGPROB_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_RATIO_FIELD_NUMBER: _ClassVar[int]
    NO_SPEECH_PROB_FIELD_NUMBER: _ClassVar[int]
    text: str
    start_time: float
    end_time: float
    words: _containers.RepeatedCompositeFieldContainer[WordInfo]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    def __init__(self, text: _Optional[str] = ..., start_time: _Optional[float] = ..., end_time: _Optional[float] = ..., words: _Optional[_Iterable[_Union[WordInfo, _Mapping]]] = ..., tokens: _Optional[_Iterable[int]] = ..., temperature: _Optional[float] = ..., avg_logprob: _Optional[float] = ..., compression_ratio: _Optional[float] = ..., no_speech_prob: _Optional[float] = ...) -> None: ...

class StreamingRecognizeRequest(_message.Message):
    __slots__ = ("config", "audio")
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    config: StreamingConfig
    audio: bytes
    def __init__(self, config: _Optional[_Union[StreamingConfig, _Mapping]] = ..., audio: _Optional[bytes] = ...) -> None: ...

class StreamingConfig(_message.Message):
    __slots__ = ("audio_format", "language", "interim_results", "revise", "options", "end_silence", "partial_every")
    AUDIO_FORMAT_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    INTERIM_RESULTS_FIELD_NUMBER: _ClassVar[int]
    REVISE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    END_SILENCE_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_EVERY_FIELD_NUMBER: _ClassVar[int]
    audio_format: str
    language: str
    interim_results: bool
    revise: bool
    options: RecognitionOptions
    end_silence: float
    partial_every: float
    def __init__(self, audio_format: _Optional[str] = ..., language: _Optional[str] = ..., interim_results: _Optional[bool] = ..., revise: _Optional[bool] = ..., options: _Optional[_Union[RecognitionOptions, _Mapping]] = ..., end_silence: _Optional[float] = ..., partial_every: _Optional[float] = ...) -> None: ...

class StreamingRecognizeResponse(_message.Message):
    __slots__ = ("segment_id", "text", "words", "is_final", "stability", "revised", "start_time", "end_time", "language", "stable_words")
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    IS_FINAL_FIELD_NUMBER: _ClassVar[int]
    STABILITY_FIELD_NUMBER: _ClassVar[int]
    REVISED_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    STABLE_WORDS_FIELD_NUMBER: _ClassVar[int]
    segment_id: int
    text: str
    words: _containers.RepeatedCompositeFieldContainer[WordInfo]
    is_final: bool
    stability: float
    revised: bool
    start_time: float
    end_time: float
    language: str
    stable_words: int
    def __init__(self, segment_id: _Optional[int] = ..., text: _Optional[str] = ..., words: _Optional[_Iterable[_Union[WordInfo, _Mapping]]] = ..., is_final: _Optional[bool] = ..., stability: _Optional[float] = ..., revised: _Optional[bool] = ..., start_time: _Optional[float] = ..., end_time: _Optional[float] = ..., language: _Optional[str] = ..., stable_words: _Optional[int] = ...) -> None: ...

class SynthesizeRequest(_message.Message):
    __slots__ = ("text", "voice", "language", "audio_format", "speed", "seed", "prompt_audio", "prompt_audio_format", "prompt_text", "instruct", "mode", "single_piece", "markup")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    VOICE_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FORMAT_FIELD_NUMBER: _ClassVar[int]
    SPEED_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    PROMPT_AUDIO_FIELD_NUMBER: _ClassVar[int]
    PROMPT_AUDIO_FORMAT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TEXT_FIELD_NUMBER: _ClassVar[int]
    INSTRUCT_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SINGLE_PIECE_FIELD_NUMBER: _ClassVar[int]
    MARKUP_FIELD_NUMBER: _ClassVar[int]
    text: str
    voice: str
    language: str
    audio_format: str
    speed: float
    seed: int
    prompt_audio: bytes
    prompt_audio_format: str
    prompt_text: str
    instruct: str
    mode: str
    single_piece: bool
    markup: str
    def __init__(self, text: _Optional[str] = ..., voice: _Optional[str] = ..., language: _Optional[str] = ..., audio_format: _Optional[str] = ..., speed: _Optional[float] = ..., seed: _Optional[int] = ..., prompt_audio: _Optional[bytes] = ..., prompt_audio_format: _Optional[str] = ..., prompt_text: _Optional[str] = ..., instruct: _Optional[str] = ..., mode: _Optional[str] = ..., single_piece: _Optional[bool] = ..., markup: _Optional[str] = ...) -> None: ...

class SynthesizeResponse(_message.Message):
    __slots__ = ("audio_data", "sample_rate", "channels", "encoding", "duration", "samples", "engine", "model", "pieces")
    AUDIO_DATA_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_RATE_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    audio_data: bytes
    sample_rate: int
    channels: int
    encoding: str
    duration: float
    samples: int
    engine: str
    model: str
    pieces: _containers.RepeatedCompositeFieldContainer[PieceInfo]
    def __init__(self, audio_data: _Optional[bytes] = ..., sample_rate: _Optional[int] = ..., channels: _Optional[int] = ..., encoding: _Optional[str] = ..., duration: _Optional[float] = ..., samples: _Optional[int] = ..., engine: _Optional[str] = ..., model: _Optional[str] = ..., pieces: _Optional[_Iterable[_Union[PieceInfo, _Mapping]]] = ...) -> None: ...

class SynthesizeStreamResponse(_message.Message):
    __slots__ = ("audio_data", "sample_rate", "channels", "encoding", "pieces")
    AUDIO_DATA_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_RATE_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    audio_data: bytes
    sample_rate: int
    channels: int
    encoding: str
    pieces: _containers.RepeatedCompositeFieldContainer[PieceInfo]
    def __init__(self, audio_data: _Optional[bytes] = ..., sample_rate: _Optional[int] = ..., channels: _Optional[int] = ..., encoding: _Optional[str] = ..., pieces: _Optional[_Iterable[_Union[PieceInfo, _Mapping]]] = ...) -> None: ...

class PieceInfo(_message.Message):
    __slots__ = ("text", "start_time", "end_time")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    text: str
    start_time: float
    end_time: float
    def __init__(self, text: _Optional[str] = ..., start_time: _Optional[float] = ..., end_time: _Optional[float] = ...) -> None: ...

class ListVoicesRequest(_message.Message):
    __slots__ = ("language",)
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    language: str
    def __init__(self, language: _Optional[str] = ...) -> None: ...

class ListVoicesResponse(_message.Message):
    __slots__ = ("voices",)
    VOICES_FIELD_NUMBER: _ClassVar[int]
    voices: _containers.RepeatedCompositeFieldContainer[VoiceInfo]
    def __init__(self, voices: _Optional[_Iterable[_Union[VoiceInfo, _Mapping]]] = ...) -> None: ...

class VoiceInfo(_message.Message):
    __slots__ = ("name", "languages", "sample_rate", "description", "licence")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_RATE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    LICENCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    languages: _containers.RepeatedScalarFieldContainer[str]
    sample_rate: int
    description: str
    licence: str
    def __init__(self, name: _Optional[str] = ..., languages: _Optional[_Iterable[str]] = ..., sample_rate: _Optional[int] = ..., description: _Optional[str] = ..., licence: _Optional[str] = ...) -> None: ...

class GetInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetInfoResponse(_message.Message):
    __slots__ = ("version", "recogniser", "synthesiser", "audio_formats", "speech_formats", "max_message_bytes", "load")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RECOGNISER_FIELD_NUMBER: _ClassVar[int]
    SYNTHESISER_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FORMATS_FIELD_NUMBER: _ClassVar[int]
    SPEECH_FORMATS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    version: str
    recogniser: EngineInfo
    synthesiser: EngineInfo
    audio_formats: _containers.RepeatedScalarFieldContainer[str]
    speech_formats: _containers.RepeatedScalarFieldContainer[str]
    max_message_bytes: int
    load: Load
    def __init__(self, version: _Optional[str] = ..., recogniser: _Optional[_Union[EngineInfo, _Mapping]] = ..., synthesiser: _Optional[_Union[EngineInfo, _Mapping]] = ..., audio_formats: _Optional[_Iterable[str]] = ..., speech_formats: _Optional[_Iterable[str]] = ..., max_message_bytes: _Optional[int] = ..., load: _Optional[_Union[Load, _Mapping]] = ...) -> None: ...

class EngineInfo(_message.Message):
    __slots__ = ("engine", "model", "device", "processes", "max_batch")
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_FIELD_NUMBER: _ClassVar[int]
    engine: str
    model: str
    device: str
    processes: int
    max_batch: int
    def __init__(self, engine: _Optional[str] = ..., model: _Optional[str] = ..., device: _Optional[str] = ..., processes: _Optional[int] = ..., max_batch: _Optional[int] = ...) -> None: ...

class Load(_message.Message):
    __slots__ = ("working", "waiting", "streams", "slots", "queue_length", "max_streams", "most_waiting", "accepted", "refused", "expired", "cancelled", "failed")
    WORKING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    MAX_STREAMS_FIELD_NUMBER: _ClassVar[int]
    MOST_WAITING_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    working: int
    waiting: int
    streams: int
    slots: int
    queue_length: int
    max_streams: int
    most_waiting: int
    accepted: int
    refused: int
    expired: int
    cancelled: int
    failed: int
    def __init__(self, working: _Optional[int] = ..., waiting: _Optional[int] = ..., streams: _Optional[int] = ..., slots: _Optional[int] = ..., queue_length: _Optional[int] = ..., max_streams: _Optional[int] = ..., most_waiting: _Optional[int] = ..., accepted: _Optional[int] = ..., refused: _Optional[int] = ..., expired: _Optional[int] = ..., cancelled: _Optional[int] = ..., failed: _Optional[int] = ...) -> None: ...
