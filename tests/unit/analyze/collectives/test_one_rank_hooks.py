"""A collective below Lightning's prepare_data(), and stacks that only look like it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pytracer.analyze.collectives.one_rank_hooks import hook_words
from pytracer.report.job import PythonFrame

FOLDER = "/env/lib/python3.11/site-packages/lightning"
BUILD = PythonFrame(function="build", file="/home/cache.py", line=25)
HOOK = PythonFrame(function="Rows.prepare_data", file="/home/data.py", line=31)
CALLER = PythonFrame(function="call_hook", file=f"{FOLDER}/pytorch/trainer/call.py", line=202)
MAIN = PythonFrame(function="main", file="/home/main.py", line=9)
EXIT = PythonFrame(function="_InfiniteBarrier.__exit__", file=f"{FOLDER}/fabric/utilities/distributed.py", line=428)
OPS = ["barrier", "monitored_barrier"]


def said(one: list[PythonFrame], other: list[PythonFrame]) -> tuple[str, str] | None:
    views: list[Any] = [SimpleNamespace(python_stack=stack) for stack in (one, other)]
    return hook_words(views, OPS)


def test_the_line_of_the_hook_is_named() -> None:
    found = said([BUILD, HOOK, CALLER, MAIN], [EXIT, CALLER, MAIN])
    assert found is not None
    assert found[0].startswith("Lightning calls Rows.prepare_data() on local rank 0 only, and data.py:31 in it leads")
    assert "Or call it from setup()" in found[1]


def test_silent_where_the_program_calls_it_itself_or_both_are_in_it_or_the_other_waits_elsewhere() -> None:
    assert said([BUILD, HOOK, MAIN], [EXIT, CALLER, MAIN]) is None
    assert said([BUILD, HOOK, CALLER, MAIN], [BUILD, HOOK, CALLER, MAIN]) is None
    assert said([BUILD, HOOK, CALLER, MAIN], [CALLER, MAIN]) is None
    assert said([], []) is None
