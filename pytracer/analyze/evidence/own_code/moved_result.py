"""An address that C moved on before it returned it, and which a line of Python gives to what frees it.

`char *trim(...) { char *own = strdup(text); while (*own == ' ') own++; return own; }`: free() knows the first address
of a block alone. By the sources of both functions.
"""

from __future__ import annotations

import ast
import re

from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.own_code.c_text import closing, defined, function_around
from pytracer.analyze.evidence.own_code.freed_reasons import MovedResult
from pytracer.analyze.evidence.own_code.freeing_line import FreeingLine, bare
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.makers import makers
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import ProcessView

_RETURNED = r"\breturn\s+(?P<value>[^;]+);"
_MOVES = r"\b{0}\s*(?:\+\+|--|[+-]=)|(?:\+\+|--)\s*{0}\b|\b{0}\s*=\s*{0}\s*[+-]"


def moved_result(view: ProcessView, line: FreeingLine) -> MovedResult | None:
    """None unless the failing line passes the result of one function of the same file, which moves what it returns."""
    around = function_around(line.text, line.start)
    place = around.place_of(line.name) if around is not None else None
    if around is None or place is None:
        return None
    frames = program_frames(view)
    back = Slice(view.process.snapshot, frames)
    spot = back.spot(0)
    if spot is None:
        return None
    calls = [item for item in calls_on(spot.tree, spot.line) if called_name(item) == around.name]
    given = calls[0].args[place] if len(calls) == 1 and place < len(calls[0].args) else None
    if given is None:
        return None
    made = makers(program_files(view.process.snapshot, frames), back, given, spot)
    names = {called_name(item.node) if isinstance(item.node, ast.Call) else None for item in made}
    maker = names.pop() if len(names) == 1 else None
    at = _moved_at(line.text, maker) if maker is not None else None
    if maker is None or at is None:
        return None
    return MovedResult(line, ast.unparse(given), maker, line.place_at(at), line_in(spot.file, spot.line, spot.file))


def _moved_at(text: str, maker: str) -> int | None:
    """Where it moves the variable that all its returns give back, or null."""
    found = defined(text, maker)
    end = closing(text, found[0].body) if len(found) == 1 else None
    if end is None:
        return None
    body = text[found[0].body : end]
    values = {bare(match["value"]) for match in re.finditer(_RETURNED, body)} - {"NULL", "nullptr", "0"}
    name = values.pop() if len(values) == 1 else ""
    moved = re.search(_MOVES.format(name), body) if re.fullmatch(r"\w+", name) else None
    return found[0].body + moved.start() if moved is not None else None
