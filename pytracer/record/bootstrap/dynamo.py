"""Functions of ours that torch.compile must not see.

Below a compiled function dynamo looks at every Python frame that runs outside of a graph: after a graph break our hooks
and wrappers would be compiled like the program's own functions. Each code object has a mark of dynamo's by which it is
left alone. The marks are C++ state of torch's: nothing of dynamo is imported for them, which would take a second.

They are about frames that run. A wrapper that dynamo traces *through*, on its way from a compiled function into one of
torch's, must still look like what it wraps: it asks `is_compiling()` first, and calls the original.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, TypeVar

from pytracer.blackbox.note_codes import NoteCode

F = TypeVar("F", bound=Callable[..., Any])

_waiting: list[tuple[CodeType, bool]] = []  # until torch is there
_mark: Callable[[CodeType, bool], None] | None = None


def unseen(function: F) -> F:
    """A decorator: the function, those defined in it, and all that they call run as without torch.compile."""
    _hide(function, True)
    return function


def unseen_frame(function: F) -> F:
    """The same for a wrapper: what it calls may be compiled, as it would be without the wrapper."""
    _hide(function, False)
    return function


def begin(note: Callable[[NoteCode, str], object]) -> None:
    """Sets the marks, once torch is imported. `note` is told when this torch has none."""
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
    if isinstance(function, FunctionType):  # what is written in C has no frame
        for code in _codes(function.__code__):
            if _mark is None:
                _waiting.append((code, with_callees))
            else:
                _mark(code, with_callees)


def _codes(code: CodeType) -> list[CodeType]:
    """With those that are defined in it: a comprehension has a frame of its own, too."""
    inner = [inner for const in code.co_consts if isinstance(const, CodeType) for inner in _codes(const)]
    return [code, *inner]


@unseen
def is_compiling() -> bool:
    """True where torch.compile traces the calling code: what is not torch's must stay out of the graph."""
    ask = getattr(sys.modules.get("torch.compiler"), "is_compiling", None)  # torch may be missing, or half imported
    return ask is not None and bool(ask())
