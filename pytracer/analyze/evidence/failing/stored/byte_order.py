"""Numbers that were read from bytes in the other byte order: 60000 of an IDX file's header becomes 1625948160."""

from __future__ import annotations

import ast
import re

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.numbers import whole_number
from pytracer.analyze.evidence.indices.byte_order import is_power, reversed_number
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_ARRAYS = ("frombuffer", "fromfile", "memmap")
_BIG, _LITTLE = (">", "!"), ("<",)
_MOST = 3
_DTYPE = Pattern(r"^(?:np|numpy|torch)\.(u?int\d+)$")


def other_byte_order(at: FailingLine) -> str | None:
    """None where a number of the line was not read from bytes, or is as likely with its bytes as they are."""
    found: dict[str, list[tuple[str, int, int]]] = {}
    for name in at.names:
        number = whole_number(at, ast.Name(name))
        small = reversed_number(number) if number is not None else None
        if number is not None and small is not None:
            found.setdefault(_origin_text(at, name), []).append((name, number, small))
    for text, numbers in found.items():
        instead = _instead(text)
        if instead is not None and not all(is_power(number) for _, number, _ in numbers):
            names = list_words([f"`{name}`" for name, _, _ in numbers])
            plain = list_words([*dict.fromkeys(f"{number} is {small}" for _, number, small in numbers)][:_MOST])
            were = "was" if len(numbers) == 1 else "were"
            return f"{names} {were} read in the other byte order{at.came(numbers[0][0])}: {plain}. {instead}."
    return None


def _origin_text(at: FailingLine, name: str) -> str:
    """The expression that made the value, or the statement that bound several at once."""
    made = at.made(name)
    if made is not None and not isinstance(made.node, (ast.Name, ast.Attribute, ast.Subscript)):
        return ast.unparse(made.node)
    origin = at.origin(name)
    return origin.text if origin is not None else ""


def _instead(text: str) -> str | None:
    """What to write where bytes become numbers; None where nothing there does that."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    for call in (item for item in nodes_of(tree) if isinstance(item, ast.Call)):
        called = called_name(call) or ""
        if called in ("unpack", "unpack_from", "iter_unpack"):
            return _of_format(call.args[0] if call.args else None)
        if called == "from_bytes":
            order = _constant(argument_at(call, 1, "byteorder"))
            return f"Pass `{'little' if order == 'big' else 'big'!r}` there"
        if called in _ARRAYS:
            return _of_dtype(argument_at(call, 1, "dtype"))
    return None


def _of_format(node: ast.expr | None) -> str:
    text = _constant(node)
    if not isinstance(text, str):
        return "Begin the format with `>` for big-endian numbers, with `<` for little-endian ones"
    plain = text.lstrip("<>!=@")
    return f"Use `{('<' if text.startswith(_BIG) else '>') + plain!r}` there"


def _of_dtype(node: ast.expr | None) -> str:
    name = _DTYPE.match(ast.unparse(node)) if node is not None else None
    text = _constant(node)
    if name is not None:
        kind, bits = name[1].rstrip("0123456789"), int(re.sub(r"\D", "", name[1]))
        return f'Use `dtype=">{kind[0]}{bits // 8}"` there, and .astype(np.{name[1]}) before torch.from_numpy()'
    if isinstance(text, str) and text.startswith(_BIG):
        return f"Use `dtype={text.replace('>', '<')!r}` there"
    return "Name the byte order in the dtype there, `>i4` for big-endian numbers"


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None
