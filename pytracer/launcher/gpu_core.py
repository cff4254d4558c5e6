"""`pytracer run --gpu-core`: the driver writes a core dump of a device into the run directory when a kernel fails.

It uses NVIDIA's own environment variables, which the CUDA driver reads when it creates a context. Variables set by the
user are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytracer._errors import RecordingError
from pytracer._private_files import made_directory, private_directory
from pytracer.launcher.json_object import JsonObject
from pytracer.launcher.run_directory import GPU_CORES

_ENABLE, _FILE = "CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "CUDA_COREDUMP_FILE"
_FLAGS, _LIGHT, _HOST = (
    "CUDA_COREDUMP_GENERATION_FLAGS",
    "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP",
    "CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION",
)
# Without memory a dump is small. The driver ends the process by abort() after the dump. With skip_abort it would not,
# but then the wait during which the kernel failed returns success (driver 580): a program that waits once and ends has
# exit status 0.
_LIGHT_FLAGS = "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory"


def gpu_core_variables(directory: Path | None, base: Mapping[str, str]) -> tuple[dict[str, str], JsonObject, list[str]]:
    """The variables for the job, their record in run.json, and lines for the user.

    `directory` is the run directory, in which the folder for the dumps is created; None: create nothing.
    """
    file = str(directory / GPU_CORES / "%h.%p.nvcudmp") if directory is not None else ""
    ours = {_ENABLE: "1", _FILE: file, _FLAGS: _LIGHT_FLAGS}
    if _FLAGS not in base:  # the names in drivers before CUDA 12.5
        ours |= {_LIGHT: "1", _HOST: "0"}
    kept = {name: base[name] for name in (_ENABLE, _FILE, _FLAGS, _LIGHT, _HOST) if name in base}
    notes = []
    if kept.get(_ENABLE, "1") != "1":
        notes.append(f"{_ENABLE}={kept[_ENABLE]} is set: devices write no core dump")
    if "skip_abort" in kept.get(_FLAGS, ""):
        notes.append(f"{_FLAGS} is set with skip_abort: a failed kernel can go unnoticed, the call after it succeeds")
    if _FILE not in kept and "%" in str(directory):
        notes.append(f"devices write no core dump: the driver would misread the % in {directory}; use another -o DIR")
        return {}, {"file": None, "set": {}, "kept": kept}, notes
    added = {name: value for name, value in ours.items() if name not in kept}
    if _FILE in added and directory is not None:
        try:
            with private_directory(directory) as opened, made_directory(GPU_CORES, opened):
                pass
        except (OSError, RecordingError) as error:
            notes.append(f"devices write no core dump: {error}")
            return {}, {"file": None, "set": {}, "kept": kept}, notes
    return added, {"file": kept.get(_FILE), "set": added, "kept": kept}, notes
