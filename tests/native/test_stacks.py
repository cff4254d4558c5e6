"""The bounds of the crashed thread's stack, and the alternate stacks that let an overflow be reported."""

from __future__ import annotations

import resource
import signal
import sys

import pytest

from pytracer.blackbox import schema
from pytracer.decode.types.snapshot import Crash
from tests.conditions import needs_core, needs_native, needs_torch
from tests.native.harness import Native
from tests.support.crash import Ended, ended, environment

pytestmark = needs_core

THREADS = """
import _thread, resource, threading
libc = ctypes.CDLL(None)
def on_pthread(function, nbytes):
    attributes, thread = (ctypes.c_uint64 * 16)(), ctypes.c_ulong()
    libc.pthread_attr_init(attributes)
    assert libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(nbytes)) == 0
    error = libc.pthread_create(ctypes.byref(thread), attributes, function, None)
    assert error == 0, error
    assert libc.pthread_join(thread, None) == 0
def on_python_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()
def mapped():
    status = open("/proc/self/status").read()
    return int(status.split("VmSize:")[1].split()[0]), open("/proc/self/maps").read().count("\\n")
"""
PAGE = 4096


def crash_of(done: Ended) -> Crash:
    """The complete report of a child that died of SIGSEGV."""
    assert done.status == -signal.SIGSEGV, f"status {done.status}: {done.stderr}"
    crash = done.box.crash
    assert crash is not None and crash.complete
    return crash


@pytest.mark.parametrize(
    ("code", "nbytes"),
    [
        ("t.testing_overflow()", None),
        ("on_python_thread(t.testing_overflow)", None),
        ("on_pthread(t.testing_overflow, 64 << 10)", 64 << 10),
        ("on_pthread(t.testing_overflow, 16 << 10)", 16 << 10),
        ("threading.stack_size(1 << 20); on_python_thread(t.testing_overflow)", 1 << 20),
    ],
    ids=["main", "Python thread", "64 KiB", "PTHREAD_STACK_MIN", "1 MiB of a Python thread"],
)
def test_overflow_is_just_below_the_stack(native: Native, code: str, nbytes: int | None) -> None:
    """The report has the exact bounds of the thread's stack: the fault is in the first page below it."""
    crash = crash_of(native.child(THREADS + code))
    assert crash.stack is not None
    low, high = crash.stack
    assert low - PAGE <= crash.fault_addr < low
    assert low - PAGE <= crash.sp < high
    wanted = nbytes or resource.getrlimit(resource.RLIMIT_STACK)[0]
    assert wanted == resource.RLIM_INFINITY or high - low == wanted - (PAGE if nbytes else 0) or high - low == wanted


def test_main_threads_stack_follows_the_limit_of_now(native: Native) -> None:
    """The kernel asks RLIMIT_STACK when the stack grows, not when it starts; without a limit the low end is 0."""
    before = (
        "_, hard = resource.getrlimit(resource.RLIMIT_STACK)\nresource.setrlimit(resource.RLIMIT_STACK, (%s, hard))\n"
    )
    done = native.child(THREADS + before % "3 << 20" + "t.testing_null()")
    stack, (mapping,) = crash_of(done).stack, [m for m in crash_of(done).mappings if m.path == "[stack]"]
    assert stack == (mapping.end - (3 << 20), mapping.end)
    if resource.getrlimit(resource.RLIMIT_STACK)[1] == resource.RLIM_INFINITY:
        native.run = native.run.with_name("unlimited")
        stack = crash_of(native.child(THREADS + before % "resource.RLIM_INFINITY" + "t.testing_null()")).stack
        assert stack is not None and stack[0] == 0 and stack[1] % PAGE == 0 and stack[1] != 0


def test_bounds_are_the_threads_own_in_a_forked_child(native: Native) -> None:
    """A child forked by a thread continues on that thread's stack, although it is the child's main thread."""
    code = """
def fork():
    if os.fork() == 0: t.testing_overflow()
    print(os.wait()[1])
threading.stack_size(1 << 20)
on_python_thread(fork)
"""
    done = native.child(THREADS + code)
    assert (done.status, done.stdout.strip()) == (0, "11")
    (crash,) = [box.crash for box in done.boxes if box.crash is not None]
    assert crash.stack is not None
    assert crash.stack[0] - PAGE <= crash.fault_addr < crash.stack[0]
    assert crash.stack[1] - crash.stack[0] <= 1 << 20


def test_overflow_in_a_destructor_of_a_thread_is_reported(native: Native) -> None:
    """Destructors run in rounds: the alternate stack stays until the last one, also for those after ours."""
    code = """
key = ctypes.c_uint()
assert libc.pthread_key_create(ctypes.byref(key), t.testing_overflow) == 0
@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
def work(_): libc.pthread_setspecific(key, ctypes.c_void_p(1))
on_pthread(work, 256 << 10)
"""
    crash = crash_of(native.child(THREADS + code))
    assert crash.stack is not None
    assert crash.stack[0] - PAGE <= crash.fault_addr < crash.stack[0]


def test_threads_leave_no_stacks_behind(native: Native) -> None:
    """500 threads, many of them at once: what stays mapped is bounded, and most stacks are reused."""
    code = """
def many(count):
    end = threading.Barrier(count)
    threads = [threading.Thread(target=end.wait) for _ in range(count)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
threading.stack_size(256 << 10)
many(100)
start = mapped()
for _ in range(4): many(100)
for _ in range(100): on_pthread(libc.abs, 16 << 10)
print(*[after - before for after, before in zip(mapped(), start)])
"""
    done = native.child(THREADS + code)
    assert done.status == 0, done.stderr
    kilobytes, mappings = map(int, done.stdout.split())
    assert kilobytes < 4096 and mappings < 64


