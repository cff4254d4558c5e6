"""The lines of the program that made the values of one of its lines: a backward slice, for the reader's eye.

A line is taken where the source leaves no doubt that it gave the value, or one of two that may have done so. What is
changed in place between (`rows.append(x)`, `mask[i] = 0`) is taken as well. By syntax alone: nothing is run.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cached_property

import msgspec
from msgspec import structs

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.behind import Behind, Place
from pytracer.analyze.evidence.slicing.bearing import (
    IN_PLACE,
    hands_on,
    is_fresh,
    is_generator,
    is_literal,
    keeps_size,
    makes_no_value,
    names_not_read,
    names_that_place,
)
from pytracer.analyze.evidence.slicing.callers import only_call
from pytracer.analyze.evidence.slicing.code_lines import Shown, code_line, order
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import END, Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_fill
from pytracer.analyze.evidence.syntax.calls import LIBRARY_LOADERS, called_name
from pytracer.analyze.evidence.syntax.lines import attributes_of_line, names_of_line
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.names import names_of, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import ENTRY, UNKNOWN, reaching
from pytracer.analyze.evidence.syntax.scopes import (
    Scope,
    class_around,
    own_nodes,
    parameters,
    scope_of,
    spans,
    spans_body,
    statement_at,
)
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import CodeLine, PythonFrame

_MOST_LINES = 7  # beside the failing one
_MOST_LEVELS = 5
_FEW_LINES = 4
_MOST_LIKELY = 5
_MOST_UNKNOWN = 4  # where nothing is known of what is wrong
_LEVELS_FIRST = 3
_MOST_WAYS = 2  # lines of which one gave the value
_MOST_FILLS = 2
_MOST_SEEN = 64
_LIBRARIES = (*LIBRARY_LOADERS, "import_module")
_DEVICE = Pattern(r"(?:cuda|cpu|mps|xpu)(?::\d+)?")
_DEFINES = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class _Read(msgspec.Struct, frozen=True):
    """A variable that a place reads; `levels`: between it and the failing line. `first`: before others."""

    name: str
    spot: Spot
    levels: int
    first: bool = False


def lines_behind(
    snapshot: Snapshot, stack: Sequence[PythonFrame], made: Sequence[PythonFrame] = (), about: Behind | None = None
) -> list[CodeLine]:
    """Of the innermost line: oldest first, itself last; empty where its source is not here, or shows nothing more.

    Args:
        snapshot: The process that ran it: its sources count only as they were when it began.
        stack: The program's frames, innermost first.
        made: Lines that are on record as having made a value of the innermost one, followed after what it reads itself.
        about: What is wrong about that line; None where it may be anything that it reads.
    """
    walk = _Walk(snapshot, stack, about)
    spot = walk.back.spot(0)
    statement = statement_at(spot.tree, spot.line) if spot is not None else None
    if spot is None or statement is None:
        return []
    failing = _place(spot, statement)
    for place in about.lines if about is not None else ():
        walk.take_named(place, failing)
    test = _test_around(spot) if isinstance(statement, ast.Raise) and about is None else None
    if test is not None:
        walk.take(spot, test)
    names = _names(spot) if about is None or about.names is None else about.names
    walk.waiting.extend(_Read(name, spot, 0) for name in names)
    for (file, line), read in about.elsewhere if about is not None else ():
        other = _spot(snapshot, PythonFrame(file=file, line=line), stack)
        if other is not None:
            walk.waiting.extend(_Read(name, other, 0) for name in read)
    for frame in made:
        at = _spot(snapshot, frame, stack)
        inner = statement_at(at.tree, at.line) if at is not None else None
        if at is not None and inner is not None and not (at.file == spot.file and inner.lineno == statement.lineno):
            walk.take(at, inner)
            if about is not None and about.names is not None:
                continue  # of what it reads, the part that is at fault is followed by its name
            walk.waiting.extend(_Read(name, at, 1, first=True) for name in names_of_line(at.tree, at.line))
    walk.follow(failing)
    if not walk.found:
        return []
    found = sorted(walk.found.values(), key=lambda item: order(item, spot.file))
    return [*(code for _, code in found), code_line(snapshot, spot, statement)]


class _Walk:
    """From variable to variable, until there are enough lines."""

    def __init__(self, snapshot: Snapshot, stack: Sequence[PythonFrame], about: Behind | None) -> None:
        self.back = Slice(snapshot, stack)
        self.found: dict[Place, tuple[int | None, CodeLine]] = {}
        self.waiting: deque[_Read] = deque()
        self._snapshot = snapshot
        self._stack = stack
        self._about = about
        self._most_lines, self._most_levels = _MOST_LINES, _MOST_LEVELS
        if about is not None and about.nearest:
            self._most_lines, self._most_levels = _MOST_LIKELY, 2
        elif about is not None and about.names is None and not about.sizes:
            self._most_lines, self._most_levels = _MOST_UNKNOWN, 1
        self._places: deque[_Read] = deque()  # that only say where in something a value was
        self._seen: set[tuple[str, str | None, int]] = set()

    @cached_property
    def _files(self) -> dict[str, ast.Module]:
        return program_files(self._snapshot, self._stack)

    def take(self, spot: Spot, statement: Shown) -> None:
        """Adds a line."""
        self.found.setdefault(_place(spot, statement), (spot.depth, code_line(self._snapshot, spot, statement)))

    def take_named(self, place: Place, failing: Place) -> None:
        """Adds a line that the verdict names, if it is the program's and not the failing one."""
        file, line = place
        at = _spot(self._snapshot, PythonFrame(file=file, line=line), self._stack)
        statement = statement_at(at.tree, line) if at is not None and not is_library_file(file) else None
        if at is None or statement is None or _place(at, statement) == failing:
            return
        handlers = statement.handlers if isinstance(statement, ast.Try) else []
        self.take(at, next((item for item in handlers if item.lineno == line), statement))

    def _bears(self, maker: Spot, statement: ast.stmt) -> bool:
        """Whether a line shows more than another name for the value."""
        if hands_on(statement) or makes_no_value(statement):
            return False
        if self._about is None or self._about.names is not None or self._about.sizes:
            return True  # of a native fault that nothing explains, values by chance and constants are the least likely
        of_module = isinstance(maker.scope, ast.Module) and len(self._stack) > 1
        return not is_fresh(statement) and not (of_module and is_literal(statement))

    def _ends(self, statement: ast.stmt) -> bool:
        """Whether what a line reads is not at fault: it made what is wrong."""
        calls = {called_name(item) for item in nodes_of(statement) if isinstance(item, ast.Call)}
        return self._about is not None and bool(calls & self._about.makers)

    def follow(self, failing: Place) -> None:
        """Takes the lines that made what waits, and what these read."""
        while len(self.found) < self._most_lines and len(self._seen) < _MOST_SEEN:
            if not self.waiting and len(self.found) < _FEW_LINES:
                self.waiting, self._places = self._places, deque()
            if not self.waiting:
                return
            read = self.waiting.popleft()
            key = (read.name, read.spot.file, read.spot.line)
            if key in self._seen:
                continue
            self._seen.add(key)
            for maker, names in self._makers(read):
                statement = statement_at(maker.tree, maker.line)
                if statement is None or isinstance(statement, _DEFINES):
                    continue
                bears = _place(maker, statement) != failing and self._bears(maker, statement)
                if bears and len(self.found) < self._most_lines:
                    self.take(maker, statement)
                if not self._ends(statement):
                    places = names_that_place(statement)
                    self._places.extend(_Read(name, maker, read.levels + 1) for name in names if name in places)
                    self._wait(read, maker, [name for name in names if name not in places])

    def _wait(self, read: _Read, maker: Spot, names: Sequence[str]) -> None:
        levels = read.levels + 1
        first = read.first and levels <= _LEVELS_FIRST
        more = [_Read(name, maker, levels, first) for name in names if levels <= self._most_levels]
        if first:
            self.waiting.extendleft(reversed(more))
        else:
            self.waiting.extend(more)

    def _makers(self, read: _Read) -> Iterator[tuple[Spot, list[str]]]:
        """The lines that gave a variable its value, or filled it, each with the variables that they read."""
        if _is_of_context(read.name, read.spot):
            yield from _kept_for_backward(read)
            return
        node = ast.parse(read.name, mode="eval").body
        made = self.back.made(node, read.spot, calls=True)
        if isinstance(made.node, ast.Call) and called_name(made.node) in _LIBRARIES:
            return  # its functions are called; no value comes from there
        if is_generator(made.node):
            return
        last = made.spot if made.through else read.spot
        for item, spot in made.through[1:]:
            if isinstance(item, (ast.Name, ast.Attribute)):
                yield structs.replace(spot, line=getattr(item, "lineno", spot.line)), []
        queue = isinstance(made.node, ast.Call) and (called_name(made.node) or "").endswith("Queue")
        fills = [*_fills(read, later=queue)]
        if not made.through:
            yield from _ways(read)
        elif not _is_device(made.node) and not (queue and fills):
            at = structs.replace(last, line=made.line)
            left_out = names_not_read(made.node)
            names = (*names_of(made.node), *_context_names(at))
            yield at, [name for name in names if name not in left_out]
        if isinstance(made.node, ast.Name):
            yield from self._passed(made.node.id, last)
        sizes = self._about is not None and self._about.sizes
        yield from (item for item in fills if not (sizes and keeps_size(statement_at(item[0].tree, item[0].line))))

    def _passed(self, name: str, spot: Spot) -> Iterator[tuple[Spot, list[str]]]:
        """The only call of the function whose parameter it is, where the stack does not have it."""
        function = spot.scope
        if isinstance(function, (ast.Module, ast.Lambda)) or name not in parameters(function):
            return
        if reaching(function, name, spot.line) not in (None, frozenset({ENTRY})):
            return
        found = only_call(self._files, function)
        given = found.argument(function, name) if found is not None else None
        if found is not None and given is not None:
            line = found.call.lineno
            yield Spot(found.file, found.tree, scope_of(found.tree, line), line), names_of(given)


