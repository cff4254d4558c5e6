"""Layers that a model registers in the order of a dict or a set, and the line that saves that dict sorted by its keys.

Modules keep the order in which they are registered, parameters() lists them so, and an optimizer's state is loaded by
that order. A dict that goes through a file with `sort_keys=True` comes back in another one; a set has none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import bare_names
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_REGISTERS = frozenset({"add_module", "register_module", "setattr", "register_parameter"})
_HOLDERS = frozenset({"ModuleDict", "ModuleList", "Sequential", "ParameterDict", "ParameterList"})
_VIEWS = frozenset({"items", "keys", "values"})
_SETS = frozenset({"set", "frozenset"})
_DUMPS = frozenset({"dump", "dumps", "safe_dump", "dump_all"})
_QUOTED = 56


class RegisteredOrder(msgspec.Struct, frozen=True):
    """`over`: what is gone through, of `file` and `line`. `saved`: the file and line that sort its keys, of a dict."""

    file: str
    line: int
    over: ast.expr
    saved: tuple[str, int, str] | None


def registered_order(at: FailingLine) -> RegisteredOrder | None:
    """The only loop of the program's modules over a set, or over a dict that the program saves sorted."""
    loops = [*_loops(at)]
    sets = [(file, node) for file, node in loops if _is_set(node)]
    if sets:
        file, node = sets[0]
        return RegisteredOrder(file, node.lineno, node, None) if len(sets) == 1 else None
    saves = [*_sorted_saves(at)]
    both = [(loop, save) for loop in loops for save in saves if _names(loop[1]) & _names(save[1])]
    if len(both) != 1:
        return None
    (file, node), (home, value, how) = both[0]
    return RegisteredOrder(file, node.lineno, node, (home, value.lineno, how))


def registered_words(at: FailingLine, found: RegisteredOrder) -> tuple[str, str]:
    """For the headline, and what to do."""
    place, over = at.in_file(found.file, found.line), shortened(ast.unparse(found.over), _QUOTED)
    begins, other = f"{place} registers layers in the order of", "in another order than when the state was saved"
    if found.saved is None:
        differs = f"that of `{over}`, a set, which differs from run to run. Go through `sorted(...)` of it, or a list."
        return f"{begins} a set", f"Most likely {place} registers layers {other}: {differs}"
    file, line, how = found.saved
    saves = f"{at.in_file(file, line)} saves sorted ({how})"
    leave = "Leave that out" if how == "sort_keys=True" else "Pass sort_keys=False"
    cure = f"{leave}, or register the layers in the order of a list."
    advice = f"Most likely {place} registers layers {other}: that of `{over}`, which {saves}. {cure}"
    return f"{begins} a dict that {saves}", advice


def _loops(at: FailingLine) -> Iterator[tuple[str, ast.expr]]:
    """What loops that register layers in a class of modules go through, if it is a set or may be a dict."""
    for file, tree in at.files.items():
        for owner in nodes_of(tree):
            if not isinstance(owner, ast.ClassDef) or not any("Module" in ast.unparse(item) for item in owner.bases):
                continue
            for item in nodes_of(owner):
                over = _gone_through(item)
                if over is not None and (_is_set(over) or _is_table(over, item)):
                    yield file, over


def _gone_through(item: ast.AST) -> ast.expr | None:
    if isinstance(item, ast.For):
        return item.iter if any(_registers(node) for part in item.body for node in nodes_of(part)) else None
    if isinstance(item, ast.Call) and called_name(item) in _HOLDERS:
        kinds = (ast.DictComp, ast.ListComp, ast.GeneratorExp)
        made = next((node for node in nodes_of(item) if isinstance(node, kinds)), None)
        return made.generators[0].iter if made is not None and len(made.generators) == 1 else None
    return None


def _registers(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        appends = called_name(node) == "append" and isinstance(node.func, ast.Attribute) and len(node.args) == 1
        made = node.args[0] if appends else None
        return called_name(node) in _REGISTERS or (
            isinstance(made, ast.Call) and (called_name(made) or "")[:1].isupper()
        )
    held = node.targets[0] if isinstance(node, ast.Assign) else None
    return isinstance(held, ast.Subscript) and ast.unparse(held.value).startswith("self.")


def _is_set(node: ast.expr) -> bool:
    return isinstance(node, ast.Set) or (isinstance(node, ast.Call) and called_name(node) in _SETS)


def _is_table(node: ast.expr, around: ast.AST) -> bool:
    """`config["blocks"].items()`, or `config["blocks"]` itself where `config["blocks"][name]` is read: else a list."""
    if isinstance(node, ast.Call):
        return called_name(node) in _VIEWS and isinstance(node.func, ast.Attribute)
    text = ast.unparse(node)
    reads = (item for item in nodes_of(around) if isinstance(item, ast.Subscript) and isinstance(item.slice, ast.Name))
    return any(ast.unparse(item.value) == text for item in reads)


def _sorted_saves(at: FailingLine) -> Iterator[tuple[str, ast.expr, str]]:
    """What `json.dump(value, file, sort_keys=True)` is given, and `yaml.dump(value)`, which sorts unless it is told."""
    for file, tree in at.files.items():
        for item in nodes_of(tree):
            if not isinstance(item, ast.Call) or called_name(item) not in _DUMPS or not item.args:
                continue
            given = keyword_value(item, "sort_keys")
            told = given.value if isinstance(given, ast.Constant) else None
            if told is True:
                yield file, item.args[0], "sort_keys=True"
            elif given is None and ast.unparse(item.func).startswith("yaml."):
                yield file, item.args[0], "yaml's default"


def _names(node: ast.expr) -> set[str]:
    """`cfg` of `self.cfg` and of `cfg["blocks"].items()`."""
    attributes = {item.attr for item in nodes_of(node) if isinstance(item, ast.Attribute)}
    return (bare_names(node) | attributes) - {"self", *_VIEWS}
