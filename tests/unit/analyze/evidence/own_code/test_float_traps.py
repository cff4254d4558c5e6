"""Who switched floating-point traps on: the C function and the line that calls it, and what has not done so."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.float_traps import FloatTraps, float_traps
from pytracer.report.job import NativeFrame, PythonFrame, SourceLine

SOURCE = """#include <fenv.h>
static void strict(void) {
    feenableexcept(FE_INVALID | FE_OVERFLOW);
}
void grid_open(int cells, int checked) {
    if (checked)
        strict();
}
void grid_run(double *u, int n) {
    for (int i = 0; i < n; i++) u[i] *= 0.5;
}
void grid_quiet(void) {
    fedisableexcept(FE_ALL_EXCEPT);
}
"""
PROGRAM = """import ctypes

lib = ctypes.CDLL("libgrid.so")


def prepare(cells):
    {call}


def train(model, rows):
    for row in rows:
        model(row)
    {late}


prepare(8)
train(print, [1])
"""
LEAVE = "void leave(void) {\n    grid_quiet();\n}\n"
GUARD = """struct Trapped {
    Trapped() { feenableexcept(FE_INVALID); }
    ~Trapped() { fedisableexcept(FE_ALL_EXCEPT); }
};
void grid_open(int cells, int checked) { Trapped(); work(); }
"""
GUARD_OF_OTHERS = f"""{SOURCE}struct Trapped {{
    Trapped(int cells) {{ strict(); }}
    ~Trapped() {{ grid_quiet(); }}
}};
"""
RESTORES = """void grid_open(int cells, int checked) {
    int old = fegetexcept();
    feenableexcept(FE_INVALID);
    work();
    fedisableexcept(FE_ALL_EXCEPT);
    feenableexcept(old);
}
"""
PAUSES = """void grid_open(int cells, int checked) {
    int old = fedisableexcept(FE_ALL_EXCEPT);
    work();
    feenableexcept(old);
}
"""
BY_NUMBER = """static void strict(int on) {
    if (on) feenableexcept(FE_INVALID);
    else fedisableexcept(FE_ALL_EXCEPT);
}
void grid_open(int cells, int checked) {
    strict(1);
    work();
    strict(0);
}
"""
NAMED_RUN = """void run(int n) {
    feenableexcept(FE_INVALID);
    work();
    fedisableexcept(FE_ALL_EXCEPT);
}
"""
INVALID, BY_ZERO = 7, 3


def view_of(
    folder: Path,
    *,
    source: str = SOURCE,
    program: str = PROGRAM,
    call: str = "lib.grid_open(cells, 1)",
    late: str = "pass",
    code: int = INVALID,
    lines: tuple[int, ...] = (12, 17),
    gone: bool = False,
    library_before: bool = False,
    native: tuple[NativeFrame, ...] = (
        NativeFrame(function="mul_kernel", image="/site-packages/torch/lib/libtorch.so"),
    ),
) -> Any:
    """A process that died of a trapped operation of floats in torch, at `lines` of its program, innermost first."""
    file, library, script = folder / "grid.c", folder / "libgrid.so", folder / "train.py"
    file.write_text(source, encoding="utf-8")
    script.write_text(program.replace("{call}", call).replace("{late}", late), encoding="utf-8")
    os.utime(file, (2000, 2000))
    if not gone:
        library.write_bytes(b"")
        os.utime(library, (1000, 1000) if library_before else None)
    stack = tuple(PythonFrame(function="f", file=str(script), line=line) for line in lines)
    crash = SimpleNamespace(
        code=code, images=(SimpleNamespace(path=str(library), start=1, end=2, build_id="ab"),), native_stack=(),
        python_stack=stack, python_threads=(), holders=(), arguments=(), numbers=(), registers={},
    )  # fmt: skip
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 9))
    return SimpleNamespace(
        native_stack=[*native], crash=crash, process=SimpleNamespace(snapshot=snapshot), python_stack=None,
        region_python=(), space=SimpleNamespace(live_around=lambda addr: None),
    )  # fmt: skip


def test_function_that_enables_traps_is_named_with_the_line_that_calls_it(tmp_path: Path) -> None:
    """Also where another function of the library is between."""
    found = float_traps(view_of(tmp_path))
    assert found is not None
    assert found.words == (
        "most likely since line 7 called grid_open() of libgrid.so, which enables them by strict() (grid.c:3)"
    )
    assert found.advice == (
        "Leave the traps off where grid_open() returns to Python: fedisableexcept(), or feholdexcept() and fesetenv() "
        "around its own computation; or do not ask for them at line 7 (`lib.grid_open(cells, 1)`). They hold for the "
        "whole thread; without them this operation gives NaN and no signal, which torch, NumPy and Python rely on."
    )


def test_operation_of_the_own_code_is_what_its_traps_are_for(tmp_path: Path) -> None:
    """There the operands may be wrong."""
    own = NativeFrame(function="grid_run", image=str(tmp_path / "libgrid.so"))
    found = float_traps(view_of(tmp_path, native=(own,)))
    assert found is not None and found.advice.endswith("where it must not, look at its operands.")


def test_source_of_a_library_that_is_gone_counts_where_it_is_older_than_the_process(tmp_path: Path) -> None:
    """A program builds it in a temporary directory, and removes that."""
    view = view_of(tmp_path, gone=True)
    assert float_traps(view) is not None
    view.process.snapshot.created_wall_ns = 10**9
    os.utime(tmp_path / "train.py", (0, 0))
    assert float_traps(view) is None


def test_text_of_the_program_is_a_source_as_well(tmp_path: Path) -> None:
    """Where the library that it was compiled into is gone; the place is a line of the program."""
    program = f'{PROGRAM}SOURCE = """\n{SOURCE}"""\n'
    found = float_traps(view_of(tmp_path, program=program, source="int grid_open;\n", gone=True))
    assert found is not None and found.words.endswith("which enables them by strict() (train.py:21)")


def test_function_that_runs_as_its_library_is_loaded_needs_no_line(tmp_path: Path) -> None:
    """No line calls it."""
    source = SOURCE.replace("static void strict", "__attribute__((constructor)) static void strict")
    found = float_traps(view_of(tmp_path, source=source, call="lib.grid_run(0, 0)"))
    assert found is not None
    assert found.words == "most likely since strict() enabled them as libgrid.so was loaded (grid.c:3)"


def test_library_without_source_is_named_where_it_alone_calls_the_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where the source is known, and traps something else."""
    view = view_of(tmp_path, source="int grid_open;\n")
    assert float_traps(view) is None
    monkeypatch.setattr(
        "pytracer.analyze.evidence.own_code.float_traps.imported", lambda path, build_id, names: frozenset(names)
    )
    found = float_traps(view)
    assert found is not None
    assert found.words == "most likely by libgrid.so, which imports feenableexcept()"
    assert float_traps(view_of(tmp_path, code=BY_ZERO)) is None


