"""Values that a line takes apart: more or fewer than there are, and the function of the program that returned them."""

from __future__ import annotations

import ast
from typing import TypeGuard

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import count_words
from pytracer.analyze.evidence.failing.data.text_lines import line_of_file
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.emptied import emptied_by, is_empty
from pytracer.analyze.evidence.failing.usage.unpacked_torch import unpacked_torch
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.callers import called_function
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Function, class_around, definitions, own_nodes
from pytracer.analyze.naming import line_in

_UNPACK = Pattern(r"(too many|not enough) values to unpack \(expected (?:at least )?(\d+)(?:, got (\d+))?")
_ONE_VALUE = frozenset(  # of NumPy and torch, functions and methods: an array or tensor, never a tuple
    {"append", "array", "asarray", "as_tensor", "astype", "cat", "clone", "concat", "concatenate", "detach"}
    | {"empty", "flatten", "float", "from_numpy", "full", "hstack", "ones", "ravel", "reshape", "stack", "tensor", "to"}
    | {"unsqueeze", "view", "vstack", "zeros", "zeros_like"}
)
_OF_ITEMS = frozenset({"array", "asarray", "as_tensor", "stack", "tensor", "vstack"})
_KEEPS = ("staticmethod", "classmethod", "no_grad", "inference_mode", "override", "final")  # decorators
_TEXT = Pattern(r"(?:str|bytes) of (\d+)$")
_DICTS = ("dict of", "OrderedDict of", "defaultdict of")
_UNKNOWN = -1
_DEEPEST = 4  # functions that return what another one returns


class _Returned(msgspec.Struct, frozen=True):
    """What the only `return` of a function gives; `values`: of a tuple that is written out; None for one value."""

    function: str
    file: str
    line: int
    text: str
    values: int | None

    def told(self, at: FailingLine) -> str:
        """`` reset() returns one value (line 45: `return self._observe()`) ``."""
        what = "one value" if self.values is None else count_words(self.values, "value")
        return f"{self.function}() returns {what} ({self._place(at)}: `return {self.text}`)"

    def change(self, at: FailingLine, target: ast.expr, wanted: int) -> str:
        """On either side."""
        there = f"return {wanted} at {self._place(at)}"
        if self.values is not None:
            return f"{there}, or take {self.values} at line {at.line}."
        first = target.elts[0] if isinstance(target, (ast.Tuple, ast.List)) and target.elts else target
        return f"{there}, or take it whole at line {at.line} (`{source(first)} = ...`)."

    def _place(self, at: FailingLine) -> str:
        return line_in(self.file, self.line, at.frame.file)


def values_to_unpack(at: FailingLine) -> str | None:
    """`for x, y in loader` over items of three."""
    found = _UNPACK.search(at.message)
    if at.kind != "ValueError" or found is None or not at.own:
        return None
    statement = at.statement
    wanted = int(found[2])
    nothing = _nothing_to_zip(at) if found[3] == "0" else None
    if nothing is not None:
        return nothing
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        target, value = statement.target, statement.iter
        what = f"an item of `{source(value)}`"
    elif isinstance(statement, ast.Assign):
        target, value = statement.targets[0], statement.value
        what = f"`{source(value)}`"
    else:
        return None
    if not _takes(target, wanted):
        return None  # a part of it, or a comprehension in the line
    shape, told = at.shape(value), at.value(value)
    has = f" ({shape.words})" if shape is not None else f" (a {told})" if told is not None else ""
    count = f"{found[3]} values" if found[3] else "more" if found[1] == "too many" else "fewer"
    inner = next((name for name in names_in(value) if at.came(name)), None)
    made = (
        f"; `{inner}` is made{at.came(inner).replace(' (', ' at ', 1).removesuffix(')')}" if inner is not None else ""
    )
    if isinstance(statement, ast.Assign) and isinstance(value, ast.Attribute) and value.attr == "shape":
        owner = at.shape(value.value)
        has = f" {owner.words}" if owner is not None else ""
        return (
            f"`{source(target)}` takes {wanted} dimensions at line {at.line}, and `{source(value)}`{has} has {count}"
            f"{at.came(value.value)}: a batch, channel or time dimension is missing or too many."
        )
    if isinstance(value, ast.Call) and called_name(value) in ("split", "rsplit", "partition", "groups"):
        return _fields(at, value, count, wanted, made)
    if isinstance(statement, (ast.For, ast.AsyncFor)) and (told or "").startswith(_DICTS) and variable(value):
        return (
            f"`{source(value)}`{at.came(value)} is a dict, and a loop over one gives its keys alone, "
            f"which line {at.line} takes apart: write `for {source(target)} in {source(value)}.items()`."
        )
    takes = f"`{source(target)}` takes {wanted} values at line {at.line}"
    returned = _returned(at, value, wanted) if isinstance(statement, ast.Assign) else None
    if returned is not None:
        return f"{takes}, and {returned.told(at)}: {returned.change(at, target, wanted)}"
    perhaps = _perhaps(at, value, wanted) if isinstance(statement, ast.Assign) else None
    if perhaps is not None:
        kind, own = perhaps
        return f"{takes}, and {what} has {count}. If that is {kind}'s, {own.told(at)}: {own.change(at, target, wanted)}"
    of_torch = unpacked_torch(at, target, value, wanted)
    if of_torch is not None:
        return of_torch
    change = "return fewer" if found[1] == "too many" else "return all of them"
    named = "Name as many as it has (`x, y, *rest`)" if found[1] == "too many" else "Name as many as it has"
    single = isinstance(value, ast.Call) and not has and found[1] == "too many" and isinstance(statement, ast.Assign)
    also = " A single tensor is taken apart, too, by its rows: print type() of it." if single else ""
    return f"{takes}, and {what}{has} has {count}{made}. {named}, or {change}.{also}"


