"""python-exception: values of a batch that forked workers read from a file whose position they share."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import parent
from tests.support.synth import Box, Frame

PROGRAM = """FILE = {global_}
class Packed(Dataset):
    def __init__(self, path):
        self.path = path
        {init}
    def raw(self, i):
        return {read}
    def __getitem__(self, i):
        data = self.raw(i)
        return data[1:], data[0]
class Net(Module):
    def forward(self, x):
        return self.table(x)
def main():
    loader = DataLoader(Packed("a.bin"), num_workers=2{option})
    for step, (x, y) in enumerate(loader):
        loss = cross_entropy(net(x), y)
        if y.max() > 9: raise ValueError(y)
        print(rates[step])
"""
OPEN = 'self.file = open(path, "rb")'
SEEKS = "self.file.seek(i * 9) and self.file.read(9)"
LABEL = ("IndexError", "Target 52 is out of bounds.")
LOSS: list[Frame] = [("cross_entropy", f"{s.TORCH}/nn/functional.py", 3500)]
VALUES = [{"name": "x", "value": "[16, 8] uint8"}, {"name": "y", "value": "[16] int64, 0..52"}]


def died(
    run: Path, init: str = OPEN, read: str = SEEKS, *, error: tuple[str, str] = LABEL, line: int = 17,
    below: list[Frame] = LOSS, forked: bool = True, **parts: str,
) -> Report:  # fmt: skip
    """A process that fails by a batch of two workers."""
    source = PROGRAM.format(init=init, read=read, **{"global_": "None", "option": ""} | parts)
    script = str(s.program_in(run, source))
    main = parent().note("before the fork")
    workers = [
        (main.fork(pid) if forked else Box(pid=pid, ppid=101)).entry_of_worker(pid - 102, "Packed")
        for pid in (102, 103)
    ]
    main.at(2_000).exception(*error, [*below, ("main", script, line)], variables=VALUES).at(2_600).exit(1)
    return build_report(s.load(run, main, *(item.at(2_500).exit(0) for item in workers)))


def test_values_of_a_shared_position_are_likely_why_a_label_cannot_be(run: Path) -> None:
    report = died(run)
    assert verdict(report) == ("python-exception", "likely")
    assert (
        "the batch likely has data of other places in the file, since 2 forked DataLoader workers share the open "
        "`self.file` of line 5 (one position)" in summary(report)
    )
    assert "set `self.file = None` at line 5, and open it in each worker, in `raw` (line 6)" in advice(report)
    assert "os.pread()" in advice(report)
    assert "outputs" not in advice(report)


@pytest.mark.parametrize(
    ("init", "read"),
    [
        ("self.file = h5py.File(path)", "self.file['x'][i]"),
        ("self.file = tarfile.open(path)", "self.file.extractfile(str(i)).read()"),
        ("self.file = None; self.file = open(path)", "self.file.seek(i) and np.fromfile(self.file, count=9)"),
    ],
)
def test_other_files_are_shared_as_well(init: str, read: str, run: Path) -> None:
    """Archives move their own file; a library reads what it is given."""
    assert "share the open `self.file` of line 5" in summary(died(run, init, read))


def test_file_of_the_module_is_opened_again_as_a_global(run: Path) -> None:
    report = died(run, "self.all = 0", "FILE.seek(i) and FILE.read(9)", global_="open('a.bin', 'rb')")
    assert "share the open `FILE` of line 1" in summary(report)
    assert "in a worker_init_fn of the DataLoader (`global FILE`)" in advice(report)


@pytest.mark.parametrize(
    "change",
    [
        {"init": "with open(path) as file: self.all = file.read()", "read": "self.all[i]"},
        {"init": "self.file = np.memmap(path)", "read": "self.file[i]"},
        {"init": "self.file = np.load(path)", "read": "self.file[i]"},
        {"init": "self.file = lmdb.open(path)", "read": "self.file.begin().get(i)"},
        {"read": "os.pread(self.file.fileno(), 9, i)"},
        {"init": f"{OPEN}; self.file.seek(0); self.all = self.file.read(); self.file.close()", "read": SEEKS},
        {"forked": False},
        {"error": ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied (16x8 and 4x4)")},
    ],
    ids=["read before", "memmap", "array", "lmdb", "pread", "closed", "spawned", "shapes"],
)
def test_other_datasets_share_no_position(change: dict[str, object], run: Path) -> None:
    report = died(run, **change)  # type: ignore[arg-type]
    assert "forked DataLoader workers" not in summary(report)


def test_file_that_each_worker_opens_again_is_not_shared(run: Path) -> None:
    """worker_init_fn sets the attribute anew."""
    option = ", worker_init_fn=reopen)\ndef reopen(n):\n    get_worker_info().dataset.file = open('a.bin', 'rb'"
    assert "forked DataLoader workers" not in summary(died(run, line=19, option=option))


@pytest.mark.parametrize("line", [16, 18])
def test_check_of_the_program_is_of_the_batch_too(line: int, run: Path) -> None:
    """`raise` behind a test of the labels; not what fails where the loop begins."""
    report = died(run, error=("ValueError", "52"), line=line, below=[])
    assert ("forked DataLoader workers" in summary(report)) == (line == 18)


def test_number_of_the_batch_is_not_read_from_a_file(run: Path) -> None:
    """The look-alike: what enumerate() counts."""
    report = died(run, error=("IndexError", "list index out of range"), line=19, below=[])
    assert "forked DataLoader workers" not in summary(report)
