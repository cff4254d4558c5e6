"""A null pointer to a function in the program's own C, and what sets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.null_function import null_function
from pytracer.report.job import NativeFrame
from tests.support.native_views import native_view

SOURCE = """\
typedef double (*cost_fn)(double);
static cost_fn on_step;
struct engine *engine_load(const char *path) {
    struct engine *e = malloc(sizeof *e);
    e->so = dlopen(path, RTLD_NOW);
    e->cost = (cost_fn)dlsym(e->so, "cost");
    MORE
    e->rows = *(const int *)dlsym(e->so, "ROWS");
    return e;
}
void set_step(cost_fn step) { on_step = step; }
double engine_cost(struct engine *e, double x) {
    x = twice(x) + e->cost(x);
    on_step(x);
    return e->cost(x) + on_step(x);
}
double twice(double x) { return 2 * x; }
"""
PROGRAM = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def run(handle, x):
    return lib.engine_cost(handle, x)
handle = lib.engine_load(path)
lib.set_step(STEP)
run(handle, 1.0)
"""


def found(folder: Path, running: str, *, more: str = "", access: str = "execute", function: str = "engine_cost") -> Any:
    source = SOURCE.replace("MORE", more)
    view = native_view(folder, PROGRAM, source, at="lib.engine_cost", way=[(function, running)], access=access, addr=0)
    view.process.role = "rank"
    view.process.snapshot.worker = None
    if access == "execute":
        view.native_stack.insert(0, NativeFrame())
    return null_function(view)


def test_a_symbol_that_a_library_does_not_export_is_named_where_it_is_called(tmp_path: Path) -> None:
    told = found(tmp_path, "twice(x) + e->cost(x)")
    assert told.summary == (
        '`e->cost` is null, as ops.c:6 sets it to what `dlsym(e->so, "cost")` returned, and nothing checks it'
    )
    assert "it exports no cost" in told.advice and "or dlopen() could not open it" in told.advice
    assert "line 5 calls engine_load()" in told.advice


def test_a_callback_that_a_setter_sets_is_named_with_the_line_that_calls_the_setter(tmp_path: Path) -> None:
    told = found(tmp_path, "    on_step(x);")
    assert told.summary == "likely `on_step` (ops.c:2), which set_step() sets"
    assert "line 6 calls it" in told.advice("line 4")


@pytest.mark.parametrize(
    "how",
    [
        {"running": "return e->cost(x) + on_step(x)"},  # two of them
        {"running": "twice(x) + e->cost(x)", "more": "if (path[0]) e->cost = fallback;"},
        {"running": "twice(x) + e->cost(x)", "access": "read"},  # of something else
    ],
)
def test_no_function_is_named_where_another_may_be_null(how: dict[str, str], tmp_path: Path) -> None:
    assert found(tmp_path, **how) is None
