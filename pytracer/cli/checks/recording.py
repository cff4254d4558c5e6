"""Can anything be recorded here? The interpreter, the core, the torch half, the preload, the handler, the directory.

A check tries the real thing if it can: it loads the core, preloads it, crashes a child. Anything that could end this
process runs in a child with a time limit.
"""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
import tempfile
from pathlib import Path

from pytracer import _paths as paths
from pytracer._errors import PytracerError, RecordingError
from pytracer._paths import install_again
from pytracer._torch_libraries import installed
from pytracer._version import __version__
from pytracer.blackbox import schema
from pytracer.cli.checks.answer import (
    LIMITED,
    MISSING,
    WORKS,
    Check,
    because,
    box_state,
    boxes,
    has_hooks,
    is_built,
    last_line,
    python,
    traced,
)  # fmt: skip
from pytracer.decode.recording.reader import read_box
from pytracer.launcher import run_directory

_PYTHONS = ((3, 10), (3, 14))


def check_python() -> Check:
    """The interpreter whose frames the crash handler must read."""
    version = f"{platform.python_implementation()} {platform.python_version()}"
    low, high = (f"{major}.{minor}" for major, minor in _PYTHONS)
    if platform.python_implementation() != "CPython":
        return Check("python", MISSING, version, f"use CPython {low} to {high}", True)
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return Check(
            "python",
            LIMITED,
            f"{version}, free-threaded: no Python stacks and no tensors",
            f"use CPython {low} to {high}",
            True,
        )
    if not _PYTHONS[0] <= sys.version_info[:2] <= _PYTHONS[1]:
        return Check(
            "python", LIMITED, f"{version}: Python stacks may be missing", f"use CPython {low} to {high}", True
        )
    return Check("python", WORKS, version, essential=True)


def check_kernel() -> Check:
    """Operating system and processor."""
    system = os.uname()
    detail = f"{system.sysname} {system.release}, {system.machine}"
    if system.sysname != "Linux":
        return Check("kernel", MISSING, detail, "recording needs Linux; reading works here", True)
    if system.machine != "x86_64":
        return Check("kernel", LIMITED, f"{detail}: tried on x86_64 only", essential=True)
    return Check("kernel", WORKS, detail, essential=True)


def check_core() -> Check:
    """The library that records: built, and loadable here."""
    try:
        path = run_directory.core_library()
    except PytracerError as error:
        return Check("core", MISSING, str(error.args[0]), error.hint, True)
    done = python(
        f"import ctypes; core = ctypes.CDLL({str(path)!r}); core.pytracer_version.restype = ctypes.c_char_p; "
        "print(core.pytracer_version().decode())"
    )
    if done.returncode:
        return Check("core", MISSING, f"{path} does not load: {last_line(done)}", install_again(), True)
    version = done.stdout.strip()
    if version != __version__:
        return Check("core", LIMITED, f"core {version}, Python half {__version__}", install_again(), True)
    return Check("core", WORKS, f"pytracer {version}", essential=True)


def check_torch() -> Check:
    """The installed torch against those that there are hooks for."""
    try:
        torch, chosen = installed()
    except RecordingError as error:
        return Check("torch", LIMITED, f"{error.args[0]}: tensors are not recorded", error.hint)
    return Check("torch", WORKS, f"{torch.version}, with the hooks for {chosen.built_for}")


def check_native() -> Check:
    """The torch hooks: a traced child must record a tensor."""
    if not has_hooks():
        return Check("native", LIMITED, "not tried: see `torch` above")
    if not is_built():
        return Check("native", MISSING, "not tried, there is no core")
    with tempfile.TemporaryDirectory(prefix="pytracer-doctor-") as directory:
        done = traced(Path(directory), "-c", "import torch; kept = torch.ones(5)")
        found = [read_box(path) for path in boxes(directory)]
    notes = [note.text for box in found for note in box.notes]
    if done.returncode:
        return Check("native", MISSING, f"a traced `import torch` failed: {last_line(done)}", install_again())
    if not any(box.storages for box in found):
        why = "; ".join(notes) or last_line(done)
        return Check("native", LIMITED, f"a traced child recorded no tensor: {why}", install_again())
    return Check("native", WORKS, "a traced child recorded its tensors")


def check_preload() -> Check:
    """A child with LD_PRELOAD must leave a recording."""
    if not is_built():
        return Check("preload", MISSING, "not tried, there is no core", essential=True)
    with tempfile.TemporaryDirectory(prefix="pytracer-doctor-") as directory:
        done = traced(Path(directory), "-c", "pass")
        found = boxes(directory)
        if done.returncode:
            return Check(
                "preload",
                MISSING,
                f"a traced child ended with {done.returncode}: {last_line(done)}",
                install_again(),
                True,
            )
        if not found:
            return Check("preload", MISSING, f"a traced child left no recording {because(done)}", install_again(), True)
        return Check(
            "preload",
            WORKS,
            f"a traced child left a recording of {found[0].stat().st_size / 2**20:.0f} MiB",
            essential=True,
        )


def check_crash_handler() -> Check:
    """A child that reads address 0 must die of SIGSEGV, unchanged, with a complete crash section."""
    if not is_built():
        return Check("crash-handler", MISSING, "not tried, there is no core", essential=True)
    code = "import ctypes, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); ctypes.string_at(0)"
    with tempfile.TemporaryDirectory(prefix="pytracer-doctor-") as directory:
        done = traced(Path(directory), "-c", code)
        states = [box_state(path) for path in boxes(directory)]
    if done.returncode != -11:
        return Check(
            "crash-handler",
            MISSING,
            f"a child that read address 0 ended with {done.returncode}, not -11",
            install_again(),
            True,
        )
    if schema.State.CRASHED not in states:
        return Check(
            "crash-handler",
            MISSING,
            f"a child died of SIGSEGV, and its recording has no crash {because(done)}",
            install_again(),
            True,
        )
    return Check("crash-handler", WORKS, "a child died of SIGSEGV, and its recording has the crash", essential=True)


def check_directory() -> Check:
    """Where `pytracer run` would record from the current directory."""
    place = Path.cwd() / paths.RUNS
    place = place if place.is_dir() else place.parent
    kind = paths.file_system(place)
    room = os.statvfs(place)
    free = room.f_bavail * room.f_frsize
    detail = f"{place} on {kind or 'an unknown file system'}, {free / 2**30:.1f} GiB free"
    if not os.access(place, os.W_OK | os.X_OK):
        return Check(
            "directory", MISSING, f"{detail}, not writable", "change directory, or `pytracer run -o DIR`", True
        )
    if free < run_directory.ROOM_BYTES:
        return Check("directory", MISSING, f"{detail}: too little", "free some, or `pytracer run -o DIR`", True)
    if paths.is_remote(kind):
        return Check(
            "directory",
            LIMITED,
            f"{detail}: recordings are written to {tempfile.gettempdir()} first",
            "`pytracer run -o DIR`",
            True,
        )
    return Check("directory", WORKS, detail, essential=True)
