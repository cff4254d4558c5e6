"""The line of the program that sets a limit: its only `resource.setrlimit(resource.RLIMIT_AS, ...)`, or the last.

Or the one that sets it by a table: `for name, value in LIMITS.items(): resource.setrlimit(KINDS[name], ...)`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.limits.numbers import ADDRESS_SPACE, CPU, DATA, FILE_SIZE, FILES, STACK, USER_THREADS
from pytracer.analyze.evidence.limits.tables import Tabled, tabled
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import constant_number
from pytracer.analyze.evidence.syntax.names import elements, last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of, spans_body
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

RESOURCES = {
    ADDRESS_SPACE: "RLIMIT_AS", DATA: "RLIMIT_DATA", FILES: "RLIMIT_NOFILE", FILE_SIZE: "RLIMIT_FSIZE",
    CPU: "RLIMIT_CPU", USER_THREADS: "RLIMIT_NPROC", STACK: "RLIMIT_STACK",
}  # fmt: skip
_QUOTED = 90
_INFINITY = "INFINITY"


class Setter(msgspec.Struct, frozen=True):
    """`place`: `line 50`, or `worker.py:12` in another file than that of the stack's innermost frame.

    `sure`: whether it sets that limit when it runs; otherwise it sets one of several, of which that is one.
    """

    place: LineWords
    text: str
    sure: bool = True

    @property
    def frame(self) -> PythonFrame:
        """For the lines of code that are shown."""
        return PythonFrame(file=self.place.file, line=self.place.line)

    @property
    def words(self) -> str:
        """`line 50`, `perhaps set at line 50`."""
        return self.place if self.sure else f"perhaps set at {self.place}"


class _Call(msgspec.Struct, frozen=True):
    """`table`: by which it sets that limit; None where it names the limit itself."""

    file: str
    call: ast.Call
    tree: ast.Module
    table: Tabled | None = None


def setter_of(
    snapshot: Snapshot, frames: Sequence[PythonFrame], name: str, limit: int | None, here: str | None
) -> Setter | None:
    """None where the program sets that limit at several lines, or to another number than was in force.

    `limit`: the number; None where it is not known: any that is one.
    `here`: the file that the sentence names; None where it names none.
    """
    found = possible_setter(snapshot, frames, name, limit, here)
    return found if found is not None and found.sure else None


def possible_setter(
    snapshot: Snapshot, frames: Sequence[PythonFrame], name: str, limit: int | None, here: str | None
) -> Setter | None:
    """Also one that sets one of several limits, where no other line sets that one."""
    found = _calls(snapshot, frames, name)
    surely = [item for item in found if item.table is None or item.table.sure]
    chosen = surely or found
    if len(chosen) != 1:
        return None
    call, tree, table = chosen[0].call, chosen[0].tree, chosen[0].table
    numbers = [constant_number(part, tree) for part in elements(call.args[-1])] if table is None else [table.number]
    if numbers and None not in numbers and limit is not None and limit not in numbers:
        return None
    if limit is None and _INFINITY in ast.unparse(call):
        return None
    return _setter(chosen[0].file, call, here, sure=table is None or table.sure)


def setting_lines(
    snapshot: Snapshot, frames: Sequence[PythonFrame], name: str, here: str | None
) -> tuple[LineWords, ...]:
    """All that surely set that limit, whatever the number."""
    found = [item for item in _calls(snapshot, frames, name) if item.table is None or item.table.sure]
    at = sorted({(item.file != here, item.file, item.call.lineno) for item in found})
    return tuple(line_in(file, line, here) for _, file, line in at)


def setter_before(
    snapshot: Snapshot, stack: Sequence[PythonFrame], name: str, here: str | None
) -> tuple[Setter, int | None] | None:
    """The one that ran before the innermost frame's line, in its function, with its number where that is a constant.

    None where a condition is around it alone, where another one ran before, or where another function sets that limit.
    """
    frame = next(iter(stack), None)
    tree = syntax_tree(snapshot, frame)
    if frame is None or frame.line is None or tree is None:
        return None
    scope, found = scope_of(tree, frame.line), _calls(snapshot, stack, name)
    if isinstance(scope, ast.Module) or any(
        item.file != frame.file or item.table is not None or scope_of(item.tree, item.call.lineno) is not scope
        for item in found
    ):
        return None
    before = [item.call for item in found if item.call.lineno < frame.line]
    if len(before) != 1 or _INFINITY in ast.unparse(before[0]) or not _ran(scope, before[0], frame.line):
        return None
    soft = next(iter(elements(before[0].args[-1])))
    return _setter(frame.file or "", before[0], here), constant_number(soft, tree)


def _ran(scope: Scope, call: ast.Call, line: int) -> bool:
    """Whether it is a statement before the line, or before what is around the line: nothing skips it alone."""
    for item in (scope, *own_nodes(scope)):
        for body in (getattr(item, field, None) for field in ("body", "orelse", "finalbody")):
            if not isinstance(body, list) or not spans_body(body, line):
                continue
            if any(isinstance(part, ast.Expr) and part.value is call and part.lineno < line for part in body):
                return True
    return False


def _setter(file: str, call: ast.Call, here: str | None, *, sure: bool = True) -> Setter:
    return Setter(line_in(file, call.lineno, here), shortened(ast.unparse(call), _QUOTED), sure)


def _calls(snapshot: Snapshot, frames: Sequence[PythonFrame], name: str) -> list[_Call]:
    """Each line of the program that sets that limit, or may."""
    resource = RESOURCES.get(name)
    files = program_files(snapshot, frames) if resource is not None else {}
    found: list[_Call] = []
    for file, tree in files.items() if resource is not None else ():
        for item in nodes_of(tree):
            if not isinstance(item, ast.Call) or called_name(item) not in ("setrlimit", "prlimit"):
                continue
            if any(last_name(part) == resource for part in item.args):
                found.append(_Call(file, item, tree))
            elif resource is not None and (table := tabled(item, tree, files.values(), resource)) is not None:
                found.append(_Call(file, item, tree, table))
    return found
