"""What a line gives to a function of a library that walks through it: to pickle the object, and not the file."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from pytracer._text import shortened
from pytracer.analyze.evidence.exceptions.name_origins import follow
from pytracer.analyze.evidence.syntax.bindings import bound_value
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, calls_on, passed_values
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.lines import names_of_line
from pytracer.analyze.evidence.syntax.names import names_of
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, is_method, scope_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_QUOTED = 44
_OBJECT_WORDS = ("obj", "x")  # of pickle.dump() and json.dump(); of copy.deepcopy()
_FILE_FIRST = ("np", "numpy")  # numpy.save(file, arr)
_MODULES = (*_FILE_FIRST, "torch")  # also where a star import brings them
_HAND_OVER = ("put", "put_nowait", "send", "submit", "apply_async")  # to another process, by pickle


def walked(view: ProcessView, frames: Sequence[PythonFrame], called: Collection[str]) -> str | None:
    """`` `best` (line 22: `best = search(net)`) `` of what the innermost line passes; None where that is unclear.

    Args:
        view: The process.
        frames: The program's, innermost first.
        called: The names by which a program calls what walks; empty where it is no function that a program calls.
    """
    frame = frames[0] if frames else None
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame is None or frame.line is None:
        return None
    names = [name for name in _names(tree, frame.line, called) if name not in _cannot_nest(view, frame)]
    if len(names) != 1:
        return None
    name = names[0]
    scope = scope_of(tree, frame.line)
    owner = class_around(tree, scope)
    if name == "self" and owner is not None and is_method(tree, scope):
        return f"`self` (a {owner.name})"
    part = "a part of " if _is_read_from(tree, frame.line, called, name) else ""
    made = follow(view.process.snapshot, frames, name, None)
    if made is None or (made.frame.file, made.frame.line) == (frame.file, frame.line) or made.frame.file != frame.file:
        return f"{part}`{name}`"
    return f"{part}`{made.name}` (line {made.frame.line}: `{shortened(made.text, _QUOTED)}`)"


def entry_words(
    view: ProcessView, frames: Sequence[PythonFrame], called: Collection[str], text: str, file: str
) -> str | None:
    """`` entry 'jobs' of `state` ``: of the dict that the innermost line passes, the only one that has such a text.

    Args:
        view: The process.
        frames: The program's, innermost first.
        called: The names by which a program calls what walks.
        text: An attribute of `self`, which a class of the file sets.
        file: That file.
    """
    frame = frames[0] if frames else None
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame is None or frame.line is None or frame.file != file or not text.startswith("self."):
        return None
    calls = [item for item in calls_on(tree, frame.line) if called_name(item) in called and not _is_method(tree, item)]
    given = _object(calls[0]) if len(calls) == 1 else None
    bound = bound_value(scope_of(tree, frame.line), given.id, frame.line) if isinstance(given, ast.Name) else None
    held = bound[1] if bound is not None else given
    if not isinstance(held, ast.Dict):
        return None
    keys = [key for key, value in zip(held.keys, held.values, strict=True) if ast.unparse(value) == text]
    if len(keys) != 1 or not isinstance(keys[0], ast.Constant):
        return None
    return f"entry {ast.unparse(keys[0])}{f' of `{given.id}`' if isinstance(given, ast.Name) else ''}"


def _names(tree: ast.Module, line: int, called: Collection[str]) -> list[str]:
    """Variables of what is walked through: the object of the only call by such a name, else all that is passed.

    None of another call, which may reach a walker by anything: of `trainer.checkpoint(path)` not by the path.
    """
    calls = calls_on(tree, line)
    own = [item for item in calls if called_name(item) in called and not _is_method(tree, item)]
    given = _object(own[0]) if len(own) == 1 else None
    if given is not None:
        return _read(given)
    if not calls:
        return names_of_line(tree, line)
    handing = calls if not called else [item for item in calls if called_name(item) in _HAND_OVER]
    return list(dict.fromkeys(name for call in handing for part in passed_values(call) for name in _read(part)))


def _is_read_from(tree: ast.Module, line: int, called: Collection[str], name: str) -> bool:
    """Whether the object that is walked through has only attributes of the variable: `agent.memory.items`."""
    own = [item for item in calls_on(tree, line) if called_name(item) in called and not _is_method(tree, item)]
    given = _object(own[0]) if len(own) == 1 else None
    nodes = [] if given is None else [*nodes_of(given)]
    owners = {id(item.value) for item in nodes if isinstance(item, ast.Attribute)}
    found = [item for item in nodes if isinstance(item, ast.Name) and item.id == name]
    return bool(found) and all(id(item) in owners for item in found)


def _is_method(tree: ast.Module, call: ast.Call) -> bool:
    """Whether it saves what it is called on: `vocabulary.save(path)`, and not `torch.save(x, path)`."""
    func = call.func
    return isinstance(func, ast.Attribute) and func.attr == "save" and not _is_module(tree, func.value)


def _is_module(tree: ast.Module, node: ast.expr) -> bool:
    return imported_as(tree, node) is not None or (isinstance(node, ast.Name) and node.id in _MODULES)


def _read(node: ast.expr) -> list[str]:
    """Variables, and `self` where that is passed itself."""
    owners = {id(item.value) for item in nodes_of(node) if isinstance(item, ast.Attribute)}
    plain = (item for item in nodes_of(node) if isinstance(item, ast.Name) and item.id == "self")
    own = ["self"] if any(id(item) not in owners for item in plain) else []
    return list(dict.fromkeys([*names_of(node), *own]))


def _object(call: ast.Call) -> ast.expr | None:
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(owner, ast.Name) and owner.id in _FILE_FIRST:
        return argument_at(call, 1, "arr")
    return argument_at(call, 0, *_OBJECT_WORDS)


def _cannot_nest(view: ProcessView, frame: PythonFrame) -> set[str]:
    """Variables of the line that held a number, a tensor or an array."""
    crash, place = view.crash, (frame.file, frame.function, frame.line)
    if crash is None:
        return set()
    held = [(item.expression, item.frame) for item in crash.numbers]
    held += [(item.expression, item.frame) for item in crash.arrays]
    held += [(item.expression, item.frame) for item in crash.holders if item.frame is not None]
    return {name for name, at in held if (at.file, at.function, at.line) == place}
