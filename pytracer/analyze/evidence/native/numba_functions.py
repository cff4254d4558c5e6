"""Functions that numba compiled: their code has no library and no name, what calls it is numba's dispatcher."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

LIBRARY = Pattern(r"/numba/.*\.so$")
DECORATORS = ("njit", "jit", "vectorize", "guvectorize")


def numba_words(view: ProcessView, frames: Sequence[NativeFrame]) -> str | None:
    """`` `_fill`, which numba compiled ``; None where the innermost of the frames is of a library, or of other code.

    What stands between that code and the dispatcher is found by scanning: words that were left on the stack.
    """
    first = frames[0] if frames else None
    if first is None or first.image is not None or first.function is not None:
        return None
    if not any(LIBRARY.search(frame.image or "") and frame.function for frame in frames):
        return None
    name = _called(view)
    return f"`{name}`, which numba compiled" if name is not None else "a function that numba compiled"


def _called(view: ProcessView) -> str | None:
    """The only function of the program with such a decorator that the line calls."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame is None or frame.line is None:
        return None
    names = {called_name(item) for item in calls_on(tree, frame.line)}
    found = {
        item.name
        for each in program_files(view.process.snapshot, program_frames(view)).values()
        for item in nodes_of(each)
        if isinstance(item, ast.FunctionDef) and item.name in names and any(map(_is_numba, item.decorator_list))
    }
    return found.pop() if len(found) == 1 else None


def _is_numba(mark: ast.expr) -> bool:
    """`@nb.njit` and `@jit(parallel=True)`; torch.jit's are called script and trace."""
    name = mark.func if isinstance(mark, ast.Call) else mark
    return ast.unparse(name).rpartition(".")[2] in DECORATORS
