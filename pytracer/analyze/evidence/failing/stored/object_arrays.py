"""An array of Python objects that NumPy refuses to load: the line of the program that saved it."""

from __future__ import annotations

import ast

from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.written_files import Written, reads_file, writers
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_REFUSED = "Object arrays cannot be loaded when allow_pickle=False"


def object_array(at: FailingLine) -> str | None:
    """What to write at either line."""
    found = _saved(at)
    subject = object_array_subject(at)
    if found is None or subject is None:
        return None
    call, saved = found
    there = at.place(saved.spot, saved.value.lineno)
    return (
        f"{capital(subject)}. Load a file of your own by `{source(call.func)}(..., allow_pickle=True)`; or save plain "
        f"arrays at {there}: rows of one length, or all values in one array and the length of each row in another."
    )


def object_array_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _saved(at)
    if found is None:
        return None
    saved = found[1]
    there = at.place(saved.spot, saved.value.lineno)
    return f"{there} saved `{source(saved.value)}` there, which is an array of Python objects"


def _saved(at: FailingLine) -> tuple[ast.Call, Written] | None:
    """The call that reads, and the only line that writes what it reads; of an archive below its key."""
    spot = at.slice.spot(0)
    if not at.message.startswith(_REFUSED) or at.node is None or spot is None:
        return None
    found: list[tuple[ast.Call, Written]] = []
    for item in nodes_of(at.node):
        if isinstance(item, ast.Subscript) and isinstance(item.slice, ast.Constant):
            made, key = at.slice.made(item.value, spot, calls=True), item.slice.value
        elif isinstance(item, ast.Call) and called_name(item) == "load":
            made, key = at.slice.made(item, spot, calls=False), None
        else:
            continue
        call = made.node
        if isinstance(call, ast.Call) and called_name(call) == "load" and reads_file(call):
            found += [(call, each) for each in writers(at.files, at.slice, call, key, made.spot)]
    return found[0] if len(found) == 1 else None
