"""Who calls a function in a program's files: also a thread, a process or a pool that it is handed to."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from pytracer.analyze.evidence.slicing.bindings import is_demonstration
from pytracer.analyze.evidence.slicing.calls import MADE_ON_CALL, argument_of
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.names import last_name, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, classes_below, definitions, parameters

_HANDS_ON = ("submit", "apply", "apply_async", "run_in_executor", "call_soon", "to_thread", "spawn", "start_processes")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class ProgramCall(msgspec.Struct, frozen=True):
    """`call` is in `file`; it calls the function itself, or hands it to what does: then `passed` are its arguments."""

    file: str
    tree: ast.Module
    call: ast.Call
    passed: tuple[ast.expr, ...] | None = None

    def argument(self, function: _Function, name: str) -> ast.expr | None:
        """What it passes for a parameter."""
        if self.passed is None:
            return argument_of(self.call, function, name)
        places = [item for item in parameters(function) if item not in ("self", "cls")]
        place = places.index(name) if name in places else len(self.passed)
        return self.passed[place] if place < len(self.passed) else None


def only_function(files: Mapping[str, ast.Module], name: str) -> tuple[str, _Function] | None:
    """The only function or method of a name, with its file; None also where a class has that name."""
    found = [(file, item) for file, tree in files.items() for item in definitions(tree).get(name, ())]
    file, function = found[0] if len(found) == 1 else ("", None)
    return None if function is None or isinstance(function, ast.ClassDef) else (file, function)


def called_function(files: Mapping[str, ast.Module], tree: ast.Module, call: ast.Call) -> tuple[str, _Function] | None:
    """The program's own function that a call in `tree` is of; None of `lib.make()`, where `lib` is no module."""
    found = only_function(files, called_name(call) or "")
    if found is None or not isinstance(call.func, ast.Attribute):
        return found
    home, function = found
    imported = imported_as(tree, call.func)
    if imported is not None:
        return found if not _is_of_library(files, imported, home) else None
    return found if class_around(files[home], function) is not None else None


def calls_named(files: Mapping[str, ast.Module], name: str) -> Iterator[tuple[str, ast.Module, ast.Call]]:
    """Calls of whatever has that name, whoever it belongs to: `calls_of` is surer where the function is known."""
    for file, tree in files.items():
        for item in nodes_of(tree):
            if isinstance(item, ast.Call) and called_name(item) == name:
                yield file, tree, item


def mentions(files: Mapping[str, ast.Module], name: str) -> Iterator[tuple[str, ast.Module, ast.Name | ast.Attribute]]:
    """Wherever a function of a name may be meant: where it is called, passed on, or bound anew."""
    for file, tree in files.items():
        for item in nodes_of(tree):
            if isinstance(item, (ast.Name, ast.Attribute)) and last_name(item) == name:
                yield file, tree, item


def calls_of(files: Mapping[str, ast.Module], home: str, function: _Function) -> Iterator[ProgramCall]:
    """The calls that may be of the only function of its name, which is in the file `home`.

    None of a library, such as `torch.save()`; `model.train()` only where train() is a method, or is kept somewhere.
    """
    held = class_around(files[home], function) is not None or _is_kept(files, function.name)
    for file, tree in files.items():
        for call in (item for item in nodes_of(tree) if isinstance(item, ast.Call)):
            found = _call_of(file, tree, call, function.name)
            if found is None:
                continue
            imported = imported_as(tree, call.func)
            if imported is not None:
                own = not _is_of_library(files, imported, home)
            else:
                own = held or not isinstance(call.func, ast.Attribute)
            if own or found.passed is not None:
                yield found


def only_call(files: Mapping[str, ast.Module], function: _Function) -> ProgramCall | None:
    """None where there are several, or none; and for what every object may be called by, such as forward().

    So it is for a function that another line hands on, by which who has it may call it: `Pool(2, work)`.
    """
    if function.name in MADE_ON_CALL or function.name.startswith("__"):
        return None
    defined = only_function(files, function.name)
    found = [*calls_of(files, *defined)] if defined is not None else []
    return found[0] if len(found) == 1 and not _is_handed_on(files, function.name, found[0].call) else None


def _is_handed_on(files: Mapping[str, ast.Module], name: str, known: ast.Call) -> bool:
    """Whether a call other than this one, which is known, passes a function of that name."""
    for tree in files.values():
        for call in (item for item in nodes_of(tree) if isinstance(item, ast.Call) and item is not known):
            passed = (*call.args, *(item.value for item in call.keywords))
            if any(isinstance(item, ast.Name) and item.id == name for item in passed):
                return True
    return False


def only_construction(files: Mapping[str, ast.Module], owner: ast.ClassDef, first: str | None) -> ProgramCall | None:
    """The one `Net(...)`; None where another class has that name, or its methods, and is made, too.

    Args:
        files: Of the program, by path.
        owner: The class.
        first: The file that the program was started from: below `if __name__ == "__main__"` others run nothing.
    """
    below = {item.name for item in classes_below(files.values(), owner)}
    found = [
        ProgramCall(file, tree, item)
        for file, tree in files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) in (owner.name, *below)
        if file == first or not is_demonstration(tree, item.lineno)
    ]
    if len(found) != 1 or called_name(found[0].call) in below:
        return None
    named = sum(
        isinstance(item, ast.ClassDef) for tree in files.values() for item in definitions(tree).get(owner.name, ())
    )
    return found[0] if named == 1 else None


def _call_of(file: str, tree: ast.Module, call: ast.Call, name: str) -> ProgramCall | None:
    if called_name(call) == name:
        return ProgramCall(file, tree, call)
    target = keyword_value(call, "target")
    if target is not None and _means(target, name):
        given = keyword_value(call, "args")
        return ProgramCall(file, tree, call, tuple(given.elts) if isinstance(given, (ast.Tuple, ast.List)) else ())
    if called_name(call) in _HANDS_ON and any(_means(item, name) for item in call.args):
        place = next(n for n, item in enumerate(call.args) if _means(item, name))
        rest = call.args[place + 1 :]
        whole = rest[0].elts if len(rest) == 1 and isinstance(rest[0], ast.Tuple) else rest
        return ProgramCall(file, tree, call, tuple(whole))
    return None


def _is_kept(files: Mapping[str, ast.Module], name: str) -> bool:
    """Whether a function is named otherwise than to call it: an object may have it as an attribute."""
    nodes = (item for tree in files.values() for item in nodes_of(tree))
    called = {id(item.func) for item in nodes if isinstance(item, ast.Call)}
    return any(isinstance(item, ast.Name) and id(item) not in called for _, _, item in mentions(files, name))


def _means(node: ast.expr, name: str) -> bool:
    held = variable(node)
    return held == name or (isinstance(node, ast.Attribute) and node.attr == name)


def _is_of_library(files: Iterable[str], imported: str, home: str) -> bool:
    """Whether it is imported from elsewhere than the program's files, and the packages of `home`."""
    parts = imported.split(".")[:-1]
    modules = ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
    ends = tuple(f"/{module}{end}" for module in modules for end in (".py", "/__init__.py"))
    return bool(modules) and f"/{modules[0]}/" not in home and not any(file.endswith(ends) for file in files)
