"""What `pytracer doctor` looks at: one function per question, each answering with a `Check`.

A check tries the thing itself where it can: it loads the core, preloads it, crashes a child. What could take this
process down happens in a child with a time limit.
"""

from __future__ import annotations

import faulthandler
import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytracer
from pytracer._errors import PytracerError
from pytracer._version import __version__
from pytracer.blackbox import codec, schema
from pytracer.decode.reader import read_box
from pytracer.record import launch

WORKS, LIMITED, MISSING = "works", "limited", "missing"
_PYTHONS = ((3, 10), (3, 13))
_SECONDS = 120
_REBUILD = "`make build`, or `pip install --no-build-isolation -e .`"


@dataclass(frozen=True)
class Check:
    """One answer. `result` is "works", "limited" or "missing"; recording is impossible without an essential one."""

    id: str
    result: str
    detail: str
    next: str = ""
    essential: bool = False


def run_checks() -> Iterator[Check]:
    """All checks in the order of a reader's questions; a check that fails itself says so and does not stop the rest."""
    for function in (*_RECORDING, *_SURROUNDINGS):
        try:
            yield function()
        except (OSError, ValueError, PytracerError, subprocess.SubprocessError) as error:
            name = function.__name__.removeprefix("check_").replace("_", "-")
            essential = function in _RECORDING
            yield Check(name, MISSING if essential else LIMITED, f"could not be checked: {error}", "", essential)


