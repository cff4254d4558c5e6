"""The line that failed, as its explanations see it: the expression, what its variables were, where they came from."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.exceptions.name_origins import NameOrigin, follow
from pytracer.analyze.evidence.failing.expressions import (
    as_written,
    computed,
    expression_at,
    names_in,
    parts,
    short,
    source,
    walk_in_order,
    whole,
)
from pytracer.analyze.evidence.failing.recorded import Layer, Shape, contradicts, layer_of, shape_of
from pytracer.analyze.evidence.slicing.batch_items import BatchItem, batch_item
from pytracer.analyze.evidence.slicing.calls import child_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import reaching
from pytracer.analyze.evidence.syntax.scopes import Scope, is_parameter, own_nodes, scope_of, spans, statement_at
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, NearNamesReport, PythonFrame

_MOST_PARTS = 16
_SAME_SHAPE = {"float", "double", "half", "long", "int", "bool", "to", "clone", "detach", "cuda", "cpu", "contiguous"}
_CHILD = Pattern(r"^(.+)\.(\d+)$")
_HANDS_ON = (ast.Name, ast.Attribute, ast.Subscript)

Kind = TypeVar("Kind", bound=ast.AST)


class Origin(msgspec.Struct, frozen=True):
    """Where a value came from: `line 11`, and its text, `files = find(root)`. `also`: `, or line 14`."""

    place: str
    text: str
    also: str = ""


@dataclass(frozen=True)
class FailingLine:
    """The program's innermost frame, with its source. `named`: lines that an explanation has asked the words for."""

    snapshot: Snapshot
    exception: ExceptionReport
    stack: Sequence[PythonFrame]
    frames: Sequence[PythonFrame]  # the program's, innermost first
    tree: ast.Module
    dataset: str | None = None  # the class of a DataLoader worker's
    named: list[LineWords] = field(default_factory=list, compare=False)

    @property
    def frame(self) -> PythonFrame:
        """The innermost one of the program."""
        return self.frames[0]

    @property
    def line(self) -> int:
        """Its number."""
        return self.frame.line or 0

    @property
    def own(self) -> bool:
        """Whether the line itself raised it, and no function of a library below it."""
        return self.stack[0] == self.frame

    @property
    def kind(self) -> str:
        """The exception's type without its modules."""
        return (self.exception.type or "").rpartition(".")[2]

    @property
    def message(self) -> str:
        """Of the exception."""
        return self.exception.message or ""

    @property
    def near(self) -> list[NearNamesReport]:
        """Names that there were in place of a missing one."""
        return self.exception.near or []

    @cached_property
    def values(self) -> dict[str, str]:
        """What each variable was; also one of the module that a function reads, where the module is on the stack."""
        own = {item.name: item.value for item in self.exception.variables or () if item.name and item.value}
        return {**self._of_module(own), **own}

    def _of_module(self, own: dict[str, str]) -> dict[str, str]:
        last = len(self.frames) - 1
        if isinstance(self.scope, ast.Module) or self.frames[last].file != self.frame.file:
            return {}
        if self.frames[last].function != "<module>":
            return {}
        read = {item.id for item in nodes_of(self.scope) if isinstance(item, ast.Name)}
        return {
            name: value
            for name, value in self.outer.get(last, {}).items()
            if name.partition(".")[0].partition("[")[0] in read and name not in own
            if not is_parameter(self.scope, name) and not lines_that_bind(self.scope, name)
        }

    @cached_property
    def scope(self) -> Scope:
        """The function around the line."""
        return scope_of(self.tree, self.line)

    @cached_property
    def node(self) -> ast.AST | None:
        """The expression that failed; the statement, where CPython records no columns or none fits."""
        columns = self.exception.columns
        found = expression_at(self.tree, columns) if columns is not None else None
        return found if found is not None else self.statement

    @cached_property
    def names(self) -> list[str]:
        """The variables that it reads."""
        return names_in(self.node) if self.node is not None else []

    @cached_property
    def statement(self) -> ast.stmt | None:
        """The innermost statement of the line."""
        return statement_at(self.tree, self.line)

    def only(self, kind: type[Kind]) -> Kind | None:
        """The failing expression, if it is of that kind; of a whole statement the only one in it."""
        node = self.node
        if isinstance(node, kind):
            return node
        if node is None or isinstance(node, ast.expr):
            return None
        found = [item for part in parts(node) for item in nodes_of(part) if isinstance(item, kind)]
        return found[0] if len(found) == 1 else None

    def value(self, node: ast.AST | str | None) -> str | None:
        """What a variable was, or an item or attribute of one that the code names."""
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            return self.values.get(ast.unparse(node))
        name = node if isinstance(node, str) else variable(node) if node is not None else None
        return self.values.get(name) if name is not None else None

    def shape(self, node: ast.AST | str | None) -> Shape | None:
        """Of a variable with a tensor, and of what only views it."""
        told = shape_of(self.value(node))
        return told if told is not None or not isinstance(node, ast.Call) else self._viewed(node)

    def _viewed(self, call: ast.Call) -> Shape | None:
        """`mask.unsqueeze(-1)`, `x.float()`."""
        owner = self.shape(call.func.value) if isinstance(call.func, ast.Attribute) else None
        if owner is None or not isinstance(call.func, ast.Attribute):
            return None
        if call.func.attr in _SAME_SHAPE:
            return owner
        place = whole(call.args[0]) if call.func.attr == "unsqueeze" and len(call.args) == 1 else None
        if place is None:
            return None
        place = place if place >= 0 else place + len(owner.sizes) + 1
        return Shape((*owner.sizes[:place], 1, *owner.sizes[place:]), owner.dtype)

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """Of the variables that the failing expression reads."""
        if self.node is None:
            return {}
        names = names_in(self.node)
        items = [ast.unparse(item) for item in walk_in_order(self.node) if isinstance(item, ast.Subscript)]
        return {name: shape for name in (*names, *items) if (shape := shape_of(self.values.get(name))) is not None}

    @cached_property
    def layer(self) -> Layer | None:
        """One of torch's layers below the line."""
        return layer_of(self.values)

    def passed(self, otherwise: str) -> str:
        """The first argument of the call, as text."""
        call = self.only(ast.Call)
        return source(call.args[0]) if call is not None and call.args else otherwise

    @cached_property
    def slice(self) -> Slice:
        """Follows values back from this line."""
        return Slice(self.snapshot, self.frames, stack=self.stack)

    @cached_property
    def outer(self) -> dict[int, dict[str, str]]:
        """Variables of the other frames of the program, by their depth among those."""
        places = {id(frame): n for n, frame in enumerate(self.stack)}
        held = {item.frame: item.variables or () for item in self.exception.outer or ()}
        return {
            depth: {item.name: item.value for item in held.get(places.get(id(frame)), ()) if item.name and item.value}
            for depth, frame in enumerate(self.frames)
        }

    @cached_property
    def compared(self) -> dict[str, str]:
        """What the function of torch's that raised it had before it."""
        if self.own:
            return {}
        found = next((item.variables for item in self.exception.outer or () if item.frame == 0), None)
        return {item.name: item.value for item in found or () if item.name and item.value}

    @cached_property
    def files(self) -> dict[str, ast.Module]:
        """The program's files: those of the stack, and what they import."""
        return program_files(self.snapshot, self.frames)

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        """The program's files with that of the line, also where it is no file: the text of `python -c`."""
        return {**self.files, self.frame.file or "": self.tree}

    def in_file(self, file: str | None, line: int | None) -> LineWords:
        """`line 6`, or `model.py:6` in another file."""
        words = line_in(file, line, self.frame.file)
        self.named.append(words)
        return words

    def here(self, line: int | None) -> LineWords:
        """`line 6`, of the file of the failing line."""
        return self.in_file(self.frame.file, line)

    def made(self, what: ast.AST | str, *, calls: bool = True, depth: int = 0) -> Made | None:
        """The expression that made a value of this line; None where it cannot be followed at all."""
        spot = self.slice.spot(depth)
        if spot is None:
            return None
        child = _CHILD.match(what) if isinstance(what, str) else None
        if child is not None:
            return self._child(self.made(child[1], calls=calls, depth=depth), int(child[2]))
        try:
            node = ast.parse(what, mode="eval").body if isinstance(what, str) else what
        except SyntaxError:
            return None
        found = self.slice.made(node, spot, calls=calls)
        recorded = self.value_at(node, spot)
        if recorded is not None and isinstance(found.node, ast.Constant) and contradicts(recorded, found.node.value):
            return None
        return found if found.through else None

    def _child(self, owner: Made | None, place: int) -> Made | None:
        """`self.net.0`."""
        item = child_of(owner.node, place) if owner is not None else None
        if owner is None or item is None:
            return None
        found = self.slice.made(item, owner.spot, calls=True)
        return Made(found.node, found.spot, (*owner.through, (owner.node, owner.spot), *found.through))

    def constants(self, node: ast.AST, spot: Spot) -> list[Made]:
        """Those of the program that an expression is computed from; nothing where other values take part."""
        found: dict[tuple[str | None, int, str], Made] = {}
        waiting, seen = [(node, spot)], 0
        while waiting:
            item, at = waiting.pop()
            seen += 1
            if seen > _MOST_PARTS:
                return []
            made = self.slice.made(item, at, calls=True)
            if isinstance(made.node, ast.BinOp):
                waiting += [(made.node.right, made.spot), (made.node.left, made.spot)]
            elif isinstance(made.node, ast.Constant):
                if made.through:
                    found.setdefault((made.spot.file, made.line, as_written(made)), made)
            else:
                return []
        return [*found.values()]

    def evaluated(self, node: ast.AST, spot: Spot, depth: int = 6) -> int | None:
        """The number that an expression of constants makes."""
        made = self.slice.made(node, spot, calls=True)
        if isinstance(made.node, ast.Constant):
            return made.node.value if type(made.node.value) is int else None
        if not isinstance(made.node, ast.BinOp) or depth == 0:
            return None
        left = self.evaluated(made.node.left, made.spot, depth - 1)
        right = self.evaluated(made.node.right, made.spot, depth - 1)
        return computed(made.node.op, left, right) if left is not None and right is not None else None

    def value_at(self, node: ast.AST, spot: Spot) -> str | None:
        """What an expression of some frame on the stack was."""
        if spot.depth is None or not isinstance(node, ast.expr):
            return None
        return self.values_at(spot.depth).get(ast.unparse(node))

    def values_at(self, depth: int) -> dict[str, str]:
        """The recorded variables of a frame of the program: 0 is the innermost."""
        return self.values if depth == 0 else self.outer.get(depth, {})

    def shown(self, found: Made) -> str:
        """``line 6: `heads=12` ``."""
        return f"{self.place(found.spot, found.line)}: `{short(as_written(found))}`"

    def place(self, spot: Spot, line: int) -> LineWords:
        """As in_file()."""
        return self.in_file(spot.file, line)

    def origin(self, name: str) -> NameOrigin | None:
        """The line that made its value."""
        return follow(self.snapshot, self.frames, name, self.values.get(name))

    def came(self, what: ast.AST | str | None) -> str:
        """`` (line 11: `files = find(root)`) ``, or nothing; of an expression where it is a variable."""
        name = what if isinstance(what, str) else variable(what) if what is not None else None
        found = self.came_from(name) if name is not None else None
        return f" ({found.place}: `{found.text}`{found.also})" if found is not None else ""

    def came_from(self, name: str) -> Origin | None:
        """The line that made its value, above the one that failed; of a batch, that of the data set."""
        sample = self.batch_item(name)
        if sample is not None:
            place = self.place(sample.made.spot, sample.made.line)
            where = f"{sample.function}, {place}" if sample.function else place
            return Origin(where, short(as_written(sample.made)))
        child = self.made(name) if _CHILD.match(name) else None
        if child is not None:
            return self._origin_of(child)
        handed = self._handed_on(name)
        if handed is not None:
            return self._origin_of(handed)
        if "[" in name or name.rpartition(".")[0] not in ("", "self"):
            item = self.made(name)
            known = item is not None and not isinstance(item.node, _HANDS_ON) and item.line != self.line
            return self._origin_of(item) if known and item is not None else None
        found = self.origin(name)
        if found is None or (found.frame.file == self.frame.file and found.frame.line == self.line):
            return None
        also = (found.also or "").replace("is set at", "or")
        return Origin(self.at(found.frame), short(found.text), f", {also}" if "is filled" not in also and also else "")

    def batch_item(self, name: str) -> BatchItem | None:
        """Of a variable that a loop over a DataLoader gave: what made it for each sample."""
        spot = self.slice.spot(0)
        try:
            node = ast.parse(name, mode="eval").body if name else None
        except SyntaxError:
            return None
        return batch_item(self.slice, node, spot) if node is not None and spot is not None else None

    def _origin_of(self, found: Made) -> Origin:
        return Origin(self.place(found.spot, found.line), short(as_written(found)))

    def begun(self, name: str) -> str:
        """`` (line 35: `h = init(64)`) ``, of what the program carries from round to round: what it began with."""
        spot, first = self.slice.spot(0), name
        if spot is None:
            return ""
        while is_parameter(spot.scope, first):
            step = self.slice.argument(first, spot)
            inner = variable(step[0]) if step is not None else None
            if step is None or inner is None:
                return ""
            first, spot = inner, step[1]
        bound = sorted(lines_that_bind(spot.scope, first), key=lambda item: item[0])
        if not bound or bound[0][1] is None:
            return ""
        ways = reaching(spot.scope, first, spot.line, True) or frozenset()
        if len([way for way in ways if 0 < way < spot.line and way <= self._before_loops(spot)]) > 1:
            return ""
        sets = [item for item in nodes_of(spot.scope) if isinstance(item, ast.Assign) and item.value is bound[0][1]]
        text = ast.unparse(sets[0]) if sets else f"{first} = {ast.unparse(bound[0][1])}"
        return f" ({self.place(spot, bound[0][0])}: `{short(text)}`)"

    def _before_loops(self, spot: Spot) -> int:
        """The line of the outermost loop around one, or itself."""
        kinds = (ast.For, ast.AsyncFor, ast.While)
        loops = (item.lineno for item in own_nodes(spot.scope) if isinstance(item, kinds) and spans(item, spot.line))
        return min(loops, default=spot.line)

    def _handed_on(self, name: str) -> Made | None:
        """Of a value that was only passed on to the line that `origin` knows: the one that made it."""
        found = self.made(name, calls=False) if name else None
        if found is None or found.line == self.line:
            return None
        if len(found.through) == 1 and (found.spot.depth == 0 or isinstance(found.node, ast.Constant)):
            return None
        return None if isinstance(found.node, _HANDS_ON) else found

    def at(self, frame: PythonFrame) -> str:
        """`line 11`; with its file where that is another one."""
        return self.in_file(frame.file, frame.line or 0)


def failing_line(
    snapshot: Snapshot, exception: ExceptionReport | None, stack: Sequence[PythonFrame], dataset: str | None = None
) -> FailingLine | None:
    """None where the program's source is not here as it was."""
    frames = [frame for frame in stack if not is_library_file(frame.file)]
    if exception is None or not frames or frames[0].line is None:
        return None
    tree = syntax_tree(snapshot, frames[0])
    return FailingLine(snapshot, exception, stack, frames, tree, dataset) if tree is not None else None
