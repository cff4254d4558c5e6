"""An argument of the wrong kind, and a list whose items differ: which one it is, and the line that made it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import shape_of
from pytracer.analyze.evidence.failing.usage.nones import none_value
from pytracer.analyze.evidence.failing.usage.settings import text_subject, whence
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.bindings import lines_that_fill
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_ARGUMENT = Pattern(
    r"(?P<call>[\w.]+)\(\): argument '(?P<name>\w+)'(?: \(position \d+\))? must be (?P<wanted>[\w. ]+), "
    r"not (?P<got>[\w.]+)"
)
_WHOLE = Pattern(r"'(\w+)' object cannot be interpreted as an integer")
_FORMAT = Pattern(r"unsupported format string passed to (\w+)\.__format__")
_PARAMETER = Pattern(r"cannot assign '[\w.]+' (?:object to|as) parameter '(\w+)'")
_IN_SEQUENTIAL = Pattern(r"(.+)\.(\d+)$")
_RECURRENT = Pattern(r"\b(?:nn\.)?(LSTM|GRU|RNN|MultiheadAttention)\(")
_ITEMS = Pattern(r"(.+); (.+) at (\d+)$")
_OF_ITEMS = Pattern(
    r"inhomogeneous|sequence of length|equal size|same shape|same size|as element|NoneType|only one element tensors"
    r"|only integer tensors|setting an array element|must match|sequence item|not a sequence|unsupported operand"
)
_HINTS = {
    "tuple": "take the part that is meant (`[0]`, or `out, state = ...`)",
    "list": "join its tensors first (torch.stack, torch.cat), or make one by torch.tensor()",
    "NoneType": "look at why it is None there",
    "str": "convert it where it is read",
    "numpy.ndarray": "convert it by torch.from_numpy()",
    "dict": "take the entry that is meant (`[...]`)",
}


def wrong_argument(at: FailingLine) -> str | None:
    """Of a call into torch, by its message."""
    found = _ARGUMENT.search(at.message)
    if at.kind != "TypeError" or found is None:
        return None
    if found["got"] == "NoneType" and none_value(at) is not None:
        return None  # which also knows what gave None
    inside = _in_sequential(at, found["got"])
    if inside is not None:
        return inside
    call = at.only(ast.Call)
    given = passed_values(call) if call is not None else []
    odd = [item for item in given if _kind(at.value(item)) == found["got"]]
    if len(odd) != 1:
        return None
    text, value = source(odd[0]), at.value(odd[0]) or ""
    hint = _HINTS.get(found["got"], "convert it where it is made")
    if found["got"] == "str" and "Tensor" in found["wanted"]:
        hint = "pass the tensor that is meant, or make numbers of the text first"
    came = "" if found["got"] == "NoneType" else whence(at, odd[0])  # a function's last `return` gave no None
    return (
        f"`{text}`{came} is {_article(value)}, and `{source(call.func) if call else ''}()` takes a "
        f"{found['wanted'].strip()} as '{found['name']}': {hint}."
    )


def not_a_whole_number(at: FailingLine) -> str | None:
    """`range(steps)` of a float."""
    found = _WHOLE.search(at.message)
    if at.kind != "TypeError" or found is None or at.node is None or not at.own or found[1] == "NoneType":
        return None  # none_value() tells of None
    if found[1] == "str" and text_subject(at) is not None:
        return None  # refused_setting() tells of the text
    calls = [item for item in nodes_of(at.node) if isinstance(item, ast.Call)]
    given = [part for item in calls for part in item.args if _kind(at.values.get(ast.unparse(part))) == found[1]]
    if len({ast.dump(item) for item in given}) != 1:
        return None
    text = source(given[0])
    divides = " A division by / makes a float: use // or math.ceil() there, or" if found[1] == "float" else " Write"
    return (
        f"`{text}`{whence(at, given[0])} is {_article(at.values[ast.unparse(given[0])])}, a {found[1]}, where line "
        f"{at.line} needs a whole number.{divides} int({text}) here."
    )


def unformatted(at: FailingLine) -> str | None:
    """`{value:.3f}` of what is no single number."""
    found = _FORMAT.search(at.message)
    if at.kind != "TypeError" or found is None:
        return None
    statement = at.statement or at.node
    parts = [
        item
        for item in (nodes_of(statement) if statement is not None else ())
        if isinstance(item, ast.FormattedValue) and item.format_spec is not None
    ]
    odd = [item.value for item in parts if _kind(at.values.get(ast.unparse(item.value))) == found[1]]
    if len(odd) != 1:
        return None
    text, value = source(odd[0]), at.values[ast.unparse(odd[0])]
    hint = {
        "Tensor": f"reduce it where it is made (`.mean()`), or format each of `{text}.tolist()`",
        "NoneType": "set it before, or print it without a format where it is None",
    }.get(found[1], "format its numbers one by one, or print it without a format")
    return f"`{text}`{at.came(text)} is {_article(value)}, and a format like `:.3f` takes one number: {hint}."


def plain_tensor(at: FailingLine) -> str | None:
    """`layer.weight = tensor` of what must be a parameter."""
    found, statement = _PARAMETER.search(at.message), at.statement
    if found is None or not isinstance(statement, ast.Assign):
        return None
    target, value = source(statement.targets[0]), source(statement.value)
    return (
        f"`{value}`{whence(at, statement.value)} is a tensor, and `{target}` a registered parameter: assign "
        f"`nn.Parameter({value})`, which an optimizer made before does not have, or keep the parameter and write into "
        f"it (`with torch.no_grad(): {target}.copy_({value})`)."
    )


def _article(value: str) -> str:
    return f"a {value}" if " of " in value else value


def _kind(value: str | None) -> str | None:
    if value is None:
        return None
    if value == "None":
        return "NoneType"
    if value in ("True", "False"):
        return "bool"
    if shape_of(value) is not None:
        return "numpy.ndarray" if value.endswith(" array") else "Tensor"
    if " of " in value:
        return value.partition(" of ")[0]
    return "int" if re.fullmatch(r"-?\d+", value) else "float" if re.fullmatch(r"-?[\d.e+-]+", value) else None


def _in_sequential(at: FailingLine, got: str) -> str | None:
    """A layer behind one that returns several values."""
    name = next((name.removeprefix("input of ") for name, value in at.values.items()
                 if name.startswith("input of ") and _kind(value) == got), None)  # fmt: skip
    place = _IN_SEQUENTIAL.match(name) if name is not None else None
    made = at.made(place[1]) if place is not None else None
    call = made.node if made is not None else None
    if place is None or made is None or not isinstance(call, ast.Call) or called_name(call) != "Sequential":
        return None
    number = int(place[2])
    if any(isinstance(item, ast.Starred) for item in call.args):
        return _behind_recurrent(at, place[0], made, got)
    if not 0 < number < len(call.args):
        return None
    before, layer = call.args[number - 1], call.args[number]
    told = _RECURRENT.search(ast.unparse(before))
    returns = f"a {got}"
    if told is not None:
        returns = "(output, weights)" if told[1] == "MultiheadAttention" else "(output, state)"
    return (
        f"In the nn.Sequential of {at.place(made.spot, made.line)} `{source(before)}` returns {returns}, and "
        f"`{source(layer)}` behind it takes one tensor. Take that layer out of the nn.Sequential, and pass on the part "
        "that is meant (`out, _ = layer(x)`)."
    )


def _behind_recurrent(at: FailingLine, layer: str, made: Made, got: str) -> str | None:
    """Of a Sequential made of a list: the only layers with a state that its function puts into lists."""
    calls = [item for item in _listed(made.spot.scope) if isinstance(item, ast.Call)]
    held = [item for item in calls if _RECURRENT.match(ast.unparse(item))]
    own = any(at.slice.defined(item.func, made.spot) is not None for item in calls)  # which may return a tuple, too
    if got != "tuple" or layer.endswith(".0") or own or not held or len({called_name(item) for item in held}) != 1:
        return None
    returns = "(output, weights)" if called_name(held[0]) == "MultiheadAttention" else "(output, state)"
    return (
        f"`{layer}` got a tuple from the layer before it in the nn.Sequential of {at.place(made.spot, made.line)}: "
        f"{ast.unparse(held[0].func)}() ({at.place(made.spot, held[0].lineno)}) returns {returns}. Take it out of the "
        "nn.Sequential, or put it into a module whose forward() returns the output alone (`out, _ = layer(x)`)."
    )


def _listed(scope: ast.AST) -> Iterator[ast.expr]:
    """What is written into lists: `[a, b]`, `layers.append(a)`."""
    for item in nodes_of(scope):
        if isinstance(item, (ast.List, ast.Tuple)):
            yield from item.elts
        elif isinstance(item, ast.ListComp):
            yield item.elt
        elif isinstance(item, ast.Call) and called_name(item) in ("append", "insert"):
            yield from item.args


def unequal_items(at: FailingLine) -> str | None:
    """`items of rows`, of a list that the failing expression reads."""
    if at.node is None or not _OF_ITEMS.search(at.message):
        return None
    told = [(name, found) for name in names_in(at.node)
            if (found := _ITEMS.match(at.values.get(f"items of {name}", ""))) is not None]  # fmt: skip
    if len(told) != 1:
        return None
    name, found = told[0]
    fills = [item for item in lines_that_fill(at.scope, name) if item < at.line]
    added = _added(at, name, fills[0]) if len(fills) == 1 else None
    made = (
        f" (filled at {at.here(fills[0])}{f' with `{added}`' if added else ''})" if len(fills) == 1 else at.came(name)
    )
    one, other, place = found.groups()
    hint = "return or pad all to one length, or keep a list"
    cut = _padded_only(at, name, fills, (one, other))
    if cut is not None:
        hint = cut
    elif "argument 0, but got list" in at.message and one.startswith("list"):
        hint = f"tensors are wanted there, of any length. Make each one: `[torch.tensor(x) for x in {name}]`"
    if "NoneType" in (one, other):
        hint = "leave out what is None, or mend what gives it"
    return f"Item 0 of `{name}`{made} is {_words(one)}, and item {place} {_words(other)}: {hint}."


def _padded_only(at: FailingLine, name: str, fills: Sequence[int], items: tuple[str, str]) -> str | None:
    """Of lists that `ids += [0] * (max_len - len(ids))` makes equal only where none is longer."""
    added = _added(at, name, fills[0]) if len(fills) == 1 else None
    sizes = [int(found[1]) for item in items if (found := re.match(r"list of (\d+)$", item)) is not None]
    for item in own_nodes(at.scope) if added is not None and len(sizes) == len(items) else ():
        if not isinstance(item, ast.AugAssign) or variable(item.target) != added:
            continue
        whole = item.value
        if not isinstance(whole, ast.BinOp) or not isinstance(whole.op, ast.Mult):
            continue
        wanted = next((part.left for part in (whole.left, whole.right) if isinstance(part, ast.BinOp)), None)
        if wanted is None or at.value(wanted) != str(min(sizes)):
            continue
        return (
            f"{at.here(item.lineno)} (`{source(item)}`) only makes shorter ones longer. Cut the others there, "
            f"`{added} = {added}[:{source(wanted)}]`, or take a larger {source(wanted)}"
        )
    return None


def _words(kind: str) -> str:
    if kind.startswith("["):
        return kind
    return "None" if kind == "NoneType" else f"a {kind}"


def _added(at: FailingLine, name: str, line: int) -> str | None:
    """What `rows.append(...)` adds."""
    calls = [item for item in own_nodes(at.scope) if isinstance(item, ast.Call) and item.lineno == line and item.args]
    for item in calls:
        if isinstance(item.func, ast.Attribute) and variable(item.func.value) == name:
            return source(item.args[0])
    return None
