"""Runs CMake, which builds the native half (CMakeLists.txt), into the package. Metadata: pyproject.toml.

    pip install .                                  against the torch of the environment that pip installs into
    PYTRACER_WITHOUT_TORCH=1 pip install .         the core alone: traces any Python process
    PYTRACER_TORCH=DIR:DIR ... python -m build     for several torches, each the directory of its package
    PYTRACER_PRESET=dev ...                        with another preset of CMakePresets.json

It needs a C++ compiler; CC and CXX select one. Wheels that need none are built by scripts/build_wheel.py.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import NamedTuple

import setuptools
from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

if int(setuptools.__version__.split(".")[0]) < 77:
    raise SystemExit(f"pytracer needs setuptools 77, this is {setuptools.__version__}: pip install 'setuptools>=77'")
from setuptools.command.bdist_wheel import bdist_wheel

ROOT = Path(__file__).resolve().parent
BUILD = ROOT / "build" / "native"
PRESET = os.environ.get("PYTRACER_PRESET", "default")
WITHOUT_TORCH = os.environ.get("PYTRACER_WITHOUT_TORCH") == "1"
# Where `pytracer build` finds the sources of the torch half in an installed package.
SOURCES = "_sources"
SOURCE_FOLDERS = ("blackbox", "crashsafe", "core", "guard", "hooks", "cuda")
# Of libraries that scripts/link_stubs.py made; the wheel then runs on every system that has this glibc or a newer one.
STUBS = os.environ.get("PYTRACER_STUBS", "")
MANYLINUX = "manylinux_2_28"
MACHINE = os.environ.get("PYTRACER_MACHINE", os.uname().machine)


class Torch(NamedTuple):
    """A torch to build for."""

    directory: Path
    minor: str
    cuda: str | None
    """The version of CUDA that it was built with."""


def torch_in(directory: Path) -> Torch:
    """What its version.py says. An import would take seconds and CUDA's libraries."""
    try:
        version = runpy.run_path(str(directory / "version.py"))
    except FileNotFoundError:
        raise SystemExit(f"PYTRACER_TORCH: {directory} is no torch package: it has no version.py") from None
    return Torch(directory, ".".join(version["__version__"].split(".")[:2]), version["cuda"])


def torches() -> list[Torch]:
    """Those to build for, or a clear refusal.

    An isolated build hides the environment's packages from imports; its directories are still those of the environment
    (pip) or those of an environment of its own (uv, build).
    """
    if WITHOUT_TORCH:
        return []
    named = os.environ.get("PYTRACER_TORCH")
    if named:
        return [torch_in(Path(directory)) for directory in named.split(os.pathsep)]
    spec = importlib.util.find_spec("torch")
    places = [Path(spec.origin).parent] if spec is not None and spec.origin is not None else []
    places += [Path(sysconfig.get_path(name)) / "torch" for name in ("purelib", "platlib")]
    found = next((place for place in places if (place / "version.py").is_file()), None)
    if found is None:
        raise SystemExit(
            "pytracer: no torch to build against was found in this environment. If it is installed, type:\n"
            "  pip install --no-build-isolation pytracer     (after: pip install 'setuptools>=77' cmake ninja)\n"
            "or PYTRACER_WITHOUT_TORCH=1 pip install pytracer, for the core alone."
        )
    return [torch_in(found)]


def cuda_headers(cuda: str) -> Path | None:
    """The directory of cuda_runtime_api.h for a version of CUDA: named, of a toolkit, or of NVIDIA's packages."""
    places = runpy.run_path(str(ROOT / "pytracer" / "_cuda_headers.py"))
    named = os.environ.get("PYTRACER_CUDA_HEADERS")
    candidates = [Path(directory) for directory in named.split(os.pathsep)] if named else places["installed"]()
    major = cuda.split(".")[0]
    for candidate in places["whole"](candidates):
        text = (candidate / "cuda_runtime_api.h").read_text(encoding="utf-8", errors="replace")
        if re.search(rf"^#define CUDART_VERSION +{major}\d{{3}}$", text, re.M):
            return Path(candidate)
    return None


def tool(name: str) -> str:
    """The program `name`: from the PyPI package if installed, because the system's may be too old."""
    module = importlib.import_module(name) if importlib.util.find_spec(name) else None
    places = [getattr(module, "CMAKE_BIN_DIR", ""), getattr(module, "BIN_DIR", ""), os.environ.get("PATH", os.defpath)]
    found = shutil.which(name, path=os.pathsep.join(filter(None, places)))
    if found is None:
        raise SystemExit(f"pytracer needs {name} to build: pip install {name}")
    return found


