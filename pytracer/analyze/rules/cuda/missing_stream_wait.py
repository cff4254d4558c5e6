"""missing-stream-wait: memory was used on one CUDA stream while another may still have written it, or read it.

What: two operators used the same device memory on two streams, one of them writes it, and no recorded wait is between
them. Records of level ops only; accompanies what ended the process.

Why it happens: work on a side stream (a prefetch, a copy, an overlapped update) is used on the default stream without
`torch.cuda.current_stream().wait_stream(side)`, or a side stream begins without waiting for what it reads. The values
are then those of before, of after, or some of each: a wrong result, NaN, or an index that leaves its tensor.

What to do: let the stream that uses the memory wait for the one that writes it, by `wait_stream()` or an event; and
call `tensor.record_stream()` where memory of one stream is freed while another uses it.

How it can be wrong: waits inside of torch's C++, of other libraries and of `cudaStreamSynchronize()` are not recorded.
An in-place operator counts as writing its first tensor; results that an operator allocates are not followed.
"""

from __future__ import annotations

from pytracer._text import hex_addr
from pytracer.analyze.address_space.device_memory import made_words
from pytracer.analyze.evidence.cuda.cuda_streams import name_of_stream
from pytracer.analyze.evidence.cuda.stream_races import Race, stream_races
from pytracer.analyze.naming import introduction, place_words
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
        did = "written" if race.writes else "read"
        here, there = (name_of_stream(launch.device, launch.stream) for launch in (race.later, race.earlier))
        return Description(
            f"{introduction(judgement.views)} used memory on {here} at {_at(race.later)} that {there} may still have "
            f"{did}, at {_at(race.earlier)}: no wait between them was recorded.",
            [
                _use(race, "then"),
                _use(race, "before"),
                _memory(view, race),
            ],
            f"Before {_at(race.later)}, let its stream wait for the other one: "
            "torch.cuda.current_stream().wait_stream(other), or an event.",
        )


def _at(launch: object) -> str:
    frame = getattr(launch, "python", None)
    return place_words(frame) if frame is not None else "an unrecorded place"


def _use(race: Race, when: str) -> Evidence:
    launch = race.later if when == "then" else race.earlier
    return Evidence(
        "cuda-stream",
        f"{when}: {launch.words}, on {name_of_stream(launch.device, launch.stream)}",
        device=f"cuda:{launch.device}",
        stream=hex_addr(launch.stream),
        python=launch.python,
    )


def _memory(view: ProcessView, race: Race) -> Evidence | None:
    place = view.space.describe(race.addr)
    if place.storage is None:
        return None
    name = place.names[0] if place.names else "the memory"
    return Evidence(
        "device-memory", f"{name} at {hex_addr(race.addr)}{made_words(place.storage)}", addr=hex_addr(race.addr)
    )
