"""Every error that voicejobs raises, in one tree.

    VoicejobsError
    |-- Permanent                 trying again cannot help
    |   |-- InputError            something is wrong with this input, and only with it
    |   |   |-- EmptyFile, NotAudio, NoAudioStream, BadHeader, Damaged, Unreadable, NotFound,
    |   |   |   InputChanged, TooLong (AudioTooLongForSync), NotTranscript, NotSubtitles, EmptyText, BadText,
    |   |   |   BadAudioFormat, MessageTooLarge, TooLarge, AddressRefused, SourceRefused, SourceTooLarge
    |   |-- OutputExists, OutputUnwritable
    |   |-- BadOption (BadUsage, BadConfiguration, BadManifest, InvalidRequest, SecretUnusable), UnknownPipeline,
    |   |   UnknownStep, UnknownEngine, UnknownModel, ModelUnavailable, ModelCorrupt, ExtraMissing, SchemaMismatch,
    |   |   NoSuchRecord (ModelNotFound), WrongState, DeviceRefused, Expired,
    |   |   AccessDenied (KeyNeeded, ScopeMissing, OriginRefused), NotServed, EngineRefused, KeyReused,
    |   |   RangeRefused, NoSuchPath, MethodNotAllowed, HostRefused, BadMediaType, LengthMissing, TooSlow,
    |   |   BadSignature
    |   `-- Poison                its processes died under it too often
    |-- Transient                 a later attempt may succeed
    |   |-- DecoderCrash, DecoderTimeout, EngineCrash, EngineTimeout, EngineUnavailable, EngineBusy, StepTimeout,
    |   |   AddressUnavailable, QueueFull, RateLimited, QuotaReached, WaitedTooLong, DeadlinePassed, OutOfMemory,
    |   |   MemoryLow, DiskFull, BlobsUnavailable, BlobsRefused, BrokerUnavailable, DatabaseUnavailable,
    |   |   StackUnavailable, ServerUnreachable, Internal
    `-- Interruption              no failure: the work was stopped on purpose
        |-- Cancelled, AudioGone, LeaseLost, ShuttingDown

`code` is stable and documented in docs/errors.md; `hint` says what to do about it.
"""

from collections.abc import Mapping
from typing import Any, ClassVar


