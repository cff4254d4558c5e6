"""A rank at work below the function in which the others wait for it: its line there, and whether it waited."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support import scenarios as s
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import advice, summary, verdict
from tests.support.synth import Frame

DISTRIBUTED = f"{s.TORCH}/distributed/distributed_c10d.py"
At = tuple[str, int]
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
    stack: list[At] = [("split", 13), ("encode", 10), ("prepare", 6)]
    whole: list[At | Frame] = [above, *stack] if above is not None else [*stack]
    return of_ranks(run, SOURCE.format(loop), [("first", 2), ("prepare", 5)], whole, inner)


def of_ranks(
    run: Path, source: str, waits: Sequence[At], works: Sequence[At | Frame], inner: str = s.PYTHON
) -> tuple[str, str]:
    """Headline and advice, where rank 1 waits by these lines, and rank 0 works by those, innermost first."""
    program = str(s.program_in(run, source))
    job = Ranks(2)
    way = [(name, program, line) for name, line in waits]
    box = job.boxes[1]
    by = box.site(("barrier", DISTRIBUTED, 5300), way[0])
    box.collective("barrier", sequence_nr=1, state="failed", group=job.groups[1]["0"], by=by)
    box.at(7000).exception("RuntimeError", TIME_OUT, [("barrier", DISTRIBUTED, 5300), *way]).exit(1)
    job.endings[1] = {"exit_code": 1}
    job.terminated(0)
    stack: list[Frame] = [(frame[0], program, frame[1]) if len(frame) == 2 else frame for frame in works]
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


RECURSIVE = """\
def prepare(path):
    await_file(path)
    dist.barrier()
def await_file(path):
    return os.path.exists(path) or await_file(path)
"""


def test_rank_whose_function_calls_itself_is_not_called_slow(run: Path) -> None:
    """It may call itself until another rank has done something."""
    works = [("await_file", 5), ("await_file", 5), ("prepare", 2)]
    said, do = of_ranks(run, RECURSIVE, [("prepare", 3)], works)
    assert "running" not in f"{said} {do}"


PASSED = """\
def main(cache):
    {0}
        dist.barrier()
    fit(cache)
    {1}
        dist.barrier()
def fit(cache):
    return cache.split()
"""


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("if not os.path.exists(cache):", "if cache:", 3),
        ("for _ in range(2):", "if cache:", 3),
        ("for _ in range(2):", "if cache:", 6),
        ("for _ in range(2):", "while cache:", 6),
    ],
    ids=["branch above", "above", "branch below", "loop below"],
)
def test_rank_that_has_gone_another_way_is_not_called_slow(before: str, after: str, line: int, run: Path) -> None:
    said, do = of_ranks(run, PASSED.format(before, after), [("main", line)], [("fit", 8), ("main", 4)])
    assert "running" not in f"{said} {do}"


def test_rank_before_the_line_at_which_others_wait_is_slow(run: Path) -> None:
    source = PASSED.format("for _ in range(2):", "with cache:")
    _, do = of_ranks(run, source, [("main", 6)], [("fit", 8), ("main", 4)])
    assert "it was slow there rather than waiting. If fit() may take longer" in do


LINES = """\
def prepare(texts):
    rows = {0}
    dist.barrier()
def clean(text):
    return text.split()
"""


def test_comprehension_is_no_function_that_was_called(run: Path) -> None:
    """One call may be quick: what takes long is the line."""
    works = [("clean", 5), ("prepare.<locals>.<listcomp>", 2), ("prepare", 2)]
    said, do = of_ranks(run, LINES.format("[clean(text) for text in texts]"), [("prepare", 3)], works)
    assert "at program.py:5 in clean, in clean(), called at line 2 in prepare." in said
    assert "If what line 2 does may take longer" in do


def test_function_that_a_library_calls_is_below_the_line(run: Path) -> None:
    library = "/venv/lib/python3.11/site-packages/datasets/arrow_dataset.py"
    works: list[At | Frame] = [("clean", 5), ("Dataset.map", library, 3000), ("prepare", 2)]
    said, do = of_ranks(run, LINES.format("texts.map(clean)"), [("prepare", 3)], works)
    assert "was running Python code at program.py:5 in clean, below line 2 in prepare." in said
    assert "clean()" not in do
    assert "See what takes so long below that line, such as line 5 in clean, or " in do


def test_function_that_a_library_may_try_again_and_again_is_not_called_slow(run: Path) -> None:
    library = "/venv/lib/python3.11/site-packages/tenacity/__init__.py"
    works: list[At | Frame] = [("clean", 5), ("Retrying.__call__", library, 475), ("prepare", 2)]
    said, do = of_ranks(run, LINES.format("retry(clean, texts)"), [("prepare", 3)], works)
    assert "rank 0 was at program.py:5 in clean, below line 2 in prepare." in said
    assert "running" not in f"{said} {do}"


def test_loop_of_calls_takes_the_time_rather_than_one_of_them(run: Path) -> None:
    source = LINES.replace("rows = {0}", "for text in texts:\n        clean(text)")
    works = [("clean", 6), ("prepare", 3)]
    _, do = of_ranks(run, source, [("prepare", 4)], works)
    assert "If the loop of line 2 may take longer" in do
