"""Native code that waits for its threads while it holds the GIL, which they ask for; and what looks like that."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.analyze.evidence.own_code.own_steps import StepText, own_steps
from pytracer.analyze.evidence.waits import gil_waits
from pytracer.decode.types.snapshot import NativeFrame
from pytracer.report.job import NativeFrame as Reported
from pytracer.report.job import Report, SourceLine
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import TIMEOUT, stopped, with_ending
from tests.support.synth import Box

OWN = "/home/user/job/fleet.so"
CTYPES = "/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so"
CPP = "/usr/lib/libstdc++.so.6"
Frames = list[tuple[str, str]]
JOIN: Frames = [
    ("__futex_abstimed_wait_common", s.LIBC),
    ("__pthread_clockjoin_ex", s.LIBC),
    ("std::thread::join()", CPP),
]
BUSY: Frames = [("__memmove_avx_unaligned", s.LIBC)]
RUN: Frames = [("Fleet::run(int)", OWN)]
BOUND: Frames = [
    ("pybind11::cpp_function::initialize<double, Fleet, pybind11::name>()::{lambda()#3}::_FUN()", OWN),
    ("pybind11::cpp_function::dispatcher(_object*, _object*, _object*)", OWN),
]
GUARDED: Frames = [
    ("pybind11::cpp_function::initialize<double, pybind11::call_guard<pybind11::gil_scoped_release> >()::_FUN()", OWN),
    BOUND[1],
]
PYTHON: Frames = [("cfunction_vectorcall_FASTCALL", s.PYTHON), ("_PyEval_EvalFrameDefault", s.PYTHON)]
PROGRAM = '''import fleet
SOURCE = r"""
#include <thread>
double Fleet::run(int n) {{
    {body}
    for (auto& member : crew) member.join();
    return best;
}}
PYBIND11_MODULE(fleet, m) {{
    m.def("run", &Fleet::run);
}}
"""
def main():
    fleet.run(8)
'''


def ended_in(
    run: Path,
    native: Sequence[tuple[str, str]] = (*JOIN, *RUN, *BOUND, *PYTHON),
    *,
    body: str = "start(crew);",
    empty: int = 2,
    cuda: str | None = None,
    name: str = "",
    text: str = PROGRAM,
) -> Report:
    """Its main thread, and `empty` others that Python knows, whose name is `name`."""
    script = run / "train.py"
    script.write_text(text.format(body=body))
    os.utime(script, (0, 0))
    box = Box(pid=101, ppid=90).versions(torch="2.13.0", cuda=cuda)
    pthreads = [0x7000 + n for n in range(empty)]
    for pthread in pthreads if name else ():
        box.thread(pthread, name, pthread=pthread)
    stopped(box, [("main", str(script), 14), ("<module>", str(script), 15)])
    root = Box(pid=90, ppid=80, argv=TIMEOUT).at(60_010).wait(101, signal=15).exit(124)
    job = s.load(run, root, box)
    frames = tuple(NativeFrame(n, image, n, None, "unwound", item) for n, (item, image) in enumerate(native))
    changed = []
    for item in job.processes:
        end = item.snapshot.ending
        if item.snapshot.pid == 101 and end is not None:
            known = (*end.python_threads, *((pthread, ()) for pthread in pthreads))
            item = with_ending(item, native_stack=frames, python_threads=known)
        changed.append(item)
    return build_report(replace(job, processes=tuple(changed)))


def test_join_under_the_gil_of_threads_that_ask_for_it(run: Path) -> None:
    """What waits where, why nobody moves, and the binding to change; the source is text in the program."""
    report = ended_in(run)
    assert verdict(report) == ("hang", "likely")
    assert (
        "waited in std::thread::join(), in Fleet::run, called at train.py:14 in main; it held the GIL, as nothing on "
        "that way releases it, while 2 native threads seemed to wait for it, to run Python" in summary(report)
    )
    assert "Release the GIL while run() waits for threads that call Python" in advice(report)
    assert "`py::call_guard<py::gil_scoped_release>()` at its binding (train.py:10)" in advice(report)


@pytest.mark.parametrize(
    ("native", "body", "empty"),
    [
        ((*JOIN, *RUN, *GUARDED, *PYTHON), "start(crew);", 2),  # pybind11 releases it for the call
        ((*JOIN, *RUN, *BOUND, *PYTHON), "py::gil_scoped_release release;", 2),  # the function itself does
        ((*JOIN, *RUN, *BOUND, *PYTHON), "Py_BEGIN_ALLOW_THREADS", 2),
        ((*JOIN, *RUN, *BOUND, *PYTHON), "start(crew);", 0),  # its threads do not call Python
        ((*BUSY, *RUN, *BOUND, *PYTHON), "start(crew);", 2),  # works
        ((*JOIN, *RUN, ("ffi_call", CTYPES), *PYTHON), "start(crew);", 2),  # ctypes releases it
        ((*JOIN, ("c10::wait()", s.TORCH_CPU), ("invoke()", s.TORCH_CPU), *PYTHON), "start(crew);", 2),  # torch, too
    ],
)
def test_threads_that_can_get_the_gil_are_no_deadlock(
    native: Sequence[tuple[str, str]], body: str, empty: int, run: Path
) -> None:
    """The look-alikes: it is released, nobody asks for it, or nobody waits."""
    report = ended_in(run, native, body=body, empty=empty)
    assert "GIL" not in summary(report) + advice(report)
    assert verdict(report)[0] == "external-kill"


@pytest.mark.parametrize(
    ("native", "text", "cuda"),
    [
        ((*JOIN, *RUN, *BOUND, *PYTHON), "import fleet\n", None),  # no source
        ((*JOIN, *RUN, BOUND[1], *PYTHON), PROGRAM, None),  # a binding without the names of its templates
        ((*JOIN, *RUN, ("nanobind::detail::nb_func_vectorcall()", OWN), *PYTHON), PROGRAM, None),
        ((*JOIN, *RUN, *BOUND, *PYTHON), PROGRAM, "13.0"),  # Python knows the threads of torch's autograd, too
    ],
)
def test_holding_of_the_gil_that_is_not_sure_is_said_so(
    native: Sequence[tuple[str, str]], text: str, cuda: str | None, run: Path
) -> None:
    """What would show that it is kept is missing."""
    report = ended_in(run, native, text=text, cuda=cuda)
    assert verdict(report) == ("hang", "possible")
    assert "2 native threads had come to Python and ran none of it" in summary(report)
    assert "which this call may hold" in summary(report)


@pytest.mark.parametrize(
    "body",
    ["ScopedGilRelease guard;", "PyGILRelease nogil_guard;", "RELEASE_GIL();", "GILUnlocker unlock;"],
)
def test_guard_of_the_programs_own_may_release_it(body: str, run: Path) -> None:
    """A class or macro of its own that is named for the GIL."""
    report = ended_in(run, body=body)
    assert verdict(report) == ("hang", "possible")
    assert "which this call may hold" in summary(report)


def test_guard_of_the_programs_own_may_be_in_the_binding(run: Path) -> None:
    """`py::call_guard<ScopedGilRelease>()`."""
    guarded = [(BOUND[0][0].replace("pybind11::name", "pybind11::call_guard<ScopedGilRelease>"), OWN), BOUND[1]]
    assert verdict(ended_in(run, (*JOIN, *RUN, *guarded, *PYTHON))) == ("hang", "possible")


def test_taking_of_the_gil_releases_nothing(run: Path) -> None:
    """The look-alike: it asks for the GIL that it has."""
    assert verdict(ended_in(run, body="py::gil_scoped_acquire held;")) == ("hang", "likely")
    assert verdict(ended_in(run, body="PyGILState_STATE state = PyGILState_Ensure();")) == ("hang", "likely")


def test_definition_inside_of_a_comment_is_none(run: Path) -> None:
    """Another file has the function."""
    commented = PROGRAM.replace("double Fleet", "/* double Fleet").replace("return best;\n}}", "return best;\n}} */")
    report = ended_in(run, text=commented)
    assert verdict(report) == ("hang", "possible")


def test_threads_with_names_of_their_own_are_torchs(run: Path) -> None:
    """The look-alike: autograd keeps its threads known to Python while they have nothing to do."""
    report = ended_in(run, name="pt_autograd_0")
    assert "GIL" not in summary(report)


def test_function_of_the_c_api_gets_the_macros(run: Path) -> None:
    """Without pybind11; one thread."""
    report = ended_in(run, (*JOIN, ("run", OWN), *PYTHON), empty=1)
    assert "waited in std::thread::join(), in run, called at train.py:14" in summary(report)
    assert "while a native thread seemed to wait for it, to run Python" in summary(report)
    assert "Py_BEGIN_ALLOW_THREADS and Py_END_ALLOW_THREADS around the wait" in advice(report)


def test_function_without_a_name_is_one_of_its_library(run: Path) -> None:
    """The compiler put it into pybind11's caller, and there is no debug information."""
    report = ended_in(run, (*JOIN, *BOUND, *PYTHON))
    assert "waited in std::thread::join(), in fleet.so, called at train.py:14" in summary(report)
    assert "while the code of fleet.so waits for threads" in advice(report)


