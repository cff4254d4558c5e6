"""Cross-compiles the native half for aarch64 as developers build it: without warnings, with the test libraries.

    python scripts/build_aarch64.py                     into build/aarch64, with the hooks for torch 2.13
    python scripts/build_aarch64.py --torch 2.10 2.13   for these
    python scripts/build_aarch64.py --torch             the core and the helper only

gcc only: clang has no __builtin_setjmp for aarch64. torch's headers and libraries come from its wheel for aarch64 on
PyPI (scripts/build_wheel.py), CUDA's headers from NVIDIA's. Python's are this machine's: hooks need its stable
interface only.
Runs nothing; scripts/test_aarch64.py does.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
from pathlib import Path

from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.build_wheel import TORCHES, cuda_headers, machine, torch_package  # noqa: E402

BUILD = ROOT / "build" / "aarch64"
# Built for CUDA, so that both of its libraries are compiled.
TORCH = "2.13"


def build(minors: list[str]) -> None:
    """Configures and compiles."""
    target = machine("aarch64")
    target.tool("g++")
    versions = [TORCHES[minor] for minor in minors]
    # For aarch64, torch 2.10 and older on PyPI are built without CUDA.
    torches = [torch_package(version, target) for version, _ in versions]
    headers = [
        str(cuda_headers(cuda)) if (torch / "lib" / "libc10_cuda.so").exists() else "none"
        for torch, (_, cuda) in zip(torches, versions, strict=True)
    ]
    settings = {
        "PYTRACER_TORCH": ";".join(map(str, torches)),
        "PYTRACER_TORCH_MINOR": ";".join(minors),
        "PYTRACER_CUDA_HEADERS": ";".join(headers),
        "PYTRACER_PYTHON_INCLUDE": sysconfig.get_path("include"),
    }
    subprocess.run(
        ["cmake", "--preset", "aarch64", *(f"-D{name}={value}" for name, value in settings.items())],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    subprocess.run(["cmake", "--build", BUILD], check=True)


def check(minors: list[str]) -> None:
    """Every library is one for aarch64."""
    names = ["libpytracer_core.so", "_helper", *(f"torch/{minor}/libpytracer_torch.so" for minor in minors)]
    for name in names:
        with (BUILD / "csrc" / name).open("rb") as file:
            built_for = ELFFile(file)["e_machine"]
        if built_for != "EM_AARCH64":
            raise SystemExit(f"{name} is built for {built_for}")


def main() -> None:
    """Builds, checks, names the libraries."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", nargs="*", choices=TORCHES, default=[TORCH], help=f"default: {TORCH}")
    minors: list[str] = parser.parse_args().torch
    build(minors)
    check(minors)
    for library in sorted((BUILD / "csrc").glob("**/*.so")):
        print(f"{library.relative_to(ROOT)}  {library.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    main()
