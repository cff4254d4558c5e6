"""None that a file holds since the program saved it so: `"optimizer": opt.state_dict() if keep else None`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of

_SAVES = Pattern(r"(?:^|_)(?:save|dump|dumps)(?:$|_)")


class _Saved(msgspec.Struct, frozen=True):
    """`value`: what is saved under the key, which may be None; `call`: that saves it."""

    file: str
    value: ast.expr
    call: ast.Call


def saved_none(at: FailingLine, node: ast.expr) -> str | None:
    """`` `state['optimizer']` is None, which line 92 saves for it where `best` ``; None where no single line does so.

    Args:
        at: The failing line.
        node: What it found to be None: an item of what a file holds.
    """
    key = node.slice.value if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) else None
    loads = _library(_made_by(at, node)) or ""
    every = [item for item in _saved(at, key) if loads in _libraries(at, item.call)] if isinstance(key, str) else []
    found = [item for item in every if _may_be_none(item.value)]
    if len(found) != 1 or any(item not in found and not _is_state(item.value) for item in every):
        return None
    saved, text = found[0], source(node)
    line = at.in_file(saved.file, saved.value.lineno).quoted(source(saved.value))
    test = _test(saved.value)
    if test is None:
        return (
            f"`{text}` is None, which {line} saves for it: save its state there, or go on without it where it is "
            f"None, before line {at.line}."
        )
    without, with_it = _files(saved.call, test)
    into = f", into '{without}'" if without is not None else ""
    other = f"Load '{with_it}', which has it" if with_it is not None else "Load a file that was saved otherwise"
    return (
        f"`{text}` is None, which {line} saves for it {_words(test)}{into}. {other}, save it in both cases, or go on "
        f"without it where it is None, before line {at.line}."
    )


def _made_by(at: FailingLine, node: ast.expr) -> ast.AST | None:
    made = at.made(node.value) if isinstance(node, ast.Subscript) else None
    return made.node if made is not None else None


def _library(call: ast.AST | None) -> str | None:
    """`torch` of `torch.load(file)`; none of a function of the program."""
    func = call.func if isinstance(call, ast.Call) else None
    return ast.unparse(func.value) if isinstance(func, ast.Attribute) else None


def _libraries(at: FailingLine, call: ast.Call) -> set[str | None]:
    """Also those by which a function of the program saves: `save_checkpoint(state)`, and in it `torch.save(state)`."""
    functions = (item for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.FunctionDef))
    inside = (part for item in functions if item.name == called_name(call) for part in own_nodes(item))
    saving = (part for part in inside if isinstance(part, ast.Call) and _SAVES.search(called_name(part) or ""))
    return {_library(call), *map(_library, saving)}


def _is_state(value: ast.expr) -> bool:
    """Surely not None: `opt.state_dict()`."""
    return isinstance(value, ast.Call) and called_name(value) == "state_dict"


def _saved(at: FailingLine, key: str) -> Iterator[_Saved]:
    """The values of a key in dicts that the program saves."""
    for file, tree in at.files.items():
        for call in (item for item in nodes_of(tree) if isinstance(item, ast.Call)):
            if not _SAVES.search(called_name(call) or ""):
                continue
            scope = scope_of(tree, call.lineno)
            for given in passed_values(call):
                name = variable(given)
                for value in _of_dict(given, key):
                    yield _Saved(file, value, call)
                for item in own_nodes(scope) if name is not None else ():
                    if isinstance(item, ast.Assign) and item.lineno < call.lineno:
                        yield from (_Saved(file, value, call) for value in _set(item, name, key))


def _set(item: ast.Assign, name: str | None, key: str) -> Iterator[ast.expr]:
    """`state = {"optimizer": None}`, `state["optimizer"] = None`."""
    for target in item.targets:
        if variable(target) == name:
            yield from _of_dict(item.value, key)
        elif isinstance(target, ast.Subscript) and variable(target.value) == name and _is_key(target.slice, key):
            yield item.value


def _is_key(node: ast.expr | None, key: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == key


def _of_dict(node: ast.expr, key: str) -> Iterator[ast.expr]:
    """`{"optimizer": x}`, `dict(optimizer=x)`."""
    if isinstance(node, ast.Dict):
        for name, value in zip(node.keys, node.values, strict=True):
            if _is_key(name, key):
                yield value
    elif isinstance(node, ast.Call) and called_name(node) == "dict":
        yield from (item.value for item in node.keywords if item.arg == key)


def _may_be_none(value: ast.expr) -> bool:
    if isinstance(value, ast.IfExp):
        return is_none(value.body) != is_none(value.orelse)
    return is_none(value)


def _test(value: ast.expr) -> tuple[ast.expr, bool] | None:
    """The condition of a value, without its `not`, and whether None is saved where that holds."""
    if not isinstance(value, ast.IfExp):
        return None
    test, holds = _without_not(value.test)
    return test, holds == is_none(value.body)


def _without_not(test: ast.expr) -> tuple[ast.expr, bool]:
    """A condition without each `not` before it, and whether both hold at the same time."""
    alike = True
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, alike = test.operand, not alike
    return test, alike


def _words(test: tuple[ast.expr, bool]) -> str:
    return f"{'where' if test[1] else 'unless'} `{source(test[0])}`"


def _files(call: ast.Call, test: tuple[ast.expr, bool]) -> tuple[str | None, str | None]:
    """The names of the files without it and with it, where the same condition chooses the name."""
    for item in (part for given in passed_values(call) for part in nodes_of(given)):
        chosen = _test_of(item)
        if chosen is None or ast.dump(chosen[0]) != ast.dump(test[0]):
            continue
        first, other = chosen[1], chosen[2]
        return (first, other) if test[1] else (other, first)
    return None, None


def _test_of(node: ast.AST) -> tuple[ast.expr, str, str] | None:
    """Of `"best.pth" if best else "last.pth"`: the condition, and the name where it holds, and where not."""
    if not isinstance(node, ast.IfExp) or not isinstance(node.body, ast.Constant):
        return None
    if not isinstance(node.orelse, ast.Constant) or not isinstance(node.body.value, str):
        return None
    test, holds = _without_not(node.test)
    first, other = node.body.value, str(node.orelse.value)
    return (test, first, other) if holds else (test, other, first)
