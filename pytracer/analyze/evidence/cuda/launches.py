"""What put work on a device before it failed: operators and kernels with their lines, as level ops records them.

A kernel fails later than it is launched, and every later call returns the error. Which of the launches it was is
inferred: from the core dump of the device, whose kernel has a name and parameters that point to memory; from which
operators check anything in their kernels, if an assertion failed; and from which of them are known to be over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import structs

from pytracer._library_files import is_library_file
from pytracer._text import list_words
from pytracer.analyze.evidence.cuda.assertions import KernelAssertion, kernel_assertion
from pytracer.analyze.evidence.cuda.cuda_errors import CudaError
from pytracer.analyze.naming import kernel_words, place_words
from pytracer.analyze.view import ProcessView
from pytracer.blackbox.numbers import StreamAction
from pytracer.decode.types import storages as decoded
from pytracer.decode.types.records import Node, Stream
from pytracer.decode.types.snapshot import Event
from pytracer.report.job import Evidence, PythonFrame

_SHOWN = 4
_AUTOGRAD = "autograd::"
_ATEN = "at::native"
_CUSTOM = ("triton::", "torch.cuda::", "cupy::")  # record/cuda/launches.py
_WAITING = ("/torch/nn/parallel/", "/torch/distributed/")
_VALUE = "aten::_local_scalar_dense"  # of item(): the host has the value, so the stream's work before it is over
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


class Launch(msgspec.Struct, frozen=True):
    """An operator or a kernel that was launched.

    `python` is the program's line that called it or, in a backward pass, the operator whose `node` runs. `storages`:
    addresses of the device memory among its first inputs.
    """

    name: str
    python: PythonFrame | None
    node: str | None
    storages: tuple[int, ...]
    device: int
    stream: int
    mono_ns: int
    inside: bool = False
    """Whether a part of torch called it that makes its streams wait in C++, such as DistributedDataParallel."""
    mangled: str | None = None
    within: PythonFrame | None = None
    """The innermost frame, of a library, if it isn't the program's line."""
    backward: PythonFrame | None = None
    """In a backward pass, the program's line that ran: of its own autograd.Function."""
    host_storages: tuple[int, ...] = ()
    """Of the CPU; `first_on_host`: the first operand, which an in-place operator writes, is one of them."""
    first_on_host: bool = False
    asynchronous: bool = False
    """A copy between a device and pinned memory for which the host does not wait."""
    without_memory: int = 0
    """Operands on a device that have elements, but whose storage has been resized to 0."""

    @property
    def kernel(self) -> str | None:
        """The last one that it launched, of those that torch launches itself: `vectorized_gather_kernel<16, long>`."""
        return kernel_words(self.mangled) if self.mangled else None

    @property
    def operator(self) -> str:
        """Without the name space."""
        return self.name.rpartition("::")[2]

    @property
    def has_kernel(self) -> bool:
        """False for views, and for what only calls other operators."""
        return not self.name.startswith(_AUTOGRAD) and self.operator not in _NO_KERNEL

    @property
    def is_on_host(self) -> bool:
        """Whether all of its operands are on the CPU, where it is over at once."""
        on_device = self.storages or self.without_memory or self.mangled is not None
        return bool(self.host_storages) and not on_device

    def completes(self, other: Launch) -> bool:
        """Whether its kernel is one of the operator `other`, which called this view or the like before it launched."""
        here, there = (self.python, self.node, self.stream), (other.python, other.node, other.stream)
        return self.mangled is not None and not self.has_kernel and here == there

    @property
    def may_assert(self) -> bool:
        """Whether its kernels check indices or values."""
        return self.operator.startswith(_ASSERTING)

    @property
    def is_custom(self) -> bool:
        """A kernel of the program or of a compiler, which checks less than those of torch."""
        return self.name.startswith(_CUSTOM)

    @property
    def waits(self) -> bool:
        """Whether the host waits for its stream; of a tensor on the CPU it waits for nothing."""
        return self.name == _VALUE and bool(self.storages)

    @property
    def words(self) -> str:
        """`aten::index at train.py:12 in step`, `aten::mm in the backward of train.py:12 in step`."""
        if self.backward is not None:
            of = f", in the backward pass of {place_words(self.python)}" if self.python else ""
            return f"{self.name} at {place_words(self.backward)}{of}"
        if self.node is not None:
            return f"{self.name} in {self.node}" + (f", of {place_words(self.python)}" if self.python else "")
        return f"{self.name} at {place_words(self.python)}" if self.python else self.name

    @property
    def kernel_words(self) -> str:
        """The same with its kernel: `aten::index at train.py:12 in step (kernel index_elementwise_kernel)`."""
        return f"{self.words} (kernel {self.kernel})" if self.kernel else self.words


