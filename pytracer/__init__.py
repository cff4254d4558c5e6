"""A black box for PyTorch training: explains which process died first, where, what memory it touched, and why.

    import pytracer; pytracer.enable()          record this process
    pytracer run -- torchrun ... train.py       record a whole job, without code changes
    pytracer inspect runs/latest                print the report

Importing this package starts nothing and imports neither torch nor a compiled library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytracer._errors import InputError, PytracerError, RecordingError, UsageError
    from pytracer._version import __version__
    from pytracer.decode.types.snapshot import Job
    from pytracer.notebook import Shell
    from pytracer.record import disable, enable, is_enabled, mark, name, step
    from pytracer.report.job import Fact, Finding, Report
    from pytracer.report.where import WhereReport

__all__ = [
    "Fact",
    "Finding",
    "InputError",
    "Job",
    "PytracerError",
    "RecordingError",
    "Report",
    "UsageError",
    "__version__",
    "disable",
    "enable",
    "inspect",
    "is_enabled",
    "load",
    "mark",
    "name",
    "step",
    "where",
]

_LAZY = {
    "InputError": "pytracer._errors",
    "PytracerError": "pytracer._errors",
    "RecordingError": "pytracer._errors",
    "UsageError": "pytracer._errors",
    "__version__": "pytracer._version",
    "disable": "pytracer.record.api",
    "enable": "pytracer.record.api",
    "is_enabled": "pytracer.record.api",
    "mark": "pytracer.record.api",
    "name": "pytracer.record.torch.names",
    "step": "pytracer.record.api",
    "Fact": "pytracer.report.job",
    "Finding": "pytracer.report.job",
    "Report": "pytracer.report.job",
    "Job": "pytracer.decode.types.snapshot",
}


def load(path: str | Sequence[str]) -> Job:
    """Decodes the recordings of a run.

    Args:
        path: a run directory, a directory of `*.blackbox` files, one such file, or a bundle; a sequence for several
            hosts. Dumps of torch's Flight Recorder in these directories are read, too.

    Returns:
        All processes of the job as frozen data; what could not be read is in `damage`.

    Raises:
        InputError: nothing could be read; the message names the file and the next step.
    """
    from pytracer.decode.job.load import load_runs

    return load_runs(path)


def inspect(path: str | Sequence[str]) -> Report:
    """Explains a run: the object that `pytracer inspect RUN --json` prints.

    Args:
        path: as for `load`.

    Returns:
        The report; docs/reference/report-schema.md describes its keys.

    Raises:
        InputError: nothing could be read.
    """
    from pytracer.analyze.engine import build_report
    from pytracer.analyze.stored import stored_report
    from pytracer.decode.job.load import load_runs

    stored = stored_report(path) if isinstance(path, str) else None
    return stored or build_report(load_runs(path, light=True))


def where(
    path: str | Sequence[str], *addresses: int | str, rank: int | None = None, pid: int | None = None
) -> WhereReport:
    """Explains addresses of one process: the object that `pytracer where RUN ADDR --json` prints.

    Args:
        path: as for `load`.
        addresses: integers, or strings such as "0x7f..", "rdi", "rip-4", "stack+0x18" and "fault".
        rank: the process, by rank.
        pid: the process, by process id. Default: the only process, else the one of the verdict.

    Returns:
        One entry per address, in `addresses`; docs/reference/report-schema.md describes the keys.

    Raises:
        InputError: nothing could be read, or there is no such process.
        UsageError: the process is ambiguous, or an address is invalid.
    """
    from pytracer.analyze.where import explain_addresses
    from pytracer.decode.job.load import load_runs

    return explain_addresses(load_runs(path, light=True), addresses, rank=rank, pid=pid)


def load_ipython_extension(ipython: Shell) -> None:
    """`%load_ext pytracer`: records the kernel of a notebook, and shows how the last one died."""
    from pytracer.notebook import load

    load(ipython)


def unload_ipython_extension(ipython: Shell) -> None:
    """`%unload_ext pytracer`: stops recording."""
    from pytracer.notebook import unload

    unload(ipython)


def __getattr__(name: str) -> object:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'pytracer' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