def test_line_of_a_library_that_the_interpreter_computes_is_quoted(tmp_path: Path) -> None:
    """As of a module that is imported then: nothing is wrong with it."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    module = folder / "constants.py"
    module.write_text("INF = 1e300 * 1e300\nNAN = INF - INF\n", encoding="utf-8")
    view = view_of(tmp_path, native=(NativeFrame(function="float_sub", image="/usr/lib/libpython3.11.so.1.0"),))
    frame = PythonFrame(function="<module>", file=str(module), line=2)
    view.crash.python_stack = (frame, *view.crash.python_stack)
    found = float_traps(view)
    assert found is not None and "this operation (`NAN = INF - INF` at constants.py:2) gives NaN" in found.advice


def test_call_behind_the_line_counts_where_a_loop_has_both(tmp_path: Path) -> None:
    """Of the round before."""
    program = PROGRAM.replace("        model(row)\n", "        model(row)\n        lib.grid_open(8, 1)\n")
    found = float_traps(view_of(tmp_path, program=program, call="pass", lines=(12, 18)))
    assert found is not None and found.words.startswith("most likely since line 13 called grid_open()")


def test_traps_that_are_switched_off_behind_the_call_are_on_between(tmp_path: Path) -> None:
    """The line of the crash lies there."""
    call = "lib.grid_open(cells, 1)\n    cells = cells / 2\n    lib.grid_quiet()"
    assert float_traps(view_of(tmp_path, call=call, lines=(8, 18))) is not None
    assert float_traps(view_of(tmp_path, call=call, lines=(14, 19))) is None


@pytest.mark.parametrize(
    "source",
    [
        SOURCE.replace("        strict();", "        strict();\n    else\n        grid_quiet();"),  # not both
        SOURCE.replace("        strict();", "        strict();\n    work();"),
        SOURCE.replace("        strict();", "        strict();\n}\nvoid grid_close(void) {\n    grid_quiet();"),
        SOURCE.replace("int n) {", "int n) {\n    int old = fedisableexcept(FE_INVALID);\n    feenableexcept(old);"),
        BY_NUMBER.replace("    strict(0);\n", ""),
    ],
)
def test_function_that_leaves_the_traps_on_is_named(source: str, tmp_path: Path) -> None:
    """Whatever else of the file switches them off, or puts back what was."""
    found = float_traps(view_of(tmp_path, source=source))
    assert isinstance(found, FloatTraps) and found.entry == "grid_open" and found.function == "strict"


def test_function_that_is_running_has_not_undone_it(tmp_path: Path) -> None:
    """Of the program's own library: a frame of the interpreter is of another function."""
    python = NativeFrame(function="run_eval_code_obj", image="/usr/lib/libpython3.11.so.1.0")
    own = NativeFrame(function="Grid::run(int)", image=str(tmp_path / "libgrid.so"))
    torch = NativeFrame(function="at::run(int)", image="/site-packages/torch/lib/libtorch.so")
    call = "lib.run(cells)"
    assert float_traps(view_of(tmp_path, source=NAMED_RUN, call=call, native=(torch, python))) is None
    assert float_traps(view_of(tmp_path, source=NAMED_RUN, call=call, native=(own, python))) is not None


