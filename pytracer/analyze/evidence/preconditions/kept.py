"""Where an argument that does not fit came from: the line that sets the attribute, the container that keeps the tensor.

A tensor that a cache hands out again has the sizes of the call that made it. What holds it is recorded; that the holder
gave it to this call is not.
"""

from __future__ import annotations

from pytracer._library_files import is_library_file
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import plain_expression, program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.preconditions.terms import Given
from pytracer.analyze.evidence.syntax.set_attributes import lines_that_set_attribute
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_QUOTED = 70


def kept_words(view: ProcessView, item: Given, made: str | None) -> str:
    """`` `ctx.idx` is set at line 31 (`...`), and `CACHE.store[?]` holds the same tensor. `` Nothing of a variable.

    `made`: the line that made it, as line_that_made() says it, which is not said again.
    """
    name = item.name.strip("`")
    line, holder = _setting_line(view, name), _container(view, item, name)
    holds = f"`{holder}` holds the same tensor, which may be of an earlier call" if holder is not None else None
    is_said = line is not None and made is not None and made.partition(" in ")[0] == line.partition(" (")[0]
    said = f"{item.name} is set at {line}" if line is not None and not is_said else None
    both = ", and ".join(part for part in (said, holds) if part is not None)
    return f" {both}." if both else ""


def _setting_line(view: ProcessView, name: str) -> str | None:
    """`` line 31 (`ctx.idx = ...`) ``, the only one of the program's file that sets such an attribute."""
    frame, attribute = next(iter(program_frames(view)), None), name.rpartition(".")[2]
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame is None or attribute == name or not attribute.isidentifier():
        return None
    lines = {item.line for item in lines_that_set_attribute(tree, attribute)}
    if len(lines) != 1:
        return None
    line = lines.pop()
    text = line_text(view.process.snapshot, PythonFrame(function=None, file=frame.file, line=line))
    return place_of(view, frame.file, line).quoted(shortened(text, _QUOTED)) if text is not None else None


def _container(view: ProcessView, item: Given, name: str) -> str | None:
    """The item of a container of the program that holds the same tensor, and outlives the call."""
    for holder in view.crash.holders if view.crash is not None and item.base else ():
        if holder.base != item.base or holder.elements != item.elements or holder.frame is None:
            continue
        expression = plain_expression(holder.expression)
        lasting = holder.kind == "global" or expression.startswith("self.")
        if lasting and "[" in expression and expression != name and not is_library_file(holder.frame.file):
            return expression
    return None
