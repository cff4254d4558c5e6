"""The state of an optimizer that belongs to other parameters: what loads it, and why the order may have changed."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from pytracer.analyze.evidence.failing.explained import explained
from pytracer.decode.types.snapshot import NamedTensor
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

SOURCE = """class Net(nn.Module):
    def __init__(self, cfg):
        {loop}:
            self.add_module(name, nn.Linear(2, 2))
class Job:
    def __init__(self, cfg):
        self.net = Net(cfg)
        self.optim = torch.optim.Adam(self.net.parameters())
    def save(self, path):
        {save}
    @classmethod
    def resume(cls, cfg, path):
        job = {made}
        job.optim.load_state_dict(torch.load(path))
        return job
    def fit(self, batch):
        loss = self.net(batch).sum()
        {failing}
job = Job.resume(CFG, "a.pt")
job.fit(torch.ones(2, 2))
"""
MISFIT = "The size of tensor a (4) must match the size of tensor b (5) at non-singleton dimension 1"
DICT = "for name, spec in cfg['blocks'].items()"
SAVE = "json.dump(self.cfg, f, sort_keys=True)"
UNFIT = VariableReport(name="unfit state", value="exp_avg [4, 4] of self.net.b.weight [5, 5], 2 of 2")


class Told(NamedTuple):
    """For the headline, and what to do."""

    subject: str
    words: str


def told(
    folder: Path,
    *,
    loop: str = DICT,
    save: str = SAVE,
    made: str = "cls(cfg)",
    failing: str = "self.optim.step()",
    sizes: tuple[int, ...] = (100, 64),
    below: tuple[str, ...] = ("torch/optim/adam.py",),
) -> Told:
    """Of the line in fit(). `sizes`: of the states of a and b, which have 64 and 100 bytes; none: not recorded."""
    file = folder / "train.py"
    text = SOURCE.format(loop=loop, save=save, made=made, failing=failing)
    file.write_text(text, encoding="utf-8")
    line = text.splitlines().index(f"        {failing}") + 1
    own = dict(zip("ab", (64, 100), strict=True)) if sizes else {}
    items = [NamedTensor(f"parameter {name}.weight of Net", "parameter", n, n, n, n, False) for name, n in own.items()]
    items += [
        NamedTensor(f"exp_avg of {name}.weight of Net", "optimizer state", 1000 + at, 1000 + at, n, 1000 + at, False)
        for at, (name, n) in enumerate(zip(own, sizes, strict=False))
    ]
    snapshot: Any = SimpleNamespace(
        argv=(), created_wall_ns=time.time_ns() + 10**9, named={1: tuple(items)}, rank=None, facts=(), step=3
    )
    frames = [PythonFrame(file=f"/x/site-packages/{item}", function="adam", line=456) for item in below]
    frames += [
        PythonFrame(function="Job.fit", file=str(file), line=line),
        PythonFrame(function="<module>", file=str(file), line=line + 2),
    ]
    report = ExceptionReport(type="RuntimeError", message=MISFIT, variables=[UNFIT] if below else [])
    found = explained(snapshot, report, frames)
    assert found.failure is None, found.failure
    return Told(found.subject or "", found.words or "")


def test_dict_that_is_saved_sorted_is_named(tmp_path: Path) -> None:
    """By the loop that registers the layers, and the line that sorts; of an object that a classmethod makes."""
    found = told(tmp_path)
    assert found.subject == (
        "the state that line 14 loads into `self.optim` is that of other parameters: exp_avg [4, 4] meets "
        "`self.net.b.weight` [5, 5]; line 3 registers layers in the order of a dict that line 10 saves sorted "
        "(sort_keys=True)"
    )
    assert "by position, not by name, and compares no shapes: 2 of 2 do not fit. Most likely line 3" in found.words
    assert not any(word in found.words for word in ("permute", "unsqueeze", "drop_last", "Print the shapes"))


def test_yaml_sorts_unless_it_is_told(tmp_path: Path) -> None:
    """And a set has no order at all."""
    assert "(yaml's default). Pass sort_keys=False" in told(tmp_path, save="yaml.dump(self.cfg, f)").words
    assert "order of a set" in told(tmp_path, loop="for name in set(cfg)").subject


@pytest.mark.parametrize(
    ("loop", "save"),
    [
        (DICT, "json.dump(self.cfg, f)"),
        (DICT, "yaml.dump(self.cfg, f, sort_keys=False)"),
        (DICT, "json.dump(self.history, f, sort_keys=True)"),
        ("for name in cfg['blocks']", SAVE),
        ("for name in ('a', 'b')", SAVE),
    ],
    ids=["not sorted", "told", "something else", "a list", "constants"],
)
def test_order_is_left_open_where_nothing_changes_it(loop: str, save: str, tmp_path: Path) -> None:
    """The states are those of other parameters; which line has changed the order is not known."""
    found = told(tmp_path, loop=loop, save=save)
    assert found.subject.endswith("is that of other parameters: exp_avg [4, 4] meets `self.net.b.weight` [5, 5]")
    assert "Register the layers, and list the parameters, in the order in which they were saved" in found.words


def test_state_of_other_sizes_is_not_said_to_be_misplaced(tmp_path: Path) -> None:
    """That of a larger model, or where names of states were not recorded."""
    for sizes in ((64, 4096), ()):
        found = told(tmp_path, sizes=sizes)
        assert "into `self.optim` does not fit: exp_avg [4, 4] meets" in found.subject
        assert "sort" not in found.words
        assert "Load there what was saved for a model of the same layers and sizes" in found.words


@pytest.mark.parametrize(
    "change",
    [
        {"made": "load(path)"},
        {"failing": "loss = loss + batch", "below": ()},
        {"below": ("torch/nn/functional.py",)},
    ],
    ids=["another object", "the program's own line", "not below torch.optim"],
)
def test_other_errors_of_sizes_say_nothing_of_it(change: dict[str, Any], tmp_path: Path) -> None:
    """Where no load of that optimizer is known, or it is not step() that failed."""
    found = told(tmp_path, **change)
    assert "loads into" not in (found.subject or "")
    assert "by position" not in (found.words or "")
