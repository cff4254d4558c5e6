"""The object that lent a tensor its memory and was shrunk or grown since: a bytearray below torch.frombuffer().

torch.frombuffer() releases the buffer at once (torch/csrc/utils/tensor_new.cpp, `PyBuffer_Release`) and keeps only a
reference to the object, so that Python does not refuse `clear()`, `extend()` or `del b[:]` as it does below a
memoryview or np.frombuffer(). `ndarray.resize(refcheck=False)` asks nobody either.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.borrowing import borrowed_at
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.callers import calls_named
from pytracer.analyze.evidence.slicing.given_memory import Search
from pytracer.analyze.evidence.slicing.resizing import SHRINKS, Resizing, resizings
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.lost_owners import address_taken
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, qualified_name, scope_of, spans, spans_body
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_QUOTED = 60
_MOST = 3
_BUFFERS = ("bytearray", "array")
_LENDS = ("frombuffer", "from_numpy", "as_tensor", "_from_blob")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class ResizedOwner(msgspec.Struct, frozen=True):
    """`owner` (`self.buffer`), of class `kind`, lent its memory at `lent`; `calls`: what may have taken it, each with
    its line. `through`: the line that calls that, or whose `with` ends by it. `done`: `gave back` or `moved`. `shared`:
    whether other tensors were made of it, too.
    """

    owner: str
    kind: str
    lender: str
    lent: LineWords
    calls: tuple[tuple[str, LineWords], ...]
    through: LineWords | None
    done: str
    shared: bool

    @property
    def summary(self) -> str:
        """Behind the headline."""
        through = f" ({self.through})" if self.through is not None else ""
        by = " or ".join(f"`{text}` at {at}" for text, at in self.calls)
        return f"has the memory of the {self.kind} `{self.owner}`, which {by}{through} {self.done} since"

    @property
    def advice(self) -> str:
        """The change to make."""
        what = " or ".join(dict.fromkeys(f"`{text}`" for text, _ in self.calls))
        whole = "a new one for each tensor, " if self.shared else ""
        shared = (
            f" Other tensors were made of the same memory: what was read into `{self.owner}` later may have "
            "overwritten what they held, so check the results so far."
            if self.shared
            else ""
        )
        return (
            f"Copy where the tensor is made: `.clone()` behind {self.lender}() at {self.lent}. Or keep `{self.owner}` "
            f"as it is for as long as a tensor of it is used, {whole}without {what}: {self.lender}() shares the memory"
            f"{'' if self.lender == '_from_blob' else f' and keeps the {self.kind} alive'}, but does not keep it from "
            f"being resized.{shared}"
        )


def resized_owner(view: ProcessView, *, shrunk: bool) -> ResizedOwner | None:
    """None where nothing of the program resizes what the tensor at the fault was made of, or too much does.

    `shrunk`: memory is there still where it begins.
    """
    borrowed = borrowed_at(view)
    if borrowed is None:
        return None
    files, lent_at = borrowed
    lent = [item for item in own_nodes(lent_at.scope) if isinstance(item, ast.Call) and spans(item, lent_at.line)]
    lenders = [(item, owner) for item in lent if (owner := _lender(item)) is not None]
    if len(lenders) != 1:
        return None
    call, node = lenders[0]
    owner, spot = _owner(Search(files), node, lent_at)
    name = variable(owner)
    kind = _kind(spot, name) if name is not None else None
    if name is None or kind is None:
        return None
    found = _likely(
        [item for item in resizings(files, spot, name) if _may_be(view, files, item, kind, lent_at)], lent_at, shrunk
    )
    if not 0 < len(found) <= _MOST:
        return None
    calls = tuple((shortened(item.text, _QUOTED), _at(view, item)) for item in found)
    through = _through(view, files, found[0]) if len(found) == 1 else None
    place = place_of(view, lent_at.file, lent_at.line).then(f" in {qualified_name(lent_at.tree, lent_at.scope)}")
    others = [
        item for item in (view.fault.earlier_lives if view.fault is not None else None) or () if item.state == "live"
    ]
    lender = called_name(call) or ""
    gave = shrunk and all(item.how in SHRINKS for item in found)
    done = "gave back" if gave else "moved" if all(item.how not in SHRINKS for item in found) else "moved or gave back"
    return ResizedOwner(name, kind, lender, place, calls, through, done, bool(others))


def _lender(call: ast.Call) -> ast.expr | None:
    """`self.rows` of `torch.from_numpy(self.rows)`, and of `torch._from_blob(self.rows.ctypes.data, ...)`."""
    if called_name(call) not in _LENDS or not call.args or ast.unparse(call.func).startswith(("np.", "numpy.")):
        return None
    taken = address_taken(call.args[0])
    given = taken[0] if taken is not None else call.args[0]
    return given if variable(given) is not None else None


def _owner(search: Search, node: ast.expr, spot: Spot) -> tuple[ast.expr, Spot]:
    """Of a parameter what the caller passed; of `buffer = self.buffer` the attribute."""
    owner, at = search.held(node, spot)
    if isinstance(owner, ast.Name):
        bound = [value for line, value in lines_that_bind(at.scope, owner.id) if line <= at.line]
        if len(bound) == 1 and isinstance(bound[0], ast.Attribute) and variable(bound[0]) is not None:
            return bound[0], at
    return owner, at


def _kind(spot: Spot, name: str) -> str | None:
    """`bytearray`, `array` or `ndarray`, where every line that binds it makes one."""
    around = class_around(spot.tree, spot.scope) if name.startswith("self.") else None
    scopes = [item for item in around.body if isinstance(item, _FUNCTIONS)] if around is not None else [spot.scope]
    values = [value for scope in scopes for _, value, _ in bindings_of(scope, name) if value is not None]
    names = {called_name(item) if isinstance(item, ast.Call) else None for item in values}
    if not names or None in names:
        return None
    if len(names) == 1 and names <= {*_BUFFERS}:
        return names.pop()
    of_numpy = all(ast.unparse(item).startswith(("np.", "numpy.")) for item in values)
    return "ndarray" if of_numpy else None


def _likely(found: list[Resizing], lent: Spot, shrunk: bool) -> list[Resizing]:
    """Those that shrink it, where its beginning is there, before all others; those above the line that lends last."""
    behind = [item for item in found if item.spot.scope is not lent.scope or item.spot.line > lent.line]
    shrinking = [item for item in behind if item.how in SHRINKS]
    return (shrinking if shrunk else []) or behind or found


def _may_be(view: ProcessView, files: Mapping[str, ast.Module], item: Resizing, kind: str, lent: Spot) -> bool:
    """Whether that can resize such an object, and may have run since."""
    if (item.how == "resize") != (kind == "ndarray"):
        return False
    method = item.spot.scope
    if not isinstance(method, _FUNCTIONS) or any(item.spot.is_of(one) for one in program_frames(view)):
        return _may_have_run(view, lent, item.spot.file, item.spot.tree, item.spot.line)
    if method.name == "__exit__":
        return bool(_withs(view, files, item))
    calls = calls_named(files, method.name)
    return method.name.startswith("__") or any(
        _may_have_run(view, lent, file, tree, call.lineno) for file, tree, call in calls
    )


def _may_have_run(view: ProcessView, lent: Spot, file: str | None, tree: ast.Module, line: int) -> bool:
    """Not a line behind the one that is running in the same function, unless a loop is around both.

    Nor one above the only line there that calls the function of `lent`, outside of loops.
    """
    scope = scope_of(tree, line)
    made = [
        node.lineno for node in own_nodes(scope)
        if isinstance(node, ast.Call) and called_name(node) == getattr(lent.scope, "name", None)
    ]  # fmt: skip
    looped = loops_around(tree, line) or any(loops_around(tree, one) for one in made)
    if len(made) == 1 and line < made[0] and not looped:
        return False
    running = [one.line for one in program_frames(view) if one.file == file and one.line]
    here = [one for one in running if scope_of(tree, one) is scope]
    around = [(loop.lineno, loop.end_lineno or 0) for loop in loops_around(tree, line)]
    return not here or any(line <= one or any(low <= one <= high for low, high in around) for one in here)


def _at(view: ProcessView, item: Resizing) -> LineWords:
    words = place_of(view, item.spot.file, item.spot.line)
    return words.then(f" in {qualified_name(item.spot.tree, item.spot.scope, 'the module')}")


def _through(view: ProcessView, files: Mapping[str, ast.Module], item: Resizing) -> LineWords | None:
    """The one line that led there: of the `with` that ended, or of the call in a function that is running still."""
    method = item.spot.scope
    if not isinstance(method, _FUNCTIONS) or any(item.spot.is_of(one) for one in program_frames(view)):
        return None
    if method.name == "__exit__":
        found = _withs(view, files, item)
        return found[0].after("at the end of the `with` at ") if len(found) == 1 else None
    calls = [place_of(view, file, call.lineno) for file, _, call in calls_named(files, method.name)]
    return calls[0].after("called at ") if len(calls) == 1 else None


def _withs(view: ProcessView, files: Mapping[str, ast.Module], item: Resizing) -> list[LineWords]:
    """The `with` statements of the object's class that have been left, as far as the running lines show."""
    owner = class_around(item.spot.tree, item.spot.scope)
    found: list[LineWords] = []
    for file, tree in files.items():
        for node in nodes_of(tree):
            if not isinstance(node, (ast.With, ast.AsyncWith)) or owner is None:
                continue
            scope = scope_of(tree, node.lineno)
            made = [_made(scope, one.context_expr) for one in node.items]
            running = [one.line for one in program_frames(view) if one.file == file and one.line]
            inside = any(spans_body(node.body, line) for line in running)
            if owner.name in made and not inside:
                found.append(place_of(view, file, node.lineno))
    return found


def _made(scope: ast.AST, node: ast.expr) -> str | None:
    """The class of what a `with` is of: of a call, or of a variable that a call set."""
    if isinstance(node, ast.Name):
        bound = [value for _, value in lines_that_bind(scope, node.id)]
        node = bound[0] if len(bound) == 1 and isinstance(bound[0], ast.expr) else node
    return called_name(node) if isinstance(node, ast.Call) else None
