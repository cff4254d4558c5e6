"""Runs a command under a seccomp filter that refuses ptrace(2) with EPERM, as containers do."""

import ctypes
import os
import platform
import struct
import sys

NR_PTRACE = {"x86_64": 101, "aarch64": 117}[platform.machine()]
EPERM, ALLOW, LOAD, JUMP_IF_EQUAL, RETURN = 0x00050001, 0x7FFF0000, 0x20, 0x15, 0x06
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2

program = [(LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 0, 1, NR_PTRACE), (RETURN, 0, 0, EPERM), (RETURN, 0, 0, ALLOW)]
instructions = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in program))


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


libc = ctypes.CDLL(None, use_errno=True)
rules = Filter(len(program), ctypes.addressof(instructions))
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(rules), 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execvp(sys.argv[1], sys.argv[1:])