class Pending(msgspec.Struct, frozen=True):
    """Launches that are not known to be over, oldest first. `waited`: streams whose earlier work is over."""

    launches: tuple[Launch, ...]
    waited: frozenset[int]
    overwritten: bool

    def is_complete(self, launch: Launch) -> bool:
        """Whether all that may still run on its stream was recorded: a ring has the last few hundred records only."""
        return not self.overwritten or launch.stream in self.waited


class Suspects(msgspec.Struct, frozen=True):
    """What may have launched the work that failed: one of each line, newest first. `why`: how they were found."""

    launches: tuple[Launch, ...] = ()
    why: str = ""
    sure: bool = False
    stopped: bool = False
    """Whether it is inferred that a kernel ended itself."""

    @property
    def culprit(self) -> Launch | None:
        """The one that it was."""
        return self.launches[0] if self.sure and len(self.launches) == 1 else None


def pending_launches(view: ProcessView) -> Pending:
    """Those of a process when it ended; none below level ops."""
    waiting: dict[int, int] = {}  # thread -> stream that it waits for
    waited: set[int] = set()
    pending: list[Launch] = []
    until = view.process.exception_mono_ns
    for event, launch in with_launches(view.process.snapshot.events):
        if until is not None and event.mono_ns > until:
            break
        over = {waiting.pop(event.tid)} if event.tid in waiting else set()
        if isinstance(event.data, Stream) and event.data.action == StreamAction.HOST_WAITED_FOR_DEVICE:
            over |= {item.stream for item in pending}
        elif isinstance(event.data, Stream) and event.data.action == StreamAction.HOST_WAITED and not event.data.event:
            over.add(event.data.stream)
        if over:
            waited |= over
            pending = [item for item in pending if item.stream not in over]
        if launch is not None and launch.waits:
            waiting[event.tid] = launch.stream
        elif launch is not None and launch.has_kernel and not launch.is_on_host:
            pending.append(launch)
        elif launch is not None and pending and launch.completes(pending[-1]):
            pending[-1] = structs.replace(pending[-1], mangled=launch.mangled)
    overwritten = view.process.snapshot.counts.get("overwritten_records", 0) > 0
    return Pending(tuple(pending), frozenset(waited), overwritten)


def suspects(
    view: ProcessView, error: CudaError, kernel: str | None, bases: Iterable[int], *, stopped: bool = False
) -> Suspects:
    """What may have launched the work that failed.

    Args:
        view: the process.
        error: CUDA's words.
        kernel: of the device's core dump, if there is one.
        bases: storages of the device memory that its parameters point to.
        stopped: a kernel stopped itself, as a failed assertion does.
    """
    pending = pending_launches(view)
    checking = [item for item in pending.launches if item.may_assert]
    assertion = kernel_assertion(view) if error.sticky else None
    inferred = False
    if assertion is not None:
        found = _of_assertion(pending.launches, assertion)
        why = "its kernels have that assertion, and it was not known to be over"
    elif kernel is not None:
        found = _of_kernel(pending.launches, kernel, frozenset(bases))
        why = "it has the kernel's name, or the memory that its parameters point to, and was not known to be over"
    elif error.is_assertion or (stopped and checking):
        inferred = not error.is_assertion
        found, why = checking, "its kernels check indices or values, and it was not known to be over"
    else:
        found, why = list(pending.launches), "it was not known to be over"
    lines = _by_line(found)
    if inferred:
        return Suspects(tuple(lines), f"a kernel ended itself (Xid 43 alone), {why}", stopped=True)
    return Suspects(tuple(lines), why, all(pending.is_complete(item) for item in lines))


def launch_evidence(found: Suspects) -> Evidence | None:
    """Which lines."""
    if not found.launches:
        return None
    words = list_words([item.kernel_words for item in found.launches], _SHOWN, "or")
    verb = "was launched by" if found.culprit is not None else "may have been launched by"
    return Evidence(
        "cuda-launch",
        f"the kernel {verb} {words}: {found.why}",
        python=found.launches[0].python,
        count=len(found.launches),
    )


