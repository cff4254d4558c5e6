"""cuda-out-of-memory: a device had no room for what was asked for.

What: torch.OutOfMemoryError ended the process, and what the device's memory was used for at that moment was recorded.

Why it happens: the model, its activations or its optimizer state are too large; something that should be gone is kept
(a list of losses with their graphs); memory is there but in pieces; or another process has it.

What to do: look at the places that hold the most. A large difference between what torch has from the driver and what
lies in tensors means fragmentation: PYTORCH_ALLOC_CONF=expandable_segments:True.

How it can be wrong: sizes are those asked for; the allocator rounds up, and what is not allocated through it (NCCL,
cuBLAS, the context) is in no list.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import count_words, size_words, span_words
from pytracer.analyze.evidence.cuda.cuda_errors import out_of_memory
from pytracer.analyze.naming import introduction, place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.devices import OutOfMemory, OutOfMemoryUser
from pytracer.report.job import Evidence

_SHOWN = 4
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_FRAGMENTED = 0.3  # of what torch has from the driver lies in no tensor

_SET_DEVICE = (
    'Call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before anything uses CUDA: each rank needs a device of '
    "its own; torch.load(map_location=...) must name that one, too."
)


class CudaOutOfMemory:
    """Fires for processes that ended with torch's OutOfMemoryError."""

    id = "cuda-out-of-memory"
    needs = ("EXCEPTION", "DEVICE_OOM")

    def check(self, job: JobView) -> tuple[Judgement[OutOfMemory | None], ...] | NoFinding:
        """One judgement for each process: their memory differs."""
        judgements = tuple(
            Judgement("cuda-error", "certain", (view,), next(reversed(view.process.snapshot.out_of_memory), None))
            for view in job.suspects
            if out_of_memory(view)
        )
        return judgements or not_found("no process ended because a CUDA device was full")

    def describe(self, job: JobView, judgement: Judgement[OutOfMemory | None]) -> Description:
        """See Rule."""
        frame, last = judgement.views[0].python_frame, judgement.found
        sharing = _on_the_device(job, judgement.views[0], last) if last else []
        at = f" at {place_words(frame)}" if frame else ""
        wanted = f" for {size_words(last.wanted_nbytes)} on cuda:{last.device}" if last else ""
        return Description(
            f"{introduction(judgement.views)} asked{wanted}{at}, and the device had no room.",
            [*(_picture(last) if last else ()), _shared_evidence(last, sharing)],
            _SET_DEVICE if sharing else _advice(last),
            [] if last else ["what the memory was used for: the allocator is not followed"],
        )


def _on_the_device(job: JobView, view: ProcessView, last: OutOfMemory) -> list[int]:
    """The ranks of the host with memory on that device, where there are several; they must see the same devices."""
    own = view.process.snapshot
    ranks = [
        item.process.rank
        for item in job.views
        if item.process.role == "rank" and item.process.rank is not None
        and (item.process.snapshot.host, item.process.snapshot.boot_id) == (own.host, own.boot_id)
        and item.process.snapshot.environment.get(_VISIBLE) == own.environment.get(_VISIBLE)
        and any(segment.device == last.device and segment.nbytes for segment in item.process.snapshot.segments)
    ]  # fmt: skip
    return sorted(ranks) if view.process.rank in ranks and len(ranks) > 1 else []


def _shared_evidence(last: OutOfMemory | None, ranks: Sequence[int]) -> Evidence | None:
    if last is None or not ranks:
        return None
    device = f"cuda:{last.device}"
    words = f"{span_words(ranks)} of this host all had memory on {device}"
    return Evidence("device-memory", words, device=device, ranks=list(ranks))


def _picture(last: OutOfMemory) -> list[Evidence | None]:
    outside = last.segment_nbytes - last.live_nbytes - last.awaited_nbytes
    device = f"cuda:{last.device}"
    holders = [_user(device, user) for user in last.users[:_SHOWN]]
    return [
        Evidence("device-memory", _sums(last), device=device, nbytes=last.segment_nbytes, count=last.segment_count),
        Evidence(
            "device-memory",
            f"{size_words(last.awaited_nbytes)} had been freed and were still used by other streams",
            device=device,
            nbytes=last.awaited_nbytes,
            state="freed",
        )
        if last.awaited_nbytes
        else None,
        Evidence(
            "device-memory",
            f"{size_words(outside)} of torch's memory lay in no tensor",
            device=device,
            nbytes=outside,
            state="unused",
        )
        if outside > last.segment_nbytes * _FRAGMENTED
        else None,
        *holders,
    ]


def _sums(last: OutOfMemory) -> str:
    return (
        f"torch had {size_words(last.segment_nbytes)} from the driver in {count_words(last.segment_count, 'segment')}, "
        f"{size_words(last.live_nbytes)} of it in {count_words(last.live_count, 'live block')}; "
        f"the driver had {size_words(last.free_nbytes)} left"
    )


def _user(device: str, user: OutOfMemoryUser) -> Evidence:
    frame = user.site.caller or user.site.python
    place = f"allocated at {place_words(python_frame(frame))}" if frame else "allocated at an unrecorded place"
    node = f" by autograd node {user.site.node}" if user.site.node else ""
    pool = ", in a private pool" if user.private_pool else ""
    return Evidence(
        "allocation",
        f"{size_words(user.nbytes)} in {count_words(user.count, 'block')} {place}{node}{pool}",
        device=device,
        nbytes=user.nbytes,
        count=user.count,
        python=python_frame(frame) if frame else None,
        autograd_node=user.site.node,
    )


def _advice(last: OutOfMemory | None) -> str:
    if last is not None and last.segment_nbytes - last.live_nbytes > last.segment_nbytes * _FRAGMENTED:
        return "Much of the memory lies in pieces that are too small: try PYTORCH_ALLOC_CONF=expandable_segments:True."
    if last is not None and last.segment_nbytes < last.free_nbytes:
        return "Another process has most of the device's memory: see nvidia-smi."
    return "Look at the places that hold the most: keep less, use a smaller batch, or recompute activations."
