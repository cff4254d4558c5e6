"""What an explanation says of programs that really fail, by what a recording of each has; and what it leaves alone."""

from __future__ import annotations

import textwrap
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained, involved
from pytracer.analyze.evidence.failing.kind import Kind
from pytracer.record.torch.batch_indices import batch_indices
from pytracer.record.torch.changed_parameter import changed_parameter
from pytracer.record.torch.frame_variables import failing_columns, outer_variables, variables_of
from pytracer.record.torch.gradient_state import gradient_state
from pytracer.record.torch.near_names import near_names
from pytracer.record.torch.opened_file import opened_file
from pytracer.record.torch.refused_item import refused_item
from pytracer.record.torch.refused_text import refused_text
from pytracer.record.torch.subnormals import subnormals_at
from pytracer.report.job import ExceptionReport, NearNamesReport, OuterFrameReport, PythonFrame, VariableReport

torch = pytest.importorskip("torch")
tomllib = pytest.importorskip("tomllib", reason="Python has it, and columns of expressions, since 3.11")
PROGRAMS = Path(__file__).with_name("failing_programs.toml")


def of_program(folder: Path, source: str, judge: Callable[..., Any] = explained) -> str | None:
    """The explanation of what the program raises, from what the recorder writes of it."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__", "torch": torch, "nn": torch.nn}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning is not what the program dies of
            exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names)  # noqa: S102
    except BaseException as error:  # torch.distributed.checkpoint's is no Exception
        return _explained(error, judge)
    finally:
        torch.set_grad_enabled(True)
        torch.set_flush_denormal(False)
    raise AssertionError("the program did not fail")


def _explained(error: BaseException, judge: Callable[..., Any]) -> str | None:
    trace = error.__traceback__
    assert trace is not None and trace.tb_next is not None
    trace = trace.tb_next  # without the test's own frame
    frames = traceback.extract_tb(trace)[::-1]
    stack = [PythonFrame(function=item.name, file=item.filename, line=item.lineno) for item in frames]
    held = [*variables_of(trace), *gradient_state(error, trace), *changed_parameter(error, trace), *refused_item(error)]
    held += [*batch_indices(trace), *opened_file(error, trace), *refused_text(error, trace), *subnormals_at()]
    report = ExceptionReport(
        type=type(error).__name__,
        message=str(error),
        variables=[VariableReport(name=item["name"], value=item["value"]) for item in held],
        columns=failing_columns(trace) or None,
        outer=[_outer(item) for item in outer_variables(trace)],
        near=[NearNamesReport(**item) for item in near_names(error, trace)],  # type: ignore[arg-type]
    )
    snapshot: Any = SimpleNamespace(
        created_wall_ns=time.time_ns() + 10**9,
        argv=("train.py", "--seed=1"),
        environment={},
        step=5,
        rank=None,
        facts=(),
        created_mono_ns=0,
        named={},
    )
    found = judge(snapshot, report, stack)
    if not isinstance(found, Explanation):
        return str(found)
    assert found.failure is None
    return found.words


def _outer(item: dict[str, Any]) -> OuterFrameReport:
    held = [VariableReport(name=part["name"], value=part["value"]) for part in item["variables"]]
    return OuterFrameReport(frame=item["frame"], variables=held)


ALL = tomllib.loads(PROGRAMS.read_text(encoding="utf-8"))["case"]
CASES = [(case["source"], case.get("says")) for case in ALL]
INVOLVED = [(case["source"], case["involves"]) for case in ALL if "involves" in case]


@pytest.mark.parametrize(("source", "words"), CASES)
def test_what_is_wrong_is_said_with_the_values_of_the_line(source: str, words: str | None, tmp_path: Path) -> None:
    """The line to change, and why, in four lines of 91 columns, as the report prints it; None where nothing recorded
    bears more than the table's advice.
    """
    found = of_program(tmp_path, source)
    assert (found is None) if words is None else (words in (found or "")), found
    assert len(textwrap.wrap(found or "", 91)) <= 4


@pytest.mark.parametrize(("source", "words"), INVOLVED)
def test_what_a_line_works_on_is_said_where_nothing_is_explained(source: str, words: str, tmp_path: Path) -> None:
    """Each operand with its value and its line; of a library's check the argument that it refused."""
    found = of_program(tmp_path, source, involved) or ""
    assert words in found, found
    assert len(textwrap.wrap(found, 91)) <= 4


