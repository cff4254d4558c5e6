"""Waits between CUDA streams, and of the host for them: one record each, at level "ops".

Python's methods only: torch's own C++ waits elsewhere. No device is queried.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from pytracer.blackbox.numbers import Record, StreamAction
from pytracer.record.bootstrap.dynamo import is_compiling, unseen
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core

if TYPE_CHECKING:
    from pytracer.record.torch_objects import CudaEvent, CudaStream, Waiting

_RECORD = struct.Struct("<IIQQQQ")
_KIND = Record.STREAM
_HOST = (StreamAction.HOST_WAITS, StreamAction.HOST_WAITED)
_patches = Patches()


def install(box: Core) -> None:
    """Wraps the methods of torch.cuda.Stream and torch.cuda.Event that wait."""
    import torch

    def write(
        action: int, stream: CudaStream | None = None, event: CudaEvent | None = None, other: CudaStream | None = None
    ) -> None:
        if action in _HOST and event is not None and not _handle(event):
            return  # nothing was waited for
        stream = stream if stream is not None else torch.cuda.current_stream()
        payload = _RECORD.pack(action, stream.device_index, stream.cuda_stream, _handle(event), _stream(other), 0)
        box.lib.pytracer_record(_KIND, payload, len(payload))

    stream, event = torch.cuda.Stream, torch.cuda.Event
    _after(box, event, "record", lambda self, on=None: write(StreamAction.EVENT_RECORDED, on, self))
    _before(box, event, "wait", lambda self, on=None: write(StreamAction.WAITS_FOR_EVENT, on, self))
    _around(box, event, lambda self, action: write(action, None, self))
    _around(box, stream, lambda self, action: write(action, self))
    _polled(box, event, lambda self: write(StreamAction.HOST_WAITED, None, self))
    _polled(box, stream, lambda self: write(StreamAction.HOST_WAITED, self))
    _after_device(box, lambda: write(StreamAction.HOST_WAITED_FOR_DEVICE))
    _before(box, stream, "wait_event", lambda self, which: write(StreamAction.WAITS_FOR_EVENT, self, which))
    _before(box, stream, "wait_stream", lambda self, other: write(StreamAction.WAITS_FOR_STREAM, self, None, other))


def uninstall() -> None:
    """Restores what is still ours."""
    _patches.put_back()


def _handle(event: CudaEvent | None) -> int:
    """0 for an event that was never recorded: it has no handle yet."""
    return int(event.cuda_event or 0) if event is not None else 0


def _stream(stream: CudaStream | None) -> int:
    return int(stream.cuda_stream) if stream is not None else 0


@unseen
def _guarded(box: Core, note: Callable[..., None], *args: object) -> None:
    if is_compiling():
        return
    try:
        note(*args)
    except Exception:  # e.g. wrong arguments: the original has the better message
        box.lib.pytracer_count_hook_error()


def _before(box: Core, owner: object, name: str, note: Callable[..., None]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def noted(self: object, /, *args: object, **kwargs: object) -> object:
        _guarded(box, note, self, *args, *kwargs.values())
        return original(self, *args, **kwargs)

    _patches.replace(owner, name, noted)


def _after(box: Core, owner: object, name: str, note: Callable[..., None]) -> None:
    """An event has a handle only after it was recorded once."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def noted(self: object, /, *args: object, **kwargs: object) -> object:
        result = original(self, *args, **kwargs)
        _guarded(box, note, self, *args, *kwargs.values())
        return result

    _patches.replace(owner, name, noted)


def _polled(box: Core, owner: object, note: Callable[..., None]) -> None:
    """query(): once it is true, the host need not wait."""
    original = getattr(owner, "query")  # noqa: B009

    @functools.wraps(original)
    def query(self: object) -> object:
        done = original(self)
        if done:
            _guarded(box, note, self)
        return done

    _patches.replace(owner, "query", query)


def _after_device(box: Core, note: Callable[..., None]) -> None:
    """torch.cuda.synchronize(), and that of torch.accelerator."""
    import torch

    for owner in (torch.cuda, getattr(torch, "accelerator", None)):
        original = getattr(owner, "synchronize", None)
        if original is not None:
            _patches.replace(owner, "synchronize", _noted_after(box, original, note))


def _noted_after(box: Core, original: Callable[..., None], note: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def synchronize(*args: object, **kwargs: object) -> None:
        original(*args, **kwargs)
        _guarded(box, note)

    return synchronize


def _around(box: Core, owner: type[Waiting], note: Callable[..., None]) -> None:
    """synchronize(): a wait without a recorded end is where the host waits."""
    original = owner.synchronize

    @functools.wraps(original)
    def synchronize(self: Waiting) -> object:
        _guarded(box, note, self, StreamAction.HOST_WAITS)
        result = original(self)
        _guarded(box, note, self, StreamAction.HOST_WAITED)
        return result

    _patches.replace(owner, "synchronize", synchronize)
