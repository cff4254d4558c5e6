r"""Which text of the program's line an argument in a C function is: through the parameters of its callers, by source.

`sprintf(buff, "%s\n", name)` of `note(name)`, which `load(path)` calls with `path`, that Python passes as
`folder.encode()`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_text import Function, arguments_at, closing, function_around, statement_at
from pytracer.analyze.evidence.own_code.c_text import without_comments as plain
from pytracer.analyze.evidence.own_code.native_source import own_sources
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

_NAME = Pattern(r"^[A-Za-z_]\w*$")
_TEXT = Pattern(r"\bchar\b.*[*\[]")
_QUOTED, _MOST = 50, 2
_Level = tuple[Function, Sequence[str], int]


def passed_text(view: ProcessView, frame: NativeFrame, arguments: Sequence[str]) -> str | None:
    """`` `str(path).encode()`, which line 61 passes``: those of the arguments that are texts of the line; None of none.

    Args:
        view: The process.
        frame: Of the innermost native function, which has the arguments.
        arguments: Expressions of its source.
    """
    levels = [*_levels(view, frame)]
    found = (item for name in arguments if _NAME.match(name) and (item := _passed(view, levels, name)) is not None)
    texts = list(dict.fromkeys(found))
    return f"{list_words(texts, _MOST)}, which {line_words(view)} passes" if texts else None


def _levels(view: ProcessView, frame: NativeFrame) -> Iterator[_Level]:
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


def _passed(view: ProcessView, levels: Sequence[_Level], name: str) -> str | None:
    for number, (function, lines, _) in enumerate(levels):
        place = function.place_of(name)
        if place is None or not _TEXT.search(function.parameters[place]) or _is_assigned(function, lines, name):
            return None
        if number + 1 == len(levels):
            return _of_python(view, function.name, place)
        _, outer, line = levels[number + 1]
        given = arguments_at(outer, line, function.name)
        if given is None or place >= len(given) or not _NAME.match(given[place]):
            return None
        name = given[place]
    return None


def _is_assigned(function: Function, lines: Sequence[str], name: str) -> bool:
    """Whether its body may give a parameter another value, or write into it: then it is not the caller's text."""
    text = plain("\n".join(lines))
    body = text[function.body : closing(text, function.body)]
    own = rf"(?<![\w.])(?<!->){re.escape(name)}\b"
    sets = rf"{own}\s*(?:\[[^\]]*\]\s*)*(?:[-+]?=(?!=)|\+\+|--)|(?:\+\+|--|(?<!&)&)\s*{own}"
    return re.search(sets, body) is not None


def _of_python(view: ProcessView, function: str, place: int) -> str | None:
    """What the line's only call of a function passes there."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame is None or frame.line is None:
        return None
    calls = [item for item in calls_on(tree, frame.line) if called_name(item) == function]
    if len(calls) != 1 or place >= len(calls[0].args):
        return None
    given = calls[0].args[: place + 1]
    if any(isinstance(item, ast.Starred) for item in given):
        return None
    return f"`{shortened(ast.unparse(given[-1]), _QUOTED)}`"