def _fields(at: FailingLine, value: ast.Call, count: str, wanted: int, made: str) -> str:
    """Of a text that is split: blank, or with the separator inside of a field."""
    inner = next((name for name in names_in(value) if at.came(name)), None)
    held = _TEXT.match(at.value(inner) or "") if inner is not None else None
    where = line_of_file(at)
    if held is not None and int(held[1]) <= 1 and count == "1 values":
        blank = "is empty" if held[1] == "0" else "has one character, as an empty line has"
        return (
            f"`{inner}` {blank}, so that `{source(value)}` gives 1 value where line {at.line} takes {wanted}"
            f"{f' ({where})' if where else made}: leave such lines out (`if not {inner}.strip(): continue` before line "
            f"{at.line})."
        )
    long = f" (`{inner}` is of {held[1]} characters{f', {where}' if where else ''})" if held is not None else ""
    gives = f"`{source(value)}` gives {count} where line {at.line} takes {wanted}{long}{made}"
    separator = value.args[0] if value.args and called_name(value) in ("split", "rsplit") else None
    if count == "more" and separator is not None and len(value.args) == 1 and wanted > 1:
        text, last = source(separator), wanted - 1
        return (
            f"{gives}: a field holds {text} itself, or there is one field more. If only the first field can hold it, "
            f"write .rsplit({text}, {last}); if only the last, .split({text}, {last}). Else mend that line."
        )
    return (
        f"{gives}: that line of the text has a field too many or too few, or another separator. Print repr() of it, "
        "and skip or mend such lines where they are read."
    )


def _nothing_to_zip(at: FailingLine) -> str | None:
    """`xs, ys = zip(*batch)` of an empty batch."""
    calls = [item for item in nodes_of(at.statement) if isinstance(item, ast.Call)] if at.statement is not None else []
    zips = [item for item in calls if called_name(item) == "zip" and len(item.args) == 1]
    given = zips[0].args[0] if len(zips) == 1 else None
    name = variable(given.value) if isinstance(given, ast.Starred) else None
    if name is None or not is_empty(at.value(name)):
        return None
    why = emptied_by(at, at.scope, name, at.line)
    made = f": {why}" if why else at.came(name)
    return (
        f"`{name}` is empty, so that `{source(zips[0])}` has nothing to take apart{made}. Handle the empty case "
        f"before line {at.line}, or see why no item is left."
    )


def _returned(at: FailingLine, call: ast.expr, wanted: int) -> _Returned | None:
    """Of the only function of that name that does not give as many as are wanted; None where more may be meant."""
    known = _called(at, call) if isinstance(call, ast.Call) else None
    if known is None:
        return None
    file, function = known
    values = _returns(at, file, function, _DEEPEST)
    if values in (_UNKNOWN, wanted):
        return None
    return _of_return(file, function, values)


def returned_values(at: FailingLine, file: str, function: ast.FunctionDef) -> _Returned | None:
    """How many values a function gives, where each `return` of it gives as many."""
    values = _returns(at, file, function, _DEEPEST)
    return _of_return(file, function, values) if values not in (_UNKNOWN, None) else None


def _of_return(file: str, function: ast.FunctionDef | ast.AsyncFunctionDef, values: int | None) -> _Returned:
    line, value = next((item.lineno, item.value) for item in own_nodes(function) if _gives(item))
    return _Returned(function.name, file, line, source(value) if value is not None else "None", values)


