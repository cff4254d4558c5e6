"""An array of texts where a tensor is to be made: the line that makes it, of rows that are texts, too."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.calls import called_name

_REFUSED = Pattern(r"can't convert np\.ndarray of type numpy\.(?:str_|bytes_)")
_ARRAY = Pattern(r"\[[\d, ]*\] (<U\d+|\|S\d+) array$")
_MAKES = ("array", "asarray", "stack", "concatenate", "vstack", "loadtxt", "genfromtxt")
_DEEP = 4


def text_array(at: FailingLine) -> str | None:
    """Of from_numpy(), tensor() and the like."""
    call = at.only(ast.Call)
    if at.kind != "TypeError" or not _REFUSED.match(at.message) or call is None or not call.args:
        return None
    given = call.args[0]
    held = _ARRAY.match(at.value(given) or "")
    if held is None:
        return None
    made = _array(at, given)
    where = f" ({at.shown(made)})" if made is not None and made.line != at.line else at.came(source(given))
    return (
        f"`{source(given)}`{where} is an array of texts ({held[1]}): NumPy makes a text of each item where one is a "
        f"text, and csv.reader and split() give nothing else. Write `{source(given)}.astype(np.float32)` before line "
        f"{at.line}; map columns of words to numbers first."
    )


def _array(at: FailingLine, given: ast.expr) -> Made | None:
    """The call that made the array of which this is a part."""
    made = at.made(given)
    for _ in range(_DEEP):
        if made is None or not isinstance(made.node, ast.Subscript):
            break
        made = at.slice.made(made.node.value, made.spot, calls=True)
    known = made is not None and isinstance(made.node, ast.Call) and called_name(made.node) in _MAKES
    return made if known else None
