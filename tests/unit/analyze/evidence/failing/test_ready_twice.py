"""Parameters that DDP saw ready twice: which checkpoint() or forward it is, and what is left alone."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.decode.types.journal import Caller, Module
from pytracer.report.job import ExceptionReport, PythonFrame

MESSAGE = "Expected to mark a variable ready only once. This error is caused by one of the following reasons: 1) Use."
NAMED = f"{MESSAGE} Parameter at index 3 with name blocks.2.weight has been marked as ready twice."
SOURCE = """class Net(nn.Module):
    def forward(self, x, y=0):
        for block in self.blocks:
            {first}
        {second}
        return x
net = DDP(Net())
for x in data:
    {before}
    loss = net(x).sum()
    loss.backward()
"""
LIBRARY = PythonFrame(function="backward", file="/x/site-packages/torch/autograd/graph.py", line=1)


def said(
    folder: Path, message: str = NAMED, settings: dict[str, bool | float] | None = None, **parts: str
) -> Explanation:
    """Of a program with those lines, on a rank whose DDP has those settings."""
    file = folder / "train.py"
    texts = {"first": "x = block(x)", "second": "pass", "before": "pass", **parts}
    file.write_text(SOURCE.format(**texts), encoding="utf-8")
    held: dict[str, bool | float] = settings or {"find_unused_parameters": True, "static_graph": False}
    usual: dict[str, bool | float] = {"find_unused_parameters": True, "static_graph": False}
    held = usual if settings is None else settings
    module = Module("net", (), settings=held, caller=Caller("<module>", str(file), 7))
    snapshot: Any = SimpleNamespace(
        argv=(),
        created_wall_ns=time.time_ns() + 10**9,
        recorded=lambda kind: [SimpleNamespace(data=module)] * (kind is Module),
    )
    frames = [LIBRARY, PythonFrame(function="<module>", file=str(file), line=11)]
    return explained(snapshot, ExceptionReport(type="RuntimeError", message=message), frames)


@pytest.mark.parametrize(
    "call", ["checkpoint(block, x, use_reentrant=True)", "checkpoint.checkpoint(block, x)", "checkpoint(block, x)"]
)
def test_reentrant_checkpoint_below_unused_parameters(call: str, tmp_path: Path) -> None:
    """It is reentrant also where the call does not say so."""
    found = said(tmp_path, first=f"x = {call}")
    assert (
        found.subject
        == "the reentrant checkpoint() of line 4 does not go with DDP(find_unused_parameters=True) (line 7)"
    )
    assert (
        found.words is not None and "Write checkpoint(..., use_reentrant=False) at line 4; or leave out" in found.words
    )


@pytest.mark.parametrize(
    ("parts", "where"),
    [
        ({"first": "x = checkpoint(self.mix, x)"}, "in each round of the loop of line 3 (line 4)"),
        ({"second": "x = checkpoint(self.mix, x); y = checkpoint(self.mix, y)"}, "twice (line 5 and line 5)"),
    ],
)
def test_module_that_several_checkpoints_run(parts: dict[str, str], where: str, tmp_path: Path) -> None:
    """Without a search for unused parameters."""
    found = said(tmp_path, MESSAGE, {"find_unused_parameters": False}, **parts)
    assert found.subject == f"`self.mix` runs in reentrant checkpoint() {where}"


def test_two_forwards_before_one_backward(tmp_path: Path) -> None:
    """The last one's result alone is searched."""
    found = said(tmp_path, before="other = net(x + 1)")
    assert found.subject is not None and "net() is called at lines 9 and 10 before one backward()" in found.subject


@pytest.mark.parametrize(
    ("first", "ran"),
    [
        ("x = checkpoint(block, x) if self.saves else self.head(block(x))", False),
        ("x = self.head(checkpoint(lambda y: block(y), x))", False),
        ("inner = self.head[0]; x = checkpoint(inner, x)", True),
        ("x = checkpoint(lambda y: self.head(block(y)), x)", True),
    ],
)
def test_checkpoint_that_does_not_run_the_parameter_is_not_the_reason(first: str, ran: bool, tmp_path: Path) -> None:
    """Two forwards are, where the function of the checkpoint() only names the parameter's module beside it."""
    found = said(tmp_path, NAMED.replace("blocks.2", "head.0"), first=first, before="other = net(x + 1)")
    assert found.subject is not None and ("reentrant checkpoint() of line 4" in found.subject) == ran
    assert ("net() is called at lines 9 and 10" in found.subject) == (not ran)


@pytest.mark.parametrize(
    ("settings", "message", "parts"),
    [
        (None, NAMED, {"first": "x = checkpoint(block, x, use_reentrant=False)"}),
        (None, NAMED.replace("blocks", "head"), {"first": "x = checkpoint(block, x)"}),
        (None, NAMED, {"before": "net(x).sum().backward()"}),
        (None, NAMED, {"before": "other(x)"}),
        (None, NAMED, {"before": "with torch.no_grad(): other = net(x)"}),
        ({}, NAMED, {"first": "x = checkpoint(block, x)"}),
        ({"find_unused_parameters": True, "static_graph": True}, NAMED, {"first": "x = checkpoint(block, x)"}),
        ({"find_unused_parameters": False}, NAMED, {"first": "x = checkpoint(block, x)"}),
        ({"find_unused_parameters": False}, NAMED, {"before": "other = net(x)"}),
        (None, "Expected to have finished reduction in the prior iteration", {"first": "x = checkpoint(block, x)"}),
    ],
)
def test_near_cases_are_left_to_the_table(
    settings: dict[str, bool | float] | None, message: str, parts: dict[str, str], tmp_path: Path
) -> None:
    """Not reentrant, another parameter, a backward of its own, settings that are not recorded."""
    found = said(tmp_path, message, settings, **parts)
    assert (found.words, found.failure) == (None, None)
