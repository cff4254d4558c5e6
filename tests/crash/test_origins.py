"""Storages of every origin: the report of a fault at a known offset has name, origin and both call sites."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytracer.report.job import PythonFrame, StorageReport
from tests.conditions import needs_compiler, needs_core, needs_native, needs_torch
from tests.support.crash import PROGRAMS, Ended, victim

pytestmark = [needs_core, needs_compiler, needs_torch, needs_native]

PROGRAM = "origins.py"
SMALL, NBYTES = 300_000, 40 << 20


@dataclass(frozen=True)
class Case:
    """A function of origins.py, and the expected report of its storage."""

    kind: str
    origin: str
    state: str = "live"
    made_in: str | None = None  # else `kind`
    file: str | None = None

    def __str__(self) -> str:
        return self.kind


LIVE = [
    Case("empty", "cpu-allocator"),
    Case("operator", "cpu-allocator"),
    Case("untyped_storage", "cpu-allocator"),
    Case("share_by_descriptor", "shared-memory", file="/torch_"),
    Case("share_by_name", "shared-memory", file="/torch_"),
    Case("receive_by_descriptor", "shared-memory"),
    Case("from_file", "mapped-file", file="/tokens.bin"),
    Case("load", "torch-load"),
    Case("load_mapped", "mapped-file", file="/model.pt"),
    Case("from_numpy", "numpy"),
    Case("from_buffer", "buffer"),
    Case("from_dlpack", "dlpack"),
    Case("from_blob", "blob"),
    Case("from_blob_without_deleter", "blob"),
    Case("grown", "cpu-allocator"),
    Case("set_to_another", "cpu-allocator"),
    Case("swapped", "cpu-allocator"),
]
FREED = [
    Case("freed", "cpu-allocator", "freed"),
    Case("freed_untyped_storage", "cpu-allocator", "freed"),
    Case("freed_numpy", "numpy", "freed"),
    Case("freed_shared", "shared-memory", "freed", file="/torch_"),
    Case("freed_file", "mapped-file", "freed", made_in="from_file", file="/tokens.bin"),
    Case("emptied", "cpu-allocator", "freed"),
    Case("outgrown", "cpu-allocator", "freed"),
    Case("set_away", "cpu-allocator", "freed"),
    Case("moved_to_shared_memory", "cpu-allocator", "freed"),
]
OLDER = [
    Case("empty", "before-enable"),
    Case("untyped_storage", "before-enable"),
    Case("share_by_descriptor", "shared-memory", file="/torch_"),
    Case("share_by_name", "shared-memory", file="/torch_"),
    Case("from_file", "mapped-file", file="/tokens.bin"),
    Case("from_numpy", "numpy"),
    Case("from_buffer", "buffer"),
    Case("from_dlpack", "dlpack"),
]


IN_ANOTHER = [
    Case("empty", "cpu-allocator"),
    Case("operator", "cpu-allocator"),
    Case("grown", "cpu-allocator"),
    Case("untyped_storage", "default-allocator"),
    Case("freed", "cpu-allocator", "freed"),
    Case("freed_untyped_storage", "default-allocator", "freed"),
    Case("emptied", "cpu-allocator", "freed"),
]


def compiled(name: str, directory: Path) -> str:
    """A library of tests/crash/programs/, compiled against torch."""
    from torch.utils import cpp_extension

    path = directory / f"lib{name}.so"
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-O1", "-w", "-fPIC", "-shared", "-o", str(path)]
    command += [f"-I{directory}" for directory in cpp_extension.include_paths()]
    libraries = [f"-L{directory}" for directory in cpp_extension.library_paths()] + ["-lc10", "-ltorch_cpu"]
    command += [str(PROGRAMS / f"{name}.cpp"), *libraries]
    subprocess.run(command, check=True, env={**os.environ, "LD_PRELOAD": ""})
    return str(path)


@pytest.fixture(scope="module")
def blob_library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """blob.cpp."""
    return compiled("blob", tmp_path_factory.mktemp("blob"))


@pytest.fixture(scope="module")
def another_allocator(tmp_path_factory: pytest.TempPathFactory) -> str:
    """another_allocator.cpp."""
    return compiled("another_allocator", tmp_path_factory.mktemp("allocator"))


def storage_of(done: Ended) -> tuple[dict[str, int], StorageReport]:
    """The storage as the victim printed it, and the reported storage of the fault."""
    assert done.status in (-signal.SIGSEGV, -signal.SIGBUS), done.stderr
    printed: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    process = next(p for p in done.report.processes or () if p.pid == done.pid)
    assert process.fault is not None
    assert int(process.fault.addr or "0", 16) == printed["base"] + printed["offset"]
    assert process.fault.storage is not None, process.fault
    return printed, process.fault.storage


def own_function(python: PythonFrame | None, caller: PythonFrame | None) -> str | None:
    """The function of origins.py that allocated or freed a storage."""
    frames = [frame for frame in (caller, python) if frame is not None and (frame.file or "").endswith(PROGRAM)]
    return frames[0].function if frames else None


def check(case: Case, done: Ended) -> StorageReport:
    """Base, size, offset, state, origin and file are exact."""
    printed, storage = storage_of(done)
    assert (storage.state, storage.origin) == (case.state, case.origin)
    assert storage.found == "exact"
    assert storage.distance_bytes == 0
    base = int(storage.base or "0", 16)
    assert base + (storage.offset_bytes or 0) == printed["base"] + printed["offset"]
    if case.kind != "load_mapped":  # whose storages are parts of one mapping
        assert (base, storage.nbytes) == (printed["base"], printed["nbytes"])
        assert storage.offset_bytes == printed["offset"]
    if case.file is not None:
        assert case.file in (storage.file or "")
        assert storage.file_offset == 0
    else:
        assert storage.file is None
    return storage


@pytest.mark.quick(3)
@pytest.mark.parametrize("way", ["preload", "enable"])
@pytest.mark.parametrize("case", [*LIVE, *FREED], ids=str)
def test_fault_in_a_storage_names_it_and_its_origin(case: Case, way: str, blob_library: str, run: Path) -> None:
    """However recording started, and whatever allocated the memory: storage, offset, origin and lines are right."""
    if case.kind == "from_blob" and way == "enable":
        pytest.skip("a library that is loaded after enable() is seen only where the core is preloaded")
    done = victim(PROGRAM, case.kind, run=run, way=way, BLOB_LIBRARY=blob_library)
    storage = check(case, done)
    assert not storage.older
    assert storage.allocated is not None
    assert own_function(storage.allocated.python, storage.allocated.caller) == (case.made_in or case.kind)
    assert (storage.freed is None) == (case.state == "live")
    if storage.freed is not None:
        assert own_function(storage.freed.python, storage.freed.caller) == case.kind


@pytest.mark.parametrize("way", ["preload", "enable"])
@pytest.mark.quick(1)
def test_program_sees_no_difference(way: str, blob_library: str, run: Path) -> None:
    """Owners live as long as untraced, deleters run once at the same time, sharing and numbers are the same."""
    plain = victim("foreign_semantics.py", run=run, way="untraced", BLOB_LIBRARY=blob_library)
    assert plain.status == 0, plain.stderr
    assert "deleted after it 1" in plain.stdout
    done = victim("foreign_semantics.py", run=run, way=way, BLOB_LIBRARY=blob_library)
    assert (done.status, done.stdout, done.stderr) == (0, plain.stdout, plain.stderr)


@pytest.mark.quick(2)
@pytest.mark.parametrize("case", OLDER, ids=str)
def test_storage_that_is_older_than_the_recording_is_known(case: Case, run: Path) -> None:
    """Storages that exist when enable() is called are found, and the report states that their call site is unknown."""
    done = victim(PROGRAM, case.kind, run, run=run, way="untraced")
    storage = check(case, done)
    assert storage.older
    assert storage.allocated is None


@pytest.mark.quick(1)
@pytest.mark.parametrize("case", IN_ANOTHER, ids=str)
def test_fault_in_memory_of_an_allocator_of_the_programs_own_names_the_storage(
    case: Case, another_allocator: str, run: Path
) -> None:
    """Where the program registered an allocator that never calls torch's, both are followed and distinguished."""
    done = victim("another_allocator.py", run, case.kind, run=run, way="untraced", ALLOCATOR_LIBRARY=another_allocator)
    storage = check(case, done)
    assert storage.allocated is not None
    assert own_function(storage.allocated.python, storage.allocated.caller) == case.kind


