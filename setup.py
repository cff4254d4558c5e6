"""Runs CMake, which builds the native half (CMakeLists.txt), into the package. Metadata: pyproject.toml.

    pip install --no-build-isolation -e .              needs torch, setuptools, cmake, ninja and a C++ compiler
    PYTRACER_WITHOUT_TORCH=1 pip install ...           the core alone: traces any Python process
    PYTRACER_PRESET=dev ...                            with another preset of CMakePresets.json

CC and CXX select the compilers.
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

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
BUILD = ROOT / "build" / "native"
PRESET = os.environ.get("PYTRACER_PRESET", "default")
WITHOUT_TORCH = os.environ.get("PYTRACER_WITHOUT_TORCH") == "1"


def find_torch() -> Path:
    """The directory of the installed torch, or a clear refusal. An import would take seconds and CUDA's libraries."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SystemExit(
            "pytracer is built against the torch that it will trace, and no torch is importable here.\n"
            "  Install torch first, then: pip install --no-build-isolation -e .\n"
            "  (pip's isolated build would fetch another torch: --no-build-isolation is needed.)\n"
            "  To build without the torch half: PYTRACER_WITHOUT_TORCH=1 pip install --no-build-isolation -e ."
        )
    return Path(spec.origin).parent


def cuda_headers() -> Path | None:
    """The directory of cuda_runtime_api.h: named, of a toolkit, or of NVIDIA's packages beside torch."""
    named = os.environ.get("PYTRACER_CUDA_HEADERS")
    compiler = shutil.which("nvcc")
    toolkits = [os.environ.get("CUDA_HOME"), compiler and Path(compiler).parent.parent, "/usr/local/cuda"]
    candidates = [Path(toolkit) / "include" for toolkit in toolkits if toolkit]
    candidates += sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/*/include"))
    # crt/ is a package of its own: half of the headers are not enough.
    wanted = ("cuda_runtime_api.h", "crt/host_defines.h")
    candidates = [Path(named)] if named else candidates
    return next((path for path in candidates if all((path / name).is_file() for name in wanted)), None)


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
            "PYTRACER_TORCH": "",
            "PYTRACER_TORCH_MINOR": "",
            "PYTRACER_CUDA_HEADERS": "",
        }
        if not WITHOUT_TORCH:
            torch = find_torch()
            version = runpy.run_path(str(torch / "version.py"))
            settings["PYTRACER_TORCH"] = str(torch)
            settings["PYTRACER_TORCH_MINOR"] = ".".join(version["__version__"].split(".")[:2])
            if version["cuda"] is not None:
                headers = cuda_headers()
                if headers is None:
                    print("pytracer: CUDA's headers were not found: devices will not be followed; set CUDA_HOME")
                settings["PYTRACER_CUDA_HEADERS"] = str(headers or "")
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


class BinaryDistribution(Distribution):
    """Platform-specific, although no Extension lists sources."""

    def has_ext_modules(self) -> bool:
        return True


setup(
    ext_modules=[Extension("pytracer._libraries", sources=[])],  # so that setuptools runs build_ext
    cmdclass={"build_ext": BuildWithCMake},
    distclass=BinaryDistribution,
)