class VoicejobsError(Exception):
    """Say what is wrong (`message`) and what to do (`hint`), under a stable `code`.

    Args:
        message: what is wrong, naming the file or the setting at fault.
        hint: what to do; the default of the class where it is left out.
        details: JSON values that help a machine (limits, sizes, names).
    """

    code: ClassVar[str] = "error"
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint
        self.details = details

    def to_json(self) -> dict[str, Any]:
        """Return `{"code", "message", "hint", "details"}` as JSON values."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "details": self.details}


class Permanent(VoicejobsError):
    """Trying again cannot help."""

    code = "permanent"


class Transient(VoicejobsError):
    """A later attempt may succeed."""

    code = "transient"


class Interruption(VoicejobsError):
    """Work was stopped on purpose; nothing failed."""

    code = "interrupted"


class InputError(Permanent):
    """Something is wrong with one input, and only with it."""

    code = "bad_input"
    default_hint = "Check that the file plays in a media player, then run the command again."


class EmptyFile(InputError):
    """The file holds no bytes, or no audio at all."""

    code = "empty_file"
    default_hint = "The recording is empty: copy or export it again."


class NotAudio(InputError):
    """No decoder on the list recognises the file."""

    code = "not_audio"
    default_hint = "Check what the file really is; export it as WAV, FLAC, MP3, M4A or Opus."


class NoAudioStream(InputError):
    """The file is a valid container without sound."""

    code = "no_audio_stream"
    default_hint = "The file has no audio track: nothing can be transcribed from it."


class BadHeader(InputError):
    """The header promises a rate or a number of channels that no recording has."""

    code = "bad_header"
    default_hint = "The header of the file is damaged: export the recording again."


class Damaged(InputError):
    """The file opens, and its audio cannot be decoded."""

    code = "damaged"
    default_hint = "The recording is damaged: copy or export it again."


class Unreadable(InputError):
    """The operating system does not let us read the file."""

    code = "unreadable"
    default_hint = "Give the user that runs voicejobs the right to read it."


class NotFound(InputError):
    """The file is not there."""

    code = "not_found"
    default_hint = "Check the path."


class InputChanged(InputError):
    """The file is not the one that was submitted."""

    code = "input_changed"
    default_hint = "The file was changed after it was submitted: run the command again."


class TooLong(InputError):
    """The decoded audio passes the configured limit."""

    code = "too_long"
    default_hint = "Cut the recording, or raise VOICEJOBS_MAX_AUDIO_S."


class AudioTooLongForSync(TooLong):
    """The recording is too long for a call that waits for its answer."""

    code = "audio_too_long_for_sync"
    default_hint = "Submit it as a job (POST /api/v1/jobs) or in a batch (POST /v1/batches): nobody has to wait then."


class NotTranscript(InputError):
    """The file holds no transcript that can be rendered."""

    code = "not_transcript"
    default_hint = "Name a JSON file that voicejobs, whisper or an OpenAI endpoint (verbose_json) wrote."


class NotSubtitles(InputError):
    """The file holds no subtitles that can be checked."""

    code = "not_subtitles"
    default_hint = "Name an SRT or WebVTT file in UTF-8."


class BadAudioFormat(InputError):
    """The audio format of a request is unknown, or the audio is not of that format."""

    code = "bad_audio_format"
    default_hint = "docs/voice-engine.md lists the formats."


class MessageTooLarge(InputError):
    """A message to or from a voice engine is larger than the server or the client takes."""

    code = "message_too_large"
    default_hint = "Send the recording in parts or as a stream, or raise VOICEJOBS_RPC_MAX_MESSAGE_BYTES on both sides."


class TooLarge(InputError):
    """What is sent to the service is larger than it takes."""

    code = "too_large"
    default_hint = "Send it as an upload in parts (/v1/uploads), or raise the limit of the service."


class EmptyText(InputError):
    """There is nothing in a text that can be said."""

    code = "empty_text"
    default_hint = "Give a text with words in it: blanks, punctuation and emoji are not spoken."


class BadText(InputError):
    """What should be spoken is no text."""

    code = "bad_text"
    default_hint = "Save the text as UTF-8."


class AddressRefused(InputError):
    """A URL or a path may not be asked for: it is not on the lists of the operator, or not public."""

    code = "address_refused"
    default_hint = "docs/settings.md lists what allows it."


class SourceRefused(InputError):
    """The server that a URL names does not give what lies there."""

    code = "source_refused"
    default_hint = "Check the URL in a browser; upload the file instead if it needs a login."


class SourceTooLarge(InputError):
    """What lies at a URL is larger than is taken."""

    code = "source_too_large"
    default_hint = "Upload the file in parts, or raise VOICEJOBS_SOURCE_URL_MAX_BYTES."


class OutputExists(Permanent):
    """A file that voicejobs did not write is in the way."""

    code = "output_exists"
    default_hint = "Move the file away, choose another output folder, or use --force."


class OutputUnwritable(Permanent):
    """The output cannot be written."""

    code = "output_unwritable"
    default_hint = "Check the rights and the free space of the output folder."


class BadOption(Permanent):
    """An option has a value that voicejobs cannot use."""

    code = "bad_option"


class BadUsage(BadOption):
    """The command line cannot be understood."""

    code = "bad_usage"


class BadConfiguration(BadOption):
    """A file of the configuration cannot be read, or says what voicejobs does not know."""

    code = "bad_configuration"
    default_hint = "`voicejobs config validate` shows every fault; docs/configuration.md explains the files."


class BadManifest(BadOption):
    """A manifest has a line that cannot be understood, or that fits no other."""

    code = "bad_manifest"
    default_hint = "Mend the line and run the command again: what is submitted is not submitted twice."


class SecretUnusable(BadOption):
    """The secret of the installation, which those of webhooks are derived from, is missing or cannot be used."""

    code = "secret_unusable"
    default_hint = "Whoever runs the service must set VOICEJOBS_WEBHOOK_SECRET, or mend its file in the state folder."


class UnknownPipeline(Permanent):
    """No pipeline has this name."""

    code = "unknown_pipeline"


class UnknownStep(Permanent):
    """No step has this name, or not in this version."""

    code = "unknown_step"


class UnknownEngine(Permanent):
    """No engine has this name."""

    code = "unknown_engine"


class UnknownModel(Permanent):
    """The catalogue holds no model of this name."""

    code = "unknown_model"
    default_hint = "`voicejobs models list` shows the names."


class ModelUnavailable(Permanent):
    """None of the sources of a model could deliver it."""

    code = "model_unavailable"
    default_hint = "Check the network, or copy the files by hand into the models folder."


class ModelCorrupt(Permanent):
    """A model file does not have the hash that the catalogue names."""

    code = "model_corrupt"
    default_hint = "Run `voicejobs models pull NAME` to fetch it again."


class ExtraMissing(Permanent):
    """An optional dependency is not installed."""

    code = "extra_missing"


class SchemaMismatch(Permanent):
    """The database is not at the revision that this version needs."""

    code = "schema_mismatch"
    default_hint = "Run `voicejobs db upgrade`."


class NoSuchRecord(Permanent):
    """No row has this id."""

    code = "no_such_record"


class ModelNotFound(NoSuchRecord):
    """No model of this name can be asked for."""

    code = "model_not_found"
    default_hint = "GET /v1/models lists the names."


class WrongState(Permanent):
    """A job is in a state that does not allow what was asked."""

    code = "wrong_state"


class DeviceRefused(Permanent):
    """A device is not there, or what is asked of it does not fit."""

    code = "device_refused"
    default_hint = "`voicejobs doctor` shows the devices of this machine."


class Expired(Permanent):
    """The job was not done in time."""

    code = "expired"
    default_hint = "`voicejobs job retry` takes it up again, without a limit."


class EngineRefused(Permanent):
    """The server of an engine refuses a request, and will refuse it again."""

    code = "engine_refused"
    default_hint = "The message is the server's: check the model, the voice, the key and the options of the engine."


class AccessDenied(Permanent):
    """The server of a voice engine wants a key that it knows."""

    code = "access_denied"
    default_hint = "Send the key as metadata: authorization: Bearer KEY."


class KeyNeeded(AccessDenied):
    """The request has no API key that is valid."""

    code = "key_needed"
    default_hint = "Send one: Authorization: Bearer KEY. `voicejobs key create` makes one."


class ScopeMissing(AccessDenied):
    """The API key does not allow what was asked."""

    code = "scope_missing"
    default_hint = "Use a key that has the scope; `voicejobs key create --scope` makes one."


class OriginRefused(AccessDenied):
    """A web page of another site asked."""

    code = "origin_refused"
    default_hint = "VOICEJOBS_API_ORIGINS names the sites that may."


class NoSuchPath(Permanent):
    """Nothing is served under this path."""

    code = "no_such_path"
    default_hint = "/docs lists the paths."


class MethodNotAllowed(Permanent):
    """The path does not know this method."""

    code = "method_not_allowed"
    default_hint = "The header Allow lists the methods."


class HostRefused(Permanent):
    """The request names a host that this service does not go by."""

    code = "host_refused"
    default_hint = "VOICEJOBS_API_HOSTS names the hosts."


class InvalidRequest(BadOption):
    """A request does not fit the schema of its operation."""

    code = "invalid_request"
    default_hint = "/openapi.json holds the schema."


class KeyReused(Permanent):
    """An Idempotency-Key was used for another request."""

    code = "idempotency_key_reused"
    default_hint = "Take a new key for a new request."


class RangeRefused(Permanent):
    """None of the bytes that were asked for is there."""

    code = "range_refused"
    default_hint = "Ask for bytes below the size that Content-Range tells, or for all of them."


class BadMediaType(Permanent):
    """The body of a request has a type that its operation does not take."""

    code = "bad_media_type"
    default_hint = "/openapi.json names the types."


class LengthMissing(Permanent):
    """The request does not say how long its body is, and must."""

    code = "length_missing"
    default_hint = "Send Content-Length."


class TooSlow(Permanent):
    """The body of a request came too slowly."""

    code = "too_slow"
    default_hint = "Send it again over a better line, or in parts."


class NotServed(Permanent):
    """The server has no engine for what was asked."""

    code = "not_served"
    default_hint = "Ask a server that has such an engine; GetInfo tells what this one has."


class BadSignature(Permanent):
    """A message to a webhook was not signed with the secret that it is checked by."""

    code = "bad_signature"
    default_hint = "Check the secret and that the body is taken byte by byte; after a rotation take the new secret."


class Poison(Permanent):
    """The processes that worked on a job died under it too often."""

    code = "poison"
    default_hint = "The recording crashes the worker: report it, and transcribe the others without it."


class DecoderCrash(Transient):
    """The decoder process died on this input."""

    code = "decoder_crash"
    default_hint = "The recording crashes the decoder: convert it with another program and try again."


class DecoderTimeout(Transient):
    """The decoder process made no progress for too long."""

    code = "decoder_timeout"
    default_hint = "The recording stalls the decoder: convert it with another program and try again."


class EngineCrash(Transient):
    """An engine process died."""

    code = "engine_crash"


class EngineTimeout(Transient):
    """An engine process did not answer in time."""

    code = "engine_timeout"


class EngineUnavailable(Transient):
    """The server of an engine cannot be reached, failed, or broke off in the middle of an answer."""

    code = "engine_unavailable"
    default_hint = "Check that the server runs and that its address in the settings is right; it is tried again."


class EngineBusy(Transient):
    """The server of an engine takes no more requests for now; `retry_after_s` in the details says for how long."""

    code = "engine_busy"
    default_hint = "It is tried again later; fewer engine processes or a smaller --batch-size ask less of the server."


class StepTimeout(Transient):
    """A step took longer than the length of its recording allows."""

    code = "step_timeout"
    default_hint = "It is tried again; if it stays, raise VOICEJOBS_STEP_FACTOR or look at the load of the machine."


class AddressUnavailable(Transient):
    """The server that a URL names does not answer, or not now."""

    code = "address_unavailable"
    default_hint = "Check that the server runs and can be reached from here; it is tried again."


class QueueFull(Transient):
    """More jobs wait than the installation takes."""

    code = "queue_full"
    default_hint = (
        "Run the command again later: it submits what is missing. VOICEJOBS_MAX_QUEUED_JOBS sets the ceiling."
    )


class RateLimited(Transient):
    """A key asks more often, or for more at once, than it may."""

    code = "rate_limited"
    default_hint = "Wait as long as Retry-After says."


class QuotaReached(Transient):
    """A tenant has as much work in the queue as it may."""

    code = "quota_reached"
    default_hint = "Try again when some of it is done; GET /api/v1/limits tells how much there is."


class OutOfMemory(Transient):
    """An engine ran out of memory."""

    code = "out_of_memory"
    default_hint = "Use a smaller model, or fewer engine processes (VOICEJOBS_ENGINE_PROCESSES)."


class MemoryLow(Transient):
    """A worker or a service holds as much memory as it may, and begins nothing until it holds less."""

    code = "memory_low"
    default_hint = "Work goes on by itself once memory is given back; raise VOICEJOBS_MAX_MEMORY_BYTES if it never is."


class DiskFull(Transient):
    """The disk is full."""

    code = "disk_full"
    default_hint = "Free some space; work goes on by itself."


class BlobsUnavailable(Transient):
    """The blob store cannot be reached, or cannot serve us."""

    code = "blobs_unavailable"
    default_hint = "Check VOICEJOBS_BLOBS_URL and that the store answers; work goes on by itself."


class BlobsRefused(Transient):
    """The blob store refuses us."""

    code = "blobs_refused"
    default_hint = "Check the bucket of VOICEJOBS_BLOBS_URL, the credentials and their rights; work goes on by itself."


class BrokerUnavailable(Transient):
    """The Redis-protocol server cannot be reached."""

    code = "broker_unavailable"
    default_hint = "Check VOICEJOBS_BROKER_URL and that the server runs."


class DatabaseUnavailable(Transient):
    """The database cannot be reached."""

    code = "database_unavailable"
    default_hint = "Check VOICEJOBS_DATABASE_URL and that the server runs."


class ServerUnreachable(Transient):
    """A voicejobs service does not answer, or answers that it cannot work now."""

    code = "server_unreachable"
    default_hint = "Check its address (--server, VOICEJOBS_SERVER_URL) and that it runs, then run the command again."


class StackUnavailable(Transient):
    """The embedded stack did not start, or ended under us."""

    code = "stack_unavailable"
    default_hint = "Read the log named in the message, then run the command again: it resumes."


class WaitedTooLong(Transient):
    """The request waited in the queue of the server for as long as it may, and never reached an engine."""

    code = "waited_too_long"
    default_hint = "The server is busy: try again later, or raise VOICEJOBS_RPC_WAIT_S."


class DeadlinePassed(Transient):
    """The answer did not come before the deadline of the call."""

    code = "deadline_passed"
    default_hint = "Give the call more time, or send less audio at once."


class Internal(Transient):
    """An error that voicejobs did not foresee."""

    code = "internal"
    default_hint = "Run the command again; if it stays, report it with the output of `voicejobs job show`."


class Cancelled(Interruption):
    """The job was cancelled."""

    code = "cancelled"


class AudioGone(Interruption):
    """The decoded audio of a running job is not there any more; the job begins anew."""

    code = "audio_gone"
    default_hint = "The recording is decoded again; if it stays, find out what removes files from the state folder."


class LeaseLost(Interruption):
    """Another worker owns the step run by now."""

    code = "lease_lost"


class ShuttingDown(Interruption):
    """The worker is going down; the step run goes back to the queue."""

    code = "shutting_down"


def error_from_json(data: Mapping[str, Any]) -> VoicejobsError:
    """Build the error that `VoicejobsError.to_json` described; an unknown code becomes `Internal`."""
    waiting: list[type[VoicejobsError]] = [VoicejobsError]
    while waiting:
        kind = waiting.pop()
        if kind.code == data["code"]:
            return kind(data["message"], hint=data["hint"], **data["details"])
        waiting += kind.__subclasses__()
    return Internal(data["message"], hint=data["hint"], **data["details"])
