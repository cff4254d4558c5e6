"""A thread that was writing a checkpoint when another one released what it wrote."""

from __future__ import annotations

from pytracer._library_files import is_library_file
from pytracer._text import function_words
from pytracer.analyze.naming import place_words
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.journal import Doing
from pytracer.report.job import PythonFrame

_ASYNC = "/torch/distributed/checkpoint/_async_thread_executor.py"
_WRITERS = ("/torch/serialization.py", "/torch/distributed/checkpoint/")


def save_advice(view: ProcessView) -> str | None:
    """What to do about a tensor that another thread released; None when it was not being saved."""
    stack = view.python_stack or []
    at = max((n for n, frame in enumerate(stack) if any(part in (frame.file or "") for part in _WRITERS)), default=None)
    freed = view.storage.freed if view.storage else None
    if at is None or freed is None:
        return None
    caller = next((frame for frame in stack[at + 1 :] if not is_library_file(frame.file)), None)
    function, last = stack[at].function or "save", ""
    if caller is None and (stack[at].file or "").endswith(_ASYNC):
        asked = _async_saves(view)
        function, caller, last = "async_save", next(iter(asked[::-1]), None), "last " if len(asked) > 1 else ""
    by = freed.place
    called = f", {last}called at {place_words(caller)}," if caller is not None else ""
    released = f" at {place_words(by)}" if by else ""
    return (
        f"{function_words(function)}(){called} was still writing this tensor when another thread "
        f"released it{released}. Wait for the end of the save before the tensor is changed or released: .result() of "
        "what async_save() returns, join() of the thread; or save a copy. A change of values meanwhile is no error: "
        "the file then has old and new ones."
    )


def _async_saves(view: ProcessView) -> list[PythonFrame]:
    """Where the program called torch.distributed.checkpoint.async_save(): its thread has no line of the program."""
    snapshot = view.process.snapshot
    return [
        PythonFrame(file=fact.data.file, line=fact.data.line, function=fact.data.function)
        for fact in snapshot.recorded(Doing)
        if fact.data.kind == "async_save" and fact.data.file and fact.mono_ns >= snapshot.created_mono_ns
    ]
