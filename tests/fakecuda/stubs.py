"""Generates a C file for each NVIDIA library that an installed torch needs, for CMake to compile.

    python tests/fakecuda/stubs.py --torch SITE/torch --out DIR

It defines every function that torch's libraries reference, to return 0: all must exist, since Python loads extensions
with RTLD_NOW. They are weak: a definition in `libraries/` takes precedence.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from pathlib import Path

RUNTIME = "libcudart.so.13"
# Prefixes of each library's functions: undefined symbols without a version do not name their library.
PREFIXES = {
    "cublasLt": "libcublasLt.so.13",
    "cublas": "libcublas.so.13",
    "cudnn": "libcudnn.so.9",
    "cuFile": "libcufile.so.0",
    "cupti": "libcupti.so.13",
    "curand": "libcurand.so.10",
    "cusparseLt": "libcusparseLt.so.0",
    "nccl": "libnccl.so.2",
    "nvrtc": "libnvrtc.so.13",
    "nvshmem": "libnvshmem_host.so.3",
}
DRIVER, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
CALLS_OF_DRIVER, CALLS_OF_NVML = re.compile(r"cu[A-Z]\w+"), re.compile(r"nvml[A-Z]\w+")
NOT_SUPPORTED = 801  # of the driver's calls that are not implemented


def main() -> None:
    """Replaces what `--out` holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", type=Path, required=True, help="directory of the installed torch package")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    needed, symbols = wanted(options.torch / "lib")
    for soname in needed:
        write(options.out, soname, symbols.get(soname, {}))
    (options.out / ".made").touch()


def write(out: Path, soname: str, symbols: dict[str, str | None]) -> None:
    """Writes SONAME.c, and SONAME.map if torch needs the symbols with a version."""
    result = NOT_SUPPORTED if soname == DRIVER else 0
    lines = [f"__attribute__((weak)) long {name}(void) {{ return {result}; }}\n" for name in sorted(symbols)]
    (out / f"{soname}.c").write_text("".join(lines), encoding="utf-8")
    versions = {version for version in symbols.values() if version}
    if versions:
        (out / f"{soname}.map").write_text(f"{versions.pop()} {{ global: *; }};\n", encoding="utf-8")


def wanted(torch_lib: Path) -> tuple[set[str], dict[str, dict[str, str | None]]]:
    """Sonames of the libraries, and of each the symbols with their versions."""
    needed, symbols = {DRIVER, NVML}, dict[str, dict[str, str | None]]()
    for path in sorted(torch_lib.glob("*.so*")):
        if not re.match(r"lib(torch|c10|caffe2|shm)", path.name):
            continue
        needed.update(re.findall(r"NEEDED.*\[(lib(?:cu|nccl|nv)[^\]]+)\]", output(["readelf", "-dW", str(path)])))
        undefined = output(["nm", "-D", "--undefined-only", str(path)])
        for symbol, version in re.findall(r"^\s+[Uw] (\w+)(?:@(\S+))?$", undefined, re.M):
            soname = library_of(symbol, version or None)
            if soname is not None:
                symbols.setdefault(soname, {})[symbol] = version or None
    return needed - {RUNTIME}, symbols


def library_of(symbol: str, version: str | None) -> str | None:
    """The soname that a symbol belongs to; None when it is not NVIDIA's."""
    if version == "NVSHMEM":
        return PREFIXES["nvshmem"]
    if version is not None and re.match(r"lib(cu|nccl|nv)", version):
        return version
    if version is not None:
        return None
    if CALLS_OF_DRIVER.fullmatch(symbol) and not symbol.startswith("cuFile"):
        return DRIVER
    if CALLS_OF_NVML.fullmatch(symbol):
        return NVML
    return next((soname for prefix, soname in PREFIXES.items() if symbol.startswith(prefix)), None)


def output(command: list[str]) -> str:
    """Its standard output."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
