"""Generate the stubs of voicejobs/proto from its proto files; `--check` compares and changes nothing."""

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parents[1]
PROTOS = ("voicejobs/proto/cosyvoice.proto", "voicejobs/proto/voice_engine.proto")


def generate(target: Path) -> None:
    """Write the stubs below `target`, in the folders of their packages."""
    include = files("grpc_tools") / "_proto"
    arguments = [
        "protoc",
        f"-I{ROOT}",
        f"-I{include}",
        f"--python_out={target}",
        f"--pyi_out={target}",
        f"--grpc_python_out={target}",
        *PROTOS,
    ]
    if protoc.main(arguments) != 0:
        sys.exit("protoc failed")


def differing() -> list[str]:
    """Return the names of stubs in the tree that are not what the proto file gives."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        made = {path.relative_to(folder): path.read_bytes() for path in Path(folder).rglob("*_pb2*")}
    return [str(name) for name, content in made.items() if _content(ROOT / name) != content]


def _content(path: Path) -> bytes:
    """Return the bytes of a file, none where it is not there."""
    return path.read_bytes() if path.exists() else b""


def main() -> None:
    """Generate, or compare."""
    if "--check" not in sys.argv[1:]:
        generate(ROOT)
        return
    stale = differing()
    if stale:
        sys.exit(f"not as {' and '.join(PROTOS)} give them: {', '.join(stale)}; run scripts/generate_proto.py")


if __name__ == "__main__":
    main()
