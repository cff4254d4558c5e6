"""other-death and standstill: a process that was ended in a loop of the program, after a long time without a step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import HeldValue
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import TIMEOUT, ended, parent, stopped, with_ending
from tests.support.synth import Box

TRAIN = """\
def batches(rows):
    at = 0
    while True:
        while at < len(rows):
            yield rows[at]
            at += 1

def train(rows):
    for batch in batches(rows):
        step(batch)

def negative(seen):
    item = random.randrange(9)
    while item in seen:
        item = random.randrange(9)
    return item

def tokens(lines):
    total = 0
    while lines:
        total += weigh(lines.pop())
    for line in lines:
        total += weigh(line)

def buckets(rows, size):
    while True:
        for row in rows:
            full = put(row)
            if len(full) == size:
                yield full

def gather(count, total):
    while count.value < total:
        pass

def fog(at, width, height):
    while at > 0:
        at -= width // height
"""


TRIES = """\
def evaluate(model, scans):
    while True:
        try:
            return model(scans)
        except Exception as error:
            log(error)
"""


def trained(until_ms: int = 9_000) -> Box:
    """With 20 steps, 10 ms apart; nothing was recorded after them."""
    box = parent().at(until_ms - 500).alloc(0x1000, 64)
    for number in range(20):
        box.at(until_ms - 200 + 10 * number).step(number + 1)
    return box


def report(run: Path, box: Box, *frames: tuple[str, int]) -> Report:
    program = str(s.program_in(run, TRAIN))
    return ended(run, stopped(box, [(function, program, line) for function, line in frames]))


def test_a_generator_that_yields_nothing_any_more_is_the_cause(run: Path) -> None:
    found = report(run, trained(), ("batches", 3), ("train", 9))
    assert verdict(found) == ("hang", "likely")
    assert "was in the loop of line 3 (`while True`) at program.py:3 in batches; it had made no step" in summary(found)
    assert "where a step had taken 10.0 ms at most (the last 19)" in summary(found)
    assert "`at` is set before it (line 2), and in it only by the loop of line 4" in summary(found)
    assert advice(found).startswith("Set `at` anew inside of `while True` (line 3), before line 4: `at = 0`.")


def test_tries_without_a_limit_are_named_also_where_torch_ran_below_them(run: Path) -> None:
    """The model may only take long: nothing shows that it was tried before."""
    stack = [
        ("_conv_forward", f"{s.TORCH}/nn/modules/conv.py", 560),
        ("evaluate", str(s.program_in(run, TRIES)), 4),
    ]
    found = ended(run, stopped(trained(), stack, native=[(s.TORCH_CPU, 0x10), (s.PYTHON, 0x20)]))
    assert verdict(found) == ("hang", "possible")
    assert "in the loop of line 2 (`while True`) at program.py:4 in evaluate" in summary(found)
    assert "; the `except Exception` of line" in summary(found) and "goes on with the next try each" in summary(found)


def test_a_generator_at_work_in_its_inner_loop_is_not_stuck(run: Path) -> None:
    """The look-alike: it reads a row."""
    found = report(run, trained(), ("batches", 5), ("train", 9))
    assert "`at` is set before it" not in summary(found)
    assert verdict(found) == ("external-kill", "certain")


def test_a_draw_without_end_is_possibly_the_cause(run: Path) -> None:
    found = report(run, trained(), ("negative", 15), ("train", 10))
    assert verdict(found) == ("hang", "possible")
    assert "line 15 draws at random" in summary(found) and "`len(set(seen))`" in advice(found)


def test_steps_until_the_end_are_work(run: Path) -> None:
    """The look-alike: the time limit met it between two draws."""
    found = report(run, trained(until_ms=59_990), ("negative", 15), ("train", 10))
    assert verdict(found) == ("external-kill", "certain")
    assert "had made no step" not in summary(found)


@pytest.mark.parametrize("many", [10, 200])
def test_tensors_that_were_made_since_are_no_standing_still(run: Path, many: int) -> None:
    """The look-alike: at times that are not known, so that it may have made them all along."""
    box = parent().at(9_000).step(1)
    for number in range(many):
        box.alloc(0x1000 + 0x100 * number, 64)
    found = report(run, box, ("negative", 15), ("train", 10))
    assert ("no tensor" in summary(found)) == (many < 32)


def test_a_loop_that_makes_tensors_is_work(run: Path) -> None:
    """The look-alike: an evaluation after the steps; what keeps its loop from ending is told as that."""
    box = trained()
    for number in range(40):
        box.at(20_000 + 950 * number).mark("image").alloc(0x2000 + 0x100 * number, 64)
    found = report(run, box, ("negative", 15), ("train", 10))
    assert verdict(found) == ("external-kill", "certain")
    assert "had made no step for" in summary(found) and "tensor" not in summary(found)
    assert advice(found).endswith("If it only takes long, raise the time limit.")


def test_a_bounded_loop_is_work_with_its_time(run: Path) -> None:
    """The look-alike: it may take as long; that nothing else happened is a fact."""
    found = report(run, trained(), ("tokens", 23))
    assert verdict(found) == ("external-kill", "certain")
    assert "it had made no step and next to no tensor for" in summary(found)
    assert "in the loop" not in summary(found)


def test_a_loop_that_takes_from_its_list_may_end_in_time(run: Path) -> None:
    """The look-alike: nothing says that it would not."""
    found = report(run, trained(), ("tokens", 21))
    assert verdict(found) == ("external-kill", "certain")
    assert "in the loop `while lines` (line 20); it had made no step" in summary(found)
    assert "still comes nearer to its end" in advice(found)


@pytest.mark.parametrize(("line", "class_"), [(28, "hang"), (30, "external-kill")])
def test_a_generator_that_yields_only_below_an_if_is_possibly_stuck(line: int, class_: str, run: Path) -> None:
    """The look-alike is about to yield."""
    found = report(run, trained(), ("buckets", line), ("train", 9))
    assert verdict(found)[0] == class_
    assert ("yields only where `len(full) == size` (line 29) holds" in summary(found)) == (class_ == "hang")


@pytest.mark.parametrize(("at_ms", "gone"), [(12_000, True), (59_990, False)])
def test_children_that_ended_before_cannot_end_the_loop(at_ms: int, gone: bool, run: Path) -> None:
    """The look-alike ended with the rest."""
    program = str(s.program_in(run, TRAIN))
    box = stopped(trained(), [("gather", program, 34)])
    found = ended(run, box, Box(pid=102, ppid=101).at(at_ms).exit(0))
    assert verdict(found) == ("hang", "possible")
    assert "nothing in it changes what `count.value < total` reads" in summary(found)
    assert ("all its recorded children had ended before" in summary(found)) == gone


FILLS = """\
import torch

