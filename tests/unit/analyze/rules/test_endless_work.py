"""other-death: loops whose passes come and go, and that nothing ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import ended, parent, stopped
from tests.support.synth import Frame

STEPS = """\
def main(loader, steps):
    step = 0
    while True:
        for batch in loader:
            step += train(batch)
            if step >= steps:
                break
    save()
"""


def at(run: Path, source: str, *frames: tuple[str, int]) -> Report:
    """A time limit met it in Python, just after a step."""
    script = str(s.program_in(run, source))
    box = parent()
    for number in range(20):
        box.at(59_000 + 40 * number).step(number)
    stack: list[Frame] = [(name, script, line) for name, line in frames]
    return ended(run, stopped(box, stack, native=[(s.PYTHON, 0x20)]))


def test_break_of_the_inner_loop_alone_is_told(run: Path) -> None:
    found = at(run, STEPS, ("main", 5))
    assert verdict(found) == ("hang", "likely")
    assert "computed for ever in the loop of line 3 (`while True`)" in summary(found)
    assert "the `break` of line 7 (where `step >= steps`) leaves only the loop of line 4" in summary(found)
    assert advice(found).startswith(
        "Leave the outer loop as well: behind the loop of line 4, `if step >= steps: break`."
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("                break\n", "                return\n"),
        ("    save()\n", ""),  # meant to work until it is stopped
        ("            step +=", "            next(rows)\n            step +="),
        ("    save()\n", "    save()\n\nclass Enough(Exception):\n    pass\n\ndef train(batch):\n    raise Enough\n"),
        (
            "    save()\n",
            (
                "    save()\n\nclass Enough(Exception):\n    pass\n\n"
                "def train(batch):\n    look()\n\ndef look():\n    raise Enough\n"
            ),
        ),
        ("    save()\n", "    save()\n\nclass Stop(Exception):\n    def __call__(self):\n        raise Stop\n"),
        ("        for batch in", "        if stop():\n            break\n        for batch in"),
    ],
)
def test_loop_that_may_be_left_is_work(old: str, new: str, run: Path) -> None:
    """The look-alikes."""
    source = STEPS.replace(old, new)
    line = 1 + next(number for number, text in enumerate(source.splitlines()) if "step +=" in text)
    found = at(run, source, ("main", line))
    assert verdict(found) == ("external-kill", "certain")


STREAM = """\
class Stream(IterableDataset):
    def __iter__(self):
        while True:
            yield self.row()

def evaluate(model, loader):
    total = 0
    for rows in loader:
        total += model(rows)
    return total

def main(model):
    rows = DataLoader(Stream(), batch_size=4)
    print(evaluate(model, rows))
"""


def test_loader_of_a_stream_without_end_is_told(run: Path) -> None:
    found = at(run, STREAM, ("evaluate", 9), ("main", 14))
    assert verdict(found) == ("hang", "likely")
    assert "`loader` has no last item: Stream.__iter__ (line 3, `while True`) yields for ever" in summary(found)
    assert "`for ... in itertools.islice(loader, n)` at line 8" in advice(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "            yield self.row()\n",
            "            yield self.row()\n            if self.last():\n                return\n",
        ),
        ("        total += model(rows)\n", "        total += model(rows)\n        if total > 9:\n            break\n"),
        ("        while True:\n", "        for _ in range(9):\n"),
        ("self.row()", "pickle.load(self.file)"),  # ends by EOFError
        (
            "    for rows in loader:\n        total += model(rows)\n",
            "    try:\n        for rows in loader:\n            total += model(rows)\n    except EOFError: pass\n",
        ),
    ],
)
def test_stream_that_is_left_is_work(old: str, new: str, run: Path) -> None:
    """The look-alikes."""
    source = STREAM.replace(old, new)
    lines = source.splitlines()
    line, last = (1 + next(n for n, text in enumerate(lines) if part in text) for part in ("total += model", "print("))
    assert verdict(at(run, source, ("evaluate", line), ("main", last))) == ("external-kill", "certain")


ROUND = """\
from itertools import cycle

def main(rows):
    for row in cycle(rows):
        train(row)
    save()
"""
OWN = """\
def cycle(rows):
    for _ in range(9):
        yield from rows

def main(rows):
    for row in cycle(rows):
        train(row)
    save()
"""


@pytest.mark.parametrize(("source", "line", "told"), [(ROUND, 5, True), (OWN, 7, False)])
def test_cycle_of_the_program_may_end(source: str, line: int, told: bool, run: Path) -> None:
    found = at(run, source, ("main", line))
    assert ("cycle() begins again for ever" in summary(found)) == told
    assert verdict(found) == (("hang", "likely") if told else ("external-kill", "certain"))


BINARY = """\
def checksum(path):
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(4096), ""):
            add(block)
    return result()
"""


@pytest.mark.parametrize(("mode", "told"), [("rb", True), ("r", False)])
def test_end_of_a_binary_file_that_is_compared_with_text(mode: str, told: bool, run: Path) -> None:
    found = at(run, BINARY.replace('"rb"', f'"{mode}"'), ("checksum.<locals>.<lambda>", 3), ("checksum", 3))
    assert ("read() returns b'' at its end" in summary(found)) == told
    assert (verdict(found) == ("hang", "likely")) == told


RECEIVES = """\
def receive(sock, size):
    data = b""
    while len(data) < size:
        data += sock.recv(size - len(data))
    return data
"""


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (RECEIVES, True),
        (RECEIVES.replace("    return", "        if not data:\n            raise EOFError\n    return"), False),
        (RECEIVES.replace("sock.recv(size - len(data))", "make(size)"), False),
    ],
)
def test_stream_whose_end_nobody_asks_for(source: str, told: bool, run: Path) -> None:
    """The look-alikes: the end is asked for, or nothing is read."""
    found = at(run, source, ("receive", 4))
    assert ("recv() of line 4" in summary(found)) == told
    assert ("if not chunk: raise EOFError" in advice(found)) == told


def test_continue_before_the_step_of_a_counter_beside_one_that_changes_something(run: Path) -> None:
    source = (
        "def encode(symbols, merges):\n    i = 0\n    while i < len(symbols) - 1:\n        if symbols[i] in merges:\n"
        "            symbols[i] = join(symbols)\n            continue\n        if symbols[i] == ' ':\n"
        "            continue\n"
        "        i += 1\n    return symbols\n"
    )
    found = at(run, source, ("encode", 4))
    assert "the `continue` of line 8 comes before `i += 1` (line 9)" in summary(found)
