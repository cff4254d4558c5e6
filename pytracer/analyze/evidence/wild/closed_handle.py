"""A native object that the program had given back: the number that its line passes is the address that was refused.

The class has another method that hands the same attribute to a function of the library whose name says that it frees.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.lines import names_of_line
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, scope_of
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_FREES = Pattern(r"(?:^|_)(free|close|destroy|delete|del|release|dispose|shutdown|unload|fini|cleanup)(?:_|$)", re.I)
_NEAR_BYTES = 4096  # where a function begins to read
_QUOTED, _MOST_CALLS = 44, 2


@dataclass(frozen=True)
class ClosedHandle(Explanation):
    """`name` held the address; `method` of class `owner` frees it at `line`, and is called at `calls`."""

    is_sufficient = False
    name: str
    owner: str
    method: str
    line: int
    text: str
    calls: tuple[int, ...]

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": the address is what `{self.name}` holds"

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        lines = list_words([f"line {line}" for line in self.calls], _MOST_CALLS)
        called = f", which {lines} call{'s' * (len(self.calls) == 1)}" if self.calls else ""
        return (
            f"`{self.name}`, which {line_words(view)} passes, may have been freed before, by "
            f"{self.owner}.{self.method}() (line {self.line}: `{shortened(self.text, _QUOTED)}`){called}: use no "
            f"{self.owner} behind that. Setting `{self.name} = None` there makes the mistake an exception."
        )


def closed_handle(view: ProcessView) -> ClosedHandle | None:
    """None where no attribute of the line has the address that was refused, or nothing of its class frees it."""
    crash, place, frame = view.crash, view.place, next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if crash is None or place is None or tree is None or frame is None or frame.line is None:
        return None
    names = {
        item.expression
        for item in crash.numbers
        if (item.frame.file, item.frame.line) == (frame.file, frame.line) and 0 <= place.addr - item.value < _NEAR_BYTES
        if item.value >= _NEAR_BYTES
    }
    held = [name for name in names_of_line(tree, frame.line) if name in names and name.startswith("self.")]
    owner = class_around(tree, scope_of(tree, frame.line))
    if len(held) != 1 or owner is None:
        return None
    for method in owner.body:
        if not isinstance(method, ast.FunctionDef):
            continue
        for node in nodes_of(method):
            if isinstance(node, ast.Call) and node.lineno != frame.line and _frees(node, held[0]):
                at = PythonFrame(function=None, file=frame.file, line=node.lineno)
                text = line_text(view.process.snapshot, at) or ""
                return ClosedHandle(held[0], owner.name, method.name, node.lineno, text, _calls(tree, method.name))
    return None


def _frees(call: ast.Call, name: str) -> bool:
    return _FREES.search(called_name(call) or "") is not None and any(variable(item) == name for item in call.args)


def _calls(tree: ast.Module, method: str) -> tuple[int, ...]:
    """`index.close()`; nothing calls `__del__` in so many words."""
    found = {
        node.lineno
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method
        if not node.args and not node.keywords
    }
    return tuple(sorted(found)) if len(found) <= _MOST_CALLS else ()
