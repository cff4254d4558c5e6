"""What could not be sent through a multiprocessing queue: put() leaves the sending to a thread, which drops it.

That thread prints the exception and goes on; who waits for the object waits for ever. So do DataLoader workers, whose
batches go through such a queue.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import FunctionType, GeneratorType, LambdaType, ModuleType
from typing import Any

from pytracer.blackbox.numbers import ON_PUT
from pytracer.record.bootstrap.dynamo import unseen_frame
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.config import records_values
from pytracer.record.core import Core
from pytracer.record.torch import exceptions

MOST_ERRORS = 8  # of one process
_HOOK = "_on_queue_feeder_error"  # CPython 3.10 to 3.14, queues.py
_LEVELS, _LOOKED_AT, _KEY_CHARACTERS = 4, 256, 40
_LOCAL = "<locals>"

_patches = Patches()
_errors = 0


def install(box: Core) -> None:
    """Wraps what such a thread calls when an object could not be sent."""
    queues = sys.modules["multiprocessing.queues"]
    original = getattr(queues.Queue, _HOOK, None)
    if original is None:
        return

    @functools.wraps(original)
    def record_and_go_on(error: BaseException, thing: object) -> object:
        _write(box, error, thing)
        return original(error, thing)

    unseen_frame(record_and_go_on)
    _patches.replace(queues.Queue, _HOOK, staticmethod(record_and_go_on))
    log = getattr(queues, "info", None)
    if log is None:
        return

    @functools.wraps(log)
    def record_and_log(message: object, *args: object) -> object:
        if args and isinstance(args[0], Exception):  # the process is ending: not even a traceback is printed
            _write(box, args[0], sys._getframe(1).f_locals.get("obj"))
        return log(message, *args)

    _patches.replace(queues, "info", record_and_log)


def uninstall() -> None:
    """Restores what is still ours."""
    _patches.put_back()


def _write(box: Core, error: BaseException, thing: object) -> None:
    global _errors
    if _errors >= MOST_ERRORS or not box.recording or not isinstance(error, Exception):
        return
    _errors += 1
    try:
        seen = unsendable(thing)
    except Exception:  # an object that is not what its type says
        seen = []
    exceptions.write(box, error, error.__traceback__, on_its_way=ON_PUT, seen=seen)


def unsendable(thing: object) -> list[dict[str, str]]:
    """As the variable `['x']`, the first part of an object that no queue sends; in plain containers only."""
    if not records_values():
        return []
    left = _LOOKED_AT
    for path, value in _parts(thing, "", 0):
        left -= 1
        words = _refused(value) if left > 0 else None
        if words is not None:
            return [{"name": path or "it", "value": words}]
        if left <= 0:
            break
    return []


def _parts(thing: object, path: str, level: int) -> Iterator[tuple[str, object]]:
    yield path, thing
    if level == _LEVELS:
        return
    if type(thing) in (list, tuple):
        for place, value in enumerate(thing):  # type: ignore[arg-type, var-annotated]
            yield from _parts(value, f"{path}[{place}]", level + 1)
    elif type(thing) is dict:
        for key, value in thing.items():
            if type(key) in (str, int):
                yield from _parts(value, f"{path}[{key!r}]" if len(str(key)) <= _KEY_CHARACTERS else path, level + 1)


def _refused(value: Any) -> str | None:
    kind, torch = type(value), sys.modules.get("torch")
    if torch is not None and kind is torch.Tensor:
        return "a tensor with a graph" if value.requires_grad and not value.is_leaf else None
    if kind in (FunctionType, LambdaType):
        name: str = value.__qualname__
        return ("a lambda" if name.endswith("<lambda>") else "a local function") if _LOCAL in name else _lambda(name)
    if kind is GeneratorType:
        return "a generator"
    if kind is ModuleType:
        return "a Python module"
    return None


def _lambda(name: str) -> str | None:
    return "a lambda" if name == "<lambda>" else None
