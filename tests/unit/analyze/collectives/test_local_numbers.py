"""Conditions by a number that each rank computes for itself, and numbers that the ranks share."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support.deaths import advice, summary
from tests.unit.analyze.collectives.test_left_out_calls import NO_MODEL, reported

PROGRAM = """import torch.distributed as dist
def save(val_loss):
    if val_loss >= limit:
        return
    dist.barrier()
def validate(model, loader):
    losses = [loss_of(model, x) for x in loader]
    mean = torch.stack(losses).mean()
    {0}
    return {1}
def main(model, loader):
    for step in range(9):
        val_loss = validate(model, loader)
        save(val_loss)
        dist.broadcast(model, 0)
def agreed(x):
    dist.all_reduce(x)
    return x
"""
WAYS = [("save", 5), ("main", 14)], [("main", 15)]
HEAD = "line 3 (`if val_loss >= limit:`)"


def decided(run: Path, shares: str, given: str) -> Report:
    """Rank 0 is in the barrier, and rank 1 went on."""
    source = PROGRAM.format(shares, given)
    return reported(run, source, [], ("barrier", WAYS[0], [1]), ("broadcast_", WAYS[1], [1]), NO_MODEL)


@pytest.mark.parametrize("given", ["mean.item()", "torch.stack(losses).mean().item()"])
def test_loss_that_each_rank_computes_for_itself(given: str, run: Path) -> None:
    """With the line that takes it out of a tensor, and where to share it."""
    report = decided(run, "pass", given)
    assert f"; {HEAD} skipped the barrier on rank 1, by a `val_loss` of its own (line 10)." in summary(report)
    assert advice(report).startswith(
        f"Line 3 (`if val_loss >= limit:`) decides about the call, and came out differently on rank 1: each rank "
        f"computes `val_loss` for itself (line 10: `{given}`). all_reduce() it there"
    )


@pytest.mark.parametrize(
    ("shares", "given"),
    [
        ("dist.all_reduce(mean)", "mean.item()"),
        ("mean = agreed(mean)", "mean.item()"),
        ("mean = accelerator.gather(mean).mean()", "mean.item()"),
        ("pass", "metric.compute()"),
        ("pass", "agreed(mean).item()"),
    ],
)
def test_number_that_the_ranks_share(shares: str, given: str, run: Path) -> None:
    """The look-alikes: by a collective, by a function of the program, and by one of a library."""
    report = decided(run, shares, given)
    assert f"; {HEAD} skipped the barrier on rank 1." in summary(report)
    assert "for itself" not in advice(report)


EARLY = """import torch.distributed as dist
class Stopper:
    def update(self, value):
        {0}
        self.bad += value > self.best
        return self.bad > 3
def validate(model, loader):
    total, n = 0.0, 0
    for x, y in loader:
        total += loss_of(model(x), y).item() * len(x)
        n += len(x)
    {1}
    return total / n
def main(model, loader):
    stopper = Stopper()
    for epoch in range(int(limit)):
        val_loss = validate(model, loader)
        if stopper.update(val_loss):
            {2}
        dist.barrier()
    dist.broadcast(model, 0)
"""


@pytest.mark.parametrize(
    ("inside", "share", "own"),
    [
        ("pass", "pass", True),
        ("value = reduced(value)", "pass", False),
        ("pass", "total = all_reduced(total)", False),
        ("pass", "n = dist.all_reduce(n)", False),
    ],
)
def test_sum_of_numbers_that_is_passed_to_what_ends_a_loop(inside: str, share: str, own: bool, run: Path) -> None:
    """Added up in a loop, and divided where it is returned; the look-alikes share it, there or where it decides."""
    ways = ([("main", 20)], [("main", 21)])
    source = EARLY.format(inside, share, "break")
    report = reported(run, source, [], ("barrier", ways[0], [1]), ("broadcast_", ways[1], [1]), NO_MODEL)
    said = "each rank computes `val_loss` for itself (line 10: `total += "
    assert (said in advice(report)) == own
    assert ("all_reduce() it before the condition asks" in advice(report)) == own


IN_TEST = """import torch.distributed as dist
def step(model, batch):
    {0}
    kl = {1}
    if {2}:
        return
    dist.barrier()
def main(model, loader):
    for batch in loader:
        step(model, batch)
        dist.broadcast(model, 0)
"""


@pytest.mark.parametrize(
    ("before", "made", "test", "own"),
    [
        ("ratio = model(batch).exp()", "(ratio - 1).mean()", "kl.item() > limit", True),
        ("ratio = model(batch).gather(-1, index)", "(ratio - 1).mean()", "float(kl) > limit", True),
        ("ratio = accelerator.gather(model(batch))", "(ratio - 1).mean()", "kl.item() > limit", False),
        ("ratio = model(batch)", "nn.utils.clip_grad_norm_(model.parameters(), 1.0)", "kl.item() > limit", False),
        ("ratio = model(batch)", "ratio.shape[0]", "kl > limit", False),
        ("ratio = model(batch)", "metric(ratio)", "kl.item() > limit", False),
    ],
)
def test_tensor_that_a_condition_takes_a_number_of(before: str, made: str, test: str, own: bool, run: Path) -> None:
    """The look-alikes: gathered before, the same on all ranks, no number of a tensor, of a library."""
    ways = ([("step", 7), ("main", 10)], [("main", 11)])
    source = IN_TEST.format(before, made, test)
    report = reported(run, source, [], ("barrier", ways[0], [1]), ("broadcast_", ways[1], [1]), NO_MODEL)
    assert (f"each rank computes `kl` for itself (line 4: `{made}`)" in advice(report)) == own


CALLBACK = """import torch.distributed as dist
class ThresholdStopping:
    def __init__(self, monitor="val_acc"):
        self.monitor = monitor
    def on_epoch_end(self, epoch, logs):
        {0}
        if logs[self.monitor] > 0.8:
            return True
        return False
