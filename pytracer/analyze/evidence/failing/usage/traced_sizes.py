"""A module of torch.jit.trace() that is called with another size than its example.

A trace keeps what Python computed as a constant: a buffer made of plain numbers, the number of rounds of a loop. The
message has the program's own line, and the line that traced it.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import names_in, source, whole
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import Shape
from pytracer.analyze.evidence.slicing.bindings import last_binding
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of, statement_at
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.report.job import PythonFrame

_INTERPRETED = "The following operation failed in the TorchScript interpreter."
_FRAME = Pattern(r"^(/\S[^\n]*?)\((\d+)\): (\S+)$", re.MULTILINE)
_TRACER = Pattern(r"torch/jit/_trace\.py$")
_PAIR = Pattern(
    r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at"
    r"|expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\) at"
)
_VIEW = Pattern(r"shape '\[([-\d, ]+)\]' is invalid for input of size (\d+)")
_INDEX = Pattern(r"index (\d+) (?:is )?out of (?:range|bounds) (?:for|at) .*?\b(?:size \[?|with size )(\d+)")
_PLAIN_CLASSES = frozenset({
    "FloatTensor", "DoubleTensor", "HalfTensor", "LongTensor", "IntTensor", "BoolTensor", "ByteTensor", "Tensor",
    "tensor",
})  # fmt: skip
_MAKERS = frozenset({
    "zeros", "ones", "empty", "full", "rand", "randn", "arange", "linspace", "eye", "new_zeros", "new_ones",
    "new_empty", "new_full", "expand", "repeat", "view", "reshape",
})  # fmt: skip
_TO_PYTHON = frozenset({"len", "int", "float", "round", "item", "tolist", "ceil", "floor"})
_LEVELS = 6
_TEXT = 56


class _Baked(msgspec.Struct, frozen=True):
    """What the trace has as a constant: `name` of it, where there is one, and the line that computed it."""

    frame: PythonFrame
    text: str
    name: str | None


def traced_size(at: FailingLine) -> str | None:
    """The constant, the line that traced it, and the input that has another size."""
    found = _found(at)
    return found[1] if found is not None else None


def traced_subject(at: FailingLine) -> str | None:
    """What the headline says of it."""
    found = _found(at)
    return found[0] if found is not None else None


def _found(at: FailingLine) -> tuple[str, str] | None:
    frames = [
        PythonFrame(function=item[3], file=item[1], line=int(item[2])) for item in _FRAME.finditer(at.message)
    ] if _INTERPRETED in at.message else []  # fmt: skip
    tracer = next((n for n, item in enumerate(frames) if _TRACER.search(item.file or "")), None)
    if tracer is None or is_library_file(frames[0].file):
        return None
    inner = frames[0]
    traced = next((item for item in frames[tracer:] if not is_library_file(item.file)), None)
    tree, text = syntax_tree(at.snapshot, inner), line_text(at.snapshot, inner)
    if tree is None or text is None or inner.line is None:
        return None
    scope = scope_of(tree, inner.line)
    by = f"torch.jit.trace() ({at.at(traced)})" if traced is not None else "torch.jit.trace()"
    index = _INDEX.search(at.message)
    if index is not None:
        return _unrolled(at, inner, scope, by, index)
    kept = next(_baked(scope, inner, text), None)
    pair = _pair(at)
    return _constant(at, kept, by, *pair) if kept is not None and pair is not None else None


def _constant(at: FailingLine, kept: _Baked, by: str, old: int, given: tuple[str, Shape, int]) -> tuple[str, str]:
    name, shape, new = given
    place = at.at(kept.frame)
    what = (
        f"`{kept.name}` ({place}) at the size {old} of its example" if kept.name else f"the size {old} of its example"
    )
    subject = f"the trace kept {what}, and `{name}` {shape.words} has {new}"
    return subject, (
        f"{by} kept the {old} that {place} (`{_short(kept.text)}`) computed in Python as a constant, and line "
        f"{at.line} passes `{name}` {shape.words}. Make it under trace from the input (`x.new_zeros(...)`, "
        "torch.zeros() with x.shape[0]), not by int(), len() or FloatTensor(); or use torch.jit.script(), or a trace "
        "for each size."
    )


def _unrolled(
    at: FailingLine, inner: PythonFrame, scope: Scope, by: str, index: re.Match[str]
) -> tuple[str, str] | None:
    """The rounds of a loop over a size are those of the example."""
    around = [
        item
        for item in own_nodes(scope)
        if isinstance(item, ast.For) and item.lineno <= (inner.line or 0) <= (item.end_lineno or 0)
        if _of_input(scope, item.iter, item.lineno)
    ]
    if not around or int(index[1]) < int(index[2]):
        return None
    loop = max(around, key=lambda item: item.lineno)
    place = at.at(PythonFrame(function=None, file=inner.file, line=loop.lineno))
    head = f"for {source(loop.target)} in {source(loop.iter)}"
    words = (
        f"{by} wrote the loop of {place} (`{head}`) out with the rounds of its example, which take item {index[1]} "
        f"(counted from 0) where there are {index[2]} now, at line {at.line}. Replace the loop by operations on the "
        "whole tensor, put it into a function with @torch.jit.script (or script the module), or make one trace for "
        "each size."
    )
    subject = (
        f"the trace kept the rounds that the loop of {place} had for its example, and there are {index[2]} items now"
    )
    return subject, words


def _of_input(scope: Scope, node: ast.AST, line: int, levels: int = _LEVELS) -> bool:
    """Whether an expression of Python numbers comes from the size of a tensor: `range(x.size(0))`, `range(n)`."""
    for item in nodes_of(node):
        if isinstance(item, ast.Attribute) and item.attr == "shape":
            return True
        if isinstance(item, ast.Call) and called_name(item) in ("size", "len", "numel"):
            return True
    return levels > 0 and any(
        value is not None and _of_input(scope, value, bound, levels - 1) for bound, value in _bound(scope, node, line)
    )


def _bound(scope: Scope, node: ast.AST, line: int) -> Iterator[tuple[int, ast.AST | None]]:
    """The lines above that set what an expression reads; of `a, b = x, y` the part."""
    for name in names_in(node):
        found = last_binding(scope, name, line)
        if found is not None:
            value = found[1]
            if found[2] is not None and isinstance(value, ast.Tuple) and found[2] < len(value.elts):
                value = value.elts[found[2]]
            yield found[0], value


def _python_number(scope: Scope, node: ast.AST, line: int, name: str = "") -> tuple[int, str] | None:
    """Where a size is handed through int(), len() or the like, which a trace does not follow."""
    if any(isinstance(item, ast.Call) and called_name(item) in _TO_PYTHON for item in nodes_of(node)):
        return (line, f"{name} = {ast.unparse(node)}" if name else "") if _of_input(scope, node, line) else None
    for inner in names_in(node):
        for bound, value in _bound(scope, ast.Name(inner), line):
            found = _python_number(scope, value, bound, inner) if value is not None and bound < line else None
            if found is not None:
                return found
    return None


def _baked(scope: Scope, inner: PythonFrame, text: str) -> Iterator[_Baked]:
    """What the line makes itself, then what made its operands."""
    line = inner.line or 0
    statement = statement_at(scope, line)
    if statement is None or isinstance(statement, (ast.For, ast.While, ast.If, ast.With)):
        return
    names = _read(statement)
    if any(name.startswith("self.") for name in names):
        return  # a weight or table of the module may be what has the size
    made = _made_constant(scope, statement, line)
    if made is not None:
        yield _Baked(PythonFrame(function=inner.function, file=inner.file, line=made[0]), made[1] or text, None)
    for name in names:
        found = last_binding(scope, name, line)
        if found is not None and found[1] is not None and _made_constant(scope, found[1], found[0]) is not None:
            written = f"{name} = {ast.unparse(found[1])}"
            yield _Baked(PythonFrame(function=inner.function, file=inner.file, line=found[0]), written, name)


def _short(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 3]}..."


def _read(statement: ast.stmt) -> list[str]:
    """Also `output` of `output[i] = x`."""
    found = dict.fromkeys(names_in(statement))
    for item in nodes_of(statement):
        if isinstance(item, ast.Subscript):
            found |= dict.fromkeys(names_in(item.value))
    return [*found]


def _made_constant(scope: Scope, node: ast.AST, line: int) -> tuple[int, str] | None:
    """`torch.FloatTensor(n, m)` with sizes of a tensor; `x.view(int(n), -1)`, `torch.arange(len(x))`."""
    for item in nodes_of(node):
        if not isinstance(item, ast.Call):
            continue
        name = called_name(item)
        if name in _PLAIN_CLASSES and any(_of_input(scope, part, line) for part in item.args):
            return line, ""
        for part in item.args if name in _MAKERS else ():
            found = _python_number(scope, part, line)
            if found is not None:
                return found
    return None


def _pair(at: FailingLine) -> tuple[int, tuple[str, Shape, int]] | None:
    """The size that no input has, and the input with the other one."""
    found = _PAIR.search(at.message)
    if found is not None:
        one, other = (int(item) for item in found.groups() if item is not None)
        return _given(at, one, other) or _given(at, other, one)
    view = _VIEW.search(at.message)
    if view is None:
        return None
    wanted, size = [int(item) for item in view[1].split(",")], int(view[2])
    for n, old in enumerate(wanted):
        rest = math.prod(item for m, item in enumerate(wanted) if m != n)
        if old > 0 and rest > 0 and size % rest == 0 and size // rest != old:
            pair = _given(at, old, size // rest)
            if pair is not None:
                return pair
    return None


def _given(at: FailingLine, old: int, new: int) -> tuple[int, tuple[str, Shape, int]] | None:
    shapes = {name: shape for name, shape in _passed(at).items() if new in shape.sizes}
    if old == new or not shapes or any(old in shape.sizes for shape in _passed(at).values()):
        return None
    name = next(iter(shapes))
    return old, (name, shapes[name], new)


def _passed(at: FailingLine) -> dict[str, Shape]:
    """The tensors that the failing line calls the traced module with; also what it makes in place."""
    found = dict(at.shapes)
    for item in nodes_of(at.node) if at.node is not None else ():
        if isinstance(item, ast.Call) and called_name(item) in ("rand", "randn", "zeros", "ones"):
            sizes = [_number(at, part) for part in item.args]
            known = [size for size in sizes if size is not None]
            if known and len(known) == len(sizes):
                found[source(item)] = Shape(tuple(known), "")
    return found


def _number(at: FailingLine, node: ast.expr) -> int | None:
    value = at.value(node)
    return whole(node) if value is None else int(value) if value.isdigit() else None
