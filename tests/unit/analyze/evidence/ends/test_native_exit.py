"""exit() that the program's own native code called while other threads still worked."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pytracer.analyze.evidence.ends.native_exit import native_exit
from pytracer.decode.types.snapshot import HeldNumber, PythonFrame
from pytracer.report.job import NativeFrame
from tests.support.native_views import native_view

SOURCE = """\
static void fatal(const char *text) {
    fprintf(stderr, "FATAL: %s\\n", text);
    exit(1);
}
#define NEED(x, text) do { if (!(x)) fatal(text); } while (0)
static int decode(const float *row, int classes) {
    NEED(classes == COUNT,
         "classes");
    return 0;
}
int decode_batch(const float *rows, int n, int classes) {
    return pool_run(rows, n, classes);
}
"""
PROGRAM = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def run(rows, n, classes):
    return lib.decode_batch(rows.data_ptr(), n, classes)
run(1, 2, 3)
"""
LIBC = "/lib/x86_64-linux-gnu/libc.so.6"


def found(
    folder: Path, *, exits: bool = True, own: bool = True, here: bool = True, main: bool = False,
    handler: bool = False, check: bool = True,
) -> Any:  # fmt: skip
    view = native_view(
        folder, PROGRAM, SOURCE, at="lib.decode_batch", way=[("fatal", "exit(1)"), ("decode", "NEED(classes ==")]
    )
    crash = view.crash
    stack, library = view.native_stack[: 1 + check], view.native_stack[0].image
    if not own:
        stack = [NativeFrame(function="Py_Exit", image="/usr/bin/python3.11")]
    if exits:
        stack = [
            *([NativeFrame(function="Pool::~Pool", image=library)] if handler else []),
            NativeFrame(function="__run_exit_handlers", image=LIBC),
            NativeFrame(function="exit", image=LIBC),
            *stack,
        ]
    frames = crash.python_stack
    crash.tid, crash.threads, crash.other_numbers = (1 if main else 7), (), ()
    if not main:
        crash.python_stack, crash.python_threads = (), ((99, frames),)
        view.process.snapshot.main_pthread = 99
        crash.other_numbers = (HeldNumber("classes", 40, PythonFrame("run", frames[0].file, frames[0].line), 0),)
    view.native_stack = stack if here else [NativeFrame(function="use", image="/usr/lib/libother.so")]
    if not here:
        lines = [SimpleNamespace(function="fatal", file=str(folder / "ops.c"), line=3)]
        crash.threads = (SimpleNamespace(tid=9, native_stack=(
            raw("exit", LIBC, []), raw("fatal", library, lines),
        )),)  # fmt: skip
    return native_exit(view)


def raw(function: str, image: str, lines: list[Any]) -> Any:
    return SimpleNamespace(
        function=function, image=image, lines=lines, offset=16, pc=16, build_id=None, found="unwound"
    )


def test_line_that_gave_up_is_named_with_what_the_program_passes(tmp_path: Path) -> None:
    item = found(tmp_path)
    assert item.summary == (
        "died within exit(), which fatal (ops.c:3) called on a thread of its own: decode (ops.c:7) had given up at "
        '`NEED(classes == COUNT, "classes")`, below train.py:4 in run'
    )
    assert item.advice == (
        'Begin with what ops.c:7 asks for (`NEED(classes == COUNT, "classes")`): it was not so, and stderr may have '
        "the details, written before the crash. Then check what line 4 passes: `classes` = 40. The crash itself only "
        "followed: exit() ends what other threads still use. Throw an exception, or return an error, in place of "
        "exit()."
    )


def test_exit_on_the_main_thread_is_told_as_such(tmp_path: Path) -> None:
    assert found(tmp_path, main=True).summary.startswith("died within exit(), which fatal (ops.c:3) called: decode (")


def test_exit_on_another_thread_is_what_the_crash_followed_from(tmp_path: Path) -> None:
    item = found(tmp_path, here=False)
    assert item.summary == "died during exit(), which fatal (ops.c:3) called on another thread"
    assert item.advice.startswith("Look at why fatal ends the process at ops.c:3 (`exit(1)`). Then check what line 4 ")


def test_end_of_python_and_a_crash_without_exit_are_not_told(tmp_path: Path) -> None:
    assert found(tmp_path, own=False) is None
    assert found(tmp_path, exits=False) is None


def test_destructor_of_the_program_that_exit_came_to_may_be_at_fault_itself(tmp_path: Path) -> None:
    """Not where a check had given up before."""
    assert found(tmp_path, check=False) is not None and found(tmp_path, handler=True) is not None
    assert found(tmp_path, check=False, handler=True) is None