def balanced(frames, per_class):
    rows = []
    for key, value in enumerate(frames):
        pool = value[value > 0]
        chosen = torch.zeros((0,), dtype=torch.int64)
        while chosen.shape[0] < per_class:
            more = torch.randperm(pool.shape[0])
            chosen = torch.cat((chosen, more), dim=0)
        rows.append(chosen)
    return rows

def waited(queue, count):
    rows = torch.zeros(0)
    while len(rows) < count:
        more = received(queue)
        rows = torch.cat((rows, more))
    return rows
"""


def filling(run: Path, *sizes: tuple[int, int], function: str = "balanced", line: int = 10) -> Report:
    """`sizes`: line and bytes of the tensors of one pass; steps were made before, and no more."""
    program = str(s.program_in(run, FILLS))
    box = trained(until_ms=4_000).at(4_000)
    sites = [box.site((function, program, at)) for at, _ in sizes]
    for number in range(120):
        box.at(4_000 + 450 * number).mark("pass")
        for part, (_, nbytes) in enumerate(sizes):
            box.freed(0x9000 + 0x400 * (2 * number + part), nbytes, sites[part])
    return ended(run, stopped(box, [(function, program, line)]))


def test_passes_that_added_nothing_are_a_loop_without_end(run: Path) -> None:
    """torch.cat() of anything makes a tensor: none of the passes did, so what they draw from is empty."""
    found = filling(run, (9, 8))
    assert verdict(found) == ("hang", "likely")
    assert (
        "computed for ever in the loop of line 8 (`while chosen.shape[0] < per_class`) at program.py:10 in balanced: "
        "`pool` is empty, so `torch.randperm(pool.shape[0])` (line 9) has no element, line 10 adds nothing to `chosen` "
        "in any pass, and `chosen.shape[0]` never reaches `per_class`; it had made no step for"
    ) in summary(found)
    assert "ended it at a time limit" in summary(found)
    assert advice(found).startswith(
        "Skip the round that has nothing to take from: before the loop of line 8, go on with the next one of "
        "`for key, value in enumerate(frames)` (line 5) by `continue` where `pool.shape[0] == 0`."
    )
    assert "it is `value[value > 0]` (line 6)" in advice(found)


def test_a_loop_whose_passes_add_something_is_work(run: Path) -> None:
    """The look-alike: slow, but each pass makes a longer tensor."""
    found = filling(run, (9, 8), (10, 64))
    assert verdict(found) == ("external-kill", "certain")
    assert "empty" not in summary(found) and "for ever" not in summary(found)


def test_a_loop_that_others_fill_may_end(run: Path) -> None:
    """The look-alike: what comes from elsewhere may come later."""
    found = filling(run, (17, 8), function="waited", line=18)
    assert verdict(found) == ("external-kill", "certain")
    assert "for ever" not in summary(found)


def test_work_of_another_place_shows_nothing_of_a_loop(run: Path) -> None:
    """The look-alike: the loop has just begun; what it adds is not known."""
    found = filling(run, (6, 8))
    assert verdict(found) == ("external-kill", "certain")
    assert "`pool` is empty, so" not in summary(found)


def fogged(run: Path, **values: int) -> Report:
    """Ended in the loop of fog(), with these values of its variables."""
    program = str(s.program_in(run, TRAIN))
    root = Box(pid=90, ppid=80, argv=TIMEOUT).at(60_010).wait(101, signal=15).exit(124)
    job = s.load(run, root, stopped(trained(), [("fog", program, 38), ("train", program, 9)]))
    held = tuple(HeldValue(name, str(value), 0) for name, value in values.items())
    return build_report(
        replace(
            job,
            processes=tuple(
                with_ending(item, values=held) if item.snapshot.pid == 101 else item for item in job.processes
            ),
        )
    )


def test_a_step_that_was_zero_is_the_cause(run: Path) -> None:
    found = fogged(run, at=13, width=30, height=127)
    assert verdict(found) == ("hang", "likely")
    assert "computed for ever in the loop of line 37 (`while at > 0`)" in summary(found)
    assert "`at` stays 13, and `at > 0` true: line 38 (`at -= width // height`) takes 0 from it" in summary(found)
    assert advice(found).startswith("Make the step of line 38 at least 1: `at -= max(1, width // height)`.")


def test_a_step_that_was_not_zero_may_come_to_its_end(run: Path) -> None:
    """The look-alike: it takes long."""
    found = fogged(run, at=13, width=300, height=127)
    assert verdict(found) == ("external-kill", "certain")
    assert "stays" not in summary(found) and "max(1" not in advice(found)


def test_a_step_that_may_be_zero_is_possibly_the_cause(run: Path) -> None:
    found = fogged(run)
    assert verdict(found) == ("hang", "possible")
    assert "which is nothing where `width` is less than `height`" in summary(found)


@pytest.mark.parametrize("call", ["taken(width)", "next(rows)"])
def test_a_pass_that_may_end_by_an_exception_is_no_proof(call: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`window` stays at its bound, and the reader's own exception ends the loop: the values are told, and no more."""
    text = f"{TRAIN}        {call}\n\ndef taken(count):\n    if not count:\n        raise EOFError\n"
    monkeypatch.setitem(globals(), "TRAIN", text)
    found = fogged(run, at=13, width=30, height=127)
    assert verdict(found) == ("hang", "possible")
    assert "computed for ever" not in summary(found)
    assert "`at` stays 13, and `at > 0` true" in summary(found)
