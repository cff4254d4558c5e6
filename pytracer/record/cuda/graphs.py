"""CUDA graphs: captures, replays and resets, recorded in torch.cuda.CUDAGraph's own methods.

The memory that a graph uses and did not allocate - its static inputs, parameters - is collected during the capture by
libpytracer_cuda; the allocator's tracker marks what is freed later. A replay costs one read of a counter.
"""

from __future__ import annotations

import functools
import inspect
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pytracer.blackbox.note_codes import NoteCode
from pytracer.blackbox.numbers import Entry
from pytracer.record import config
from pytracer.record.bootstrap.dynamo import unseen
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core
from pytracer.record.cuda import graph_trees
from pytracer.record.cuda.library import CudaLibrary
from pytracer.record.torch.rendezvous import calling_line

if TYPE_CHECKING:
    from pytracer.record.torch_objects import CudaGraph

_patches = Patches()
_LOOKS, _LINES = 32, 256  # how often it is asked which line replays a broken graph; graphs and lines
_NUMBER = "_pytracer_graph"  # attribute of a graph: its number in the recording


class CudaGraphWarning(UserWarning):
    """A CUDA graph is replayed after memory that it uses was freed."""


def install(box: Core, hooks: CudaLibrary) -> None:
    """Wraps capture_begin, capture_end, replay and reset."""
    from torch.cuda import CUDAGraph

    begin, end, replay, reset = CUDAGraph.capture_begin, CUDAGraph.capture_end, CUDAGraph.replay, CUDAGraph.reset
    replayed, warns = hooks.replayed, config.warns_of_broken_graphs()
    warned: set[int] = set()
    seen: Counter[tuple[object, ...]] = Counter()

    @functools.wraps(begin)
    def capture_begin(self: CudaGraph, /, pool: object = None, *args: object, **kwargs: object) -> object:
        hooks.lock_streams(True)  # until capture_end: querying a CUDA stream could invalidate the capture
        try:
            result = begin(self, pool, *args, **kwargs)
        except BaseException:
            hooks.lock_streams(False)
            raise
        _guarded(box, _begin, box, hooks, self, pool)
        return result

    @functools.wraps(end)
    def capture_end(self: CudaGraph, /, *args: object, **kwargs: object) -> object:
        try:
            result = end(self, *args, **kwargs)
        except BaseException:
            _guarded(box, _end, hooks, self, False)
            raise
        else:
            _guarded(box, _end, hooks, self, True)
        finally:
            hooks.lock_streams(False)
        return result

    @unseen
    def warn(graph: CudaGraph, broken: int) -> None:
        number = graph.__dict__[_NUMBER]
        _guarded(box, _note_line, box, number, seen)
        if warns and number not in warned:
            warned.add(number)
            _warn(number, broken)

    # A replay is a microsecond of the host's: one without arguments avoids packing them.
    if len(inspect.signature(replay).parameters) == 1:

        @functools.wraps(replay)
        def replay_and_count(self: CudaGraph) -> object:
            try:
                broken = replayed(self._pytracer_graph)
            except AttributeError:  # captured before recording started, or reset
                return replay(self)
            if broken:
                warn(self, broken)
            return replay(self)

    else:

        @functools.wraps(replay)
        def replay_and_count(self: CudaGraph, /, *args: object, **kwargs: object) -> object:
            broken = replayed(self.__dict__.get(_NUMBER, 0))
            if broken:
                warn(self, broken)
            return replay(self, *args, **kwargs)

    @functools.wraps(reset)
    def reset_and_note(self: CudaGraph, /, *args: object, **kwargs: object) -> object:
        number = self.__dict__.pop(_NUMBER, None)
        result = reset(self, *args, **kwargs)
        if number is not None:
            _guarded(box, hooks.reset, number)
        return result

    graph_trees.install(box)
    _patches.replace(CUDAGraph, "capture_begin", capture_begin)
    _patches.replace(CUDAGraph, "capture_end", capture_end)
    _patches.replace(CUDAGraph, "replay", replay_and_count)
    _patches.replace(CUDAGraph, "reset", reset_and_note)


def uninstall() -> None:
    """Restores what is still ours."""
    graph_trees.uninstall()
    _patches.put_back()


def _begin(box: Core, hooks: CudaLibrary, graph: CudaGraph, pool: object) -> None:
    given = cast("tuple[int, int] | None", getattr(pool, "id", pool))  # of a MemPool, or the pool of another graph
    first, second = given or (0, 0)
    number = hooks.begin_capture(int(first), int(second))
    if number:
        graph.__dict__[_NUMBER] = number
        name = graph_trees.name_of_capture()
        if name is not None:
            hooks.name(number, box.journal(Entry.NAME, name))
        # A destroyed graph returns its pool like a reset one.
        weakref.finalize(graph, hooks.reset, number).atexit = False


def _end(hooks: CudaLibrary, graph: CudaGraph, captured: bool) -> None:
    number = graph.__dict__.get(_NUMBER)
    if number is None:
        return
    first, second = graph.pool() if captured else (0, 0)
    hooks.end_capture(number, captured, int(first), int(second))


@unseen
def _guarded(box: Core, act: Callable[..., object], *args: object) -> None:
    try:
        act(*args)
    except Exception as error:
        box.lib.pytracer_count_hook_error()
        box.note(NoteCode.CUDA, f"a CUDA graph could not be noted: {type(error).__name__}: {error}")


def _note_line(box: Core, number: int, seen: Counter[tuple[object, ...]]) -> None:
    """The line of the program that replays a broken graph: each once, in the first replays of a graph."""
    seen[(number,)] += 1
    if seen[(number,)] > _LOOKS or len(seen) > _LINES:
        return
    at = calling_line()
    key = (number, *(at or {}).values())
    seen[key] += 1
    if at is not None and seen[key] == 1:
        box.journal(Entry.GRAPH_REPLAY, {"graph": number, **at})


def _warn(number: int, broken: int) -> None:
    what = "an input" if broken == 1 else f"{broken} inputs"
    warnings.warn(
        f"CUDA graph {number} is replayed although {what} of it {'was' if broken == 1 else 'were'} freed since its "
        "capture: it reads or writes memory that may belong to another tensor by now",
        CudaGraphWarning,
        stacklevel=4,
    )
