"""other-death: loops that go on while a mask has a true element, as many after each pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import ended, parent, stopped

MATCHER = """\
def assign(cost):
    taken = torch.zeros_like(cost)
    while (taken.sum(0) == 0).any():
        busy = taken.sum(1) > 0
        cost[busy] += 1e5
        for box in torch.nonzero(taken.sum(0) == 0).squeeze(1):
            taken[cost[:, box].argmin(), box] = 1.0
        keep_cheapest(taken, cost)
    return taken
"""
NAMED = """\
def assign(cost):
    taken = torch.zeros_like(cost)
    while True:
        free = torch.sum(taken, dim=0) == 0
        if not torch.any(free).item():
            break
        for box in free.nonzero().flatten():
            taken[cost[:, box].argmin(), box] = 1.0
        busy = torch.any(taken, dim=1) > 0
    return taken
"""


def assigning(
    run: Path,
    left: list[int],
    rows: int = 12,
    columns: int = 13,
    source: str = MATCHER,
    lines: tuple[int, int, int] = (3, 4, 6),
    step_ms: int = 3_000,
) -> Report:
    """`left`: how many columns each pass finds without a row. `lines`: of the columns' sums, the rows', the places."""
    program = str(s.program_in(run, source))
    box = parent().at(2_000).alloc(0x1000, 64).at(step_ms).step(1)
    over_columns, over_rows, finds = (box.site(("assign", program, line)) for line in lines)
    box.at(4_000).freed(0x8000, 4 * rows * columns, box.site(("assign", program, 2)))
    at = 0x10_0000
    for number, count in enumerate(left):
        box.at(4_000 + 900 * number).mark("pass")
        made = [
            *((over_columns, size) for size in (8, 4, 4 * columns, columns, 1)),
            *((over_rows, size) for size in (8, 4, 4 * rows, rows, 4 * rows * columns)),
            *((finds, size) for size in (8, 4, 4 * columns, columns, 8 * count)),
        ]
        for site, nbytes in made:
            box.freed(at, nbytes, site)
            at += 0x1000
    return ended(run, stopped(box, [("assign", program, lines[2] + 1)], native=[(s.TORCH_CPU, 0x10)]))


def test_more_columns_than_rows_that_each_need_one_are_a_loop_without_end(run: Path) -> None:
    found = assigning(run, [1] * 12)
    assert verdict(found) == ("hang", "likely")
    assert "computed for ever in the loop of line 3 (`while (taken.sum(0) == 0).any()`) at program.py:7" in summary(
        found
    )
    assert (
        "`taken` has 13 columns and only 12 rows, and in each of its last 12 recorded passes 1 column had none "
        "(`torch.nonzero(taken.sum(0) == 0)`, line 6): where a row takes one column at most, "
        "`(taken.sum(0) == 0).any()` stays true"
    ) in summary(found)
    assert advice(found).startswith(
        "Give `taken` at least as many rows as columns (13 here), or leave out columns before the loop of line 3"
    )


def test_a_mask_with_a_name_is_followed(run: Path) -> None:
    found = assigning(run, [3] * 12, rows=9, columns=12, source=NAMED, lines=(4, 9, 7))
    assert verdict(found) == ("hang", "likely")
    assert "`taken` has 12 columns and only 9 rows, and in each of its last 12 recorded passes 3 columns had none" in (
        summary(found)
    )


def test_as_many_rows_as_columns_may_come_to_the_end(run: Path) -> None:
    """What stays is told, and not why."""
    found = assigning(run, [2] * 12, rows=13, columns=12)
    assert verdict(found) == ("hang", "possible")
    assert "in each of its last 12 recorded passes `torch.nonzero(taken.sum(0) == 0)` (line 6) had 2 elements" in (
        summary(found)
    )
    assert "rows" not in summary(found) and "for ever" not in summary(found)


@pytest.mark.parametrize("more", ["tokens.append(draw(cost))", "place += 1"])
def test_passes_that_each_make_a_part_come_to_an_end_without_fewer_left(more: str, run: Path) -> None:
    """The look-alike: texts that grow by a token in each pass, none of which has come to its end yet."""
    source = MATCHER.replace("keep_cheapest(taken, cost)", more)
    assert "recorded passes" not in summary(assigning(run, [2] * 12, rows=13, columns=12, source=source))


def test_another_number_than_the_rows_lack_has_another_reason(run: Path) -> None:
    found = assigning(run, [4] * 12)
    assert verdict(found) == ("hang", "possible")
    assert "12 rows" not in summary(found)


@pytest.mark.parametrize("left", [[12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2], [1, 1, 1]])
def test_passes_that_leave_less_or_are_few_are_work(left: list[int], run: Path) -> None:
    """The look-alikes: slow, but nearer to the end with each pass; and a loop that has just begun."""
    found = assigning(run, left)
    assert verdict(found) == ("external-kill", "certain")
    assert "recorded passes" not in summary(found)


def test_steps_until_the_end_are_work(run: Path) -> None:
    """The look-alike: the passes are those of many batches."""
    found = assigning(run, [1] * 12, step_ms=59_000)
    assert verdict(found) == ("external-kill", "certain")
    assert "recorded passes" not in summary(found)
