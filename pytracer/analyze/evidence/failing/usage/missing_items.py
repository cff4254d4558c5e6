"""An item that a list does not have: what it was looked up in, and what that was made from."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import parts, short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.loops import ITEM_COMPREHENSIONS
from pytracer.analyze.evidence.syntax.names import bare_names, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans

_NO_ITEM = Pattern(
    r" is not in (?:list|tuple|deque)$|^list\.(?:remove|index)\(x\): x not in list|not in (?:list|tuple)$"
)
_LOOKS = ("index", "remove")


def missing_item(at: FailingLine) -> str | None:
    """`labels.index(name)` of a list, and `names.remove(x)`."""
    if at.kind != "ValueError" or not _NO_ITEM.search(at.message) or not at.own:
        return None
    call = _lookup(at)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    name = variable(owner) if owner is not None else None
    if call is None or owner is None or name is None:
        return None
    value, held = at.value(name), _held_by(at, name)
    of = f", of `{source(held)}`" if held is not None else ""
    made = at.made(held, calls=False) if held is not None else at.made(owner)
    inner = made is not None and made.line != at.line and not isinstance(made.node, (ast.Name, ast.Attribute))
    where = f" ({at.shown(made)})" if inner and made is not None else at.came(name) if held is None else ""
    item = at.message.partition(" is not in ")[0]
    what = f"`{source(call.args[0])}` is {item}" if item != at.message and item[:1] in "'\"-0123456789" else ""
    a_value = f", a {value}," if value is not None else ""
    lacks = f"`{name}`{of}{where}{a_value or (',' if of else '')}"
    lacks = f"{what}, which {lacks} lacks" if what else f"{lacks} does not have `{source(call.args[0])}`"
    if called_name(call) == "remove":
        return f"{lacks}: it never had it, or it was removed before. Ask `in` first, or use a set and discard()."
    part = _part(made if inner else None)
    if part is not None:
        return (
            f"{lacks}: it was made from `{short(source(part))}`, which may leave that out. Make it from all "
            f"(`{source(part.value)}`), or look for what is not in it before line {at.line}."
        )
    return (
        f"{lacks}: it was made from other data, or is written otherwise or was taken out since. Make it from all, or "
        f"look for what is not in it before line {at.line}."
    )


def _lookup(at: FailingLine) -> ast.Call | None:
    """The failing call; the only one of its name where the line has others, and the column is not known."""
    call = at.only(ast.Call)
    if at.node is None:
        return None
    nodes = [call] if call is not None else [item for part in parts(at.node) for item in nodes_of(part)]
    found = [item for item in nodes if isinstance(item, ast.Call) and called_name(item) in _LOOKS and item.args]
    return found[0] if len(found) == 1 else None


def _held_by(at: FailingLine, name: str) -> ast.expr | None:
    """`self.vocabularies` of `for key, name in self.vocabularies.items()` around the line."""
    for target, items in _loops(at):
        if name in bare_names(target):
            match items:
                case ast.Call(func=ast.Attribute(value=held, attr="items" | "values")):
                    return held
            return None
    return None


def _loops(at: FailingLine) -> Iterator[tuple[ast.expr, ast.expr]]:
    for item in own_nodes(at.scope):
        if isinstance(item, ast.For) and spans(item, at.line):
            yield item.target, item.iter
        elif isinstance(item, ITEM_COMPREHENSIONS) and spans(item, at.line):
            yield from ((part.target, part.iter) for part in item.generators)


def _part(made: Made | None) -> ast.Subscript | None:
    """`files[:1]` of `build(files[:1])`: the only part of something that it was made from."""
    if made is None or not isinstance(made.node, ast.expr):
        return None
    given = passed_values(made.node) if isinstance(made.node, ast.Call) else [made.node]
    nodes = [item for value in given for item in nodes_of(value)]
    found = [item for item in nodes if isinstance(item, ast.Subscript) and _is_begin(item)]
    items = {name for item in nodes if isinstance(item, ast.comprehension) for name in bare_names(item.target)}
    if len(found) != 1 or items.intersection(bare_names(found[0].value)):
        return None  # of several; or the begin of each item, as of a name
    return found[0]


def _is_begin(node: ast.Subscript) -> bool:
    """`files[:1]`; not `lines[1:]`, which leaves out a head, nor `rows[:-1]`."""
    match node.slice:
        case ast.Slice(lower=None, upper=ast.expr() as upper, step=None):
            return not isinstance(upper, ast.UnaryOp)
    return False
