"""Builds libpytracer_core (no torch, no Python) and, against the installed torch, _native. Metadata: pyproject.toml.

    pip install --no-build-isolation -e .              needs torch, setuptools, ninja and a C++ compiler
    PYTRACER_WITHOUT_TORCH=1 pip install ...           the core alone: traces any Python process

Both are built by one ninja file, so a second build compiles only what changed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
CSRC = ROOT / "csrc"
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "pytracer" / "_version.py").read_text(encoding="utf-8"))[1]  # type: ignore[index]
WITHOUT_TORCH = os.environ.get("PYTRACER_WITHOUT_TORCH") == "1"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")

# no-plt: calls between libraries go straight through the address table, without a stub, one more line of code to fetch.
# no-tree-slp-vectorize: a record is a few small fields; gathered into vectors first, they take twice the instructions.
COMMON = ["-std=c++20", f"-I{CSRC}", "-O2", "-g1", "-fPIC", "-fvisibility=hidden", "-fno-plt"]
COMMON = [*COMMON, "-fno-tree-slp-vectorize", "-Wall", "-Wextra", "-Werror"]
# -fno-threadsafe-statics: the guards live in libstdc++, and the core needs only libc and libgcc.
CORE = [
    *COMMON,
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-ftls-model=initial-exec",
    "-fno-stack-protector",
    "-fasynchronous-unwind-tables",
    f'-DPYTRACER_VERSION="{VERSION}"',
]
# nodelete: live storages hold our deleter, threads our stacks. now: nothing binds lazily while the process dies.
# sort-section: csrc/crashsafe/platform/large.h. noseparate-code: two mappings less, for every process that starts.
# static-libgcc: each would load libgcc_s.so.1 for us, for 0.1 ms; see csrc/core/interpose/unwind_tables.cpp.
CORE_LINK = [
    "-shared",
    "-Wl,-soname,libpytracer_core.so",
    "-Wl,-z,nodelete",
    "-Wl,-z,now",
    "-Wl,--no-undefined",
    "-Wl,--sort-section=name",
    "-Wl,-z,noseparate-code",
    f"-Wl,--version-script={CSRC / 'libpytracer_core.map'}",
    "-static-libgcc",
    "-ldl",
    "-lpthread",
]

# make test-tsan and make test-asan build the core in a second tree, and with it a program for the sanitizer in which
# threads work on all that is published without locks (csrc/testing/stress.cpp). The preloaded library itself cannot be
# AddressSanitizer's or ThreadSanitizer's: both want to stand before it, and the signals that it is there for. Its
# undefined behaviour traps.
SANITIZE = os.environ.get("PYTRACER_SANITIZE")
SANITIZERS = {
    "thread": ["-fsanitize=thread", "-Wno-tsan"],  # it knows no fences: see csrc/crashsafe/file/seq_slot.h
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
}
TRAPS = {"address": ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]}
# Not for the sanitizers: destructors of threads, which run after ThreadSanitizer has forgotten the thread.
AFTER_THREADS = ("alternate_stack.cpp",)
# Its own definitions of libc's functions are not for the runtimes, which start before it.
STRESS_LINK = ["-pie", "-ldl", "-lpthread", f"-Wl,--version-script={CSRC / 'testing' / 'stress.map'}"]


def quote(words: list[str]) -> str:
    """Words for a ninja variable that a shell will read."""
    return shlex.join(words).replace("$", "$$")


def place(path: object) -> str:
    """A path in a build line of ninja's."""
    return re.sub(r"[$ :]", r"$\g<0>", str(path))


class Ninja:
    """Collects one ninja file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lines = [
            "rule cxx",
            "  command = $compiler $flags -MMD -MF $out.d -c $in -o $out",
            "  depfile = $out.d",
            "  deps = gcc",
            "  description = compile $in",
            "rule link",
            "  command = $compiler -o $out $in $flags",
            "  description = link $out",
        ]
        self.targets: list[str] = []

    def library(
        self,
        target: Path,
        sources: list[Path],
        compiler: str,
        flags: list[str],
        link: list[str],
        after: list[Path],
        *,
        sanitizer: tuple[str, ...] = (),
    ) -> None:
        """One linked file; `after` are files that must be linked before it."""
        objects = []
        for source in sources:
            name = f"{target.name.split('.')[0]}/{source.relative_to(CSRC)}.o"
            objects.append(name)
            self.lines += [
                f"build {place(name)}: cxx {place(source)}",
                f"  compiler = {compiler}",
                f"  flags = {quote([*flags, *(() if source.name in AFTER_THREADS else sanitizer)])}",
            ]
        order = " | " + " ".join(map(place, after)) if after else ""
        self.lines += [
            f"build {place(target)}: link {' '.join(map(place, objects))}{order}",
            f"  compiler = {compiler}",
            f"  flags = {quote([*link, *sanitizer])}",
        ]
        self.targets.append(place(target))

    def run(self) -> None:
        """Builds everything."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "build.ninja").write_text(
            "\n".join([*self.lines, "default " + " ".join(self.targets), ""]), encoding="utf-8"
        )
        ninja = shutil.which("ninja") or shutil.which("ninja", path=sysconfig.get_path("scripts"))
        if ninja is None:
            raise SystemExit("pytracer needs ninja to build: pip install ninja")
        if subprocess.run([ninja, "-C", str(self.directory)], check=False).returncode != 0:
            raise SystemExit(
                "pytracer did not compile: the first error above tells why (a C++20 compiler such as gcc 12 is needed)"
            )


