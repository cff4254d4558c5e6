"""A job of four ranks whose ninth collective rank 2 enters late."""

from __future__ import annotations

from pathlib import Path

from pytracer.decode.job.merge import load_job
from pytracer.decode.types.snapshot import Job
from tests.support.scenarios import SCRIPT
from tests.support.synth import Box, write_run

OTHER_HOST = "b0075f00-0000-4000-8000-000000000002"
LAST = 2


def late_rank(directory: Path, *, boot_id_of_last: str | None = None, late_ms: float = 350) -> Job:
    """Nine all-reduces; before the ninth the ranks come at 900, 905, 900 + `late_ms` and 910 ms."""
    entered = {0: 900.0, 1: 905.0, LAST: 900.0 + late_ms, 3: 910.0}
    boxes = []
    for rank, last_ms in entered.items():
        box = Box(pid=101 + rank, rank=rank, world_size=4)
        if boot_id_of_last and rank == LAST:
            box.host, box.boot_id = "node1", boot_id_of_last
        group = box.group("0", [0, 1, 2, 3], description="default_pg").group_seen("0", size=4, rank=rank)
        by = box.code("step", SCRIPT, 40)
        for number in range(1, 10):
            at = last_ms if number == 9 else number * 100.0
            ended = round(box.created_ns + (at + (1300 - at if number == 9 else 5)) * 1_000_000)
            box.at(at).collective(
                "allreduce_", sequence_nr=number, state="completed", group=group, by=by, ended_ns=ended
            )
        boxes.append(box.at(2000).exit(0))
    write_run(directory, *boxes)
    return load_job(directory, symbols=False)
