"""The stubs in the tree are what the proto file gives, and fit the versions that setup.cfg asks for."""

import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import grpc
from google.protobuf import __version__ as runtime
from packaging.requirements import Requirement
from packaging.version import Version

from voicejobs.proto import voice_engine_pb2 as pb

ROOT = Path(__file__).parents[3]
STUBS = ROOT / "voicejobs" / "proto"


def floor(extra: str, name: str) -> Version:
    """Return the lowest version of a package that an extra accepts."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = [Requirement(line) for line in config["options.extras_require"][extra].splitlines() if line]
    (found,) = (one for one in lines if one.name == name)
    (lowest,) = (one.version for one in found.specifier if one.operator in {">=", "=="})
    return Version(lowest)


def generated(name: str, pattern: str) -> Version:
    """Return a version that a stub says it needs."""
    found = re.search(pattern, (STUBS / name).read_text(encoding="utf-8"))
    assert found is not None
    return Version(found[1])


def test_a18_stubs_are_those_of_the_proto_file() -> None:
    """Generating them again gives the same bytes."""
    script = ROOT / "scripts" / "generate_proto.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a18_versions_of_generator_and_runtime_fit() -> None:
    """What setup.cfg accepts, and what is installed, is not older than the generator that made the stubs."""
    needed = {
        "protobuf": generated("voice_engine_pb2.py", r"# Protobuf Python Version: (\S+)"),
        "grpcio": generated("voice_engine_pb2_grpc.py", r"GRPC_GENERATED_VERSION = '(\S+)'"),
    }
    for extra in ("server", "dev"):
        for name, version in needed.items():
            assert floor(extra, name) >= version, f"{extra}: {name}"
    assert Version(runtime) >= needed["protobuf"]
    assert Version(grpc.__version__) >= needed["grpcio"]
    assert floor("dev", "grpcio-tools") == needed["grpcio"]


def test_the_articles_fields_have_their_numbers() -> None:
    """Names, numbers and types of the article are never given to anything else."""
    numbers = {
        "RecognizeRequest": {"audio_data": 1, "audio_format": 2, "language": 3},
        "RecognizeResponse": {"text": 1, "words": 2, "confidence": 3},
        "WordInfo": {"word": 1, "start_time": 2, "end_time": 3},
    }
    for message, fields in numbers.items():
        found = {field.name: field.number for field in pb.DESCRIPTOR.message_types_by_name[message].fields}
        assert found.items() >= fields.items()
    assert pb.DESCRIPTOR.package == "voice_engine"
    methods = [method.name for method in pb.DESCRIPTOR.services_by_name["VoiceEngine"].methods]
    assert methods[:3] == ["Recognize", "StreamingRecognize", "Synthesize"]
