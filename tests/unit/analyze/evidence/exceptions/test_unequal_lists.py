"""Parts of a list that has another order on each rank, and the near cases in which a key is missing otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import Ranks, call
from tests.support.deaths import advice, summary
from tests.support.scenarios import program_in

READER = """\
import glob, os
import torch.distributed as dist
class Reader:
    def __init__(self, folder, rank, world):
        self.rank, self.world = rank, world
        self.files = {files}
        self.sizes = dict()
        self.collect()
    def collect(self):
        own = dict()
        for path in {part}:
            own[path] = os.path.getsize(path)
        every = [None, None]
        {gather}
        for item in every:
            self.sizes.update(item)
        for path in self.files:
            print(self.sizes[path])
Reader("parts", dist.get_rank(), dist.get_world_size())
"""
GLOB = "glob.glob(os.path.join(folder, '*.npy'))"
PART = "self.files[self.rank::self.world]"
GATHER = "dist.all_gather_object(every, own)"
WAY = [("Reader.collect", 18), ("Reader.__init__", 8), ("<module>", 19)]
TOOK = (("'a'", "'c'"), ("'c'", "'a'"))
PASSED = "`self.sizes` has 2 of the 4 in `self.files`, since `"


def ended(
    run: Path,
    files: str = GLOB,
    part: str = PART,
    gather: str = GATHER,
    *,
    keys: Sequence[str | None] = ("'b'", "'d'"),
    took: Sequence[Sequence[str]] = TOOK,
    lengths: Sequence[int] = (4, 4),
    held: int = 2,
    further: bool = False,
) -> Report:
    """Each rank with a key raises at line 18; the others are ended."""
    program = str(program_in(run, READER.format(files=files, part=part, gather=gather)))
    job = Ranks(2)
    job.everybody(call())
    stack = [(name, program, line) for name, line in WAY]
    for rank, key in enumerate(keys):
        if key is None:
            if further:
                job.calls(rank, call(state="started"), first=2)
            job.terminated(rank)
            continue
        values = {"self.files": f"list of {lengths[rank]}", "self.sizes": f"dict of {held}", "own": "dict of 2"}
        variables = [{"name": name, "value": value} for name, value in values.items()]
        near = [{"of": "own", "names": list(took[rank]), "count": len(took[rank])}] if took else []
        near.append({"of": "self.sizes", "names": ["'a'", "'c'"], "count": 2})
        job.boxes[rank].at(7000).exception("KeyError", key, stack, variables=variables, near=near).exit(1)
        job.endings[rank] = {"exit_code": 1}
    return build_report(job.job(run))


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        (GLOB, "the order in which its folder lists them"),
        ("os.listdir(folder)", "the order in which its folder lists them"),
        ("[entry.path for entry in os.scandir(folder)]", "the order in which its folder lists them"),
        ("list(Path(folder).iterdir())", "the order in which its folder lists them"),
        ("list(set(names(folder)))", "a set's order"),
        ("[item.result() for item in as_completed(loads)]", "the order in which they are ready"),
    ],
)
@pytest.mark.parametrize("part", [PART, "np.array_split(self.files, self.world)[self.rank]"])
def test_list_of_an_order_of_its_own_is_named_with_its_part(files: str, kind: str, part: str, run: Path) -> None:
    """Both ranks took the same files: the orders differ."""
    report = ended(run, files, part)
    said = summary(report)
    assert (
        PASSED in said
        and "` (line 11) takes each rank's part of a list that has another order on each (line 6: " in said
    )
    assert kind in advice(report) and "broadcast_object_list()" in advice(report)
    found = str(report)
    assert "rank 0 found no 'b'; rank 1 found no 'd'" in found
    assert "ranks 0 and 1 each took 'a' and 'c' as their part" in found


def test_without_the_keys_of_the_parts_it_is_only_probable(run: Path) -> None:
    """The other rank's were not recorded, or it was ended before."""
    report = ended(run, took=(), held=3)
    assert "a list that probably has another order on each" in summary(report)
    assert "so that the parts of line 11 may overlap" in " ".join(advice(report).split())
    assert "a list that probably has another order on each" in summary(ended(run, keys=("'b'", None), held=3))


@pytest.mark.parametrize(
    "changes",
    [{"took": ()}, {"gather": "every = [own]; dist.all_gather(losses, loss)", "took": ()}],
)
def test_table_of_as_many_as_the_own_part_has_was_not_gathered(changes: dict[str, Any], run: Path) -> None:
    """Something else was: nothing shows that the parts overlap."""
    assert "takes each rank's part" not in summary(ended(run, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"files": f"sorted({GLOB})"},
        {"files": f"{GLOB}\n        self.files.sort()"},
        {"files": f"{GLOB}\n        dist.broadcast_object_list(self.files)"},
        {"files": "read_list(folder)"},
        {"part": "self.files"},
        {"part": "self.files[::2]"},
        {"gather": "every = [own]"},
    ],
)
def test_list_of_one_order_or_no_part_of_it_says_nothing(changes: dict[str, str], run: Path) -> None:
    """Sorted, or of one rank; read from elsewhere; not taken by the rank, and not gathered."""
    assert "takes each rank's part" not in summary(ended(run, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"keys": ("'b'", "'b'")},
        {"lengths": (4, 5)},
        {"held": 4},
        {"took": (("'a'", "'c'"), ("'e'", "'f'"))},
        {"keys": ("'b'", None), "further": True},
    ],
)
def test_other_files_on_a_rank_are_another_reason(changes: dict[str, object], run: Path) -> None:
    """One key that no rank has, other numbers of files, parts that do not overlap, and a rank that found all."""
    assert "takes each rank's part" not in summary(ended(run, **changes))  # type: ignore[arg-type]
