"""scripts/check_crashsafe.py: it accepts the objects as built, and reports each violation."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.conditions import needs_core
from tests.support.cli import ROOT

pytestmark = needs_core

SCRIPT = ROOT / "scripts" / "check_crashsafe.py"


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_crashsafe", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def compiled(at: Path, source: str, *flags: str) -> Path:
    """A source text as at.o, or as a shared library when `flags` say so."""
    at.with_suffix(".cpp").write_text(source, encoding="utf-8")
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-fPIC", "-O1", *flags, str(at.with_suffix(".cpp"))]
    subprocess.run([*command, "-o", str(at)], check=True)
    return at


@pytest.mark.slow
def test_crash_path_as_built_is_clean() -> None:
    """The objects call exactly the symbols in symbols.allow; the core is fit to be preloaded."""
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_new_call_is_named_with_its_file(check: ModuleType, tmp_path: Path) -> None:
    """A symbol that is not listed is refused."""
    made = compiled(tmp_path / "step.cpp.o", "#include <cstdlib>\nvoid* step() { return malloc(3); }", "-c")
    assert check.check_objects([made], {}) == [
        "csrc/crashsafe/step.cpp: calls malloc, which csrc/crashsafe/symbols.allow does not list"
    ]


def test_line_that_nobody_needs_is_named(check: ModuleType, tmp_path: Path) -> None:
    """A listed symbol without a caller is reported, unless only some compilers call it."""
    made = compiled(tmp_path / "step.cpp.o", "int step() { return 1; }", "-c")
    allowed = {"strlen": check.Allowed(7, True), "memset": check.Allowed(8, False)}
    assert check.check_objects([made], allowed) == [
        "csrc/crashsafe/symbols.allow:7: nobody calls strlen any more: remove the line"
    ]


def test_what_is_made_at_run_time_is_named(check: ModuleType, tmp_path: Path) -> None:
    """A static that is initialized at first use, or by a constructor, is refused."""
    lazy = compiled(tmp_path / "lazy.cpp.o", "int f(); int& step() { static int x = f(); return x; }", "-c")
    early = compiled(tmp_path / "early.cpp.o", "int f(); int x = f();", "-c")
    problems = check.check_objects(
        [lazy, early], {n: check.Allowed(1, False) for n in ("_Z1fv", "__cxa_guard_acquire", "__cxa_guard_release")}
    )
    assert any("lazy.cpp: a function-local static" in p for p in problems)
    assert any("early.cpp: something is initialized at run time" in p for p in problems)


@pytest.mark.parametrize(
    ("file", "line", "problem"),
    [
        (
            "crashsafe/handler/steps.cpp",
            '#include "core/core.h"',
            "includes core/core.h, which crashsafe/ must not see",
        ),
        ("guard/ledger.h", '#include "core/file/journal.h"', "includes core/file/journal.h, which guard/ must not see"),
        ("core/core.cpp", '#include "guard/ledger.h"', "includes guard/ledger.h, which core/ must not see"),
        ("core/core.cpp", "  #  include <Python.h>", "includes <Python.h>, which core/ must not see"),
        ("helper/helper.cpp", '#include "crashsafe/platform/sys.h"', "includes crashsafe/platform/sys.h, which"),
        ("hooks/a.h", "#include <cuda_runtime_api.h>", "includes <cuda_runtime_api.h>, which hooks/ must not see"),
        ("new/a.h", '#include "new/b.h"', "MAY_INCLUDE of scripts/check_crashsafe.py has no line for csrc/new"),
    ],
)
def test_include_across_a_border_is_named(
    check: ModuleType, tmp_path: Path, file: str, line: str, problem: str
) -> None:
    """Each folder may include lower layers, and listed headers of others."""
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(f'#pragma once\n#include "{file.split("/")[0]}/own.h"\n#include <cstdint>\n')
    before = check.check_includes(tmp_path)
    assert before == [] or file.startswith("new")
    path.write_text(f"{path.read_text()}{line}\n")
    (said,) = check.check_includes(tmp_path)
    assert said.startswith(f"csrc/{file}: {problem}")


@pytest.mark.parametrize("line", ["malloc", "malloc must", "malloc perhaps it is fine"])
def test_line_without_a_reason_is_refused(check: ModuleType, tmp_path: Path, line: str) -> None:
    """Each line of symbols.allow has a reason."""
    path = tmp_path / "symbols.allow"
    path.write_text(f"# head\n\n{line}\n", encoding="utf-8")
    allowed, problems = check.read_allowed(path)
    assert allowed == {}
    assert problems == [f"{path}:3: expected a symbol, must or may, and a reason"]


@pytest.mark.parametrize(
    ("source", "flags", "expected"),
    [
        ("int f() { return 1; }", ["-Wl,-z,lazy", "-Wl,-z,nodelete"], ["bound at first use"]),
        ("int f() { return 1; }", ["-Wl,-z,now"], ["may be unloaded"]),
        (
            "#include <string>\nstd::string f() { return std::string(99, 'x'); }",
            ["-Wl,-z,now", "-Wl,-z,nodelete"],
            ["needs libstdc++"],
        ),
        ("thread_local int x; int* f() { return &x; }", ["-Wl,-z,now", "-Wl,-z,nodelete"], ["not initial-exec"]),
        (
            "thread_local char x[4096]; char* f() { return x; }",
            ["-Wl,-z,now", "-Wl,-z,nodelete", "-ftls-model=initial-exec"],
            ["4096 bytes of thread-locals"],
        ),
    ],
    ids=["lazy", "unloadable", "libstdc++", "dynamic thread-local", "large thread-local"],
)
def test_library_that_is_not_fit_to_be_preloaded_is_refused(
    check: ModuleType, tmp_path: Path, source: str, flags: list[str], expected: list[str]
) -> None:
    """Each requirement on the core is violated on purpose, and reported."""
    made = compiled(tmp_path / "core.so", source, "-shared", *flags)
    problems = check.check_core(made)
    assert all(any(words in problem for problem in problems) for words in expected)
    assert "\n" not in "".join(problems)
