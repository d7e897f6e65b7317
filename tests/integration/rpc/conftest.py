"""Servers of the voice engine in processes of their own, started by the command as a user starts them."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from voicejobs.proto import voice_engine_pb2 as pb
from voicejobs.rpc.channels import ChannelPool
from voicejobs.rpc.client import PoolLimits, Target, VoiceClient

PLUGIN = Path(__file__).parents[1] / "hosting" / "plugin"
START_TIMEOUT_S = 60.0
FAKE = ("--engine", "fake", "--model", "", "--voice-engine", "fake_voice")


@dataclass(slots=True)
class Server:
    """Hold a server that runs, and what is needed to call it."""

    process: "subprocess.Popen[str]"
    address: str
    log: Path
    clients: list[VoiceClient] = field(default_factory=list)
    _watching: VoiceClient | None = None

    def client(self, *, pool: ChannelPool | None = None, **target: object) -> VoiceClient:
        """Return a client, which is closed with the server."""
        found = VoiceClient(
            Target(self.address, **target),  # type: ignore[arg-type]
            pool=pool or ChannelPool(PoolLimits(size=1, calls=1000)),
            timeout_s=30.0,
        )
        self.clients.append(found)
        return found

    def load(self) -> pb.Load:
        """Return how busy it is, by its own account."""
        return self._watcher().info().load

    def settled(self, fact: Callable[[pb.Load], bool], within_s: float = 5.0) -> bool:
        """Tell whether its load comes to be so in time."""
        client = self._watcher()
        return eventually(lambda: fact(client.info().load), within_s)

    def _watcher(self) -> VoiceClient:
        """Return the client that asks how busy it is: one, so that it opens no more than one connection."""
        if self._watching is None:
            self._watching = self.client()
        return self._watching

    def tree(self) -> list[psutil.Process]:
        """Return the server and its children."""
        root = psutil.Process(self.process.pid)
        return [root, *root.children(recursive=True)]

    def stop(self, timeout_s: float = 20.0) -> int:
        """End it by SIGTERM and return its exit code."""
        for client in self.clients:
            client.close()
        self.process.terminate()
        return self.process.wait(timeout_s)


def eventually(fact: Callable[[], bool], within_s: float = 5.0) -> bool:
    """Tell whether a fact comes to be in time."""
    deadline = time.monotonic() + within_s
    while not fact():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@dataclass(slots=True)
class Starter:
    """Start servers in a folder, and end them all.

    Args:
        folder: for logs and state.
    """

    folder: Path
    started: list[Server] = field(default_factory=list)

    def __call__(
        self,
        *words: str,
        settings: dict[str, str] | None = None,
        address: str = "127.0.0.1:0",
        engines: Sequence[str] = FAKE,
    ) -> Server:
        """Start one, and wait until it says that it serves."""
        process, log = self.launch(*words, settings=settings, address=address, engines=engines)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("serving on "):
            process.kill()
            process.wait()
            pytest.fail(f"the server did not start: {line!r}\n{log.read_text()}")
        server = Server(process, line.removeprefix("serving on ").strip(), log)
        self.started.append(server)
        return server

    def launch(
        self,
        *words: str,
        settings: dict[str, str] | None = None,
        address: str = "127.0.0.1:0",
        engines: Sequence[str] = FAKE,
    ) -> "tuple[subprocess.Popen[str], Path]":
        """Start the command, and wait for nothing."""
        log = self.folder / f"server-{len(list(self.folder.glob('server-*')))}.log"
        ours = {"VOICEJOBS_STATE_DIR": str(self.folder / "state"), "VOICEJOBS_ENGINE_PROCESSES": "1"}
        path = os.pathsep.join([str(PLUGIN), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
        with log.open("w") as file:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "voicejobs.cli.main",
                    "serve",
                    "engine",
                    "--address",
                    address,
                    *engines,
                    *words,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env={**os.environ, **ours, **(settings or {}), "PYTHONPATH": path},
            )
        return process, log

    def end(self) -> None:
        """End all that run."""
        for server in self.started:
            if server.process.poll() is None:
                server.stop()
            if server.process.stdout is not None:
                server.process.stdout.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Starter]:
    """Return a starter of servers of this test alone."""
    starter = Starter(tmp_path)
    yield starter
    starter.end()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a server with the fake engines that the tests of a module share."""
    starter = Starter(tmp_path_factory.mktemp("server"))
    yield starter()
    starter.end()


@pytest.fixture(scope="session")
def tiny(models_dir: Path) -> Sequence[str]:
    """Return the options that serve tiny.en, or skip where it is not installed."""
    if not (models_dir / "tiny.en" / "model.bin").is_file():
        reason = f"model tiny.en is not installed in {models_dir}: voicejobs models pull tiny.en"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return ("--engine", "whisper", "--model", "tiny.en")
