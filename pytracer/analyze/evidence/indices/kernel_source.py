"""The source of a kernel that inductor made, while it is still in its cache: which tensors a checked index is from.

The wrapper, a file of Python named for the hash of its content, holds the text of its kernels and the calls with the
tensors that they get: `cpp_fused_index_0(arg3_1, arg0_1, buf0, s27)`.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.lifetime.variables import python_frames
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import spans
from pytracer.analyze.view import ProcessView
from pytracer.decode.files import read_all, regular_file
from pytracer.decode.types.snapshot import PythonFrame

_WRAPPER = Pattern(r"/c[a-z2-7]{51}\.py$")
_LARGEST_BYTES = 4 << 20
_KERNEL = Pattern(r"\bkernel\(([^()]*)\)")
_DECLARED = Pattern(r"^\s*(?:const )?auto (tmp\d+) =(.*)$")
_NEXT = Pattern(r"^\s*(?:(?:const )?auto tmp\d+ =|TORCH_CHECK|AOTI_TORCH_CHECK)")
_VALUE, _POINTER = Pattern(r"\btmp\d+\b"), Pattern(r"\b(?:in_ptr|in_out_ptr|out_ptr)\d+\b")
_CHECK = Pattern(r"index out of bounds: .*?\b(tmp\d+) < (\w+)")
_SIZES = "assert_size_stride"
_AHEAD = 16  # lines from a check to the access that it is for


class CheckedIndex(msgspec.Struct, frozen=True):
    """Variables of the wrapper's call: which tensors the index is from, and which one it is for, if that is seen.

    `dimension`: of the table, where the limit is a variable of the kernel: its size is one that was not compiled in.
    """

    frame: PythonFrame
    indices: tuple[str, ...]
    table: str | None
    dimension: int | None = None


def checked_index(view: ProcessView, text: str) -> CheckedIndex | None:
    """Of the check that failed with `text`; None where the source is gone, or has no such check."""
    line = re.search(r":(\d+), index out of bounds", text)
    message = _CHECK.search(text)
    frame = next((item for item in python_frames(view) if _WRAPPER.search(item.file or "")), None)
    tree = _tree(frame) if frame is not None else None
    if line is None or message is None or frame is None or tree is None:
        return None
    for call in _calls_at(tree, frame.line or 0):
        source = _kernel(tree, ast.unparse(call.func))
        lines = source.splitlines() if source is not None else []
        at = int(line[1]) - 1
        if 0 <= at < len(lines) and message[0] in lines[at]:
            found = _checked(frame, lines, at, message[1], _passed(lines, call))
            size = _passed(lines, call).get(message[2])
            return _with_dimension(tree, found, size) if size is not None else found
    return None


def _passed(lines: Sequence[str], call: ast.Call) -> dict[str, str]:
    """What the wrapper passes for each parameter of the kernel."""
    signature = _KERNEL.search("\n".join(lines))
    names = [item.split()[-1].lstrip("*") for item in signature[1].split(",")] if signature is not None else []
    return dict(zip(names, map(ast.unparse, call.args), strict=False))


def _with_dimension(tree: ast.Module, found: CheckedIndex, size: str) -> CheckedIndex:
    """Which dimension of the table has that size, `assert_size_stride(arg4_1, (s70, 64), ...)`; or which tensor has."""
    places = [
        (ast.unparse(node.args[0]), place)
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == _SIZES and len(node.args) > 1
        for place, item in enumerate(getattr(node.args[1], "elts", ()))
        if ast.unparse(item) == size
    ]
    fit = [(tensor, place) for tensor, place in places if found.table in (None, tensor)]
    return structs.replace(found, table=fit[0][0], dimension=fit[0][1]) if len(fit) == 1 else found


def _checked(frame: PythonFrame, lines: Sequence[str], at: int, value: str, passed: Mapping[str, str]) -> CheckedIndex:
    chain, pointers = _origins(lines, at, value)
    table = _access(lines, at, chain)
    return CheckedIndex(
        frame,
        tuple(passed[item] for item in pointers if item in passed),
        passed.get(table) if table is not None else None,
    )


def _origins(lines: Sequence[str], at: int, value: str) -> tuple[set[str], list[str]]:
    """The variables that a value was computed from, and the arrays that they were read from."""
    chain, pointers, open_values = set[str](), dict[str, None](), [value]
    while open_values:
        name = open_values.pop()
        if name in chain:
            continue
        chain.add(name)
        made = _made(lines, at, name)
        found = _POINTER.findall(made)
        pointers.update(dict.fromkeys(found[:1]))
        if not found:  # what an array was read with is another index
            open_values += _VALUE.findall(made)
    return chain, list(pointers)


def _made(lines: Sequence[str], at: int, name: str) -> str:
    """The expression that a variable has at a line; one of vectors may be a block of several lines."""
    for place in range(at - 1, -1, -1):
        declared = _DECLARED.match(lines[place])
        if declared is not None and declared[1] == name:
            rest = itertools.takewhile(lambda text: _NEXT.match(text) is None, lines[place + 1 : at])
            return declared[2] if declared[2].rstrip().endswith(";") else "\n".join((declared[2], *rest))
    return ""


def _access(lines: Sequence[str], at: int, chain: set[str]) -> str | None:
    """The array that is read or written with one of the variables next."""
    for text in lines[at + 1 : at + 1 + _AHEAD]:
        found = _POINTER.search(text)
        if found is not None and chain & {*_VALUE.findall(text[found.end() :])}:
            return found[0]
    return None


def _tree(frame: PythonFrame) -> ast.Module | None:
    """The wrapper; its name is the hash of its content, so that a newer file is the same."""
    try:
        with regular_file(frame.file or "", _LARGEST_BYTES) as file:
            return ast.parse(read_all(file, _LARGEST_BYTES))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _calls_at(tree: ast.Module, line: int) -> Iterator[ast.Call]:
    """Of plain kernels: with variables alone, or views of them."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and spans(node, line):
            yield node


def _kernel(tree: ast.Module, name: str) -> str | None:
    """The text of a kernel by the wrapper's name of it: the last argument of the call that makes it."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and ast.unparse(node.targets[0]) == name:
            texts = [item for item in node.value.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
            return str(texts[-1].value) if texts else None
    return None
