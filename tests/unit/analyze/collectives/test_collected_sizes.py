"""Tensors of other sizes that each rank put together from what it had collected: none of them is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support.deaths import advice, finding, summary
from tests.unit.analyze.collectives.test_sizes import reported

METER = """class Meter:
    def __init__(self):
        self.scores, self.names = [], []
    def update(self, logits, net):
        for one in {2}:
            self.scores.append({0})
    def gather(self, x):
        parts = [torch.zeros_like(x) for _ in range(2)]
        dist.all_gather(parts, x)
    def compute(self):
        return self.gather({1})
"""
WAY = [("Meter.gather", 9), ("Meter.compute", 11)]


def report_of(run: Path, joined: str, added: str = "one.sigmoid()", over: str = "logits") -> Report:
    return reported(run, METER.format(added, joined, over), WAY, ([[277]], [[265]]), "allgather_")


@pytest.mark.parametrize("joined", ["torch.cat(self.scores)", "torch.cat(self.scores, dim=0).float().cpu()"])
def test_what_each_rank_has_collected_is_gathered_with_its_sizes(joined: str, run: Path) -> None:
    """The repair is in the gather: no rank is wrong, and samples that are dropped would be missing in the result."""
    report = report_of(run, joined)
    said = advice(report)
    assert "line 11 (`torch.cat(self.scores" in said and "joins what each rank has collected" in said
    assert "line 6: `self.scores.append(one.sigmoid())`" in said
    assert "line 8 (`torch.zeros_like(x)`) takes the rank's own size for that of all" in said
    assert "all_gather() the sizes first, pad to the largest and cut afterwards; or all_gather_object()" in said
    assert "drop_last" not in said and "vocabulary" not in said
    assert "; the size comes from line 11 (`torch.cat(self.scores" in summary(report)
    found = finding(report, "collective-mismatch")
    assert found is not None and not found.missing


@pytest.mark.parametrize(
    ("joined", "added", "over"),
    [
        ("torch.cat([self.first, self.second])", "one", "logits"),  # a fixed number of parts
        ("torch.cat(self.names)", "one", "logits"),  # nothing adds to that list
        ("torch.cat(self.scores)", "one.grad.flatten()", "net.parameters()"),  # packed: padding would mix them up
        ("torch.cat(self.scores)", "one", "net.state_dict().values()"),
        ("torch.cat(self.scores, dim=1)", "one", "logits"),  # another dimension than the one that differs
    ],
)
def test_other_tensors_that_are_joined_are_not_said_to_be_collected(
    joined: str, added: str, over: str, run: Path
) -> None:
    assert "has collected" not in advice(report_of(run, joined, added, over))


LOCAL = """def evaluate(loader):
    found = []
    for x in loader:
        found.extend(net(x))
    mine = torch.{0}(found)
    dist.{1}
"""


@pytest.mark.parametrize(
    ("joined", "call", "op", "named"),
    [
        ("stack", "all_gather(everything, mine)", "allgather_", True),
        ("tensor", "all_gather_into_tensor(everything, mine)", "_allgather_base_", True),
        ("stack", "all_reduce(mine)", "allreduce_", False),  # which adds entry to entry
    ],
)
def test_list_of_a_function_is_collected_too(joined: str, call: str, op: str, named: bool, run: Path) -> None:
    sizes: Sequence[Sequence[Sequence[int]]] = ([[30, 4]], [[28, 4]])
    report = reported(run, LOCAL.format(joined, call), [("evaluate", 6)], (sizes[0], sizes[1]), op)
    assert ("joins what each rank has collected (line 4: `found.extend(net(x))`)" in advice(report)) == named
    assert "takes the rank's own size" not in advice(report)


@pytest.mark.parametrize(("made", "own"), [("own.shape", True), ("own.size()", True), ("size", False)])
def test_results_as_large_as_the_own_tensor_are_named(made: str, own: bool, run: Path) -> None:
    source = f"""def evaluate(loader):
    found = [net(loader[0])]
    for x in loader:
        found.append(net(x))
    own = torch.cat(found)
    every = [torch.zeros({made}) for _ in range(2)]
    dist.all_gather(every, own)
"""
    said = advice(reported(run, source, [("evaluate", 7)], ([[30, 4]], [[28, 4]]), "allgather_"))
    assert (f"line 6 (`torch.zeros({made})`) takes the rank's own size" in said) == own
