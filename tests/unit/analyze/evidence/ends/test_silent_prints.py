"""Messages that a rank printed in vain, as the program replaces print() there, and those that may have appeared."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.ends.exit_calls import printed_before
from pytracer.report.job import PythonFrame

PROGRAM = """\
import builtins, sys
import torch.distributed as dist
def train(loss):
    {says}
    sys.exit(1)
{setup}
train(1)
"""
BY_FLAG = """\
def setup(is_master):
    shown = builtins.print
    def print(*args, **kwargs):
        force = kwargs.pop("force", False)
        if is_master{other}:
            shown(*args, **kwargs)
    builtins.print = print
setup({given})"""
FORCED = BY_FLAG.format(other=" or force", given="dist.get_rank() == 0")
ONLY = BY_FLAG.format(other="", given="dist.get_rank() == 0")
QUIET = """\
def nothing(*args):
    pass
if rank != 0:
    builtins.print = nothing"""
SAYS = "print(f'Loss is {loss}')"


def said(folder: Path, setup: str, says: str = SAYS, rank: int | None = 1) -> str:
    """Of the line before sys.exit()."""
    file = folder / "train.py"
    file.write_text(PROGRAM.format(says=says, setup=setup), encoding="utf-8")
    held = SimpleNamespace(rank=rank) if rank is not None else None
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, rank=held, environment={}, argv=("a",))
    return printed_before(snapshot, PythonFrame(function="train", file=str(file), line=5)) or ""


@pytest.mark.parametrize(
    ("setup", "by", "out"),
    [
        (FORCED, "line 12 replaces print() by one that prints only where `is_master or force` holds", "force"),
        (ONLY, "line 12 replaces print() by one that prints only where `is_master` holds (line 10)", "sys.stderr"),
        (QUIET, "line 9 replaces print() by one that prints nothing on this rank", "sys.stderr"),
        (QUIET.replace("nothing(*args)", "nothing(*args, **kw)"),
         "line 9 replaces print() by one that prints nothing on this rank", "sys.stderr"),
    ],
)  # fmt: skip
def test_message_that_does_not_appear(setup: str, by: str, out: str, tmp_path: Path) -> None:
    """By a flag of rank 0, or below a condition on the rank."""
    found = said(tmp_path, setup)
    assert f"Line 4's message (`f'Loss is {{loss}}'`) probably does not appear on rank 1, as {by}" in found
    assert out in found


@pytest.mark.parametrize(
    ("setup", "says", "rank"),
    [
        (FORCED, "print('a', force=True)", 1),
        (FORCED, "print('a', file=sys.stderr)", 1),
        (FORCED, "log.error('a')", 1),
        (FORCED, SAYS, 0),
        (FORCED, SAYS, None),
        (BY_FLAG.format(other="", given="True"), SAYS, 1),
        (BY_FLAG.format(other=" or verbose", given="dist.get_rank() == 0"), SAYS, 1),
        (QUIET.replace("!=", "=="), SAYS, 1),
        (QUIET.replace("rank != 0", "quiet"), SAYS, 1),
        (QUIET.replace("pass", "log(*args)"), SAYS, 1),
        (QUIET + "\n    builtins.print = shown", SAYS, 1),
        ("pass", SAYS, 1),
        (QUIET.replace("rank != 0", "args.many and rank != 0"), SAYS, 1),
        (FORCED.replace("        if is", "        force = force or dist.get_world_size() > 8\n        if is"), SAYS, 1),
        (FORCED.replace("setup(d", "if args.quiet: setup(d"), SAYS, 1),
        (FORCED.replace("dist.get_rank() == 0", "local_rank == 0"), SAYS, 1),
        (QUIET.replace("rank", "local_rank"), SAYS, 1),
        (FORCED + "\nfrom rich import print", SAYS, 1),
        (FORCED + "\nprint = functools.partial(print, flush=True)", SAYS, 1),
    ],
)
def test_message_that_may_have_appeared(setup: str, says: str, rank: int | None, tmp_path: Path) -> None:
    """It is forced, or goes elsewhere; it is rank 0's; the replacement is not known to be quiet, or is put back, or is
    made only where a flag is set; the rank of the host is another one; the name is bound to something else."""
    assert "does not appear" not in said(tmp_path, setup, says, rank)
