"""Rules about processes that ended themselves: abort and heap-corruption, and the known crashes among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.analyze.platform.glibc_messages import explain_text
from pytracer.decode.types.journal import CppException
from pytracer.decode.types.snapshot import ThreadStack
from pytracer.render.text import render_text
from tests.support import scenarios as s
from tests.support.deaths import LIBC_SO, STDCPP, TORCH_PYTHON, advice, died, evidence, finding, summary, verdict
from tests.support.deaths import Stack as Frames
from tests.support.synth import Box

ABORT: dict[str, Any] = {"signal": 6, "code": -6, "sender_pid": 101}
RAISED: list[tuple[str | None, str | None]] = [
    (LIBC_SO, "__pthread_kill_implementation"),
    (LIBC_SO, "raise"),
    (LIBC_SO, "abort"),
]
TERMINATE: list[tuple[str | None, str | None]] = [
    *RAISED,
    (STDCPP, "__gnu_cxx::__verbose_terminate_handler()"),
    (STDCPP, "std::terminate()"),
]
READ = (s.TORCH_CPU, "gloo::transport::tcp::Pair::read()")


# abort


def test_uncaught_cpp_exception_is_told_with_type_and_text(run: Path) -> None:
    """The terminate handler's note from right before."""
    noted = CppException(tid=101, type="gloo::EnforceNotMet", what="op.preamble.length <= op.nbytes. 40 vs 24")
    report = died(run, **ABORT, stack_of=[*TERMINATE, READ], cpp_exceptions=[noted])
    assert verdict(report) == ("abort", "certain")
    assert summary(report) == (
        "Process 101 (train.py) aborted, at train.py:41 in Peek.backward: "
        "nobody caught gloo::EnforceNotMet: op.preamble.length <= op.nbytes. 40 vs 24, "
        "below gloo::transport::tcp::Pair::read."
    )
    found = finding(report, "abort")
    assert found is not None and found.missing == []


@pytest.mark.parametrize("what, quoted", [("bad size: 40", True), ("x" * 300, False), ("two\nlines", False)])
def test_text_shows_the_exception_where_the_headline_has_not_all_of_it(run: Path, what: str, quoted: bool) -> None:
    """By a fact of the headline; no sentences are compared."""
    noted = CppException(tid=101, type="gloo::EnforceNotMet", what=what)
    report = died(run, **ABORT, stack_of=[*TERMINATE, READ], cpp_exceptions=[noted])
    assert ("\nerror " not in render_text(report)) == quoted


@pytest.mark.parametrize("python", [[("main", "/home/me/job/train.py", 41)], []])
def test_what_native_code_refused_is_compared_with_what_the_line_passes(
    python: list[tuple[str, str, int]], run: Path
) -> None:
    """A thread that runs no line of the program was passed nothing by one."""
    noted = CppException(tid=101, type="c10::Error", what="strides must be positive")
    crash = ABORT | {"python": python}
    report = died(run, **crash, stack_of=[*TERMINATE, (s.TORCH_CPU, "at::fromDLPack()")], cpp_exceptions=[noted])
    compares = advice(report).startswith("The message says what was refused: compare it with what line 41 passes")
    assert compares == bool(python)


def test_uncaught_exception_without_a_note_lacks_its_text(run: Path) -> None:
    """Without torch it is not recorded, and reported as missing."""
    report = died(run, **ABORT, stack_of=[*TERMINATE, (STDCPP, "__cxa_throw"), READ])
    found = finding(report, "abort")
    assert found is not None and found.missing == ["what() of the exception"]
    assert "a C++ exception was not caught" in summary(report)