@pytest.mark.slow
def test_allocator_of_the_programs_own_is_left_as_it_was(another_allocator: str, run: Path) -> None:
    """Registered again after disable(), whatever is live then; each storage ends once, and enable() works again."""
    plain, done = (
        victim("another_allocator.py", directory, run=run, way="untraced", ALLOCATOR_LIBRARY=another_allocator)
        for directory in ("untraced", run)
    )
    assert plain.stdout.count("registered 1") == 2, plain.stderr
    assert (done.status, done.stdout, done.stderr) == (0, plain.stdout, plain.stderr)


@pytest.mark.parametrize("kind", ["torchs", "blob"])
@pytest.mark.parametrize("way", ["preload", "enable"])
@pytest.mark.quick(1)
def test_storage_that_outlives_python_ends_as_before(way: str, kind: str, blob_library: str, run: Path) -> None:
    """No memory of the interpreter is read after its end: it is filled with garbage as it is freed."""
    more: dict[str, Any] = {"BLOB_LIBRARY": blob_library, "MALLOC_PERTURB_": "165"}
    plain = victim("outlives_python.py", kind, run=run, way="untraced", **more)
    assert plain.status == 0, plain.stderr
    done = victim("outlives_python.py", kind, run=run, way=way, **more)
    assert (done.status, done.stdout, done.stderr) == (0, plain.stdout, plain.stderr)
