"""The environment of a job: shared memory, limits, filters, and the optional packages of a report."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import resource
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from pytracer.cli.checks.answer import LIMITED, MISSING, WORKS, Check

_SHARED = Path("/dev/shm")
_OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
_LIMITS = {
    "stack": resource.RLIMIT_STACK,
    "file": resource.RLIMIT_FSIZE,
    "memory": resource.RLIMIT_AS,
    "signals": resource.RLIMIT_SIGPENDING,
}

# The extra of each, and what it installs.
_SERVICES = {
    "otel": "opentelemetry", "sentry": "sentry_sdk", "wandb": "wandb", "mlflow": "mlflow", "tensorboard": "tensorboard",
}  # fmt: skip

# As above, for clusters.
_ENGINES = {"ray": "ray", "spark": "pyspark"}


def check_shared_memory() -> Check:
    """/dev/shm, which DataLoader workers and gloo use: 64 MB is usual in containers."""
    if not _SHARED.is_dir():
        return Check("shared-memory", LIMITED, "there is no /dev/shm: DataLoader workers cannot share tensors")
    room = os.statvfs(_SHARED)
    return shared_memory(room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize)


def shared_memory(total: int, free: int) -> Check:
    """The result for the size of /dev/shm and its free space."""
    if total < 256 * 2**20:
        detail = f"/dev/shm has {total / 2**20:.0f} MiB: DataLoader workers may die of SIGBUS"
        return Check("shared-memory", LIMITED, detail, "start the container with --shm-size=8g or --ipc=host")
    if free < 64 * 2**20:
        detail = f"/dev/shm is full, {free / 2**20:.0f} MiB are free: DataLoader workers may die of SIGBUS"
        return Check("shared-memory", LIMITED, detail, "look for files that dead processes left in /dev/shm")
    return Check("shared-memory", WORKS, f"/dev/shm has {total / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free")


def check_limits() -> Check:
    """Limits that change how a process dies or what is recorded of it."""
    overcommit = int(_OVERCOMMIT.read_text(encoding="ascii")) if _OVERCOMMIT.exists() else 0
    return limits({word: resource.getrlimit(which)[0] for word, which in _LIMITS.items()}, overcommit)


def limits(soft: Mapping[str, int], overcommit: int) -> Check:
    """The result for soft limits (names of `_LIMITS`) and vm.overcommit_memory."""
    none = resource.RLIM_INFINITY
    notes: list[tuple[str, str]] = []
    if soft["stack"] == none:
        what = "the main stack has no end (`ulimit -s`): endless recursion ends by lack of memory, not by a fault"
        notes.append((what, "`ulimit -s 8192`"))
    if soft["file"] != none:
        notes.append(
            (f"files may grow to {soft['file']} bytes only (`ulimit -f`), black boxes too", "`ulimit -f unlimited`")
        )
    if soft["memory"] != none:
        size = f"{soft['memory'] / 2**30:.1f} GiB"
        what = f"address space is limited to {size} (`ulimit -v`); the alternate stack of each thread counts"
        notes.append((what, "`ulimit -v unlimited`"))
    if 0 <= soft["signals"] < 16:
        notes.append(
            ("hardly a signal may be pending (`ulimit -i`): steps of the handler have no deadline", "`ulimit -i 4096`")
        )
    if overcommit == 2:
        what = "vm.overcommit_memory is 2: mapped memory counts before it is touched, and allocations may fail early"
        notes.append((what, ""))
    if notes:
        following = ", ".join(step for _, step in notes if step)
        return Check("limits", LIMITED, "; ".join(what for what, _ in notes), following)
    return Check("limits", WORKS, f"stacks end at {soft['stack'] / 2**20:.0f} MiB; files, memory and signals have room")


def check_seccomp() -> Check:
    """A seccomp filter, as containers have; `crash-handler` shows whether it matters."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("Seccomp:"):
            mode = int(line.split()[1])
            return Check(
                "seccomp",
                WORKS,
                "no filter" if mode == 0 else "a filter is active; crash-handler shows whether it hurts",
            )
    return Check("seccomp", WORKS, "not in this kernel")


def check_disassembler() -> Check:
    """capstone: which register the faulting instruction read through."""
    return _extra("disassembler", "capstone", "disasm", "the faulting instruction is not explained")


def check_symbols() -> Check:
    """symbolic: file and line of native frames."""
    return _extra("symbols", "symbolic", "symbols", "native frames have function names, but no lines")


def check_stacks() -> Check:
    """pystack and py-spy: stacks of running processes."""
    found = [
        tool for tool in ("pystack", "py-spy") if shutil.which(tool) or (Path(sys.executable).parent / tool).exists()
    ]
    if found:
        return Check("stacks", WORKS, " and ".join(found))
    return Check("stacks", MISSING, "optional: no stacks of processes that still run", "pip install 'pytracer[stacks]'")


def check_html() -> Check:
    """jinja2: the report as a page."""
    return _extra("html", "jinja2", "html", "`inspect --html` writes no page")


def check_history() -> Check:
    """duckdb, with pyarrow and fsspec: many jobs in one store."""
    return _extra("history", "duckdb", "history", "`pytracer history` answers nothing")


def check_urls() -> Check:
    """fsspec: files that are not on this machine."""
    return _extra("urls", "fsspec", "digest", "`digest` and `inspect` take paths only, no s3://")


def check_services() -> Check:
    """The libraries of services that `pytracer notify` sends a report to."""
    return _those("services", _SERVICES, "`notify` cannot send to")


def check_engines() -> Check:
    """Clusters that `pytracer history add --engine` reads runs on."""
    return _those("engines", _ENGINES, "`history add --engine` cannot use")


def _those(name: str, packages: Mapping[str, str], cannot: str) -> Check:
    missing = [extra for extra, package in packages.items() if importlib.util.find_spec(package) is None]
    if not missing:
        return Check(name, WORKS, ", ".join(packages))
    next_step = f"pip install 'pytracer[{','.join(missing)}]', or those that you use"
    return Check(name, MISSING, f"optional: {cannot} {', '.join(missing)}", next_step)


def _extra(name: str, package: str, extra: str, without: str) -> Check:
    if importlib.util.find_spec(package) is not None:
        try:
            return Check(name, WORKS, f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:  # copied here, without its metadata
            return Check(name, WORKS, package)
    return Check(name, MISSING, f"optional: without {package}, {without}", f"pip install 'pytracer[{extra}]'")