def test_error_inside_of_torchscript_is_the_reason(run: Path) -> None:
    """Its own words come first, the error that counts last, below a traceback."""
    what = (
        "The following operation failed in the TorchScript interpreter.\nTraceback of TorchScript (most recent call "
        "last):\nRuntimeError: The following operation failed in the TorchScript interpreter.\nTraceback of "
        'TorchScript (most recent call last):\n  File "train.py", line 3, in forward\n'
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x24 and 16x32)\n"
    )
    notes = [CppException(tid=101, type="std::runtime_error", what=what)]
    said = summary(died(run, **ABORT, stack_of=TERMINATE, cpp_exceptions=notes))
    assert "nobody caught std::runtime_error: RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x24" in said


def test_exception_of_another_thread_is_not_this_one_s(run: Path) -> None:
    """Two threads may terminate at once; a note of the crashed one wins."""
    notes = [
        CppException(tid=101, type="std::runtime_error", what="mine"),
        CppException(tid=202, type="std::logic_error", what="yours"),
    ]
    assert "std::runtime_error: mine" in summary(died(run, **ABORT, stack_of=TERMINATE, cpp_exceptions=notes))


def test_failed_assertion_is_told_with_file_and_line(run: Path) -> None:
    """glibc's message."""
    text = "python: csrc/reshape.cpp:41: void reshape(const Shape&): Assertion `n > 0' failed.\n"
    report = died(run, **ABORT, abort_text=text, stack_of=[*RAISED, (LIBC_SO, "__assert_fail"), (s.VICTIM, "reshape")])
    assert summary(report) == (
        "Process 101 (train.py) aborted, at train.py:41 in Peek.backward: "
        "assertion `n > 0` failed at csrc/reshape.cpp:41 in reshape."
    )


@pytest.mark.parametrize(
    ("asserted", "asks"),
    [('isfinite(bias) && "bias not finite"', True), ("!std::isnan(x)", True), ("n > 0", False), ("finished", False)],
)
def test_assertion_about_finite_numbers_sends_the_reader_to_the_data(asserted: str, asks: bool, run: Path) -> None:
    """Any other one to what the line passes."""
    text = f"python: solver.c:10: fit: Assertion `{asserted}' failed.\n"
    report = died(run, **ABORT, abort_text=text, stack_of=[*RAISED, (LIBC_SO, "__assert_fail"), (s.VICTIM, "fit")])
    assert ("for NaN and infinity" in advice(report)) == asks
    assert "Check what train.py:41 in Peek.backward passes" in advice(report)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("*** stack smashing detected ***: terminated\n", "a function found its stack frame overwritten"),
        ("*** buffer overflow detected ***: terminated\n", "given a buffer that is too small"),
        ("*** longjmp causes uninitialized stack frame ***: terminated\n", "longjmp()"),
        ("The futex facility returned an unexpected error code.\n", "lock or semaphore"),
        ("something else\n", "it printed: something else"),
    ],
)
def test_texts_of_the_c_library_are_explained(run: Path, text: str, words: str) -> None:
    """-fstack-protector, _FORTIFY_SOURCE, and an unknown message."""
    report = died(run, **ABORT, abort_text=text, stack_of=[*RAISED, (s.VICTIM, "f")])
    assert verdict(report) == ("abort", "certain")
    assert words in summary(report)


def test_fatal_error_of_cpython_is_named(run: Path) -> None:
    """Py_FatalError prints by itself and calls abort()."""
    report = died(run, **ABORT, stack_of=[*RAISED, (s.PYTHON, "fatal_error_exit"), (s.PYTHON, "_Py_FatalErrorFunc")])
    assert "CPython gave up with a fatal error" in summary(report)


