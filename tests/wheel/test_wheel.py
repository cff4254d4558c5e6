"""The wheel of scripts/build_wheel.py: what is in it, and that it works where there is no compiler."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from tests.conditions import WHEELS, needs_torch, needs_wheel

pytestmark = [needs_wheel, needs_torch]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ddp_use_after_free.py"
COMPILERS = ("g++", "c++", "clang++")
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}  # PEP 600: manylinux_2_28
JOB = """
import os, torch
kept = torch.ones(1000)
print(kept.sum().item(), flush=True)
if os.environ.get("DIE"):
    import ctypes
    ctypes.string_at(0)
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of this PATH, without any compiler for C++."""
    directory = tmp_path_factory.mktemp("tools")
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            link = directory / program.name
            link.unlink(missing_ok=True)
            if not program.name.startswith(COMPILERS) and "-g++" not in program.name:
                link.symlink_to(program)
    return directory


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, tools: Path) -> Path:
    """A new environment with the wheel, and the torch of this one."""
    directory = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    here = next(directory.glob("lib/python*/site-packages"))
    # torch and its packages, but not the tree that this environment may have installed in place of the wheel.
    (here / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    done = call(directory, tools, "pip", "install", "--disable-pip-version-check", str(WHEELS[-1]))
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def call(environment: Path, tools: Path, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command of the environment, without a compiler."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTRACER", "PYTHON", "LD_"))}
    path = f"{environment / 'bin'}{os.pathsep}{tools}"
    return subprocess.run(
        [environment / "bin" / command[0], *command[1:]], cwd=environment, check=False, capture_output=True, text=True,
        env={**kept, "PATH": path, "HOME": str(environment), "OMP_NUM_THREADS": "1", **variables}, timeout=240,
    )  # fmt: skip


def libraries() -> dict[str, bytes]:
    """What is compiled in the wheel, by name."""
    with zipfile.ZipFile(WHEELS[-1]) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    return {name: content for name, content in found.items() if content.startswith(b"\x7fELF")}


def announced(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines about what the job's processes cannot record."""
    return [
        line
        for line in done.stderr.splitlines()
        if line.startswith("pytracer: tensors and collectives are not recorded: ")
    ]


def test_wheel_is_for_every_python_and_small() -> None:
    """No tag of one CPython; at most 6 MB, without debug symbols."""
    assert WHEELS[-1].name.endswith(f"-py3-none-manylinux_2_28_{os.uname().machine}.whl")
    assert WHEELS[-1].stat().st_size < 6e6
    for name, content in libraries().items():
        assert ELFFile(BytesIO(content)).get_section_by_name(".debug_info") is None, name


def test_libraries_need_no_newer_system_than_the_tag_says() -> None:
    """No symbol that glibc 2.28 or the libstdc++ of gcc 8 lacks; the core needs libc and nothing else."""
    compiled = libraries()
    assert {"pytracer/libpytracer_core.so", "pytracer/_helper"} < compiled.keys()
    for name, content in compiled.items():
        elf = ELFFile(BytesIO(content))
        needed = elf.get_section_by_name(".gnu.version_r")
        assert isinstance(needed, GNUVerNeedSection)
        versions = [part.name for library, parts in needed.iter_versions() for part in parts]
        assert versions, name
        for version in versions:
            kind, _, digits = version.partition("_")
            assert tuple(map(int, digits.split("."))) <= NEWEST.get(kind, (99,)), f"{name} needs {version}"
        if name in ("pytracer/libpytracer_core.so", "pytracer/_helper"):
            files = {library.name for library, _ in needed.iter_versions()}
            assert files <= {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}, name


