"""Samples that cannot be joined or packed: which part of them differs or is empty, and which line makes it so."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer._text import capital, uncapital
from pytracer.analyze.evidence.failing.data.datasets import Getter, getter, sample_name
from pytracer.analyze.evidence.failing.data.sample_keys import lacking_key
from pytracer.analyze.evidence.failing.data.unequal_sizes import advice_of_sizes
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.opened import opened
from pytracer.analyze.evidence.failing.usage.settings import whence
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_LENGTHS = Pattern(r"[Ll]ength of all samples has to be greater than 0")
_LOWEST = Pattern(r", (-?\d+)\.\.-?\d+$")
_JSON = Pattern(r"line \d+ column \d+ \(char (\d+)\)")
_SEVERAL = Pattern(r"Extra data: line ([2-9]|\d{2,}) column 1 ")
_DEEP = 3
_HALVES = 2


def unequal_samples(at: FailingLine) -> str | None:
    """What torch's default_collate refused."""
    held, place = at.compared, at.compared.get("place")
    kinds = _kinds(at)
    if "batch[0]" not in held or "NoneType" in (value for _, value in kinds):
        return None
    found = getter(at)
    lacking = lacking_key(at, kinds, found)
    if lacking is not None:
        return f"{capital(lacking.words)}. {lacking.change}"
    part, where = _part(at, found, place)
    if len(kinds) != _HALVES:
        if "batch must contain" not in at.message:
            return None
        return (
            f"{part}{where} is a {held['batch[0]']}, which the default collate_fn cannot join to a batch. Return "
            "tensors, "
            "numbers, text, or dicts and tuples of these, or give the DataLoader a collate_fn that keeps it in a list."
        )
    return (
        f"{part}{where} is {_differing(at, kinds)}: the default collate_fn joins only what is alike. "
        f"{advice_of_sizes(at, kinds[0][1], kinds[1][1], part)}"
    )


def unequal_subject(at: FailingLine) -> str | None:
    """What the headline says of it."""
    kinds = _kinds(at)
    if "batch[0]" not in at.compared or len(kinds) != _HALVES or "NoneType" in (value for _, value in kinds):
        return None
    lacking = lacking_key(at, kinds, getter(at))
    if lacking is not None:
        return lacking.words
    part, _ = _part(at, getter(at), at.compared.get("place"))
    return f"{uncapital(part)} is {_differing(at, kinds)}"


def _kinds(at: FailingLine) -> list[tuple[str, str]]:
    return [(name, value) for name, value in at.compared.items() if name != "place"]


def _differing(at: FailingLine, kinds: list[tuple[str, str]]) -> str:
    """`[2, 3] in sample 0 of the batch and [2, 4] in sample 3`."""
    (_, one), (name, other) = kinds
    place = name.removeprefix("batch[").rstrip("]")
    first, second = sample_name(at, 0), sample_name(at, int(place)).partition(" of ")[0]
    article = "" if one.startswith("[") or other.startswith("[") else "a "
    return f"{article}{one} in {first} and {article}{other} in {second}"


def _part(at: FailingLine, found: Getter | None, place: str | None) -> tuple[str, str]:
    """`` `target` `` and where it is returned."""
    outer = f"Element {place} of a sample" if place else "A part of a sample"
    method, owner = (found.method, found.owner.name) if found is not None else (None, "")
    returns = [item for item in own_nodes(method) if isinstance(item, ast.Return)] if method is not None else []
    if len(returns) != 1 or not place or found is None:
        if found is None:
            return outer, ""
        return outer, f" ({owner}.__getitem__, {at.place(found.spot, found.method.lineno)})"
    value, line = returns[0].value, at.place(found.spot, returns[0].lineno)
    key = ast.literal_eval(place[1 : place.index("]")])
    inner: ast.AST | None = None
    if isinstance(value, ast.Tuple) and isinstance(key, int) and key < len(value.elts):
        inner = value.elts[key]
    elif isinstance(value, ast.Dict) and None not in value.keys:  # `**others` may have it, too
        inner = next(
            (item for name, item in zip(value.keys, value.values, strict=True)
             if isinstance(name, ast.Constant) and name.value == key), None,
        )  # fmt: skip
    if inner is None:
        return outer, f" (returned at {line})"
    line = at.place(found.spot, getattr(inner, "lineno", returns[0].lineno))
    rest = place[place.index("]") + 1 :]
    named = f" ('{key}')" if isinstance(key, str) else ""
    return f"`{source(inner)}{rest}`{named}", f", returned by {owner}.__getitem__ ({line}),"


