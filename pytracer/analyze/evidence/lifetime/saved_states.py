"""Lines that save only a part of a module's state, or load a state that may lack something, by the source."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.naming import LineWords, short_file
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_FLOATING = Pattern(r"is_floating_point|requires_grad")
_SAVES = ("save", "dump")
_QUOTED = 60


class LeftOut(msgspec.Struct, frozen=True):
    """`line` takes only entries of a state for which `test` holds, or only parameters, where `test` is None.

    `what`: why the tensor is none of them: `int32`, or `a buffer`.
    """

    line: str
    test: str | None
    what: str

    @property
    def summary(self) -> str:
        """For the headline."""
        why = "named_parameters() has no buffers" if self.test is None else f"`if {self.test}`: it is {self.what}"
        return f"line {self.line} leaves it out of the saved state ({why})"

    def advice(self, name: str) -> str:
        """What to save."""
        return f"Keep {name} as well at line {self.line}, and set it where the state is loaded"


class NotPersistent(msgspec.Struct, frozen=True):
    """`line` registers it with persistent=False, and `loads` loads a state, which then has none of it."""

    line: int
    loads: LineWords

    @property
    def summary(self) -> str:
        """For the headline."""
        return "no state_dict() has it (persistent=False), so load_state_dict() does not set it"

    def advice(self, name: str, setters: Sequence[str]) -> str:
        """What to register, and to save again. `setters`: methods of its class that set it."""
        again = (
            f" Where what {list_words([f'{item}()' for item in setters])} makes is the same each time, call it after "
            f"{self.loads} instead; where it is drawn or computed from what else it sets, the loaded state is lost."
            if setters
            else ""
        )
        return (
            f"Let the state have {name}: register it at line {self.line} without persistent=False and in the shape "
            f"that is saved, and save the checkpoint again. What {self.loads} loads lacks it, and strict loading does "
            "not ask for it."
            f"{again}"
        )


def not_persistent(
    view: ProcessView, owner: ast.ClassDef, attribute: str, trees: Mapping[str, ast.Module]
) -> NotPersistent | None:
    """Of a buffer that its class registers so, where one line alone of the program loads a state, and has run."""
    calls = [item for item in nodes_of(owner) if isinstance(item, ast.Call) and _is_not_persistent(item, attribute)]
    loads = [
        (file, tree, item)
        for file, tree in trees.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) == "load_state_dict"
    ]
    if len(calls) != 1 or len(loads) != 1 or not _has_run(view, trees, *loads[0]):
        return None
    return NotPersistent(calls[0].lineno, place_of(view, loads[0][0], loads[0][2].lineno))


def _has_run(view: ProcessView, trees: Mapping[str, ast.Module], file: str, tree: ast.Module, load: ast.Call) -> bool:
    """Whether a function of the stack is behind the line that loads, or behind a call of the function that has it."""
    inside = getattr(scope_of(tree, load.lineno), "name", None)
    for frame in program_frames(view):
        own = trees.get(frame.file or "")
        if own is None or frame.line is None:
            continue
        for item in own_nodes(scope_of(own, frame.line)):
            above = isinstance(item, ast.Call) and item.lineno < frame.line
            named = isinstance(item, ast.Call) and inside is not None and called_name(item) == inside
            if above and (item is load or named):
                return True
    return False


def _is_not_persistent(call: ast.Call, attribute: str) -> bool:
    """`register_buffer("pivots", x, persistent=False)`."""
    if called_name(call) != "register_buffer" or getattr(next(iter(call.args), None), "value", None) != attribute:
        return False
    given = keyword_value(call, "persistent") or next(iter(call.args[2:3]), None)
    return isinstance(given, ast.Constant) and given.value is False


def left_out(
    view: ProcessView, frame: PythonFrame, trees: Mapping[str, ast.Module], attribute: str, is_buffer: bool
) -> LeftOut | None:
    """The only line that makes a dict of a part of a state, which is saved, in which a tensor of this kind is not."""
    found: dict[str, LeftOut] = {}
    dtype = _dtype(view)
    for file, tree in trees.items():
        for node in nodes_of(tree):
            test = _test(node, attribute, dtype, is_buffer=is_buffer) if isinstance(node, ast.DictComp) else None
            if isinstance(node, ast.DictComp) and test is not None and _is_saved(trees, tree, node):
                line = str(node.lineno) if file == frame.file else f"{node.lineno} of {short_file(file)}"
                found[line] = LeftOut(LineWords(line, file, node.lineno), test or None, dtype or "")
    return next(iter(found.values())) if len(found) == 1 else None


def _test(node: ast.DictComp, attribute: str, dtype: str | None, *, is_buffer: bool) -> str | None:
    """The condition that the tensor does not fulfil; nothing where it takes no buffers; None where it may be in it."""
    each = node.generators[0]
    tests = [ast.unparse(item) for item in each.ifs]
    if len(node.generators) != 1 or any(f"'{attribute}'" in item for item in tests):
        return None
    if is_buffer and _called(each.iter) == "named_parameters":
        return ""
    floating = len(tests) == 1 and _FLOATING.search(tests[0]) and isinstance(each.ifs[0], (ast.Call, ast.Attribute))
    return shortened(tests[0], _QUOTED) if floating and dtype is not None and _is_of(each.iter, "state_dict") else None


def _is_saved(trees: Mapping[str, ast.Module], tree: ast.Module, node: ast.DictComp) -> bool:
    """Whether a call of save() or dump() is given it, by its variable or by the function that returns it."""
    names = set()
    for item in nodes_of(tree):
        if isinstance(item, ast.Assign) and item.value is node:
            names |= {target.id for target in item.targets if isinstance(target, ast.Name)}
        elif isinstance(item, ast.FunctionDef):
            returns = (part for part in nodes_of(item) if isinstance(part, ast.Return) and part.value is not None)
            if any(_is_given(part.value, node, names) for part in returns if part.value is not None):
                names.add(item.name)
    calls = (item for one in trees.values() for item in nodes_of(one) if isinstance(item, ast.Call))
    saves = (item for item in calls if (called_name(item) or "").startswith(_SAVES))
    return any(_is_given(part, node, names) for item in saves for part in item.args)


def _is_given(value: ast.AST, node: ast.AST, names: set[str]) -> bool:
    return any(item is node or (isinstance(item, ast.Name) and item.id in names) for item in nodes_of(value))


def loads_loosely(frame: PythonFrame, trees: Mapping[str, ast.Module]) -> int | None:
    """The only line of the frame's file that calls load_state_dict(strict=False)."""
    tree = trees.get(frame.file or "")
    nodes = nodes_of(tree) if tree is not None else ()
    lines = [item.lineno for item in nodes if isinstance(item, ast.Call) and _is_loose(item)]
    return lines[0] if len(lines) == 1 else None


def _is_loose(node: ast.Call) -> bool:
    if called_name(node) != "load_state_dict":
        return False
    strict = keyword_value(node, "strict")
    return isinstance(strict, ast.Constant) and strict.value is False


def _dtype(view: ProcessView) -> str | None:
    """Of the only empty tensor of whole numbers that the native code was given."""
    given = view.crash.arguments if view.crash is not None else ()
    empty = [item for item in given if not item.undefined and not item.elements and item.is_integer]
    kinds = {item.dtype for item in empty}
    return kinds.pop() if len(kinds) == 1 else None


def _called(node: ast.expr) -> str | None:
    """`named_parameters` of `model.named_parameters()`, also below dict()."""
    return called_name(node) if isinstance(node, ast.Call) else None


def _is_of(node: ast.expr, name: str) -> bool:
    """`model.state_dict().items()`."""
    if not isinstance(node, ast.Call) or called_name(node) != "items" or not isinstance(node.func, ast.Attribute):
        return False
    return _called(node.func.value) == name
