"""A native object with two owners in Python: the object that gives it back in `__del__`, and a line that frees it, too.

`owner = Buffer(lib, address)` and later `lib.buffer_free(address)`: by syntax, where both are given the same variable.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from pytracer._text import list_words
from pytracer.analyze.evidence.heap.freed_twice import running_method
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.bindings import each_set
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters, qualified_name, scope_of
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class FreedByOwner(msgspec.Struct, frozen=True):
    """`owner`.`method`() frees its `attribute` by `function`() at `line`; `others` free the same address."""

    owner: str
    method: str
    attribute: str
    function: str
    line: LineWords
    others: tuple[tuple[LineWords, str, str], ...]  # the line, the function around it, and what it frees
    made: LineWords

    @property
    def summary(self) -> str:
        """Behind the headline."""
        at, inside, what = self.others[0]
        return (
            f"most likely it was freed twice, as {at} (`{self.function}({what})` in {inside}) frees what {self.owner} "
            f"({self.made}) owns and frees in {self.method}()"
        )

    @property
    def advice(self) -> str:
        """What to change."""
        places = list_words([f"{at} ({inside})" for at, inside, _ in self.others])
        return (
            f"Let one owner alone free it: {self.owner} does by {self.function}() at {self.line}, whenever the object "
            f"of {self.made} ends; take {self.function}() away at {places}, or set its "
            f"`{self.attribute.removeprefix('self.')}` to None there and let {self.method}() return where it is None."
        )


def freed_by_owner(view: ProcessView) -> FreedByOwner | None:
    """None where the crashed line is in no method that frees an attribute, or nothing else frees that by its source."""
    running = running_method(view)
    if running is None:
        return None
    owner, here = running.owner, running.file
    freed = [(called_name(node), variable(node.args[-1])) for node in running.calls if node.args]
    function, attribute = freed[0] if len(freed) == 1 else (None, None)
    given = _parameter(owner, attribute) if attribute is not None and attribute.startswith("self.") else None
    if function is None or attribute is None or given is None:
        return None
    files = program_files(view.process.snapshot, program_frames(view))
    found = [*_others(files, owner, given, function, attribute.removeprefix("self."))]
    if not found:
        return None
    others = tuple(
        (line_in(file, call.lineno, here), where, ast.unparse(call.args[-1])) for file, call, where, _ in found
    )
    file, _, _, made = found[0]
    made_at = line_in(file, made.lineno, here)
    line = line_in(here, running.line, here)
    return FreedByOwner(owner.name, running.method.name, attribute, function, line, others, made_at)


def _parameter(owner: ast.ClassDef, attribute: str) -> tuple[_Function, str] | None:
    """The constructor, and its parameter that the attribute is set to; nothing else may set it."""
    sets = [
        (item, value)
        for item in owner.body
        if isinstance(item, _FUNCTIONS)
        for node in nodes_of(item)
        if isinstance(node, ast.Assign)
        for target, value in each_set(node.targets, node.value)
        if variable(target) == attribute
    ]
    init, value = sets[0] if len(sets) == 1 else (None, None)
    if init is None or init.name != "__init__" or not isinstance(value, ast.Name):
        return None
    return (init, value.id) if value.id in parameters(init) else None


def _others(
    files: Mapping[str, ast.Module], owner: ast.ClassDef, given: tuple[_Function, str], function: str, attribute: str
) -> Iterator[tuple[str, ast.Call, str, ast.Call]]:
    """Other calls of the function that frees, in a scope that makes an owner of the same variable."""
    inside = {id(item) for item in nodes_of(owner)}
    for file, tree in files.items():
        for call in nodes_of(tree):
            if not isinstance(call, ast.Call) or id(call) in inside or called_name(call) != function or not call.args:
                continue
            scope = scope_of(tree, call.lineno)
            made = _owner_of(scope, owner.name, given, call.args[-1], attribute)
            if made is not None and not _lets_go(scope, attribute):
                yield file, call, f"{qualified_name(tree, scope)}()", made


def _owner_of(
    scope: ast.AST, owner: str, given: tuple[_Function, str], freed: ast.expr, attribute: str
) -> ast.Call | None:
    """`Buffer(lib, address)` where `address`, or `.address` of that object, is freed."""
    for item in own_nodes(scope):
        if not isinstance(item, ast.Call) or called_name(item) != owner:
            continue
        passed = argument_of(item, given[0], given[1])
        if variable(freed) is not None and passed is not None and variable(passed) == variable(freed):
            return item
        if isinstance(freed, ast.Attribute) and freed.attr == attribute:
            held = {
                ast.unparse(target)
                for node in own_nodes(scope)
                if isinstance(node, ast.Assign) and node.value is item
                for target in node.targets
            }
            if ast.unparse(freed.value) in held:
                return item
    return None


def _lets_go(scope: ast.AST, attribute: str) -> bool:
    """Whether the function takes the address from an owner: `owner.address = None`."""
    targets = (target for item in own_nodes(scope) if isinstance(item, ast.Assign) for target in item.targets)
    return any(isinstance(item, ast.Attribute) and item.attr == attribute for item in targets)
