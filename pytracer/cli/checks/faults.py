"""Other participants in a crash: the C library's unwinder, handlers and tools of others, core dumps."""

from __future__ import annotations

import faulthandler
import os
import re
import resource
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from pytracer.cli.checks.answer import LIMITED, WORKS, Check, is_built, python
from pytracer.launcher import run_directory

_OURS = (
    signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS,
)  # fmt: skip
_SANITIZER = re.compile(r"lib(?:clang_rt\.)?(asan|hwasan|tsan|msan)[^/]*\.so")
_PATTERN, _USES_PID = Path("/proc/sys/kernel/core_pattern"), Path("/proc/sys/kernel/core_uses_pid")


def check_c_library() -> Check:
    """Whether the crash handler finds the library of an address without the loader's lock."""
    said = os.confstr("CS_GNU_LIBC_VERSION")
    if not said or not said.startswith("glibc "):
        return Check("c-library", LIMITED, "not glibc: native stacks are less sure", "use a glibc system")
    if is_built() and not finds_images():
        detail = f"the core was compiled on {said}, without _dl_find_object: the unwinder takes the loader's lock, so "
        detail += "that a crash while a library is loaded may cost its native stack and a second"
        return Check("c-library", LIMITED, detail, "install a wheel, or use glibc 2.35 or newer")
    return Check("c-library", WORKS, said)


def finds_images() -> bool:
    """What the core says, in a child."""
    core = str(run_directory.core_library())
    return python(f"import ctypes, sys; sys.exit(ctypes.CDLL({core!r}).pytracer_finds_images() == 0)").returncode == 0


def check_signal_handlers() -> Check:
    """What a job would inherit: faulthandler, and signals ignored or blocked by the parent, which survive exec."""
    status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    return signal_handlers(status, _faulthandler())


def signal_handlers(status: str, enabled_by: str) -> Check:
    """The result for a /proc/PID/status and the setting that enables faulthandler at start."""
    names = {word: _signals(status, word) for word in ("SigBlk", "SigIgn")}
    if names["SigBlk"]:
        detail = (
            f"{', '.join(names['SigBlk'])} blocked by the parent: after enable() alone such a fault leaves no report"
        )
        return Check("signal-handlers", LIMITED, detail, "`pytracer run`, or another shell or service manager")
    notes = [f"faulthandler is enabled by {enabled_by}: it prints, too" if enabled_by else "no others at start"]
    if names["SigIgn"]:
        notes.append(f"{', '.join(names['SigIgn'])} ignored by the parent: faults are reported, sent signals are not")
    return Check("signal-handlers", WORKS, "; ".join(notes))


def check_tools() -> Check:
    """Sanitizers, valgrind and debuggers see signals before the process does, or instead of it."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    return tools(os.environ, maps, status)


def tools(environment: Mapping[str, str], maps: str, status: str) -> Check:
    """The result for an environment, a /proc/PID/maps and a /proc/PID/status."""
    loaded = environment.get("LD_PRELOAD", "") + "\n" + maps
    sanitizer = _SANITIZER.search(loaded)
    if sanitizer:
        kind = {"asan": "Address", "hwasan": "HWAddress", "tsan": "Thread", "msan": "Memory"}[sanitizer[1]]
        option = f"{sanitizer[1].upper()}_OPTIONS"
        detail = f"{kind}Sanitizer is loaded: it reports faults itself and ends the process with status 1"
        handlers = ":".join(f"handle_{word}=0" for word in ("segv", "sigbus", "abort", "sigill", "sigfpe"))
        return Check("tools", LIMITED, detail, f"leave it out, or {option}={handlers}")
    if "vgpreload" in loaded or "/valgrind/" in loaded:
        detail = "valgrind runs this process: registers, threads and ptrace are its own, stacks may be wrong"
        return Check("tools", LIMITED, detail, "leave valgrind out; it has its own report")
    tracer = re.search(r"^TracerPid:\s*([1-9]\d*)", status, re.MULTILINE)
    if tracer:
        detail = f"{_name(tracer[1])} traces this process: it sees each fault first, and the helper cannot attach"
        return Check("tools", LIMITED, detail, "leave the debugger out; pytracer needs none")
    return Check("tools", WORKS, "no sanitizer, valgrind or debugger")


def check_core_dumps() -> Check:
    """Whether a crash also leaves a core file, and where; pytracer needs none and changes nothing about it."""
    pattern = _PATTERN.read_text(encoding="utf-8", errors="replace").strip()
    uses_pid = _USES_PID.exists() and _USES_PID.read_text(encoding="ascii").strip() != "0"
    return core_dumps(pattern, uses_pid, resource.getrlimit(resource.RLIMIT_CORE)[0], Path.cwd())


def core_dumps(pattern: str, uses_pid: bool, limit: int, directory: Path) -> Check:
    """The result for core_pattern, core_uses_pid, the soft limit of core files and the job's directory (core(5))."""
    if pattern.startswith("|"):
        program = pattern[1:].split(" ")[0]
        where = "" if os.path.exists(program) else ", which is not in this container"
        return Check(
            "core-dumps", WORKS, f"cores are piped to {program}{where}, whatever `ulimit -c` says; none is needed"
        )
    if not pattern and not uses_pid:
        return Check("core-dumps", WORKS, "none will be written: core_pattern is empty; none is needed")
    path = directory / (pattern + (".%p" if uses_pid and "%p" not in pattern else ""))
    if limit == 0:
        detail = f"none will be written to {path}: `ulimit -c` is 0; none is needed"
        return Check("core-dumps", WORKS, detail, "`ulimit -c unlimited` for one beside the report")
    parent = Path(str(path.parent).partition("%")[0])
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        detail = f"none will be written: {parent} cannot be written; none is needed"
        return Check("core-dumps", WORKS, detail, "make it, or set kernel.core_pattern")
    if limit != resource.RLIM_INFINITY:
        detail = f"a core will be written to {path}, cut off after {limit} bytes; none is needed"
        return Check("core-dumps", WORKS, detail, "`ulimit -c unlimited`")
    return Check("core-dumps", WORKS, f"a core will be written to {path}, as large as the process; none is needed")


def _faulthandler() -> str:
    """The setting that enables it when Python starts; "" if there is none."""
    if os.environ.get("PYTHONFAULTHANDLER") and not sys.flags.ignore_environment:
        return "PYTHONFAULTHANDLER"
    if sys.flags.dev_mode:
        return "Python's development mode"
    return "-X faulthandler" if faulthandler.is_enabled() else ""


def _signals(status: str, word: str) -> list[str]:
    """Those of our signals whose bit is set in a mask of /proc/PID/status."""
    found = re.search(rf"^{word}:\s*([0-9a-f]+)", status, re.MULTILINE)
    mask = int(found[1], 16) if found else 0
    return [one.name for one in _OURS if mask >> (one - 1) & 1]


def _name(pid: str) -> str:
    try:
        return f"{Path('/proc', pid, 'comm').read_text(encoding='utf-8', errors='replace').strip()} (pid {pid})"
    except OSError:
        return f"process {pid}"
