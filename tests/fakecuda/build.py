"""Builds the fake CUDA runtime and stand-ins for every other NVIDIA library that an installed torch needs.

    python tests/fakecuda/build.py --torch SITE/torch --headers CUDA/include --out DIR

Functions that `libraries/` defines do what is written there; all others that torch's libraries refer to return 0. All
must exist, since Python loads extensions with RTLD_NOW. Built again only when a source, this file or torch has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNTIME = "libcudart.so.13"
# Whose functions begin how: undefined symbols without a version do not tell their library.
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
FLAGS = ["-O1", "-fPIC", "-shared", "-w"]
NOT_SUPPORTED = 801  # of the driver's calls that are not written out


def main() -> int:
    """Builds what is out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", type=Path, required=True, help="directory of the installed torch package")
    parser.add_argument("--headers", type=Path, required=True, help="directory of cuda_runtime_api.h")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    stamp, now = options.out / ".built", fingerprint(options.torch)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == now:
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    build_runtime(options.headers, options.out)
    build_libraries(options.torch / "lib", options.headers, options.out)
    stamp.write_text(now, encoding="utf-8")
    return 0


def fingerprint(torch: Path) -> str:
    """Of all that goes into the libraries."""
    digest = hashlib.sha256((torch / "version.py").read_bytes())
    for path in sorted(HERE.rglob("*")):
        if path.suffix in {".c", ".cpp", ".h", ".map", ".py"}:
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def build_runtime(headers: Path, out: Path) -> None:
    """libcudart.so.13: torch asks for its symbols with the version of that name."""
    compiler = os.environ.get("CXX", "g++")
    sources = sorted(map(str, (HERE / "runtime").glob("*.cpp")))
    script = f"-Wl,--version-script={HERE / 'runtime' / 'cudart.map'}"
    run(
        [compiler, "-std=c++20", *FLAGS, "-fvisibility=hidden", f"-isystem{headers}", *sources]
        + [f"-Wl,-soname,{RUNTIME}", script, "-o", str(out / RUNTIME), "-lpthread"]
    )


def build_libraries(torch_lib: Path, headers: Path, out: Path) -> None:
    """Everything else that torch's libraries need."""
    needed, symbols = wanted(torch_lib)
    for soname in sorted(needed):
        build_library(soname, symbols.get(soname, {}), headers, out)
    print(f"fake CUDA: {RUNTIME} and {len(needed)} libraries in {out}")


def wanted(torch_lib: Path) -> tuple[set[str], dict[str, dict[str, str | None]]]:
    """Sonames to build, and of each the symbols with their versions."""
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


def build_library(soname: str, symbols: dict[str, str | None], headers: Path, out: Path) -> None:
    """One stand-in: what `libraries/` has for it, and functions that return 0 for the rest."""
    own = source_of(soname)
    own_object = out / f"{soname}.own.o"
    if own is not None:
        compiler = (
            [os.environ.get("CXX", "g++"), "-std=c++20"] if own.suffix == ".cpp" else [os.environ.get("CC", "gcc")]
        )
        run([*compiler, "-O1", "-fPIC", "-w", f"-isystem{headers}", "-c", str(own), "-o", str(own_object)])
    defined = set(re.findall(r" T (\w+)$", output(["nm", str(own_object)]), re.M)) if own is not None else set()
    result = NOT_SUPPORTED if soname == DRIVER else 0
    generated = out / f"{soname}.c"
    rest = sorted(set(symbols) - defined)
    generated.write_text("".join(f"long {name}(void) {{ return {result}; }}\n" for name in rest), encoding="utf-8")
    command = [os.environ.get("CXX", "g++"), *FLAGS, "-fno-builtin", "-x", "c", str(generated), "-x", "none"]
    command += [str(own_object)] if own is not None else []
    versions = {version for version in symbols.values() if version}
    script = out / f"{soname}.map"
    if versions:
        script.write_text(f"{versions.pop()} {{ global: *; }};\n", encoding="utf-8")
        command.append(f"-Wl,--version-script={script}")
    if soname == PREFIXES["nccl"]:
        command.append(str(out / RUNTIME))
    run([*command, f"-Wl,-soname,{soname}", "-o", str(out / soname)])
    for path in (generated, script, own_object):
        path.unlink(missing_ok=True)


def source_of(soname: str) -> Path | None:
    """libcublas.so.13 -> libraries/cublas.c."""
    name = {DRIVER: "driver", NVML: "nvml"}.get(soname, soname.removeprefix("lib").split(".so")[0])
    return next((path for suffix in (".c", ".cpp") if (path := HERE / "libraries" / (name + suffix)).is_file()), None)


def output(command: list[str]) -> str:
    """Its standard output."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def run(command: list[str]) -> None:
    """Stops everything when it fails."""
    if subprocess.run(command, check=False).returncode != 0:
        raise SystemExit("fake CUDA: this failed: " + " ".join(command))


if __name__ == "__main__":
    sys.exit(main())
