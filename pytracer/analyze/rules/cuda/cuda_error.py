"""cuda-error: a CUDA error ended the process.

What: an exception carries a CUDA error: illegal memory access (700), device-side assert (710), launch failure and the
like. Most of them are sticky: once the device has met one, every later call of the process fails with it.

Why it happens: a kernel read or wrote where it may not, or an assertion in a kernel failed, e.g. an index out of
range. Kernels run later than they are launched: the call that raised is the first one that asked the device, not the
one that launched the kernel. A CUDA graph that is replayed after its input was freed, and a tensor that is used on a
stream after its memory went to another one, end in this way, too; so does a tensor whose storage was resized to 0, as
FSDP frees parameters.

If the capture of a CUDA graph broke, the call is told that was refused first: it is in the exception that was being
handled, or another thread raised it.

Under `pytracer run`, Xid lines of the kernel's log about the process are reported, with the address and what was there,
if the log can be read. Some of them mean that the device is broken, not the program. With `--gpu-core`, the device's
core dump has the kernel, the place in it, and which tensors its parameters and registers point to; the address that a
thread accessed is computed from the instruction and the registers, where nothing can have changed them since.

What to do: run again with `pytracer run --gpu-core`, or with CUDA_LAUNCH_BLOCKING=1: then the call that raises is the
one that launched. compute-sanitizer names the kernel, the thread and the address.

How it can be wrong: without a core dump the failed kernel is unknown; what was launched before the call is a suspicion
only. If one kernel among them is not torch's, and the files of the program bring no other native code, an illegal or
misaligned access is told as probably that one's; a package may launch others. Where the accessed address cannot be
computed, a tensor that a register of the core dump points to need not be the one. Of several threads with an address
outside of torch's memory, the first is told; others own memory, too. Of an Xid line without a pid, or in a container,
only the time matches. Where the values of an argument that a kernel checked were set is read from the program's source;
where another call passed it, too, that isn't told.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import count_words, hex_addr, time_words
from pytracer.analyze.evidence.cuda.assertions import assertion_evidence, kernel_assertion
from pytracer.analyze.evidence.cuda.captures import BrokenCapture, broken_capture
from pytracer.analyze.evidence.cuda.changed_indices import changed_index
from pytracer.analyze.evidence.cuda.checked_arguments import checked_argument, checked_evidence, checks_words
from pytracer.analyze.evidence.cuda.compiled_callers import compiled_caller
from pytracer.analyze.evidence.cuda.cuda_errors import CudaError, cuda_error
from pytracer.analyze.evidence.cuda.cuda_graphs import broken_graphs, graph_words
from pytracer.analyze.evidence.cuda.cuda_streams import failed_stream, stream_words
from pytracer.analyze.evidence.cuda.error_advice import KnownOfError, error_advice
from pytracer.analyze.evidence.cuda.freed_operands import freed_evidence, freed_operand, freed_words, led_by
from pytracer.analyze.evidence.cuda.given import given_evidence
from pytracer.analyze.evidence.cuda.gone_memory import gone_memory
from pytracer.analyze.evidence.cuda.gpu_core import core_error, core_evidence, failed_launch
from pytracer.analyze.evidence.cuda.launches import Launch, Suspects, launch_evidence, suspects
from pytracer.analyze.evidence.cuda.own_kernels import own_evidence, own_kernel
from pytracer.analyze.evidence.cuda.probable_lines import Probable, probable_launch
from pytracer.analyze.evidence.cuda.xid import Xid, distinct_xids, stopped_itself, xid_evidence, xids_of
from pytracer.analyze.evidence.phrases import collective_evidence
from pytracer.analyze.naming import introduction, place_words
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, merge_alike, not_found
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence, PythonFrame

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
        broken = broken_capture(view)
        if broken is not None:
            return _of_capture(judgement.views, broken)
        xids, frame = distinct_xids(xids_of(job, view)), view.python_frame
        failed = failed_launch(job, view)
        kernel = failed.kernel if failed is not None else None
        blocking = view.process.snapshot.environment.get(_BLOCKING) == "1"
        by = failed.words if failed is not None else ""
        late = error.sticky and not blocking
        given = failed.storages if failed is not None else ()
        assertion = kernel_assertion(view) if error.sticky else None
        without = freed_operand(view, error, failed) if late else None
        suspected = _suspected(view, error, kernel, given, xids, without) if late else Suspects()
        alone = late and failed is None and without is None and suspected.culprit is None
        own = own_kernel(view, error, len(suspected.launches)) if alone and assertion is None else None
        probable = probable_launch(view, suspected, assertion, own) if alone else None
        suspected = led_by(suspected, probable.launch if probable is not None else None)
        checked = checked_argument(view, assertion, suspected, blocking)
        changed = changed_index(view, assertion, suspected.culprit)
        caller = compiled_caller(view, suspected.culprit)
        told = f": {assertion.words}" if assertion is not None else ""
        named = kernel is not None or (assertion is not None and assertion.kernel is not None)
        if probable is not None:
            where = _probably_words(view, probable)
        else:
            checks = caller.words if caller is not None else checks_words(checked)
            where = _where(view, suspected.culprit, blocking, named, bool(told) or "," in by, checks)
        gone = gone_memory(view, error, kernel, xids)
        where += f"; {gone.words}" if gone is not None else freed_words(without)
        where += changed.words if changed is not None and gone is None else ""
        known = KnownOfError(error, blocking, xids, failed, assertion, checked, without, gone, suspected, own, changed)
        return Description(
            f"{introduction(judgement.views)} ended with a CUDA error: {error.text}{by}{told}{where}.",
            [
                assertion_evidence(assertion),
                launch_evidence(suspected),
                own_evidence(own, error),
                checked_evidence(checked),
                *given_evidence(view, suspected, probable.launch if probable is not None else None),
                freed_evidence(view, without),
                None
                if not late or suspected.culprit is not None or frame is None  # NCCL's watchdog may be the first
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
            error_advice(view, known) + (caller.advice if caller is not None else ""),
            _missing(job, known),
            line=caller.frame if caller is not None else _line(suspected, probable, frame if blocking else None),
        )


def _of_capture(views: Sequence[ProcessView], broken: BrokenCapture) -> Description:
    """The error that came first says why, not the one that ended the process."""
    return Description(
        f"{introduction(views)} ended with a CUDA error: {broken.subject}.",
        [broken.evidence, collective_evidence(views)],
        broken.advice,
    )


def _where(view: ProcessView, culprit: Launch | None, blocking: bool, named: bool, clause: bool, checks: str) -> str:
    """`, launched by aten::index at train.py:12, met first at train.py:20`.

    `named`: the kernel is told before it, `clause`: another clause.
    """
    frame = view.python_frame
    if culprit is not None and culprit.python is not None:
        words = culprit.words if named else culprit.kernel_words
        return f", launched by {words}{checks}" + (f", met first at {place_words(frame)}" if frame else "")
    if view.exception is not None and view.exception.language == "C++":
        return ", which a thread of the communication backend met first"
    if frame is None:
        return ""
    told = "which launched the kernel that failed" if blocking else "the first call that met it"
    return f"{',' if clause else ''} at {place_words(frame)}, {told}"


def _probably_words(view: ProcessView, probable: Probable) -> str:
    """The same of a line that is not certain, with the reason."""
    met, line = view.python_frame, probable.launch.python
    same = met is None or (line is not None and (met.file, met.line) == (line.file, line.line))
    told = f", met first at {place_words(met)}" if met is not None and not same else ""
    return f", probably launched by {probable.launch.words} ({probable.reason}){told}"


def _line(suspected: Suspects, probable: Probable | None, raised: PythonFrame | None) -> PythonFrame | None:
    launch = suspected.culprit or (probable.launch if probable is not None else None)
    return launch.python if launch is not None else raised


def _suspected(
    view: ProcessView,
    error: CudaError,
    kernel: str | None,
    given: Sequence[int],
    xids: Sequence[Xid],
    without: Launch | None,
) -> Suspects:
    stopped = error.is_of_library and stopped_itself(xids)
    return led_by(suspects(view, error, kernel, given, stopped=stopped), without)


def _missing(job: JobView, known: KnownOfError) -> list[str]:
    error = known.error
    if known.blocking or known.kernel or known.assertion or not error.sticky:
        return []
    if error.is_assertion:  # of these, drivers write no whole core dump
        return ["which kernel failed: the line that it printed, if there is one, names it"]
    if any(launcher.gpu_core is not None for launcher in job.job.launchers):
        return ["which kernel failed: there is no whole core dump of the device, which the driver was asked for"]
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
