"""Operators whose Library nothing holds, and what looks like that."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.deregistered import deregistered, deregistered_at_crash
from pytracer.analyze.evidence.own_code.dropped_operators import dropped_operators
from pytracer.analyze.evidence.wild.deregistered_operator import deregistered_operator
from pytracer.decode.types.snapshot import PythonFrame as SnapshotFrame
from pytracer.report.job import NativeFrame, PythonFrame
from tests.support.scenarios import TORCH, program_in

LOCAL = """def register():
    lib = torch.library.Library("acme", "DEF")
    lib.define("f(Tensor x) -> Tensor")
    @torch.library.impl(lib, "f", "CPU")
    def f(x):
        return x
    return torch.ops.acme.f.default
f = register()
f(x)
"""
OWNED = """class Pack:
    def __init__(self, ns):
        self.lib = Library(ns, "DEF")
        self.lib.define("f(Tensor x) -> Tensor")
        self.lib.impl("f", self.run, "CPU")
    @staticmethod
    def run(x):
        return x
class Net:
    def __init__(self):
        pack = Pack("acme")
        self.f = torch.ops.acme.f.default
"""


def test_local_variable_alone_held_the_library() -> None:
    """Kernels that are registered with it do not hold it."""
    found = dropped_operators({"a.py": ast.parse(LOCAL)}, "a.py")
    assert found is not None
    assert found.summary == (
        "`lib` of register() alone held the torch.library.Library of line 2, which takes its operators back when it is "
        "collected"
    )
    assert found.advice.startswith("Keep `lib` (line 2: `lib = torch.library.Library('acme', 'DEF')`) for as long as")


def test_object_that_holds_the_library_is_followed() -> None:
    """Through the class whose attribute it is."""
    found = dropped_operators({"a.py": ast.parse(OWNED)}, "b.py")
    assert found is not None
    assert found.summary.startswith("`pack` of Net.__init__() alone held the torch.library.Library of a.py:3,")
    assert "as an attribute (`self.pack = ...`)" in found.advice


@pytest.mark.parametrize(
    "source",
    [
        LOCAL.replace("    return torch", "    LIBRARIES.append(lib)\n    return torch"),
        LOCAL.replace("        return x\n", "        return lib and x\n"),  # the kernel holds it
        LOCAL.replace("def register():\n", "def register():\n    global lib\n"),
        LOCAL.replace("return torch.ops.acme.f.default", "return lib"),
        OWNED.replace("    @staticmethod\n", "").replace("def run(x)", "def run(self, x)"),  # so does a bound method
        OWNED.replace("pack = Pack", "self.pack = Pack"),
        OWNED + "KEPT = Pack('other')\n",
        LOCAL + LOCAL.replace("register", "other"),  # which of two
        "lib = Library('acme', 'DEF')\nlib.define('f(Tensor x) -> Tensor')\n",
    ],
)
def test_library_that_something_holds_is_none(source: str) -> None:
    """The look-alikes."""
    assert dropped_operators({"a.py": ast.parse(source)}, "a.py") is None


def crashed(run: Path, *native: str, source: str = LOCAL, called: str = "torch/_ops.py") -> Any:
    """A fault below the last line of the program."""
    program = program_in(run, source)
    line = len(source.splitlines())
    inner = SnapshotFrame("OpOverload.__call__", f"{TORCH.removesuffix('torch')}{called}", 875)
    stack = (inner, SnapshotFrame("<module>", str(program), line))
    frames = [NativeFrame(function=name, image="/opt/libtorch_cpu.so") for name in native]
    snapshot = SimpleNamespace(argv=(), created_wall_ns=1 << 62, pid=7)
    return SimpleNamespace(
        native_stack=frames, crash=SimpleNamespace(python_stack=stack), process=SimpleNamespace(snapshot=snapshot)
    )


LOOKS_UP = (
    "memmove",
    "c10::operator<<(std::ostream&, c10::OperatorName const&)",
    "torch::jit::_get_operation_for_overload",
)


def test_fault_where_the_dispatcher_looks_it_up_is_explained(run: Path) -> None:
    """The kernel has not begun."""
    found = deregistered_operator(crashed(run, *LOOKS_UP))
    assert found is not None
    assert found.verdict_class == "use-after-free"


@pytest.mark.parametrize(
    ("native", "more"),
    [
        (("at::native::gather", *LOOKS_UP), {}),  # a kernel of torch's
        (("memmove", "my_kernel"), {}),
        (LOOKS_UP, {"called": "torch/nn/modules/module.py"}),
        (LOOKS_UP, {"source": f"{LOCAL}torch.ops.aten.relu(x)\n"}),  # another namespace
    ],
    ids=["kernel", "own kernel", "no operator", "another namespace"],
)
def test_other_faults_below_operators_are_not(native: tuple[str, ...], more: dict[str, str], run: Path) -> None:
    """The look-alikes, with the same program."""
    assert deregistered_at_crash(crashed(run, *native, **more)) is None


def test_exception_without_a_frame_of_the_program_is_none(run: Path) -> None:
    """Only frames of libraries are left."""
    view = crashed(run, *LOOKS_UP)
    frame = PythonFrame(function="OpOverload.__call__", file=f"{TORCH}/_ops.py", line=875)
    assert deregistered(view.process.snapshot, [frame]) is None
