"""A collective in a loop over what each rank fills for itself: where that is empty, the rank never calls it.

`for name in sorted(TRACKER): dist.all_reduce(TRACKER[name])`, of a dict that only some layers put something in; the
same of `while pending:` and `if pending:`. What all ranks fill on their common way is not empty on one of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from pytracer.analyze.behind import Place
from pytracer.analyze.collectives.call_sites import site_of
from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.collectives.ways import Side, parted, quoted
from pytracer.analyze.evidence.slicing.callers import calls_of, only_function
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import deciding_ifs, loops_around
from pytracer.analyze.evidence.syntax.names import indexed, last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import places_that_bind
from pytracer.analyze.evidence.syntax.scopes import qualified_name, scope_of, spans
from pytracer.analyze.naming import line_in
from pytracer.report.job import PythonFrame

_COPIES = frozenset({"sorted", "list", "tuple", "set", "enumerate", "reversed"})
_VIEWS = frozenset({"items", "keys", "values", "copy"})
_ADDS = frozenset({"append", "extend", "add", "update", "setdefault", "insert", "appendleft", "put"})
_CALLERS = 3
_NAMED = (ast.Name, ast.Attribute)
_Files = Mapping[str, ast.Module]


class EmptyLoop(msgspec.Struct, frozen=True):
    """`head`: the line that decides; `held`: what it goes by; `filled`: the line that fills that."""

    absent: str
    op: str
    line: int
    head: str
    held: str
    filled: str
    beyond: str
    places: tuple[Place, ...]

    @property
    def subject(self) -> str:
        """For the headline."""
        return (
            f"{self.absent} has never called that {self.op}, which {self.head} leaves out where `{self.held}` is empty"
        )

    @property
    def advice(self) -> str:
        """What to look at, and to change."""
        return (
            f"See whether `{self.held}` is empty on {self.absent}, which has never called the {self.op} of line "
            f"{self.line}: {self.head} then leaves it out, and {self.absent} goes on to {self.beyond}. Each rank fills "
            f"`{self.held}` for itself ({self.filled}). Let all ranks make the same calls, by one fixed list and with "
            "zeros for what a rank has not, or use a group of the ranks that have it."
        )


class _Choice(msgspec.Struct, frozen=True):
    """A loop or `if` that calls nothing where `held` is empty."""

    node: ast.For | ast.AsyncFor | ast.While | ast.If
    held: ast.expr
    spot: Spot


def empty_loop(there: Side, absent: Side) -> EmptyLoop | None:
    """What decides about the collective of `there`; `absent` is at another line, and has never called it."""
    fork = parted(there.way, absent.way)
    if fork is None or not _never_called(there, absent):
        return None
    snapshot = there.view.process.snapshot
    files, here = program_files(snapshot, there.way[::-1]), there.way[-1]
    slice_ = Slice(snapshot, there.way[::-1])
    for choice in _choices(slice_, there, absent, fork):
        lines = sorted(_fillers(slice_, files, choice), key=lambda item: isinstance(item[1], ast.AugAssign))
        known = _Known(files, (there, absent), ast.unparse(choice.held).rpartition(".")[2])
        if not lines or any(known.is_common(file, node.lineno) for file, node in lines):
            continue
        file, node = lines[0]
        at = choice.node.lineno
        text = quoted(snapshot, PythonFrame(file=choice.spot.file, line=at, function=None), at)
        name = qualified_name(files[file], scope_of(files[file], node.lineno), "")
        beyond = place_of(absent.call) or absent.way[-1]
        return EmptyLoop(
            absent.name,
            there.call.op,
            here.line or 0,
            f"{line_in(choice.spot.file, at, here.file)}{f' ({text})' if text is not None else ''}",
            ast.unparse(choice.held),
            f"{line_in(file, node.lineno, here.file)}{f' in {name}' if name else ''}",
            f"the {absent.call.op} of {line_in(beyond.file, beyond.line or 0, here.file)}",
            ((choice.spot.file, at), (file, node.lineno)),
        )
    return None


def _never_called(there: Side, absent: Side) -> bool:
    """By all of its calls: nothing was overwritten."""
    calls = absent.view.process.snapshot.collectives
    whole = bool(calls) and calls[0].number == 1
    return whole and all(site_of(item) != site_of(there.call) for item in calls)


def _choices(slice_: Slice, there: Side, absent: Side, fork: int) -> Iterator[_Choice]:
    """The innermost first."""
    for position in range(len(there.way) - 1, fork - 1, -1):
        spot = slice_.spot(len(there.way) - 1 - position)
        if spot is None:
            continue
        beside = absent.way[position].line if position == fork and position < len(absent.way) else None
        found: list[_Choice] = []
        for loop in loops_around(spot.tree, spot.line):
            held = _emptied(loop.test) if isinstance(loop, ast.While) else _gone_through(loop.iter)
            found += [_Choice(loop, held, spot)] if held is not None else []
        for item, around in deciding_ifs(spot.tree, spot.line):
            held = _emptied(item.test) if around else _emptied(_negated(item.test))
            found += [_Choice(item, held, spot)] if held is not None else []
        for choice in sorted(found, key=lambda item: -item.node.lineno):
            if beside is None or not spans(choice.node, beside):
                yield choice


def _gone_through(head: ast.expr) -> ast.expr | None:
    """`TRACKER` of `sorted(TRACKER.items())`."""
    while isinstance(head, ast.Call):
        if called_name(head) in _COPIES and head.args:
            head = head.args[0]
        elif isinstance(head.func, ast.Attribute) and head.func.attr in _VIEWS:
            head = head.func.value
        else:
            return None
    return head if isinstance(head, _NAMED) else None


def _emptied(test: ast.expr | None) -> ast.expr | None:
    """`pending` of `pending`, `len(pending)`, `len(pending) > 0`."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Gt, ast.NotEq)):
        zero = test.comparators[0]
        is_counted = isinstance(test.left, ast.Call) and isinstance(zero, ast.Constant) and zero.value == 0
        test = test.left if is_counted else None
    if isinstance(test, ast.Call):
        test = test.args[0] if called_name(test) == "len" and len(test.args) == 1 else None
    return test if isinstance(test, _NAMED) else None


