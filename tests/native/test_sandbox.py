"""Under the program's own seccomp filter: no table grows, no thread gets a context, no page is protected."""

from __future__ import annotations

import platform

import pytest

from pytracer.blackbox.note_codes import NoteCode
from tests.conditions import needs_core
from tests.native.harness import Native
from tests.native.test_guard import child

pytestmark = needs_core

NUMBERS = {
    "x86_64": {"fallocate": 285, "sigaltstack": 131, "getppid": 110, "mprotect": 10, "prctl": 157},
    "aarch64": {"fallocate": 47, "sigaltstack": 132, "getppid": 173, "mprotect": 226, "prctl": 167},
}[platform.machine()]

CONFINE = """
import struct
def confine(*numbers):
    program = [(0x20, 0, 0, 0)]
    for number in numbers: program += [(0x15, 0, 1, number), (0x06, 0, 0, 0x80000000)]
    program += [(0x06, 0, 0, 0x7FFF0000)]
    kept = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in program))
    rules = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(kept)))
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, rules, 0, 0) == 0
"""


def confine(*names: str) -> str:
    """Code after which each of these system calls ends the process."""
    return f"confine({', '.join(str(NUMBERS[name]) for name in names)})\n"


def test_nothing_is_recorded_in_a_sandbox(native: Native) -> None:
    """Storages, threads, records and a forked child: the recording does not change, and the program lives."""
    code = f"""
t.testing_hold(1, 0, U64(3000), 0)
{confine("fallocate", "sigaltstack", "getppid")}
t.testing_hold(4, 16, U64(100000), 0)
t.testing_churn(4, U64(1000), 8, 1)
core.pytracer_mark(b"late", U64(4))
assert core.pytracer_recording() == 0
core.pytracer_arm_thread()
assert core.pytracer_start({str(native.run).encode()!r}, 0, ctypes.create_string_buffer(100), ctypes.c_size_t(100)) == 1
child = os.fork()
t.testing_hold(4, 32, U64(1000), 0)
if child == 0: os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    box = native.box(CONFINE + code)
    assert len([storage for storage in box.storages if storage.state == "live"]) == 3000
    assert box.state == "DISABLED"
    (note,) = [note for note in box.notes if note.code == NoteCode.SANDBOX]
    assert "confines itself" in note.text and note.value == 2  # SECCOMP_MODE_FILTER


def test_guarded_storages_are_left_as_they_are_in_a_sandbox(native: Native) -> None:
    """Freeing one would protect its pages."""
    code = f"""
arm(protection_only=1)
kept = [take(1000) for _ in range(20)]
{confine("mprotect", "fallocate")}
for at in kept: free(at)
assert take(1000) is None
ctypes.memset(kept[0], 1, 1000)
"""
    child(native, CONFINE + code)


@pytest.mark.parametrize("how", ["os._exit(3)", "sys.exit(3)", "os.kill(os.getpid(), 15)"])
def test_python_ends_in_a_sandbox_as_untraced(how: str, native: Native) -> None:
    """Interpreter, handlers and signals behave as untraced."""
    done = native.child(CONFINE + confine("fallocate", "sigaltstack", "getppid", "prctl") + how)
    assert done.status == (-15 if "kill" in how else 3), done.stderr
