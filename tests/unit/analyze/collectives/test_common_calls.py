"""A rank at work below the function in which the others wait for it: its line there, and whether it waited."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support import scenarios as s
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import advice, summary, verdict
from tests.support.synth import Frame

DISTRIBUTED = f"{s.TORCH}/distributed/distributed_c10d.py"
SOURCE = """\
def first(rank):
    sync()
    yield
def prepare(texts):
    with first():
        return encode(texts)
def encode(texts):
    at = 0
    {0}
        split(texts)
        at += 1
def split(texts):
    return texts.split()
"""


def told(run: Path, loop: str, inner: str = s.PYTHON, above: Frame | None = None) -> tuple[str, str]:
    """Rank 1 waits at line 5 of prepare(); rank 0 is in what line 6 has called."""
    program = str(s.program_in(run, SOURCE.format(loop)))
    job = Ranks(2)
    way = [("first", program, 2), ("prepare", program, 5)]
    box = job.boxes[1]
    by = box.site(("barrier", DISTRIBUTED, 5300), way[0])
    box.collective("barrier", sequence_nr=1, state="failed", group=job.groups[1]["0"], by=by)
    box.at(7000).exception("RuntimeError", TIME_OUT, [("barrier", DISTRIBUTED, 5300), *way]).exit(1)
    job.endings[1] = {"exit_code": 1}
    job.terminated(0)
    stack: list[Frame] = [("split", program, 13), ("encode", program, 10), ("prepare", program, 6)]
    stack = [above, *stack] if above is not None else stack
    job.boxes[0].at(7900).signal_seen(15, 99).crash(0, code=0, state=6, python=stack, native=[(inner, 0x1000)])
    report = build_report(job.job(run))
    assert verdict(report)[0] == "missing-rank"
    return summary(report), advice(report)


def test_rank_that_computes_is_slow_and_its_line_of_the_common_function_is_named(run: Path) -> None:
    said, do = told(run, "while at < len(texts):")
    assert "rank 0 was running Python code at program.py:13 in split, in encode(), called at line 6 in prepare." in said
    assert do.startswith("Rank 0 was running Python code in encode(), called at program.py:6 in prepare: it was slow")
    assert do.endswith("else see what takes so long in it, such as line 13 in split.")


@pytest.mark.parametrize(
    ("loop", "inner", "above"),
    [
        ("while not ready(texts):", s.PYTHON, None),
        ("while True:", s.PYTHON, None),
        ("while at < len(texts):", "/usr/lib/libc.so.6", None),
        ("while at < len(texts):", s.PYTHON, ("encode_batch", "/venv/lib/python3.11/site-packages/words/fast.py", 12)),
    ],
    ids=["asks", "endless", "in the C library", "in a library"],
)
def test_rank_that_may_wait_is_not_called_slow(loop: str, inner: str, above: Frame | None, run: Path) -> None:
    said, do = told(run, loop, inner, above)
    assert "running" not in f"{said} {do}"
    assert "rank 0 was at program.py:13 in split, in encode(), called at line 6 in prepare." in said
    assert "it is slow, waits for something, or is a branch that the other ranks did not take" in do