def check_python() -> Check:
    """The interpreter whose frames the crash handler must read."""
    version = f"{platform.python_implementation()} {platform.python_version()}"
    low, high = ("3.10", "3.13")
    if platform.python_implementation() != "CPython":
        return Check("python", MISSING, version, f"use CPython {low} to {high}", True)
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return Check(
            "python", LIMITED, f"{version}, free-threaded: no Python stacks", f"use CPython {low} to {high}", True
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


def check_c_library() -> Check:
    """glibc 2.35 brought `_dl_find_object`, by which the handler tells code from other memory."""
    try:
        name, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
    except ValueError:
        return Check(
            "c-library", LIMITED, "not glibc: native stacks are less sure", "use a glibc system, 2.35 or newer"
        )
    if tuple(int(part) for part in version.split(".")[:2]) < (2, 35):
        return Check("c-library", LIMITED, f"{name} {version}: native stacks are less sure", "use glibc 2.35 or newer")
    return Check("c-library", WORKS, f"{name} {version}")


def check_core() -> Check:
    """The library that records: built, and loadable here."""
    try:
        path = launch.core_library()
    except PytracerError as error:
        return Check("core", MISSING, str(error.args[0]), error.hint, True)
    done = _python(
        f"import ctypes; core = ctypes.CDLL({str(path)!r}); core.pytracer_version.restype = ctypes.c_char_p; "
        "print(core.pytracer_version().decode())"
    )
    if done.returncode:
        return Check("core", MISSING, f"{path} does not load: {_last_line(done)}", f"rebuild: {_REBUILD}", True)
    version = done.stdout.strip()
    if version != __version__:
        return Check("core", LIMITED, f"core {version}, Python half {__version__}", f"rebuild: {_REBUILD}", True)
    return Check("core", WORKS, f"pytracer {version}", essential=True)


def check_torch() -> Check:
    """The installed torch against the one that `_native` was built for."""
    built = _build_info().get("torch")
    try:
        found = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return Check(
            "torch", LIMITED, "not installed: only plain processes are traced", f"install torch, then {_REBUILD}"
        )
    if not built:
        return Check("torch", LIMITED, f"{found}; pytracer was built without torch: tensors are not recorded", _REBUILD)
    if found.split(".")[:2] != str(built).split(".")[:2]:
        return Check(
            "torch",
            LIMITED,
            f"{found}; pytracer was built for {built}: tensors are not recorded",
            f"rebuild: {_REBUILD}",
        )
    return Check("torch", WORKS, f"{found}, built for {built}")


def check_native() -> Check:
    """The half that hooks into torch: a traced child must record a tensor."""
    if importlib.util.find_spec("torch") is None:
        return Check("native", LIMITED, "there is no torch to hook into")
    if importlib.util.find_spec("pytracer._native") is None:
        return Check(
            "native", LIMITED, "pytracer._native is not built: tensors and collectives are not recorded", _REBUILD
        )
    if not _built():
        return Check("native", MISSING, "not tried, there is no core")
    with tempfile.TemporaryDirectory(prefix="pytracer-doctor-") as directory:
        done = _traced(Path(directory), "import torch; kept = torch.ones(5)")
        boxes = [read_box(path) for path in _boxes(directory)]
    notes = [str(fact.data) for box in boxes for fact in box.facts if fact.kind == "NOTE"]
    if done.returncode:
        return Check("native", MISSING, f"a traced `import torch` failed: {_last_line(done)}", f"rebuild: {_REBUILD}")
    if not any(box.storages for box in boxes):
        why = "; ".join(notes) or _last_line(done)
        return Check("native", LIMITED, f"a traced child recorded no tensor: {why}", f"rebuild: {_REBUILD}")
    return Check("native", WORKS, "a traced child recorded its tensors")


def check_preload() -> Check:
    """A child under LD_PRELOAD must leave a black box."""
    if not _built():
        return Check("preload", MISSING, "not tried, there is no core", essential=True)
    with tempfile.TemporaryDirectory(prefix="pytracer-doctor-") as directory:
        done = _traced(Path(directory), "pass")
        boxes = _boxes(directory)
        if done.returncode:
            return Check(
                "preload", MISSING, f"a traced child ended with {done.returncode}: {_last_line(done)}", _REBUILD, True
            )
        if not boxes:
            return Check(
                "preload", MISSING, f"a traced child left no black box {_because(done)}", f"rebuild: {_REBUILD}", True
            )
        return Check(
            "preload",
            WORKS,
            f"a traced child left a black box of {boxes[0].stat().st_size / 2**20:.0f} MiB",
            essential=True,
        )


def check_crash_handler() -> Check:
    """A child that reads address 0 must die of SIGSEGV, unchanged, and its box must say so."""
    if not _built():
        return Check("crash-handler", MISSING, "not tried, there is no core", essential=True)
    code = "import ctypes, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); ctypes.string_at(0)"
    with tempfile.TemporaryDirectory(prefix="pytracer-doctor-") as directory:
        done = _traced(Path(directory), code)
        states = [_state(path) for path in _boxes(directory)]
    if done.returncode != -11:
        return Check(
            "crash-handler",
            MISSING,
            f"a child that read address 0 ended with {done.returncode}, not -11",
            _REBUILD,
            True,
        )
    if schema.State.CRASHED not in states:
        return Check(
            "crash-handler",
            MISSING,
            f"a child died of SIGSEGV, its black box does not say so {_because(done)}",
            _REBUILD,
            True,
        )
    return Check("crash-handler", WORKS, "a child died of SIGSEGV, and its black box says so", essential=True)


def check_directory() -> Check:
    """Where `pytracer run` would record from here."""
    place = Path.cwd() / launch.RUNS
    place = place if place.is_dir() else place.parent
    kind = launch.file_system(place)
    room = os.statvfs(place)
    free = room.f_bavail * room.f_frsize
    detail = f"{place} on {kind or 'an unknown file system'}, {free / 2**30:.1f} GiB free"
    if not os.access(place, os.W_OK | os.X_OK):
        return Check(
            "directory", MISSING, f"{detail}, not writable", "change directory, or `pytracer run -o DIR`", True
        )
    if free < launch.ROOM_BYTES:
        return Check("directory", MISSING, f"{detail}: too little", "free some, or `pytracer run -o DIR`", True)
    if launch.is_remote(kind):
        return Check(
            "directory",
            LIMITED,
            f"{detail}: black boxes are written to {tempfile.gettempdir()} first",
            "`pytracer run -o DIR`",
            True,
        )
    return Check("directory", WORKS, detail, essential=True)


def check_shared_memory() -> Check:
    """/dev/shm, which DataLoader workers and gloo use: 64 MB is usual in containers."""
    room = os.statvfs("/dev/shm")
    total = room.f_blocks * room.f_frsize
    if total < 256 * 2**20:
        return Check(
            "shared-memory",
            LIMITED,
            f"/dev/shm has {total / 2**20:.0f} MiB: DataLoader workers may die of SIGBUS",
            "start the container with --shm-size=8g",
        )
    return Check("shared-memory", WORKS, f"/dev/shm has {total / 2**30:.1f} GiB")


def check_core_dumps() -> Check:
    """Whether a crash leaves a core file, too; pytracer needs none and changes nothing about it."""
    limit = resource.getrlimit(resource.RLIMIT_CORE)[0]
    pattern = Path("/proc/sys/kernel/core_pattern").read_text(encoding="utf-8", errors="replace").strip()
    size = "no limit" if limit == resource.RLIM_INFINITY else f"at most {limit} bytes"
    kept = (
        "no core files (`ulimit -c` is 0)"
        if limit == 0 and not pattern.startswith("|")
        else f"core files: {size}, {pattern}"
    )
    return Check("core-dumps", WORKS, f"{kept}; pytracer needs none")


def check_ptrace() -> Check:
    """Whether another process may look into a traced one (Yama)."""
    path = Path("/proc/sys/kernel/yama/ptrace_scope")
    scope = int(path.read_text(encoding="ascii")) if path.exists() else 0
    if scope:
        words = {1: "a parent may look into its children only", 2: "only root may", 3: "nobody may"}.get(scope, "")
        return Check(
            "ptrace", LIMITED, f"ptrace_scope is {scope}: {words}; affects py-spy and pystack, not the crash handler"
        )
    return Check("ptrace", WORKS, "allowed for processes of the same user")


def check_seccomp() -> Check:
    """A filter of system calls, as containers have; whether it hurts shows in `crash-handler`."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("Seccomp:"):
            mode = int(line.split()[1])
            return Check(
                "seccomp",
                WORKS,
                "no filter" if mode == 0 else "a filter is active; crash-handler shows whether it hurts",
            )
    return Check("seccomp", WORKS, "not in this kernel")


def check_faulthandler() -> Check:
    """Python's own handler; ours calls it."""
    state = "enabled" if faulthandler.is_enabled() else "not enabled"
    return Check("faulthandler", WORKS, f"{state} in this Python; both work together")


def check_disassembler() -> Check:
    """capstone: which register the faulting instruction read through."""
    return _extra("disassembler", "capstone", "disasm", "the faulting instruction is not explained")


def check_symbols() -> Check:
    """symbolic: file and line of native frames."""
    return _extra("symbols", "symbolic", "symbols", "native frames have function names, but no lines")


def check_stacks() -> Check:
    """pystack and py-spy: stacks of processes that still run."""
    found = [
        tool for tool in ("pystack", "py-spy") if shutil.which(tool) or (Path(sys.executable).parent / tool).exists()
    ]
    if found:
        return Check("stacks", WORKS, " and ".join(found))
    return Check("stacks", MISSING, "optional: no stacks of processes that still run", "pip install 'pytracer[stacks]'")


_RECORDING: Sequence[Callable[[], Check]] = (
    check_python, check_kernel, check_core, check_preload, check_crash_handler, check_directory,
)  # fmt: skip
_SURROUNDINGS: Sequence[Callable[[], Check]] = (
    check_torch, check_native, check_c_library, check_shared_memory, check_core_dumps, check_ptrace, check_seccomp,
    check_faulthandler, check_disassembler, check_symbols, check_stacks,
)  # fmt: skip


def _built() -> bool:
    try:
        launch.core_library()
    except PytracerError:
        return False
    return True


def _build_info() -> dict[str, Any]:
    path = Path(pytracer.__file__).parent / "_build_info.json"
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return info if isinstance(info, dict) else {}


def _extra(name: str, package: str, extra: str, without: str) -> Check:
    if importlib.util.find_spec(package) is not None:
        return Check(name, WORKS, f"{package} {importlib.metadata.version(package)}")
    return Check(name, MISSING, f"optional: without {package}, {without}", f"pip install 'pytracer[{extra}]'")


def _python(
    code: str, environment: dict[str, str] | None = None, directory: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment, cwd=directory, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def _traced(directory: Path, code: str) -> subprocess.CompletedProcess[str]:
    (directory / launch.BOXES).mkdir(mode=0o700)
    run = launch.Run(directory, directory)
    return _python(code, launch.environment(run, "default"), str(directory))


def _boxes(directory: str) -> list[Path]:
    return sorted(Path(directory, launch.BOXES).glob("*" + launch.BOX_SUFFIX))


def _state(path: Path) -> int:
    header = codec.layout(schema.FILE_HEADER)
    data = path.read_bytes()[: header.nbytes]
    return int(header.decode(data)["state"]) if len(data) == header.nbytes else -1


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _because(done: subprocess.CompletedProcess[str]) -> str:
    return f"({_last_line(done)})" if done.stderr.strip() else ""
