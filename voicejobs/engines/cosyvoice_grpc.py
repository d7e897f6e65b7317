"""How an utterance travels to CosyVoice's gRPC server; imported where grpcio is there."""

from collections.abc import Iterator

import grpc

from voicejobs.engines.cosyvoice_requests import SILENT_HINT, Utterance
from voicejobs.errors import EngineBusy, EngineRefused, EngineUnavailable, VoicejobsError
from voicejobs.proto import cosyvoice_pb2 as messages

_METHOD = "/cosyvoice.CosyVoice/Inference"
_MESSAGE_BYTES = 64 << 20
_MESSAGE_CHARS = 500
_REFUSALS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.NOT_FOUND,
    }
)


def request_of(utterance: Utterance) -> messages.Request:
    """Return the message of an utterance.

    Raises:
        EngineRefused: there is none for its mode.
    """
    text = utterance.text
    if utterance.mode == "sft":
        return messages.Request(sft_request=messages.SftRequest(spk_id=utterance.speaker, tts_text=text))
    if utterance.mode == "zero_shot":
        return messages.Request(
            zero_shot_request=messages.ZeroShotRequest(
                tts_text=text, prompt_text=utterance.prompt_text, prompt_audio=utterance.prompt_audio
            )
        )
    if utterance.mode == "cross_lingual":
        return messages.Request(
            cross_lingual_request=messages.CrossLingualRequest(tts_text=text, prompt_audio=utterance.prompt_audio)
        )
    if utterance.mode == "instruct":
        return messages.Request(
            instruct_request=messages.InstructRequest(
                tts_text=text, spk_id=utterance.speaker, instruct_text=utterance.instruct
            )
        )
    raise EngineRefused(f"CosyVoice's gRPC server has no mode {utterance.mode}")


class GrpcWire:
    """Speak with CosyVoice's gRPC server, over one channel for all calls."""

    def __init__(self, target: str) -> None:
        self._name = f"the CosyVoice server at {target}"
        self._channel = grpc.insecure_channel(
            target,
            options=[
                ("grpc.max_receive_message_length", _MESSAGE_BYTES),
                ("grpc.max_send_message_length", _MESSAGE_BYTES),
                # gRPC's own retries know nothing of what was heard already.
                ("grpc.enable_retries", 0),
                ("grpc.max_reconnect_backoff_ms", 2000),
            ],
        )
        self._inference = self._channel.unary_stream(
            _METHOD,
            request_serializer=messages.Request.SerializeToString,
            response_deserializer=messages.Response.FromString,
        )

    def pieces(self, utterance: Utterance, within_s: float) -> Iterator[bytes]:
        """Give the bytes of the answer as they come; errors as in `Wire`."""
        begun = False
        call = self._inference(request_of(utterance), timeout=max(0.001, within_s))
        try:
            for response in call:
                begun = begun or bool(response.tts_audio)
                yield response.tts_audio
        except grpc.RpcError as error:
            raise self._error(error, begun, within_s) from None
        finally:
            call.cancel()  # a caller that has enough frees the server

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def _error(self, error: grpc.RpcError, begun: bool, within_s: float) -> VoicejobsError:
        """Return what a status means."""
        code, details = error.code(), " ".join(str(error.details()).split())[:_MESSAGE_CHARS]
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            return EngineBusy(f"{self._name} is busy: {details}", begun=begun)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return EngineUnavailable(f"{self._name} gave no whole answer within {within_s:.0f} s", begun=True)
        if "invalid file" in details.lower():
            return EngineRefused(f"{self._name} cannot read the recording of a voice: {details}", hint=SILENT_HINT)
        if code in _REFUSALS:
            return EngineRefused(f"{self._name} answers {code.name}: {details}", status=code.name)
        # Only a connection that never stood says that the server has not begun to work.
        is_asked = code is not grpc.StatusCode.UNAVAILABLE or "failed to connect" not in details.lower()
        what = "broke off its answer" if begun else "failed" if is_asked else "cannot be reached"
        return EngineUnavailable(f"{self._name} {what}: {code.name} {details}", begun=begun or is_asked)
