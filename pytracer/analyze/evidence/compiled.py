"""Code that torch.compile made: which function of the program it is, and the line that called it.

A compiled function has one frame of Python, whose line is that of its `def` or of its decorator, and its kernels know
nothing of the lines of its body.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pytracer.analyze.parts import is_library_file
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_MADE = re.compile(r"/torchinductor_[^/]+/|/c[a-z2-7]{51}\.py$|torch/_inductor/output_code\.py$")
_KERNEL = re.compile(r"/c[a-z2-7]{51}[\w.]*\.so$")


@dataclass(frozen=True)
class CompiledCall:
    """`function` is the compiled one, at its first line; `caller` the line of the program that called it, if known."""

    function: PythonFrame
    caller: PythonFrame | None


def compiled_call(view: ProcessView) -> CompiledCall | None:
    """None where the innermost code of the program was not compiled."""
    stack = view.python_stack or view.region_python or ()
    own = [place for place, frame in enumerate(stack) if not is_library_file(frame.file)]
    if not own or not any(_MADE.search(frame.file or "") for frame in stack[: own[0]]):
        return None
    return CompiledCall(stack[own[0]], _caller(stack, own[0]))


def is_compiled_kernel(image: str | None) -> bool:
    """Whether a native image is one that inductor made."""
    return bool(image and _KERNEL.search(image))


def _caller(stack: Sequence[PythonFrame], place: int) -> PythonFrame | None:
    outside = (frame for frame in stack[place + 1 :] if not is_library_file(frame.file))
    return next(outside, None)
