"""A sample, or a part of one, that is None in a batch: which one, and the line that gives None."""

from __future__ import annotations

import ast

from pytracer._text import capital
from pytracer.analyze.evidence.failing.data.datasets import Getter, getter, sample_name
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.bindings import bound_value
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import reaching
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_NONE = "NoneType"
_FILTER = "or filter None by a collate_fn (`[x for x in batch if x is not None]`, then default_collate)."
_MOST = 2


def none_sample(at: FailingLine) -> str | None:
    """What torch's default_collate could not join because one is None."""
    place, of = _place_of_none(at), at.compared.get("place")
    if place is None:
        return None
    which, found = sample_name(at, place), getter(at)
    if of is not None:
        return _none_part(at, which, found, of)
    if found is None:
        return f"{capital(which)} is None: the dataset's __getitem__ returned None. Leave out such samples, {_FILTER}"
    name = f"{found.owner.name}.__getitem__"
    lines = _lines(at, found)
    hidden = _hiding(at, found)
    if hidden is not None:
        return (
            f"{capital(which)} is None: {name} returns None at {hidden[1]}, in the `{hidden[0]}` that hides why. Print "
            f"the exception there, and mend or leave out that sample, {_FILTER}"
        )
    if lines:
        return f"{capital(which)} is None: {name} returns None at {lines}. Leave out such samples, {_FILTER}"
    return (
        f"{capital(which)} is None: {name} ({at.place(found.spot, found.method.lineno)}) returned None, or what it "
        f"passes on was None. Return a sample on every way through it, {_FILTER}"
    )


def none_subject(at: FailingLine) -> str | None:
    """What the headline says of it."""
    place, of, found = _place_of_none(at), at.compared.get("place"), getter(at)
    if place is None:
        return None
    which = sample_name(at, place)
    if of is not None:
        part = _inner(found, of)
        return f"{f'`{source(part[0])}`' if part is not None else f'element {of}'} of {which} is None"
    lines = _lines(at, found) if found is not None else ""
    by = f", returned by {found.owner.name}.__getitem__ at {lines}" if found is not None and lines else ""
    return f"{which} is None{by}"


def _place_of_none(at: FailingLine) -> int | None:
    """Among the batch."""
    kinds = {name: value for name, value in at.compared.items() if name != "place"}
    found = [name for name, value in kinds.items() if value == _NONE]
    place = found[0].removeprefix("batch[").rstrip("]") if len(found) == 1 else ""
    return int(place) if place.isdecimal() else None


def _returns_of_none(scope: ast.AST) -> list[ast.Return]:
    return [
        item for item in own_nodes(scope) if isinstance(item, ast.Return) if item.value is None or is_none(item.value)
    ]


def _lines(at: FailingLine, found: Getter) -> str:
    """`line 32`, or `line 32 or line 36`; nothing where another way may give None, too."""
    lines = [at.place(found.spot, item.lineno) for item in _returns_of_none(found.method)]
    others = [item for item in own_nodes(found.method) if isinstance(item, ast.Return) and item.value is not None]
    plain = all(_gives_something(item.value) for item in others)
    ends = isinstance(found.method.body[-1], (ast.Return, ast.Raise))
    return " or ".join(lines) if 0 < len(lines) <= _MOST and plain and ends else ""


def _gives_something(value: ast.expr | None) -> bool:
    """Of what is returned: by its form it cannot be None."""
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).partition(".")[0] in ("torch", "np", "numpy", "dict", "list", "tuple")
    return isinstance(value, (ast.Tuple, ast.Dict, ast.List, ast.Constant, ast.BinOp))


def _hiding(at: FailingLine, found: Getter) -> tuple[str, str] | None:
    """The handler that the only `return None` is in."""
    lines, nothing = _lines(at, found), _returns_of_none(found.method)
    if not lines or len(nothing) != 1:
        return None
    for item in own_nodes(found.method):
        if isinstance(item, ast.ExceptHandler) and any(part is nothing[0] for part in nodes_of(item)):
            kind = f"except {ast.unparse(item.type)}" if item.type is not None else "except"
            return f"{kind}:", at.place(found.spot, nothing[0].lineno)
    return None


def _inner(found: Getter | None, place: str) -> tuple[ast.expr, int] | None:
    """The expression of the only tuple or dict that is returned, and its line."""
    if found is None or place.count("[") != 1:
        return None
    returns = [item for item in own_nodes(found.method) if isinstance(item, ast.Return)]
    value = returns[0].value if len(returns) == 1 else None
    key = ast.literal_eval(place[1:-1])
    if isinstance(value, ast.Tuple) and isinstance(key, int) and key < len(value.elts):
        return value.elts[key], value.elts[key].lineno
    if isinstance(value, ast.Dict):
        for name, item in zip(value.keys, value.values, strict=True):
            if isinstance(name, ast.Constant) and name.value == key:
                return item, item.lineno
    return None


def _none_part(at: FailingLine, which: str, found: Getter | None, place: str) -> str:
    inner = _inner(found, place)
    if found is None or inner is None:
        by = f" ({found.owner.name}.__getitem__)" if found is not None else ""
        return (
            f"Element {place} of {which} is None{by}, which no batch can have. Give it a value of the others' kind, or "
            "leave such samples out where the dataset is made."
        )
    part, line = inner
    made = bound_value(found.method, part.id, line) if isinstance(part, ast.Name) else (line, part)
    if isinstance(part, ast.Name) and len(reaching(found.method, part.id, line) or ()) > 1:
        made = None
    call = made[1] if made is not None else None
    where = f"`{source(part)}` (returned by {found.owner.name}.__getitem__, {at.place(found.spot, line)})"
    end = "Leave such samples out where the dataset's list is made, or give a value of the others' kind there."
    function = at.slice.function(call, found.spot) if isinstance(call, ast.Call) else None
    nothing = _returns_of_none(function[0]) if function is not None else []
    if function is not None and len(nothing) == 1:
        why = _condition(function[0], nothing[0])
        return (
            f"{where} is None in {which}: {function[0].name}() returns None at "
            f"{at.place(function[1], nothing[0].lineno)}{why}. {end}"
        )
    came = f", from {at.place(found.spot, made[0])} (`{source(call)}`)" if made is not None and call is not None else ""
    return f"{where} is None in {which}{came if came and made is not None and made[0] != line else ''}. {end}"


def _condition(scope: ast.AST, item: ast.Return) -> str:
    for test in own_nodes(scope):
        if isinstance(test, ast.If) and item in test.body:
            return f" (`if {source(test.test)}`)"
    return ""
