"""Lines that save only a part of a module's state, or load a state that may lack something, by the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_FLOATING = re.compile(r"is_floating_point|requires_grad")
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
        return f"line {self.line} leaves it out of its copy of the state ({why})"

    def advice(self, name: str) -> str:
        """What to save."""
        return f"Keep `{name}` as well at line {self.line}, and set it where the state is loaded"


def left_out(
    view: ProcessView, frame: PythonFrame, trees: Mapping[str, ast.Module], attribute: str, is_buffer: bool
) -> LeftOut | None:
    """The only line that makes a dict of a part of a state in which a tensor of this kind is not."""
    found: dict[str, LeftOut] = {}
    dtype = _dtype(view)
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.DictComp) or len(node.generators) != 1:
                continue
            each = node.generators[0]
            line = str(node.lineno) if file == frame.file else f"{node.lineno} of {short_file(file)}"
            tests = [ast.unparse(item) for item in each.ifs]
            if any(f"'{attribute}'" in item for item in tests):
                continue
            if _is_of(each.iter, "state_dict"):
                test = next((item for item in tests if _FLOATING.search(item) and not item.startswith("not ")), None)
                if test is not None and len(tests) == 1 and dtype is not None and _is_plain(each.ifs[0]):
                    found[line] = LeftOut(line, shortened(test, _QUOTED), dtype)
            elif is_buffer and _called(each.iter) == "named_parameters":
                found[line] = LeftOut(line, None, "a buffer")
    return next(iter(found.values())) if len(found) == 1 else None


def loads_loosely(frame: PythonFrame, trees: Mapping[str, ast.Module]) -> int | None:
    """The only line of the frame's file that calls load_state_dict(strict=False)."""
    tree = trees.get(frame.file or "")
    lines = [item.lineno for item in ast.walk(tree) if _is_loose(item)] if tree is not None else []  # type: ignore[attr-defined]
    return lines[0] if len(lines) == 1 else None


def _is_loose(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or called_name(node) != "load_state_dict":
        return False
    strict = next((item.value for item in node.keywords if item.arg == "strict"), None)
    return isinstance(strict, ast.Constant) and strict.value is False


def _is_plain(test: ast.expr) -> bool:
    """Nothing but one test of the value: no `or`, by which others are taken as well."""
    return isinstance(test, (ast.Call, ast.Attribute))


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


