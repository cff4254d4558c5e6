"""Whether the stacks of a process's end show work: Python code or a computation, and nothing that waits or asks."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.native.native_stack import image_name
from pytracer.analyze.evidence.syntax.own_ends import ends_alone
from pytracer.analyze.evidence.waits.waits import main_native, main_stack, wait_of, was_asleep
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_INTERPRETER = Pattern(r"(libpython3|python\d?)")
_COMPUTES = Pattern(r"(libtorch_cpu|libmkl|libopenblas|libscipy_openblas|_multiarray_umath)")
_WAITS = Pattern(r"(?i)wait|acquire|sleep|poll|select|take_gil|recv|send|read|join|barrier")
_WORKS = Pattern(r"/(torch/(?!distributed/|multiprocessing/)|numpy/|pandas/|datasets/|tqdm/)")


def running_words(view: ProcessView, until: PythonFrame) -> str | None:
    """`running Python code`, or `computing`; None where it waited, or may have asked in a loop for what others do.

    Args:
        view: A process with the stacks of its end.
        until: A line of the program: what was called there is looked at as well.
    """
    native, stack = main_native(view), main_stack(view)
    if not native or not stack or view.raised or was_asleep(view) or wait_of(view) is not None:
        return None
    image, function = image_name(native[0].image), native[0].function or ""
    is_python = _INTERPRETER.match(image) is not None and not is_library_file(stack[0].file)
    if not (is_python or _COMPUTES.match(image)) or _WAITS.search(function):
        return None
    inner = stack[: stack.index(until) + 1] if until in stack else stack
    own = [frame for frame in inner if not is_library_file(frame.file)]
    again = len({(frame.file, frame.function) for frame in own}) < len(own)
    if again or _may_be_asked_again(inner) or any(_may_ask(view, frame) for frame in own):
        return None
    return "running Python code" if is_python else "computing"


def _may_be_asked_again(inner: Sequence[PythonFrame]) -> bool:
    """Whether a library that is not known to work calls the program there: it may try until an answer is yes."""
    first = next((at for at, frame in enumerate(inner) if not is_library_file(frame.file)), 0)
    between = (frame for frame in inner[first:] if is_library_file(frame.file))
    return any(_WORKS.search(frame.file or "") is None for frame in between)


def _may_ask(view: ProcessView, frame: PythonFrame) -> bool:
    """Whether a loop around the line may wait for what others do: `while not done()`; also where it is not known."""
    tree = syntax_tree(view.process.snapshot, frame)
    return tree is None or frame.line is None or not ends_alone(tree, frame.line)
