"""Lines that save only a part of a module's state, or load a state that may lack something, by the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.naming import LineWords, short_file
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_FLOATING = re.compile(r"is_floating_point|requires_grad")
_SAVES = ("save", "dump")
_QUOTED = 60


@dataclass(frozen=True)
class LeftOut:
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


def left_out(
    view: ProcessView, frame: PythonFrame, trees: Mapping[str, ast.Module], attribute: str, is_buffer: bool
) -> LeftOut | None:
    """The only line that makes a dict of a part of a state, which is saved, in which a tensor of this kind is not."""
    found: dict[str, LeftOut] = {}
    dtype = _dtype(view)
    for file, tree in trees.items():
        for node in ast.walk(tree):
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
    for item in ast.walk(tree):
        if isinstance(item, ast.Assign) and item.value is node:
            names |= {target.id for target in item.targets if isinstance(target, ast.Name)}
        elif isinstance(item, ast.FunctionDef):
            returns = (part for part in ast.walk(item) if isinstance(part, ast.Return) and part.value is not None)
            if any(_is_given(part.value, node, names) for part in returns if part.value is not None):
                names.add(item.name)
    calls = (item for one in trees.values() for item in ast.walk(one) if isinstance(item, ast.Call))
    saves = (item for item in calls if (called_name(item) or "").startswith(_SAVES))
    return any(_is_given(part, node, names) for item in saves for part in item.args)


def _is_given(value: ast.AST, node: ast.AST, names: set[str]) -> bool:
    return any(item is node or (isinstance(item, ast.Name) and item.id in names) for item in ast.walk(value))


def loads_loosely(frame: PythonFrame, trees: Mapping[str, ast.Module]) -> int | None:
    """The only line of the frame's file that calls load_state_dict(strict=False)."""
    tree = trees.get(frame.file or "")
    nodes = ast.walk(tree) if tree is not None else ()
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
