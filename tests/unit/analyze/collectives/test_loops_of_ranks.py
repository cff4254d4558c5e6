"""Branches on the rank that communicate in loops over different things, and others."""

from __future__ import annotations

import ast

import pytest

from pytracer.analyze.collectives.loops_of_ranks import LoopsOfRanks, loops_of_ranks

SOURCE = """if dist.get_rank() == 0:
    for name, full in full_sd.items():
        dist.broadcast(full, src=0)
else:
    for name, target in sharded.items():
        full = torch.empty(target.shape)
        dist.broadcast(full, src=0)
"""


def found(source: str, line: int = 3) -> LoopsOfRanks | None:
    decides = ast.parse(source).body[0]
    assert isinstance(decides, ast.If)
    return loops_of_ranks(decides, line)


def test_what_each_side_loops_over_is_named() -> None:
    """From the side whose rank waits."""
    told = found(SOURCE)
    assert told is not None
    assert (
        told.subject == "line 2 loops over `full_sd.items()`, and the other ranks loop over `sharded.items()` (line 5)"
    )
    assert "`full_sd.items()` (line 2) and `sharded.items()` (line 5) need not have as many" in told.advice
    other = found(SOURCE, 7)
    assert other is not None
    assert other.subject.startswith(
        "line 5 loops over `sharded.items()`, and the other ranks loop over `full_sd.items()`"
    )


@pytest.mark.parametrize(
    "source",
    [
        SOURCE.replace("sharded.items()", "full_sd.items()"),  # the same on both sides
        SOURCE.replace("dist.get_rank() == 0", "loss > limit"),  # not by the rank
        SOURCE.partition("else")[0],
        SOURCE.replace(
            "        full = torch.empty(target.shape)\n        dist.broadcast(full, src=0)\n", "        use(target)\n"
        ),
        SOURCE.replace("    for name, target in sharded.items():\n        full", "    if True:\n        full"),
    ],
    ids=["alike", "not the rank", "no else", "no call", "no loop"],
)
def test_other_branches_are_left_alone(source: str) -> None:
    """The look-alikes."""
    assert found(source) is None