def _negated(test: ast.expr) -> ast.expr | None:
    """`pending` of `not pending`, and of `len(pending) == 0`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        zero = test.comparators[0]
        return test.left if isinstance(zero, ast.Constant) and zero.value == 0 else None
    return None


def _fillers(slice_: Slice, files: _Files, choice: _Choice) -> Iterator[tuple[str, ast.stmt | ast.expr]]:
    """The lines that put something into it, outside of the loop itself; none of what is not made empty."""
    made = slice_.made(choice.held, choice.spot, calls=True)
    items = made.node.keys if isinstance(made.node, ast.Dict) else getattr(made.node, "elts", None)
    if items:
        return
    named = [(node, at) for node, at in (*made.through, (made.node, made.spot)) if isinstance(node, _NAMED)]
    for file, tree in files.items():
        for node in nodes_of(tree):
            filled = _filled(node)
            if filled is None or not isinstance(node, (ast.stmt, ast.expr)):
                continue
            within = file == choice.spot.file and spans(choice.node, node.lineno)
            if not within and any(_is_same(filled, file, tree, *item) for item in named):
                yield file, node


def _filled(node: ast.AST) -> ast.expr | None:
    """`x` of `x[k] = v`, `x.append(v)`, `x[k].append(v)`."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        held: ast.expr = node.targets[0]
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
        held = node.target
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDS:
        held = node.func.value
    else:
        return None
    held = indexed(held)
    return held if isinstance(held, _NAMED) else None


def _is_same(filled: ast.expr, file: str, tree: ast.Module, held: ast.AST, spot: Spot) -> bool:
    """Whether they may be one object: an attribute of that name, a variable of the function, or of the module."""
    if isinstance(held, ast.Attribute):
        return isinstance(filled, ast.Attribute) and filled.attr == held.attr
    if not isinstance(held, ast.Name) or not isinstance(filled, ast.Name) or filled.id != held.id:
        return False
    scope = scope_of(tree, filled.lineno)
    if scope is spot.scope:
        return file == spot.file
    own = isinstance(spot.scope, ast.Module) or not places_that_bind(spot.scope, held.id)
    return own and (isinstance(scope, ast.Module) or not places_that_bind(scope, held.id))


class _Known(msgspec.Struct, frozen=True):
    """Of two ranks; `held`: what is filled."""

    files: _Files
    sides: tuple[Side, Side]
    held: str

    def is_common(self, file: str, line: int, depth: int = 0) -> bool:
        """Whether both ranks come to a line by what both are in, and no condition stands around it on the way."""
        tree = self.files[file]
        scope = scope_of(tree, line)
        if any(around and not self._asks_for_it(item) for item, around in deciding_ifs(tree, line)):
            return False
        name = getattr(scope, "name", "")
        if isinstance(scope, ast.Module) or name == "__init__" or all(_is_in(side, file, scope) for side in self.sides):
            return True
        defined = only_function(self.files, name) if depth < _CALLERS else None
        calls = calls_of(self.files, *defined) if defined is not None else ()
        return any(self.is_common(item.file, item.call.lineno, depth + 1) for item in calls)

    def _asks_for_it(self, item: ast.If) -> bool:
        """`if name not in TRACKER:`: what is below it runs where it is empty."""
        return any(last_name(part) == self.held for part in nodes_of(item.test))


def _is_in(side: Side, file: str, scope: ast.AST) -> bool:
    first, last = getattr(scope, "lineno", 0), getattr(scope, "end_lineno", 0)
    return any(frame.file == file and first < (frame.line or 0) <= last for frame in side.way)
