"""CosyVoice's two servers as their interfaces are published, built from the proto text below and from form fields.

Nothing here comes from our own stubs: the messages are built from the text in a pool of their own, so that a mistake
in our proto file shows.
"""

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

PROTO = """
syntax = "proto3";
package cosyvoice;
service CosyVoice { rpc Inference(Request) returns (stream Response) {} }
message Request {
  oneof RequestPayload {
    sftRequest sft_request = 1;
    zeroshotRequest zero_shot_request = 2;
    crosslingualRequest cross_lingual_request = 3;
    instructRequest instruct_request = 4;
  }
}
message sftRequest { string spk_id = 1; string tts_text = 2; }
message zeroshotRequest { string tts_text = 1; string prompt_text = 2; bytes prompt_audio = 3; }
message crosslingualRequest { string tts_text = 1; bytes prompt_audio = 2; }
message instructRequest { string tts_text = 1; string spk_id = 2; string instruct_text = 3; }
message Response { bytes tts_audio = 1; }
"""
"""Package, service, fields and numbers as in CosyVoice's interface; the names of messages do not cross the wire."""

METHOD = "/cosyvoice.CosyVoice/Inference"
FORMS = {
    "/inference_sft": {"tts_text", "spk_id"},
    "/inference_zero_shot": {"tts_text", "prompt_text", "prompt_wav"},
    "/inference_cross_lingual": {"tts_text", "prompt_wav"},
    "/inference_instruct": {"tts_text", "spk_id", "instruct_text"},
    "/inference_instruct2": {"tts_text", "instruct_text", "prompt_wav"},
}
"""The paths of the FastAPI server and the fields that each of them demands."""

Answer = Callable[[bytes, grpc.ServicerContext], Iterator[bytes]]


def messages() -> dict[str, Any]:
    """Return the classes of the messages, by name."""
    from grpc_tools import protoc

    pool = DescriptorPool()
    with tempfile.TemporaryDirectory() as folder:
        source, compiled = Path(folder) / "published.proto", Path(folder) / "published.bin"
        source.write_text(PROTO)
        include = files("grpc_tools") / "_proto"
        words = ["protoc", f"-I{folder}", f"-I{include}", f"--descriptor_set_out={compiled}", str(source)]
        assert protoc.main(words) == 0
        for file in FileDescriptorSet.FromString(compiled.read_bytes()).file:
            pool.Add(file)
    found = pool.FindFileByName("published.proto").message_types_by_name
    return {name: GetMessageClass(descriptor) for name, descriptor in found.items()}


class CosyVoiceGrpcServer:
    """Serve `Inference` on a loopback port; `requests` holds the bytes of each request as they came."""

    def __init__(self, answer: Answer, max_conc: int = 4) -> None:
        self.requests: list[bytes] = []
        self._kinds = messages()
        self._answer = answer
        self._server = grpc.server(ThreadPoolExecutor(max_conc), maximum_concurrent_rpcs=max_conc)
        handler: Any = grpc.unary_stream_rpc_method_handler(self._infer, response_serializer=_to_bytes)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("cosyvoice.CosyVoice", {"Inference": handler}),)
        )
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.url = f"grpc://127.0.0.1:{port}"

    def read(self, data: bytes) -> Message:
        """Return a request as the published messages read it."""
        request: Message = self._kinds["Request"].FromString(data)
        return request

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.stop(None).wait()

    def _infer(self, request: bytes, context: grpc.ServicerContext) -> Iterator[Message]:
        """Answer one request."""
        self.requests.append(request)
        for piece in self._answer(request, context):
            yield self._kinds["Response"](tts_audio=piece)


def _to_bytes(message: Message) -> bytes:
    """Write a message."""
    return message.SerializeToString()