def find_torch() -> object:
    """The installed torch, or a clear refusal."""
    if importlib.util.find_spec("torch") is None:
        raise SystemExit(
            "pytracer is built against the torch that it will trace, and no torch is importable here.\n"
            "  Install torch first, then: pip install --no-build-isolation -e .\n"
            "  (pip's isolated build would fetch another torch: --no-build-isolation is needed.)\n"
            "  To build without the torch half: PYTRACER_WITHOUT_TORCH=1 pip install --no-build-isolation -e ."
        )
    import torch

    return torch


def cuda_headers() -> str | None:
    """The directory of cuda_runtime_api.h: named, of a toolkit, or of NVIDIA's packages beside torch."""
    from torch.utils import cpp_extension

    site = Path(sysconfig.get_path("purelib"))
    named = os.environ.get("PYTRACER_CUDA_HEADERS")
    toolkit = os.environ.get("CUDA_HOME") or getattr(cpp_extension, "CUDA_HOME", None) or "/usr/local/cuda"
    candidates = [Path(named)] if named else [Path(toolkit) / "include", *sorted(site.glob("nvidia/*/include"))]
    # crt/ is a package of its own: half of the headers are not enough.
    wanted = ("cuda_runtime_api.h", "crt/host_defines.h")
    return next((str(path) for path in candidates if all((path / name).is_file() for name in wanted)), None)


class BuildWithNinja(build_ext):
    """Builds both libraries into the package, whichever way setuptools asks."""

    def run(self) -> None:
        package = ROOT / "pytracer" if self.inplace else Path(self.build_lib).resolve() / "pytracer"
        package.mkdir(parents=True, exist_ok=True)
        compiler = os.environ.get("CXX", "g++")
        cc = os.environ.get("CC", "gcc")
        ninja = Ninja(ROOT / "build" / f"ninja-{sys.version_info[0]}.{sys.version_info[1]}")
        core = package / "libpytracer_core.so"
        sources = [
            source for folder in ("crashsafe", "core", "guard") for source in sorted((CSRC / folder).rglob("*.cpp"))
        ]
        ninja.library(core, sources, cc, [*CORE, *TRAPS.get(SANITIZE or "", [])], CORE_LINK, [])
        if SANITIZE is not None:
            stress = [*sources, CSRC / "testing" / "stress.cpp"]
            ninja.library(
                package / "_stress", stress, compiler, CORE, STRESS_LINK, [], sanitizer=tuple(SANITIZERS[SANITIZE])
            )
        # An executable: its own process beside the job, which must not be a process of the job.
        ninja.library(package / "_helper", sorted((CSRC / "helper").glob("*.cpp")), cc, CORE, ["-pie"], [])
        info = {
            "pytracer": VERSION,
            "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
            "torch": None,
            "cuda": None,
            "core": True,
            "native": False,
        }
        if not WITHOUT_TORCH:
            torch = find_torch()
            info.update(torch=torch.__version__, cuda=torch.version.cuda, native=True)  # type: ignore[attr-defined]
            native_flags, native_link = self.native_options(package, torch)
            sources = sorted((CSRC / "hooks").rglob("*.cpp")) + [CSRC / "bindings" / "module.cpp"]
            ninja.library(package / f"_native{SUFFIX}", sources, compiler, native_flags, native_link, [core])
            if info["cuda"] is not None:
                headers = cuda_headers()
                if headers is None:
                    print("pytracer: CUDA's headers were not found: devices will not be followed; set CUDA_HOME")
                else:
                    flags = [*native_flags, f"-isystem{headers}"]
                    sources = sorted((CSRC / "cuda").glob("*.cpp"))
                    link = [*native_link, "-lc10_cuda"]
                    ninja.library(package / f"_native_cuda{SUFFIX}", sources, compiler, flags, link, [core])
                info["cuda_native"] = headers is not None
        ninja.run()
        (package / "_build_info.json").write_text(json.dumps(info) + "\n", encoding="utf-8")

    def native_options(self, package: Path, torch: object) -> tuple[list[str], list[str]]:
        """Flags of the torch-facing extensions, for the compiler and for the linker."""
        from torch.utils import cpp_extension

        includes = [*cpp_extension.include_paths(), sysconfig.get_path("include")]
        flags = [
            *COMMON,
            "-Wno-unused-parameter",
            # Part of at::RecordFunction's layout: without it every inputs() call throws.
            "-DNDEBUG",
            "-DTORCH_API_INCLUDE_EXTENSION_H",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",  # type: ignore[attr-defined]
            *[f"-isystem{path}" for path in includes],
        ]
        link = ["-shared", "-Wl,-z,nodelete", f"-L{package}", "-lpytracer_core", "-Wl,-rpath,$ORIGIN"]
        link += [f"-L{path}" for path in cpp_extension.library_paths()] + [
            "-lc10",
            "-ltorch_cpu",
            "-ltorch",
            "-ltorch_python",
        ]
        return flags, link

    def get_outputs(self) -> list[str]:
        package = Path(self.build_lib) / "pytracer"
        native = [] if WITHOUT_TORCH else sorted(map(str, package.glob(f"_native*{SUFFIX}")))
        return [str(package / name) for name in ("libpytracer_core.so", "_helper", "_build_info.json")] + native

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class BinaryDistribution(Distribution):
    """Platform-specific, although no Extension lists sources."""

    def has_ext_modules(self) -> bool:
        return True


setup(
    ext_modules=[Extension("pytracer._native", sources=[])],
    cmdclass={"build_ext": BuildWithNinja},
    distclass=BinaryDistribution,
)
