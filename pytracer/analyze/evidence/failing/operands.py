"""What a failing expression works on, for a message that no explanation knows: operands, values, origins."""

from __future__ import annotations

import ast

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.exceptions.other_end import is_of_other_end
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.numbers import number_at
from pytracer.analyze.evidence.failing.recorded import shape_of
from pytracer.analyze.evidence.failing.tensors.last_layers import last_layer
from pytracer.analyze.evidence.failing.tensors.operand_shapes import made_for
from pytracer.analyze.evidence.failing.usage.settings import whence
from pytracer.analyze.evidence.syntax.calls import passed_values
from pytracer.analyze.evidence.syntax.names import variable

_MOST = 3
_PAIR = 2
_INTEGER = Pattern(r"(?<![\w.])\d+(?![\w.])")
_SMALL = 2  # 0 and 1 are in every message and shape
_REFUSALS = ("ValueError", "OverflowError")
_OF_GRAPH = {"backward", "step"}  # what they work on is not what the line passes


class _Operand(msgspec.Struct, frozen=True):
    text: str
    value: str
    came: str
    node: ast.expr
    computed: bool  # by us, of recorded parts


def involved(at: FailingLine) -> str | None:
    """None for none, or many."""
    if at.node is None or _is_of_graph(at) or (not at.own and is_of_other_end(at.kind)):
        return None
    told = _told(at)
    numbers = _of_message(at, told)
    if len(numbers) == _PAIR and len({item.text for item, _ in numbers}) == _PAIR and len(told) <= _MOST:
        return f"Line {at.line} works on {_joined(told)}: {_unequal(at, numbers)}"
    called = _called_layer(at)
    told = [called, *told] if called is not None and len(told) < _MOST else told
    if not 0 < len(told) <= _MOST:
        return None
    words = _joined(told)
    if len(told) == 1 and told[0].computed:
        return _refused(at, told[0])
    if len(told) == 1:
        return f"Line {at.line} works on {words}: compare it with what the message asks for." if told[0].came else None
    return f"Line {at.line} works on {words}: compare them with what the message asks for."


def refused_value(at: FailingLine) -> str | None:
    """The only thing that a call was given, computed of recorded parts: a library refused it."""
    if at.own or at.kind not in _REFUSALS or at.node is None or _is_of_graph(at) or _called_layer(at) is not None:
        return None
    call, told = at.only(ast.Call), _told(at)
    given = passed_values(call) if call is not None else []
    alone = len(given) == 1 and len(told) == 1 and told[0].node is given[0] and variable(given[0]) is None
    return _refused(at, told[0]) if alone and told[0].computed else None


def _joined(told: list[_Operand]) -> str:
    """A line that made two of them is quoted once, behind the second."""
    after = [item.came for item in told[1:]] + [""]
    return ", and on ".join(
        f"`{item.text}`, {item.value}{item.came if item.came != following else ''}"
        for item, following in zip(told, after, strict=True)
    )


def _refused(at: FailingLine, item: _Operand) -> str:
    """`math.sqrt(a - b)` of a negative difference."""
    call = at.only(ast.Call)
    called = source(call.func) if call is not None else ""
    parts = [f"`{name}` is {at.values[name]}" for name in names_in(item.node) if name in at.values][:_MOST]
    told = f" ({', '.join(parts)})" if parts else ""
    words = f"`{item.text}` comes to {item.value} at line {at.line}{told}"
    least = {"math.sqrt": "0.0", "math.log": "1e-12", "math.log2": "1e-12", "math.log10": "1e-12"}.get(called)
    if least is None or "domain" not in at.message:
        return f"{words}: correct it there, or where its parts are made."
    return (
        f"{words}, for which {called}() has no result: a difference of large numbers can round below 0. Bound it "
        f"(`max(..., {least})`), or find out why it is not positive."
    )


def _is_of_graph(at: FailingLine) -> bool:
    call = at.only(ast.Call)
    return call is not None and isinstance(call.func, ast.Attribute) and call.func.attr in _OF_GRAPH


def _told(at: FailingLine) -> list[_Operand]:
    found: dict[str, _Operand] = {}
    for item in _operands(at.node):
        value = _value(at, item)
        for part in [item] if value is not None else [ast.Name(name) for name in names_in(item)]:
            text = part.id if isinstance(part, ast.Name) else source(part)
            words = value if value is not None else at.values.get(text)
            if words is not None and not isinstance(part, ast.Constant):
                name = variable(part) or text
                came = whence(at, part) if shape_of(words) is None and item is part else at.came(name)
                came = (last_layer(at, name) if shape_of(words) is not None else "") or came
                computed = value is not None and at.value(part) is None and shape_of(words) is None
                found.setdefault(text, _Operand(text, words, came, part, computed))
    return [*found.values()]


def _called_layer(at: FailingLine) -> _Operand | None:
    """`criterion` of `criterion(output, target)`: what it was made with may be what is refused."""
    call = at.only(ast.Call)
    name = variable(call.func) if call is not None else None
    if call is None or name is None or at.layer is None or at.layer.name != name:
        return None
    came = at.came(name)
    return _Operand(name, f"a {at.layer.kind}", came, call.func, computed=False) if came else None


def _operands(node: ast.AST | None) -> list[ast.expr]:
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)):
        return _operands(node.value)
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    if isinstance(node, ast.Call):
        owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        given = [item.value if isinstance(item, ast.Starred) else item for item in node.args]
        return [*owner, *given, *(item.value for item in node.keywords)]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Subscript):
        return [node.value, node.slice]
    return [node] if isinstance(node, ast.expr) else []


def _value(at: FailingLine, node: ast.expr) -> str | None:
    """Recorded, or computed from what is recorded."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
        return None
    told = at.value(node)
    if told is not None:
        return told
    shape = at.shape(node)
    if shape is not None:
        return f"{shape.words} {shape.dtype}"
    number = None if isinstance(node, ast.Constant) else number_at(at, node)
    return f"{number:.6g}" if isinstance(number, float) else str(number) if number is not None else None


def _of_message(at: FailingLine, told: list[_Operand]) -> list[tuple[_Operand, int]]:
    """Numbers of the message that are a size of one operand only, with that."""
    found = []
    for number in dict.fromkeys(int(text) for text in _INTEGER.findall(at.message)):
        shapes = [(item, shape) for item in told if (shape := shape_of(item.value)) is not None]
        having = [item for item, shape in shapes if number in shape.sizes]
        if number >= _SMALL and len(having) == 1:
            found.append((having[0], number))
    return found


def _unequal(at: FailingLine, numbers: list[tuple[_Operand, int]]) -> str:
    one, other = (f"`{item.text}`{made_for(at, item.node, number)}" for item, number in numbers)
    return (
        f"the {numbers[0][1]} of the message is a size of {one}, and the {numbers[1][1]} one of {other}. Correct the "
        "one that is not meant."
    )