def not_json(at: FailingLine) -> str | None:
    """json.loads() of one text; json.load() of a file with several."""
    call, found = at.only(ast.Call), _JSON.search(at.message)
    several = _SEVERAL.match(at.message)
    if at.kind == "JSONDecodeError" and several is not None and call is not None and called_name(call) == "load":
        file = opened(at.values)
        name = file.name if file is not None else "The file"
        return (
            f"{name} goes on behind its first text, at line {several[1]}: a file with a text per line (JSON Lines) "
            f"is read by `[json.loads(line) for line in ...]`, not by `{source(call)}`."
        )
    if at.kind != "JSONDecodeError" or found is None or call is None or called_name(call) != "loads" or not call.args:
        return None
    if "enclosed in double quotes" in at.message:
        return None  # a text that is there, of another syntax: comments, single quotes
    text, place = source(call.args[0]), int(found[1])
    empty = at.value(call.args[0]) in (None, "str of 0", "bytes of 0")
    nothing = "has nothing, or none at its start" if at.value(call.args[0]) is None else "has nothing"
    what = nothing if place == 0 and empty else f"is no JSON from character {place} on"
    index = call.args[0].slice if isinstance(call.args[0], ast.Subscript) else None
    number = at.value(index) if index is not None else None
    which = f" ({source(index)} is {number})" if number is not None and index is not None else ""
    owner = variable(call.args[0].value) if isinstance(call.args[0], ast.Subscript) else variable(call.args[0])
    return (
        f"`{text}`{which} {what}: cut off, empty, or several texts in one{at.came(owner)}. Print repr() of it; "
        "mend that line of the file, or leave such lines out when it is read."
    )


def empty_sequence(at: FailingLine) -> str | None:
    """A length of 0 among those that are packed."""
    call = at.only(ast.Call)
    if not _LENGTHS.search(at.message) or call is None:
        return None
    given = keyword_value(call, "lengths")
    given = given if given is not None else call.args[1] if len(call.args) > 1 else None
    lowest = _LOWEST.search(at.values.get(ast.unparse(given), "")) if given is not None else None
    if given is None:
        return None
    holds = f"holds {lowest[1]}" if lowest is not None else "holds a 0"
    found = at.made(given)
    tests = _conditions(at, found) if found is not None else []
    why = f"; line {tests[0][0]} keeps only what passes `{tests[0][1]}`" if len(tests) == 1 else ""
    return (
        f"`{source(given)}`{whence(at, given)} {holds}: a sample has no element{why}. Leave such samples out where the "
        f"data is read, or pass `{source(given)}.clamp(min=1)`."
    )


def _conditions(at: FailingLine, found: Made, hops: int = _DEEP) -> list[tuple[int, str]]:
    """Of the comprehensions that a value went through."""
    tests: dict[int, str] = {}
    waiting = [(found.node, found.spot, hops)]
    while waiting:
        node, spot, left = waiting.pop()
        for item in nodes_of(node):
            if isinstance(item, ast.comprehension) and item.ifs:
                tests[item.ifs[0].lineno] = " and ".join(source(test) for test in item.ifs)
            if left == 0:
                continue
            if isinstance(item, ast.Call) and called_name(item) != "len":
                inner = at.slice.made(item, spot, calls=True)
                if inner.through:
                    waiting.append((inner.node, inner.spot, left - 1))
            elif isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load):
                inner = at.slice.made(item, spot, calls=True)
                if inner.through and not isinstance(inner.node, ast.Name):
                    waiting.append((inner.node, inner.spot, left - 1))
    return sorted(tests.items())
