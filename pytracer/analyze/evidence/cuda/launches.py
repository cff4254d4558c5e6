"""What put work on a device before it failed: operators and kernels with their lines, as level ops records them.

A kernel fails later than it is launched, and every later call returns the error. Which of the launches it was is
inferred: from the core dump of the device, whose kernel has a name and parameters that point to memory; from which
operators check anything in their kernels, if an assertion failed; and from which of them are known to be over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytracer._library_files import is_library_file
from pytracer._text import list_words
from pytracer.analyze.naming import place_words
from pytracer.analyze.view import ProcessView
from pytracer.blackbox.numbers import StreamAction
from pytracer.decode.types import storages as decoded
from pytracer.decode.types.records import Node, Stream
from pytracer.decode.types.snapshot import Event
from pytracer.report.job import Evidence, PythonFrame

_SHOWN = 4
_AUTOGRAD = "autograd::"
_WAITS = "aten::_local_scalar_dense"  # of item(): the host has the value, so the stream's work before it is over
# Operators that launch nothing: they make views, look at properties, or only call others.
_NO_KERNEL = frozenset({
    "alias", "as_strided", "broadcast_to", "chunk", "contiguous", "detach", "detach_", "empty", "empty_like",
    "empty_permuted", "empty_strided", "expand", "expand_as", "flatten", "is_pinned", "item", "lift_fresh",
    "movedim", "narrow", "numpy_T", "permute", "pin_memory", "record_stream", "requires_grad_", "reshape",
    "reshape_as", "resize_", "resize_as_", "resolve_conj", "resolve_neg", "select", "set_", "slice", "split",
    "split_with_sizes", "squeeze", "squeeze_", "swapaxes", "t", "to", "transpose", "transpose_", "type_as",
    "unbind", "unflatten", "unfold", "unsqueeze", "unsqueeze_", "view", "view_as", "_conj", "_reshape_alias",
    "_unsafe_view",
})  # fmt: skip
# Operators whose kernels check indices or values, and end the device's work by an assertion (ATen/native/cuda of torch
# 2.11), by the beginning of their names.
_ASSERTING = (
    "_assert_async", "binary_cross_entropy", "bincount", "cross_entropy", "embedding", "gather", "index", "max_unpool",
    "multi_margin", "multilabel_margin", "multinomial", "nll_loss", "one_hot", "put", "repeat_interleave", "scatter",
    "take", "_index_put", "_unsafe_index",
)  # fmt: skip


@dataclass(frozen=True)
class Launch:
    """An operator or a kernel that was launched.

    `python` is the program's line that called it or, in a backward pass, the operator whose `node` runs. `storages`:
    addresses of the device memory among its first inputs.
    """

    name: str
    python: PythonFrame | None
    node: str | None
    storages: frozenset[int]
    device: int
    stream: int
    mono_ns: int

    @property
    def operator(self) -> str:
        """Without the name space."""
        return self.name.rpartition("::")[2]

    @property
    def words(self) -> str:
        """`aten::index at train.py:12 in step`, `aten::mm in the backward of train.py:12 in step`."""
        if self.node is not None:
            return f"{self.name} in {self.node}" + (f", of {place_words(self.python)}" if self.python else "")
        return f"{self.name} at {place_words(self.python)}" if self.python else self.name


def pending_launches(view: ProcessView) -> list[Launch]:
    """Those that are not known to be over when the process ended, oldest first; [] below level ops."""
    forward: dict[int, PythonFrame] = {}
    waiting: dict[int, int] = {}  # thread -> stream that it waits for
    pending: list[Launch] = []
    until = view.process.exception_mono_ns
    for event in view.process.snapshot.events:
        if until is not None and event.mono_ns > until:
            break
        if event.tid in waiting:
            over = waiting.pop(event.tid)
            pending = [item for item in pending if item.stream != over]
        if isinstance(event.data, Stream) and event.data.action == StreamAction.HOST_WAITED:
            pending = [item for item in pending if item.stream != event.data.stream]
        if event.kind != "OP" or not isinstance(event.data, Node) or event.data.site is None:
            continue
        launch = _launch(event, event.data, event.data.site, forward)
        if launch.name == _WAITS:
            waiting[event.tid] = launch.stream
        elif _has_kernel(launch):
            pending.append(launch)
    return pending


def launch_of_kernel(view: ProcessView, kernel: str, bases: Iterable[int]) -> list[Launch]:
    """What may have launched a kernel of a core dump, the likeliest: one of each line, newest first; [] if nothing fits.

    `bases`: storages of the device memory that the kernel's parameters point to.
    """
    given, pending = frozenset(bases), pending_launches(view)
    named = [item for item in pending if _names(item, kernel)]
    best: list[Launch] = []
    most = 0
    for item in named or pending:
        shared = len(item.storages & given)
        whole = bool(item.storages) and item.storages <= given
        score = 2 * shared + whole + (1 if named else 0)
        if score > most:
            best, most = [], score
        if score == most and score:
            best.append(item)
    return _by_line(best)


def asserting_launches(view: ProcessView) -> list[Launch]:
    """Those whose kernels check indices or values, one of each line, newest first."""
    return _by_line([item for item in pending_launches(view) if item.operator.startswith(_ASSERTING)])


def probable_launches(
    view: ProcessView, error: str, kernel: str | None, bases: Iterable[int]
) -> tuple[list[Launch], str]:
    """What may have launched the work that failed, and how that was found, a clause.

    `kernel` and `bases`: of the device's core dump, if there is one. `error`: CUDA's words.
    """
    if kernel is not None:
        return launch_of_kernel(view, kernel, bases), (
            "it was not known to be over, and has the kernel's name, or the memory that the kernel's parameters point to"
        )
    if "assert" in error:
        return asserting_launches(view), "its kernel checks indices or values, and it was not known to be over"
    return _by_line(pending_launches(view)), "it was not known to be over"


def launch_evidence(launches: Sequence[Launch], why: str) -> Evidence | None:
    """`launches` as _by_line() sorts them; `why`: how they were found, a clause."""
    if not launches:
        return None
    words = list_words([item.words for item in launches], _SHOWN, "or")
    verb = "was launched by" if len(launches) == 1 else "may have been launched by"
    return Evidence("cuda-launch", f"the kernel {verb} {words}: {why}", python=launches[0].python, count=len(launches))


def _names(launch: Launch, kernel: str) -> bool:
    """Whether a kernel carries the operator's name: scale_rows, or nll_loss_forward_reduce_cuda_kernel_2d."""
    own = launch.operator.strip("_")
    return len(own) > 2 and own in kernel


def _by_line(launches: Sequence[Launch]) -> list[Launch]:
    """One of each line, the newest: of nested operators the innermost."""
    found = {(item.python and (item.python.file, item.python.line), item.node): item for item in launches}
    lines = sorted(found.values(), key=lambda item: item.mono_ns, reverse=True)
    own = [item for item in lines if item.python is not None and not is_library_file(item.python.file)]
    return own or lines


def _launch(event: Event, node: Node, site: decoded.CallSite, forward: dict[int, PythonFrame]) -> Launch:
    own = site.caller or site.python
    frame = PythonFrame(function=own.function, file=own.file, line=own.line) if own is not None else None
    if site.node is not None and site.node_sequence_nr is not None:
        frame = forward.get(site.node_sequence_nr)
    elif frame is not None and node.sequence_nr is not None:
        forward[node.sequence_nr] = frame
    return Launch(
        node.name, frame, site.node, frozenset(node.storages), node.device or 0, node.stream or 0, event.mono_ns
    )


def _has_kernel(launch: Launch) -> bool:
    return not launch.name.startswith(_AUTOGRAD) and launch.operator not in _NO_KERNEL
