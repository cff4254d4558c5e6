"""`pytracer build`: compiles the hooks for the torch that is installed, where this package has none for it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from pytracer import _cuda_headers
from pytracer import _paths as paths
from pytracer._errors import PytracerError, RecordingError
from pytracer._torch_libraries import Torch, in_directory, libraries, made, package_directory
from pytracer._version import __version__
from pytracer.cli.checks.answer import WORKS
from pytracer.cli.checks.recording import check_native
from pytracer.cli.progress import progress_bar
from pytracer.cli.terminal import show

HELP = """Add the hooks for a torch that this pytracer has none for: a nightly, a vendor's build, a newer release.

Compiles them against the torch that is installed, which needs g++ 12 or newer, Python.h, and a minute or two. They are
kept in the cache directory of the user ($XDG_CACHE_HOME, or ~/.cache), for this one torch and this version of pytracer.
Jobs never build.

\b
Examples:
  pytracer build
  CXX=g++-13 pytracer build --force
"""

_FLAGS = ("-O2", "-g1", "-std=c++20", "-fPIC", "-w")
_LINK = ("-shared", "-Wl,-z,nodelete", "-Wl,--gc-sections")  # as in csrc/CMakeLists.txt
_ERROR = re.compile(r"^.*\berror: .*$", re.M)


@click.command("build", help=HELP)
@click.option(
    "--force", is_flag=True, help="Also where there are hooks for this torch; replaces those that were built."
)
def command(force: bool) -> int:
    """See HELP."""
    package = package_directory()
    if package is None:
        raise PytracerError("there is no torch here to build for", "run this with the Python that has the torch")
    torch = in_directory(package)
    if not force:
        with contextlib.suppress(RecordingError):
            chosen = libraries(torch)
            show(f"torch {torch.version} has its hooks already: {chosen.directory}\n")
            return 0
    directory = made(torch).directory
    directory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=directory.parent) as scratch:
        built = Path(scratch) / "libraries"
        built.mkdir(mode=0o755)
        without = _build(torch, package, built, Path(scratch))
        shutil.rmtree(directory, ignore_errors=True)
        built.rename(directory)
    tried = check_native()
    if tried.result != WORKS:
        shutil.rmtree(directory, ignore_errors=True)
        raise PytracerError(
            f"the hooks were built, but do not work with this torch: {tried.detail}", "they were removed"
        )
    show(f"torch {torch.version}: {tried.detail}. The hooks are in {directory}\n")
    if without:
        show(f"{without}\n")
    return 0


def _build(torch: Torch, package: Path, target: Path, scratch: Path) -> str:
    """Writes the libraries; returns why there is none for CUDA devices, or ""."""
    compiler = _compiler()
    sources = paths.sources()
    if not (package / "include").is_dir():
        raise PytracerError(f"{package} has no headers of C++", "only the core records with this torch")
    python = sysconfig.get_path("include")
    if not os.path.isfile(os.path.join(python, "Python.h")):
        raise PytracerError(f"{python} has no Python.h", "install Python's headers, such as the package python3-dev")
    common = [
        *compiler,
        *_FLAGS,
        f"@{sources / 'hooks' / 'flags.txt'}",
        f'-DPYTRACER_BUILT_FOR="{torch.identity}"',
        f"-I{sources}",
        *("-isystem", str(package / "include"), "-isystem", str(package / "include/torch/csrc/api/include")),
        *("-isystem", python),
    ]
    link = [*_LINK, f"-L{package / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
    link += [str(paths.built_core()), f"-Wl,-rpath,{paths.built_core().parent}"]
    halves = {"torch": ("hooks", common, link)}
    without = ""
    if (package / "lib" / "libc10_cuda.so").is_file():
        headers = next(_cuda_headers.whole(_cuda_headers.installed()), None)
        if headers is None:
            without = "CUDA devices are not followed: cuda_runtime_api.h was not found; set CUDA_HOME and build again"
        else:
            halves["cuda"] = ("cuda", [*common, "-isystem", str(headers)], [*link, "-lc10_cuda"])
    jobs = [
        (source, scratch / f"{name}-{'-'.join(source.relative_to(sources).parts)}.o", name)
        for name, (folder, _, _) in halves.items()
        for source in sorted((sources / folder).rglob("*.cpp"))
    ]
    with progress_bar("compiling the hooks") as report, ThreadPoolExecutor(os.cpu_count()) as pool:
        precompiled = scratch / "precompiled.h"
        shutil.copyfile(sources / "hooks" / "support" / "precompiled.h", precompiled)
        _run([*common, "-x", "c++-header", str(precompiled), "-o", f"{precompiled}.gch"], torch)

        def compile_one(job: tuple[Path, Path, str]) -> None:
            source, target, name = job
            first = ("-include", str(precompiled)) if name == "torch" else ()
            _run([*halves[name][1], *first, "-c", str(source), "-o", str(target)], torch)

        for done, _ in enumerate(_finished(pool, compile_one, jobs), 1):
            if report is not None:
                report(done, len(jobs))
    for name, (_, _, libraries_) in halves.items():
        made_of = [str(job[1]) for job in jobs if job[2] == name]
        _run([*compiler, *made_of, *libraries_, "-o", str(target / f"libpytracer_{name}.so")], torch)
    return without


def _finished(
    pool: ThreadPoolExecutor, act: Callable[[tuple[Path, Path, str]], None], jobs: list[tuple[Path, Path, str]]
) -> Iterator[None]:
    """As each ends; the first failure ends all."""
    try:
        yield from pool.map(act, jobs)
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise


def _compiler() -> list[str]:
    named = shlex.split(os.environ.get("CXX", ""))
    found = named if named and shutil.which(named[0]) else [path for path in (shutil.which("g++"),) if path]
    if named and found is not named:
        raise PytracerError(f"CXX names {named[0]}, which is not there", "unset CXX, or name a C++ compiler")
    if not found:
        raise PytracerError("there is no C++ compiler", "install g++ 12 or newer, or set CXX")
    return found


def _run(command: list[str], torch: Torch) -> None:
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    if done.returncode == 0:
        return
    first = _ERROR.search(done.stdout)
    said = first[0] if first else (done.stdout.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    raise PytracerError(
        f"the hooks of pytracer {__version__} do not compile for torch {torch.version}: {said}",
        "without them the core records: signals, stacks, exceptions; a newer pytracer may know this torch",
    )
