"""State that an object keeps from one step to the next with its graph, which backward() has freed by then.

An attribute or buffer that forward() stores and the next one reads. What overwrites its values in place does not cut
the graph; what sets it anew, or detaches it, does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.autograd.backward_call import outside_backward
from pytracer.analyze.evidence.failing.autograd.kept_results import (
    FILLS,
    WITHOUT_GRAPH,
    Stored,
    attribute_of,
    methods_of,
    path_of,
    stores,
)
from pytracer.analyze.evidence.failing.autograd.overwritten_states import Overwritten, overwrites, overwritten
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.calls import MADE_ON_CALL
from pytracer.analyze.evidence.syntax.bindings import each_set
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.names import bare_names, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters, spans

# What asks whether there is a state yet, or one that fits the batch.
_FITS = Pattern(r"is None|\.shape|\.size\(|\.device|\.dtype|hasattr\(|\.numel\(|\.ndim|\.dim\(")
_NUMBERS = ("float", "int", "print", "item")
_SIZES = ("shape", "size", "device", "dtype", "numel", "ndim", "dim", "requires_grad", "is_cuda")
_MODULES = Pattern(r"Module|Model\b")
_SETS_BY_NAME = ("setattr", "register_buffer", "__setattr__")
_RETAINS = "retain_graph=True would only make the graph longer with each step."


def carried_by_object(raised: FailingLine) -> tuple[str, str] | None:
    """The attribute that one call leaves with a graph, and the next call reads; None for none or several.

    In a sentence, and in a few words for the headline.
    """
    at = outside_backward(raised)
    found = _last_carried(at)
    passes = [item for item in own_nodes(at.scope) if isinstance(item, ast.Call) and called_name(item) == "backward"]
    if found is None or len(passes) > 1:  # two of one step may share a graph
        return None
    stored, read = found
    name = f"self.{attribute_of(stored.node)}"
    again = " again" if read == stored.node.lineno else ""
    what = f"what {stored.owner.name} keeps in `{name}` ({stored.words(at)})"
    freed = f"backward(){f' ({raised.in_file(at.frame.file, at.line)})' if raised is not at else ''} has freed it"
    next_read = f"which the next step reads{again} ({at.in_file(stored.file, read)}) after {freed}"
    kept = overwritten(at, stored)
    how = _how(at, stored, name, kept)
    if raised is not at and _applied_there_only(raised, stored):
        why = f": {_keeps(at, kept)}" if kept is not None else ""
        uncut = (
            f", and `{kept.text}` ({raised.in_file(kept.file, kept.line)}) does not cut it" if kept is not None else ""
        )
        return (
            f"{what[0].upper()}{what[1:]} is a result with its graph, {next_read}{why}. {how} {_RETAINS}",
            f"the graph of the step before is still part of {what}{uncut}",
        )
    why = f"; {_keeps(at, kept)}" if kept is not None else ""
    words = f"Most likely by {what}: a result with its graph, {next_read}{why}. {how}"
    return words, f"probably the graph of what `{name}` keeps ({stored.words(at)})"


def _keeps(at: FailingLine, kept: Overwritten) -> str:
    return f"`{kept.text}` ({at.in_file(kept.file, kept.line)}) overwrites its values and keeps the graph"


def _how(at: FailingLine, stored: Stored, name: str, kept: Overwritten | None) -> str:
    if kept is not None:
        place = at.in_file(stored.file, stored.node.lineno)
        return f"Write `{kept.detached}` there, or store `.detach()` of it ({place})."
    if isinstance(stored.node, ast.Expr):
        return "Store `.detach()` of it, or start anew in each step."
    if isinstance(stored.node, ast.Assign) and isinstance(stored.node.targets[0], ast.Subscript):
        return "Store it detached (of a tuple, each tensor), or start anew in each step."
    return f"Set `{name} = {name}.detach()` before (of a tuple, each tensor), or start anew in each step."


def _applied_there_only(raised: FailingLine, stored: Stored) -> bool:
    """Whether the autograd function whose graph was freed is applied by the method that stores it, and nowhere else."""
    classes = [item for item in nodes_of(raised.tree) if isinstance(item, ast.ClassDef) and spans(item, raised.line)]
    function = max(classes, key=lambda item: item.lineno).name if classes else None
    applied = [
        (file, item.lineno)
        for file, tree in raised.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Attribute)
        and item.attr == "apply"
        and ast.unparse(item.value).rpartition(".")[2] == function
    ]
    first, last = stored.method.lineno, stored.method.end_lineno or 0
    return bool(function and applied) and all(file == stored.file and first <= line <= last for file, line in applied)


def _last_carried(at: FailingLine) -> tuple[Stored, int] | None:
    read = [(item, line) for item in stores(at) if (line := _read_before(at, item)) is not None]
    for given in (False, True):
        found = [pair for pair in read if is_computed(at, pair[0], given=given)]
        names = {(item.owner.name, attribute_of(item.node)) for item, _ in found}
        if found:
            return found[-1] if len(names) == 1 else None
    return None


def _read_before(at: FailingLine, stored: Stored) -> int | None:
    """The line where the next step reads what this one has stored; None where it is set anew before."""
    name, filled = attribute_of(stored.node), isinstance(stored.node, ast.Expr)
    if isinstance(stored.node, ast.AugAssign) or _is_reset(at, stored, f"self.{name}"):
        return None
    if not filled and not _is_used(at, stored):
        return None
    for method in methods_of(stored.owner) if filled else [stored.method]:
        nodes = [*own_nodes(method)]
        not_read = {id(item.func.value) for item in nodes
                    if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute)
                    and item.func.attr in (*FILLS, "clear")}  # fmt: skip
        not_read |= {id(part) for item in nodes for part in _asked(item)}
        reads = [
            item.lineno
            for item in nodes
            if isinstance(item, ast.Attribute) and path_of(item) == f"self.{name}" and isinstance(item.ctx, ast.Load)
            if id(item) not in not_read
        ]
        cut = any(
            isinstance(item, ast.stmt) and not hasattr(item, "body") and f"self.{name}" in (text := ast.unparse(item))
            and WITHOUT_GRAPH.search(text) for item in nodes
        )  # fmt: skip
        if cut or _is_cut_elsewhere(at, method, f"self.{name}"):
            return None
        if reads and method.name != "__init__" and (filled or min(reads) <= stored.node.lineno):
            return min(reads)
    return None


def _asked(node: ast.AST) -> list[ast.expr]:
    """What is only asked for its shape, or whether it is there: no result has its graph by that."""
    if isinstance(node, ast.Attribute) and node.attr in _SIZES:
        return [node.value]
    if isinstance(node, ast.Compare) and all(isinstance(item, (ast.Is, ast.IsNot)) for item in node.ops):
        return [node.left, *node.comparators]
    return node.args if isinstance(node, ast.Call) and called_name(node) == "len" else []


def _is_cut_elsewhere(at: FailingLine, method: ast.FunctionDef, path: str) -> bool:
    """Whether what is read is detached under another name of the method, or by a function: `repackage(self.hidden)`."""
    statements = [item for item in own_nodes(method) if isinstance(item, ast.stmt) and not hasattr(item, "body")]
    other = {
        part.id
        for item in statements
        if isinstance(item, ast.Assign) and _reads_alone(item.value, path)
        for target in item.targets
        for part in nodes_of(target)
        if isinstance(part, ast.Name)
    }
    if any(other & bare_names(item) and WITHOUT_GRAPH.search(ast.unparse(item)) for item in statements):
        return True
    given = {
        called_name(item)
        for item in own_nodes(method)
        if isinstance(item, ast.Call)
        for argument in item.args
        if other & bare_names(argument) or any(path_of(part) == path for part in nodes_of(argument))
    }
    return any(
        isinstance(item, ast.FunctionDef) and item.name in given and WITHOUT_GRAPH.search(ast.unparse(item))
        for tree in at.files.values()
        for item in nodes_of(tree)
    )


def _reads_alone(value: ast.expr, path: str) -> bool:
    """`self.hidden`, `self.hidden[0]` and `self.hidden.get("train")`, and not what a call makes of it."""
    calls = [item for item in nodes_of(value) if isinstance(item, ast.Call)]
    given = [part for item in calls for argument in item.args for part in nodes_of(argument)]
    return any(path_of(item) == path for item in nodes_of(value)) and not any(path_of(item) == path for item in given)


def _is_used(at: FailingLine, stored: Stored) -> bool:
    """Whether more than the attribute itself is computed from it: a mean that is only logged makes no loss."""
    name, own = attribute_of(stored.node) or "", [*own_nodes(stored.method)]
    if not name.isidentifier():  # `self.states[0].h`
        return True
    held = {f"self.{name}"}
    for _ in range(2):
        for item in own:
            if item is stored.node or not isinstance(item, ast.stmt):
                continue
            if isinstance(item, (ast.For, ast.AsyncFor)) and any(_reads(part, held) for part in nodes_of(item.iter)):
                return True
            if isinstance(item, ast.Assign) and all(variable(part) == f"self.{name}" for part in item.targets):
                continue
            if hasattr(item, "body") or not any(_reads(part, held) for part in nodes_of(item)):
                continue
            if not isinstance(item, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                return True  # it is returned, or given to what may keep it
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            parts = [part for target in targets for part in nodes_of(target) if not isinstance(part, ast.Starred)]
            if any(isinstance(part, (ast.Attribute, ast.Subscript)) for part in parts):
                return True
            held |= {part.id for part in parts if isinstance(part, ast.Name)}
    targets = stored.node.targets if isinstance(stored.node, ast.Assign) else []
    if any(variable(part) != f"self.{name}" for part in targets):
        return True  # `out, self.h = self.rnn(x, self.h)`
    span = range(stored.method.lineno, (stored.method.end_lineno or 0) + 1)
    for file, tree in at.files.items():
        calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call)]
        shown = {id(part) for item in calls if called_name(item) in _NUMBERS for part in nodes_of(item)}
        shown |= {id(item.func) for item in calls}
        for item in nodes_of(tree):
            if not isinstance(item, ast.Attribute) or item.attr != name or not isinstance(item.ctx, ast.Load):
                continue
            if (file != stored.file or item.lineno not in span) and id(item) not in shown:
                return True
    return False


def _reads(node: ast.AST, held: set[str]) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load) and variable(node) in held


def is_computed(at: FailingLine, stored: Stored, *, given: bool) -> bool:
    """Whether a layer of the object takes part in the value; `given`: also what forward() was given."""
    layers = {
        variable(target)
        for method in methods_of(stored.owner)
        if method.name == "__init__"
        for item in own_nodes(method)
        if isinstance(item, ast.Assign)
        for target, value in each_set(item.targets, item.value)
        if isinstance(value, ast.Call) and not _is_plain(at, called_name(value))
    } - {None}
    made = set(parameters(stored.method)[1:]) if given and stored.method.name in MADE_ON_CALL else set[str]()
    for item in (*own_nodes(stored.method), stored.node):
        value = item.value if isinstance(item, (ast.Assign, ast.AnnAssign, ast.AugAssign)) else None
        value = stored.value if item is stored.node else value
        parts = [*nodes_of(value)] if value is not None else []
        called = any(isinstance(part, ast.Call) and variable(part.func) in layers for part in parts)
        if called or any(isinstance(part, ast.Name) and part.id in made for part in parts):
            if item is stored.node:
                return True
            targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
            made |= {
                part.id for held in targets if held is not None for part in nodes_of(held) if isinstance(part, ast.Name)
            }
    return False


def is_module(at: FailingLine, owner: ast.ClassDef) -> bool:
    """Whether a class is derived from one of torch's."""
    classes = {
        item.name: item for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.ClassDef)
    }
    waiting, seen = [owner], {owner.name}
    while waiting:
        bases = [ast.unparse(base) for base in waiting.pop().bases]
        if any(map(_MODULES.search, bases)):
            return True
        above = {name for base in bases if (name := base.rpartition(".")[2]) in classes} - seen
        seen |= above
        waiting += [classes[name] for name in sorted(above)]
    return False


