"""A request for too much memory: the expression of the line that makes so much, and what is not said of other ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.line import failing_line
from pytracer.analyze.evidence.failing.tensors.requested import requested
from tests.unit.analyze.evidence.test_failing import of_program

pytest.importorskip("torch")

N = 1 << 23  # 8388608; squared, more than an address space has
PROGRAMS = [
    (
        f"""
returns = torch.zeros({N})
net = nn.Linear(1, 1)
values = net(torch.zeros({N}, 1))
loss = ((returns - values.detach()) ** 2).mean()
""",
        "`returns` [8388608] and `values.detach()` [8388608, 1] broadcast to [8388608, 8388608]",
        "Give both one shape: `values.detach().squeeze(-1)` [8388608], or `returns.unsqueeze(-1)` [8388608, 1].",
        True,
    ),
    (
        f"""
criterion = nn.MSELoss()
def step(out, y):
    return criterion(out, y)
step(torch.zeros({N}, 1), torch.zeros({N}))
""",
        "`out` [8388608, 1] and `y` [8388608] broadcast to",
        "`out.squeeze(-1)` [8388608]",
        True,
    ),
    (
        f"x = torch.zeros({N}, 1, 1)\ny = x.unsqueeze(2).repeat(1, 1, {N}, 1)\n",
        "`x.unsqueeze(2).repeat(1, 1, 8388608, 1)` copies `x.unsqueeze(2)` [8388608, 1, 1, 1] out to",
        "Use it without the copy (an expanded view takes no memory)",
        False,
    ),
    (
        f"a = torch.zeros({N}, 2)\nb = torch.zeros({N}, 2)\nd = (a[:, None] - b[None]).pow(2).sum(-1)\n",
        "`a[:, None]` [8388608, 1, 2] and `b[None]` [1, 8388608, 2] broadcast to [8388608, 8388608, 2]",
        "Of distances, torch.cdist() makes only [8388608, 8388608], 256.0 TiB.",
        False,
    ),
    (
        f"x = torch.zeros({N})\ncol = x.view(-1, 1)\ngap = x < col\n",
        "`x` [8388608] and `col` [8388608, 1] broadcast to [8388608, 8388608]",
        None,
        False,
    ),
    (
        f"emb = torch.zeros({N}, 2)\nscores = emb @ emb.T\n",
        "`emb @ emb.T` makes [8388608, 8388608] of `emb` [8388608, 2] and `emb.T` [2, 8388608]",
        "Do it in blocks of rows",
        False,
    ),
    (
        f"emb = torch.zeros({N}, 2)\nscores = torch.cdist(emb, emb)\n",
        "`torch.cdist(emb, emb)` makes [8388608, 8388608]",
        "Do it in blocks of rows",
        False,
    ),
    (
        f"import torch.nn.functional as F\nids = torch.zeros({N}, dtype=torch.long)\nhot = F.one_hot(ids, {N})\n",
        "`F.one_hot(ids, 8388608)` makes [8388608, 8388608] of `ids` [8388608]",
        "F.cross_entropy() take",
        False,
    ),
    (
        f"mask = torch.zeros(1, {N})\nfull = mask.expand({N}, -1).contiguous()\n",
        "copies `mask` [1, 8388608] out to [8388608, 8388608]",
        "Use it without the copy",
        False,
    ),
    (
        f"n = {N}\nadjacency = torch.zeros(n, n)\n",
        "`torch.zeros(n, n)` is [8388608, 8388608]",
        "`n` is 8388608",
        False,
    ),
    (
        f"""
x = torch.zeros({N}, 2)
some = x.unsqueeze(1).expand(-1, {N}, -1)
more = x.unsqueeze(0).expand({N}, -1, -1)
pairs = torch.cat([some, more], -1)
""",
        "`torch.cat([some, more], -1)` makes [8388608, 8388608, 4]",
        "Do it in blocks of rows",
        False,
    ),
]


def _judge(snapshot: Any, report: Any, stack: Any) -> str:
    at = failing_line(snapshot, report, stack)
    found = requested(at) if at is not None else None
    return f"{found.subject}|{found.advice}|{found.accidental}" if found is not None else "nothing"


@pytest.mark.parametrize(("source", "subject", "advice", "accidental"), PROGRAMS)
def test_expression_that_makes_the_bytes_of_the_request_is_named(
    source: str, subject: str, advice: str | None, accidental: bool, tmp_path: Path
) -> None:
    """With the shapes of its operands, and whether no larger memory would help."""
    said = (of_program(tmp_path, source, _judge) or "").split("|")
    assert subject in said[0] and len(said[0]) < 190
    assert (advice or "") in said[1] and said[2] == str(accidental), said


@pytest.mark.parametrize(
    "source",
    [
        # no result of the line has so many bytes
        "raise RuntimeError('DefaultCPUAllocator: you tried to allocate 192 bytes', torch.ones(8) + torch.ones(8, 1))",
        # no larger than what it is made of: that is what is large
        f"x = torch.zeros({N})\nraise RuntimeError('you tried to allocate {4 * N} bytes', x + 1)",
    ],
)
def test_nothing_is_said_of_another_size(source: str, tmp_path: Path) -> None:
    """Nor of a result that is not larger than its operands."""
    assert of_program(tmp_path, source, _judge) == "nothing"
