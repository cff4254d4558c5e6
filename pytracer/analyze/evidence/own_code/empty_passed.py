"""Arrays and tensors without elements that the program's line passes to its own native code, as it was recorded."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._text import list_words
from pytracer.analyze.evidence.lifetime.variables import plain_expression, program_frames
from pytracer.analyze.evidence.own_code.passed import names_passed
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView


def emptied_by(view: ProcessView, count: str) -> str | None:
    """`` `pos` [0, 3] ``: what a count of 0 is taken from, `len(pos)`, or `n` of `n, dim = pos.shape`."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    try:
        node = ast.parse(count, mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if tree is None or frame is None or frame.line is None:
        return None
    names = [item.id for item in nodes_of(node) if isinstance(item, ast.Name)]
    made = [name for item in names for name in _made_of(scope_of(tree, frame.line), item, frame.line)]
    found = [words for name in dict.fromkeys([*names, *made]) if (words := empty_words(view, name)) is not None]
    return list_words(found[:1]) if found else None


def empty_passed(view: ProcessView) -> str | None:
    """`` `pos` [0, 3] has ``: what the line passes to a function of the program's own, and has no elements."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    names = names_passed(view, tree, frame.line) if tree is not None and frame is not None and frame.line else None
    found = [words for name in names or () if (words := empty_words(view, name)) is not None]
    return f"{list_words(found)} {'has' if len(found) == 1 else 'have'}" if found else None


def empty_words(view: ProcessView, name: str) -> str | None:
    """`` `pos` [0, 3] `` of a variable of the program's innermost line; None where it has elements, or is none."""
    frame, crash = next(iter(program_frames(view)), None), view.crash
    if frame is None or crash is None:
        return None
    at = (frame.file, frame.function, frame.line)
    shapes: set[tuple[int, ...]] = {
        item.shape
        for item in crash.arrays
        if item.expression == name and (item.frame.file, item.frame.function, item.frame.line) == at
    }
    held = [
        item
        for item in crash.holders
        if item.frame is not None
        and plain_expression(item.expression) == name
        and (item.frame.file, item.frame.function, item.frame.line) == at
    ]
    if held and not any(item.elements for item in held):
        bases = {item.base for item in held}
        shapes |= {item.sizes for item in crash.arguments if item.base in bases and item.elements == 0}
        if len(shapes) != 1:
            return f"`{name}`"
    if len(shapes) != 1 or 0 not in (shape := shapes.pop()):
        return None
    return f"`{name}` [{', '.join(map(str, shape))}]"


def _made_of(scope: ast.AST, name: str, line: int) -> Iterator[str]:
    """The names in what a variable was last set to above a line."""
    sets = [
        item
        for item in own_nodes(scope)
        if isinstance(item, ast.Assign)
        and item.lineno < line
        and any(isinstance(one, ast.Name) and one.id == name for target in item.targets for one in nodes_of(target))
    ]
    if sets:
        value = max(sets, key=lambda item: item.lineno).value
        yield from (item.id for item in nodes_of(value) if isinstance(item, ast.Name))
