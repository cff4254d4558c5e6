"""A thread that was writing a checkpoint when another one released what it wrote."""

from __future__ import annotations

from pytracer._text import function_words
from pytracer.analyze.naming import place_words
from pytracer.analyze.parts import is_library_file
from pytracer.analyze.view import ProcessView

_WRITERS = ("/torch/serialization.py", "/torch/distributed/checkpoint/")


def save_advice(view: ProcessView) -> str | None:
    """What to do about a tensor that another thread released; None when it was not being saved."""
    stack = view.python_stack or []
    at = max((n for n, frame in enumerate(stack) if any(part in (frame.file or "") for part in _WRITERS)), default=None)
    freed = view.storage.freed if view.storage else None
    if at is None or freed is None:
        return None
    caller = next((frame for frame in stack[at + 1 :] if not is_library_file(frame.file)), None)
    by = freed.caller or freed.python
    called = f", called at {place_words(caller)}," if caller is not None else ""
    released = f" at {place_words(by)}" if by else ""
    return (
        f"{function_words(stack[at].function or 'save')}(){called} was still writing this tensor when another thread "
        f"released it{released}. Wait for the end of the save before the tensor is changed or released: .result() of "
        "what async_save() returns, join() of the thread; or save a copy. A change of values meanwhile is no error: "
        "the file then has old and new ones."
    )
