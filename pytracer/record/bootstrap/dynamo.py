"""Hides our functions from torch.compile.

Below a compiled function dynamo examines every Python frame that runs outside of a graph: after a graph break our hooks
and wrappers would be compiled like the program's own functions. A mark on each code object makes dynamo skip it. The
marks are C++ state of torch: nothing of dynamo is imported for them, which would take a second.

The marks apply to frames that run. A wrapper that dynamo traces *through*, from a compiled function into one of
torch's, must still behave like the wrapped function: it checks `is_compiling()` first, and calls the original.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import TypeVar

from pytracer.blackbox.note_codes import NoteCode

F = TypeVar("F", bound=Callable[..., object])

_waiting: list[tuple[CodeType, bool]] = []  # until torch is imported
_mark: Callable[[CodeType, bool], None] | None = None


def unseen(function: F) -> F:
    """A decorator: the function, those defined in it, and all that they call run as without torch.compile."""
    _hide(function, True)
    return function


def unseen_frame(function: F) -> F:
    """The same for a wrapper: its callees may be compiled, as they would be without the wrapper."""
    _hide(function, False)
    return function


def begin(note: Callable[[NoteCode, str], object]) -> None:
    """Sets the marks, once torch is imported. Calls `note` if this torch has none."""
    global _mark
    if _mark is not None:
        return
    try:
        # torch 2.11 to 2.14. Not by `torch._dynamo.eval_frame.skip_code`, which needs the import.
        from torch._C._dynamo import eval_frame

        action, strategy, set_strategy = (
            eval_frame._FrameAction,
            eval_frame._FrameExecStrategy,
            eval_frame.set_code_exec_strategy,
        )
        alone, below = strategy(action.SKIP, action.DEFAULT), strategy(action.SKIP, action.SKIP)
    except (ImportError, AttributeError, TypeError) as error:
        note(NoteCode.COMPILER, f"torch.compile may compile functions of pytracer: {type(error).__name__}: {error}")
        return

    def mark(code: CodeType, with_callees: bool) -> None:
        set_strategy(code, below if with_callees else alone)

    _mark = mark
    for waiting in _waiting:
        mark(*waiting)
    _waiting.clear()


def _hide(function: object, with_callees: bool) -> None:
    if isinstance(function, FunctionType):  # functions written in C have no frame
        for code in _codes(function.__code__):
            if _mark is None:
                _waiting.append((code, with_callees))
            else:
                _mark(code, with_callees)


def _codes(code: CodeType) -> list[CodeType]:
    """Includes nested code objects: a comprehension has its own frame, too."""
    inner = [inner for const in code.co_consts if isinstance(const, CodeType) for inner in _codes(const)]
    return [code, *inner]


@unseen
def is_compiling() -> bool:
    """Whether torch.compile is tracing the caller: our calls must stay out of the graph."""
    ask = getattr(
        sys.modules.get("torch.compiler"), "is_compiling", None
    )  # torch may be missing, or partially imported
    return ask is not None and bool(ask())
