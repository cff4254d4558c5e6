"""Whether the program makes a buffer with fewer elements than a number that it passes with it, as far as lines show it.

`keep = np.zeros(min(len(boxes), limit))` beside `len(boxes)`: a limit that the other number does not have. Where that
is cut to the same limit, or is compared with it, the buffer is large enough.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer.analyze.evidence.own_code.made_type import made_element, made_size
from pytracer.analyze.evidence.own_code.recorded_arrays import RecordedArrays
from pytracer.analyze.evidence.slicing.bindings import bindings_of, last_binding
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_MODULES = frozenset({"np", "numpy", "torch", "math", "ctypes", "self", "F"})
_SMALL = (0, 1, -1)  # constants that are no limit
_LEVELS, _MOST = 4, 60


class ShortRoom(msgspec.Struct, frozen=True):
    """Line `line` makes the buffer with `size` elements; `numbers`: the count and the size, where both are known.

    `text`: the text of which the size counts the characters, while the count is of its bytes.
    """

    line: int
    size: str
    numbers: tuple[int, int] | None = None
    text: str | None = None


def short_room(arrays: RecordedArrays, spot: Spot, name: str, count: ast.expr, nbytes: int) -> ShortRoom | None:
    """None where the buffer may be as large as the count, or the lines of the function do not show its size.

    Args:
        arrays: What is on record of arrays and numbers.
        spot: The call that passes both.
        name: The variable that holds the buffer.
        count: How many elements may be written.
        nbytes: Of an element, as it is written.
    """
    bound = last_binding(spot.scope, name, spot.line)
    made = bound[1] if bound is not None and bound[2] is None else None
    if bound is None or made is None:
        return None
    line, size, element = bound[0], made_size(made), made_element(made, spot.tree)
    if size is None or element is None or element[1] != nbytes:
        return None
    room = msgspec.structs.replace(spot, line=line)
    number, own = arrays.number(count, spot), arrays.number(size, room)
    if number is not None and own is not None:
        return ShortRoom(line, ast.unparse(size), (number, own)) if number > own else None
    if _is_limited(spot, size, line, count):
        return ShortRoom(line, ast.unparse(size))
    text = _counts_characters(spot, size, count)
    return ShortRoom(line, ast.unparse(size), text=text) if text is not None else None


def _counts_characters(spot: Spot, size: ast.expr, count: ast.expr) -> str | None:
    """`text` of `len(text) + 64`, where the count is the length of `raw = text.encode()`: those may be more."""
    given = count.args[0] if isinstance(count, ast.Call) and called_name(count) == "len" and count.args else None
    made = _resolved(spot, given, spot.line) if given is not None else None
    encodes = isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and called_name(made) == "encode"
    if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Attribute) or not encodes:
        return None
    if any(isinstance(item, ast.Constant) and "ascii" in str(item.value) for item in nodes_of(made)):
        return None
    text = ast.unparse(made.func.value)
    parts = [item for item in nodes_of(size) if isinstance(item, ast.Call)]
    larger = any(isinstance(item, ast.BinOp) and isinstance(item.op, ast.Mult) for item in nodes_of(size))
    return text if [ast.unparse(item) for item in parts] == [f"len({text})"] and not larger else None


def _is_limited(spot: Spot, size: ast.expr, line: int, count: ast.expr) -> bool:
    """Whether the size is `min(count, limit)`, with a limit that nothing of the count knows."""
    whole, wanted = _resolved(spot, size, line), _resolved(spot, count, spot.line)
    text = _same(wanted)
    if not isinstance(whole, ast.Call) or called_name(whole) != "min":
        return False  # another number may be the same
    limits = [item for item in whole.args if _same(_resolved(spot, item, line)) != text]
    if len(limits) == len(whole.args):
        return False
    parts = list(_behind(spot, [wanted, count]))
    return any(_is_free(spot, limit, parts, text) for limit in limits)


def _is_free(spot: Spot, limit: ast.expr, parts: list[ast.AST], text: str) -> bool:
    """Whether nothing that the count comes from is behind the limit, too, and no line compares with that."""
    own = {*_names(limit), *_numbers(limit)}
    if not own or any(_same(part) == text for part in nodes_of(limit)):
        return False
    known = {item for part in parts for item in (*_names(part), *_numbers(part))}
    behind = {item for part in _behind(spot, [limit]) for item in _names(part)}
    compared = [item for item in own_nodes(spot.scope) if isinstance(item, ast.Compare)]
    return not known & {*own, *behind} and not any(own & {*_names(item), *_numbers(item)} for item in compared)


def _resolved(spot: Spot, node: ast.expr, line: int, levels: int = _LEVELS) -> ast.expr:
    """`min(len(x), 300)` of `n`, where a line above says so."""
    name = variable(node)
    bound = last_binding(spot.scope, name, line) if name is not None and levels else None
    if bound is None or bound[2] is not None or not isinstance(bound[1], ast.expr):
        return node
    return _resolved(spot, bound[1], bound[0], levels - 1)


def _behind(spot: Spot, nodes: list[ast.expr]) -> Iterator[ast.AST]:
    """Expressions, and all that lines of the function bind to their variables, and to those of these."""
    waiting: list[ast.AST] = [*nodes]
    seen: set[str] = set()
    while waiting and len(seen) < _MOST:
        node = waiting.pop()
        yield node
        for name in sorted(_names(node) - seen):
            seen.add(name)
            waiting += [value for _, value, _ in bindings_of(spot.scope, name) if value is not None]


def _names(node: ast.AST) -> set[str]:
    """Variables of an expression, but no functions: `x` of `len(x)`."""
    called = {
        id(item.func) for item in nodes_of(node) if isinstance(item, ast.Call) and isinstance(item.func, ast.Name)
    }
    found = (variable(item) for item in nodes_of(node) if id(item) not in called)
    return {name for name in found if name is not None} - _MODULES


def _numbers(node: ast.AST) -> set[int]:
    """Whole numbers of an expression that may be limits."""
    found = (item.value for item in nodes_of(node) if isinstance(item, ast.Constant))
    return {item for item in found if type(item) is int and item not in _SMALL}


def _same(node: ast.AST) -> str:
    """Its text; `len(x)` of `x.shape[0]` and `x.size(0)`."""
    text = ast.unparse(node)
    for end in (".shape[0]", ".size(0)"):
        if text.endswith(end) and text.removesuffix(end).replace(".", "").isidentifier():
            return f"len({text.removesuffix(end)})"
    return text
