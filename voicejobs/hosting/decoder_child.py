"""What a forked decoder child does: limit itself, decode one file into a pipe, and leave without ceremony."""

import json
import os
import resource
import sys
import time
from typing import Any

import numpy as np

from voicejobs.audio.decode import DecodeOptions, decode
from voicejobs.errors import DecoderCrash, Internal, VoicejobsError
from voicejobs.hosting.decoder_wire import FRAME, HEADER, PCM, TRAILER
from voicejobs.hosting.sandbox import Sandbox

CPU_PER_BLOCK_S = 30
"""CPU seconds that may pass without a block of audio; SIGXCPU ends a child that needs more."""
CPU_BASE_S = 60
AUDIO_PER_CPU_S = 10.0
"""All in all a child may use a minute and a tenth of the longest audio allowed; real files need a thousandth."""
MAX_OPEN_FILES = 32
_DATA_FD = 3
_FIRST_FREE_FD = 4
_MOST_FDS = 1 << 20
_OOM_SCORE = "1000"


def run(data_fd: int, path: str, options: DecodeOptions, sandbox: Sandbox) -> None:
    """Decode `path` into `data_fd` and end the process; never returns."""
    status = 1
    try:
        _keep_only(data_fd)
        _Output(_DATA_FD, path, options).send_all(sandbox)
        status = 0
    except BrokenPipeError:
        status = 0  # the worker has read enough
    finally:
        # No interpreter shutdown: it would cost milliseconds and touch pages shared with the zygote.
        os._exit(status)


def _keep_only(data_fd: int) -> None:
    """Leave the child nothing but /dev/null, standard error and its pipe."""
    null_fd = os.open(os.devnull, os.O_RDWR)
    os.dup2(null_fd, 0)
    os.dup2(null_fd, 1)
    if data_fd != _DATA_FD:
        os.dup2(data_fd, _DATA_FD)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.closerange(_FIRST_FREE_FD, _MOST_FDS if limit == resource.RLIM_INFINITY else min(limit, _MOST_FDS))


class _Output:
    """Decode one file and write its frames."""

    def __init__(self, fd: int, path: str, options: DecodeOptions) -> None:
        self._fd = fd
        self._path = path
        self._options = options
        self._cpu_hard_s = CPU_BASE_S + int(options.max_audio_s / AUDIO_PER_CPU_S)

    def send_all(self, sandbox: Sandbox) -> None:
        """Write header, blocks and trailer; an error of the tree travels in the trailer."""
        try:
            self._limit()
            sandbox.lock()
            trailer = self._decode()
        except VoicejobsError as error:
            trailer = {"error": error.to_json()}
        except MemoryError:
            trailer = {"error": self._out_of_memory().to_json()}
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it must reach the worker with the file's name
            text = f"{self._options.named(self._path)}: decoding failed ({type(error).__name__}: {error})"
            trailer = {"error": Internal(text).to_json()}
        self._send_json(TRAILER, trailer)

    def _decode(self) -> dict[str, Any]:
        """Write header and blocks; return the trailer."""
        with decode(self._path, self._options) as audio:
            self._send_json(HEADER, audio.info.to_json())
            for block in audio.blocks():
                self._send(PCM, [channel.view(np.uint8).data for channel in block])
                self._allow_cpu()
        return {"samples": audio.samples, "skipped_packets": audio.skipped_packets}

    def _limit(self) -> None:
        """Set the limits of this process; none can be raised again but the soft one on CPU time."""
        _prefer_as_victim()
        _lower(resource.RLIMIT_CORE, 0, 0)
        _lower(resource.RLIMIT_FSIZE, 0, 0)
        _lower(resource.RLIMIT_NOFILE, MAX_OPEN_FILES, MAX_OPEN_FILES)
        if sys.platform == "linux":
            # macOS refuses any limit under what its shared libraries already map.
            _lower(resource.RLIMIT_AS, self._options.memory_bytes, self._options.memory_bytes)
        self._allow_cpu()

    def _allow_cpu(self) -> None:
        """Allow some seconds of CPU time from now on."""
        _lower(resource.RLIMIT_CPU, int(time.process_time()) + CPU_PER_BLOCK_S, self._cpu_hard_s)

    def _out_of_memory(self) -> DecoderCrash:
        """Return the error for a file that needs more memory than a decoder may have."""
        return DecoderCrash(
            f"{self._options.named(self._path)}: decoding needs more than {self._options.memory_bytes} bytes of memory",
            hint="Convert the recording with another program, or raise VOICEJOBS_DECODE_MEMORY_BYTES.",
            limit_bytes=self._options.memory_bytes,
        )

    def _send_json(self, kind: bytes, value: dict[str, Any]) -> None:
        """Write a frame of JSON."""
        self._send(kind, [memoryview(json.dumps(value).encode())])

    def _send(self, kind: bytes, parts: list[memoryview]) -> None:
        """Write a frame; waits while the worker does not read, which is all the flow control there is."""
        queue = [memoryview(FRAME.pack(kind, sum(map(len, parts)))), *parts]
        while queue:
            written = os.writev(self._fd, queue)
            while queue and written >= len(queue[0]):
                written -= len(queue.pop(0))
            if queue:
                queue[0] = queue[0][written:]


def _lower(kind: int, soft: int, hard: int) -> None:
    """Set a limit, or as much of it as a stricter one that was inherited leaves."""
    inherited = resource.getrlimit(kind)[1]
    if inherited != resource.RLIM_INFINITY:
        hard = min(hard, inherited)
    resource.setrlimit(kind, (min(soft, hard), hard))


def _prefer_as_victim() -> None:
    """Tell Linux to kill this process first when the machine runs out of memory."""
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    except OSError:
        return
    try:
        os.write(fd, _OOM_SCORE.encode())
    except OSError:
        return
    finally:
        os.close(fd)
