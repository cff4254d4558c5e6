"""Code that torch.compile made: which function of the program it is, and the line that called it.

A compiled function has one frame of Python, whose line is that of its `def` or of its decorator, and its kernels know
nothing of the lines of its body.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.syntax.scopes import function_headed
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_MADE = Pattern(r"/torchinductor_[^/]+/|/c[a-z2-7]{51}\.py$|torch/_inductor/output_code\.py$")


class CompiledCall(msgspec.Struct, frozen=True):
    """`function` is the compiled one, at its first line; `caller` the line of the program that called it, if known."""

    function: PythonFrame
    caller: PythonFrame | None


def runs_compiled(view: ProcessView) -> bool:
    """Whether code that inductor made runs below the program's innermost line."""
    return bool(_stack_of_program(view))


def compiled_call(view: ProcessView) -> CompiledCall | None:
    """None where the innermost code of the program was not compiled, or where its line may be the one that runs."""
    stack = _stack_of_program(view)
    if not stack:
        return None
    function = stack[0]
    tree = syntax_tree(view.process.snapshot, function)
    if tree is None or function.line is None or function_headed(tree, function.line) is None:
        return None
    outside = (frame for frame in stack[1:] if not is_library_file(frame.file))
    return CompiledCall(function, next(outside, None))


def _stack_of_program(view: ProcessView) -> Sequence[PythonFrame]:
    """From the program's innermost line outwards; nothing where no code that inductor made runs below it."""
    stack = view.python_stack or view.region_python or ()
    place = next((place for place, frame in enumerate(stack) if not is_library_file(frame.file)), 0)
    return stack[place:] if any(_MADE.search(frame.file or "") for frame in stack[:place]) else ()
