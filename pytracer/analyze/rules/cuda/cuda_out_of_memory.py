"""cuda-out-of-memory: a device had no room for what was asked for.

What: torch.OutOfMemoryError ended the process, and what the device's memory was used for at that moment was recorded.

Why it happens: the model, its activations or its optimizer state are too large; something that should be gone is kept
(a list of losses with their graphs); memory is there but in pieces; or another process has it.

What to do: where an expression of the failing line makes exactly the requested size, change its shapes or compute it in
parts. Where a list, an attribute or a sum keeps tensors or autograd graphs, do not keep them. Otherwise look at the
places that hold the most. A large difference between what torch has from the driver and what lies in tensors means
fragmentation: PYTORCH_ALLOC_CONF=expandable_segments:True.

How it can be wrong: sizes are those asked for; the allocator rounds up, and what is not allocated through it (NCCL,
cuBLAS, the context) is in no list. That a list keeps the memory is concluded from the number of its items and of live
blocks of one size; the graphs themselves are not followed.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import count_words, size_words, span_words
from pytracer.analyze.evidence.cuda.cuda_errors import out_of_memory
from pytracer.analyze.evidence.cuda.kept_results import KeptResults, kept_results
from pytracer.analyze.evidence.cuda.large_requests import LargeRequest, large_request
from pytracer.analyze.evidence.cuda.memory_limits import (
    DeviceRoom,
    device_room,
    is_own_limit,
    largest_hole,
    limit_setter,
    taken_by_others,
)
from pytracer.analyze.evidence.cuda.shared_devices import ranks_on_device
from pytracer.analyze.naming import introduction, place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.devices import OutOfMemory, OutOfMemoryUser
from pytracer.report.job import Evidence

_SHOWN = 4
_PIECES, _MOST = 16, 0.5  # blocks of one line, and their share
_FRAGMENTED = 0.3  # of what torch has from the driver lies in no tensor

_LOOK = "Look at the places that hold the most: keep less, use a smaller batch, or recompute activations."
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
        view, last = judgement.views[0], judgement.found
        frame = view.python_frame
        at = f" at {place_words(frame)}" if frame else ""
        if last is None:
            return Description(
                f"{introduction(judgement.views)} asked{at}, and the device had no room.",
                [],
                _LOOK,
                ["what the memory was used for: the allocator is not followed"],
            )
        sharing, room = ranks_on_device(job, view, last.device), device_room(view)
        request = large_request(view, last)
        kept = kept_results(view, last) if not _is_too_large(room, last) else None
        why = request.subject if request is not None and (kept is None or request.is_mistake) else None
        why = kept.subject if why is None and kept is not None else why or _pieces(view, last)
        return Description(
            f"{introduction(judgement.views)} asked for {size_words(last.wanted_nbytes)} on cuda:{last.device}{at}, "
            f"{_no_room(room, last)}{f': {why}' if why else ''}.",
            [
                Evidence("device-memory", kept.evidence, device=f"cuda:{last.device}") if kept is not None else None,
                _limit_evidence(view, room, last),
                *_picture(view, last),
                _shared_evidence(last, sharing),
            ],
            _SET_DEVICE if sharing else _advice(view, last, request, kept),
        )


def _is_too_large(room: DeviceRoom, last: OutOfMemory) -> bool:
    """Whether an empty device could not satisfy it, either."""
    most = min((item for item in (room.capacity, room.allowed) if item is not None), default=None)
    return most is not None and last.wanted_nbytes > most


def _no_room(room: DeviceRoom, last: OutOfMemory) -> str:
    if room.capacity is not None and last.wanted_nbytes > room.capacity:
        return f"more than the whole device has ({size_words(room.capacity)})"
    if room.allowed is not None and is_own_limit(room, last):
        return f"beyond its own limit of {size_words(room.allowed)}"
    return "and the device had no room"


def _limit_evidence(view: ProcessView, room: DeviceRoom, last: OutOfMemory) -> Evidence | None:
    place = limit_setter(view) if is_own_limit(room, last) else None
    if place is None:
        return None
    words = f"the limit is set at {place}; the device had {size_words(last.free_nbytes)} left"
    return Evidence("device-memory", words, device=f"cuda:{last.device}", nbytes=room.allowed)


def _shared_evidence(last: OutOfMemory | None, ranks: Sequence[int]) -> Evidence | None:
    if last is None or not ranks:
        return None
    device = f"cuda:{last.device}"
    words = f"{span_words(ranks)} of this host all had memory on {device}"
    return Evidence("device-memory", words, device=device, ranks=list(ranks))


def _picture(view: ProcessView, last: OutOfMemory) -> list[Evidence | None]:
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
            f"{size_words(outside)} of torch's memory lay in no tensor{_holes(view, last)}",
            device=device,
            nbytes=outside,
            state="unused",
        )
        if outside > last.segment_nbytes * _FRAGMENTED
        else None,
        *holders,
    ]


def _pieces(view: ProcessView, last: OutOfMemory) -> str | None:
    """Of memory that torch has, and in which no tensor lies: enough in all, but not in one piece."""
    outside = last.segment_nbytes - last.live_nbytes - last.awaited_nbytes
    hole = largest_hole(view, last)
    if hole is None or hole >= last.wanted_nbytes or outside < last.wanted_nbytes:
        return None
    return f"{size_words(outside)} of torch's memory are in no tensor, but in pieces of at most {size_words(hole)}"


def _holes(view: ProcessView, last: OutOfMemory) -> str:
    hole = largest_hole(view, last)
    small = hole is not None and hole < last.wanted_nbytes
    return f", in pieces of at most {size_words(hole)}" if small and hole is not None else ""


def _sums(last: OutOfMemory) -> str:
    return (
        f"torch had {size_words(last.segment_nbytes)} from the driver in {count_words(last.segment_count, 'segment')}, "
        f"{size_words(last.live_nbytes)} of it in {count_words(last.live_count, 'live block')}; "
        f"the driver had {size_words(last.free_nbytes)} left"
    )


def _user(device: str, user: OutOfMemoryUser) -> Evidence:
    frame = user.site.place
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


def _advice(view: ProcessView, last: OutOfMemory, request: LargeRequest | None, kept: KeptResults | None) -> str:
    room = device_room(view)
    if request is not None and (request.is_mistake or _is_too_large(room, last)):
        beyond = "No memory that could be freed is enough. " if _is_too_large(room, last) else ""
        return f"{beyond}{request.change}"
    if _is_too_large(room, last):
        return f"No memory that could be freed is enough: look at the sizes that {_line(view)} computes with."
    if last.segment_nbytes - last.live_nbytes > last.segment_nbytes * _FRAGMENTED:
        return f"Much of the memory lies in pieces that are too small: {_whole(view, last)}."
    taken = taken_by_others(room, last)
    if taken is not None:
        return taken
    if kept is not None:
        return kept.change
    return request.change if request is not None else _LOOK


def _whole(view: ProcessView, last: OutOfMemory) -> str:
    """Where nearly all that is left was allocated at one line, that line may take its parts from one tensor."""
    expandable = "try PYTORCH_ALLOC_CONF=expandable_segments:True"
    user = last.users[0] if last.users else None
    frame = user.site.place if user is not None else None
    if user is None or frame is None or user.count < _PIECES or user.nbytes < last.live_nbytes * _MOST:
        return expandable
    return f"{expandable}, or take the parts that {place_words(python_frame(frame))} allocates from one large tensor"


def _line(view: ProcessView) -> str:
    frame = view.python_frame
    return f"line {frame.line}" if frame is not None and frame.line is not None else "that line"