def _is_plain(at: FailingLine, name: str | None) -> bool:
    """Whether it is a class of the program that is no layer: a reader, a meter."""
    found = [item for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.ClassDef)]
    return any(item.name == name and not is_module(at, item) for item in found)


def _is_reset(at: FailingLine, stored: Stored, name: str) -> bool:
    """Whether the program may set it anew, or detach it: the object itself, or a line from outside."""
    attribute = name.removeprefix("self.")
    owners = {attribute, *(attribute[:place] for place, letter in enumerate(attribute) if letter == ".")}
    resets = {
        method.name
        for method in methods_of(stored.owner)
        if method.name != "__init__"
        for item in own_nodes(method)
        if item is not stored.node and any(_sets_anew(stored.owner, method, item, name) for name in owners)
    }
    if stored.method.name in resets:
        return True
    for tree in at.files.values():
        for item in nodes_of(tree):
            if isinstance(item, ast.Call) and called_name(item) in (*resets, "detach_"):
                return True
            if isinstance(item, ast.Call) and _cuts_by_name(item, attribute):
                return True
            other = isinstance(item, ast.Attribute) and path_of(item) is None and isinstance(item.ctx, ast.Store)
            if other and isinstance(item, ast.Attribute) and item.attr in attribute.split("."):
                return True
    return False


