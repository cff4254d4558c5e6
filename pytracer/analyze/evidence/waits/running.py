"""Whether the stacks of a process's end show work: Python code or a computation, and nothing that waits or asks."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.native.native_stack import image_name
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import holds, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.waits.waits import main_native, main_stack, wait_of, was_asleep
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_INTERPRETER = Pattern(r"(libpython3|python\d?)")
_COMPUTES = Pattern(r"(libtorch_cpu|libmkl|libopenblas|libscipy_openblas|_multiarray_umath)")
_WAITS = Pattern(r"(?i)wait|acquire|sleep|poll|select|take_gil|recv|send|read|join|barrier")
_PURE = frozenset({"len", "min", "max", "sum", "abs", "int", "range", "isinstance"})
_TAKES = frozenset({"pop", "popleft", "popitem", "heappop"})


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
    own = [frame for frame in stack if not is_library_file(frame.file)]
    inner = own[: own.index(until) + 1] if until in own else own[:1]
    if any(_may_ask(view, frame) for frame in inner):
        return None
    return "running Python code" if is_python else "computing"


def _may_ask(view: ProcessView, frame: PythonFrame) -> bool:
    """Whether a `while` around the line may wait for what others do: `while not done()`."""
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame.line is None:
        return True
    loops = (item for item in loops_around(tree, frame.line) if isinstance(item, ast.While))
    return not all(_counts(item) for item in loops)


def _counts(loop: ast.While) -> bool:
    """Whether its own body changes what its condition reads: `while at < len(rows)` with `at += 1`."""
    calls = [item for item in nodes_of(loop.test) if isinstance(item, ast.Call)]
    if any(called_name(item) not in _PURE for item in calls):
        return False
    names = {name for item in nodes_of(loop.test) if (name := variable(item)) is not None}
    return any(_changes(part, name) for item in loop.body for part in nodes_of(item) for name in names)


def _changes(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.AugAssign):
        return variable(node.target) == name
    if isinstance(node, ast.Assign):
        computed = not any(_asks(item) for item in nodes_of(node.value))
        return computed and any(holds(target, name) for target in node.targets)
    if isinstance(node, ast.Call) and called_name(node) in _TAKES:
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        given: Sequence[ast.AST] = [*([owner] if owner is not None else []), *node.args[:1]]
        return any(variable(item) == name for item in given)
    return False


def _asks(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and called_name(node) not in _PURE
