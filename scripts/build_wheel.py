"""Builds the wheel that is installed everywhere: the core, and the hooks for every torch in TORCHES, stripped.

    python scripts/build_wheel.py                        dist/pytracer-*-py3-none-manylinux_2_28_x86_64.whl
    python scripts/build_wheel.py --torch 2.13 2.14      with the hooks for these only
    python scripts/build_wheel.py --installed            for the torch of this Python only, which takes a minute
    python scripts/build_wheel.py --machine aarch64      cross-compiled, with aarch64-linux-gnu-g++

Needs gcc 12, what setup.py needs, and 4 GB. torch's headers and libraries come from its own wheels: 0.5 GB to download
for each, and 0.5 GB that are kept in build/torch. Debug symbols go to dist/debug, by build id, as below /usr/lib/debug.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection

ROOT = Path(__file__).resolve().parent.parent
# By minor version: the release whose headers are used, and the CUDA that its wheels on PyPI are built for.
TORCHES = {
    "2.9": ("2.9.1", 12),
    "2.10": ("2.10.0", 12),
    "2.11": ("2.11.0", 13),
    "2.12": ("2.12.1", 13),
    "2.13": ("2.13.0", 13),
    "2.14": ("2.14.1", 13),
    "2.15": ("2.15.0", 13),
}
# Wheels with the headers of a CUDA. Only declarations are used.
CUDA_HEADERS = {
    12: ("nvidia-cuda-runtime-cu12==12.8.90", "nvidia-cuda-nvcc-cu12==12.8.93"),
    13: ("nvidia-cuda-runtime==13.0.96", "nvidia-cuda-crt==13.0.88"),
}
LIBRARIES = ("c10", "c10_cuda", "torch", "torch_cpu", "torch_python")
WHEELS_OF = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
# Any CPython's: hooks are the same for all.
PYTHON = "3.12"


class Machine(NamedTuple):
    """What a wheel is built for."""

    name: str
    prefix: str
    """Of the compiler's tools; "" for this machine's own."""

    def tool(self, name: str) -> str:
        """A tool of the compiler, which must be there."""
        found = shutil.which(self.prefix + name)
        if found is None:
            package = f"g++-{self.prefix.rstrip('-')}" if self.prefix else "g++"
            raise SystemExit(f"there is no {self.prefix}{name}: apt-get install {package}")
        return found


def machine(name: str) -> Machine:
    """By the kernel's name."""
    return Machine(name, "" if name == os.uname().machine else f"{name}-linux-gnu-")


def download(requirement: str, target: Machine, directory: Path) -> Path:
    """A wheel for the target, whatever this machine's constraints say."""
    say(f"downloading {requirement} for {target.name}")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", PYTHON, "--dest", str(directory), requirement]
    command += [word for name in WHEELS_OF for word in ("--platform", f"{name}_{target.name}")]
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PIP_CONSTRAINT", "PIP_FIND_LINKS")
    }
    subprocess.run(command, check=True, env={**environment, "PIP_CONFIG_FILE": os.devnull})
    return next(directory.glob("*.whl"))