@pytest.mark.parametrize(("taken", "told"), [({"fesetenv", "__gmon_start__"}, False), ({"feenableexcept"}, True)])
def test_source_that_was_not_compiled_in_enables_nothing(
    taken: set[str], told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind an #ifdef: the library that can be read does not import the function."""
    monkeypatch.setattr(
        "pytracer.analyze.evidence.own_code.float_traps.imported",
        lambda path, build_id, names: frozenset(taken.intersection(names)),
    )
    assert (float_traps(view_of(tmp_path)) is not None) == told


@pytest.mark.parametrize(
    ("imports", "call", "told"),
    [
        ("import wandb", "wandb.grid_open(cells, 1)", False),
        ("from tracking import wandb", "wandb.run.grid_open(cells, 1)", False),
        ("from .tracking import wandb", "wandb.grid_open(cells, 1)", False),
        ("import libgrid as grid", "grid.grid_open(cells, 1)", True),
        ("from grids import libgrid", "libgrid.grid_open(cells, 1)", True),
        ("from libgrid import api", "api.grid_open(cells, 1)", True),
        ("from grids import lib", "lib.grid_open(cells, 1)", True),
        ("import grids", "grids.lib.grid_open(cells, 1)", True),
    ],
)
def test_function_of_an_imported_module_is_another_one(imports: str, call: str, told: bool, tmp_path: Path) -> None:
    """But for one that a library of the program is, or into which the program loads one."""
    view = view_of(tmp_path, program=f"{imports}{PROGRAM.removeprefix('import ctypes')}", call=call)
    assert (float_traps(view) is not None) == told


def test_many_callers_of_callers_are_looked_at_once(tmp_path: Path) -> None:
    """Each function calls the one before twelve times: no line may have run before the crash."""
    levels = [f"def f{n}(cells):\n" + f"    f{n - 1}(cells)\n" * 12 for n in range(1, 4)]
    program = PROGRAM.replace("prepare(8)\n", "") + "f3(8)\n" + "\n".join(levels).replace("f0", "prepare")
    began = time.process_time()
    view = view_of(tmp_path, program=program + "value = 0\n" * 3000, lines=(12, 16))
    assert float_traps(view) is None
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    "changed",
    [
        {"source": SOURCE.replace("        strict();", "        strict();\n    work();\n    grid_quiet();")},
        {"source": SOURCE.replace("        strict();", "        strict();\n    work();\n    leave();") + LEAVE},
        {"source": GUARD},
        {"source": GUARD_OF_OTHERS, "call": "lib.Trapped(cells)"},
        {"source": RESTORES},
        {"source": PAUSES},
        {"source": BY_NUMBER},
        {"code": BY_ZERO},  # it does not trap that
        {"code": 1},  # an integer
        {"source": SOURCE.replace("    feenable", "    // feenable")},
        {"source": SOURCE.replace("OVERFLOW);", "OVERFLOW);\n    work();\n    fedisableexcept(FE_ALL_EXCEPT);")},
        {"call": "lib.grid_open(0, 0)"},
        {"call": "lib.grid_run(0, 0)"},
        {"call": "pass", "late": "lib.grid_open(8, 1)"},  # not reached yet
        {"source": SOURCE.replace("int n) {", "int n) {\n    feenableexcept(FE_INVALID);"),
         "late": "lib.grid_run(0, 1)", "lines": (17,)},  # two functions
        {"library_before": True},  # the source has changed since
    ],
)  # fmt: skip
def test_what_has_not_enabled_that_trap_is_not_named(changed: dict[str, Any], tmp_path: Path) -> None:
    """Nor what was, where it may have been another one."""
    assert float_traps(view_of(tmp_path, **changed)) is None


STEP = """void step(const double *x, double *y, int n) {
    feenableexcept(FE_INVALID);
    for (int i = 0; i < n; i++)
        y[i] = x[i] / x[i];
    fedisableexcept(FE_ALL_EXCEPT);
}
"""


def test_operands_are_looked_at_where_the_running_function_enabled_the_traps_itself(tmp_path: Path) -> None:
    """It switches them off before it returns: there is nothing to leave off."""
    source = str(tmp_path / "grid.c")
    lines = [SourceLine(function="step", file=source, line=4)]
    own = NativeFrame(function="step", image=str(tmp_path / "libgrid.so"), lines=lines)
    found = float_traps(view_of(tmp_path, source=STEP, call="lib.step(cells)", lines=(7, 17), native=(own,)))
    assert isinstance(found, FloatTraps)
    assert found.words == "since step() of libgrid.so, which is still running, enabled them (grid.c:2)"
    assert found.advice.startswith("Look at the operands of `y[i] = x[i] / x[i]` (grid.c:4), in what line 7 passes")
    assert "Leave the traps off" not in found.advice