def test_nothing_is_said_of_a_source_that_is_newer(tmp_path: Path) -> None:
    """Its lines may be others than those that ran."""
    file = tmp_path / "train.py"
    file.write_text("rows = []\nrows[0]\n", encoding="utf-8")
    stack = [PythonFrame(function="<module>", file=str(file), line=2)]
    report = ExceptionReport(type="IndexError", message="list index out of range")
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() - 10**12)
    assert explained(snapshot, report, stack) == Explanation()


def test_explanation_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A bug of ours costs the explanation only; the report names the place."""

    def broken(_: object) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr("pytracer.analyze.evidence.failing.explained.KINDS", (Kind(broken),))
    file = tmp_path / "train.py"
    file.write_text("rows = []\nrows[0]\n", encoding="utf-8")
    stack = [PythonFrame(function="<module>", file=str(file), line=2)]
    report = ExceptionReport(type="IndexError", message="list index out of range")
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    found = explained(snapshot, report, stack)
    assert found.words is None
    assert "a bug in pytracer, ZeroDivisionError at test_failing.py:" in (found.failure or "")


SUBJECTS = [
    (
        (
            "class Prices:\n    rows = [{'year': '1990'}, {'year': ''}]\n    def __getitem__(self, index):\n"
            "        row = self.rows[index]\n        return float(row['year'])\nPrices()[1]\n"
        ),
        "`row['year']` of sample 1 is empty",
    ),
    (
        'config = {"optimizer": {"lr": "1e-4"}}\ntorch.optim.AdamW([torch.ones(1)], **config["optimizer"])\n',
        "`config['optimizer']['lr']` is the text '1e-4'",
    ),
    (
        (
            "import copy\nclass Net(nn.Module):\n    pass\nnet = Net()\nnet.last = nn.Linear(1, 1)(torch.ones(1))\n"
            "copy.deepcopy(net)\n"
        ),
        "`last` of Net holds the result of an operation, with its graph",
    ),
    (
        (
            "def build(model):\n    return torch.optim.SGD(list(set(model.parameters())), lr=1, momentum=1), None\n"
            "net = nn.Linear(3, 4)\none, _ = build(net)\nnet(torch.ones(2, 3)).sum().backward()\n"
            "two = torch.optim.SGD(one.param_groups[0]['params'][::-1], lr=1, momentum=1)\ntwo.step()\n"
            "one.load_state_dict(two.state_dict())\none.step()\n"
        ),
        (
            "the loaded state has other shapes than the gradients, and the groups are built from a set (line 2), whose "
            "order may change"
        ),
    ),
    (
        (
            "net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
            "a = net(torch.ones(2, 2)).sum()\na.backward(retain_graph=True)\nopt.step()\na.backward()\n"
        ),
        "`opt.step()` changed `net.1.weight` [1, 3] after the forward",
    ),
    (
        (
            "torch.set_flush_denormal(True)\nweight = torch.exp(torch.full((4,), -90.0))\n"
            "share = weight / weight.sum()\ntorch.multinomial(share, 2, replacement=True)\n"
        ),
        (
            "`share` is NaN since line 3 (`weight / weight.sum()`); that divides by `weight.sum()`, 0 where every "
            "`torch.exp(torch.full((4,), -90.0))` is subnormal (below 1.2e-38), as this thread flushes these to 0, "
            "most likely by torch.set_flush_denormal(True) at line 1"
        ),
    ),
    (
        (
            "from torch.utils.data import DataLoader, TensorDataset\nnorm = nn.BatchNorm1d(3)\n"
            "training_batches_of_this_fold = DataLoader(TensorDataset(torch.ones(9, 3)), batch_size=4)\n"
            "for x, in training_batches_of_this_fold:\n    norm(x)\n"
        ),
        (
            "`norm` (BatchNorm1d) got a batch of 1: the last batch of `training_batches_of_this_fold` has 1 of 9 "
            "samples (batch_size=4, line 3)"
        ),
    ),
    (  # which a collate_fn may have made as well
        (
            "from torch.utils.data import DataLoader\nnorm, some = nn.BatchNorm1d(3), lambda items: torch.ones(1, 3)\n"
            "loader = DataLoader(range(9), batch_size=4, collate_fn=some)\nfor x in loader:\n    norm(x)\n"
        ),
        "`norm` (BatchNorm1d) got one value per channel: `loader` gave 1 sample in `x` (batch_size=4, drop_last=False)",
    ),
    (
        (
            "from torch.utils.data import DataLoader, IterableDataset\nclass Rows(IterableDataset):\n"
            "    def __iter__(self):\n        return iter(torch.ones(5, 3))\nnorm = nn.BatchNorm1d(3)\n"
            "loader = DataLoader(Rows(), batch_size=4)\nfor x in loader:\n    norm(x)\n"
        ),
        "`norm` (BatchNorm1d) got a batch of 1: the last batch of `loader` has 1 sample (batch_size=4, line 6)",
    ),
    (  # one of a batch, whose size is not known
        (
            "from torch.utils.data import DataLoader, TensorDataset\nnorm, first = nn.BatchNorm1d(3), lambda x: x[:1]\n"
            "for x, in DataLoader(TensorDataset(torch.ones(9, 3)), batch_size=4):\n    x = first(x)\n    norm(x)\n"
        ),
        None,
    ),
    (
        (
            "from torch.utils.data import DataLoader, TensorDataset\nnorm, first = nn.BatchNorm1d(3), lambda x: x[:1]\n"
            "loader = DataLoader(TensorDataset(torch.ones(9, 3)), batch_size=4)\n"
            "for x, in loader:\n    x = first(x)\n    norm(x)\n"
        ),
        None,
    ),
    (  # the sampler has fewer than the data set
        (
            "from torch.utils.data import DataLoader, TensorDataset, SubsetRandomSampler\nnorm = nn.BatchNorm1d(3)\n"
            "loader = DataLoader(TensorDataset(torch.ones(17, 3)), batch_size=4, "
            "sampler=SubsetRandomSampler(range(5)))\n"
            "for i, (x,) in enumerate(loader):\n    norm(x)\n"
        ),
        "`norm` (BatchNorm1d) got a batch of 1: the last batch of `loader` has 1 of 5 samples (batch_size=4, line 3)",
    ),
    (  # all batches are of one
        (
            "from torch.utils.data import DataLoader, TensorDataset\nnorm = nn.BatchNorm1d(3)\n"
            "loader = DataLoader(TensorDataset(torch.ones(9, 3)), batch_size=1)\nfor x, in loader:\n    norm(x)\n"
        ),
        "`loader` has batch_size=1",
    ),
    ('{"lr": "1e-4"}["rate"]\n', None),
    ('rows = [1, "7"]\nsum(rows, "7")\n', None),
]


@pytest.mark.parametrize(("source", "subject"), SUBJECTS)
def test_headline_names_what_is_wrong_where_it_is_one_thing(source: str, subject: str | None, tmp_path: Path) -> None:
    """The look-alikes have nothing of the kind."""
    found = of_program(tmp_path, source, lambda *facts: explained(*facts).subject)
    assert found == str(subject)


_CHECKPOINTS = """
import os
import pickle

