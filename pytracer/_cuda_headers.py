"""Where CUDA's headers are: for setup.py, which runs this file by its path, and for `pytracer build`."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

# crt/ is a package of its own: half of the headers are not enough.
_WANTED = ("cuda_runtime_api.h", "crt/host_defines.h")


def whole(directories: Iterable[Path]) -> Iterator[Path]:
    """Those that have all headers."""
    return (path for path in directories if all((path / name).is_file() for name in _WANTED))


def installed() -> list[Path]:
    """Directories of a toolkit, and of NVIDIA's packages in this environment; they may lack headers."""
    compiler = shutil.which("nvcc")
    toolkits = [os.environ.get("CUDA_HOME"), compiler and str(Path(compiler).parent.parent), "/usr/local/cuda"]
    found = [Path(toolkit) / "include" for toolkit in toolkits if toolkit]
    return found + sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/*/include"))
