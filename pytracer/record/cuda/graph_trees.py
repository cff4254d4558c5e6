"""CUDA graphs of `torch.compile(mode="reduce-overhead")`, named by the compiled function.

inductor's cudagraph_trees capture CUDA graphs through torch.cuda.CUDAGraph, as others do. The function that they
capture is known only during the capture, while CUDAGraphTreeManager.record_function runs.
"""

from __future__ import annotations

import functools
import importlib
import re
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pytracer.blackbox.note_codes import NoteCode
from pytracer.record.bootstrap.dynamo import unseen
from pytracer.record.bootstrap.import_hook import when_imported
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core

if TYPE_CHECKING:
    from pytracer.record.torch_objects import FunctionId, GraphTreeManager, Placeholder

_MODULE = "torch._inductor.cudagraph_trees"
_GENERATED = ("call", "run", "unknown")  # inductor's name of every generated function
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+), in (\S+)')
_patches = Patches()
_now = threading.local()


def install(box: Core) -> None:
    """Waits for the import of the module, which `import torch` does not import."""
    when_imported(_MODULE, functools.partial(_install, box))


def uninstall() -> None:
    """Restores what is still ours."""
    _patches.put_back()


def name_of_capture() -> str | None:
    """The function being captured on this thread; None outside of inductor's trees."""
    return getattr(_now, "name", None)


def _install(box: Core) -> None:
    try:
        manager = importlib.import_module(_MODULE).CUDAGraphTreeManager
        record = manager.record_function
    except AttributeError as error:
        box.note(NoteCode.CUDA, f"CUDA graphs of compiled functions get no names: {error}")
        return

    @functools.wraps(record)
    def record_function(
        self: GraphTreeManager, /, new_inputs: object, function_id: FunctionId, *args: object, **kwargs: object
    ) -> object:
        _now.name = _name(self, function_id)
        try:
            return record(self, new_inputs, function_id, *args, **kwargs)
        finally:
            _now.name = None

    _patches.replace(manager, "record_function", record_function)


@unseen
def _name(manager: GraphTreeManager, function_id: FunctionId) -> str | None:
    """`compiled function 2 (backward, 0/1), train.py:12 in step`: from private attributes, best effort."""
    try:
        words = [word for word in (_mode(manager, function_id), _compile_id(manager, function_id)) if word]
        name = f"compiled function {function_id.id}" + (f" ({', '.join(words)})" if words else "")
        function = manager.ids_to_funcs[function_id]
        own = getattr(function.model, "__name__", "unknown")
        place = own if own not in _GENERATED else _place(function.placeholders)
        return f"{name}, {place}" if place else name
    except Exception:  # a missing name is no error: torch changes these attributes often
        return None


def _mode(manager: GraphTreeManager, function_id: FunctionId) -> str:
    mode = getattr(manager, "id_to_mode", {}).get(function_id)
    return mode.name.lower() if mode is not None else ""


def _compile_id(manager: GraphTreeManager, function_id: FunctionId) -> str:
    known = getattr(manager, "id_to_compile_id", {}).get(function_id)
    return str(known) if known is not None else ""


def _place(placeholders: Iterable[Placeholder]) -> str | None:
    """The line of the user's program that first uses an input of the function."""
    for item in placeholders:
        frames = _FRAME.findall(item.stack_trace or "")
        if frames:
            file, line, function = frames[-1]
            return f"{file.rsplit('/', 1)[-1]}:{line} in {function}"
    return None
