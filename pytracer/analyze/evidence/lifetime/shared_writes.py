"""The line that writes into a NumPy array again, whose memory from_numpy() made a tensor of: a buffer that is reused.

torch counts its own in-place writes and refuses a backward with what they changed; it does not see those of NumPy.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.borrowing import borrowed_storage_at
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, own_nodes, qualified_name, spans
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_LENDS = ("from_numpy", "as_tensor", "frombuffer")
_FILLS = ("fill", "sort", "put", "partition", "itemset")  # methods of an array that write into it
_FILL_FIRST = ("copyto", "put", "place", "putmask", "readinto", "shuffle", "recv_into")  # by their first argument
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_QUOTED = 60


class SharedWrite(msgspec.Struct, frozen=True):
    """`owner`: the array, as the program names it; `lent`: the line that makes a tensor of it, `at` one that writes."""

    owner: str
    lender: str
    lent: LineWords
    at: LineWords
    text: str

    @property
    def words(self) -> str:
        """`` line 36 in BagPacker.pack (`np.concatenate(bags, out=self.ids)`) writes into `self.ids` again ``."""
        return f"{self.at} (`{self.text}`) writes into `{self.owner}` again"


def shared_write(view: ProcessView, base: int) -> SharedWrite | None:
    """Of the storage around `base`; None where it is not NumPy's, or no or more than one line writes so."""
    borrowed = borrowed_storage_at(view, view.space.live_around(base))
    if borrowed is None:
        return None
    _, lent = borrowed
    calls = [item for item in own_nodes(lent.scope) if isinstance(item, ast.Call) and spans(item, lent.line)]
    lenders = {(name, called_name(item) or "") for item in calls if (name := _lent(item)) is not None}
    owners = {item for item in lenders if _outlives(lent, item[0])}
    if len(owners) != 1:
        return None
    ((owner, lender),) = owners
    found = list(_writes(lent, owner))
    if len(found) != 1:
        return None
    ((scope, node),) = found
    place = place_of(view, lent.file, lent.line).then(f" in {qualified_name(lent.tree, lent.scope)}")
    at = place_of(view, lent.file, node.lineno).then(f" in {qualified_name(lent.tree, scope)}")
    return SharedWrite(owner, lender, place, at, shortened(ast.unparse(node), _QUOTED))


def _outlives(lent: Spot, owner: str) -> bool:
    """Whether the array is the same one the next time: an attribute, or made outside of the loop that lends it."""
    if owner.startswith("self."):
        return True
    bound = [line for line, _ in lines_that_bind(lent.scope, owner)]
    loops = loops_around(lent.tree, lent.line)
    return bool(bound) and any(not any(spans(loop, line) for line in bound) for loop in loops)


def _lent(call: ast.Call) -> str | None:
    """`self.ids` of `torch.from_numpy(self.ids[:total])`."""
    if called_name(call) not in _LENDS or not call.args or ast.unparse(call.func).startswith(("np.", "numpy.")):
        return None
    return _array(call.args[0])


def _array(node: ast.expr) -> str | None:
    """The variable of which an expression is a part."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return variable(node)


def _writes(lent: Spot, owner: str) -> Iterator[tuple[Scope, ast.expr | ast.stmt]]:
    """With their function: of a method's attribute in the methods of its class, else in the same function."""
    around = class_around(lent.tree, lent.scope) if owner.startswith("self.") else None
    scopes: list[Scope] = [lent.scope]
    if around is not None:
        scopes = [item for item in around.body if isinstance(item, _FUNCTIONS)]
    for scope in scopes:
        for node in own_nodes(scope):
            if isinstance(node, (ast.expr, ast.stmt)) and _is_write(node, owner):
                yield scope, node


def _is_write(node: ast.AST, owner: str) -> bool:
    match node:
        case ast.Assign(targets=targets):
            return any(isinstance(item, ast.Subscript) and _array(item) == owner for item in targets)
        case ast.AugAssign(target=target):
            return _array(target) == owner
        case ast.Call(func=ast.Attribute(value=array, attr=attr)) if attr in _FILLS and _array(array) == owner:
            return True
        case ast.Call():
            out = keyword_value(node, "out")
            first = node.args[0] if node.args and called_name(node) in _FILL_FIRST else None
            return any(item is not None and _array(item) == owner for item in (out, first))
    return False
