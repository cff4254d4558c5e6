"""What stands in for a function of the program's libraries takes every call that this would take."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytracer.record

RECORD = Path(next(iter(pytracer.record.__path__)))
# Parameters by which the original is called, too: of the same name there, in every version that the wrapper is for.
_OF_THE_ORIGINAL = {
    "__call__": ["self", "grid", "block", "args"],  # of CuPy's kernels
    "capture_begin": ["pool"],
    "compile_kernel": ["kernel_source", "kernel_name"],
    "init_and_name": ["state", "root_module"],
    "record_function": ["new_inputs", "function_id"],
    "reduce_grad_in_scope": ["state", "handle"],
}


def _passing_on() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions that hand the keywords they are given to another one, with the file they are in."""
    for path in sorted(RECORD.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.args.kwarg is not None:
                name = node.args.kwarg.arg
                handed = (item for call in ast.walk(node) if isinstance(call, ast.Call) for item in call.keywords)
                if any(k.arg is None and isinstance(k.value, ast.Name) and k.value.id == name for k in handed):
                    yield path.name, node


def test_a_keyword_of_the_program_never_meets_a_name_of_ours() -> None:
    """`DistributedDataParallel(module=net)`: "got multiple values for argument 'module'", were it a name of ours."""
    found = list(_passing_on())
    assert len(found) > 10
    for file, node in found:
        named = [item.arg for item in node.args.args]
        assert named in ([], _OF_THE_ORIGINAL.get(node.name)), f"{file}:{node.lineno} {node.name}"