def test_terminate_without_an_exception_is_explained(run: Path) -> None:
    """The destructor of a joinable std::thread."""
    stack = [*TERMINATE, (s.VICTIM, "std::thread::~thread()"), (s.VICTIM, "Pool::~Pool()")]
    report = died(run, **ABORT, stack_of=stack, cpp_exceptions=[CppException(tid=101, type="", what="")])
    assert "std::terminate() was called without an active exception" in summary(report)
    assert "Join every std::thread" in advice(report)
    assert "190489" not in evidence(report)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("__cxa_pure_virtual", "still being made, or already destroyed"),
        ("std::__glibcxx_assert_fail(char const*, int, char const*, char const*)", "a check of the C++ library failed"),
        ("rust_panic", "a Rust library panicked"),
        ("std::thread::~thread()", "without an active exception"),
        ("_Unwind_ForcedUnwind", "without an active exception"),
    ],
)
def test_function_below_terminate_tells_more_than_terminate(run: Path, function: str, words: str) -> None:
    """By the stack, without a note of the terminate handler."""
    report = died(run, **ABORT, stack_of=[*TERMINATE, (s.VICTIM, function), (s.VICTIM, "Pool::run()")])
    assert words in summary(report)
    found = finding(report, "abort")
    assert found is not None and found.missing == []


SHUTDOWN: Frames = [
    *TERMINATE,
    (STDCPP, "__gxx_personality_v0"),
    ("/lib/libgcc_s.so.1", "_Unwind_ForcedUnwind"),
    (LIBC_SO, "pthread_exit"),
    (s.PYTHON, "PyThread_exit_thread"),
    (s.PYTHON, "PyEval_RestoreThread"),
    (TORCH_PYTHON, "torch::detail::(anonymous namespace)::ConcretePyInterpreterVTable::decref(_object*) const"),
]


def test_abort_while_the_interpreter_shuts_down_is_a_known_crash(run: Path) -> None:
    """pytorch/pytorch#190489: one of gloo's threads takes the GIL while the interpreter shuts down."""
    rank = Box(pid=101, ppid=99, rank=0)
    report = died(run, box=rank, **ABORT, stack_of=SHUTDOWN, cpp_exceptions=[CppException(tid=101, type="", what="")])
    assert verdict(report) == ("abort", "certain")
    assert summary(report) == (
        "Rank 0 aborted, at train.py:41 in Peek.backward: "
        "a thread of the process group was ended while the interpreter was shutting down, "
        "below torch::detail::(anonymous)::ConcretePyInterpreterVTable::decref."
    )
    assert "pytorch/pytorch#190489" in evidence(report)
    assert "destroy_process_group() before the program ends" in advice(report)


def test_abort_at_shutdown_is_not_blamed_on_a_process_group_that_never_was(run: Path) -> None:
    """No process group, no advice about one."""
    report = died(run, **ABORT, stack_of=SHUTDOWN, cpp_exceptions=[CppException(tid=101, type="", what="")])
    assert verdict(report) == ("abort", "certain")
    assert "190489" not in evidence(report)


def test_native_thread_at_shutdown_is_to_be_stopped_before(run: Path) -> None:
    """No std::thread was destroyed: the interpreter ended one that wanted the GIL."""
    stack = [*SHUTDOWN[:-1], (s.VICTIM, "Sampler::publish(double)"), (s.VICTIM, "Sampler::loop()")]
    report = died(run, **ABORT, stack_of=stack, cpp_exceptions=[CppException(tid=101, type="", what="")])
    assert verdict(report) == ("abort", "certain")
    assert "a native thread wanted the GIL while the interpreter was shutting down" in summary(report)
    assert summary(report).endswith("below Sampler::publish.")
    assert "Stop and join the thread that runs Sampler::publish" in advice(report)
    assert "std::thread" not in advice(report)


@pytest.mark.parametrize(
    "dropped",
    [
        "torch::distributed::rpc::UnpickledPythonCall::~UnpickledPythonCall()",
        "tensorpipe::Reactor::run()",
    ],
)
def test_thread_of_rpc_at_shutdown_is_told_whatever_it_dropped(dropped: str, run: Path) -> None:
    """pytorch/pytorch#136726: by chance the agent's threads are in a call, in its destructor, or in what was sent."""
    stack = [*SHUTDOWN, (TORCH_PYTHON, dropped)]
    rpc = ThreadStack(102, "TP_UV_loop", None, "listed")
    report = died(run, **ABORT, stack_of=stack, threads=[rpc], cpp_exceptions=[CppException(tid=101, type="", what="")])
    assert "the RPC agent still worked while the interpreter was shutting down" in summary(report)
    assert "rpc.shutdown()" in advice(report)


