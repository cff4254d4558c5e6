"""A number that the program sets on a module of torch: its constructor checks it, an assignment does not.

By the source: the innermost Python frame is a module's of torch, its call passes `self.self_attn.num_heads`, and one
line of the program sets an attribute of that name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pytracer.analyze.evidence.failing.expressions import short
from pytracer.analyze.evidence.lifetime.variables import program_frames, python_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_MODULES = "torch/nn/modules/"
_OF_SETATTR = 3


@dataclass(frozen=True)
class SetAttribute:
    """`where`: `line 50`; `text`: the statement, at `frame`; `function`: of torch, which passes it."""

    name: str
    where: str
    text: str
    function: str
    frame: PythonFrame

    @property
    def words(self) -> str:
        """For the headline, behind what happened."""
        return f": `{self.name}`, which {self.function} passes, is set at {self.where} (`{self.text}`) and may be 0"

    @property
    def advice(self) -> str:
        """What to change."""
        return (
            f"Keep `{self.name}` above 0 at {self.where} (`{self.text}`), or skip the module where it would be 0: a "
            "module of torch checks such a number when it is made, and not when it is set."
        )


def set_attribute(view: ProcessView) -> SetAttribute | None:
    """None where no line of the program sets one, or several do."""
    frame = next(iter(python_frames(view)), None)
    if frame is None or frame.line is None or _MODULES not in (frame.file or ""):
        return None
    tree = syntax_tree(view.process.snapshot, python_frame(frame))
    if tree is None:
        return None
    passed = {
        item.attr
        for call in calls_on(tree, frame.line)
        for part in (*call.args, *(word.value for word in call.keywords))
        for item in ast.walk(part)
        if isinstance(item, ast.Attribute)
    }
    files = program_files(view.process.snapshot, program_frames(view))
    found = [(file, *item) for file, own in files.items() for item in _sets(own) if item[0] in passed]
    if len(found) != 1:
        return None
    file, name, statement = found[0]
    at = PythonFrame(function=None, file=file, line=statement.lineno)
    where, text = place_of(view, file, statement.lineno), short(ast.unparse(statement))
    return SetAttribute(name, where, text, frame.function or "", at)


def _sets(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """`attn.num_heads = kept`, `setattr(attn, "num_heads", kept)`; not what a class sets of its own, nor a number."""
    for item in ast.walk(tree):
        if isinstance(item, (ast.Assign, ast.AugAssign)):
            if isinstance(item.value, ast.Constant) and item.value.value:
                continue
            for target in item.targets if isinstance(item, ast.Assign) else [item.target]:
                if isinstance(target, ast.Attribute) and ast.unparse(target.value) != "self":
                    yield target.attr, item
        elif isinstance(item, ast.Expr) and isinstance(item.value, ast.Call) and called_name(item.value) == "setattr":
            name = item.value.args[1] if len(item.value.args) == _OF_SETATTR else None
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield name.value, item