def _sets_anew(owner: ast.ClassDef, method: ast.FunctionDef, item: ast.AST, attribute: str) -> bool:
    """Whether a statement or call of a method leaves no graph in the attribute that it had before."""
    if isinstance(item, ast.Call):
        by_name = called_name(item) in _SETS_BY_NAME and not _names_another(item, attribute)
        return by_name or ast.unparse(item.func) == f"self.{attribute}.clear"
    if not isinstance(item, ast.Assign) or attribute_of(item) != attribute or overwrites(item, attribute):
        return False
    return not any(_asks_for(test, owner, attribute) for test in _tests_around(method, item))


def _cuts_by_name(call: ast.Call, attribute: str) -> bool:
    """`setattr(layer, "h", x)`, and of any name what is cut: `setattr(layer, name, old.detach())`."""
    if called_name(call) not in ("setattr", "__setattr__"):
        return False
    named = [item.value for item in call.args[:-1] if isinstance(item, ast.Constant)]
    if named:
        return attribute.rpartition(".")[2] in named
    value = call.args[-1] if call.args else None
    return value is not None and (is_none(value) or WITHOUT_GRAPH.search(ast.unparse(value)) is not None)


def _names_another(call: ast.Call, attribute: str) -> bool:
    """`setattr(self, "other", x)`."""
    names = [item.value for item in call.args if isinstance(item, ast.Constant)]
    return bool(names) and attribute not in names


def _tests_around(method: ast.FunctionDef, item: ast.Assign) -> Iterator[ast.expr]:
    """Conditions of those `if` that have it in their body."""
    for branch in own_nodes(method):
        if isinstance(branch, ast.If) and any(part is item for body in branch.body for part in nodes_of(body)):
            yield branch.test


def _asks_for(test: ast.expr, owner: ast.ClassDef, attribute: str) -> bool:
    """`self.h is None`, `self.h.shape[0] != len(x)`, also by a method of the object: so not in each step."""
    called = {
        called_name(part) for part in nodes_of(test)
        if isinstance(part, ast.Call) and (variable(part.func) or "").startswith("self.")
    }  # fmt: skip
    asked = [test] + [
        item.value
        for method in methods_of(owner)
        if method.name in called
        for item in own_nodes(method)
        if isinstance(item, ast.Return) and item.value is not None
    ]
    own = Pattern(rf"\bself\.{attribute}\b|hasattr\(self, '{attribute}'\)")
    return any(own.search(text) and _FITS.search(text) for text in map(ast.unparse, asked))
