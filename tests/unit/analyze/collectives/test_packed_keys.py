"""Tensors packed of a dict's values, of which a branch sets some on one rank only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.deaths import advice, summary
from tests.unit.analyze.collectives.test_sizes import Sizes, reported

SIZES = ([[4]], [[2]])
# The dict is made by a criterion that the step calls, and what that looks at by a model.
TRAINING = """class Net(nn.Module):
    def forward(self, x, boxes):
        out = {"logits": self.head(x)}
        most = max(len(b) for b in boxes)
        if most > 0:
            out["dn"] = self.head(boxes)
        return out
class Criterion:
    def __call__(self, out, boxes):
        losses = dict(l1=self.l1(out), obj=self.obj(out))
        if "dn" in out:
            losses["l1_dn"], losses["obj_dn"] = self.both(out["dn"])
        return losses
class Trainer:
    def __init__(self):
        self.criterion = Criterion()
        self.net = DistributedDataParallel(Net())
    def step(self, x, boxes):
        losses = self.criterion(self.net(x, boxes), boxes)
        return average(losses)
def average(losses):
    PACK
    dist.all_reduce(values)
"""
WAY = [("average", 23), ("Trainer.step", 20)]
PACKS = [
    "values = torch.stack([losses[k].detach() for k in sorted(losses)])",
    "names = sorted(losses.keys())\n    values = torch.stack([losses[k] for k in names]).to(device)",
    "values = torch.stack(list(losses.values()))",
    "values = torch.tensor([float(v) for v in losses.values()])",
    "kept = {k: v.detach() for k, v in losses.items()}\n    values = torch.stack(tuple(kept.values()))",
    "values = torch.cat([v.view(1) for v in losses.values()])",
]
FILLED = """def average(losses):
    names, parts = [], []
    values = []
    for k in sorted(losses.keys()):
        names.append(k)
        values.append(losses[k])
    values = torch.stack(values, dim=0)
    dist.all_reduce(values)
"""
UPDATED = """def log(batch):
    terms = {"a": one(batch), "b": two(batch)}
    if batch.has_masks:
        terms.update(masks=three(batch), edges=four(batch))
    values = torch.stack(list(terms.values()))
    dist.all_reduce(values)
"""


@pytest.mark.parametrize("pack", PACKS)
def test_branch_that_adds_keys_is_named_with_the_one_behind_its_test(pack: str, run: Path) -> None:
    """However the values are packed."""
    source = TRAINING.replace("PACK", pack)
    report = reported(run, source, [("average", source.count("\n")), WAY[1]], SIZES)
    assert (
        'one for each key of `losses` (line 10), of which 2 are set only below line 11 (`if "dn" in out:`), and `dn` '
        "is set only below line 5 (`if most > 0:`)." in summary(report)
    )
    said = advice(report)
    assert said.startswith("Make every rank set the same keys in `losses` before this all_reduce(): run what is below ")
    assert "line 5 (`if most > 0:`) on all ranks" in said
    assert "(line 4: `most = max(len(b) for b in boxes)`), or fill the missing keys with zeros first." in said
    assert "Do not pad or cut the tensor" in said


def test_list_that_a_loop_fills(run: Path) -> None:
    """As DETR's utilities do it."""
    source = TRAINING[: TRAINING.index("def average")].replace("PACK", "") + FILLED
    report = reported(run, source, [("average", 28), ("Trainer.step", 20)], SIZES)
    assert "one for each key of `losses` (line 10), of which 2 are set only below line 11" in summary(report)


def test_keys_by_update_of_the_same_function(run: Path) -> None:
    """No other branch is behind that one."""
    report = reported(run, UPDATED, [("log", 6)], SIZES)
    assert (
        "one for each key of `terms` (line 2), of which 2 are set only below line 3 (`if batch.has_masks:`)."
        in summary(report)
    )


def test_rows_of_each_key(run: Path) -> None:
    """Each value is a vector, of which stack() makes a row; or cat() joins all."""
    assert "one row for each key" in summary(reported(run, UPDATED, [("log", 6)], ([[4, 7]], [[2, 7]])))
    joined = UPDATED.replace("stack", "cat")
    assert "; 3 for each key" in summary(reported(run, joined, [("log", 6)], ([[12]], [[6]])))


def test_dict_that_is_filled_by_the_caller_too(run: Path) -> None:
    """A key that it always adds counts on both ranks."""
    end = "        return average(losses)"
    source = TRAINING.replace(end, f"        losses['all'] = total(losses)\n{end}")
    way = [("average", 24), ("Trainer.step", 21)]
    report = reported(run, source.replace("PACK", PACKS[0]), way, ([[5]], [[3]]))
    assert "of which 2 are set only below line 11" in summary(report)


@pytest.mark.parametrize(
    ("source", "sizes"),
    [
        (UPDATED, ([[9]], [[2]])),  # more than the branch adds
        (UPDATED, ([[5]], [[3]])),  # without the branch there are two
        (UPDATED.replace("stack", "cat"), ([[11]], [[6]])),  # values of several lengths
        (UPDATED.replace("    if batch.has_masks:\n        ", "    if True:\n        pass\n    "), SIZES),  # always
        (
            UPDATED.replace("four(batch))", "four(batch))\n    else:\n        terms.update(masks=none, edges=none)"),
            SIZES,
        ),  # both ways set them
        (UPDATED.replace("terms.values())", "terms.values())[:n]"), SIZES),  # some of them only
        (
            UPDATED.replace("list(terms.values())", "parts").replace(
                "    values", "    parts = list(parts)\n    values"
            ),
            SIZES,
        ),
        (UPDATED.replace("    values =", "    terms.pop('a')\n    values ="), SIZES),
        (UPDATED.replace('{"a": one(batch), "b": two(batch)}', "first(batch)"), SIZES),  # not known
    ],
    ids=["more", "fewer", "lengths", "always", "both", "some", "itself", "pop", "unknown"],
)
def test_other_sizes_are_not_laid_to_the_keys(source: str, sizes: tuple[Sizes, Sizes], run: Path) -> None:
    """The look-alikes: the branch does not make these numbers, or all ranks have all keys."""
    at = source[: source.index("dist.all_reduce")].count("\n") + 1
    report = reported(run, source, [("log", at)], sizes)
    assert "for each key" not in summary(report)
    assert "the same keys" not in advice(report)


NESTED = """def log(out, hard):
    terms = {"cls": one(out), "box": two(out)}
    if "dn" in out:
        terms["dn"] = three(out)
    if "aux" in out:
        if hard:
            terms["aux"] = four(out)
        else:
            terms["aux"] = five(out)
    values = torch.stack(list(terms.values()))
    dist.all_reduce(values)
"""


def test_key_that_both_ways_of_an_inner_branch_set_is_up_to_the_outer_one(run: Path) -> None:
    """Either branch may have added the one key: none is blamed alone."""
    said = summary(reported(run, NESTED, [("log", 11)], ([[3]], [[4]])))
    assert "for each key of" not in said