def test_python_thread_inside_torch_at_shutdown_is_to_be_joined(run: Path) -> None:
    """pytorch/pytorch#38228: a daemon thread returns from C++ and is ended there."""
    stack = [
        *SHUTDOWN[:-1],
        (TORCH_PYTHON, "THPEngine_run_backward(_object*, _object*, _object*)"),
        (s.PYTHON, "_PyEval_EvalFrameDefault"),
        (s.PYTHON, "pythread_wrapper"),
    ]
    report = died(run, **ABORT, stack_of=stack, cpp_exceptions=[CppException(tid=101, type="", what="")])
    assert verdict(report) == ("abort", "certain")
    assert "a Python thread was inside torch while the interpreter was shutting down" in summary(report)
    assert "Join the thread" in advice(report)
    assert "destroy_process_group" not in advice(report)


def test_unwinding_that_was_swallowed_is_not_std_terminate(run: Path) -> None:
    """glibc ends the process itself when a catch (...) does not rethrow."""
    text = "FATAL: exception not rethrown\n"
    report = died(run, **ABORT, abort_text=text, stack_of=[*RAISED, (LIBC_SO, "unwind_cleanup"), (s.VICTIM, "loop()")])
    assert verdict(report) == ("abort", "certain")
    assert "swallowed the unwinding by which pthread_exit() ends a thread, below loop" in summary(report)
    assert "terminate" not in summary(report)


def test_thread_that_ends_itself_outside_of_torch_is_not_that_crash(run: Path) -> None:
    """pthread_exit() inside another library's noexcept function."""
    stack = [*TERMINATE, ("/lib/libgcc_s.so.1", "_Unwind_ForcedUnwind"), (LIBC_SO, "pthread_exit"), (s.VICTIM, "stop")]
    report = died(run, **ABORT, stack_of=stack, cpp_exceptions=[CppException(tid=101, type="", what="")])
    assert "190489" not in evidence(report)


# heap-corruption

TEXTS = [
    ("free(): invalid pointer", "never gave out"),
    ("free(): invalid size", "not the beginning of a block"),
    ("free(): invalid next size (fast)", "which leads there"),
    ("free(): invalid next size (normal)", "which leads there"),
    ("free(): double free detected in tcache 2", "freed twice"),
    ("free(): too many chunks detected in tcache", "a link in its lists"),
    ("free(): unaligned chunk detected in tcache 2", "a link in its lists"),
    ("free(): corrupted unsorted chunks", "a link in its lists"),
    ("double free or corruption (fasttop)", "twice in a row"),
    ("double free or corruption (!prev)", "freed twice"),
    ("double free or corruption (out)", "freed twice"),
    ("double free or corruption (top)", "freed twice"),
    ("corrupted size vs. prev_size", "the copy at its end differ"),
    ("corrupted size vs. prev_size while consolidating", "the copy at its end differ"),
    ("corrupted double-linked list (not small)", "a link in its lists"),
    ("malloc(): corrupted top size", "unused rest of the heap"),
    ("malloc(): invalid size (unsorted)", "size of a free block"),
    ("malloc(): mismatching next->prev_size (unsorted)", "size of a free block"),
    ("malloc(): unaligned tcache chunk detected", "a link in its lists"),
    ("malloc(): unsorted double linked list corrupted", "a link in its lists"),
    ("malloc(): smallbin double linked list corrupted", "a link in its lists"),
    ("malloc(): memory corruption (fast)", "size of a free block"),
    ("malloc_consolidate(): invalid chunk size", "size of a freed block"),
    ("malloc_consolidate(): unaligned fastbin chunk detected", "a link in its lists"),
    ("munmap_chunk(): invalid pointer", "never gave out"),
    ("realloc(): invalid pointer", "realloc() was given"),
    ("realloc(): invalid old size", "size of the reallocated block"),
    ("realloc(): invalid next size", "size of the reallocated block"),
    ("tcache_thread_shutdown(): unaligned tcache chunk detected", "a link in its lists"),
    ("malloc.c:2401: sysmalloc: Assertion `(old_top == initial_top (av)' failed.", "unused rest of the heap"),
    (
        "Fatal glibc error: malloc assertion failure in sysmalloc: (old_top == initial_top (av)",
        "unused rest of the heap",
    ),
    ("Fatal glibc error: malloc assertion failure in tcache_get: x", "its own notes"),
    ("Fatal glibc error: malloc.c:2599 (sysmalloc): assertion failed: (old_top", "unused rest of the heap"),
    ("Fatal glibc error: malloc.c:4104 (_int_malloc): assertion failed: x", "its own notes"),
]


