"""The function of the program that numba compiled, by the line that calls it."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.native.numba_functions import numba_words
from pytracer.decode.types.snapshot import PythonFrame
from pytracer.report.job import NativeFrame

SOURCE = """import numba as nb
{mark}
def _fill(points):
    return points[0]
def voxels(points):
    return _fill(points)
"""
MADE = NativeFrame(image=None, function=None)
DISPATCHER = NativeFrame(image="/env/numba/_dispatcher.cpython-311-x86_64-linux-gnu.so", function="Dispatcher_call")


def words(folder: Path, mark: str, *frames: NativeFrame) -> str | None:
    program = folder / "voxels.py"
    program.write_text(SOURCE.format(mark=mark), encoding="utf-8")
    crash = SimpleNamespace(python_stack=(PythonFrame("voxels", str(program), 6),), python_threads=())
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    view: Any = SimpleNamespace(crash=crash, process=SimpleNamespace(snapshot=snapshot), region_python=())
    return numba_words(view, frames)


@pytest.mark.parametrize("mark", ["@nb.njit", "@nb.njit(cache=True)", "@jit"])
def test_the_decorated_function_of_the_line_is_named(mark: str, tmp_path: Path) -> None:
    assert words(tmp_path, mark, MADE, DISPATCHER) == "`_fill`, which numba compiled"


def test_without_a_decorator_in_sight_it_is_some_function_of_numba(tmp_path: Path) -> None:
    assert words(tmp_path, "@compiled", MADE, DISPATCHER) == "a function that numba compiled"


@pytest.mark.parametrize("frames", [(MADE,), (NativeFrame(image="/lib/libc.so.6", function="memcpy"), DISPATCHER), ()])
def test_other_code_is_not_numbas(frames: tuple[NativeFrame, ...], tmp_path: Path) -> None:
    assert words(tmp_path, "@nb.njit", *frames) is None
