"""Any address of a recorded process, explained: `pytracer where`."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._errors import InputError, UsageError
from pytracer._patterns import Pattern
from pytracer._text import hex_addr, list_words
from pytracer.analyze.address_space.description import address_sentence
from pytracer.analyze.address_space.referrers import pointed_by, stack_words
from pytracer.analyze.assemble.addresses import AddressReports
from pytracer.analyze.assemble.view import build_view
from pytracer.analyze.engine import build_report
from pytracer.analyze.naming import subject_words
from pytracer.analyze.parts import bucket_report, unit_report
from pytracer.analyze.timeline.clock import RunClock
from pytracer.analyze.view import ProcessView
from pytracer.decode.job.detail import in_full
from pytracer.decode.types.snapshot import Job
from pytracer.report.where import AddressReport, WhereProcess, WhereReport

_NUMBER = Pattern(r"0[xX][0-9a-fA-F]+|[0-9]+|[0-9a-fA-F]{8,16}")
_RELATIVE = Pattern(r"([a-z]\w*)(?:([+-])(0[xX][0-9a-fA-F]+|[0-9]+))?")
_ALIASES = {"pc": ("rip", "pc"), "sp": ("rsp", "sp")}
_FORMS = "give 0x7f..., a decimal number, a register such as rdi or rip, rdi+0x18, stack+0x18, or fault"
_LISTED = 6
_SAYS_LITTLE = ("unmapped", "none")


def explain_addresses(
    job: Job, asked: Sequence[str | int], *, rank: int | None = None, pid: int | None = None
) -> WhereReport:
    """Explains addresses of one process.

    Args:
        job: all processes; recordings that were read lightly are read again.
        asked: numbers, or words as on the command line: `0x7f..`, `rdi`, `rip-4`, `stack+0x18`, `fault`.
        rank: whose address it is; of torchrun's attempts the last.
        pid: the same by process id. Without both it is the only process, else the one that the verdict is about.

    Raises:
        InputError: no such rank or pid, or it left no registers.
        UsageError: several processes, and none is named; or a word that is no address.
    """
    index, chosen = _choose(job, rank, pid)
    if job.processes[index].snapshot.light:
        job = in_full(job, [index])
    view = build_view(index, job.processes[index], RunClock(job))
    reports = AddressReports(view.storages)
    return WhereReport(
        directory=job.directory,
        process=_process(view, chosen),
        addresses=[_explain(view, str(item), _resolve(view, item), reports) for item in asked],
        missing=_missing(view),
    )


def _explain(view: ProcessView, asked: str, addr: int, reports: AddressReports) -> AddressReport:
    known = view.place is not None and view.place.addr == addr and view.place.storage is not None
    place = view.place if known and view.place is not None else view.space.describe(addr)
    region = reports.region(addr)
    return AddressReport(
        asked=asked,
        addr=hex_addr(addr),
        kind=region.kind if region is not None and place.kind in _SAYS_LITTLE else place.kind,
        says=address_sentence(place, region.kind if region else None, region.says if region else None),
        storage=view.storages.of_place(place),
        bucket=bucket_report(place),
        fsdp=unit_report(place),
        region=region,
        neighbors=reports.neighbors(addr),
        earlier_lives=reports.earlier_lives(place),
        pointed_by=pointed_by(view.space, place),
    )


def _process(view: ProcessView, chosen: str | None) -> WhereProcess:
    process = view.process
    return WhereProcess(
        pid=process.snapshot.pid,
        rank=process.rank,
        role=process.role,
        host=process.snapshot.host,
        status=process.status_kind,
        signal=view.signal,
        ended=view.ended_ns,
        chosen=chosen,
    )


def _missing(view: ProcessView) -> list[str]:
    snapshot, missing = view.process.snapshot, []
    crash = view.crash or snapshot.live
    if crash is None:
        running = view.process.status_kind == "running"
        why = "is running" if running else "did not crash, or its handler could not run"
        missing.append(f"the memory map and registers: this process {why}")
    elif not crash.mappings:
        missing.append("the memory map: the crash handler did not get to write it")
    dropped = snapshot.counts.get("storages_dropped", 0)
    if not snapshot.storages:
        missing.append("storages: none were recorded")
    elif dropped:
        missing.append(f"{dropped} storages, for which the table had no room")
    return missing


# Which process


def _choose(job: Job, rank: int | None, pid: int | None) -> tuple[int, str | None]:
    """The index of the process, and why it was chosen when none was given."""
    every = list(range(len(job.processes)))
    if not every:
        raise InputError(f"{job.directory} has no process that can be read", "see `pytracer doctor`")
    if rank is None and pid is None:
        return _default(job)
    ranks = {item.rank for item in job.processes if item.role == "rank" and item.rank is not None}
    found = every
    if rank is not None:
        found = [i for i in found if job.processes[i].role == "rank" and job.processes[i].rank == rank]
        if not found:
            known = list_words([str(item) for item in sorted(ranks)], _LISTED)
            hint = f"it has ranks {known}" if ranks else f"it has no ranks: use --pid; {_pids(job)}"
            raise InputError(f"there is no rank {rank} in {job.directory}", hint)
    if pid is not None:
        found = [i for i in found if job.processes[i].snapshot.pid == pid]
        if not found:
            raise InputError(f"there is no process {pid} in {job.directory}", _pids(job))
    last = max(job.processes[i].attempt or 0 for i in found)
    found = [i for i in found if (job.processes[i].attempt or 0) == last]
    if len(found) > 1:
        raise UsageError(f"{len(found)} processes match", f"name one with --pid; {_pids(job, found)}")
    return found[0], None


def _default(job: Job) -> tuple[int, str | None]:
    if len(job.processes) == 1:
        return 0, None
    verdict = build_report(job).verdict
    if verdict is not None and verdict.pid is not None and verdict.class_ != "clean":
        for index, process in enumerate(job.processes):
            if process.snapshot.pid == verdict.pid and (verdict.rank is None or process.rank == verdict.rank):
                return index, "the verdict is about it"
    crashed = [i for i, item in enumerate(job.processes) if item.snapshot.crash is not None]
    if len(crashed) == 1:
        return crashed[0], "it is the only one that crashed"
    raise UsageError(
        f"{job.directory} has {len(job.processes)} processes, and an address belongs to one",
        f"name it with --rank N or --pid P; {_pids(job)}",
    )


def _pids(job: Job, only: Sequence[int] | None = None) -> str:
    """`it has rank 0 (pid 12), rank 1 (pid 13) and 3 more`, what crashed first."""
    processes = [item for i, item in enumerate(job.processes) if only is None or i in only]
    ordered = sorted(processes, key=lambda item: (item.snapshot.crash is None, item.role != "rank", item.rank or 0))
    names = [
        f"{f'rank {item.rank}' if item.role == 'rank' else item.role} (pid {item.snapshot.pid})" for item in ordered
    ]
    return f"it has {list_words(names, _LISTED)}"


# Which address


def _resolve(view: ProcessView, asked: str | int) -> int:
    """A number, or what a register held."""
    if isinstance(asked, int):
        return _checked(asked, str(asked))
    word = asked.strip()
    if _NUMBER.fullmatch(word) and not (word.isalpha() and _register(view, word) is not None):
        hexadecimal = word.lower().startswith("0x") or not word.isdigit()
        return _checked(int(word, 16 if hexadecimal else 10), word)
    match = _RELATIVE.fullmatch(word.lower())
    if match is None:
        raise UsageError(f"{asked!r} is no address", _FORMS)
    name, sign, number = match.groups()
    offset = int(number, 0) * (-1 if sign == "-" else 1) if number else 0
    if name == "stack" and number:
        return _stack_word(view, word, offset)
    base = _named(view, name)
    return (base + offset) & 0xFFFF_FFFF_FFFF_FFFF


def _checked(value: int, word: str) -> int:
    if not 0 <= value < 1 << 64:
        raise UsageError(f"{word} is no address: it has more than 64 bits, or is negative", _FORMS)
    return value


def _named(view: ProcessView, name: str) -> int:
    crash = view.crash
    if crash is None:
        words = f"{subject_words([view])} left no crash record, so its registers are not known"
        raise InputError(words, "give a number, or another process with --rank or --pid")
    if name == "fault":
        if view.place is None or view.fault is None or view.fault.addr is None:
            raise InputError(f"{subject_words([view])} died of no memory fault with a known address", _FORMS)
        return view.place.addr
    value = _register(view, name)
    if value is None:
        raise UsageError(f"{name!r} is neither an address nor a register", f"there are {', '.join(crash.registers)}")
    return value


def _register(view: ProcessView, name: str) -> int | None:
    registers = {key.lower(): value for key, value in view.crash.registers.items()} if view.crash else {}
    return next((registers[item] for item in _ALIASES.get(name.lower(), (name.lower(),)) if item in registers), None)


def _stack_word(view: ProcessView, word: str, offset: int) -> int:
    words = dict(stack_words(view.crash)) if view.crash is not None else {}
    value = words.get(f"stack+{offset:#x}")
    if value is None:
        kept = f"kept are {next(iter(words))} to {list(words)[-1]}, 8 bytes apart" if words else "none were kept"
        raise UsageError(f"{word} is no word of the stack that was kept", kept)
    return value