@pytest.mark.parametrize(("text", "words"), TEXTS)
def test_each_text_about_the_heap_is_explained(text: str, words: str) -> None:
    """One sentence for each that glibc prints."""
    assert words in (explain_text(text) or "")


@pytest.mark.parametrize("text", [text for text, _ in TEXTS])
def test_no_text_names_a_side_that_glibc_did_not_see(text: str) -> None:
    """A write before the beginning of a block damages the same sizes and links as one behind the end of the other."""
    words = explain_text(text) or ""
    assert "past the end" not in words and "a write" not in words


@pytest.mark.parametrize("text", ["*** stack smashing detected ***: terminated", "model.c:3: f: Assertion `x' failed."])
def test_texts_about_something_else_are_not_about_the_heap(text: str) -> None:
    """They belong to the rule abort."""
    assert explain_text(text) is None


def test_heap_corruption_is_certain_by_the_text(run: Path) -> None:
    """The text, its meaning, the function that detected it, and the next command."""
    stack = [*RAISED, (LIBC_SO, "__libc_message"), (LIBC_SO, "malloc_printerr"), (LIBC_SO, "_int_free"),
             (LIBC_SO, "cfree"), (s.VICTIM, "Pool::release(void*)")]  # fmt: skip
    report = died(run, **ABORT, abort_text="free(): double free detected in tcache 2\n", stack_of=stack)
    assert verdict(report) == ("heap-corruption", "certain")
    assert summary(report) == (
        "Process 101 (train.py) aborted because the C library found its heap damaged, at train.py:41 in Peek.backward: "
        "the same block was freed twice, "
        "below Pool::release."
    )
    assert "the C library printed: free(): double free detected in tcache 2" in evidence(report)
    assert "MALLOC_CHECK_" in advice(report)
    assert advice(report).startswith("Look first at ")


def test_size_behind_the_freed_block_is_not_the_callers_mistake(run: Path) -> None:
    """The look-alike: the address was right, what lay behind it was overwritten before."""
    stack = [(LIBC_SO, "abort"), (LIBC_SO, "malloc_printerr"), (LIBC_SO, "_int_free"), (s.TORCH_CPU, "at::f()")]
    report = died(run, **ABORT, abort_text="free(): invalid next size (fast)\n", stack_of=stack)
    assert advice(report).startswith("First suspect is libvictim.so: an index or count that is negative or too large")
    assert finding(report, "abort") is None


@pytest.mark.parametrize(("outer", "unnamed"), [("cfree", 1), ("posix_memalign", 4)])
def test_fault_inside_the_allocator_is_likely_heap_corruption(outer: str, unnamed: int, run: Path) -> None:
    """The C library's inner functions have no names: four of them are below posix_memalign(), of which torch asks."""
    stack: Frames = [*[(LIBC_SO, None)] * unnamed, (LIBC_SO, outer), (s.VICTIM, "Pool::release(void*)")]
    report = died(run, addr=0x6_0000_0008, code=1, stack_of=stack)
    assert verdict(report) == ("heap-corruption", "likely")
    assert f"died inside the allocator ({outer})" in summary(report)
    assert finding(report, "wild-pointer") is None


