"""An exception that the program loads from a pickle, and whose class cannot be called with its `args` alone."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.exceptions.remaking import CALLED, Remaking
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.error_classes import error_constructor, is_error_class
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_LOADS = Pattern(r"/(multiprocess(?:ing)?/(queues|connection|managers|pool)|pickle|copy|torch/serialization)\.py$")
_LOAD_CALLS = ("load", "loads", "copy", "deepcopy")
_LONGEST = 60


def unmade_error_here(at: FailingLine) -> str | None:
    """In place of a call that lacks arguments: no line of the program calls the class there."""
    found = _found(at)
    if found is None:
        return None
    at.named.extend(found.lines)
    return f"{found.mend}{_raised(at, found.name)}"


def unmade_here_subject(at: FailingLine) -> str | None:
    """What the headline says of it."""
    found = _found(at)
    call = at.only(ast.Call)
    what = f"`{source(call)}`" if call is not None else f"line {at.line}"
    return f"{what} makes a {found.name} again from its pickle: {found.why}" if found is not None else None


def _found(at: FailingLine) -> Remaking | None:
    called = CALLED.search(at.message) if at.kind == "TypeError" else None
    if called is None or called[1] is None or not _loads(at):
        return None
    name = called[1].rpartition(".")[2]
    if any(called_name(item) == name for item in calls_on(at.tree, at.line)) or not is_error_class(at.files, name):
        return None
    made = error_constructor(at.files, name)
    found = Remaking(made, name, at.frame.file) if made is not None else None
    return found if found is not None and found.why is not None else None


def _loads(at: FailingLine) -> bool:
    if not at.own:
        return _LOADS.search(at.stack[0].file or "") is not None
    return any(called_name(item) in _LOAD_CALLS for item in calls_on(at.tree, at.line))


def _raised(at: FailingLine, name: str) -> str:
    """The only line that raises one: the error that is not seen."""
    raises = [
        (file, item)
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Raise) and isinstance(item.exc, ast.Call) and called_name(item.exc) == name
    ]
    if len(raises) != 1:
        return ""
    file, item = raises[0]
    line = at.in_file(file, item.lineno).quoted(shortened(ast.unparse(item), _LONGEST))
    return f" Only {line} raises it: that is the error itself."
