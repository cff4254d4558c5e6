"""cuda-error: a CUDA error ended the process.

What: an exception carries a CUDA error: illegal memory access (700), device-side assert (710), launch failure and the
like. Most of them are sticky: once the device has met one, every later call of the process fails with it.

Why it happens: a kernel read or wrote where it may not, or an assertion in a kernel failed, e.g. an index out of
range. Kernels run later than they are launched: the call that raised is the first one that asked the device, not the
one that launched the kernel. A CUDA graph that is replayed after its input was freed, and a tensor that is used on a
stream after its memory went to another one, end in this way, too.

Under `pytracer run`, Xid lines of the kernel's log about the process are reported, with the address and what was there,
if the log can be read. Some of them mean that the device is broken, not the program. With `--gpu-core`, the device's
core dump has the kernel, the place in it, and which tensors its parameters and registers point to; the address that a
thread accessed is computed from the instruction and the registers, where nothing can have changed them since.

What to do: run again with `pytracer run --gpu-core`, or with CUDA_LAUNCH_BLOCKING=1: then the call that raises is the
one that launched. compute-sanitizer names the kernel, the thread and the address.

How it can be wrong: without a core dump the failed kernel is unknown; what was launched before the call is a
suspicion only. Where the accessed address cannot be computed, a tensor that a register of the core dump points to need
not be the one. Of several threads with an address outside of torch's memory, the first is told; others own memory, too.
Of an Xid line without a pid, or in a container, only the time matches.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import count_words, hex_addr, time_words
from pytracer.analyze.evidence.cuda.cuda_errors import CudaError, cuda_error
from pytracer.analyze.evidence.cuda.cuda_graphs import broken_graphs, graph_words
from pytracer.analyze.evidence.cuda.cuda_streams import failed_stream, stream_words
from pytracer.analyze.evidence.cuda.gpu_core import FailedLaunch, core_error, core_evidence, failed_launch
from pytracer.analyze.evidence.cuda.launches import Launch, Suspects, given_evidence, launch_evidence, suspects
from pytracer.analyze.evidence.cuda.xid import Xid, distinct_xids, xid_evidence, xids_of
from pytracer.analyze.evidence.phrases import collective_evidence
from pytracer.analyze.naming import introduction, place_words
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, merge_alike, not_found
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence

_BLOCKING = "CUDA_LAUNCH_BLOCKING"
_XIDS = 3


class CudaErrorRule:
    """Fires for processes whose last words are a CUDA error."""

    id = "cuda-error"
    needs = ("EXCEPTION",)

    def check(self, job: JobView) -> tuple[Judgement[CudaError], ...] | NoFinding:
        """One judgement for all processes with the same error from the same line."""
        judgements = merge_alike((_judge(job, view) for view in job.suspects), _same_error)
        return judgements or not_found("no process ended with a CUDA error")

    def describe(self, job: JobView, judgement: Judgement[CudaError]) -> Description:
        """See Rule; the first process represents all."""
        view, error = judgement.views[0], judgement.found
        xids, frame = distinct_xids(xids_of(job, view)), view.python_frame
        failed = failed_launch(job, view)
        kernel = failed.kernel if failed is not None else None
        blocking = view.process.snapshot.environment.get(_BLOCKING) == "1"
        by = failed.words if failed is not None else ""
        late = error.sticky and not blocking
        given = failed.storages if failed is not None else ()
        suspected = suspects(view, error.text, kernel, given) if late else Suspects()
        where = _where(view, suspected.culprit, blocking, "," in by)
        return Description(
            f"{introduction(judgement.views)} ended with a CUDA error: {error.text}{by}{where}.",
            [
                launch_evidence(suspected),
                given_evidence(view, suspected),
                None
                if not late or suspected.culprit is not None
                else Evidence(
                    "cuda-launch",
                    "kernels run later than they are launched: that line need not be the one whose kernel failed",
                    python=frame,
                ),
                *core_evidence(job, view, failed),
                *[xid_evidence(view, item) for item in xids[:_XIDS]],
                _worked_on(view),
                _earlier(view),
                _graphs(view),
                collective_evidence(judgement.views),
                _waiting(view),
            ],
            _advice(view, error, blocking, xids, failed),
            _missing(error, blocking, kernel),
        )


def _where(view: ProcessView, culprit: Launch | None, blocking: bool, clause: bool) -> str:
    """`, launched by aten::index at train.py:12, met first at train.py:20`; `clause`: one stands before it."""
    frame = view.python_frame
    if culprit is not None and culprit.python is not None:
        return f", launched by {culprit.words}" + (f", met first at {place_words(frame)}" if frame else "")
    if view.exception is not None and view.exception.language == "C++":
        return ", which a thread of the communication backend met first"
    if frame is None:
        return ""
    told = "which launched the kernel that failed" if blocking else "the first call that met it"
    return f"{',' if clause else ''} at {place_words(frame)}, {told}"


def _missing(error: CudaError, blocking: bool, kernel: str | None) -> list[str]:
    if blocking or kernel or not error.sticky:
        return []
    if "assert" in error.text:  # of these, drivers write no whole core dump
        return ["which kernel failed: the line that it printed names it"]
    return ["which kernel failed: `pytracer run --gpu-core` shows it"]


def _judge(job: JobView, view: ProcessView) -> Judgement[CudaError] | None:
    error = cuda_error(view) or core_error(job, view)
    return Judgement("cuda-error", "certain", (view,), error) if error is not None else None


def _same_error(judgement: Judgement[CudaError]) -> object:
    frame = judgement.views[0].python_frame
    return judgement.found.text, (frame.file, frame.line) if frame else None


def _worked_on(view: ProcessView) -> Evidence | None:
    """A hint: which stream the host was filling last."""
    current = view.current_stream
    if current is None:
        return None
    return Evidence(
        "cuda-stream",
        f"the last recorded work, {current.record}, was put on {stream_words(current)}",
        device=current.device,
        stream=current.stream,
        thread=current.thread,
        text=current.record,
    )


def _earlier(view: ProcessView) -> Evidence | None:
    """When the device was first seen to have failed: the error is older than the exception."""
    failed = failed_stream(view.process.snapshot.cuda_streams)
    raised = view.process.exception_mono_ns or (view.crash.mono_ns if view.crash else None)
    if failed is None or failed.since_ns is None or raised is None or failed.since_ns >= raised:
        return None
    age_ns = raised - failed.since_ns
    return Evidence(
        "cuda-stream",
        f"cuda:{failed.device} was seen to have failed {time_words(age_ns)} before (error {failed.error})",
        device=f"cuda:{failed.device}",
        stream=hex_addr(failed.stream),
        state="failed",
        duration_ns=age_ns,
        value=failed.error,
    )


def _graphs(view: ProcessView) -> Evidence | None:
    broken = broken_graphs(view.process.snapshot.cuda_graphs)
    if not broken:
        return None
    count = count_words(broken[0].broken_replays, "time")
    return Evidence(
        "cuda-graph",
        f"{graph_words(broken[0])}, was replayed {count} after an input was freed",
        cuda_graph=broken[0].number,
        device=f"cuda:{broken[0].device}",
        count=broken[0].broken_replays,
    )


def _waiting(view: ProcessView) -> Evidence | None:
    awaited = [item for item in view.process.snapshot.storages.on_devices() if item.awaited]
    if not awaited:
        return None
    was = "was" if len(awaited) == 1 else "were"
    words = f"{count_words(len(awaited), 'block')} freed by the program {was} still used by other streams"
    return Evidence("device-memory", words, count=len(awaited), nbytes=sum(item.nbytes for item in awaited))


def _advice(
    view: ProcessView, error: CudaError, blocking: bool, xids: Sequence[Xid], failed: FailedLaunch | None
) -> str:
    broken = next((item.meaning for item in xids if item.meaning and item.meaning.kind in ("hardware", "driver")), None)
    if broken is not None:
        return f"Suspect the device before the program: {broken.what}. {broken.step}"
    if broken_graphs(view.process.snapshot.cuda_graphs):
        return "Keep a reference to every tensor that a CUDA graph uses for as long as the graph is replayed."
    kernel, access = (failed.kernel, failed.access) if failed is not None else (None, None)
    if failed is not None and kernel and failed.is_trap and "assert" not in error.text:
        at = f"at {failed.line}" if failed.line else f"of {kernel}"
        return f"Read what an assertion printed, if one did; otherwise look for the condition of `__trap()` {at}."
    if "assert" in error.text:
        return (
            "Read what the kernel's assertion printed; most often an index or a label is out of range. "
            "The same code on the CPU names it."
        )
    if kernel and access and access.misaligned:
        return (
            f"Pass {kernel} addresses that are multiples of {access.nbytes}: it accesses {access.nbytes} bytes at "
            "once. A slice that begins elsewhere, such as x[1:], is not aligned; its .clone() is."
        )
    if kernel and access and access.place.storage is not None and access.place.storage.state == "freed":
        storage = view.storages.of_place(access.place)
        made = storage.allocated.caller or storage.allocated.python if storage and storage.allocated else None
        what = f"the tensor that {place_words(made)} allocates" if made else "the tensor"
        return f"Keep a reference to {what} until {kernel} has run: its memory had been freed."
    if kernel:
        return f"Look at what is passed to {kernel}: shapes, indices, and whether its tensors still lived when it ran."
    if blocking:
        return (
            "Look at the operator of that line: its kernel failed. compute-sanitizer names the thread and the address."
        )
    if error.sticky:
        return (
            "Run again with `pytracer run --level ops --gpu-core`, which names the kernel and the lines that may have "
            "launched it, or with CUDA_LAUNCH_BLOCKING=1: then the line that raises is the one whose kernel failed."
        )
    return "Read CUDA's message: the call of that line was refused."