class Trainer:
    def __init__(self, callback):
        self.callback = callback
    def validate(self, model, loader):
        correct, total = 0, 0
        for x, y in loader:
            correct += (model(x).argmax(1) == y).sum().item()
            total += len(y)
        {1}
        return {2}
    def fit(self, model, loader):
        for epoch in range(int(limit)):
            logs = self.validate(model, loader)
            if self.callback.on_epoch_end(epoch, logs):
                break
            dist.barrier()
        dist.broadcast(model, 0)
def main(model, loader):
    trainer = Trainer(ThresholdStopping())
    trainer.fit(model, loader)
main(None, None)
"""
ONE = '{"val_acc": correct / total}'


@pytest.mark.parametrize(
    ("inside", "share", "logs", "own"),
    [
        ("pass", "pass", ONE, True),
        ("logs = reduced(logs)", "pass", ONE, False),
        ("pass", "correct = all_reduced(correct)", ONE, False),
        ("pass", "pass", '{"val_acc": correct / total, "n": total}', False),
        ("logs['val_acc'] = reduced(logs)", "pass", ONE, False),
    ],
    ids=["own", "shared by the callback", "shared where it is counted", "which entry is not known", "set again"],
)
def test_callback_decides_by_a_metric_of_each_rank(inside: str, share: str, logs: str, own: bool, run: Path) -> None:
    """The way of most trainers: a dict of metrics goes to an object that was given to the constructor."""
    source = CALLBACK.format(inside, share, logs)
    outer = [("main", 30), ("<module>", 31)]
    ways = ([("Trainer.fit", 25), *outer], [("Trainer.fit", 26), *outer])
    report = reported(run, source, [], ("barrier", ways[0], [1]), ("broadcast_", ways[1], [1]), NO_MODEL)
    said = "each rank computes `logs[self.monitor]` for itself (line 16: `correct += "
    assert (said in advice(report)) == own


METRICS = """import torch.distributed as dist
class Stopping:
    def on_epoch_end(self, epoch, logs):
        if epoch > 1 and logs["val_acc"] > 0.97:
            return True
        return False
def train(model, loader):
    for x in loader:
        loss = model(x)
    dist.all_reduce(loss)
    return loss
def validate(model, data):
    hits, seen = 0, 0
    for x, y in data:
        hits += right(model(x), y).item()
        seen += len(y)
    return hits / seen
def log(logs):
    dist.all_gather_object([], logs)
def fit(model, loader, data, rank, world):
    stopping = Stopping()
    mine = {0}
    for epoch in range(9):
        loss = train(model, loader)
        logs = {{"loss": loss, "val_acc": {1}}}
        {2}
        if stopping.on_epoch_end(epoch, logs):
            break
        dist.barrier()
    dist.broadcast(model, 0)
"""
STEPS = "data[rank::world]"
OWN = "validate(model, mine)"


def stopped(run: Path, part: str, value: str, more: str, values: bool = True) -> Report:
    """Rank 1 left the loop of line 23."""
    held = [{"epoch": "2", "logs['val_acc']": number} for number in ("0.8", "1.0")] if values else [{}, {}]
    ways = ([("fit", 29)], [("fit", 30)])
    calls = ("barrier", ways[0], [1]), ("broadcast_", ways[1], [1])
    return reported(run, METRICS.format(part, value, more), [[1]] * 3, *calls, NO_MODEL, held)


@pytest.mark.parametrize(
    ("part", "dealt"),
    [
        (STEPS, "line 22: `data[rank::world]`"),
        ("DataLoader(Subset(data, range(rank, 9, world)))", "line 22: `range(rank, 9, world)`"),
        ("DataLoader(data, sampler=DistributedSampler(data))", "line 22: `DistributedSampler(data)`"),
        ("DataLoader(data)", None),
        ("DataLoader(data, shuffle=True)", None),
    ],
)
def test_entry_of_logs_is_followed_to_where_each_rank_computes_it(part: str, dealt: str | None, run: Path) -> None:
    """With the split of the data, if there is one; train() shares another number."""
    report = stopped(run, part, OWN, "print(logs)")
    whole = "a `logs['val_acc']` of its own (1.0; 0.8 on rank 0)"
    assert f"`), by {whole}{', from its own part of the data' if dealt else ''}" in summary(report)
    said = "each rank computes `logs['val_acc']` for itself (line 15: `hits += right(model(x), y).item()`)"
    said += f", from its own part of the data ({dealt}). all_reduce()" if dealt else ". all_reduce()"
    assert said in advice(report).replace("Each", "each")


def test_values_that_are_not_recorded_are_not_said(run: Path) -> None:
    report = stopped(run, STEPS, OWN, "pass", values=False)
    assert "by a `logs['val_acc']` of its own, from its own part of the data" in summary(report)


@pytest.mark.parametrize(
    ("value", "more"),
    [
        ("reduced(validate(model, mine))", "pass"),
        ("metric.compute()", "pass"),
        (OWN, "logs['val_acc'] = reduced(logs)"),
        (OWN, "logs.update(share(logs))"),
        (OWN, "reduce_dict(logs)"),
        (OWN, "log(logs)"),
        (OWN, "logs = reduced(logs)"),
    ],
)
def test_entry_of_logs_that_the_ranks_may_share(value: str, more: str, run: Path) -> None:
    """Where it is made, in the dict, by what is given the dict, or in another one."""
    report = stopped(run, STEPS, value, more)
    assert "of its own" not in summary(report) and "for itself" not in advice(report)
