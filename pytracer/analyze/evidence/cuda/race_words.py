"""Words and advice for two uses of memory without a wait between them."""

from __future__ import annotations

from pytracer._text import size_words
from pytracer.analyze.address_space.device_memory import made_words
from pytracer.analyze.evidence.cuda.cuda_streams import name_of_stream
from pytracer.analyze.evidence.cuda.launches import Launch
from pytracer.analyze.evidence.cuda.stream_races import Race, times_allocated
from pytracer.analyze.naming import place_words
from pytracer.analyze.view import ProcessView


def at_words(launch: Launch) -> str:
    """`train.py:12 in step`."""
    return place_words(launch.python) if launch.python is not None else "an unrecorded place"


def race_words(race: Race) -> str:
    """`used memory on stream 0x77 of cuda:0 at train.py:30 in step that ...`: what the process did."""
    later, earlier = at_words(race.later), at_words(race.earlier)
    if race.by_host:
        verb, doing = "wrote" if race.later_writes else "read", "writing" if race.writes else "reading"
        return (
            f"{verb} pinned memory at {later} while the non_blocking copy at {earlier} may still have been {doing} it"
        )
    here, there = (name_of_stream(launch.device, launch.stream) for launch in (race.later, race.earlier))
    did, what = "written" if race.writes else "read", "pinned memory" if race.on_host else "memory"
    return f"used {what} on {here} at {later} that {there} may still have {did}, at {earlier}"


def race_advice(view: ProcessView, race: Race) -> str:
    """What to do in the program."""
    later, earlier = at_words(race.later), at_words(race.earlier)
    if race.by_host and race.writes and not race.later_writes:
        return (
            f"Before {later}, let the host wait for the copy at {earlier}: record an event after the copy and call its "
            "synchronize(), or copy with non_blocking=False."
        )
    if race.by_host:
        return (
            f"After the copy at {earlier}, record an event, and call its synchronize() before {later}; or use one "
            "pinned buffer for each copy that may be on its way."
        )
    if times_allocated(view, race) > 1:
        return (
            f"Call record_stream(torch.cuda.current_stream()) on the tensor that {earlier} uses, before it "
            "is freed: its memory is then not used again until that stream has done with it."
        )
    return (
        f"Before {later}, let its stream wait for the other one: "
        "torch.cuda.current_stream().wait_stream(other), or an event."
    )


def pinned_words(view: ProcessView, race: Race) -> str | None:
    """`pinned memory of 4.0 MiB, allocated at train.py:12`; None where no storage is known."""
    lives = view.process.snapshot.storages.at(race.addr)
    live = [item for item in lives if item.state == "live"]
    newest = max(live or lives, key=lambda item: item.order, default=None)
    return f"pinned memory of {size_words(newest.nbytes)}{made_words(newest)}" if newest is not None else None
