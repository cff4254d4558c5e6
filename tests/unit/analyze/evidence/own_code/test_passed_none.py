"""None that a line passes for a pointer: said where nothing else of the line can be it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.snapshot import HeldNumber, PythonFrame
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary, verdict

pytestmark = needs_capstone

FIRST, LATER = bytes.fromhex("488b87d0000000"), bytes.fromhex("488b80d0000000")  # mov rax, [rdi or rax + 0xd0]
TORCH_PYTHON = f"{s.TORCH}/lib/libtorch_python.so"
BINDING = [(TORCH_PYTHON, "pybind11::cpp_function::dispatcher(_object*, _object*, _object*)"), (s.PYTHON, "call")]
METHODS = [(s.TORCH_CPU, "torch::jit::Node::maybeOperator() const"), (s.TORCH_CPU, "torch::jit::Node::maybeSchema()")]
FFI = [("/usr/lib/libffi.so.8", "ffi_call_unix64"), ("/usr/lib/python3.11/_ctypes.cpython-311.so", "call")]
FIND = "node = graph.findNode(kind)\nshape = torch._C._shapes(node)\n"


def crashed(
    run: Path, source: str, stack: list[Any], *, code: bytes = FIRST, numbers: tuple[str, ...] = ()
) -> tuple[str, str]:
    """Headline and advice of a null pointer in what the last line calls."""
    file = run / "train.py"
    file.write_text(source, encoding="utf-8")
    os.utime(file, (0, 0))
    line, caller = source.count("\n"), (s.PYTHON, "_PyEval_EvalFrameDefault")
    frame = PythonFrame("<module>", str(file), line)
    report = died(
        run, addr=0xD0, stack_of=[*stack, caller], python=[("<module>", str(file), line)],
        registers={"rdi": 0, "rax": 0, "trapno": 14}, code_bytes=code, mappings=[PROGRAM],
        numbers=tuple(HeldNumber(name, 4, frame, 0) for name in numbers),
    )  # fmt: skip
    assert verdict(report)[0] == "null-dereference"
    return summary(report), advice(report)


def test_result_of_a_search_that_found_nothing(run: Path) -> None:
    told, then = crashed(run, FIND, [*METHODS, *BINDING])
    assert told.endswith(": `node`, which line 2 passes, is None (line 1: `node = graph.findNode(kind)`).")
    assert then.startswith(
        "Test `node` for None before line 2 passes it: `graph.findNode(kind)` at line 1 returns None where it finds "
    )


def test_function_of_the_program_that_ends_without_a_value(run: Path) -> None:
    source = "def pick(nodes):\n    for n in nodes:\n        return n\nnode = pick(graph)\nlib.run(node)\n"
    _, then = crashed(run, source, [("/usr/lib/libc.so.6", "getc"), *FFI])
    assert "pick() ends without a value at line 3" in then


def test_attribute_that_only_none_was_set_to(run: Path) -> None:
    """The source alone shows it: in whatever register the pointer is."""
    source = "node = None\nlib.run(node)\n"
    told, then = crashed(run, source, [*METHODS, *BINDING], code=LATER)
    assert "is None (line 1: `node = None`)" in told and then.startswith("Set `node` before line 2")


@pytest.mark.parametrize(
    ("source", "stack", "how"),
    [
        (FIND, [*METHODS, *BINDING], {"code": LATER}),
        (FIND, [(s.TORCH_CPU, "torch::jit::run()"), *METHODS, *BINDING], {}),
        (FIND, METHODS, {}),
        (FIND.replace("(node)", "(node, graph)"), [*METHODS, *BINDING], {}),
        (FIND.replace("(node)", "(3, node)"), [METHODS[0], *FFI], {}),
        (FIND, [*METHODS, *BINDING], {"numbers": ("node",)}),
        (FIND.replace("graph.findNode(kind)", "Node(kind)"), [*METHODS, *BINDING], {}),
        ("def pick(g):\n    return g.first\nnode = pick(g)\nlib.run(node)\n", [*METHODS, *BINDING], {}),
    ],
    ids=["loaded later", "inner call", "no binding", "two", "another argument", "a number", "a class", "a value"],
)
def test_another_pointer_may_be_the_null_one(source: str, stack: list[Any], how: dict[str, Any], run: Path) -> None:
    assert "is None" not in crashed(run, source, stack, **how)[0]
