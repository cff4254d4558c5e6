"""A layer that the program freezes, or replaces, after DistributedDataParallel has wrapped the model.

DDP waits for the gradients of the parameters that required one when it wrapped the model, and of no others: a parameter
of which it reports none, and that a line freezes, was frozen later.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.failing.line import failing_line
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.frozen_layers import (
    LayerLine,
    lines_that_freeze_layer,
    lines_that_replace_layer,
)
from pytracer.analyze.evidence.syntax.layer_branches import modules_of, reads_of
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, parameters, scope_of
from pytracer.analyze.naming import line_in, short_file
from pytracer.analyze.view import ProcessView

_WRAPPERS = ("DistributedDataParallel", "DDP")
_TEXT = 50
_UNSET: tuple[str, ...] = ("False", "None", "0")
_SET: tuple[str, ...] = ("True", "1")
_DEEPEST = 3  # functions between the two lines


class ChangedLayer(msgspec.Struct, frozen=True):
    """`file`, `done`: the line that changes `layer`. `test`: the `if` around it. `wrapped`: the line that wraps."""

    layer: str
    file: str
    done: LayerLine
    frozen: bool
    test: ast.If | None
    wrapped: int

    def words_in(self, here: str | None) -> str:
        """`train.py:22 (`freeze(model.module.body)`) freezes `body` after line 19 has wrapped the model`.

        `here`: the file that is spoken of.
        """
        done, text = self.done, self.done.call or self.done.text
        by = f", by line {done.line}," if done.call is not None else ""
        head = shortened(ast.unparse(self.test.test), _TEXT) if self.test is not None else ""
        only = f", below `if {head}` (line {self.test.lineno})," if self.test is not None else ""
        does = "freezes" if self.frozen else "replaces"
        at = f"{line_in(self.file, done.at, here)} (`{shortened(text, _TEXT)}`)"
        return f"{at}{only or by} {does} `{self.layer}` after line {self.wrapped} has wrapped the model"

    @property
    def words(self) -> str:
        """Where no file is spoken of."""
        return self.words_in(None)

    @property
    def advice(self) -> str:
        """What to do at that line."""
        line = f"line {self.done.at} of {short_file(self.file)}"
        if not self.frozen:
            return (
                f"Replace `{self.layer}` ({line}) before line {self.wrapped} wraps the model: DDP waits for the "
                "gradients of the one that it has seen, and never reduces those of the new one "
                "(find_unused_parameters=True only hides that)."
            )
        return (
            f"Freeze `{self.layer}` ({line}) before line {self.wrapped} wraps the model; or wrap it again after that "
            "(`DDP(model.module)`), on all ranks alike; or pass find_unused_parameters=True, by which DDP does not "
            "wait for what has no gradient."
        )


def changed_layer(view: ProcessView, names: Sequence[str]) -> ChangedLayer | None:
    """None where several lines change it, or forward() runs it below a condition, which may be the reason as well.

    Args:
        view: The process that raised DDP's exception.
        names: Of the parameters, as `backbone.0.weight`.
    """
    layers = modules_of(names)
    files = program_files(view.process.snapshot, view.exception_stack_of_program) if layers else {}
    found = _changed(files, names, layers) if layers else None
    return found if found is None or not _is_off(view, found) else None


def frozen_in_model(files: Mapping[str, ast.Module], names: Sequence[str]) -> ChangedLayer | None:
    """The only layer of a model with these parameters that a line freezes below an `if` after the wrapping."""
    found = {}
    for layer in dict.fromkeys(part for name in names for part in name.split(".")[:-1] if not part.isdecimal()):
        own = [name for name in names if layer in name.split(".")]
        changed = _changed(files, own, [layer])
        if changed is not None and changed.frozen:
            found[changed.done.at] = changed
    only = next(iter(found.values()), None) if len(found) == 1 else None
    return only if only is not None and only.test is not None else None


def _changed(files: Mapping[str, ast.Module], names: Sequence[str], layers: Sequence[str]) -> ChangedLayer | None:
    """`layers`: attributes that have all of the parameters, the innermost first."""
    if any(_runs_conditionally(files, layer) for layer in layers):
        return None
    wraps = [
        (file, tree, item)
        for file, tree in files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) in _WRAPPERS
    ]
    if len(wraps) != 1:
        return None
    file, tree, call = wraps[0]
    wrapped = call.lineno
    model = None if _runs_before(files, tree, call) else _owner(files, layers)
    frozen = lines_that_freeze_layer(tree, names, layers)
    found = [*frozen, *lines_that_replace_layer(tree, layers[:1])]
    found = [item for item in found if _runs_after(tree, item.at, wrapped, model)]
    if len(found) != 1:
        return None
    done = found[0]
    around = (item for item, around in deciding_ifs(tree, done.at) if around)
    test = next((item for item in around if not _asks_name(item.test, names)), None)
    return ChangedLayer(layers[0], file, done, done in frozen, test, wrapped)


def _is_off(view: ProcessView, found: ChangedLayer) -> bool:
    """Whether the flag that the `if` asks was recorded as not set: the line did not run, then."""
    if found.test is None:
        return False
    test: ast.expr = found.test.test
    off = _UNSET
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, off = test.operand, _SET
    if not isinstance(test, (ast.Name, ast.Attribute)):
        return False
    line = failing_line(view.process.snapshot, view.exception, view.exception_stack)
    if line is None or line.frames[0].file != found.file:
        return False
    scope = scope_of(line.tree, found.test.lineno)
    for depth, frame in enumerate(line.frames):
        if frame.file == found.file and frame.line is not None and scope_of(line.tree, frame.line) is scope:
            return line.values_at(depth).get(ast.unparse(test)) in off
    return False


def _asks_name(test: ast.expr, names: Sequence[str]) -> bool:
    """`if "blocks." in name`, which holds for all of the parameters."""
    words = [item.value for item in nodes_of(test) if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    return any(all(word in name for name in names) for word in words)


def _owner(files: Mapping[str, ast.Module], layers: Sequence[str]) -> ast.ClassDef | None:
    """The only class whose constructor makes one of the layers; where several do, which one is wrapped is not known."""
    found = [
        owner
        for tree in files.values()
        for owner in nodes_of(tree)
        if isinstance(owner, ast.ClassDef) and _makes(owner, layers)
    ]
    return found[0] if len(found) == 1 else None


def _makes(owner: ast.ClassDef, layers: Sequence[str]) -> bool:
    constructors = (item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "__init__")
    return any(
        isinstance(item, ast.Attribute)
        and isinstance(item.ctx, ast.Store)
        and variable(item) is not None
        and item.attr in layers
        for constructor in constructors
        for item in own_nodes(constructor)
    )


def _runs_before(files: Mapping[str, ast.Module], tree: ast.Module, wrap: ast.Call) -> bool:
    """Whether the function that wraps a model may run it before, itself or by a function of the program."""
    own = {item.name for part in files.values() for item in nodes_of(part) if isinstance(item, ast.FunctionDef)}
    scope = scope_of(tree, wrap.lineno)
    wrapped = {name for given in passed_values(wrap)[:1] for name in _names_in(given)}
    if wrapped & {*parameters(scope)}:
        return True  # what its callers did with it is not known
    for call in own_nodes(scope):
        if not isinstance(call, ast.Call) or call.lineno >= wrap.lineno:
            continue
        function = call.func
        if isinstance(function, ast.Attribute) and function.attr in ("forward", "__call__"):
            function = function.value
        given = {variable(item) for item in passed_values(call)} if called_name(call) in own else set()
        if variable(function) in wrapped or given & wrapped:
            return True
    return False


def _names_in(node: ast.AST) -> set[str | None]:
    """The variables of what is wrapped: not the device of `net.to(device)`."""
    moves = (item for item in nodes_of(node) if isinstance(item, ast.Call) and called_name(item) in ("to", "cuda"))
    where = {id(part) for call in moves for given in passed_values(call) for part in nodes_of(given)}
    return {variable(item) for item in nodes_of(node) if id(item) not in where} - {None, "self"}


def _runs_after(tree: ast.Module, line: int, wrapped: int, model: ast.ClassDef | None, depth: int = 0) -> bool:
    """Whether a line runs after the one that wraps: below it, in what is called there, or in a later method.

    `model`: the class whose forward() runs after that only; None where none is known to.
    """
    scope, around = scope_of(tree, line), scope_of(tree, wrapped)
    if scope is around:
        return line > wrapped
    name = getattr(scope, "name", "__init__")
    if name == "__init__" or depth > _DEEPEST:
        return False
    if name == "forward" and class_around(tree, scope) is not None:
        return class_around(tree, scope) is model  # it runs in each step
    lines = [item.lineno for item in nodes_of(tree) if isinstance(item, ast.Call) and called_name(item) == name]
    owner = class_around(tree, scope)
    if owner is not None and owner is class_around(tree, around) and getattr(around, "name", "") == "__init__":
        return not any(scope_of(tree, item) is around for item in lines)
    return bool(lines) and all(_runs_after(tree, item, wrapped, model, depth + 1) for item in lines)


def _runs_conditionally(files: Mapping[str, ast.Module], layer: str) -> bool:
    return any(
        deciding_ifs(tree, read.lineno)
        for tree in files.values()
        for owner in nodes_of(tree)
        if isinstance(owner, ast.ClassDef)
        for _, read in reads_of(owner, layer)
    )
