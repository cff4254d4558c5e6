"""The address that a function of the program returned, of a tensor or an array of its own, which ended with it.

By the lines that made and freed the memory: the one in that function, the other where it returned. Of a NumPy array,
whose memory is not recorded, by the source of what the failing line passes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import own_line, place_of
from pytracer.analyze.evidence.own_code.native_calls import Uses, parents_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, passed_values
from pytracer.analyze.evidence.syntax.lost_owners import LostOwner, Named, address_taken, lost_owner
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import function_named, scope_of, spans
from pytracer.analyze.naming import LineWords
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import CallSite
from pytracer.report.job import PythonFrame

_QUOTED = 60
_MAY_COPY = frozenset(
    ("contiguous", "to", "float", "double", "half", "long", "int", "cpu", "reshape", "flatten", "ascontiguousarray")
    + ("asarray", "ravel", "require")
)
# Of NumPy and torch: what always makes memory of its own.
_COPIES = frozenset({"copy", "astype", "array", "clone", "zeros", "ones", "empty", "full", "concatenate", "stack"})


class ReturnedAddress(msgspec.Struct, frozen=True):
    """`function` returned, at `returned`, the address of `owner` (`made`, with its text). `called`: by which line.

    `call`: that call, and `again`: how its line takes the address of what it holds; None where more is returned.
    """

    function: str
    owner: str
    is_variable: bool
    made: LineWords
    returned: LineWords
    called: LineWords | None
    call: str | None
    again: str | None
    may_copy: bool

    @property
    def summary(self) -> str:
        """Behind the headline."""
        called = f" (called at {self.called})" if self.called is not None else ""
        own = f"its own `{self.owner}`" if self.is_variable else f"`{self.owner}`, a temporary"
        return (
            f"{self.function}(){called} returned only the address of {own} ({self.made}), which was freed when it "
            "returned"
        )

    @property
    def advice(self) -> str:
        """The change to make."""
        also = "" if self.call is not None else ", too"
        held = f" (`held = {self.call}`)" if self.call is not None else ""
        at = f" at {self.called}" if self.called is not None else ""
        passed = f", and pass `{self.again}`" if self.again is not None else ""
        copies = (
            " Where nothing is to be copied or converted, it is what the function was given, which its caller holds, "
            "so that the same call works."
            if self.may_copy
            else ""
        )
        return (
            f"Let {self.function}() return `{self.owner}`{also} ({self.returned}), keep it in a variable{at}{held} "
            f"until native code has returned{passed}: an address keeps no tensor and no array alive.{copies}"
        )


class PassedTemporary(msgspec.Struct, frozen=True):
    """`owner` (`x.T.copy()`), whose address the failing line passes: an array that ends before the call."""

    owner: str
    taken: str
    line: LineWords

    @property
    def summary(self) -> str:
        """Behind the headline."""
        return f"the address that {self.line} passes is of `{self.owner}`, a temporary that ends before the call"

    @property
    def advice(self) -> str:
        """The change to make."""
        return (
            f"Hold it in a variable before {self.line} (`held = {self.owner}`), and pass held.{self.taken}: an address "
            "keeps no array alive."
        )


def returned_address(view: ProcessView) -> ReturnedAddress | None:
    """Of the freed storage at the fault; None where no such function made it, or it was freed elsewhere."""
    storage = view.place.storage if view.place is not None else None
    freed = own_line(storage.freed_by) if storage is not None and storage.freed_by is not None else None
    if storage is None or freed is None or freed.line is None:
        return None
    for file, lost in _makers(view, storage.allocated_by):
        name = lost.function.name
        if freed.file == file and spans(lost.returned, freed.line):
            at, call = _caller(view, name)
            return _returned(view, file, lost, at, call)
        tree = syntax_tree(view.process.snapshot, PythonFrame(file=freed.file, line=freed.line))
        calls = [item for item in calls_on(tree, freed.line) if called_name(item) == name] if tree is not None else []
        if calls:
            return _returned(view, file, lost, place_of(view, freed.file, freed.line), calls[0])
    return None


def dangling_argument(view: ProcessView) -> ReturnedAddress | PassedTemporary | None:
    """Of what the failing line passes by its source alone: the only address of memory that had ended."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if frame is None or tree is None or frame.line is None:
        return None
    files = program_files(view.process.snapshot, program_frames(view))
    found: dict[str, ReturnedAddress | PassedTemporary] = {}
    for value, line in _passed(tree, frame.line):
        place = place_of(view, frame.file, line)
        for node in nodes_of(value):
            taken = address_taken(node)
            if taken is not None and line == frame.line and _copies(taken[0]):
                text = shortened(ast.unparse(taken[0]), _QUOTED)
                found.setdefault(text, PassedTemporary(text, taken[1], place))
            elif isinstance(node, ast.Call):
                for file, lost in _losing(files, called_name(node)):
                    found.setdefault(lost.function.name, _returned(view, file, lost, place, node))
    return next(iter(found.values())) if len(found) == 1 else None