@pytest.mark.parametrize(
    ("body", "released"),
    [
        ("    start(crew);\n", False),
        ("    py::gil_scoped_release gil;\n    start(crew);\n", True),
        ("    { py::gil_scoped_release gil; load(); }\n", False),  # taken again at the end of the block
        ("    // py::gil_scoped_release gil;\n", False),
        ("    if (n > 1) {\n        py::gil_scoped_release gil;\n", True),  # the block of the wait
    ],
)
def test_release_counts_where_it_is_open_at_the_wait(body: str, released: bool) -> None:
    """By the text of the file above the line."""
    text = f"double Fleet::run(int n) {{\n{body}    crew[0].join();\n"
    lines = f"{text}}}\n".splitlines()
    source = StepText("/home/user/fleet.cpp", lines, text.count("\n"))
    assert gil_waits._releases(source, "Fleet::run") == released


def test_inlined_function_is_known_by_its_line() -> None:
    """With debug information, of a frame that has the name of pybind11's caller."""
    lines: list[Any] = [
        SourceLine(function="Fleet::run(int)", file="/home/user/fleet.cpp", line=39),
        SourceLine(function="operator()", file="/usr/include/pybind11/pybind11.h", line=333),
    ]
    own = [*own_steps([Reported(function=BOUND[0][0], image=OWN, lines=lines)])]
    assert [(item.name, item.line.line if item.line else None) for item in own] == [("Fleet::run", 39)]