def _of_assertion(pending: Sequence[Launch], assertion: KernelAssertion) -> list[Launch]:
    """Those whose kernels have it: by what is known of it, by the kernel's name, or by what checks anything."""
    operators = assertion.meaning.operators if assertion.meaning is not None else ()
    if operators:
        of_operators = [item for item in pending if item.operator.startswith(operators)]
        found = [item for item in of_operators if assertion.may_be_of(item.operator, item.kernel)]
        return [item for item in found if assertion.kernel and item.kernel == assertion.kernel] or found
    if assertion.is_python:
        of_python = [item for item in pending if item.is_custom]
        return [item for item in of_python if assertion.kernel == item.operator] or of_python
    named = [item for item in pending if assertion.kernel is not None and _names(item, assertion.kernel)]
    return named or [item for item in pending if item.may_assert]


def _of_kernel(pending: Sequence[Launch], kernel: str, given: frozenset[int]) -> list[Launch]:
    """The likeliest: with the kernel's name if any has it, and with most of its memory."""
    named = [item for item in pending if _names(item, kernel)]
    if not named and _ATEN not in kernel:  # of another library, whose launches no record has
        return []
    best: list[Launch] = []
    most = 0
    for item in named or pending:
        storages = frozenset(item.storages)
        shared = len(storages & given)
        whole = bool(storages) and storages <= given
        score = 2 * shared + whole + bool(named)
        if score > most:
            best, most = [], score
        if score == most and score:
            best.append(item)
    return best


def _names(launch: Launch, kernel: str) -> bool:
    """Whether it launched that kernel; where that is not recorded, whether the kernel carries the operator's name."""
    own = launch.operator.strip("_")
    return launch.kernel == kernel_words(kernel) or (launch.kernel is None and len(own) > 2 and own in kernel)


def _by_line(launches: Sequence[Launch]) -> list[Launch]:
    """One of each line, the newest: of nested operators the innermost."""
    found = {(item.python and (item.python.file, item.python.line), item.node): item for item in launches}
    lines = sorted(found.values(), key=lambda item: item.mono_ns, reverse=True)
    own = [item for item in lines if item.python is not None and not is_library_file(item.python.file)]
    return own or lines


def with_launches(events: Iterable[Event]) -> Iterator[tuple[Event, Launch | None]]:
    """Each record, and what it launched; None for records of other kinds, and for all below level ops."""
    forward: dict[int, PythonFrame] = {}
    for event in events:
        launch = None
        if event.kind == "OP" and isinstance(event.data, Node) and event.data.site is not None:
            launch = _launch(event.mono_ns, event.data, event.data.site, forward)
        yield event, launch


def _launch(mono_ns: int, node: Node, site: decoded.CallSite, forward: dict[int, PythonFrame]) -> Launch:
    """`forward`: lines by sequence numbers of autograd, to which it adds."""
    own, backward = _frame(site.place), None
    frame = own
    if site.node is not None and site.node_sequence_nr is not None:
        frame = forward.get(site.node_sequence_nr)
        backward = own if own is not None and not is_library_file(own.file) and not _is_engine(site) else None
    elif frame is not None and node.sequence_nr is not None:
        forward[node.sequence_nr] = frame
    inside = site.python is not None and any(part in site.python.file for part in _WAITING)
    within = _frame(site.python) if site.caller is not None else None
    return Launch(
        name=node.name,
        python=frame,
        node=site.node,
        storages=node.storages,
        device=node.device or 0,
        stream=node.stream or 0,
        mono_ns=mono_ns,
        inside=inside,
        mangled=node.kernel,
        host_storages=node.host_storages,
        first_on_host=node.first_on_host,
        asynchronous=node.asynchronous,
        without_memory=node.without_memory,
        within=within,
        backward=backward,
    )


def _is_engine(site: decoded.CallSite) -> bool:
    """Whether the innermost frame is the call of backward(), which runs nodes in its own thread."""
    return site.caller is not None and site.python is not None and "/torch/autograd/" in site.python.file


def _frame(place: decoded.PythonFrame | None) -> PythonFrame | None:
    return PythonFrame(function=place.function, file=place.file, line=place.line) if place is not None else None
