"""missing-stream-wait: memory was used on one CUDA stream while another may still have written it, or read it.

What: two operators used the same device memory on two streams, one of them writes it, and no recorded wait is between
them; or the host wrote or read pinned memory, by an operator on the CPU, while a `non_blocking` copy from it or to it
may still have been on its way. Records of level ops only; accompanies what ended the process.

Why it happens: work on a side stream (a prefetch, a copy, an overlapped update) is used on the default stream without
`torch.cuda.current_stream().wait_stream(side)`, or a side stream begins without waiting for what it reads. The values
are then those of before, of after, or some of each: a wrong result, NaN, or an index that leaves its tensor. A
`non_blocking` copy of pinned memory runs when its stream reaches it, perhaps long after the call has returned.

What to do: let the stream that uses the memory wait for the one that writes it, by `wait_stream()` or an event; and
call `tensor.record_stream()` where memory of one stream is freed while another uses it. Let the host wait for the copy
before it touches the pinned memory: record an event after the copy, and call its `synchronize()`.

How it can be wrong: waits inside of torch's C++, of other libraries and of `cudaStreamSynchronize()` are not recorded.
An in-place operator counts as writing its first tensor; a result counts as written by the line that allocated it, where
nothing has waited for any launch of that line. What NumPy or other code writes to pinned memory is not recorded, and of
a thread there are its last 256 records only.
"""

from __future__ import annotations

from pytracer._text import hex_addr
from pytracer.analyze.address_space.device_memory import made_words
from pytracer.analyze.evidence.cuda.cuda_streams import name_of_stream
from pytracer.analyze.evidence.cuda.race_words import at_words, pinned_words, race_advice, race_words
from pytracer.analyze.evidence.cuda.stream_races import Race, stream_races, times_allocated
from pytracer.analyze.naming import introduction
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence

_MOST = 3  # of one process


class MissingStreamWait:
    """Fires beside a death for pairs of lines of the program."""

    id = "missing-stream-wait"
    needs = ("STREAM",)

    def check(self, job: JobView) -> tuple[Judgement[Race], ...] | NoFinding:
        """One judgement for each pair of lines."""
        judgements = tuple(
            Judgement("misuse", "possible", (view,), race, accompanies=True)
            for view in job.suspects
            for race in stream_races(view)[:_MOST]
        )
        return judgements or not_found("no two CUDA streams used the same memory without a wait")

    def describe(self, job: JobView, judgement: Judgement[Race]) -> Description:
        """See Rule."""
        view, race = judgement.views[0], judgement.found
        return Description(
            f"{introduction(judgement.views)} {race_words(race)}: no wait between them was recorded.",
            [
                _use(race, "then"),
                _use(race, "before"),
                _memory(view, race),
                _reuse(view, race),
            ],
            race_advice(view, race),
        )


def _use(race: Race, when: str) -> Evidence:
    launch = race.later if when == "then" else race.earlier
    on = (
        "by the host" if launch is race.later and race.by_host else f"on {name_of_stream(launch.device, launch.stream)}"
    )
    return Evidence(
        "cuda-stream",
        f"{when}: {launch.words}, {on}",
        device=f"cuda:{launch.device}",
        stream=hex_addr(launch.stream),
        python=launch.python,
    )


def _reuse(view: ProcessView, race: Race) -> Evidence | None:
    count = times_allocated(view, race)
    if count < 2:
        return None
    words = (
        f"{at_words(race.later)} allocated that memory {count} times: the memory of a tensor that was freed is used "
        "again, and no wait for the other stream's uses of it was recorded"
    )
    return Evidence("device-memory", words, addr=hex_addr(race.addr), count=count)


def _memory(view: ProcessView, race: Race) -> Evidence | None:
    if race.on_host:
        words = pinned_words(view, race)
        return (
            Evidence("storage-lifetime", f"{words} at {hex_addr(race.addr)}", addr=hex_addr(race.addr))
            if words
            else None
        )
    place = view.space.describe(race.addr)
    if place.storage is None:
        return None
    name = place.names[0] if place.names else "the memory"
    return Evidence(
        "device-memory", f"{name} at {hex_addr(race.addr)}{made_words(place.storage)}", addr=hex_addr(race.addr)
    )
