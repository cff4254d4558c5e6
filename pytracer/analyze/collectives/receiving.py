"""Whether a rank was in the wait() of a message: without that, what it had begun to receive may have come unnoticed.

gloo completes a receive in its wait() alone, so that a rank that polls is_completed(), or has not come to its wait(),
has no record of what arrived.
"""

from __future__ import annotations

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.waits.waits import main_stack
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_TORCH = "distributed/distributed_c10d.py"
_WAITS = ("wait", "recv", "recv_object_list", "synchronize")


def is_in_wait(view: ProcessView | None) -> bool:
    """By the main thread's stack; False where that is not known."""
    stack = main_stack(view) if view is not None else ()
    at = next((place for place, frame in enumerate(stack) if not is_library_file(frame.file)), None)
    if view is None or at is None:
        return False
    if any((frame.file or "").endswith(_TORCH) and _name(frame.function) in _WAITS for frame in stack[:at]):
        return True
    own = stack[at]
    tree = syntax_tree(view.process.snapshot, own)
    calls = calls_on(tree, own.line) if tree is not None and own.line is not None else []
    return any(called_name(item) in _WAITS for item in calls)


def _name(function: str | None) -> str:
    return (function or "").rpartition(".")[2]