def _test_around(spot: Spot) -> ast.stmt | None:
    """The `if` whose test led to a `raise`."""
    around = [item for item in own_nodes(spot.scope) if isinstance(item, ast.If) and spans_body(item.body, spot.line)]
    return max(around, key=lambda item: item.lineno, default=None)


def _spot(snapshot: Snapshot, frame: PythonFrame, stack: Sequence[PythonFrame]) -> Spot | None:
    tree = syntax_tree(snapshot, frame)
    if tree is None or frame.line is None:
        return None
    found = Spot(frame.file, tree, scope_of(tree, frame.line), frame.line)
    return structs.replace(found, depth=next((n for n, item in enumerate(stack) if found.is_of(item)), None))


def _names(spot: Spot) -> list[str]:
    """What a line reads, with what autograd's context keeps."""
    statement = statement_at(spot.tree, spot.line)
    left_out = names_not_read(statement) if statement is not None else frozenset()
    names = (*names_of_line(spot.tree, spot.line), *_context_names(spot))
    return [name for name in names if name not in left_out]


def _context_names(spot: Spot) -> list[str]:
    """`ctx.saved_tensors`, `ctx.index` in the backward() of an autograd.Function."""
    return [name for name in attributes_of_line(spot.tree, spot.line) if _is_of_context(name, spot)]