def _makers(view: ProcessView, site: CallSite) -> Iterator[tuple[str, LostOwner]]:
    """The functions around the lines that made a storage, innermost first, that return its address."""
    for item in (site.caller, site.python, *site.stack):
        frame = PythonFrame(file=item.file, line=item.line) if item is not None else None
        tree = syntax_tree(view.process.snapshot, frame)
        scope = scope_of(tree, frame.line) if tree is not None and frame is not None and frame.line else None
        lost = lost_owner(scope) if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
        if lost is not None and frame is not None and frame.file and frame.line and spans(lost.made, frame.line):
            yield frame.file, lost


def _caller(view: ProcessView, function: str) -> tuple[LineWords | None, ast.Call | None]:
    """The failing line, if it calls the function."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    calls = calls_on(tree, frame.line) if tree is not None and frame is not None and frame.line else []
    call = next((item for item in calls if called_name(item) == function), None)
    return (place_of(view, frame.file, frame.line), call) if call is not None and frame is not None else (None, None)


def _passed(tree: ast.Module, line: int) -> Iterator[tuple[ast.expr, int]]:
    """What the calls of a line pass, and what the variables among that were set to, each with its line."""
    scope = scope_of(tree, line)
    for call in calls_on(tree, line):
        for value in passed_values(call):
            yield value, line
            bound = lines_that_bind(scope, value.id) if isinstance(value, ast.Name) else []
            above = [item for item in bound if item[0] < line]
            if len(above) == 1 and isinstance(above[0][1], ast.expr):
                yield above[0][1], above[0][0]


def _losing(files: dict[str, ast.Module], name: str | None) -> Iterator[tuple[str, LostOwner]]:
    """The function of that name, if it keeps the owner of what it returns nowhere, and makes it in any case."""
    for file, tree in files.items():
        function = function_named(tree, name) if name is not None else None
        lost = lost_owner(function) if function is not None else None
        if lost is not None and not _keeps(tree, lost):
            yield file, lost


def _keeps(tree: ast.Module, lost: LostOwner) -> bool:
    if not lost.is_variable:
        return False
    return Uses(parents_of(tree), lambda _: False).keep(lost.function, lost.owner, _before(lost.function, lost))


def _before(function: Named, lost: LostOwner) -> range:
    """Lines that read another value of the variable: what it was made of."""
    return range(function.lineno, (lost.made.end_lineno or lost.made.lineno) + 1)


def _copies(owner: ast.expr) -> bool:
    """Whether an expression always makes memory of its own, or is a copy unless it fits as it is."""
    return isinstance(owner, ast.BinOp) or (isinstance(owner, ast.Call) and called_name(owner) in _COPIES | _MAY_COPY)


def _returned(
    view: ProcessView, file: str, lost: LostOwner, at: LineWords | None, call: ast.Call | None
) -> ReturnedAddress:
    made = place_of(view, file, lost.made.lineno)
    if lost.is_variable:
        made = made.then(f": `{shortened(ast.unparse(lost.made), _QUOTED)}`")
    names = {called_name(item) for item in nodes_of(lost.made) if isinstance(item, ast.Call)}
    return ReturnedAddress(
        lost.function.name,
        shortened(lost.owner, _QUOTED),
        lost.is_variable,
        made,
        place_of(view, file, lost.returned.lineno).then(f": `{shortened(ast.unparse(lost.returned), _QUOTED)}`"),
        at,
        shortened(ast.unparse(call), _QUOTED) if call is not None and lost.again is not None else None,
        lost.again if call is not None else None,
        bool(names & _MAY_COPY),
    )