def test_job_of_two_ranks_is_explained_without_a_compiler(environment: Path, tools: Path) -> None:
    """The demo's job: bucket, parameter, and the lines of allocation and free. `doctor` finds everything essential."""
    # torchrun is a script of the other environment.
    job = ["python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(EXAMPLE)]
    done = call(environment, tools, "pytracer", "run", "-o", "demo", "--", *job)
    assert "use-after-free (certain): rank 1" in done.stderr, done.stderr
    assert "DDP bucket 0 of Transformer (generation 0, 49 parameters); here: embedding.weight" in done.stderr
    assert "allocated" in done.stderr and "ddp_use_after_free.py" in done.stderr
    doctor = call(environment, tools, "pytracer", "doctor")
    assert doctor.returncode == 0, doctor.stdout


@pytest.mark.parametrize("damage", ["missing", "truncated", "of another torch"])
def test_wrong_library_is_refused_once_and_the_job_is_untouched(
    environment: Path, tools: Path, damage: str, tmp_path: Path
) -> None:
    """One line on stderr says why and what to type; the job prints what it prints, and its crash has a report."""
    minor = ".".join(importlib.metadata.version("torch").split(".")[:2])
    library = next(environment.glob(f"lib/python*/site-packages/pytracer/_torch/{minor}/libpytracer_torch.so"))
    kept = tmp_path / "kept"
    shutil.copy(library, kept)
    try:
        if damage == "missing":
            library.unlink()
        elif damage == "truncated":
            library.write_bytes(kept.read_bytes()[:-100])
        else:
            library.write_bytes(kept.read_bytes().replace(f"{minor}\0".encode(), f"{'1.99':.{len(minor)}}\0".encode()))
        done = call(environment, tools, "pytracer", "run", "-o", tmp_path / "run", "--", "python", "-c", JOB)
        assert (done.returncode, done.stdout) == (0, "1000.0\n")
        assert len(announced(done)) == 1, done.stderr
        died = call(environment, tools, "pytracer", "run", "-o", tmp_path / "died", "--", "python", "-c", JOB, DIE="1")
        assert died.returncode == 139
        assert "null-dereference" in died.stderr
    finally:
        shutil.copy(kept, library)


@pytest.fixture
def unknown_torch(tmp_path: Path) -> Path:
    """A directory with a torch whose version nobody knows."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    original, copy = Path(spec.origin).parent, tmp_path / "unknown" / "torch"
    copy.mkdir(parents=True)
    for path in original.iterdir():
        if path.name != "version.py":
            (copy / path.name).symlink_to(path)
    text = (original / "version.py").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("__version__"))
    (copy / "version.py").write_text(text.replace(line, "__version__ = '2.99.0a0+unknown'"), encoding="utf-8")
    return copy.parent


def test_unknown_torch_is_told_once_and_served_after_pytracer_build(
    environment: Path, tools: Path, unknown_torch: Path, tmp_path: Path
) -> None:
    """Before: one line. `pytracer build` where there is no compiler: one line. After it: tensors are recorded."""
    variables = {"PYTHONPATH": str(unknown_torch), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    job = ["--", "python", "-c", JOB]
    done = call(environment, tools, "pytracer", "run", "-o", tmp_path / "before", *job, **variables)
    assert (done.returncode, done.stdout) == (0, "1000.0\n")
    (line,) = announced(done)
    assert line.endswith("this is torch 2.99.0a0+unknown; `pytracer build` adds them for this one")
    refused = call(environment, tools, "pytracer", "build", **variables)
    assert refused.returncode == 1
    assert refused.stderr == "pytracer: there is no C++ compiler; install g++ 12 or newer, or set CXX\n"
    compiler = shutil.which("g++")
    assert compiler is not None
    built = call(environment, tools, "pytracer", "build", CXX=compiler, **variables)
    assert built.returncode == 0, built.stderr
    assert "torch 2.99.0a0+unknown: a traced child recorded its tensors" in built.stdout
    again = call(environment, tools, "pytracer", "build", CXX=compiler, **variables)
    assert "has its hooks already" in again.stdout
    code = JOB.replace("ctypes.string_at(0)", "ctypes.string_at(kept.data_ptr() + (1 << 44))")
    run = ["run", "-o", str(tmp_path / "after"), "--", "python", "-c", code]
    died = call(environment, tools, "pytracer", *run, DIE="1", **variables)
    assert died.returncode == 139
    assert announced(died) == []
    storages = call(environment, tools, "pytracer", "dump", next((tmp_path / "after" / "boxes").glob("*.blackbox")))
    assert "4000" in storages.stdout