def _called(at: FailingLine, call: ast.Call) -> tuple[str, ast.FunctionDef | ast.AsyncFunctionDef] | None:
    """A method only of an object whose class is known: `env.step()` may be a library's, beside an agent's own."""
    spot = at.slice.spot(0)
    found = at.slice.function(call, spot) if spot is not None else None
    if found is not None:
        return (found[1].file or "", found[0])
    known = called_function(at.files, at.tree, call)
    whole = not isinstance(call.func, ast.Attribute) or imported_as(at.tree, call.func) is not None
    return known if whole else None


def _perhaps(at: FailingLine, call: ast.expr, wanted: int) -> tuple[str, _Returned] | None:
    """Of an object whose class is not known: the only class of the program's whose method gives another number."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or _is_of_library(at, call.func):
        return None
    own = [
        (file, item, owner.name, _returns(at, file, item, _DEEPEST))
        for file, tree in at.files.items()
        for item in definitions(tree).get(call.func.attr, ())
        if not isinstance(item, ast.ClassDef) and (owner := class_around(tree, item)) is not None
    ]
    unfit = [item for item in own if item[3] != wanted]
    if len(unfit) != 1 or unfit[0][3] == _UNKNOWN:
        return None
    file, function, name, values = unfit[0]
    return name, _of_return(file, function, values)


def _is_of_library(at: FailingLine, method: ast.Attribute) -> bool:
    """Whether a library's function made the object, or is it: `gym.make(...)`, `torch.max`."""
    made = at.made(method.value)
    node = made.node if made is not None else method.value
    func = node.func if isinstance(node, ast.Call) else node
    return imported_as(at.tree, func) is not None or imported_as(at.tree, method) is not None


def _takes(target: ast.expr, wanted: int) -> bool:
    """Whether the whole target does, and no target within it: which of these failed is not known."""
    inside = [item for item in ast.walk(target) if isinstance(item, (ast.Tuple, ast.List))]
    takes = [len([part for part in item.elts if not isinstance(part, ast.Starred)]) for item in inside]
    return takes.count(wanted) == 1 and takes[0] == wanted and inside[0] is target


def _gives(item: ast.AST) -> TypeGuard[ast.Return]:
    return isinstance(item, ast.Return) and item.value is not None


def _returns(at: FailingLine, file: str, function: ast.FunctionDef | ast.AsyncFunctionDef, deepest: int) -> int | None:
    """How many values each `return` of a function gives; as _count()."""
    nodes = [*own_nodes(function)]
    kept = all(ast.unparse(item).removesuffix("()").endswith(_KEEPS) for item in function.decorator_list)
    if not kept or any(isinstance(item, (ast.Yield, ast.YieldFrom)) for item in nodes):
        return _UNKNOWN
    values = [item.value for item in nodes if _gives(item)]
    found = {_count(at, file, function, item, deepest) if item is not None else _UNKNOWN for item in values}
    return found.pop() if len(found) == 1 else _UNKNOWN


def _count(at: FailingLine, file: str, function: Function, value: ast.expr, deepest: int) -> int | None:
    """How many values an expression has; None of one that is no tuple, _UNKNOWN where it may be either."""
    if isinstance(value, ast.Tuple):
        return _UNKNOWN if any(isinstance(item, ast.Starred) for item in value.elts) else len(value.elts)
    if isinstance(value, (ast.Compare, ast.Dict, ast.JoinedStr, ast.Constant)) or _is_number(value):
        return None
    name = variable(value)
    if isinstance(value, ast.Name) and name is not None:
        bound = [item for _, item, place in bindings_of(function, name) if place is None]
        counts = {
            _count(at, file, function, item, deepest - 1) if isinstance(item, ast.expr) else _UNKNOWN for item in bound
        }
        return counts.pop() if len(counts) == 1 and deepest else _UNKNOWN
    if not isinstance(value, ast.Call) or not deepest:
        return _UNKNOWN
    if called_name(value) in _ONE_VALUE:
        listed = called_name(value) in _OF_ITEMS and any(isinstance(item, (ast.List, ast.Tuple)) for item in value.args)
        return _UNKNOWN if listed else None  # `np.array([x, y])` is taken apart as well as a tuple
    own = called_function(at.files, at.files.get(file, at.tree), value)
    return _returns(at, *own, deepest - 1) if own is not None else _UNKNOWN


def _is_number(node: ast.expr) -> bool:
    """What is computed of numbers, arrays or tensors, and no tuple or list: `a + b` and `[n] * 3` may be."""
    if not isinstance(node, ast.BinOp):
        return isinstance(node, ast.Constant) and type(node.value) is float
    return not isinstance(node.op, (ast.Add, ast.Mult, ast.BitOr)) or _is_number(node.left) or _is_number(node.right)
