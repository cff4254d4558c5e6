"""Stack frames as text."""

from __future__ import annotations

from pytracer.render.frames import native_lines, python_lines
from pytracer.report.job import NativeFrame, PythonFrame, SourceLine


def native(*functions: str | None, image: str = "/x/libtorch.so") -> list[NativeFrame]:
    return [NativeFrame(image=image, offset="0x10", function=name, found="exact") for name in functions]


def test_our_functions_that_pass_a_call_on_are_left_out() -> None:
    """They are between the program and torch."""
    assert native_lines(native("at::f()", "pytracer::hooks::call()", "g()")) == ["at::f  libtorch.so", "g  libtorch.so"]


def test_our_function_that_fails_itself_is_shown() -> None:
    """Then the fault is ours."""
    assert native_lines(native("pytracer::hooks::call()", "g()"))[0] == "pytracer::hooks::call  libtorch.so"
    assert native_lines(native("pytracer::hooks::call()"))[0] == "pytracer::hooks::call  libtorch.so"


def test_way_from_a_checked_call_to_its_check_is_part_of_abort() -> None:
    """The C library's own functions between are no news; who called it is."""
    inside = ("_IO_str_chk_overflow", "__vfprintf_internal", "__sprintf_chk")
    libc = native("abort", "__chk_fail", *inside, image="libc.so.6")
    frames = [*libc, *native("note", "load")]
    assert native_lines(frames) == [
        "... 4 frames of abort()", "__sprintf_chk  libc.so.6", "note  libtorch.so", "load  libtorch.so"
    ]  # fmt: skip
    direct = [*native("abort", "__chk_fail", image="libc.so.6"), *native("note")]
    assert native_lines(direct) == ["... 2 frames of abort()", "note  libtorch.so"]


def test_way_through_the_unnamed_functions_of_the_cpp_library_is_part_of_abort() -> None:
    """Between abort() and std::terminate() they have no names."""
    library = native(None, None, image="/usr/lib/libstdc++.so.6")
    frames = [*native("raise", "abort"), *library, *native("std::terminate()", "decode()")]
    assert native_lines(frames) == ["... 5 frames of abort()", "decode  libtorch.so"]


def test_name_that_is_too_wide_loses_its_namespaces_first() -> None:
    """The function itself says most; of one that runs a kernel, the kernel."""
    wide = "at::native::(anonymous namespace)::adaptive_max_pool2d_backward_kernel()"
    assert native_lines(native(wide)) == ["adaptive_max_pool2d_backward_kernel  libtorch.so"]
    loop = "void at::internal::invoke_parallel<at::native::adaptive_max_pool2d_backward(int)::{lambda()#1}>(int)"
    assert native_lines(native(loop)) == ["adaptive_max_pool2d_backward  libtorch.so"]


def test_start_of_the_interpreter_is_not_shown_as_the_program() -> None:
    """`python -m train` begins in runpy, which is frozen into the interpreter."""
    runpy = [PythonFrame(function="_run_code", file="<frozen runpy>", line=88)]
    main = [PythonFrame(function="main", file="train.py", line=2)]
    assert python_lines(main + runpy) == ["main  train.py:2"]
    assert len(python_lines(main + runpy, everything=True)) == 2
    assert python_lines(runpy) == ["_run_code  <frozen runpy>:88"]  # a fault in it has no other line


def test_source_of_the_interpreter_is_left_out_of_the_short_stack() -> None:
    """`os._exit()` is three lines of CPython's own files otherwise; a library of the program keeps its source."""
    inlined = SourceLine(function="os__exit_impl", file="/tmp/build/Modules/posixmodule.c", line=5664)
    own = SourceLine(function="os__exit", file="/tmp/build/Modules/clinic/posixmodule.c.h", line=2121)
    frame = NativeFrame(image="/usr/lib/libpython3.11.so.1.0", function="os__exit", lines=[inlined, own])
    assert native_lines([frame]) == ["os__exit  libpython3.11.so.1.0"]
    mine = NativeFrame(image="/x/ops.so", function="run", lines=[SourceLine(function="run", file="/x/ops.c", line=3)])
    assert native_lines([mine]) == ["run  /x/ops.c:3  ops.so"]


def test_frames_of_ctypes_are_not_counted_as_the_interpreters() -> None:
    """libffi and _ctypes lie between the program's library and the interpreter."""
    images = ["libreader.so", "libffi.so.8", "_ctypes.cpython-311.so", "libpython3.11.so.1.0", "libc.so.6"]
    frames = [NativeFrame(function=None, offset="0x10", image=image) for image in images]
    assert native_lines(frames)[1:] == ["... 4 frames of ctypes and the Python interpreter"]
    assert native_lines([frames[0], *frames[3:]])[1:] == ["... 2 frames of the Python interpreter"]


def test_frames_of_a_stack_that_was_not_recorded_to_its_end_are_counted_as_at_least_so_many() -> None:
    """The handler keeps the innermost 192 of the crashed thread: a recursion has more."""
    frame = PythonFrame(function="forward", file="tree.py", line=3)
    assert python_lines([frame] * 192)[-1] == "... at least 187 more frames"
    assert python_lines([frame] * 191)[-1] == "... 186 more frames"
