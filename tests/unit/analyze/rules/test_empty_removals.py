"""other-death: loops that are to make something shorter, and whose passes remove nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import ended, parent, stopped
from tests.support.synth import Box

MERGES = """\
def suppressed(rows, limit):
    kept = []
    boxes = rows[rows[:, 4].argsort()]
    while boxes.size(0):
        overlap = iou(boxes[:1], boxes) > limit
        merged = overlap & (boxes[0, -1] == boxes[:, -1])
        boxes[0, :4] = boxes[merged].mean(0)
        kept.append(boxes[0].clone())
        boxes = boxes[~merged]
    return kept
"""
REMOVES = 9


def trained() -> Box:
    box = parent().at(3_500).alloc(0x1000, 64)
    for number in range(20):
        box.at(3_800 + 10 * number).step(number + 1)
    return box


def merging(run: Path, sizes: list[int], source: str = MERGES, before: bool = True) -> Report:
    """`sizes`: of what each pass leaves; the line before the loop made a tensor, or none."""
    program = str(s.program_in(run, source))
    line = 1 + next(number for number, text in enumerate(source.splitlines()) if text.startswith("        boxes = "))
    box = trained().at(4_000)
    first, removes = box.site(("suppressed", program, 3)), box.site(("suppressed", program, line))
    if before:
        box.freed(0x8000, 640, first)
    for number, nbytes in enumerate(sizes):
        box.at(4_000 + 920 * number).mark("pass")
        box.freed(0x9000 + 0x400 * number, max(1, nbytes // 4), removes)
        box.freed(0x90_0000 + 0x400 * number, nbytes, removes)
    return ended(run, stopped(box, [("suppressed", program, 5)], native=[(s.PYTHON, 0x20)]))


def test_passes_that_removed_nothing_are_a_loop_without_end(run: Path) -> None:
    found = merging(run, [28] * 60)
    assert verdict(found) == ("hang", "likely")
    assert "computed for ever in the loop of line 4 (`while boxes.size(0)`) at program.py:5" in summary(found)
    assert (
        "only line 9 (`boxes = boxes[~merged]`) makes `boxes` shorter, and it has left all of it in each of the last "
        "passes that are recorded: `merged` is true for no element; it had made no step for"
    ) in summary(found)
    assert advice(found).startswith(
        "Let each pass remove `boxes[0]`, whatever the comparison gives (set its element of `merged` before line 9), "
        "or leave the loop when line 9 has left `boxes` as long as it was."
    )
    assert "two boxes without an area have no overlap, not even one with itself" in advice(found)


def test_passes_that_remove_something_are_work(run: Path) -> None:
    """The look-alike: slow, but each pass leaves less."""
    found = merging(run, [28 * (90 - number) for number in range(60)])
    assert verdict(found) == ("external-kill", "certain")
    assert "for ever" not in summary(found) and "makes `boxes` shorter" not in summary(found)


def test_mask_is_no_link_that_the_loop_follows(run: Path) -> None:
    source = MERGES.replace("boxes[~merged]", "boxes[torch.logical_not(merged)]")
    source = source.replace("        boxes[0, :4] = boxes[merged].mean(0)\n", "")
    assert "follows" not in summary(merging(run, [28 * (90 - number) for number in range(60)], source=source))


def test_passes_that_are_not_recorded_may_remove_nothing(run: Path) -> None:
    """What the loop could do is told, as a possibility."""
    found = merging(run, [28] * 8)
    assert "by nothing where `merged` is true for no element: then `boxes` stays as it is" in summary(found)
    assert "for ever in the loop" not in summary(found)


def test_one_pass_of_each_of_many_rounds_is_work(run: Path) -> None:
    """The look-alike: the loop begins anew with other rows, of which each pass leaves as many."""
    program = str(s.program_in(run, MERGES))
    box = trained().at(4_000)
    first, removes = box.site(("suppressed", program, 3)), box.site(("suppressed", program, REMOVES))
    for number in range(60):
        box.at(4_000 + 920 * number).mark("round")
        box.freed(0x8000 + 0x400 * number, 56, first)
        box.freed(0x90_0000 + 0x400 * number, 28, removes)
    found = ended(run, stopped(box, [("suppressed", program, 5)], native=[(s.PYTHON, 0x20)]))
    assert verdict(found) == ("external-kill", "certain") and "for ever in the loop" not in summary(found)


@pytest.mark.parametrize("made", ["rows", "sorted_rows(rows)"])
def test_rounds_that_make_no_tensor_before_the_loop_prove_nothing(made: str, run: Path) -> None:
    """The look-alike: what is recorded may be of many rounds."""
    source = MERGES.replace("rows[rows[:, 4].argsort()]", made)
    found = merging(run, [28] * 60, source=source, before=False)
    assert verdict(found) == ("external-kill", "certain") and "for ever in the loop" not in summary(found)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("boxes[~merged]", "boxes[~merged].clone()", "`merged` is true for no element"),
        ("boxes[~merged]", "boxes[merged]", "`merged` keeps each element"),
        ("boxes[~merged]", "boxes[torch.where(~merged)[0]]", "`torch.where(~merged)[0]` keeps each element"),
        ("boxes[~merged]", "boxes[~(overlap | merged), :]", "`overlap | merged` is true for no element"),
        ("while boxes.size(0):", "while len(boxes) > 0:", "`merged` is true for no element"),
        ("        kept.append", "        if len(boxes) == 1:\n            break\n        kept.append", "`merged` is"),
    ],
)
def test_other_ways_of_removing_are_told_alike(old: str, new: str, says: str, run: Path) -> None:
    found = merging(run, [28] * 60, source=MERGES.replace(old, new))
    assert verdict(found) == ("hang", "likely")
    assert f"in each of the last passes that are recorded: {says}" in summary(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        kept.append", "        merged[0] = True\n        kept.append"),
        ("        kept.append", "        overlap[0] = True\n        kept.append"),
        ("boxes[~merged]", "boxes[1:][~merged[1:]]"),
        ("boxes[~merged]", "boxes[1 + torch.where(~merged)[0]]"),
        ("        kept.append", "        if not merged.any():\n            break\n        kept.append"),
        ("        kept.append", "        boxes = boxes[1:]\n        kept.append"),
    ],
)
def test_loop_that_always_removes_one_or_may_be_left_is_not_told(old: str, new: str, run: Path) -> None:
    """The look-alikes."""
    found = merging(run, [28] * 60, source=MERGES.replace(old, new))
    assert "makes `boxes` shorter" not in summary(found)


LISTS = """\
def suppressed(rows, limit):
    kept = []
    boxes = sorted(rows)
    while boxes:
        best = boxes[0]
        kept.append(best)
        boxes = [box for box in boxes if iou(best, box) < limit]
    return kept
"""


def test_list_that_a_comparison_is_to_empty_is_possibly_the_cause(run: Path) -> None:
    program = str(s.program_in(run, LISTS))
    found = ended(run, stopped(trained(), [("iou", program, 1), ("suppressed", program, 7)]))
    assert verdict(found) == ("hang", "possible")
    assert "by nothing where `iou(best, box) < limit` keeps each element: then `boxes` stays" in summary(found)


@pytest.mark.parametrize("old", ["boxes[0]", "iou(best, box) < limit"])
def test_list_that_gives_up_its_first_or_what_is_equal_ends(old: str, run: Path) -> None:
    """The look-alikes: pop(), and a comparison of equality with an element of its own."""
    new = {"boxes[0]": "boxes.pop(0)", "iou(best, box) < limit": "box.kind != best.kind"}[old]
    program = str(s.program_in(run, LISTS.replace(old, new)))
    found = ended(run, stopped(trained(), [("iou", program, 1), ("suppressed", program, 7)]))
    assert "makes `boxes` shorter" not in summary(found)
