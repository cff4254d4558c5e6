"""Where a function runs that is not on the stack: by its only call, and that call's function by its own, and so on."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from msgspec import structs

from pytracer.analyze.evidence.slicing.callers import only_call
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.scopes import Scope, scope_of

_CALLERS = 3
_MOST_FRAMES = 64


def reached_spot(
    back: Slice, files: Mapping[str, ast.Module], file: str, scope: Scope, line: int, hops: int = _CALLERS
) -> Spot | None:
    """Of a line of a function that is on the stack, or that one line alone calls: what it was passed can be followed.

    Args:
        back: Of the process.
        files: Of the program, by path.
        file: One of them, which has the function.
        scope: The function.
        line: In it.
        hops: How many callers are looked for.
    """
    tree = files[file]
    for depth in range(_MOST_FRAMES):
        frame = back.spot(depth)
        if frame is not None and frame.file == file and frame.scope is scope:
            return structs.replace(frame, line=line)
    plain = Spot(file, tree, scope, line)
    if isinstance(scope, ast.Module):
        return plain
    if isinstance(scope, ast.Lambda) or not hops:
        return None
    called = only_call(files, scope)
    if called is None or called.passed is not None:
        return plain
    around = scope_of(called.tree, called.call.lineno)
    outer = reached_spot(back, files, called.file, around, called.call.lineno, hops - 1)
    return structs.replace(plain, call=(called.call, outer)) if outer is not None else plain
