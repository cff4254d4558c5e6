"""A limit of memory of the program's own: what decided that a line killed a process, and the limit's value.

`if job.memory_info().rss > limit`, and where a variable has what was measured: `used > mem_mb`, of a sum over a dict
that a loop fills. What only leaves the function or the round before the line decides as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened, size_words
from pytracer.analyze.evidence.ports.numbers import Ports
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import holds, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, parameters
from pytracer.analyze.kin import parent_of
from pytracer.analyze.naming import name_words
from pytracer.analyze.view import JobView, ProcessView, RecordedSender
from pytracer.report.job import Evidence, PythonFrame

# What measures memory of a process, a group of them, or the machine: psutil, resource, /proc and cgroups.
_MEASURES = Pattern(
    r"memory_(?:full_)?info|memory_percent|(?:virtual|swap)_memory|maxrss|\b(?:rss|pss|uss|vms)\b|vmrss|meminfo|"
    r"\bstatm\b|smaps|memory\.(?:current|usage_in_bytes|peak|stat)",
    re.IGNORECASE,
)
_FILLS = frozenset({"append", "add", "extend", "update", "setdefault"})
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_HOPS, _QUOTED, _PEAKS = 6, 40, 4


class MemoryLimit(msgspec.Struct, frozen=True):
    """`test`: of line `line`; `limit`: what it compares with, of `value` where that is known, by `option`."""

    test: str | None
    line: int | None
    limit: str | None = None
    value: int | None = None
    option: str | None = None

    def words(self, condition: str | None) -> str:
        """`` , where `used > mem_mb` holds (line 67, `mem_mb` is 1300) ``; `condition`: the words for the innermost."""
        known = self.limit is not None and self.value is not None and self.limit != str(self.value)
        value = f", `{self.limit}` is {self.value}" if known else ""
        if condition is not None and (self.line is None or condition.endswith(f"(line {self.line})")):
            return f", {condition[:-1]}{value})" if condition.endswith(")") else f", {condition}{value}"
        return f", for a limit of memory (`{self.test}`, line {self.line}{value})"

    @property
    def raising(self) -> str:
        """What may be raised: ``the limit, `--mem` (1300)``."""
        named = self.option or self.limit
        value = f" ({self.value})" if self.value is not None and named != str(self.value) else ""
        return f"the limit, `{named}`{value}" if named is not None else "the limit"


def memory_limit(sent: RecordedSender) -> MemoryLimit | None:
    """Of the line of the program that sent a signal; None where no condition about memory decided that."""
    found = [PythonFrame(function=item.function, file=item.file, line=item.line) for item in sent.send.stack]
    frames = [item for item in found if not is_library_file(item.file)]
    slice_ = Slice(sent.sender.snapshot, frames)
    for depth in range(len(frames)):
        spot = slice_.spot(depth)
        if spot is None:
            return None
        for item, _ in deciding_ifs(spot.tree, spot.line):
            limit = _limit(sent, slice_, item, _at_line(spot, item.lineno))
            if limit is not None:
                return limit
    return None


def most_memory(view: ProcessView) -> int | None:
    """The most bytes that it had in RAM, as the kernel counted for whoever reaped it; None where that is not known."""
    usage = view.process.usage
    return usage.maxrss or None if usage is not None else None


def peak_evidence(job: JobView, view: ProcessView) -> tuple[Evidence, ...]:
    """The peak of a killed process, and of other workers of its DataLoader."""
    parent = parent_of(job, view)
    kin = [item for item in job.views if item.process.role == view.process.role and parent_of(job, item) is parent]
    is_worker = view.process.snapshot.worker is not None and parent is not None
    return tuple(
        Evidence(
            "memory-use",
            f"{name_words([item])} had up to {size_words(most)} in RAM, shared pages included",
            pid=item.process.snapshot.pid,
            rank=item.process.rank,
            nbytes=most,
        )
        for item in [view, *(item for item in kin if is_worker and item is not view)][:_PEAKS]
        if (most := most_memory(item)) is not None
    )


def _at_line(spot: Spot, line: int) -> Spot:
    """The same function, at another line."""
    return replace(spot, line=line)


def _limit(sent: RecordedSender, slice_: Slice, item: ast.If, spot: Spot) -> MemoryLimit | None:
    measured = _Measured(slice_)
    text = shortened(ast.unparse(item.test), _QUOTED)
    for part in nodes_of(item.test):
        if isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], _ORDERS):
            sides = (part.left, part.comparators[0])
            by_memory = [measured.has(side, spot) for side in sides]
            if by_memory.count(True) == 1:
                limit = sides[by_memory.index(False)]
                value = Ports(slice_, sent.sender.snapshot, None).number(limit, spot)
                return MemoryLimit(
                    text, item.lineno, shortened(ast.unparse(limit), _QUOTED), value, _option(slice_, limit, spot)
                )
    calls = any(isinstance(part, ast.Call) and measured.has(part, spot) for part in nodes_of(item.test))
    return MemoryLimit(text, item.lineno) if calls else None


def _option(slice_: Slice, node: ast.expr, spot: Spot) -> str | None:
    """`--mem`, of `args.mem`."""
    made = slice_.made(node, spot, calls=True).node
    if not isinstance(made, ast.Call) or called_name(made) != "add_argument":
        return None
    names = [item.value for item in made.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    return next((item for item in names if item.startswith("--")), None)


class _Measured:
    """Whether an expression is made of what measures memory, through variables, items and functions of its file."""

    def __init__(self, slice_: Slice) -> None:
        self._slice = slice_
        self._seen: set[tuple[int, str, str | None]] = set()

    def has(self, node: ast.AST, spot: Spot, hops: int = _HOPS, key: str | None = None) -> bool:
        """`key`: the item or attribute of it that is meant."""
        return any(self._has(part, spot, hops, key) for part in _picked(node, key))

    def _has(self, node: ast.AST, spot: Spot, hops: int, key: str | None) -> bool:
        if _MEASURES.search(ast.unparse(node)):
            return True
        return hops > 0 and any(
            self.has(value, at, hops - 1, part) for value, at, part in self._behind(node, spot, key)
        )

    def _behind(self, node: ast.AST, spot: Spot, key: str | None) -> Iterator[tuple[ast.AST, Spot, str | None]]:
        for part, item in _read(node):
            if isinstance(part, ast.Call):
                for value, at in self._returned(part, spot):
                    yield value, at, key if part is node else item
            name = variable(part)
            if name is None or (id(spot.scope), name, item) in self._seen:
                continue
            self._seen.add((id(spot.scope), name, item))
            given = self._slice.argument(name, spot) if name in parameters(spot.scope) else None
            if given is not None:
                yield *given, item
            owner = class_around(spot.tree, spot.scope) if name.startswith("self.") else None
            for value in _put_into(owner if owner is not None else spot.scope, name, item):
                yield value, spot, item

    def _returned(self, call: ast.Call, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
        found = self._slice.function(call, spot)
        for item in own_nodes(found[0]) if found is not None else ():
            if isinstance(item, ast.Return) and item.value is not None and found is not None:
                yield item.value, replace(found[1], scope=found[0], line=item.lineno, depth=None, call=(call, spot))


def _picked(node: ast.AST, key: str | None) -> list[ast.AST]:
    """Of `{"rss": a, "age": b}` and `Sample(rss=a, age=b)` the part of that name."""
    if key is None:
        return [node]
    if isinstance(node, ast.Dict):
        return [value for name, value in zip(node.keys, node.values, strict=True) if _may_be(name, key)]
    named = [item for item in node.keywords if item.arg is not None] if isinstance(node, ast.Call) else []
    return [item.value for item in named if item.arg == key] if named else [node]


def _may_be(name: ast.expr | None, key: str | None) -> bool:
    return key is None or not isinstance(name, ast.Constant) or name.value == key


def _read(node: ast.AST) -> Iterator[tuple[ast.AST, str | None]]:
    """Its parts, each with the item or attribute of it that is read; nothing of the number of its items."""
    if isinstance(node, ast.Call) and called_name(node) == "len":
        return
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        yield node.value, node.slice.value
        return
    if isinstance(node, ast.Attribute) and variable(node) is None and variable(node.value) is not None:
        yield node.value, node.attr
        return
    yield node, None
    for item in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.Call) and item is node.func and isinstance(item, ast.Name)):
            yield from _read(item)


def _put_into(scope: ast.AST, name: str, key: str | None) -> Iterator[ast.AST]:
    """What the variable is bound to, goes through, or is filled with; of one of its items, what may be that."""
    for item in nodes_of(scope) if isinstance(scope, ast.ClassDef) else own_nodes(scope):
        for target, value in set_by(item):
            if value is not None and (variable(target) == name or _is_item(target, name, key)):
                yield value
        if isinstance(item, ast.AugAssign) and (variable(item.target) == name or _is_item(item.target, name, key)):
            yield item.value
        if isinstance(item, (ast.For, ast.AsyncFor)) and holds(item.target, name):
            yield item.iter
        if isinstance(item, (ast.With, ast.AsyncWith)):
            yield from (part.context_expr for part in item.items if _names(part.optional_vars, name))
        fills = isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in _FILLS
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and fills:
            yield from item.args if variable(item.func.value) == name else ()


def _is_item(target: ast.expr, name: str, key: str | None) -> bool:
    """`tasks[pid]`, `sample.rss`."""
    if isinstance(target, ast.Subscript):
        return variable(target.value) == name and _may_be(target.slice, key)
    return isinstance(target, ast.Attribute) and variable(target.value) == name and key in (None, target.attr)


def _names(target: ast.expr | None, name: str) -> bool:
    return target is not None and variable(target) == name