def save(folder, step, rows):
    path = os.path.join(folder, f"step-{step}.pkl")
    with open(path, "wb", buffering=0) as file:
        pickle.dump(rows, file)

for step in range(9):
    save(FOLDER, step, b"0" * 400_000)
"""


def test_full_disk_is_told_with_the_files_like_the_one_that_was_cut_off(
    small_disk: Callable[[int], Path], tmp_path: Path
) -> None:
    """A raw write of the rest fails: what fitted is there."""
    disk = small_disk(1 << 20)
    source = _CHECKPOINTS.replace("FOLDER", repr(str(disk)))
    found = of_program(tmp_path, source, lambda *given: explained(*given).subject)
    assert found == f"the file system of {disk} is full (0 bytes left of 1.0 MiB)"
    for item in disk.iterdir():
        item.unlink()
    advice = of_program(tmp_path, source)
    assert "3 files with names like step-2.pkl take" in (advice or "")
    assert "Delete older ones before line 8 writes the next" in (advice or "")


def test_disk_that_has_room_is_not_called_full(tmp_path: Path) -> None:
    """/dev/full refuses each write, and the file system that it is on has room."""
    assert of_program(tmp_path, "rows = 'x' * 9\nwith open('/dev/full', 'w') as file:\n    file.write(rows)\n") is None
