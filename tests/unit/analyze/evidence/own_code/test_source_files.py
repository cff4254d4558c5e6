"""Which native sources are taken for those of a library: the ones it names, those beside it, those in folders below."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import own_signature
from pytracer.analyze.evidence.own_code.source_files import source_levels, sources_beside
from pytracer.report.job import PythonFrame
from tests.conditions import needs_compiler


@pytest.fixture(name="job")
def _job(tmp_path: Path) -> Path:
    """The folder of the program, which has its own native sources below it."""
    job = tmp_path / "job"
    job.mkdir()
    return job


def write(path: Path, age: int = 1000, text: str = "int nms(int n)\n{\n    return n;\n}\n") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (age, age))
    return str(path)


def library(folder: Path, *sources: str) -> str:
    """In a folder of its own; without sources one that names none."""
    path = folder / "built" / "libnms.so"
    path.parent.mkdir(exist_ok=True)
    if sources:
        subprocess.run(["cc", "-g", "-shared", "-fPIC", *sources, "-o", str(path)], check=True)
    else:
        path.write_bytes(b"")
    os.utime(path, (2000, 2000))
    return str(path)


def names(library: str, job: Path) -> list[str]:
    return [os.path.relpath(path, job) for path, _ in sources_beside(library, [str(job)])]


def test_folders_below_the_program_come_last(tmp_path: Path, job: Path) -> None:
    for name in ("csrc/nms.c", "csrc/cpu/deep.cpp", "beside.cu"):
        write(job / name)
    write(tmp_path / "built" / "own.c")
    assert names(library(tmp_path), job) == ["../built/own.c", "beside.cu", "csrc/nms.c", "csrc/cpu/deep.cpp"]


def test_other_files_are_left_out(tmp_path: Path, job: Path) -> None:
    """The look-alikes: too deep, newer than the library, hidden, of packages, and no source."""
    for name in ("a/b/c/deep.c", ".git/x.c", "venv/lib/x.c", "csrc/notes.txt"):
        write(job / name)
    write(job / "csrc" / "new.c", age=3000)
    os.symlink(tmp_path, job / "link")
    write(tmp_path / "outside.c")
    assert names(library(tmp_path), job) == []


def test_many_files_are_not_all_looked_at(tmp_path: Path, job: Path) -> None:
    for number in range(500):
        write(job / "csrc" / f"{number}.c")
        (job / f"{number}.txt").touch()  # beside the program they do not count
    assert len(names(library(tmp_path), job)) == 400


@needs_compiler
def test_named_sources_exclude_others_but_headers(tmp_path: Path, job: Path) -> None:
    """A library that says what it was built from was not built from a file beside it."""
    far = write(tmp_path / "elsewhere" / "nms.c")
    write(job / "old" / "nms.c")
    write(job / "csrc" / "nms.h")
    assert names(library(tmp_path, far), job) == ["../elsewhere/nms.c", "csrc/nms.h"]


@needs_compiler
def test_named_source_that_was_changed_since_is_not_read(tmp_path: Path, job: Path) -> None:
    far = write(tmp_path / "elsewhere" / "nms.c")
    path = library(tmp_path, far)
    write(Path(far), age=3000)
    assert names(path, job) == [] and next(source_levels([path], [str(job)])) == []


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (["csrc/nms.c"], "nms.c:1"),
        (["nms.c", "old/copy.c"], "nms.c:1"),  # the nearer one
        (["csrc/nms.c", "old/copy.c"], None),
        (["csrc/other.c"], "other.c:1"),
    ],
    ids=["below", "beside", "two", "another name"],
)
def test_definition_of_the_surest_level_counts(
    tmp_path: Path, job: Path, files: list[str], found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in files:
        write(job / name)
    frame = PythonFrame(function="main", file=str(job / "train.py"), line=1)
    monkeypatch.setattr(own_signature, "program_frames", lambda view: [frame])
    view: Any = SimpleNamespace(crash=SimpleNamespace(images=[SimpleNamespace(path=library(tmp_path))]))
    made = own_signature.own_definition(view, "nms")
    assert (made.place if made is not None else None) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('compile_("nms.c", "libnms.so")\n', "nms.c:1"),
        ("compile_('csrc/nms.c')\n", "nms.c:1"),
        ("compile_(NAME)\n", None),
        ('compile_("nms.c", "old.c")\n', None),
    ],
    ids=["one", "in a folder", "none", "two"],
)
def test_source_of_a_library_that_is_gone_is_the_one_that_the_program_names(
    tmp_path: Path, job: Path, text: str, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which it was built from, into a temporary folder; others have a function of that name as well."""
    write(job / ("csrc/nms.c" if "csrc" in text else "nms.c"))
    write(job / "old.c")
    program = write(job / "train.py", text=text)
    frame = PythonFrame(function="<module>", file=program, line=1)
    monkeypatch.setattr(own_signature, "program_frames", lambda view: [frame])
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=time.time_ns(), crash=None)
    gone = SimpleNamespace(path=str(tmp_path / "gone" / "libnms.so"))
    view: Any = SimpleNamespace(
        process=SimpleNamespace(snapshot=snapshot), crash=SimpleNamespace(images=[gone], python_stack=(frame,))
    )
    made = own_signature.own_definition(view, "nms")
    assert (made.place if made is not None else None) == found
