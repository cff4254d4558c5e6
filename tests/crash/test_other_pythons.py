"""The core alone: built without torch, and under other Pythons than the one that pytracer was built for."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conditions import needs_compiler, needs_core, python_or_skip
from tests.support.cli import ROOT
from tests.support.crash import PROGRAMS, Ended, ended, environment, line_of, own_frames, victim

pytestmark = [needs_core, needs_compiler]


@pytest.fixture(scope="module")
def without_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree in which the core was built with PYTRACER_WITHOUT_TORCH=1."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("csrc", "pytracer"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("CMakeLists.txt", "CMakePresets.json", "setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tree / name)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # cmake, ninja
    build = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=tree, check=False,
        env=environment(PYTRACER_WITHOUT_TORCH="1", PATH=path, PYTHONPATH=""), capture_output=True, text=True,
    )  # fmt: skip
    assert build.returncode == 0, build.stdout + build.stderr
    return tree


def crash_with(tree: Path, run: Path) -> Ended:
    """`pytracer run` of that tree around a Python process that dies in ctypes."""
    command = [sys.executable, "-m", "pytracer", "run", "-o", str(run), "--", sys.executable]
    return ended([*command, PROGRAMS / "null_dereference.py"], environment(PYTHONPATH=str(tree)), run)


@pytest.mark.slow
def test_core_without_torch_is_one_library(without_torch: Path) -> None:
    """There are no hooks for torch; the core needs neither torch nor libstdc++ nor Python."""
    package = without_torch / "pytracer"
    assert (package / "libpytracer_core.so").exists()
    assert not list(package.glob("_torch/*/*.so"))
    needed = subprocess.run(["ldd", package / "libpytracer_core.so"], capture_output=True, text=True, check=True).stdout
    assert "torch" not in needed
    assert "libpython" not in needed
    assert "libstdc++" not in needed


@pytest.mark.slow
def test_core_without_torch_traces_a_plain_python_process(without_torch: Path, run: Path) -> None:
    """A Python process that dies in ctypes has a verdict, its line, and the shell's status."""
    done = crash_with(without_torch, run)
    assert done.status == 128 + signal.SIGSEGV
    assert "null-dereference" in done.stderr
    line = line_of("null_dereference.py", "return library")
    assert f"null_dereference.py:{line}" in done.stderr
    assert "read_field" in done.stderr


@pytest.mark.slow
def test_core_without_torch_says_so_to_a_job_with_torch(without_torch: Path, run: Path) -> None:
    """`import torch` works; the recording notes why tensors are not recorded, and how to change that."""
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "pytracer", "run", "-o", str(run), "--", sys.executable, "-c"]
    code = "import torch; print(torch.ones(3).sum().item())"
    done = ended([*command, code], environment(PYTHONPATH=str(without_torch)), run)
    assert (done.status, done.stdout) == (0, "3.0\n")
    notes = [note.text for box in done.boxes for note in box.notes]
    assert len(notes) == 1
    assert "built without torch" in notes[0]


@pytest.fixture(params=["3.10", "3.11", "3.12", "3.13", "3.14"])
def other_python(request: pytest.FixtureRequest) -> str:
    """An interpreter of another version; the current one covers its own."""
    if request.param == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    return python_or_skip(request.param)


def test_stack_of_another_python_is_right(other_python: str, run: Path) -> None:
    """Functions, files and lines of every frame, whatever the layout of frames in that version."""
    program = "null_dereference.py"
    done = victim(program, run=run, python=other_python)
    assert done.status == -signal.SIGSEGV
    crash = done.box.crash
    assert crash is not None
    assert crash.steps_faulted == ()
    assert own_frames(crash.python_stack) == [
        ("learning_rate", program, line_of(program, "return library")),
        ("<module>", program, line_of(program, "learning_rate()", whole=True)),
    ]


def test_objects_of_another_python_are_followed(other_python: str, run: Path) -> None:
    """Locals, cells, items and attributes are found where that version keeps them; the recording notes no failure."""
    code = (
        "from pytracer.record.core import core; import pytracer, sys\n"
        "pytracer.enable(sys.argv[1]); print(core().check_python(), core().check_objects())"
    )
    command = [other_python, "-c", code, str(run)]
    done = ended(command, environment(PYTHONPATH=str(ROOT)), run)
    assert (done.status, done.stdout) == (0, "True True\n"), done.stderr
    assert [note.text for note in done.box.notes] == []


def test_threads_of_another_python_are_told_apart(other_python: str, run: Path) -> None:
    """A crash on a thread: its own stack is the crashed one, the main thread's is listed separately."""
    program = "fault_on_python_thread.py"
    done = victim(program, run=run, python=other_python)
    assert done.status == -signal.SIGSEGV
    crash = done.box.crash
    assert crash is not None
    assert crash.python_matched
    assert own_frames(crash.python_stack) == [("collate", program, line_of(program, "library.read_field"))]
    stacks = [own_frames(frames) for _, frames in crash.python_threads]
    assert ("wait_for", program, line_of(program, "worker.join()")) in [frame for stack in stacks for frame in stack]


def test_overflowing_recursion_of_another_python_is_recorded(other_python: str, run: Path) -> None:
    """A native stack overflow under Python frames: the handler has its own stack."""
    done = victim("stack_overflow.py", "main", run=run, python=other_python)
    assert done.status == -signal.SIGSEGV
    crash = done.box.crash
    assert crash is not None
    assert own_frames(crash.python_stack)[0][0] == "walk_tree"


def test_enable_works_in_another_python(other_python: str, run: Path) -> None:
    """enable() checks the frames of that Python, trusts them, and records; the package has no dependencies."""
    done = victim("null_dereference.py", run=run, way="enable", python=other_python)
    assert done.status == -signal.SIGSEGV
    box = done.box
    assert [note.text for note in box.notes] == []
    assert box.crash is not None
    assert own_frames(box.crash.python_stack)[0][0] == "learning_rate"


def test_frames_that_python_hides_are_left_out(other_python: str, run: Path) -> None:
    """Since 3.13 the interpreter has a frame of its own between the caller of a class and its `__init__`."""
    program = "dies_in_init.py"
    done = victim(program, run=run, python=other_python)
    assert done.status == -signal.SIGSEGV
    crash = done.box.crash
    assert crash is not None
    assert [(f.function.split(".")[-1], Path(f.file).name, f.line) for f in crash.python_stack] == [
        ("__init__", program, line_of(program, "library.read_field")),
        ("make_readers", program, line_of(program, "Reader(record)")),
        ("<module>", program, line_of(program, "make_readers()", whole=True)),
    ]


@pytest.fixture(params=["3.13t", "3.14t"])
def free_threaded_python(request: pytest.FixtureRequest) -> str:
    """An interpreter that was built without the GIL."""
    word = f"python{request.param}"
    return shutil.which(word) or pytest.skip(f"there is no {word} on PATH")


def test_free_threaded_python_is_recorded_without_its_stacks(free_threaded_python: str, run: Path) -> None:
    """Its frames are laid out differently: the crash is complete but for them, and the recording says so."""
    done = victim("null_dereference.py", run=run, way="enable", python=free_threaded_python)
    assert done.status == -signal.SIGSEGV
    crash = done.box.crash
    assert crash is not None
    assert crash.steps_faulted == ()
    assert crash.native_stack != ()
    assert crash.python_stack == ()
    assert [note.text for note in done.box.notes] == ["this CPython is free-threaded: Python stacks are left out"]
