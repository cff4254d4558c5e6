"""Generates a C file for each NVIDIA library that an installed torch needs, for CMake to compile.

    python tests/fakecuda/stubs.py --torch SITE/torch --out DIR
    python tests/fakecuda/stubs.py --torch SITE/torch --out DIR --no-device

It defines every function that torch's libraries reference, to return 0: all must exist, since Python loads extensions
with RTLD_NOW. They are weak: a definition in `libraries/` takes precedence.

With --no-device it compiles them at once, and with them a CUDA runtime whose calls all fail because there is no device:
enough to use a torch for CUDA on the CPU without NVIDIA's packages (DIR in LD_LIBRARY_PATH).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from pathlib import Path

RUNTIME = "libcudart.so"
# Prefixes of each library's functions: undefined symbols without a version do not name their library.
PREFIXES = {
    "cublasLt": "libcublasLt.so",
    "cublas": "libcublas.so",
    "cudnn": "libcudnn.so",
    "cuFile": "libcufile.so",
    "cupti": "libcupti.so",
    "curand": "libcurand.so",
    "cusparseLt": "libcusparseLt.so",
    "nccl": "libnccl.so",
    "nvrtc": "libnvrtc.so",
    "nvshmem": "libnvshmem_host.so",
}
DRIVER, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
CALLS_OF_DRIVER, CALLS_OF_NVML = re.compile(r"cu[A-Z]\w+"), re.compile(r"nvml[A-Z]\w+")
NOT_SUPPORTED = 801  # of the driver's calls that are not implemented
NO_DEVICE = 100


def main() -> None:
    """Replaces what `--out` holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", type=Path, required=True, help="directory of the installed torch package")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--no-device", action="store_true", help="compile them, with a runtime that has no device")
    options = parser.parse_args()
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    needed, symbols = wanted(options.torch / "lib")
    for soname in needed:
        if options.no_device or not soname.startswith(RUNTIME):
            write(options.out, soname, symbols.get(soname, {}))
            if options.no_device:
                build(options.out, soname)
    (options.out / ".made").touch()


def write(out: Path, soname: str, symbols: dict[str, str | None]) -> None:
    """Writes SONAME.c, and SONAME.map if torch needs the symbols with a version."""
    result = NOT_SUPPORTED if soname == DRIVER else NO_DEVICE if soname.startswith(RUNTIME) else 0
    lines = [f"__attribute__((weak)) long {name}(void) {{ return {result}; }}\n" for name in sorted(symbols)]
    (out / f"{soname}.c").write_text("".join(lines), encoding="utf-8")
    versions = {version for version in symbols.values() if version}
    if versions:
        (out / f"{soname}.map").write_text(f"{versions.pop()} {{ global: *; }};\n", encoding="utf-8")


def build(out: Path, soname: str) -> None:
    """Compiles SONAME from what `write` wrote."""
    options = ["-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{soname}"]
    if (out / f"{soname}.map").exists():
        options.append(f"-Wl,--version-script={out / soname}.map")
    subprocess.run(["cc", *options, str(out / f"{soname}.c"), "-o", str(out / soname)], check=True)


def wanted(torch_lib: Path) -> tuple[set[str], dict[str, dict[str, str | None]]]:
    """Sonames of the libraries, and of each the symbols with their versions."""
    needed, undefined = {DRIVER, NVML}, set[tuple[str, str | None]]()
    for path in sorted(torch_lib.glob("*.so*")):
        if not re.match(r"lib(torch|c10|caffe2|shm)", path.name):
            continue
        needed.update(re.findall(r"NEEDED.*\[(lib(?:cu|nccl|nv)[^\]]+)\]", output(["readelf", "-dW", str(path)])))
        listed = output(["nm", "-D", "--undefined-only", str(path)])
        undefined.update(re.findall(r"^\s+[Uw] (\w+)(?:@(\S+))?$", listed, re.M))
    symbols = dict[str, dict[str, str | None]]()
    for symbol, version in undefined:
        soname = library_of(symbol, version or None, needed)
        if soname is not None:
            symbols.setdefault(soname, {})[symbol] = version or None
    return needed, symbols


def library_of(symbol: str, version: str | None, needed: set[str]) -> str | None:
    """Which of the needed sonames a symbol belongs to; None when it is not NVIDIA's."""
    if version == "NVSHMEM":
        return next((soname for soname in needed if soname.startswith(PREFIXES["nvshmem"])), None)
    if version is not None and re.match(r"lib(cu|nccl|nv)", version):
        return version
    if version is not None:
        return None
    if CALLS_OF_DRIVER.fullmatch(symbol) and not symbol.startswith("cuFile"):
        return DRIVER
    if CALLS_OF_NVML.fullmatch(symbol):
        return NVML
    library = next((name for prefix, name in PREFIXES.items() if symbol.startswith(prefix)), None)
    return next((soname for soname in needed if library and soname.startswith(library)), None)


def output(command: list[str]) -> str:
    """Its standard output."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