# ---- without preload ----


def enabled(native: Native, code: str) -> Ended:
    """A child that was not started under the launcher; `code` calls `t.testing_overflow`."""
    native.run.parent.mkdir(parents=True, exist_ok=True)
    start = f"import ctypes, os, sys, pytracer\npytracer.enable({str(native.run)!r})\n"
    start += f"t = ctypes.CDLL({str(native.built / 'libpytracer_testing.so')!r})\n"
    return ended([sys.executable, "-c", start + THREADS + code], environment(), native.run)


RAW_THREAD = """
@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
def work(_):
    {touch}
    t.testing_overflow()
on_pthread(work, 256 << 10)
"""


def test_thread_that_records_has_an_alternate_stack_without_preload(native: Native) -> None:
    """A native thread's first record gives it one: its overflow is reported, with the bounds of its stack."""
    crash = crash_of(enabled(native, RAW_THREAD.format(touch="pytracer.mark('here')")))
    assert crash.stack is not None
    assert crash.stack[0] - PAGE <= crash.fault_addr < crash.stack[0]


def test_thread_that_never_records_has_none_without_preload(native: Native) -> None:
    """The known limit in crash-safety.md: the process dies as untraced, with no report."""
    done = enabled(native, RAW_THREAD.format(touch="pass"))
    assert done.status == -signal.SIGSEGV
    assert done.box.crash is None


@needs_torch
@needs_native
def test_thread_that_makes_a_tensor_has_an_alternate_stack_without_preload(native: Native) -> None:
    """A thread whose start no hook observed, here one of _thread's: its first storage is its first record."""
    code = "import torch\ndef work(): x = torch.ones(9); t.testing_overflow()\n_thread.start_new_thread(work, ())\n"
    crash = crash_of(enabled(native, code + "import time; time.sleep(60)"))
    assert any(frame.function == "work" for frame in crash.python_stack)


def test_threads_that_record_leave_no_stacks_behind_without_preload(native: Native) -> None:
    """Each of 200 raw threads has a record; what stays mapped is bounded."""
    code = """
begin = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: pytracer.mark("here"))
for _ in range(50): on_pthread(begin, 256 << 10)
start = mapped()
for _ in range(200): on_pthread(begin, 256 << 10)
print(*[after - before for after, before in zip(mapped(), start)])
"""
    done = enabled(native, code)
    assert done.status == 0, done.stderr
    kilobytes, mappings = map(int, done.stdout.split())
    assert kilobytes < 4096 and mappings < 64


STUCK = """
import signal, threading
begun, event, calls = threading.Event(), threading.Event(), []
def helper():
    begun.set()
    event.wait(60)
threading.Thread(target=helper, daemon=True).start()
begun.wait()
signal.signal(signal.SIGTERM, lambda *_: calls.append(1))
def stuck():
    {event}
stuck()
"""


def assert_stacks_of_all(stacks: Crash | None, number: int) -> None:
    assert stacks is not None and stacks.signal == number
    assert stacks.python_stack[0].function == "stuck"
    functions = [{frame.function for frame in frames} for _, frames in stacks.python_threads]
    assert len(functions) == 2 and any("helper" in found for found in functions)
    assert stacks.native_stack
    assert max(stacks.step_ns.values()) - stacks.mono_ns < 50_000_000


def test_handled_sigterm_leaves_the_stacks_of_all_python_threads(native: Native) -> None:
    """The program's handler runs as before, and the process goes on to its own end: nothing crashed."""
    box = native.box(STUCK.format(event="os.kill(os.getpid(), 15)") + "assert calls == [1]")
    assert_stacks_of_all(box.live, 15)
    assert (box.state, box.crash, box.ending) == ("EXITING", None, None)


def test_killed_after_a_handled_sigterm_shows_where_it_stood(native: Native) -> None:
    """Where SIGKILL follows, the report has the stack of SIGTERM."""
    done = native.child(STUCK.format(event="os.kill(os.getpid(), 15)") + "os.kill(os.getpid(), 9)")
    assert done.status == -9
    assert_stacks_of_all(done.box.live, 15)
    assert [(send.signal, send.target) for send in done.box.sends] == [(9, done.pid)]


def test_handled_sigterm_is_bounded(native: Native) -> None:
    """A program that is sent one after the other pays for three."""
    later = "def other(): os.kill(os.getpid(), 15)\nother()\nassert len(calls) == 4"
    box = native.box(STUCK.format(event="for _ in range(3): os.kill(os.getpid(), 15)") + later)
    assert_stacks_of_all(box.live, 15)


def test_failed_collective_leaves_the_stacks_of_all_python_threads(native: Native) -> None:
    """Whatever becomes of the error: the threads that did not fail are recorded, too."""
    slot = schema.COLLECTIVE_SLOT.nbytes
    event = f"""
    core.pytracer_open_collectives()
    core.pytracer_collective_scheduled.restype = U64
    core.pytracer_collective_reached(U64(core.pytracer_collective_scheduled(bytes({slot}))), 4)
"""
    box = native.box(STUCK.format(event=event))
    assert_stacks_of_all(box.live, 0)
    assert [item.state for item in box.collectives] == ["failed"]