def extract(wheel: Path, wanted: Sequence[str], target: Path) -> None:
    """What begins with one of `wanted`."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target, [name for name in archive.namelist() if name.startswith(tuple(wanted))])


def torch_package(version: str, target: Machine) -> Path:
    """The headers and libraries of a torch, as its package has them; kept."""
    kept = ROOT / "build" / "torch" / f"{version}-{target.name}"
    if not kept.is_dir():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
            wheel = download(f"torch=={version}", target, Path(scratch))
            wanted = ["torch/include/", "torch/version.py", *(f"torch/lib/lib{name}.so" for name in LIBRARIES)]
            extract(wheel, wanted, Path(scratch) / "unpacked")
            (Path(scratch) / "unpacked").rename(kept)
    return kept / "torch"


def cuda_headers(major: int) -> Path:
    """A directory with cuda_runtime_api.h and crt/; kept. The same for every machine."""
    kept = ROOT / "build" / "torch" / f"cuda{major}"
    if not kept.is_dir():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
            merged = Path(scratch) / "merged"
            for number, requirement in enumerate(CUDA_HEADERS[major]):
                place = Path(scratch) / str(number)
                place.mkdir()
                extract(download(requirement, machine("x86_64"), place), ["nvidia/"], place)
                for directory in place.glob("nvidia/*/include"):
                    shutil.copytree(directory, merged, dirs_exist_ok=True)
            merged.rename(kept)
    return kept


def build(packages: Sequence[Path], headers: Sequence[Path], target: Machine, output: Path) -> Path:
    """The wheel, in `output`, for the torches of these packages, with these directories of CUDA's headers."""
    stubs = ROOT / "build" / f"stubs-{target.name}"
    compiler = target.tool("gcc")
    subprocess.run([sys.executable, ROOT / "scripts/link_stubs.py", stubs, "--compiler", compiler], check=True)
    tree = ROOT / "build" / f"wheel-tree-{target.name}"
    subprocess.run([sys.executable, ROOT / "scripts/second_tree.py", tree], check=True)
    for older in (tree / "build").glob("lib*"):
        shutil.rmtree(older)
    environment = {
        **os.environ,
        "CC": compiler,
        "CXX": target.tool("g++"),
        "PYTRACER_PRESET": f"wheel-{target.name}" if target.prefix else "default",
        "PYTRACER_TORCH": os.pathsep.join(map(str, packages)),
        "PYTRACER_CUDA_HEADERS": os.pathsep.join(map(str, headers)) or os.devnull,
        "PYTRACER_STUBS": str(stubs),
        "PYTRACER_MACHINE": target.name,
    }
    say(f"compiling for {len(packages)} torches" if len(packages) > 1 else "compiling")
    subprocess.run([sys.executable, "setup.py", "-q", "build"], cwd=tree, env=environment, check=True)
    for path in sorted((tree / "build").glob("lib*/pytracer/**/*")):
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
            strip(path, target, output / "debug")
    for older in output.glob(f"*{target.name}.whl"):
        older.unlink()
    command = [sys.executable, "setup.py", "-q", "bdist_wheel", "--skip-build", "--dist-dir", str(output)]
    subprocess.run(command, cwd=tree, env=environment, check=True)
    return next(output.glob(f"*{target.name}.whl"))


def strip(library: Path, target: Machine, debug: Path) -> None:
    """Moves the debug symbols of a library to .build-id/xx/yy.debug."""
    with library.open("rb") as file:
        notes = ELFFile(file).get_section_by_name(".note.gnu.build-id")
        assert isinstance(notes, NoteSection)
        build_id = next(note["n_desc"] for note in notes.iter_notes())
    symbols = debug / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    symbols.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [target.tool("objcopy"), "--only-keep-debug", "--compress-debug-sections", library, symbols], check=True
    )
    subprocess.run([target.tool("strip"), "--strip-unneeded", library], check=True)


def say(text: str) -> None:
    """A line about what takes time."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Builds one wheel, and says how large it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", nargs="+", choices=TORCHES, default=list(TORCHES), help="default: all")
    parser.add_argument("--installed", action="store_true", help="for the torch of this Python only, without devices")
    parser.add_argument("--machine", choices=("x86_64", "aarch64"), default=os.uname().machine)
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="default: dist")
    arguments = parser.parse_args()
    output: Path = arguments.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    target = machine(arguments.machine)
    if arguments.installed:
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.origin is None:
            raise SystemExit("--installed: there is no torch here")
        wheel = build([Path(spec.origin).parent], [], target, output)
    else:
        packages = [torch_package(TORCHES[minor][0], target) for minor in arguments.torch]
        headers = [cuda_headers(major) for major in sorted({TORCHES[minor][1] for minor in arguments.torch})]
        wheel = build(packages, headers, target, output)
    print(f"{wheel}  {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
