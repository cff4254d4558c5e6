"""A rank that others wait for, and that is in a loop of its own which may not end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.analyze.collectives.test_rank_branches import missing

CROPS = """def crop(image, size):
    {head}
        start = torch.randint(0, 9, (1,)).item()
        part = image[start:start + size]
        if {test}:
            return part
"""


def test_loop_that_draws_until_something_fits_is_why_a_rank_may_never_come(run: Path) -> None:
    """In the headline behind its line, and the advice is about that loop."""
    source = CROPS.format(head="while True:", test="(part > 0).mean() >= 0.2")
    words = missing(run, source, 1, at=("crop", "", 5))
    assert "rank 1 was at program.py:5 in crop; line 4 makes `part` of what is drawn at random until" in words
    assert "bound the number of tries" in words
    assert "is a branch that the other ranks did not take" not in words


@pytest.mark.parametrize("head", ["for _ in range(100):", "if True:"])
def test_loop_that_ends_by_itself_is_not_said_to_go_on(run: Path, head: str) -> None:
    """The look-alikes: bounded tries, and no loop at all."""
    source = CROPS.format(head=head, test="(part > 0).mean() >= 0.2")
    assert "drawn at random" not in missing(run, source, 1, at=("crop", "", 5))
