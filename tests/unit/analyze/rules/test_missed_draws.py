"""other-death: loops that draw until something is found, and had found nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import HeldValue
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import TIMEOUT, below, parent, stopped, with_ending
from tests.support.synth import Box

PAIRS = """\
class Pairs:
    def get(self, key):
        return self.env.find(key)

    def __getitem__(self, index):
        left = self.get("left_{}_{}".format(self.size, str(index).zfill(5)))
        right = self.get(f"right_{index:05d}")
        while left is None or right is None:
            other = random.randint(0, self.count - 1)
            left = self.get("left_{}_{}".format(self.size, str(other).zfill(5)))
            right = self.get(f"right_{other:05d}")
        return left, right

def prepare(env, names):
    for name in names:
        env.put(f"{name.zfill(5)}", load(name))
    env.put("length", len(names))

def train(pairs):
    for left, right in batches(pairs):
        loss = step(left, right)
"""


def drawing(run: Path, line: int = 11, source: str = PAIRS, worked: bool = False, **values: object) -> Report:
    """Ended in __getitem__(); `worked`: the loop over the batches has made tensors."""
    program = str(s.program_in(run, source))
    box = parent().at(2_000)
    made = box.site(("train", program, 21 if worked else 18))
    for number in range(60):
        box.freed(0x1000 + 0x100 * number, 64, made)  # many, at times that are not known
    box.at(3_000).alloc(0x9_0000, 64)
    for number in range(60):
        box.freed(0x20_0000 + 0x100 * number, 64, made)
    stack = [("Pairs.get", program, 3), ("Pairs.__getitem__", program, line), ("train", program, 20)]
    root = Box(pid=90, ppid=80, argv=TIMEOUT).at(60_010).wait(101, signal=15).exit(124)
    job = s.load(run, root, stopped(box, stack))
    known = {"left": None, "right": None, "index": 91, "other": 10, "self.size": 64, "self.count": 192} | values
    held = tuple(HeldValue(name, str(value), 1) for name, value in known.items())
    changed = (with_ending(item, values=held) if item.snapshot.pid == 101 else item for item in job.processes)
    return build_report(replace(job, processes=tuple(changed)))


def test_what_was_asked_for_is_told_with_the_keys_that_are_written(run: Path) -> None:
    found = drawing(run)
    assert verdict(found) == ("hang", "possible")
    assert "in the loop of line 8 (`while left is None or right is None`) at program.py:11" in summary(found)
    assert (
        "`left` and `right` are still None: `self.get()` (line 10) had found nothing for what line 9 draws at random "
        "(`other` = 10), for `left_64_00010`; where it finds nothing for any, the loop draws for ever"
    ) in summary(found)
    assert advice(found).startswith(
        "Compare `left_64_00010` with the keys that are there, which line 16 writes as `f'{name.zfill(5)}'`: print"
    )


def test_a_call_that_goes_on_has_found_nothing_for_a_draw_before(run: Path) -> None:
    found = drawing(run, line=10)
    assert "(`other` = 10)" not in summary(found) and "it now asked for `left_64_00010`" in summary(found)


def test_a_first_draw_that_takes_long_has_not_found_nothing(run: Path) -> None:
    """The look-alike: the variables are None because nothing was asked for yet."""
    source = PAIRS.replace('left = self.get("left_{}_{}".format(self.size, str(index).zfill(5)))', "left = None", 1)
    source = source.replace('right = self.get(f"right_{index:05d}")', "right = None", 1)
    assert "had found nothing" not in summary(drawing(run, line=10, source=source))
    assert "had found nothing" in summary(drawing(run, line=11, source=source))


def test_what_is_found_ends_the_loop(run: Path) -> None:
    """The look-alike: the loop is about to end."""
    found = drawing(run, left=[1], right=[2])
    assert verdict(found) == ("external-kill", "certain") and "still None" not in summary(found)


def test_a_loop_that_has_had_batches_may_be_slow(run: Path) -> None:
    """The look-alike: it found something each time until now."""
    found = drawing(run, worked=True)
    assert verdict(found) == ("external-kill", "certain") and "still None" not in summary(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("other = random.randint(0, self.count - 1)", "other = (index + 1) % self.count"),
        ("            left = ", "            assert other\n            left = "),
    ],
)
def test_other_ways_of_going_on_are_not_told_as_draws(old: str, new: str, run: Path) -> None:
    assert "draws" not in summary(drawing(run, source=PAIRS.replace(old, new, 1)))


def test_native_code_of_pythons_own_modules_is_not_where_the_loop_is_looked_for(run: Path) -> None:
    """sqlite3 reads one row; the program's loop asks it again."""
    program = str(s.program_in(run, PAIRS))
    box = stopped(parent().at(59_000).step(1), [("Pairs.get", program, 3), ("Pairs.__getitem__", program, 11)])
    library, module = (
        "/usr/lib/libsqlite3.so.0",
        "/usr/lib/python3.11/lib-dynload/_sqlite3.cpython-311-x86_64-linux-gnu.so",
    )
    found = below(run, box, native=[("sqlite3_step", library), ("_pysqlite_query_execute", module)])
    assert "sqlite3_step" not in summary(found)
    assert "program.py:3 in Pairs.get, called in the loop of line 8" in summary(found)


def test_native_code_of_the_program_is_named(run: Path) -> None:
    """The look-alike: an extension of its own."""
    program = str(s.program_in(run, PAIRS))
    box = stopped(parent().at(59_000).step(1), [("Pairs.get", program, 3), ("Pairs.__getitem__", program, 11)])
    found = below(run, box, native=[("find_key", "/home/ann/store.cpython-311-x86_64-linux-gnu.so")])
    assert "find_key" in summary(found)
