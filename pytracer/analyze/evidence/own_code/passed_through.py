"""Which argument of the program's line an argument in a C function is: through the parameters of its callers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_text import Function, arguments_at, closing, function_around, statement_at
from pytracer.analyze.evidence.own_code.c_text import without_comments as plain
from pytracer.analyze.evidence.own_code.native_source import own_sources
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

NAME = Pattern(r"^[A-Za-z_]\w*$")
ANY = Pattern(r"")
Level = tuple[Function, Sequence[str], int]


def levels(view: ProcessView, frame: NativeFrame) -> Iterator[Level]:
    """The function of each own line from a frame on, outwards; with its file and the line."""
    frames = own_frames(view)
    first = next((n for n, item in enumerate(frames) if item is frame), len(frames))
    for item in frames[first:]:
        if not is_of_own_image(item):
            return
        for line, lines in own_sources(item):
            around = function_around(plain("\n".join(lines)), statement_at(lines, line.line or 0))
            if around is None:
                return
            yield around, lines, line.line or 0


def given_for(view: ProcessView, way: Sequence[Level], name: str, declared: Pattern = ANY) -> ast.expr | None:
    """What the line passes for an argument of the innermost function; None where a function on the way may change it.

    Args:
        view: The process.
        way: The functions from the innermost one outwards.
        name: Of a parameter of the first one.
        declared: What each parameter on the way is declared as.
    """
    entered = entered_with(way, name, declared)
    return _of_python(view, entered[0].name, entered[1]) if entered is not None else None


def entered_with(way: Sequence[Level], name: str, declared: Pattern = ANY) -> tuple[Function, int] | None:
    """The outermost function, which Python called, and which of its parameters is handed on as that one."""
    for number, (function, lines, _) in enumerate(way):
        place = function.place_of(name)
        if place is None or not declared.search(function.parameters[place]) or is_assigned(function, lines, name):
            return None
        if number + 1 == len(way):
            return function, place
        _, outer, line = way[number + 1]
        given = arguments_at(outer, line, function.name)
        if given is None or place >= len(given) or not NAME.match(given[place]):
            return None
        name = given[place]
    return None


def is_assigned(function: Function, lines: Sequence[str], name: str) -> bool:
    """Whether its body may give a parameter another value, or write into it: then it is not what the caller passed."""
    text = plain("\n".join(lines))
    body = text[function.body : closing(text, function.body)]
    own = rf"(?<![\w.])(?<!->){re.escape(name)}\b"
    sets = rf"{own}\s*(?:\[[^\]]*\]\s*)*(?:[-+]?=(?!=)|\+\+|--)|(?:\+\+|--|(?<!&)&)\s*{own}(?!\s*->)"
    return re.search(sets, body) is not None


def _of_python(view: ProcessView, function: str, place: int) -> ast.expr | None:
    """What the line's only call of a function passes there."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame is None or frame.line is None:
        return None
    calls = [item for item in calls_on(tree, frame.line) if called_name(item) == function]
    if len(calls) != 1 or place >= len(calls[0].args):
        return None
    given = calls[0].args[: place + 1]
    return None if any(isinstance(item, ast.Starred) for item in given) else given[-1]
