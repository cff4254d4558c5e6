"""Processes of classes of the program's own: what their run() raises is recorded, and nothing of them is changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conditions import needs_native
from tests.support.crash import environment, traced_run
from tests.support.deaths import summary, verdict

pytestmark = needs_native

PROGRAM = """\
import inspect
import multiprocessing as mp
import sys
import typing

import torch

T = typing.TypeVar("T")


class Loader(mp.get_context(sys.argv[1]).Process, typing.Generic[T]):
    kinds = []

    def __init__(self, shard, rows):
        super().__init__(name=f"loader-{shard}", daemon=True)
        self.shard, self.rows = shard, rows

    def __init_subclass__(cls, /, kind="plain", **keywords):
        super().__init_subclass__(**keywords)
        Loader.kinds.append(kind)

    def run(self):
        rows = torch.arange(self.rows).tolist()
        print(self.name, rows[self.shard], flush=True)


class Checked(Loader[int], kind="checked"):
    def run(self):
        super().run()


if __name__ == "__main__":
    print(Loader.kinds, Loader.__parameters__, inspect.signature(Checked.run), Checked.run.__qualname__)
    for loader in (Loader(1, 3), Checked(2, int(sys.argv[2]))):
        loader.start()
        loader.join()
        print(loader.exitcode, flush=True)
    sys.exit(loader.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_run_of_a_class_raises_is_told_with_its_variables(method: str, tmp_path: Path) -> None:
    program = tmp_path / "load.py"
    program.write_text(PROGRAM, encoding="utf-8")
    ended = traced_run(sys.executable, program, method, "2", run=tmp_path / "run")
    report = ended.report
    assert verdict(report) == ("python-exception", "certain")
    told = summary(report)
    assert told.startswith("Multiprocessing process loader-2 (pid ")
    assert "raised IndexError: list index out of range at load.py:24 in Loader.run" in told
    died = [item for item in report.processes or [] if item.exception is not None]
    assert len(died) == 1 and (died[0].name or "").endswith("loader-2")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_classes_are_what_they_are_untraced(method: str, tmp_path: Path) -> None:
    """Their keywords, parameters, signature and names; and what they print."""
    program = tmp_path / "load.py"
    program.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, str(program), method, "4"]
    plain = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    ended = traced_run(*command, run=tmp_path / "run")
    assert (ended.status, ended.stdout) == (plain.returncode, plain.stdout)
    assert "['checked'] (~T,) (self) Checked.run" in plain.stdout and "loader-2 2" in plain.stdout


DIRECTLY = PROGRAM.replace("loader.start()", "loader.run()").replace("loader.join()", "pass")


def test_run_that_the_program_calls_itself_gives_its_process_no_other_name(tmp_path: Path) -> None:
    """As it does to look for an error, without processes."""
    program = tmp_path / "load.py"
    program.write_text(DIRECTLY, encoding="utf-8")
    report = traced_run(sys.executable, program, "fork", "2", run=tmp_path / "run").report
    assert verdict(report) == ("python-exception", "certain")
    assert summary(report).startswith("Process ") and "(load.py) raised IndexError" in summary(report)
