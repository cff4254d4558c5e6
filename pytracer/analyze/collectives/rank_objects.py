"""An object that a condition asks, and that was made with something which depends on the rank.

`bar = ProgressBar(total, disable=rank != 0)` counts on one rank only, where its class does nothing when it is disabled:
`if bar.n % 20 == 0:` then comes out differently on each rank, though it does not speak of any.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.collectives.one_rank_values import OneRankValue, one_rank_value
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.calls import argument_of, method_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_of_rank
from pytracer.analyze.evidence.syntax.scopes import class_named, own_nodes, parameters
from pytracer.analyze.naming import line_in
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_FLAG = Pattern(r"\bis_(?:\w+_)?(?:main|master|chief)\w*|\bis_global_zero\b")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# What a progress bar of tqdm counts (tqdm 4.67, std.py): update() and iteration leave it alone where `disable` is true.
_BARS = frozenset({"tqdm", "trange", "tqdm_notebook", "tnrange"})
_COUNTED = frozenset({"n", "last_print_n"})
_Kind = Literal["counted", "set", "given"]


class RankObject(msgspec.Struct, frozen=True):
    """`name`: what is asked, `bar.n`, of the object that `place` makes with `given`; `why`: what that changes.

    `kind`: it is a number that the object adds to, something that it sets, or what it was given. `line`: that does so.
    """

    name: str
    owner: str
    place: str
    given: str
    why: str
    kind: _Kind
    line: str | None = None

    @property
    def otherwise(self) -> str:
        """What else the program can do that has the class."""
        return f"; or let {self.line} run on all ranks" if self.line is not None else ""

    @property
    def subject(self) -> str:
        """For a headline, behind the name."""
        return self.differs()

    def differs(self, values: str = "") -> str:
        """As `subject`, with what it was on the ranks."""
        return f"differs between ranks{values}, as {self.place} makes `{self.owner}` with `{self.given}`: {self.why}"

    @property
    def advice(self) -> str:
        """What to change."""
        made = f"{self.place} makes `{self.owner}` with `{self.given}`, and {self.why}"
        if self.kind == "given":
            return (
                f"{made}: take the call out of that branch and call it on all ranks, or ask for something that is the "
                "same on all of them."
            )
        if self.kind == "counted":
            return (
                f"{made}: ask for a number that all ranks count alike, a variable of the loop (`step += 1`, or that "
                f"of enumerate()), instead of `{self.name}`{self.otherwise}."
            )
        return (
            f"{made}: ask for something that is the same on all ranks, or broadcast `{self.name}` from one rank before "
            "that condition."
        )


def decided_by_rank(
    snapshot: Snapshot, frames: Sequence[PythonFrame], depth: int, line: int, test: ast.expr
) -> OneRankValue | RankObject | None:
    """What makes a condition come out by the rank that does not name it: a value of one rank, or an object.

    Args:
        snapshot: Of a rank.
        frames: Those of the program, the innermost first.
        depth: The frame of the condition among them.
        line: Of the condition.
        test: The condition.
    """
    known = one_rank_value(snapshot, frames, depth, line, test)
    if known is not None:
        return known
    slice_ = Slice(snapshot, frames)
    spot = slice_.spot(depth)
    if spot is None or is_of_rank(test):
        return None
    at = structs.replace(spot, line=line)
    return next((found for item in _asked(test) if (found := _of_object(slice_, item, at)) is not None), None)


def _asked(test: ast.expr) -> Iterator[ast.Attribute]:
    """`bar.n`, and `timer.due` of `timer.due()`."""
    for item in nodes_of(test):
        if isinstance(item, ast.Attribute) and variable(item.value) is not None:
            yield item


def _of_object(slice_: Slice, asked: ast.Attribute, spot: Spot) -> RankObject | None:
    made = slice_.made(asked.value, spot, calls=True)
    call = made.node
    if not isinstance(call, ast.Call):
        return None
    at = made.spot
    given = {id(item) for item in passed_values(call) if _depends(slice_, item, at)}
    if not given:
        return None
    found = slice_.defined(call.func, at)
    if found is None:
        return _of_bar(call, asked, at, spot) if id(keyword_value(call, "disable")) in given else None
    owner = found[0]
    if not isinstance(owner, ast.ClassDef):
        return None
    for name, value in _passed(owner, call):
        why = _Class(owner, found[1], spot.file).changes(asked.attr, name) if id(value) in given else None
        if why is not None:
            return _found(asked, call, at, spot, f"{name}={source(value)}", why)
    return None


def _found(asked: ast.Attribute, call: ast.Call, at: Spot, spot: Spot, given: str, why: _Why) -> RankObject:
    place = line_in(at.file, call.lineno, spot.file)
    name = f"{source(asked)}{'()' if why.method else ''}"
    return RankObject(name, source(asked.value), place, given, why.words, why.kind, why.line)


def held_values(tree: ast.Module, asked: ast.Attribute, call: ast.Call) -> list[ast.expr]:
    """What a call passes for what the object that it makes keeps as an attribute."""
    owner = class_named(tree, called_name(call) or "")
    return [value for name, value in _passed(owner, call) if asked.attr in _held(owner, name)] if owner else []


def _passed(owner: ast.ClassDef, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """What a call gives a class, by the parameters of `__init__`, or by the fields of a dataclass."""
    first = method_of(owner, ("__init__",))
    for place, name in enumerate(parameters(first)[1:] if first is not None else _fields(owner)):
        given = argument_of(call, first, name) if first is not None else keyword_value(call, name)
        if given is None and first is None and place < len(call.args):
            given = call.args[place]
        if given is not None:
            yield name, given


def _fields(owner: ast.ClassDef) -> list[str]:
    targets = (item.target for item in owner.body if isinstance(item, ast.AnnAssign))
    return [item.id for item in targets if isinstance(item, ast.Name)]


def _held(owner: ast.ClassDef, parameter: str) -> frozenset[str]:
    """The attributes that are set to a parameter of `__init__`."""
    first = method_of(owner, ("__init__",))
    if first is None:
        return frozenset({parameter})
    own = {_own(item) for item in own_nodes(first)} - {None}
    return frozenset(
        name
        for name in own
        for _, value, index in bindings_of(first, f"self.{name}")
        if name is not None and _is_named(_element(value, index), parameter)
    )


def _depends(slice_: Slice, value: ast.expr, spot: Spot) -> bool:
    """Whether the rank is in an expression, or in what one of its variables was made of."""
    if is_of_rank(value) or _FLAG.search(ast.unparse(value)) is not None:
        return True
    names = [item for item in nodes_of(value) if isinstance(item, (ast.Name, ast.Attribute))]
    made = (slice_.made(item, spot, calls=True).node for item in names if isinstance(item.ctx, ast.Load))
    return any(isinstance(item, (ast.Compare, ast.UnaryOp, ast.BoolOp)) and is_of_rank(item) for item in made)


def _of_bar(call: ast.Call, asked: ast.Attribute, at: Spot, spot: Spot) -> RankObject | None:
    """Of tqdm, whose bar counts nothing where it is disabled."""
    known = imported_as(at.tree, call.func) or ""
    if called_name(call) not in _BARS or "tqdm" not in known or asked.attr not in _COUNTED:
        return None
    option = keyword_value(call, "disable")
    why = f"where a bar of tqdm is disabled, its `{asked.attr}` stays as it was"
    return _found(asked, call, at, spot, f"disable={source(option)}", _Why(why, "counted")) if option else None


class _Why(msgspec.Struct, frozen=True):
    """`line`: that adds to the attribute, or sets it; `method`: whether a method is asked."""

    words: str
    kind: _Kind
    line: str | None = None
    method: bool = False


class _Class:
    """A class of the program: which of its attributes depend on what it was made with."""

    def __init__(self, owner: ast.ClassDef, spot: Spot, here: str | None) -> None:
        self._owner = owner
        self._methods = [item for item in owner.body if isinstance(item, _FUNCTIONS)]
        self._spot = spot
        self._here = here

    def changes(self, attribute: str, parameter: str) -> _Why | None:
        """How a parameter of `__init__` decides about an attribute, or about what a method returns."""
        held = _held(self._owner, parameter)
        method = next((item for item in self._methods if item.name == attribute), None)
        if method is None:
            return self._of_attribute(attribute, held, parameter)
        line = self._line(method.lineno)
        asks = [item for item in own_nodes(method) if _reads(item, held)]
        if asks:
            return _Why(f"{attribute}() of {line} asks for it", "given", method=True)
        read = dict.fromkeys(name for item in own_nodes(method) if (name := _own(item)) is not None)
        found = (self._of_attribute(name, held, parameter) for name in read)
        why = next((item for item in found if item is not None), None)
        called = not any(isinstance(item, ast.Name) and item.id == "property" for item in method.decorator_list)
        return structs.replace(why, method=called) if why is not None else None

    def _of_attribute(self, name: str, held: frozenset[str], parameter: str) -> _Why | None:
        if name in held:
            return _Why(f"its `{name}` is that", "given")
        for method in self._methods:
            for item in own_nodes(method):
                if not isinstance(item, (ast.Assign, ast.AugAssign)) or not _sets(item, name):
                    continue
                for decides, around in deciding_ifs(self._spot.tree, item.lineno):
                    own = method.name == "__init__" and _is_named(decides.test, parameter)
                    if own or any(_reads(part, held) for part in nodes_of(decides.test)):
                        where = "below" if around else "behind"
                        head = f"`if {source(decides.test)}:` ({self._line(decides.lineno)})"
                        kind: _Kind = "counted" if isinstance(item, ast.AugAssign) else "set"
                        verb = "adds to" if kind == "counted" else "sets"
                        line = self._line(item.lineno)
                        return _Why(f"{line} (`{source(item)}`) {verb} it only {where} {head}", kind, line)
        return None

    def _line(self, number: int) -> str:
        return line_in(self._spot.file, number, self._here)


def _own(node: ast.AST) -> str | None:
    """`n` of `self.n`."""
    name = variable(node) if isinstance(node, ast.Attribute) else None
    return name.removeprefix("self.") if name is not None else None


def _reads(node: ast.AST, held: frozenset[str]) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and _own(node) in held


def _sets(statement: ast.Assign | ast.AugAssign, name: str) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return any(_own(item) == name for target in targets for item in nodes_of(target))


def _element(value: ast.AST | None, index: int | None) -> ast.AST | None:
    """Of `self.a, self.b = one, two` the part that a name gets."""
    if index is None or not isinstance(value, (ast.Tuple, ast.List)) or not -len(value.elts) <= index < len(value.elts):
        return value
    return value.elts[index]


def _is_named(value: ast.AST | None, name: str) -> bool:
    """Whether a parameter is all that an expression depends on: `rank`, `not disable`, `rank == 0`."""
    if value is None:
        return False
    return any(isinstance(item, ast.Name) and item.id == name for item in nodes_of(value)) and not any(
        isinstance(item, ast.Call) for item in nodes_of(value)
    )