@pytest.mark.parametrize(
    ("outer", "confidence"),
    [("posix_memalign", "certain"), ("cfree", "likely")],  # what is freed may be a bad pointer itself
)
def test_numbers_in_the_lists_of_the_allocator_are_an_array_written_over_a_block(
    outer: str, confidence: str, run: Path
) -> None:
    stack: Frames = [(LIBC_SO, "unlink_chunk.constprop.0"), (LIBC_SO, outer), (s.VICTIM, "Pool::get(long)")]
    written = 0x4040_0000_4040_0000
    report = died(run, addr=written, code=128, stack_of=stack, registers={"rdi": written})
    assert verdict(report) == ("heap-corruption", confidence)
    words = "overwritten before: the place of a pointer held two float32 numbers, 3 and 3"
    assert (words in summary(report)) == (confidence == "certain"), summary(report)


@pytest.mark.parametrize(("lower", "confidence"), [(0x1000_4000, "certain"), (0x1000_8000, "likely")])
def test_number_over_half_the_address_of_a_storage_that_is_freed_proves_the_damage(
    lower: int, confidence: str, run: Path
) -> None:
    """In the look-alike no storage has that lower half."""
    written = 0xC169_85D5 << 32 | lower
    box = Box(pid=101).alloc(0x5581_1000_4000, 256)
    stack: Frames = [(LIBC_SO, "__libc_free"), (s.TORCH_CPU, "at::f()")]
    report = died(run, box=box, addr=written, code=128, stack_of=stack, registers={"rdi": written})
    assert verdict(report) == ("heap-corruption", confidence)
    words = "held the float32 number -14.6 in the upper half of the address of a tensor"
    assert (words in summary(report)) == (confidence == "certain"), summary(report)


def test_fault_inside_another_allocator_counts_as_well(run: Path) -> None:
    """jemalloc, by preload."""
    report = died(run, addr=0x10, code=1, stack_of=[("/usr/lib/libjemalloc.so.2", "free"), (s.VICTIM, "f")])
    assert verdict(report) == ("heap-corruption", "likely")
    assert finding(report, "null-dereference") is None


def test_fault_in_memcpy_is_no_heap_corruption(run: Path) -> None:
    """The C library also accesses the caller's pointers."""
    report = died(
        run, addr=0x6_0000_0008, code=1, stack_of=[(LIBC_SO, "__memmove_avx_unaligned_erms"), (s.VICTIM, "f")]
    )
    assert finding(report, "heap-corruption") is None
    assert verdict(report)[0] == "wild-pointer"


def test_function_called_free_in_a_library_is_not_the_allocator(run: Path) -> None:
    """Libraries have their own functions of that name."""
    report = died(run, addr=0x6_0000_0008, code=1, stack_of=[(s.VICTIM, "free"), (s.VICTIM, "f")])
    assert finding(report, "heap-corruption") is None


def test_heap_corruption_of_ranks_is_one_finding(run: Path) -> None:
    """Without a text the reporting function suffices, but is not certain."""
    boxes = [s.rank(number).at(500 + number) for number in (0, 1)]
    for box in boxes:
        box.crash(signal=6, code=-6, sender_pid=box.pid, native=[(s.LIBC, 0x3400), (s.LIBC, 0x5600)])
    report = build_report(s.load(run, s.agent((101, {"signal": 6}), (102, {"signal": 6})), *boxes))
    found = finding(report, "heap-corruption")
    assert found is not None and (found.ranks, found.confidence) == ([0, 1], "likely")


def test_abort_with_a_python_exception_before_stays_the_exception(run: Path) -> None:
    """Errors during shutdown are consequences; the exception is the cause."""
    box = Box(pid=101, ppid=99).exception("ValueError", "bad", [("main", s.SCRIPT, 3)])
    report = died(run, box=box, **ABORT, abort_text="free(): invalid pointer\n", stack_of=RAISED)
    assert verdict(report) == ("python-exception", "certain")
    assert finding(report, "heap-corruption") is None
