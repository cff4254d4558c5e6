"""CPython's own tests, of each interpreter that is found; psutil's and NumPy's."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

from tests.peers.peer import PROGRAMS, Peer, Results, Setting, unittests
from tests.support.cli import ROOT

VERSIONS = ("3.10", "3.11", "3.12", "3.13")
QUICK = ("test_signal", "test_faulthandler", "test_threadsignals", "test_subprocess")
SLOW = ("test_asyncio", "test_concurrent_futures")
FILES = (
    *QUICK, "test_threading", "test_thread", "test_os", "test_posix", "test_wait3", "test_wait4", "test_fork1",
    "test_exceptions", "test_popen", "test_pty", "test_select", "test_selectors", "test_resource", "test_mmap",
    "test_ctypes", "test_atexit", "test_eintr", *SLOW,
)  # fmt: skip
START_METHODS = ("fork", "spawn", "forkserver")
NUMPY = (
    "numpy._core.tests.test_mem_overlap", "numpy._core.tests.test_multithreading", "numpy._core.tests.test_errstate",
    "numpy._core.tests.test_umath", "numpy._core.tests.test_memmap", "numpy.linalg.tests.test_linalg",
    "numpy.random.tests.test_generator_mt19937",
)  # fmt: skip
PSUTIL = (
    "psutil.tests.test_process",
    "psutil.tests.test_system",
    "psutil.tests.test_linux",
    "psutil.tests.test_posix",
    "psutil.tests.test_misc",
)


@functools.cache
def interpreters() -> dict[str, str]:
    """Version -> interpreter: this one, those of PYTRACER_TEST_PYTHONS, then those of PATH."""
    found: dict[str, str] = {}
    given = [path for path in os.environ.get("PYTRACER_TEST_PYTHONS", "").split(":") if path]
    for candidate in [sys.executable, *given, *(shutil.which(f"python{version}") or "" for version in VERSIONS)]:
        if not candidate:
            continue
        show = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"]
        words = subprocess.run(show, capture_output=True, text=True, check=False).stdout.split()
        if len(words) == 2:
            found.setdefault(*words)
    return found


def _names(python: str, file: str) -> list[str]:
    """The file, or the files of a package: packages of tests contain no tests themselves."""
    show = (
        "import importlib.util, os, sys\n"
        "spec = importlib.util.find_spec('test.' + sys.argv[1])\n"
        "where = spec and spec.submodule_search_locations\n"
        "names = sorted(os.listdir(where[0])) if where else []\n"
        "found = [name[:-3] for name in names if name.startswith('test_') and name.endswith('.py')]\n"
        "print(*(found if where else ['.'] if spec else []))"
    )
    parts = subprocess.run([python, "-c", show, file], capture_output=True, text=True, check=False).stdout.split()
    return [f"test.{file}" if part == "." else f"test.{file}.{part}" for part in parts]


def _no_tests(python: str, file: str) -> str:
    return "" if _names(python, file) else f"{file} does not come with this Python"


def _cpython(python: str, file: str, at: Setting) -> Results:
    return unittests(at, python, _names(python, file), seconds=900)


def _multiprocessing(python: str, method: str, at: Setting) -> Results:
    path = f"{ROOT}:{PROGRAMS}"
    return unittests(
        at, python, ["cpython_multiprocessing"], seconds=1800, PYTHONPATH=path, CPYTHON_START_METHOD=method
    )


def _psutil(at: Setting) -> Results:
    return unittests(at, sys.executable, PSUTIL, seconds=600)


def _numpy(at: Setting) -> Results:
    """pytest's results of a part of NumPy's tests."""
    xml = at.work / "results.xml"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", *NUMPY, f"--junit-xml={xml}"]
    done = at.run(words, seconds=900)
    results: Results = {"exit status": str(done.status)}
    if xml.exists():
        for case in ElementTree.parse(xml).iter("testcase"):
            kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
            results[f"{case.get('classname')}.{case.get('name')}"] = kinds[0] if kinds else "passed"
    return results


def _missing(module: str) -> str:
    try:
        return "" if importlib.util.find_spec(module) else f"{module} is not installed"
    except ModuleNotFoundError:
        return f"{module} is not installed"


def peers() -> Iterator[Peer]:
    """One for each file and interpreter."""
    for version, python in sorted(interpreters().items()):
        for file in FILES:
            act = functools.partial(_cpython, python, file)
            why_not = functools.partial(_no_tests, python, file)
            quick = file in QUICK and python == sys.executable
            yield Peer(f"CPython {version} {file}", act, why_not, quick=quick, slow=file in SLOW)
        for method in START_METHODS:
            act = functools.partial(_multiprocessing, python, method)
            why_not = functools.partial(_no_tests, python, "_test_multiprocessing")
            yield Peer(f"CPython {version} multiprocessing by {method}", act, why_not, slow=True)
    yield Peer("psutil", _psutil, functools.partial(_missing, "psutil.tests"))
    yield Peer("NumPy", _numpy, functools.partial(_missing, "hypothesis"))
