"""Every skip condition of the tests, with its reason."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "pytracer"


def _dumps_beside() -> bool:
    try:
        pattern = Path("/proc/sys/kernel/core_pattern").read_text(encoding="utf-8").strip()
    except OSError:
        return False
    return pattern == "core" and resource.getrlimit(resource.RLIMIT_CORE)[1] != 0


def _has_namespaces() -> bool:
    if shutil.which("unshare") is None:
        return False
    done = subprocess.run(["unshare", "-rmpf", "--mount-proc", "true"], capture_output=True, check=False)
    return done.returncode == 0


def _torch_minor() -> str:
    try:
        return ".".join(importlib.metadata.version("torch").split(".")[:2])
    except importlib.metadata.PackageNotFoundError:
        return ""


needs_core = pytest.mark.skipif(
    not (PACKAGE / "libpytracer_core.so").exists(), reason="libpytracer_core.so is not built: make build"
)
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
STRESS = PACKAGE.parent / "build" / "native" / "testing" / "stress"
needs_stress = pytest.mark.skipif(not STRESS.exists(), reason="built by make test-tsan and make test-asan")
needs_native = pytest.mark.skipif(
    not list(PACKAGE.glob("_torch/*/libpytracer_torch.so")), reason="pytracer was built without torch"
)
WHEELS = sorted((PACKAGE.parent / "build" / "wheel").glob("*.whl"))
needs_wheel = pytest.mark.skipif(not WHEELS, reason="built by make test-wheel")
needs_namespaces = pytest.mark.skipif(not _has_namespaces(), reason="user namespaces are not to be had here")
needs_user = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
needs_capstone = pytest.mark.skipif(importlib.util.find_spec("capstone") is None, reason="capstone is not installed")
needs_symbolic = pytest.mark.skipif(importlib.util.find_spec("symbolic") is None, reason="symbolic is not installed")
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="the victims are compiled with cc: install gcc")
needs_history = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("duckdb", "fsspec", "pyarrow")),
    reason="pytracer[history] is not installed",
)
needs_gdb = pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
needs_memory_lock = pytest.mark.skipif(
    os.geteuid() != 0 and resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] != resource.RLIM_INFINITY,
    reason="a program may not lock all its memory here (ulimit -l)",
)
needs_atheris = pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
needs_core_files = pytest.mark.skipif(
    not _dumps_beside(),
    reason="core dumps do not go beside the program here: core_pattern is no plain name, or limit 0",
)
needs_debug_detail_crash = pytest.mark.skipif(
    _torch_minor() not in ("2.13", "2.14"), reason="only torch 2.13 and 2.14 die of TORCH_DISTRIBUTED_DEBUG=DETAIL"
)
needs_py_spy = pytest.mark.skipif(
    shutil.which("py-spy") is None and not os.access(os.path.join(os.path.dirname(sys.executable), "py-spy"), os.X_OK),
    reason="py-spy is not installed: pip install py-spy",
)
needs_exit_by_pidfd = pytest.mark.skipif(
    tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2]) < (6, 15),
    reason="Linux tells the exit status by a pidfd since 6.15",
)


def python_or_skip(version: str) -> str:
    """An interpreter `pythonVERSION` that runs: from PYTRACER_TEST_PYTHONS (separated by colons), else from PATH."""
    word = f"python{version}"
    given = [path for path in os.environ.get("PYTRACER_TEST_PYTHONS", "").split(":") if path]
    for candidate in [*given, shutil.which(word) or ""]:
        if not candidate:
            continue
        show = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"]
        found = subprocess.run(show, capture_output=True, text=True, check=False).stdout.split()
        if found[:1] == [version]:
            return found[1]
    pytest.skip(f"there is no {word}: put it on PATH or into PYTRACER_TEST_PYTHONS")