def forget_other_compilers() -> None:
    """Removes CMake's cache if CC or CXX has changed: CMake ignores them later, and -DCMAKE_CXX_COMPILER drops -D's."""
    cache = BUILD / "CMakeCache.txt"
    known = cache.read_text(encoding="utf-8") if cache.is_file() else ""
    for variable, language in (("CC", "C"), ("CXX", "CXX")):
        words = shlex.split(os.environ.get(variable, ""))
        used = re.search(rf"^CMAKE_{language}_COMPILER:\w+=(.*)$", known, re.M)
        if words and used and used[1] != shutil.which(words[0]):
            cache.unlink(missing_ok=True)


def run(command: list[str], failed: str, *, quiet: bool = True) -> None:
    """Runs a command. CMake writes errors to stderr, progress to stdout."""
    if subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL if quiet else None).returncode != 0:
        raise SystemExit(f"pytracer {failed}")


class BuildWithCMake(build_ext):
    """Builds into the package, whichever way setuptools asks."""

    def run(self) -> None:
        package = ROOT / "pytracer" if self.inplace else Path(self.build_lib).resolve() / "pytracer"
        package.mkdir(parents=True, exist_ok=True)
        # The empty ones are passed, too: CMake would keep the values of the build before.
        settings = {
            "CMAKE_MAKE_PROGRAM": tool("ninja"),
            "PYTRACER_PYTHON_INCLUDE": sysconfig.get_path("include"),
            "PYTRACER_STUBS": STUBS,
        }
        found = torches()
        headers = []
        for torch in found:
            directory = cuda_headers(torch.cuda) if torch.cuda is not None else None
            headers.append(str(directory or "none"))
            if torch.cuda is not None and directory is None:
                print(f"pytracer: no headers of CUDA {torch.cuda}: the hooks of torch {torch.minor} ignore devices")
                print("  set CUDA_HOME, or PYTRACER_CUDA_HEADERS to the directory of cuda_runtime_api.h")
        settings["PYTRACER_TORCH"] = ";".join(str(torch.directory) for torch in found)
        settings["PYTRACER_TORCH_MINOR"] = ";".join(torch.minor for torch in found)
        settings["PYTRACER_CUDA_HEADERS"] = ";".join(headers)
        cmake = tool("cmake")
        forget_other_compilers()
        run(
            [cmake, "--preset", PRESET, *(f"-D{name}={value}" for name, value in settings.items())],
            "cannot be built: CMake's first error above tells why\n"
            f"  (no C++ compiler: apt-get install g++; a tree that was moved: rm -r {BUILD.relative_to(ROOT)})",
        )
        run(
            [cmake, "--build", str(BUILD)],
            "did not compile: the first error above tells why (a C++20 compiler such as gcc 12 is needed)",
            quiet=False,
        )
        shutil.rmtree(package / "_torch", ignore_errors=True)  # of an older build: they would not fit the new core
        run(
            [cmake, "--install", str(BUILD), "--prefix", str(package)],
            f"was built, but not copied into {package}: the error above tells why",
        )

    def get_outputs(self) -> list[str]:
        package = Path(self.build_lib) / "pytracer"
        libraries = [] if WITHOUT_TORCH else sorted(map(str, package.glob("_torch/*/*.so")))
        return [str(package / name) for name in ("libpytracer_core.so", "_helper")] + libraries

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class BuildPython(build_py):
    """Adds the sources of the torch half, which `pytracer build` compiles for a torch that has no library here."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # they are in the tree
            return
        for source in self.sources():
            target = Path(self.build_lib) / "pytracer" / SOURCES / source.relative_to(ROOT / "csrc")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)

    def sources(self) -> list[Path]:
        found = [path for folder in SOURCE_FOLDERS for path in (ROOT / "csrc" / folder).rglob("*")]
        # Of the core the interface only.
        own = {ROOT / "csrc" / folder for folder in ("hooks", "cuda")}
        return sorted(path for path in found if path.is_file() and (path.suffix != ".cpp" or own & {*path.parents}))


class BuildWheel(bdist_wheel):
    """One wheel for every CPython: the libraries use its stable interface only."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", f"{MANYLINUX}_{MACHINE}" if STUBS else super().get_tag()[2]


class BinaryDistribution(Distribution):
    """Platform-specific, although no Extension lists sources."""

    def has_ext_modules(self) -> bool:
        return True


setup(
    ext_modules=[Extension("pytracer._libraries", sources=[])],  # so that setuptools runs build_ext
    cmdclass={"bdist_wheel": BuildWheel, "build_ext": BuildWithCMake, "build_py": BuildPython},
    distclass=BinaryDistribution,
)
