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


NUMPYS = "/venv/lib/python3.11/site-packages/numpy"
ROWS = """import numpy as np, pathlib, torch
PATH = "/data/out/recipe_state.pt"
def compress(rows):
    {}
compress(np.load(PATH, mmap_mode="r"))
"""


def written(run: Path, source: str, line: int, inside: list[tuple[str, str, int]], **more: object) -> Report:
    """Died in that line of another program, in these frames; `record` lies near a register, `at` that address."""
    file = run / "train.py"
    file.write_text(source, encoding="utf-8")
    os.utime(file, (0, 0))
    at = int(str(more.get("at", START - 4096)))
    record = more.get("record", b"")
    assert isinstance(record, bytes)
    report = died(
        run, signal=7, code=2, addr=START + 8200, file_nbytes=4100, file_room=1 << 30, file_system=0xEF53,
        python=[*inside, ("save", str(file), line), ("<module>", str(file), source.count("\n"))],
        memory=(MemoryBlock("r14", at, at, b"\x00\x07" + record + b"\x00\x01"),),
        stack_of=[(s.TORCH_CPU, "crc32_16bytes"), (s.TORCH_CPU, "caffe2::serialize::PyTorchStreamWriter::writeRecord")],
        mappings=[PROGRAM, (START, START + 0x10_0000, "rw-p", 0, PATH)],
    )  # fmt: skip
    assert verdict(report) == ("truncated-mapping", "certain")
    return report


@pytest.mark.parametrize(
    ("call", "inside", "says"),
    [
        ('torch.save(rows.half(), "/data/out/recipe_state.pt")', [], False),
        ("pathlib.Path(PATH).write_bytes(rows.tobytes())", [], False),
        ("rows.astype('float16').tofile(PATH)", [], False),
        ("rows[rows > 0].tofile(PATH)", [], False),
        ("rows.tofile(PATH)", [("mean", f"{NUMPYS}/_core/fromnumeric.py", 3)], False),
        ("torch.save(torch.load(PATH), PATH)", [("load", f"{s.TORCH}/serialization.py", 3)], False),
        ("rows.tofile(PATH)", [], True),
        ("open(PATH, 'wb').write(rows)", [], True),
        ("pathlib.Path(PATH).write_bytes(rows)", [("write_bytes", "/usr/lib/python3.11/pathlib.py", 3)], True),
        ("torch.save(rows, PATH)", TORCHS, True),
    ],
)
def test_a_call_is_running_only_where_its_own_frame_or_nothing_else_is_on_the_stack(
    call: str, inside: list[tuple[str, str, int]], says: bool, run: Path
) -> None:
    report = written(run, ROWS.format(call), 4, inside)
    assert ("was writing while line 5 had it mapped" in summary(report)) == says
    assert ("left incomplete" in advice(report)) == says
    assert says or "may have written since line 5 mapped it" in summary(report)


OTHERS = {
    "folder": """def save(state):
    torch.save(state, "/backup/run7/recipe_state.pt")
save(torch.load("/data/out/recipe_state.pt", mmap=True))
""",
    "relative folder": """def save(state):
    torch.save(state, os.path.join("half", "recipe_state.pt"))
save(torch.load("/data/out/recipe_state.pt", mmap=True))
""",
    "property over a folder": """class Store:
    root = "/backup/run7"
    @property
    def file(self):
        return os.path.join(self.root, "recipe_state.pt")
    def save(self, state):
        torch.save(state, self.file)
Store().save(torch.load("/data/out/recipe_state.pt", mmap=True))
""",
    "overridden": """class Checkpoint:
    filename = "recipe_state.pt"
    def load(self):
        return torch.load(self.dir / self.filename, mmap=True)
class Ema(Checkpoint):
    filename = "ema.pt"
    def save(self, state):
        torch.save(state, self.dir / self.filename)
Ema().save(Checkpoint().load())
""",
    "attribute of another object": """class Source:
    def __init__(self, folder):
        self.path = os.path.join(folder, "recipe_state.pt")
def save(state, args):
    torch.save(state, args.path)
save(torch.load(Source(a).path, mmap=True), args)
""",
}


@pytest.mark.parametrize("name", list(OTHERS))
def test_another_folder_class_or_object_is_another_file(name: str, run: Path) -> None:
    source = OTHERS[name]
    line = next(number for number, text in enumerate(source.splitlines(), 1) if "torch.save(" in text)
    report = written(run, source, line, TORCHS)
    assert summary(report).endswith("the file held 4100 bytes.") and "Find out who truncated" in advice(report)


UNSURE = {
    "options": """def save(state, args):
    torch.save(state, os.path.join(args.out, "recipe_state.pt"))
save(torch.load(os.path.join(args.init, "recipe_state.pt"), mmap=True), args)
""",
    "two returns": """class Store:
    @property
    def file(self):
        if self.step:
            return self.dir / f"step_{self.step}.pt"
        return self.dir / "recipe_state.pt"
    def save(self, state):
        torch.save(state, self.file)
Store().save(torch.load("/data/out/recipe_state.pt", mmap=True))
""",
    "loop": """def save(states):
    for name in ("recipe_state.pt", "student.pt"):
        torch.save(states[name], os.path.join(out, name))
save(torch.load("/data/out/recipe_state.pt", mmap=True))
""",
    "two objects of a class": """class Store:
    def __init__(self, folder):
        self.file = os.path.join(folder, "recipe_state.pt")
    def load(self):
        return torch.load(self.file, mmap=True)
    def save(self, state):
        torch.save(state, self.file)
Store(args.out).save(Store(args.init).load())
""",
    "derived class": """class Store:
    name = "recipe_state.pt"
    def load(self):
        return torch.load(os.path.join(OUT, self.name), mmap=True)
    def save(self, state):
        torch.save(state, os.path.join(OUT, self.name))
class Ema(Store):
    name = "ema.pt"
Ema().save(Store().load())
""",
    "comprehension": """OUT = "recipe_state.pt"
states = [torch.load(os.path.join(folder, OUT), mmap=True) for folder in folders]
def save(states):
    [torch.save(state, os.path.join(folder, OUT)) for state, folder in states]
save(states)
""",
}


@pytest.mark.parametrize("name", list(UNSURE))
def test_a_path_that_may_be_another_may_have_been_written(name: str, run: Path) -> None:
    source = UNSURE[name]
    line = next(number for number, text in enumerate(source.splitlines(), 1) if "torch.save(" in text)
    report = written(run, source, line, TORCHS)
    assert "may have written since" in summary(report) and "was writing" not in summary(report)
    assert "incomplete" not in advice(report)


def test_a_record_of_the_mapped_file_itself_names_no_archive_that_is_written(run: Path) -> None:
    source = """def save(state, args):
    torch.save(state, args.out)
save(torch.load(args.init, mmap=True), args)
"""
    record = b"recipe_state/data/25"
    assert "was probably writing" in summary(written(run, source, 2, TORCHS, record=record))
    assert "writing" not in summary(written(run, source, 2, TORCHS, record=record, at=START + 4000))
