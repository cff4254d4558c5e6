"""DDP with a static graph and a first forward without synchronization, and asserts of its reducer that are others."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.decode.types.journal import Caller, Module
from pytracer.report.job import ExceptionReport, PythonFrame

MESSAGE = 'expect_autograd_hooks_ INTERNAL ASSERT FAILED at "../torch/csrc/distributed/c10d/reducer.cpp":1732, please.'
SOURCE = """net = DDP(Net(), **options)
{0}
for n, x in enumerate(data):
    {1}
        loss = net(x).sum()
        loss.backward()
"""
WITH = "with nullcontext() if n % 4 == 3 else net.no_sync():"
LIBRARY = PythonFrame(function="backward", file="/x/site-packages/torch/autograd/graph.py", line=1)


def said(folder: Path, head: str = WITH, *, more: str = "", static: bool = True, message: str = MESSAGE) -> Explanation:
    """Of a program with these lines, on a rank whose DDP has that option."""
    file = folder / "train.py"
    file.write_text(SOURCE.format(more, head), encoding="utf-8")
    settings: dict[str, bool | float] = {"find_unused_parameters": False, "static_graph": static}
    module = Module("net", (), settings=settings, caller=Caller("<module>", str(file), 1))
    snapshot: Any = SimpleNamespace(
        argv=(),
        created_wall_ns=time.time_ns() + 10**9,
        recorded=lambda kind: [SimpleNamespace(data=module)] * (kind is Module),
    )
    frames = [LIBRARY, PythonFrame(function="<module>", file=str(file), line=6)]
    return explained(snapshot, ExceptionReport(type="RuntimeError", message=message), frames)


@pytest.mark.parametrize(
    ("head", "more", "static", "words"),
    [
        (WITH, "", True, "no_sync() (line 4), for which DDP with static_graph=True (line 1)"),
        ("with fabric.no_backward_sync(net):", "", True, "no_backward_sync() (line 4), for which DDP with static"),
        ("with accelerator.accumulate(net):", "", True, "accumulate() (line 4), for which DDP with static_graph=True"),
        (WITH, "net._set_static_graph()", False, "no_sync() (line 4), for which DDP with _set_static_graph() (line 2)"),
        ("if True:", "net.require_backward_grad_sync = wanted", True, "require_backward_grad_sync off (line 2), for"),
    ],
)
def test_settings_that_lead_there_are_named(head: str, more: str, static: bool, words: str, tmp_path: Path) -> None:
    """By their lines, with what to leave out."""
    found = said(tmp_path, head, more=more, static=static)
    assert found.subject is not None and f"the first forward ran with {words}" in found.subject
    assert found.words is not None and found.words.startswith("Leave out ")
    assert "issues/143580" in found.words


@pytest.mark.parametrize(
    ("head", "more", "static", "message"),
    [
        ("if True:", "", True, MESSAGE),
        ("if True:", "net.require_backward_grad_sync = True", True, MESSAGE),
        (WITH, "", False, MESSAGE),
        (WITH, "", True, MESSAGE.replace("expect_autograd_hooks_", "next_bucket_ == buckets_.size()")),
    ],
    ids=["synchronized", "switched-on", "no-static-graph", "other-assert"],
)
def test_other_programs_and_asserts_are_left_alone(
    head: str, more: str, static: bool, message: str, tmp_path: Path
) -> None:
    """Nothing is named that the program does not do."""
    found = said(tmp_path, head, more=more, static=static, message=message)
    assert found.subject is None
