"""Jobs of ranks that run collectives, built by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytracer.decode.job.merge import load_job
from pytracer.decode.types.snapshot import Job
from tests.support.scenarios import SCRIPT, TORCH, agent
from tests.support.synth import Box, write_run

Call = Mapping[str, Any]
SUM, MAX = 0, 4
TIME_OUT = "[../gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation to complete"
CLOSED = "[../gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:928"
TOO_LONG = (
    "[enforce fail at ../pair.cc:456] op.preamble.length <= op.nbytes. 668 vs 8. Received data size doesn't match"
)


def call(name: str = "allreduce_", *sizes: int, state: str = "completed", line: int = 40, **more: Any) -> Call:
    """What `Ranks.calls` takes: one collective of float32 unless given otherwise, called at train.py:`line`."""
    shape = list(sizes) or [4]
    nbytes = 4
    for size in shape:
        nbytes *= size
    reduce_op = SUM if name in ("allreduce_", "reduce_") else -1
    return {
        "name": name,
        "sizes": shape,
        "nbytes": nbytes,
        "state": state,
        "reduce_op": reduce_op,
        "line": line,
        **more,
    }


class Ranks:
    """Ranks 0 to `count` - 1 under an agent, members of the default group; times are ms since they were made."""

    def __init__(self, count: int, *, grouped: bool = True) -> None:
        self.boxes = [Box(pid=101 + n, ppid=100, rank=n, world_size=count) for n in range(count)]
        self.groups: list[dict[str, int]] = [{} for _ in self.boxes]
        self.endings: dict[int, dict[str, int]] = {}
        for box in self.boxes:
            box.versions(python="3.11.7", torch="2.13.0+cpu", cuda=None)
        if grouped:
            self.group("0", list(range(count)), "default_pg")

    def group(
        self,
        name: str,
        ranks: Sequence[int],
        about: str = "",
        only: Sequence[int] | None = None,
        line: int | None = None,
    ) -> None:
        """A process group, made on all ranks (or `only` some) at train.py:`line`; members have run something in it."""
        for number, box in enumerate(self.boxes):
            if only is not None and number not in only:
                continue
            if number in ranks:
                box.group(name, ranks, description=about, caller=("setup", SCRIPT, line) if line else None)
                place = list(ranks).index(number)
                self.groups[number][name] = box.group_seen(name, size=len(ranks), rank=place, about=about)
            else:
                box._json(37, {"name": None, "description": None, "backend": None, "ranks": list(ranks)})

    def calls(self, rank: int, *calls: Call, group: str = "0", first: int = 1) -> Box:
        """Collectives of one rank, numbered from `first`, with the given states and lines."""
        box = self.boxes[rank]
        for number, item in enumerate(calls, first):
            values = dict(item)
            name, line = values.pop("name"), values.pop("line")
            values.setdefault("sequence_nr", number)
            by = box.site(("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252), ("step", SCRIPT, line))
            box.collective(name, group=self.groups[rank][group], by=by, **values)
        return box

    def everybody(self, *calls: Call, group: str = "0", first: int = 1) -> None:
        """The same collectives on all ranks that are members."""
        for number in range(len(self.boxes)):
            if group in self.groups[number]:
                self.calls(number, *calls, group=group, first=first)

    def raised(self, rank: int, text: str = TIME_OUT, at: float = 7000, type_name: str = "RuntimeError") -> None:
        """The rank ends with an uncaught exception."""
        place = ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252)
        self.boxes[rank].at(at).exception(type_name, text, [place, ("step", SCRIPT, 40)]).exit(1)
        self.endings[rank] = {"exit_code": 1}

    def aborted(self, rank: int, at: float = 6000) -> None:
        """gloo aborts on the thread that received a message that is too long."""
        box = self.boxes[rank].at(at)
        box.cpp_exception("gloo::EnforceNotMet", TOO_LONG).crash(signal=6, code=-6, sender_pid=box.pid)
        self.endings[rank] = {"signal": 6}

    def terminated(self, *ranks: int) -> None:
        """Ended by the agent's SIGTERM."""
        self.endings |= {rank: {"signal": 15} for rank in ranks}

    def done(self, *ranks: int, at: float = 5000) -> None:
        """Ended with status 0."""
        for rank in ranks:
            self.boxes[rank].at(at).exit(0)
            self.endings[rank] = {"exit_code": 0}

    def job(self, directory: Path, *, without: Sequence[int] = (), ended_at: float = 8000) -> Job:
        """The run, read back; `without` recordings of these ranks. The agent reaps all at `ended_at`."""
        failed = any(ending != {"exit_code": 0} for ending in self.endings.values())
        children = [(self.boxes[rank].pid, ending) for rank, ending in sorted(self.endings.items())]
        parent = agent(*children, at=ended_at, code=int(failed))
        write_run(directory, parent, *(box for rank, box in enumerate(self.boxes) if rank not in without))
        job = load_job(directory, symbols=False)
        return replace(job, processes=tuple(job.processes))
