"""The package multiprocess, which is multiprocessing with another pickle, and code that a library makes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import ended, parent, stopped
from tests.support.synth import Box, Frame

MP = "/opt/env/lib/python3.11/site-packages/multiprocess"
DATASETS = "/opt/env/lib/python3.11/site-packages/datasets"
GOMP = f"{s.TORCH}/lib/libgomp.so.1"
FILL: list[tuple[str, int]] = [(GOMP, 0x1000), (GOMP, 0x1010), (s.TORCH_CPU, 0x9900)]
SOURCE = """import multiprocess as mp
def main(rows, model):
    train = rows.map(model.embed, batched=True, num_proc=2)
    with mp.Pool(2) as pool:
        pool.map(embed, rows)
"""
MODEL = "def embed(batch):\n    return net(batch)\n"
ASKS: list[Frame] = [
    ("Connection._recv", f"{MP}/connection.py", 398),
    ("Connection._recv_bytes", f"{MP}/connection.py", 433),
    ("_ConnectionBase.recv", f"{MP}/connection.py", 253),
    ("BaseProxy._callmethod", f"{MP}/managers.py", 822),
    ("get", "<string>", 2),
    ("iflatmap_unordered", f"{DATASETS}/utils/py_utils.py", 610),
]
FORK: list[Frame] = [
    ("worker", f"{MP}/pool.py", 125),
    ("BaseProcess._bootstrap", f"{MP}/process.py", 314),
    ("Popen._launch", f"{MP}/popen_fork.py", 71),
    ("Pool.__init__", f"{MP}/pool.py", 215),
]


def scripts(run: Path) -> tuple[str, str]:
    own, model = run / "train.py", run / "model.py"
    own.write_text(SOURCE)
    model.write_text(MODEL)
    for path in (own, model):
        os.utime(path, (0, 0))
    return str(own), str(model)


def worker() -> Box:
    """A copy of its parent."""
    box = Box(pid=102, ppid=101, created_ns=6_000_000_000).at(-500).versions(torch="2.13.0").at(100)
    return box.mark("begin")


def mapped(run: Path, *, stands: bool = True) -> Report:
    """Dataset.map() with processes; its worker stands in OpenMP, or computes."""
    own, model = scripts(run)
    call: list[Frame] = [("Dataset.map", f"{DATASETS}/arrow_dataset.py", 3627), ("main", own, 3)]
    inner: list[Frame] = [("embed", model, 2), ("_map_single", f"{DATASETS}/arrow_dataset.py", 4008), *FORK, *call]
    native = FILL if stands else [(s.TORCH_CPU, 0x9900)]
    return ended(run, stopped(parent(), [*ASKS, *call]), stopped(worker(), inner, native))


def test_parent_that_asks_the_queue_of_a_manager_waits_for_its_forked_worker(run: Path) -> None:
    """The line of the program, what the library made of it, and what to do where the pool is not the program's."""
    report = mapped(run)
    assert verdict(report) == ("hang", "likely")
    assert summary(report).startswith(
        "Process pool worker (pid 102) waited in the OpenMP runtime of a forked child at model.py:2 in embed; its "
        "parent had used OpenMP threads before it forked at train.py:3 in main"
    )
    assert "train.py:3 (`rows.map(" in advice(report)
    assert "lets datasets fork the worker" in advice(report)
    assert "torch.set_num_threads(1) first in `embed` (line 2), or leave `num_proc` out" in advice(report)


def test_parent_of_a_worker_that_computes_asks_its_queue(run: Path) -> None:
    """The look-alike. The call that waits is told at the line of the program: `<string>` has none."""
    report = mapped(run, stands=False)
    assert verdict(report)[0] == "external-kill"
    assert "OpenMP" not in summary(report)
    assert "<string>" not in summary(report)


def test_pool_of_the_package_is_made_by_its_own_context(run: Path) -> None:
    """Where the program itself makes it."""
    own, model = scripts(run)
    inner: list[Frame] = [("embed", model, 2), *FORK, ("main", own, 4)]
    pool: list[Frame] = [("ApplyResult.wait", f"{MP}/pool.py", 765), ("main", own, 5)]
    report = ended(run, stopped(parent(), pool), stopped(worker(), inner, FILL))
    assert "waited in the OpenMP runtime of a forked child at model.py:2 in embed" in summary(report)
    assert 'multiprocess.get_context("spawn").Pool' in advice(report)
    assert "fork the worker" not in advice(report)


@pytest.mark.parametrize(("argv", "line"), [(("python", "train.py"), 3), (("python", "-c", "step(Row(1))"), 7)])
def test_code_without_a_file_is_the_program_only_where_its_command_line_has_it(
    argv: tuple[str, ...], line: int, run: Path
) -> None:
    """A named tuple, a dataclass; `python -c` has no other code."""
    own, _ = scripts(run)
    box = Box(pid=101, ppid=90, argv=argv).versions(torch="2.13.0")
    report = ended(run, stopped(box, [("Row.__new__", "<string>", 7), ("main", own, 3)], [(s.TORCH_CPU, 0x9900)]))
    assert f":{line} in " in summary(report)
