"""pod.py VOLUME COMMAND...: becomes COMMAND in what a Kubernetes pod is.

Its own PID, mount and IPC namespaces, a read-only root with VOLUME as the only place to write, 64 MB of /dev/shm, a
user who is not root and may not become it, no ptrace, no process_vm_readv, no kernel log; PID 1 ends everything.
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from pathlib import Path

USER = 65534
FORBIDDEN = {"x86_64": (101, 310, 311, 103), "aarch64": (117, 270, 271, 116)}  # ptrace, process_vm_*, syslog
LIBC = ctypes.CDLL(None, use_errno=True)


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def readable(directories: set[Path]) -> None:
    """Lets the user reach directories that lie in somebody's home: in this mount namespace only."""
    closed = {next((up for up in reversed(d.parents) if not up.stat().st_mode & 0o001), None) for d in directories}
    handles = {directory: os.open(directory, os.O_PATH) for directory in directories}
    for parent in closed - {None}:
        mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(parent))
    for directory, handle in handles.items():
        if closed.intersection(directory.parents):
            directory.mkdir(parents=True, exist_ok=True)
            words = ["mount", "--no-canonicalize", "--bind", f"/proc/self/fd/{handle}", str(directory)]
            subprocess.run(words, check=True, pass_fds=[handle])


def forbid_calls() -> None:
    """A seccomp filter: EPERM for ptrace and its like, as containerd's default profile has it on older kernels."""
    load, jump, give = 0x20, 0x15, 0x06
    calls = FORBIDDEN[os.uname().machine]
    code = struct.pack("HBBI", load, 0, 0, 0)
    for index, call in enumerate(calls):
        code += struct.pack("HBBI", jump, len(calls) - index, 0, call)
    code += struct.pack("HBBI", give, 0, 0, 0x7FFF0000) + struct.pack("HBBI", give, 0, 0, 0x00050001)
    filter_ = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(filter_))
    if LIBC.prctl(38, 1, 0, 0, 0) or LIBC.prctl(22, 2, ctypes.c_char_p(program), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def main(volume: str, *command: str) -> None:
    needed = (sys.base_prefix, sys.prefix, volume, __file__.rpartition("/tests/")[0], *sys.path)
    readable({Path(path).resolve() for path in needed if path and Path(path).is_dir()})
    mount("--bind", volume, volume)
    os.chown(volume, USER, USER)
    mount("-t", "tmpfs", "-o", "size=64m,mode=1777", "tmpfs", "/dev/shm")
    mount("-o", "remount,bind,ro", "/")
    os.chdir(volume)
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    forbid_calls()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
