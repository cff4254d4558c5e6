"""Are CUDA devices recorded here? A traced child creates a tensor on one and captures a CUDA graph."""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
from pathlib import Path

from pytracer._torch_libraries import BUILD_COMMAND, installed
from pytracer.blackbox.note_codes import NoteCode
from pytracer.cli.checks.answer import LIMITED, WORKS, Check, boxes, has_hooks, is_built, last_line, traced
from pytracer.decode.recording.reader import read_box
from pytracer.decode.types.snapshot import Snapshot
from pytracer.launcher.gpu_core import gpu_core_variables

_TRY = """
import ctypes, json, torch
seen = {"cuda": torch.version.cuda, "devices": torch.cuda.device_count()}
if seen["devices"]:
    seen["name"] = torch.cuda.get_device_name(0)
    version = ctypes.c_int(0)
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    seen["driver"] = version.value
    kept = torch.ones(5, device="cuda")
    torch.cuda.synchronize()
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept.add_(1)
        graph.replay()
        torch.cuda.synchronize()
    except RuntimeError as error:
        seen["graph"] = str(error).splitlines()[0]
print(json.dumps(seen))
"""


def check_cuda() -> Check:
    """What the child reported, and what its recording contains."""
    if not is_built() or importlib.util.find_spec("torch") is None:
        return Check("cuda", LIMITED, "not tried: see `torch` above")
    with tempfile.TemporaryDirectory(prefix="pytracer-doctor-") as directory:
        done = traced(Path(directory), "-c", _TRY)
        found = [read_box(path) for path in boxes(directory)]
    try:
        seen = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return Check("cuda", LIMITED, f"a child that uses CUDA failed: {last_line(done)}")
    return cuda(seen, found, has_hooks() and installed()[1].path("cuda").is_file())


def cuda(seen: dict[str, object], found: list[Snapshot], built: bool) -> Check:
    """`seen`: the child's output; `found`: its recordings; `built`: there is a libpytracer_cuda."""
    version, devices = seen.get("cuda"), seen.get("devices")
    if not version:
        return Check("cuda", WORKS, "this torch is for CPUs: there is nothing to follow")
    if not built:
        why = "there is no libpytracer_cuda for it"
        return Check(
            "cuda", LIMITED, f"torch is for CUDA {version}, but {why}", f"set CUDA_HOME, then `{BUILD_COMMAND}`"
        )
    if not devices:
        return Check("cuda", WORKS, f"torch is for CUDA {version}; there is no device here")
    notes = [note.text for box in found for note in box.notes if note.code == NoteCode.CUDA]
    blocks = [item for box in found for item in box.storages if item.device != "cpu"]
    if not blocks:
        return Check("cuda", LIMITED, f"memory of {seen.get('name')} is not followed: {'; '.join(notes) or 'no block'}")
    graphs = any(graph.replays for box in found for graph in box.cuda_graphs)
    what = "blocks and CUDA graphs" if graphs else f"blocks; no CUDA graph: {seen.get('graph') or 'none was seen'}"
    plural = "" if devices == 1 else "s"
    said = f"{devices} device{plural} ({seen.get('name')}): {what} followed; {_core_words(seen)}"
    return Check("cuda", WORKS if graphs else LIMITED, said)


def _core_words(seen: dict[str, object]) -> str:
    """Core dumps of devices are not tried: a device fault is logged by the kernel, where others may be alerted."""
    unwanted = gpu_core_variables(None, os.environ)[2]
    if unwanted:
        return f"with --gpu-core, {unwanted[0]}"
    driver = int(str(seen.get("driver") or 0))
    which = f"the driver, for CUDA {driver // 1000}.{driver % 1000 // 10}," if driver else "the driver"
    return f"{which} can write core dumps of devices (run --gpu-core; not tried)"
