"""One engine process, seen from the worker: start it, call it, notice that it crashed or hangs, end it."""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Generator, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from voicejobs.audio.types import Pcm, Sound, WindowResult
from voicejobs.engines.base import EngineSpec, RecogniseOptions, SynthesiseOptions, Voice
from voicejobs.errors import EngineCrash, EngineTimeout, VoicejobsError, error_from_json
from voicejobs.hosting import wire
from voicejobs.hosting.figures import Gpu
from voicejobs.hosting.spawner import Spawner

LOAD_TIMEOUT_S = 600.0
"""A large model from a slow disk takes minutes; a process that hangs while it loads must still end."""
_LEAVE_S = 0.5


class EngineProcess:
    """Hold one engine process; used by one thread at a time.

    A call that fails because the process died or hangs leaves the object stopped; `start` gives it a new process.
    """

    def __init__(self, spec: EngineSpec, spawner: Spawner, call_timeout_s: float) -> None:
        self._spec = spec
        self._spawner = spawner
        self._call_timeout_s = call_timeout_s
        self._popen: subprocess.Popen[bytes] | None = None
        self._end: socket.socket | None = None
        self._abandoned = False
        self.last_used = time.monotonic()
        self.gpu: Gpu | None = None

    @property
    def running(self) -> bool:
        """Tell whether a process is there, loaded and not known to be dead."""
        return self._end is not None

    @property
    def pid(self) -> int | None:
        """Return the process id, None while there is no process."""
        return self._popen.pid if self._popen is not None else None

    def start(self) -> None:
        """Start the process and wait until the engine is loaded; does nothing while one runs.

        Raises:
            VoicejobsError: what the engine raised while it loaded, or `EngineCrash` or `EngineTimeout`.
        """
        if self._end is not None:
            return
        ours, theirs = socket.socketpair()
        with theirs:
            wire.prepare(ours)
            try:
                self._popen = self._spawner.spawn(theirs.fileno(), self._spec.threads)
            except BaseException:
                ours.close()
                raise
        self._end = ours
        try:
            self._raise_if_abandoned()
            secrets = dict(self._spec.secrets)  # over the socket: arguments and environments can be read by others
            level = logging.getLevelName(logging.getLogger().getEffectiveLevel())
            header = {"op": "load", "spec": self._spec.to_json(), "secrets": secrets, "log_level": level}
            self._exchange(header, (), LOAD_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise

    def run(
        self,
        works: Sequence[Pcm | str],
        options: RecogniseOptions | SynthesiseOptions,
        traces: Sequence[str] = (),
    ) -> Sequence[WindowResult | Sound]:
        """Run one batch of windows or of texts, as the options say; errors as in `recognise`.

        `traces` holds the trace id of each, for the log of the process and for servers that it asks.
        """
        if isinstance(options, RecogniseOptions):
            return self.recognise(cast("Sequence[Pcm]", works), options, traces)
        return self.synthesise(cast("Sequence[str]", works), options, traces)

    def recognise(
        self, windows: Sequence[Pcm], options: RecogniseOptions, traces: Sequence[str] = ()
    ) -> list[WindowResult]:
        """Run one batch.

        Raises:
            VoicejobsError: what the engine raised, or `EngineCrash` or `EngineTimeout`.
        """
        sizes = [window.size for window in windows]
        header = {"op": "recognise", "sizes": sizes, "options": _options_json(options), "traces": list(traces)}
        timeout_s = self._call_timeout_s * len(windows)
        answer, _ = self._exchange(header, [wire.to_bytes(window) for window in windows], timeout_s)
        return [WindowResult.from_json(result) for result in answer["results"]]

    def synthesise(self, texts: Sequence[str], options: SynthesiseOptions, traces: Sequence[str] = ()) -> list[Sound]:
        """Speak one batch of texts; errors as in `recognise`."""
        told = _options_json(options)
        header = {"op": "synthesise", "texts": list(texts), "options": told, "traces": list(traces)}
        answer, body = self._exchange(header, (), self._call_timeout_s * len(texts))
        return wire.split_sounds(body, answer["sizes"], answer["rates_hz"])

    def stream(self, text: str, options: SynthesiseOptions, traces: Sequence[str] = ()) -> Generator[Sound, None, None]:
        """Speak one text, giving each piece as it comes; errors as in `recognise`. To close it ends the work."""
        told = _options_json(options)
        self._exchange({"op": "begin", "text": text, "options": told, "traces": list(traces)}, (), self._call_timeout_s)
        try:
            while True:
                answer, body = self._exchange({"op": "next"}, (), self._call_timeout_s)
                if not answer["sizes"]:
                    return
                yield from wire.split_sounds(body, answer["sizes"], answer["rates_hz"])
        except GeneratorExit:
            with contextlib.suppress(VoicejobsError):  # a process that cannot be told is one that has ended
                self._exchange({"op": "leave"}, (), self._call_timeout_s)
            raise

    def voices(self) -> list[Voice]:
        """Ask for the voices; errors as in `recognise`."""
        answer, _ = self._exchange({"op": "voices"}, (), self._call_timeout_s)
        return [Voice.from_json(voice) for voice in answer["voices"]]

    def detect_language(self, window: Pcm) -> tuple[str, float]:
        """Ask for the language of one window; errors as in `recognise`."""
        header = {"op": "language", "sizes": [window.size]}
        answer, _ = self._exchange(header, [wire.to_bytes(window)], self._call_timeout_s)
        return answer["language"], answer["probability"]

    def probabilities(self, block: Pcm, state: bytes) -> tuple[NDArray[np.float32], bytes]:
        """Ask for the speech probabilities of a block; errors as in `recognise`."""
        header = {"op": "probabilities", "state_bytes": len(state)}
        answer, body = self._exchange(header, [state, wire.to_bytes(block)], self._call_timeout_s)
        border = answer["state_bytes"]
        return np.frombuffer(body[border:], np.float32), bytes(body[:border])

    def abandon(self) -> None:
        """Kill the process from any thread; a call that is in flight then fails with `EngineCrash`."""
        self._abandoned = True
        popen = self._popen
        if popen is not None:
            _kill(popen)

    def stop(self, leave_s: float = 0.0) -> None:
        """End the process for good, which is the one way that gives all its memory back.

        Args:
            leave_s: seconds in which it may leave by itself, which it does when the socket closes.
        """
        end, self._end = self._end, None
        popen, self._popen = self._popen, None
        if end is not None:
            end.close()
        if popen is None:
            return
        if leave_s:
            with contextlib.suppress(subprocess.TimeoutExpired):
                popen.wait(leave_s)
        _kill(popen)
        popen.wait()

    def _exchange(
        self, header: dict[str, Any], parts: Sequence[bytes | memoryview], timeout_s: float
    ) -> tuple[dict[str, Any], memoryview]:
        """Send one frame and return the answer."""
        end = self._end
        if end is None:
            raise EngineCrash(f"{self._name()} is not running")
        try:
            end.settimeout(timeout_s)
            wire.send(end, header, parts)
            answer, body = wire.receive(end)
        except TimeoutError:
            self.stop()
            raise EngineTimeout(
                f"{self._name()} gave no answer for {timeout_s:g} s and was stopped", timeout_s=timeout_s
            ) from None
        except (EOFError, OSError) as error:
            how = self._obituary()
            raise EngineCrash(f"{self._name()} {how}") from error
        except BaseException:  # half a frame may be on the wire: this process cannot be used any more
            self.stop()
            raise
        self.last_used = time.monotonic()
        if "gpu" in answer:
            self.gpu = (answer["gpu"][0], answer["gpu"][1])
        if answer["ok"]:
            return answer, body
        raise error_from_json(answer["error"])

    def _raise_if_abandoned(self) -> None:
        """Notice that `abandon` was called before there was a process to kill."""
        if self._abandoned:
            raise EngineCrash(f"{self._name()} was stopped while it started")

    def _obituary(self) -> str:
        """Collect the dead process and say how it died."""
        popen = self._popen
        code: int | None = None
        if popen is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = popen.wait(_LEAVE_S)
        self.stop()
        if self._abandoned:
            return "was stopped"
        if code is None:
            return "closed its connection"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with status {code}"

    def _name(self) -> str:
        """Name the engine for messages."""
        return f"engine process {self._spec.engine} {self._spec.model}".rstrip()


def _kill(popen: "subprocess.Popen[bytes]") -> None:
    """Kill the child and whatever it started: it leads a session and a process group of its own."""
    if popen.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, signal.SIGKILL)


@lru_cache(maxsize=64)
def _options_json(options: RecogniseOptions | SynthesiseOptions) -> dict[str, Any]:
    """Return the JSON values of options, which many calls share."""
    return options.to_json()
