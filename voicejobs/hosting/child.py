"""An engine process: holds one engine and answers one call after another on the socket it inherited.

Started by exec as `python -m voicejobs.hosting.child FD PARENT_PID`. The first frame names the engine; the answer to
it says that the model is loaded. The process ends when the socket closes or the parent dies, whichever shows first.
"""

import contextlib
import ctypes
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from voicejobs import logs
from voicejobs.audio.types import Sound
from voicejobs.engines.base import (
    TRACES,
    EngineSpec,
    RecogniseOptions,
    Recogniser,
    StreamingSynthesiser,
    SynthesiseOptions,
    Synthesiser,
    VoiceActivityDetector,
)
from voicejobs.engines.registry import engine_class
from voicejobs.errors import BadOption, Internal, OutOfMemory, VoicejobsError
from voicejobs.heap import give_back_large_blocks
from voicejobs.hosting import wire
from voicejobs.hosting.share import demand_share, hold_torch_to_share

_PR_SET_PDEATHSIG = 1
GPU_EVERY_S = 1.0
_log = logging.getLogger("voicejobs.hosting.child")  # `__name__` is that of a script here
Engine = Recogniser | Synthesiser | VoiceActivityDetector
Answer = tuple[dict[str, Any], list[bytes | memoryview]]


def main(arguments: list[str]) -> None:
    """Serve until the other end closes."""
    end = socket.socket(fileno=int(arguments[0]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent(int(arguments[1]), end)
    wire.prepare(end)
    engine: Engine | None = None
    memory = GpuMemory()
    try:
        while True:
            header, body = wire.receive(end)
            if header["op"] == "load":
                engine, (head, parts) = _load(header)
            else:
                head, parts = _answer(engine, header, body)
            wire.send(end, memory.told(head), parts)
    except (EOFError, OSError):
        # Nobody is left to answer. No clean-up of the interpreter: native libraries may crash in it.
        os._exit(0)


class GpuMemory:
    """Tell the worker now and then how much memory torch has on its device, where an engine uses it."""

    def __init__(self) -> None:
        self._due = 0.0

    def told(self, head: dict[str, Any]) -> dict[str, Any]:
        """Return the head of an answer with `gpu`, bytes reserved and allocated, where it is time for that."""
        torch = sys.modules.get("torch")
        if torch is None or time.monotonic() < self._due:
            return head
        self._due = time.monotonic() + GPU_EVERY_S
        with contextlib.suppress(AttributeError, RuntimeError):  # a figure more or less must end no engine
            if torch.cuda.is_initialized():
                return {**head, "gpu": [int(torch.cuda.memory_reserved()), int(torch.cuda.memory_allocated())]}
        return head


def _load(header: dict[str, Any]) -> tuple[Engine | None, Answer]:
    """Load the engine of the spec."""
    try:
        spec = replace(EngineSpec.from_json(header["spec"]), secrets=tuple(header["secrets"].items()))
        _log_like(header["log_level"], spec)
        kind = engine_class(spec.engine)
        facts = kind.facts(spec)
        hold_torch_to_share(spec, facts)
        if facts.kind == "vad":  # hours of audio go through it, and it computes little
            give_back_large_blocks()
        engine = kind.load(spec)
        demand_share(spec, facts)
        return engine, ({"ok": True}, [])
    except Exception as error:  # noqa: BLE001  (whatever a model library raises must reach the worker)
        return None, _failure(error)


def _log_like(level: str, spec: EngineSpec) -> None:
    """Log as the worker does; of what model libraries say only warnings."""
    logs.configure(level, engine=spec.engine, model=spec.model)
    root = logging.getLogger()
    logging.getLogger("voicejobs").setLevel(level)
    root.setLevel(max(root.level, logging.WARNING))


def _answer(engine: Engine | None, header: dict[str, Any], body: memoryview) -> Answer:
    """Run one call, and log it if it names traces; an error is an answer too."""
    traces = header.get("traces", ())
    began = time.monotonic()
    TRACES.set(traces)
    try:
        answer = _run(engine, header, body)
    except Exception as error:  # noqa: BLE001  (one bad call must not end the process)
        answer = _failure(error)
    if any(traces):
        told = {"op": header["op"], "items": len(traces), "seconds": round(time.monotonic() - began, 4)}
        unique = list(dict.fromkeys(filter(None, traces)))
        _log.info("engine call", extra={**told, "ok": answer[0]["ok"], "trace_ids": unique})
    return answer


def _run(engine: Engine | None, header: dict[str, Any], body: memoryview) -> Answer:
    """Call the method that the header names.

    Raises:
        BadOption: the engine has no such method.
        Internal: the engine gave another number of results than of windows.
    """
    operation = header["op"]
    if operation == "probabilities" and isinstance(engine, VoiceActivityDetector):
        border = header["state_bytes"]
        found, state = engine.probabilities(np.frombuffer(body[border:], np.int16), bytes(body[:border]))
        return {"ok": True, "state_bytes": len(state)}, [state, np.ascontiguousarray(found, np.float32).data]
    if operation in {"recognise", "language"} and isinstance(engine, Recogniser):
        windows = wire.split_windows(body, header["sizes"])
        if operation == "language":
            language, probability = engine.detect_language(windows[0])
            return {"ok": True, "language": language, "probability": probability}, []
        results = engine.recognise(windows, RecogniseOptions.from_json(header["options"]))
        if len(results) != len(windows):
            raise Internal(f"the engine gave {len(results)} results for {len(windows)} windows")
        return {"ok": True, "results": [result.to_json() for result in results]}, []
    if operation in _STREAMING and isinstance(engine, StreamingSynthesiser):
        return _stream(engine, header)
    if operation in {"synthesise", "voices"} and isinstance(engine, Synthesiser):
        return _speak(engine, header)
    raise BadOption(f"this engine cannot answer {operation!r}")


_STREAMING = frozenset(("begin", "next", "leave"))
_open: list[Iterator[Sound]] = []
"""The text that is being spoken piece by piece, or none: a process has one caller at a time."""


def _stream(engine: StreamingSynthesiser, header: dict[str, Any]) -> Answer:
    """Begin a text, give its next piece, or leave it: the caller asks for each, and so is never flooded."""
    if header["op"] == "next":
        sound = next(_open[0], None) if _open else None
        if sound is not None:
            return {"ok": True, "sizes": [len(sound.samples)], "rates_hz": [sound.rate_hz]}, [wire.sound_bytes(sound)]
    while _open:
        close = getattr(_open.pop(), "close", None)
        if close is not None:
            close()
    if header["op"] == "begin":
        _open.append(engine.stream(header["text"], SynthesiseOptions.from_json(header["options"])))
    return {"ok": True, "sizes": [], "rates_hz": []}, []


def _speak(engine: Synthesiser, header: dict[str, Any]) -> Answer:
    """Speak texts, or tell of the voices.

    Raises:
        Internal: the engine gave another number of sounds than of texts.
    """
    if header["op"] == "voices":
        return {"ok": True, "voices": [voice.to_json() for voice in engine.voices()]}, []
    texts = header["texts"]
    sounds = engine.synthesise(texts, SynthesiseOptions.from_json(header["options"]))
    if len(sounds) != len(texts):
        raise Internal(f"the engine gave {len(sounds)} sounds for {len(texts)} texts")
    head = {
        "ok": True,
        "sizes": [len(sound.samples) for sound in sounds],
        "rates_hz": [sound.rate_hz for sound in sounds],
    }
    return head, [wire.sound_bytes(sound) for sound in sounds]


def _failure(error: Exception) -> Answer:
    """Return the error as an answer."""
    if not isinstance(error, VoicejobsError):
        text = f"{type(error).__name__}: {error}"
        out_of_memory = isinstance(error, MemoryError) or "out of memory" in text.lower()
        error = (OutOfMemory if out_of_memory else Internal)(text)
    return {"ok": False, "error": error.to_json()}, []


def _die_with_parent(parent_pid: int, end: socket.socket) -> None:
    """End this process when the parent ends, even in the middle of a call.

    The signal works while native code holds the interpreter; the watching thread works on every system.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent_pid:
            os._exit(0)
    threading.Thread(target=_watch, args=(end,), daemon=True).start()


def _watch(end: socket.socket) -> None:
    """Leave as soon as the other end is closed."""
    poll = select.poll()
    poll.register(end, 0)  # no event asked for: only a hang-up wakes it
    while not any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll()):
        pass
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
