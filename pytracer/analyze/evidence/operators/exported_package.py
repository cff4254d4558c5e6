"""Kernels of a package that AOTInductor compiled ahead of time, for the shapes that it was exported with."""

from __future__ import annotations

from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.native.native_stack import functions
from pytracer.analyze.view import ProcessView

_PACKAGE, _CALL = "aot_inductor::", "AOTICompiledModel.__call__"


def package_advice(view: ProcessView) -> str | None:
    """What to do where a kernel of such a package left a tensor: it takes the sizes that it was exported for."""
    stack = view.python_stack or view.region_python or ()  # of a thread of OpenMP's, that of the one that called it
    called = any(frame.function == _CALL for frame in stack)
    if not called and not any(_PACKAGE in name for name in functions(view)):
        return None
    return (
        f"Compare the shapes that {line_words(view)} passes with those that the package was exported for, which it "
        "does not check: export it with dynamic_shapes, or pad (the batch) to them. AOTI_RUNTIME_CHECK_INPUTS=1 raises "
        "an error that names the input."
    )
