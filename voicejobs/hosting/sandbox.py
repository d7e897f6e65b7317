"""Take from a decoder child, on Linux, every system call that decoding has no use for.

A seccomp filter denies the network, other processes, and any change to files: a decoder that a crafted recording has
taken over can spoil its own output and nothing else. It needs no rights and costs microseconds. Elsewhere than on
Linux (or on another processor than those below) the limits of voicejobs.hosting.decoder_child stand alone.
"""

import ctypes
import os
import platform
import signal
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_MODE_FILTER = 2

_LOAD_WORD, _JUMP_EQUAL, _JUMP_NOT_BELOW, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _DENY = 0x7FFF0000, 0x80000000, 0x00050000 | 1  # denied calls fail with EPERM
_NUMBER_AT, _ARCH_AT, _ARGS_AT, _ARG_BYTES = 0, 4, 16, 8
_FOREIGN_ABI = 0x40000000
_INSTRUCTION = struct.Struct("<HBBI")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True, slots=True)
class _Machine:
    """Hold the numbers of one processor: its name for the kernel, calls that are denied, calls that open files."""

    arch: int
    denied: tuple[int, ...]
    opening: tuple[tuple[int, int], ...]
    """(number, which argument holds the flags)"""


_MACHINES = {
    "x86_64": _Machine(
        arch=0xC000003E,
        denied=(
            41, 42, 43, 44, 46, 49, 50, 53, 288, 307,  # socket connect accept sendto sendmsg bind listen ...
            56, 57, 58, 59, 322, 435,  # clone fork vfork execve execveat clone3
            62, 101, 200, 234, 129, 297, 310, 311, 424, 438,  # kill ptrace tkill tgkill sigqueue process_vm pidfd
            76, 77, 82, 83, 84, 85, 86, 87, 88, 90, 91, 92, 93, 94,  # truncate rename mkdir link chmod chown ...
            133, 258, 259, 260, 263, 264, 265, 266, 268, 316, 437, 452,  # mknod, the calls ...at, openat2
            155, 161, 165, 166, 272, 308,  # pivot_root chroot mount umount unshare setns
            250, 298, 321, 323, 425, 426, 427,  # keyctl perf bpf userfaultfd io_uring
        ),
        opening=((2, 1), (257, 2)),
    ),
    "aarch64": _Machine(
        arch=0xC00000B7,
        denied=(
            198, 199, 200, 201, 202, 203, 206, 211, 242, 269,
            220, 221, 281, 435,
            129, 117, 130, 131, 138, 240, 270, 271, 424, 438,
            45, 46, 33, 34, 35, 36, 37, 38, 52, 53, 54, 55, 276, 437, 452,
            41, 51, 40, 39, 97, 268,
            219, 241, 280, 282, 425, 426, 427,
        ),
        opening=((56, 2),),
    ),
}  # fmt: skip


class Sandbox:
    """Prepare the sandbox once, in the zygote, so that a child enters it with three system calls."""

    def __init__(self) -> None:
        self._prctl: Callable[..., int] | None = None
        machine = _MACHINES.get(platform.machine()) if sys.platform == "linux" else None
        if sys.platform == "linux":
            self._prctl = ctypes.CDLL(None, use_errno=True).prctl
        program = b"" if machine is None else _compile(machine)
        self._length = len(program) // _INSTRUCTION.size
        self._code = ctypes.create_string_buffer(program)
        # struct sock_fprog: the number of instructions, and where they are.
        self._fprog = ctypes.create_string_buffer(struct.pack("@HP", self._length, ctypes.addressof(self._code)))

    def tie_to_parent(self) -> None:
        """Have the kernel kill this process when its parent ends; the parent must be single-threaded."""
        if self._prctl is not None:
            self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def lock(self) -> None:
        """Give up, for good, what decoding does not need; a kernel without seccomp is not insisted on."""
        if self._prctl is not None:
            self._prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            if self._length:
                self._prctl(_PR_SET_SECCOMP, _MODE_FILTER, self._fprog, 0, 0)


def _compile(machine: _Machine) -> bytes:
    """Return the filter for one processor as BPF instructions (code, jump if true, jump if false, value)."""
    steps = [(_LOAD_WORD, 0, 0, _ARCH_AT), (_JUMP_EQUAL, 1, 0, machine.arch), (_RETURN, 0, 0, _KILL)]
    steps += [(_LOAD_WORD, 0, 0, _NUMBER_AT), (_JUMP_NOT_BELOW, 0, 1, _FOREIGN_ABI), (_RETURN, 0, 0, _DENY)]
    for number in machine.denied:
        steps += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _DENY)]
    for number, flags_argument in machine.opening:
        flags_at = _ARGS_AT + _ARG_BYTES * flags_argument
        steps += [
            (_JUMP_EQUAL, 0, 4, number),
            (_LOAD_WORD, 0, 0, flags_at),
            (_JUMP_ANY_BIT, 0, 1, _WRITING),
            (_RETURN, 0, 0, _DENY),
            (_RETURN, 0, 0, _ALLOW),
        ]
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(_INSTRUCTION.pack(*step) for step in steps)
