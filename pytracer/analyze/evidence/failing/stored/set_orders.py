"""What to write in place of the sets that an optimizer's groups are built from."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.parameter_sets import ParameterSet
from pytracer.analyze.evidence.slicing.sets_of_names import are_names
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_LISTS = ("parameters", "named_parameters")
_MOST = 3  # lines
_QUOTED, _WRITTEN = 44, 80


def set_lines(at: FailingLine, sets: Sequence[ParameterSet]) -> str:
    """`lines 62 and 63`, `optimizers.py:12`."""
    places = list(dict.fromkeys(str(at.place(item.made.spot, item.made.line)) for item in sets))
    if len(places) > 1 and all(place.startswith("line ") for place in places):
        return f"lines {list_words([place.removeprefix('line ') for place in places], _MOST)}"
    return list_words(places, _MOST)


def lists_for_sets(at: FailingLine, sets: Sequence[ParameterSet]) -> str:
    """`` Build the groups as lists in the order of `model.named_parameters()`: write ... for `list(x)` at line 4 ``."""
    models = {name for item in sets if (name := _model(item)) is not None}
    order = f"`{models.pop()}.named_parameters()`" if len(models) == 1 else "the model's named_parameters()"
    made = set_lines(at, sets)  # the code that is shown has these lines as well
    written = [(item, text) for item in sets if (text := _written(item)) is not None and len(text) <= _WRITTEN]
    if len(written) < len(sets):
        text = shortened(ast.unparse(sets[0].made.node), _QUOTED)
        return f"Build the groups as lists in the order of {order}, where {made} made sets (`{text}`)."
    written.sort(key=lambda pair: (pair[0].read.line, getattr(pair[0].read.node, "col_offset", 0)))
    first, text = written[0]
    likewise = [f"for {_old(at, item)}" for item, _ in written[1:_MOST]]
    also = f"; likewise {list_words(likewise, _MOST)}" if likewise else ""
    return f"Build the groups as lists in the order of {order}: write `{text}` for {_old(at, first)}{also}."


def _old(at: FailingLine, item: ParameterSet) -> str:
    """`` `list(plain)` at line 65 ``."""
    text = shortened(ast.unparse(item.read.node), _QUOTED)
    return f"`{text}` at {at.place(item.read.spot, item.read.line)}"


def _model(item: ParameterSet) -> str | None:
    """The only module of that function whose parameters are listed there, if the set is read there as well."""
    scope = item.made.spot.scope
    if item.read.spot.scope is not scope:
        return None
    owners = {
        ast.unparse(node.func.value)
        for node in own_nodes(scope)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LISTS
    }
    return owners.pop() if len(owners) == 1 else None


def _written(item: ParameterSet) -> str | None:
    """A list of the same that has an order, in place of what lists the set; None where that is not sure."""
    listed = _listed(item.read.node)
    if listed is None:
        return _by_name(item)
    if isinstance(listed, (ast.Name, ast.Attribute)):
        model = _model(item)
        return f"[p for p in {model}.parameters() if p in {ast.unparse(listed)}]" if model is not None else None
    if isinstance(listed, ast.SetComp) and all(_is_of_model(part.iter) for part in listed.generators):
        return ast.unparse(ast.ListComp(listed.elt, listed.generators))
    whole = _of_set(listed)
    if whole is not None:
        return f"list(dict.fromkeys({ast.unparse(whole)}))"
    whole = _of_set(listed.left) if isinstance(listed, ast.BinOp) and isinstance(listed.op, ast.Sub) else None
    if whole is None or not isinstance(listed, ast.BinOp) or not isinstance(listed.right, ast.Name):
        return None
    return f"[p for p in {ast.unparse(whole)} if p not in {listed.right.id}]"


def _listed(read: ast.AST) -> ast.expr | None:
    """`x` of `list(x)`, of `[p for p in x]`, and of itself."""
    if isinstance(read, ast.Call) and called_name(read) in ("list", "tuple") and len(read.args) == 1:
        return read.args[0]
    if not isinstance(read, (ast.ListComp, ast.GeneratorExp)):
        return read if isinstance(read, ast.expr) else None
    part = read.generators[0]
    plain = len(read.generators) == 1 and not part.ifs and ast.unparse(part.target) == ast.unparse(read.elt)
    return part.iter if plain else None


def _is_of_model(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and called_name(node) in _LISTS


def _of_set(node: ast.AST) -> ast.expr | None:
    """`model.parameters()` of `set(model.parameters())`."""
    if isinstance(node, ast.Call) and called_name(node) == "set" and len(node.args) == 1 and _is_of_model(node.args[0]):
        return node.args[0]
    return None


def _by_name(item: ParameterSet) -> str | None:
    """`[table[name] for name in sorted(decay)]`; not of ids, which no other run repeats, or of what may be no name."""
    read = item.read.node
    if not isinstance(read, (ast.ListComp, ast.GeneratorExp)) or len(read.generators) != 1:
        return None
    part, elt = read.generators[0], read.elt
    if not isinstance(elt, ast.Subscript) or ast.unparse(elt.slice) != ast.unparse(part.target):
        return None
    if not isinstance(part.iter, ast.Name) or not are_names(item.made, (part.iter, item.read.spot)):
        return None
    where = "".join(f" if {ast.unparse(test)}" for test in part.ifs)
    return f"[{ast.unparse(elt)} for {ast.unparse(part.target)} in sorted({ast.unparse(part.iter)}){where}]"
