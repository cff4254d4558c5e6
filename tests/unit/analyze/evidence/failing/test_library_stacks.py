"""What the frames of a library below the line show: a Manager that has ended, samples that a worker cannot join."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import explained
from pytracer.report.job import ExceptionReport, PythonFrame

MANAGERS = "/usr/lib/python3.11/multiprocessing/managers.py"
CONNECTION = "/usr/lib/python3.11/multiprocessing/connection.py"
COLLATE = "/x/site-packages/torch/utils/data/_utils/collate.py"
PROXY = """import multiprocessing as mp
def build():
    {made}
        return manager.dict()
def main():
    print(build()["a"])
main()
"""


def said(
    folder: Path,
    source: str,
    file: str,
    error: tuple[str, str],
    *,
    dataset: str | None = None,
    below: tuple[PythonFrame, ...] = (),
    function: str = "f",
    line: int = 6,
) -> str:
    """Of an exception that a function of this library raised, below line 6. `below`: what that called."""
    program = folder / "train.py"
    program.write_text(source, encoding="utf-8")
    snapshot: Any = SimpleNamespace(
        created_wall_ns=time.time_ns() + 10**9, rank=None, environment={}, argv=("a",), facts=(), named={}
    )
    own = PythonFrame(function="main", file=str(program), line=line)
    stack = [*below, PythonFrame(function=function, file=file, line=9), own]
    return explained(snapshot, ExceptionReport(type=error[0], message=error[1]), stack, dataset).words or ""


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("with mp.Manager() as manager:", "the `with` of line 3 (`mp.Manager()`) ends it where its block is left"),
        ("manager = mp.Manager()\n    if True:", "it ends by shutdown(), with the process that made it (line 3)"),
        (
            "manager = mp.Manager().Namespace()\n    if True:",
            "(`mp.Manager().Namespace`) has no name, and ends with what",
        ),
        ("with begun() as manager:", "it had ended. Keep the Manager for as long as what it gave is used"),
    ],
    ids=["a block", "a name", "no name", "elsewhere"],
)
def test_manager_that_does_not_answer(made: str, words: str, tmp_path: Path) -> None:
    """By the line that makes it."""
    source, gone = PROXY.format(made=made), ("FileNotFoundError", "[Errno 2] No such file or directory")
    below = (PythonFrame(function="Client", file=CONNECTION, line=518),)
    assert words in said(tmp_path, source, MANAGERS, gone, below=below)
    assert "Manager" not in said(tmp_path, source, MANAGERS.replace("managers", "queues"), gone, below=below)


def test_manager_that_lives_or_never_was_did_not_end(tmp_path: Path) -> None:
    """What an object there raises comes from the proxy itself; a server of another program may not listen yet."""
    source, gone = (
        PROXY.format(made="manager = mp.Manager()\n    if True:"),
        ("FileNotFoundError", "[Errno 2] vocab.json"),
    )
    below = (PythonFrame(function="Client", file=CONNECTION, line=518),)
    assert "did not answer" not in said(tmp_path, source, MANAGERS, gone, function="BaseProxy._callmethod")
    for function in ("BaseManager.connect", "BaseManager.start"):
        assert "did not answer" not in said(tmp_path, source, MANAGERS, gone, function=function, below=below)


def test_block_of_a_manager_that_is_not_left_is_not_blamed(tmp_path: Path) -> None:
    """The line that uses it is in that block."""
    source, gone = PROXY.format(made="with mp.Manager() as manager:"), ("ConnectionRefusedError", "[Errno 111]")
    below = (PythonFrame(function="Client", file=CONNECTION, line=518),)
    assert "the `with`" not in said(tmp_path, source, MANAGERS, gone, below=below, line=4)


def test_samples_of_different_dtypes(tmp_path: Path) -> None:
    """A worker joins them in memory of the first one's; elsewhere the message is about something else."""
    source = PROXY.format(made="if True:")
    error = ("TypeError", "torch.cat(): input types can't be cast to the desired output type Long")
    found = said(tmp_path, source, COLLATE, error, dataset="train.Rows")
    assert "joins them in memory for the first one's, Long, which cannot hold the others'" in found
    assert "Let Rows.__getitem__() return one dtype for all" in found
    assert "samples" not in said(tmp_path, source, "/x/site-packages/torch/functional.py", error)
