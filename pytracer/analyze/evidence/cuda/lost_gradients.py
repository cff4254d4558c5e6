"""Gradients in the memory of a CUDA graph that zero_grad() took off their parameters, before the graph was replayed.

The replay writes to the memory of the capture, which no parameter has any more: optimizer.step() finds no gradients.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import count_words
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import place_words, short_file
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.devices import DEFAULT_POOL, CudaGraph
from pytracer.decode.types.storages import Storage
from pytracer.report.job import PythonFrame

_ZERO_GRADS = ("Optimizer.zero_grad", "Module.zero_grad")


class LostGradients(msgspec.Struct, frozen=True):
    """`count`: of gradients, `at`: the line with zero_grad(). `captured`, `replayed`: lines, where known."""

    count: int
    at: PythonFrame
    captured: PythonFrame | None
    replayed: str | None

    @property
    def words(self) -> str:
        """After the headline's exception."""
        captured = f" that was captured at {place_words(self.captured)}" if self.captured is not None else ""
        replayed = f", replayed at {self.replayed}," if self.replayed is not None else ""
        return (
            f"zero_grad() at {place_words(self.at)} took {count_words(self.count, 'gradient')} off the parameters, in "
            f"memory of the CUDA graph{captured}: the graph{replayed} still writes there, where no parameter has its "
            "gradient"
        )

    @property
    def advice(self) -> str:
        """What to call in its place."""
        return (
            f"If the check is about what was trained: leave out the zero_grad() at {short_file(self.at.file or '')}:"
            f"{self.at.line}, since a replay overwrites the gradients that its capture made, or call "
            "zero_grad(set_to_none=False); else p.grad is None in step(). "
        )


def lost_gradients(view: ProcessView) -> LostGradients | None:
    """Of the first graph that was replayed, and after which the optimizer made steps, without its gradients."""
    blocks = [item for item in view.process.snapshot.storages.on_devices() if _was_zeroed(item)]
    for graph in view.process.snapshot.cuda_graphs:
        own = [item for item in blocks if item.pool == graph.pool != DEFAULT_POOL and _is_missed(view, graph, item)]
        site = own[0].freed_by if own else None
        caller = site.caller if site is not None else None
        if caller is not None:
            captured = graph.captured_by.place
            frame = python_frame(captured) if captured is not None else None
            return LostGradients(len(own), python_frame(caller), frame, _replay(view, frame))
    return None


def _was_zeroed(item: Storage) -> bool:
    site = item.freed_by
    return site is not None and site.python is not None and site.python.function in _ZERO_GRADS


def _is_missed(view: ProcessView, graph: CudaGraph, item: Storage) -> bool:
    """Whether it was freed after the capture and before a replay, and a step of the optimizer came later."""
    freed = item.freed
    if freed is None or freed.mono_ns is None or graph.captured_ns is None or graph.replayed_ns is None:
        return False
    stepped = view.step is not None and view.step > (freed.step or 0)
    return stepped and graph.captured_ns <= freed.mono_ns < graph.replayed_ns


def _replay(view: ProcessView, frame: PythonFrame | None) -> str | None:
    """The only line of the file that replays anything: `train.py:49`."""
    tree = syntax_tree(view.process.snapshot, frame)
    calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call)] if tree is not None else []
    lines = {item.lineno for item in calls if called_name(item) == "replay"}
    return f"{short_file(frame.file or '')}:{lines.pop()}" if frame is not None and len(lines) == 1 else None
