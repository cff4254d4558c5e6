"""Where the values came from that the line of an exception used: read from the program's own source.

An exception says what does not fit; the reader's next question is where that value was made. Names of the line are
followed to the last line that bound them, and through the callers that passed them on. Nothing is run, and a name that
several lines bind on different ways is said to come from the one above the line that failed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.slicing.calls import argument_of, call_of
from pytracer.analyze.evidence.syntax.bindings import OR, binding
from pytracer.analyze.evidence.syntax.calls import leaves_out, passed_as
from pytracer.analyze.evidence.syntax.lines import names_of_line, subscripts_of_line
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import ENTRY, reaching
from pytracer.analyze.evidence.syntax.scopes import (
    Scope,
    class_around,
    default_of,
    is_parameter,
    runs,
    scope_of,
    second_parameter,
)
from pytracer.analyze.naming import short_file
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, PythonFrame

_MOST = 2
_HOPS = 4  # callers that a value is followed through
_QUOTED = 50
_NUMBER = Pattern(r"(?<![\w.])-?\d+(?![\w.])")
_NOT_FINITE = Pattern(r"(?:^|\s)-?(?:nan|inf)$")
_EMPTY = Pattern(r"^\w+ of 0$|\[(?:\d+, )*0[,\]]")
_LOOK_UP = Pattern(r"\b(?:Key|Index)Error$")
EMPTY_MESSAGE = Pattern(
    r"pop from (?:an )?empty|popitem\(\): dictionary is empty|empty sequence|iterable argument is empty|empty range"
    r"|non-empty (?:list|TensorList)|zero-size array|no elements|input\.numel\(\) == 0|non-zero size"
    r"|with size 0\b|num_samples=0|at least one array|at least one data point|from an empty"
)
_OF_NOTHING = Pattern(r"(?:IndexError|KeyError|ZeroDivisionError|StopIteration|StatisticsError)$")
_NOTHING = Pattern(r"\b(?:empty|zero|0|no|none|nothing|length|unpack|index|range)\b", re.IGNORECASE)
USED_UP = ", used up"  # as the recorder writes of an iterator
_SMALL = 2  # 0 and 1 are in every message and shape


class NameOrigin(msgspec.Struct, frozen=True):
    """A variable of the failing line. `frame`: the line that made its value; `also`: where else it is filled or set."""

    name: str
    value: str | None
    frame: PythonFrame
    text: str
    also: str | None = None


def origin_words(snapshot: Snapshot, exception: ExceptionReport | None, stack: Sequence[PythonFrame]) -> str | None:
    """`` `metrics`, an empty list, comes from line 23 (`report(evaluate(model))`) ``; or None.

    Args:
        snapshot: The process that raised it: its sources count only as they were when it began.
        exception: With the variables of the innermost frame of the program.
        stack: Its frames, innermost first.
    """
    names, meant = _names_and_meant(snapshot, exception, stack)
    own = [frame for frame in stack if not is_library_file(frame.file)]
    found = (follow(snapshot, own, name, meant.get(name)) for name in meant or names)
    known = [item for item in found if item is not None]
    kept = known[:_MOST] if meant or len(known) == 1 else ()  # of a line with one variable, that
    return _joined(kept, own[0].file) if kept else None


def meant_words(snapshot: Snapshot, exception: ExceptionReport | None, stack: Sequence[PythonFrame]) -> str | None:
    """`` `metrics` was an empty list ``: those of the failing line that the message is about."""
    _, meant = _names_and_meant(snapshot, exception, stack)
    return " and ".join(f"`{name}` was {_value_words(value)}" for name, value in [*meant.items()][:_MOST]) or None


def sample_number(snapshot: Snapshot, exception: ExceptionReport, stack: Sequence[PythonFrame]) -> str | None:
    """The number that `__getitem__` of the program was called with, where the exception was raised in or below it."""
    own = [(place, item) for place, item in enumerate(stack) if not is_library_file(item.file)]
    outer = {item.frame: item.variables for item in exception.outer or ()}
    for place, frame in own:
        tree = syntax_tree(snapshot, frame)
        if tree is None or frame.line is None:
            return None
        scope = scope_of(tree, frame.line)
        if getattr(scope, "name", None) != "__getitem__" or "<" in (frame.function or "").rpartition(".")[2]:
            continue
        name = second_parameter(scope)
        held = exception.variables if place == own[0][0] else outer.get(place)
        value = next((item.value for item in held or () if item.name == name), None)
        return value if value is not None and value.isdecimal() else None
    return None


def passed_words(snapshot: Snapshot, frame: PythonFrame | None) -> str | None:
    """`` `axes` comes from line 8 (`axes = find()`) ``, of what a line passes to native code; None for many."""
    tree = syntax_tree(snapshot, frame)
    if tree is None or frame is None or frame.line is None:
        return None
    found = (follow(snapshot, [frame], name, None) for name in names_of_line(tree, frame.line))
    known = [item for item in found if item is not None]
    return _joined(known, frame.file) if 0 < len(known) <= _MOST else None


def _joined(items: Sequence[NameOrigin], file: str | None) -> str:
    """Each line once: `` `x` and `y` come from line 4 (`x, y = load()`) ``. `file`: of the failing line."""
    places: dict[str, list[str]] = {}
    for item in items:
        text = shortened(item.text, _QUOTED)
        either = item.also is not None and item.also.startswith(OR)
        also = f"{' ' if either else ', and '}{item.also}" if item.also is not None else ""
        place = "line " if item.frame.file == file else f"{short_file(item.frame.file)}:"
        places.setdefault(f"{place}{item.frame.line} (`{text}`){also}", []).append(f"`{item.name}`")
    words = (f"{' and '.join(names)} come{'s' * (len(names) == 1)} from {place}" for place, names in places.items())
    return "; ".join(words)


def _value_words(value: str) -> str:
    """`list of 0` is an empty list, `[] float32 nan` a tensor with one number."""
    number = re.match(r"\[\] (\w+) (\S+)$", value)
    if number is not None:
        return f"{number[2]} ({number[1]})"
    if value.endswith(USED_UP):
        return f"a {value.removesuffix(USED_UP)} object that is used up"
    if value.endswith(" of 0"):
        return f"an empty {value.removesuffix(' of 0')}"
    return f"a {value}" if " of " in value else value


def _names_and_meant(
    snapshot: Snapshot, exception: ExceptionReport | None, stack: Sequence[PythonFrame]
) -> tuple[Sequence[str], dict[str, str]]:
    """Variables of the failing line, and the values of those that the message is about."""
    frame = next((item for item in stack if not is_library_file(item.file)), None)
    if exception is None or frame is None:
        return (), {}
    values = {item.name: item.value for item in exception.variables or () if item.name and item.value}
    tree = syntax_tree(snapshot, frame)
    if tree is None or frame.line is None:
        return (), {}
    own_line = frame is stack[0] and _LOOK_UP.search(exception.type or "") is not None
    tables, keys = subscripts_of_line(tree, frame.line) if own_line else ([], [])
    if tables:  # of several, one that is not known may be the one
        known = all(name in values for name in tables)
        return [*tables, *keys], {name: values[name] for name in (*tables, *keys) if name in values} if known else {}
    names = names_of_line(tree, frame.line)
    return names, {name: values[name] for name in _meant(exception.type or "", exception.message or "", names, values)}


def _meant(kind: str, message: str, names: Sequence[str], values: dict[str, str]) -> list[str]:
    """Names whose value the message is about."""
    about_nothing = bool(_OF_NOTHING.search(kind) or EMPTY_MESSAGE.search(message) or _NOTHING.search(message))
    numbers = {text for text in _NUMBER.findall(message) if abs(int(text)) >= _SMALL}

    def is_meant(name: str) -> bool:
        value = values.get(name)
        if value is None:
            return False
        if value == "None":
            return "None" in message
        if f"'{value.split(' of ')[0]}' object" in message:
            return True
        if value.endswith((USED_UP, " of 0")):
            return about_nothing
        return bool(_EMPTY.search(value) or _NOT_FINITE.search(value) or numbers & {*_NUMBER.findall(value)})

    return [name for name in names if is_meant(name)]


def follow(snapshot: Snapshot, frames: Sequence[PythonFrame], name: str, value: str | None) -> NameOrigin | None:
    """Through the callers that passed it on as it was."""
    found = None
    for position, frame in enumerate(frames[:_HOPS]):
        tree = syntax_tree(snapshot, frame)
        if tree is None or frame.line is None:
            break
        scope = scope_of(tree, frame.line)
        if not runs(tree, scope, frame.line, frame.function):
            break
        bound = binding(tree, scope, name, frame.line, value)
        if bound is not None:
            line, also = bound
            at = PythonFrame(function=frame.function, file=frame.file, line=line)
            text = line_text(snapshot, at)
            return found if text is None else NameOrigin(found.name if found else name, value, at, text, also)
        caller = frames[position + 1] if position + 1 < len(frames) else None
        if not is_parameter(scope, name) or caller is None or reaching(scope, name, frame.line) != frozenset({ENTRY}):
            break
        text = line_text(snapshot, caller)
        if text is None:
            break
        outer = syntax_tree(snapshot, caller)
        if outer is not None and caller.line is not None and _has_default(tree, scope, name, outer, caller.line):
            break
        found = NameOrigin(found.name if found else name, value, caller, text)
        passed = passed_as(outer, caller.line, scope, name) if outer is not None and caller.line is not None else None
        if passed is None:
            break
        name = passed
    return found


def _has_default(tree: ast.Module, scope: Scope, name: str, outer: ast.Module, line: int) -> bool:
    """Whether a caller passes nothing for a parameter, or may do so."""
    if leaves_out(outer, line, scope, name):
        return True
    if default_of(scope, name) is None or isinstance(scope, (ast.Module, ast.Lambda)):
        return False
    call = call_of(outer, line, scope, class_around(tree, scope))
    given = argument_of(call, scope, name) if call is not None else None
    return given is None or (isinstance(given, ast.Subscript) and given not in [*nodes_of(outer)])  # `f(**options)`
