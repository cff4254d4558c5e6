"""What to do about a CUDA error, by what is known of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer.analyze.evidence.cuda.assertions import KernelAssertion
from pytracer.analyze.evidence.cuda.changed_indices import ChangedIndex
from pytracer.analyze.evidence.cuda.checked_arguments import CheckedArgument, checked_advice
from pytracer.analyze.evidence.cuda.cuda_errors import CudaError
from pytracer.analyze.evidence.cuda.cuda_graphs import broken_graphs, keep_advice
from pytracer.analyze.evidence.cuda.freed_operands import freed_advice
from pytracer.analyze.evidence.cuda.gone_memory import GoneMemory
from pytracer.analyze.evidence.cuda.gpu_core import FailedLaunch
from pytracer.analyze.evidence.cuda.launches import Launch, Suspects
from pytracer.analyze.evidence.cuda.own_kernels import OwnKernel, own_advice
from pytracer.analyze.evidence.cuda.xid import Xid
from pytracer.analyze.naming import place_words
from pytracer.analyze.view import ProcessView


class KnownOfError(msgspec.Struct, frozen=True):
    """`blocking`: CUDA_LAUNCH_BLOCKING was set. `without`: an operator that was given a tensor without memory."""

    error: CudaError
    blocking: bool
    xids: Sequence[Xid]
    failed: FailedLaunch | None
    assertion: KernelAssertion | None
    checked: CheckedArgument | None
    without: Launch | None
    gone: GoneMemory | None
    suspected: Suspects
    own: OwnKernel | None = None
    changed: ChangedIndex | None = None

    @property
    def kernel(self) -> str | None:
        """The one that failed, by the core dump of the device, or because one launch alone is suspected."""
        if self.failed is not None and self.failed.kernel:
            return self.failed.kernel
        return self.suspected.culprit.kernel if self.suspected.culprit is not None else None


def error_advice(view: ProcessView, known: KnownOfError) -> str:
    """The most telling fact decides."""
    meanings = [item.meaning for item in known.xids if item.meaning]
    broken = next((meaning for meaning in meanings if meaning.kind in ("hardware", "driver")), None)
    if broken is not None:
        return f"Suspect the device before the program: {broken.what}. {broken.step}"
    graphs = broken_graphs(view.process.snapshot.cuda_graphs)
    if graphs:
        return keep_advice(view, graphs[0])
    if known.without is not None:
        return freed_advice(view, known.without)
    if known.changed is not None:
        return known.changed.advice
    if known.assertion is not None:
        return _of_assertion(known.assertion, known.checked)
    if known.failed is not None and known.failed.kernel:
        return _of_kernel(view, known.failed, known.failed.kernel)
    if known.error.is_assertion:
        return (
            "Read what the kernel's assertion printed; most often an index or a label is out of range. "
            "The same code on the CPU names it."
        )
    if known.gone is not None:
        return known.gone.advice
    if known.own is not None:
        return own_advice(view, known.own, known.error, known.xids)
    return _of_line(known)


def _of_assertion(assertion: KernelAssertion, checked: CheckedArgument | None) -> str:
    if checked is not None and assertion.meaning is not None:
        return checked_advice(checked, assertion.meaning.next)
    if assertion.meaning is not None:
        return assertion.meaning.next
    return (
        f"Look at {assertion.place}: what {assertion.kernel or 'the kernel'} is given makes its assertion "
        f"`{assertion.condition}` fail. On the CPU the values can be printed."
    )


def _of_kernel(view: ProcessView, failed: FailedLaunch, kernel: str) -> str:
    access = failed.access
    if failed.is_trap:
        at = f"at {failed.line}" if failed.line else f"of {kernel}"
        return f"Read what an assertion printed, if one did; otherwise look for the condition of `__trap()` {at}."
    if access and access.misaligned:
        return (
            f"Pass {kernel} addresses that are multiples of {access.nbytes}: it accesses {access.nbytes} bytes at "
            "once. A slice that begins elsewhere, such as x[1:], is not aligned; its .clone() is."
        )
    if access and access.place.storage is not None and access.place.storage.state == "freed":
        storage = view.storages.of_place(access.place)
        made = storage.allocated.place if storage and storage.allocated else None
        what = f"the tensor that {place_words(made)} allocates" if made else "the tensor"
        return f"Keep a reference to {what} until {kernel} has run: its memory had been freed."
    return f"Look at what is passed to {kernel}: shapes, indices, and whether its tensors still lived when it ran."


def _of_line(known: KnownOfError) -> str:
    culprit = known.suspected.culprit
    if known.blocking:
        return (
            "Look at the operator of that line: its kernel failed. compute-sanitizer names the thread and the address."
        )
    if culprit is not None and culprit.python is not None:
        return (
            f"Look at what {place_words(culprit.python)} passes to {culprit.name}: shapes, strides, indices, and "
            "whether its tensors still lived. compute-sanitizer names the thread and the address."
        )
    if known.suspected.stopped and known.suspected.launches:
        line = known.suspected.launches[0].python
        where = f" of {place_words(line)}" if line is not None else ""
        return (
            f"Check the indices{where} first: an assertion in a kernel has probably failed, of which the driver "
            "printed nothing. With CUDA_LAUNCH_BLOCKING=1 it is printed, and the line that raises is the one."
        )
    if known.suspected.launches:
        return (
            "Run again with `pytracer run --gpu-core`, which names the kernel, or with CUDA_LAUNCH_BLOCKING=1: then "
            "the line that raises is the one whose kernel failed."
        )
    if known.error.sticky:
        return (
            "Run again with `pytracer run --level ops --gpu-core`, which names the kernel and the lines that may have "
            "launched it, or with CUDA_LAUNCH_BLOCKING=1: then the line that raises is the one whose kernel failed."
        )
    return "Read CUDA's message: the call of that line was refused."
