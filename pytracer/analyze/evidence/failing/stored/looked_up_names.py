"""A class or function that pickle does not find under its own name: it has another one in the module, or none."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

# CPython 3.12 and before: attribute lookup Step on __main__ failed; 3.13: it's not found as __main__.Step
_NOT_FOUND = Pattern(r"attribute lookup (\w+) on ([\w.]+) failed|it's not found as ([\w.]+)\.(\w+)")
_NAMING = frozenset({"namedtuple", "NamedTuple", "make_dataclass", "type", "Enum", "IntEnum", "TypedDict", "new_class"})


def not_looked_up(at: FailingLine) -> str | None:
    """Of what the failing line pickles."""
    return looked_up_words(at.message, at.files.items(), at.in_file)


def looked_up_words(
    message: str, files: Iterable[tuple[str | None, ast.Module]], place: Callable[[str | None, int], str]
) -> str | None:
    """By the line that names it, where the program has one.

    Args:
        message: Of pickle's error.
        files: The program's, in which it is searched.
        place: What a line of a file is called.
    """
    found = _NOT_FOUND.search(message)
    if found is None:
        return None
    name, module = found[1] or found[4], found[2] or found[3]
    for file, tree in files:
        for item in nodes_of(tree):
            if isinstance(item, ast.Assign) and _names(item, name):
                target = source(item.targets[0])
                return (
                    f"{capital(place(file, item.lineno))} (`{short(source(item))}`) calls the class `{name}`, and its "
                    f"variable `{target}`: pickle looks for `{name}` in {module}, where there is none. Write "
                    f'"{target}" in that call'
                )
    return (
        f"pickle looks for `{name}` at the top level of {module}, where there is none of that name: define it there, "
        "not inside of a function or under another name"
    )


def _names(item: ast.Assign, name: str) -> bool:
    """`Step = namedtuple("Transition", ...)`."""
    call, target = item.value, item.targets[0]
    if not isinstance(call, ast.Call) or called_name(call) not in _NAMING or not call.args:
        return False
    first = call.args[0]
    return (
        isinstance(target, ast.Name) and target.id != name and isinstance(first, ast.Constant) and first.value == name
    )
