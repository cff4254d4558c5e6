"""How two runs differ, e.g. one that failed and one that did not: versions, environment, collectives, memory.

Ranks are compared with their namesakes; what holds for several ranks alike is one difference. Left out is what differs
between any two runs: ports, ids of jobs, times, addresses.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence

from pytracer._text import size_words
from pytracer.report import job as r
from pytracer.report.difference import ComparedRun, Difference, DiffReport

# Variables that identify a process or a job: they differ between any two runs, or repeat the rank.
_IDENTITY = frozenset(
    {
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "HOSTNAME"),
        *("POD_NAME", "TORCHELASTIC_RUN_ID", "PYTRACER_DIR", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"),
        *("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"),
        *("SLURM_NODENAME", "SLURMD_NODENAME", "SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME", "SLURM_NODELIST"),
        *("SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST", "SLURM_LAUNCH_NODE_IPADDR", "OMPI_COMM_WORLD_RANK"),
        *("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK", "PMI_RANK", "PMIX_RANK", "PMIX_NAMESPACE"),
        *("PMI_LOCAL_RANK", "MPI_LOCALRANKID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "TORCHCOMM_RANK"),
    }
)
_LEAST_BYTES = 16 << 20  # memory varies from run to run
_LEAST_RATIO = 1.1
_NO_RANK = -1
_Key = tuple[str, str]  # topic and name
_Facts = Mapping[_Key, str]


def compare_reports(a: r.Report, b: r.Report) -> DiffReport:
    """What is different in `b`, in the order of topics and ranks."""
    found: list[Difference] = []
    same: dict[str, int] = {}
    _compare(dict(_of_run(a)), dict(_of_run(b)), None, found, same)
    before, after = _by_rank(a), _by_rank(b)
    apart: dict[tuple[_Key, str | None, str | None], list[int]] = {}
    for rank in sorted({*before, *after}):
        if rank == _NO_RANK and (rank not in before or rank not in after):
            continue  # a job without ranks beside one with ranks
        if rank not in before or rank not in after:
            there = ("there" if rank in ranks else None for ranks in (before, after))
            found.append(_difference(("processes", "rank"), [rank], *there))
            continue
        here: list[Difference] = []
        _compare(*_comparable(before[rank], after[rank]), [rank], here, same)
        for item in here:
            apart.setdefault(((item.topic or "", item.name or ""), item.a, item.b), []).append(rank)
    found += [
        _difference(key, None if ranks == [_NO_RANK] else ranks, old, new) for (key, old, new), ranks in apart.items()
    ]
    order = ("run", "versions", "processes", "environment", "libraries", "steps", "collectives", "memory")
    found.sort(key=lambda item: (order.index(item.topic or "run"), item.ranks or []))
    return DiffReport(a=_compared(a), b=_compared(b), differences=found, same=same)


def _compare(a: _Facts, b: _Facts, ranks: list[int] | None, found: list[Difference], same: dict[str, int]) -> None:
    for key in dict.fromkeys((*a, *b)):
        old, new = a.get(key), b.get(key)
        if old == new or (key[0] == "memory" and _is_alike(old, new)):
            same[key[0]] = same.get(key[0], 0) + 1
        else:
            found.append(_difference(key, ranks, *(_shown(key, value) for value in (old, new))))


def _difference(key: _Key, ranks: list[int] | None, a: str | None, b: str | None) -> Difference:
    return Difference(topic=key[0], name=key[1], ranks=ranks, a=a, b=b)


def _is_alike(a: str | None, b: str | None) -> bool:
    """Memory that differs by little; unknown is not compared."""
    if a is None or b is None:
        return True
    low, high = sorted((int(a), int(b)))
    return high - low < _LEAST_BYTES or high < low * _LEAST_RATIO


def _shown(key: _Key, value: str | None) -> str | None:
    return size_words(int(value)) if key[0] == "memory" and value is not None else value


def _compared(report: r.Report) -> ComparedRun:
    run, verdict = report.run or r.Run(), report.verdict or r.Verdict()
    return ComparedRun(directory=run.directory, started=run.started, verdict=verdict.class_, summary=verdict.summary)


def _of_run(report: r.Report) -> Iterator[tuple[_Key, str]]:
    run = report.run or r.Run()
    for name, value in (("torch", run.torch), ("CUDA", run.cuda), ("Python", run.python)):
        if value is not None:
            yield ("versions", name), value
    if run.launcher is not None:
        yield ("run", "launcher"), run.launcher
    if run.world_size is not None:
        yield ("run", "world size"), str(run.world_size)
    if run.hosts is not None:
        yield ("run", "number of hosts"), str(len(run.hosts))
    if run.command:
        yield ("run", "command"), shlex.join(run.command)
    for role, count in _roles(report.processes or ()).items():
        yield ("processes", role), str(count)


def _roles(processes: Sequence[r.ProcessReport]) -> dict[str, int]:
    """How many processes of each role; ranks are compared one by one."""
    roles = [process.role or "process" for process in processes if process.role != "rank"]
    return {role: roles.count(role) for role in dict.fromkeys(roles)}


def _by_rank(report: r.Report) -> dict[int, r.ProcessReport]:
    """The ranks of the last attempt; of a job without ranks its first process."""
    processes = report.processes or []
    ranks = {item.rank: item for item in processes if item.rank is not None and item.role == "rank"}
    return ranks or dict.fromkeys([_NO_RANK], processes[0]) if processes else {}


def _comparable(a: r.ProcessReport, b: r.ProcessReport) -> tuple[_Facts, _Facts]:
    """The facts of both; of libraries none, unless both runs recorded them, as a crash does."""
    both = [dict(_of_process(process)) for process in (a, b)]
    if a.images and b.images:
        return both[0], both[1]
    facts = [{key: value for key, value in each.items() if key[0] != "libraries"} for each in both]
    return facts[0], facts[1]


def _of_process(process: r.ProcessReport) -> Iterator[tuple[_Key, str]]:
    for name, value in (process.environment or {}).items():
        if name not in _IDENTITY:
            yield ("environment", name), value
    for image in process.images or ():
        if image.path and image.path.startswith("/"):
            yield ("libraries", os.path.basename(image.path)), image.build_id or "no build id"
    if process.step is not None:
        yield ("steps", "last step"), str(process.step)
    yield from _of_collectives(process)
    memory = process.memory or r.Memory()
    for name, size in (
        ("resident", memory.rss),
        ("resident, maximum", memory.max_rss),
        ("CPU storages", memory.cpu_storages_bytes),
        ("CUDA, allocated", memory.cuda_allocated_bytes),
    ):
        if size is not None:
            yield ("memory", name), str(size)


def _of_collectives(process: r.ProcessReport) -> Iterator[tuple[_Key, str]]:
    """The last call of each operation; and how DDP divides its parameters."""
    for item in process.recent_collectives or ():
        group = f"group {item.group}: {item.op}"
        where = f"{item.python.file}:{item.python.line}" if item.python and item.python.file else ""
        call = f"{' '.join(item.dtypes or ())} {item.sizes or ''}".strip()
        yield ("collectives", f"{group}, last call"), " ".join(filter(None, (call, where)))
        yield ("collectives", f"{group}, last number and state"), f"{item.sequence_nr} {item.state or ''}".strip()
    for module in process.ddp or ():
        buckets = module.buckets or []
        yield (
            ("collectives", f"DDP buckets of {module.module or '?'}"),
            f"{len(buckets)}: {', '.join(size_words(bucket.nbytes or 0) for bucket in buckets)}",
        )
        if module.hook is not None:
            yield ("collectives", f"DDP hook of {module.module or '?'}"), module.hook
