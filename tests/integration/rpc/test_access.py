"""Who may call, over what: keys, TLS, certificates of clients, addresses."""

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.integration.rpc.calls import recognize
from tests.integration.rpc.conftest import Starter
from voicejobs.errors import AccessDenied, EngineUnavailable
from voicejobs.proto import voice_engine_pb2 as pb
from voicejobs.proto.voice_engine_pb2_grpc import VoiceEngineStub

pytestmark = pytest.mark.timeout(180)

KEY, OTHER = "a-long-enough-key-of-alice", "another-key-which-is-of-bob"
KEYS = f"# keys of the test\nalice={KEY}\nbob=sha256:{sha256(OTHER.encode()).hexdigest()}\n"


@dataclass(frozen=True, slots=True)
class Certificates:
    """Hold the files of a private CA: its certificate, and certificate and key of a server and of a client."""

    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Return certificates that were made for this test, or skip where the machine has no openssl."""
    if shutil.which("openssl") is None:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail("openssl is missing")
        pytest.skip("openssl is missing")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test CA")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl("req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)
    paths = [folder / name for name in ("ca.pem", "server.pem", "server.key", "client.pem", "client.key")]
    return Certificates(*paths)


def outcome(address: str, metadata: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return the status of a call of each kind with these metadata."""
    found = {}
    with grpc.insecure_channel(address) as channel:
        stub = VoiceEngineStub(channel)
        reflect: Any = reflection_pb2_grpc.ServerReflectionStub
        reflect = reflect(channel)
        calls: dict[str, Callable[[], object]] = {
            "Recognize": lambda: stub.Recognize(recognize(), metadata=metadata, timeout=10),
            "Synthesize": lambda: stub.Synthesize(pb.SynthesizeRequest(text="One."), metadata=metadata, timeout=10),
            "SynthesizeStream": lambda: list(
                stub.SynthesizeStream(pb.SynthesizeRequest(text="One."), metadata=metadata, timeout=10)
            ),
            "StreamingRecognize": lambda: list(
                stub.StreamingRecognize(
                    iter([pb.StreamingRecognizeRequest(config=pb.StreamingConfig(audio_format="pcm_s16le_16k"))]),
                    metadata=metadata,
                    timeout=10,
                )
            ),
            "ListVoices": lambda: stub.ListVoices(pb.ListVoicesRequest(), metadata=metadata, timeout=10),
            "GetInfo": lambda: stub.GetInfo(pb.GetInfoRequest(), metadata=metadata, timeout=10),
            "reflection": lambda: list(
                reflect.ServerReflectionInfo(
                    iter([reflection_pb2.ServerReflectionRequest(list_services="")]), metadata=metadata, timeout=10
                )
            ),
        }
        for name, call in calls.items():
            try:
                call()
                found[name] = "OK"
            except grpc.RpcError as error:
                found[name] = error.code().name
    return found


def test_every_method_asks_for_the_key(serve: Starter, tmp_path: Path) -> None:
    """With keys set no method answers without one that is known, reflection included; each known one opens all."""
    (tmp_path / "keys").write_text(KEYS)
    server = serve("--keys-file", str(tmp_path / "keys"))
    matrix = [
        ((), "UNAUTHENTICATED"),
        ((("authorization", f"Bearer {KEY}x"),), "UNAUTHENTICATED"),
        ((("authorization", f"Bearer {KEY[:-1]}"),), "UNAUTHENTICATED"),
        ((("authorization", f"Basic {KEY}"),), "UNAUTHENTICATED"),
        ((("authorization", KEY),), "UNAUTHENTICATED"),
        ((("authorization", f"Bearer sha256:{sha256(OTHER.encode()).hexdigest()}"),), "UNAUTHENTICATED"),
        ((("x-api-key", ""),), "UNAUTHENTICATED"),
        ((("authorization", f"Bearer {KEY}"),), "OK"),
        ((("authorization", f"bearer {OTHER}"),), "OK"),
        ((("x-api-key", OTHER),), "OK"),
    ]
    for metadata, wanted in matrix:
        assert set(outcome(server.address, metadata).values()) == {wanted}, metadata
    with grpc.insecure_channel(server.address) as channel:
        probe = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
    assert probe.status == health_pb2.HealthCheckResponse.SERVING
    assert server.client(key=OTHER).info().version
    with pytest.raises(AccessDenied):
        server.client(key="").info()
    log = server.log.read_text()
    assert KEY not in log
    assert OTHER not in log
    assert '"key": "bob"' in log


def test_tls_and_certificates_of_clients(serve: Starter, certificates: Certificates) -> None:
    """TLS is spoken with those who trust the CA; with --client-ca only with those whose certificate it signed."""
    words = ("--tls-cert", str(certificates.server), "--tls-key", str(certificates.server_key))
    server = serve(*words)
    assert server.client(tls=True, ca_file=str(certificates.ca)).info().version
    with pytest.raises(EngineUnavailable):
        server.client(tls=True).info(timeout_s=5)
    with pytest.raises(EngineUnavailable):
        server.client().info(timeout_s=5)
    mutual = serve(*words, "--client-ca", str(certificates.ca))
    ca, ours, our_key = (str(path) for path in (certificates.ca, certificates.client, certificates.client_key))
    assert mutual.client(tls=True, ca_file=ca, certificate_file=ours, key_file=our_key).info().version
    with pytest.raises(EngineUnavailable):
        mutual.client(tls=True, ca_file=str(certificates.ca)).info(timeout_s=5)


def test_a_public_address_needs_protection(serve: Starter) -> None:
    """An address that others reach is refused before anything is loaded; tests/unit/rpc has the whole table."""
    process, log = serve.launch(address="0.0.0.0:0")
    assert process.wait(30) == 7
    assert "open to the network" in log.read_text()
    assert process.stdout is not None
    process.stdout.close()


def test_a_unix_socket_is_for_its_user_alone(serve: Starter, tmp_path: Path) -> None:
    """The socket's rights let nobody else in, calls work over it, and it is gone after the server."""
    path = tmp_path / "engine.sock"
    server = serve(address=f"unix:{path}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert server.client().info().version
    assert server.stop() == 0
    assert not path.exists()


def test_two_servers_do_not_share_a_port(serve: Starter) -> None:
    """The second server on a port fails and says so, in place of taking half of the calls."""
    first = serve()
    process, log = serve.launch(address=first.address)
    assert process.wait(30) == 7
    assert "cannot be served" in log.read_text()
    assert process.stdout is not None
    process.stdout.close()