def _is_of_context(name: str, spot: Spot) -> bool:
    owner, _, attribute = name.partition(".")
    if getattr(spot.scope, "name", None) != "backward" or not attribute.isidentifier():
        return False
    return parameters(spot.scope)[:1] == [owner] and class_around(spot.tree, spot.scope) is not None


def _kept_for_backward(read: _Read) -> Iterator[tuple[Spot, list[str]]]:
    """The lines of forward() or setup_context() that keep it."""
    owner, attribute = class_around(read.spot.tree, read.spot.scope), read.name.partition(".")[2]
    methods = (item for item in owner.body if isinstance(item, ast.FunctionDef)) if owner is not None else ()
    for method in (item for item in methods if item.name in ("forward", "setup_context")):
        for item in own_nodes(method):
            value: ast.AST | None = None
            if isinstance(item, ast.Assign):
                kept = any(isinstance(part, ast.Attribute) and part.attr == attribute for part in item.targets)
                value = item.value if kept else None
            elif isinstance(item, ast.Call) and called_name(item) == "save_for_backward":
                value = item if attribute == "saved_tensors" else None
            if value is not None:
                yield structs.replace(read.spot, scope=method, line=item.lineno, depth=None), names_of(value)  # type: ignore[attr-defined]


def _is_device(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_DEVICE.fullmatch(node.value))


def _ways(read: _Read) -> Iterator[tuple[Spot, list[str]]]:
    """One or two lines that bind it, of which one did: loops, branches, `with`."""
    scope, spot = read.spot.scope, read.spot
    lines = reaching(scope, read.name, spot.line) if spot.line != END else None
    lines = (lines or frozenset()) - {ENTRY}
    if UNKNOWN in lines or not 0 < len(lines) <= _MOST_WAYS:
        return
    for line in sorted(lines):
        yield structs.replace(spot, line=line), _names(structs.replace(spot, line=line))


def _fills(read: _Read, *, later: bool) -> Iterator[tuple[Spot, list[str]]]:
    """`later`: also by lines below it, as a queue is filled that a thread reads."""
    owner = class_around(read.spot.tree, read.spot.scope) if read.name.startswith("self.") else None
    scopes: Sequence[Scope] = (read.spot.scope,)
    if owner is not None:
        scopes = [item for item in owner.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
    lines = [
        (scope, line)
        for scope in scopes
        for line in _changed_at(scope, read.name)
        if later or scope is not read.spot.scope or line < read.spot.line or _in_one_loop(scope, line, read.spot.line)
    ]
    if len(lines) > _MOST_FILLS:
        return
    for scope, line in lines:
        spot = structs.replace(read.spot, scope=scope, line=line, depth=None if owner is not None else read.spot.depth)
        yield spot, [name for name in names_of_line(read.spot.tree, line) if name != read.name]


def _changed_at(scope: Scope, name: str) -> list[int]:
    """Lines that fill it, set an attribute of it, or call a method of it that works in place."""
    lines = {*lines_that_fill(scope, name)}
    for item in own_nodes(scope):
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and IN_PLACE.search(item.func.attr):
            lines |= {item.lineno} if variable(item.func.value) == name else set()
        elif isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store) and variable(item.value) == name:
            lines.add(item.lineno)
    return sorted(lines)


def _in_one_loop(scope: Scope, one: int, other: int) -> bool:
    return any(isinstance(item, LOOPS) and spans(item, one) and spans(item, other) for item in own_nodes(scope))


def _place(spot: Spot, statement: Shown) -> Place:
    return spot.file, statement.lineno
