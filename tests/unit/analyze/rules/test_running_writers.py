"""A file that the process was just writing while it had it mapped: its path in the source, or the archive's name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.decode.types.snapshot import MemoryBlock
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary, verdict

START = 0x7F00_0000_0000
PATH = "/data/out/recipe_state.pt"
TORCHS = [("_save", f"{s.TORCH}/serialization.py", 1312), ("save", f"{s.TORCH}/serialization.py", 1003)]
STORE = """import os, pathlib, torch
NAME = "recipe_state.pt"
class Base:
    name = NAME
    @property
    def above(self):
        return os.path.join(self.out, "recipe_state.pt")
    @property
    def weights(self):
        return os.path.join(self.out, "weights.pt")
class Store(Base):
    def __init__(self, out):
        self.out = pathlib.Path(out)
        self.state: str = os.path.join(out, NAME)
    @property
    def file(self):
        return self.out / "recipe_state.pt"
    @functools.cached_property
    def folder(self):
        return str(self.out)
    def load(self):
        return torch.load(self.file, mmap=True)
    def save(self, state):
        torch.save({saved})
def main(out):
    store = Store(out)
    store.save(store.load())
main(a)
"""


def saved(
    run: Path,
    given: str,
    *,
    inside: list[tuple[str, str, int]] = TORCHS,
    record: bytes | None = None,
    now: int | None = None,
) -> Report:
    """Died in line 24, in these frames, with a record's name near a register."""
    file = run / "train.py"
    file.write_text(STORE.replace("{saved}", given), encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    at = [("Store.save", str(file), 24), ("main", str(file), 27), ("<module>", str(file), 28)]
    block = MemoryBlock("r14", START - 4096, START - 4096, b"\x00\x07" + (record or b"") + b"\x00\x01")
    report = died(
        run, signal=7, code=2, addr=START + 8200, file_nbytes=4100, file_room=1 << 30, file_system=0xEF53,
        python=[*inside, *at], memory=(block,),
        stack_of=[(s.TORCH_CPU, "crc32_16bytes"), (s.TORCH_CPU, "caffe2::serialize::PyTorchStreamWriter::writeRecord")],
        mappings=[PROGRAM, (START, START + 0x10_0000, "rw-p", 0, PATH)],
    )  # fmt: skip
    assert verdict(report) == ("truncated-mapping", "certain")
    return report


@pytest.mark.parametrize(
    "given",
    [
        "state, self.file",
        "state, str(self.file)",
        "state, self.above",
        "state, self.state",
        "state, self.out / self.name",
        "state, os.path.join(self.folder, NAME)",
        'state, "/data/out/recipe_state.pt"',
        'state, f"{self.out}/recipe_state.pt"',
    ],
)
def test_path_of_a_property_an_attribute_or_a_variable_is_that_of_the_file(given: str, run: Path) -> None:
    """And what it left is not whole."""
    report = saved(run, given)
    assert "4100 bytes, which line 24 (`torch.save(state, " in summary(report)
    assert "was writing while line 22 had it mapped." in summary(report)
    assert "leave out mmap=True at line 22." in advice(report)
    assert advice(report).endswith("recipe_state.pt was left incomplete: do not resume from it, take another copy.")


def test_name_of_the_archive_is_told_where_the_source_does_not_name_the_file(run: Path) -> None:
    report = saved(run, "state, args.resume", record=b"recipe_state/data/25")
    assert "`), whose archive has its name, was probably writing while line 22 had it mapped." in summary(report)
    assert "which was writing an archive of that name, probably this file." in advice(report)
    assert "recipe_state.pt was probably left incomplete" in advice(report)


@pytest.mark.parametrize(
    ("given", "record"),
    [
        ("state, args.resume", None),
        ("state, args.resume", b"weights/data/3"),
        ("state, args.resume", b"archive/data/3"),
        ("state, self.file", b"weights/data/3"),  # of two calls below each other
        ("state, self.weights", None),
        ('state, f"/backup/{name}"', b"recipe_state/data/3"),
    ],
)
def test_other_files_that_were_written_are_not_said_to_be_it(given: str, record: bytes | None, run: Path) -> None:
    report = saved(run, given, record=record)
    assert "was writing" not in summary(report) and "probably" not in summary(report)
    assert "incomplete" not in advice(report)


def test_what_makes_the_argument_of_the_call_is_before_it_writes(run: Path) -> None:
    report = saved(run, "pack(state), self.file", inside=[("pack", "/home/me/pack.py", 3)])
    assert "was writing" not in summary(report)
    report = saved(run, "state.half(), self.file", inside=[("half", f"{s.TORCH}/nn/modules/module.py", 3)])
    assert "was writing" not in summary(report)
