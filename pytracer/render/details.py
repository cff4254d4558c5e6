"""One process in full, for `--all`: every thread with both stacks, pointers, memory, images."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from pytracer._text import count_words, list_words, size_words
from pytracer.render.frames import numbered_lines, python_lines
from pytracer.render.printing import Hanging
from pytracer.render.wrappers import bucket_lines, buffer_lines, unit_lines
from pytracer.report import job as r

_BYTES_A_LINE = 16
_GROUP = 4
_REGISTERS_A_LINE = 3
_TIDS = 8
_STATES = {
    "asked": "it did not answer in time",
    "walking": "its stack could not be taken in time",
    "faulted": "its stack could not be followed to the end",
}


def process_details(process: r.ProcessReport) -> RenderableType:
    """Everything about one process that is not on the first screen."""
    rank = f"rank {process.rank}, " if process.rank is not None else ""
    status = process.status.kind if process.status else "unknown"
    title = f"{rank or f'{process.role} '}pid {process.pid}: {status}"
    parts: list[RenderableType] = [Hanging(Text(title, style="bold"))]
    if process.command:
        parts.append(_indented(shlex.join(process.command), 2))
    if process.redacted:
        parts.append(_indented(f"{count_words(process.redacted, 'secret')} left out of what was recorded", 2))
    for title, lines in (*_threads(process), *_crash(process), *_groups(process)):
        parts.append(_indented(title, 2, "cyan"))
        parts += [_indented(line, 4) for line in lines]
    return Group(*parts)


def _indented(line: str, columns: int, style: str = "") -> Hanging:
    return Hanging(Text(line, style=style), columns)


Section = tuple[str, Sequence[str]]


def _threads(process: r.ProcessReport) -> Iterator[Section]:
    """Threads with their stacks; those of a pool that wait in the same place share one."""
    groups: dict[tuple[bool, str | None, str, tuple[str, ...]], list[r.ThreadReport]] = {}
    silent: list[r.ThreadReport] = []
    for thread in process.threads or []:
        if not (thread.python_stack or thread.native_stack):
            silent.append(thread)
            continue
        lines = tuple(_stacks(thread, process.stack_cycle))
        groups.setdefault((bool(thread.crashed), thread.kind, state_words(thread), lines), []).append(thread)
    for (_, _, state, lines), threads in groups.items():
        yield thread_title(threads) + state, lines
    if silent and process.registers is not None:
        yield "other threads", [f"{item.name or '?'} ({item.kind}, {item.tid}){state_words(item)}" for item in silent]
    missing = (process.threads_total or 0) - len(process.threads or []) + 1
    if process.threads_found and missing > 0:
        yield f"{count_words(missing, 'more thread')} not recorded", []


def thread_title(threads: Sequence[r.ThreadReport]) -> str:
    """Name, kind and id of a thread, or of threads that are at the same place."""
    first = threads[0]
    if len(threads) == 1:
        tid = str(first.tid) if first.tid is not None else None
        about = (first.kind, tid, "crashed" if first.crashed else None)
        return f"thread {first.name or '?'} ({', '.join(filter(None, about))})"
    names = list_words(list(dict.fromkeys(item.name or "?" for item in threads)))
    tids = list_words([str(item.tid) for item in threads if item.tid is not None], _TIDS)
    return f"{len(threads)} threads {names} ({', '.join(filter(None, (first.kind, tids)))})"


def state_words(thread: r.ThreadReport) -> str:
    """The system call that a thread was in, and what is wrong with its stack; completes its title."""
    call = thread.system_call or ""
    waiting = f" in {'system call ' if call.isdigit() else ''}{call}" if call else ""
    trouble = _STATES.get(thread.state or "")
    return waiting + (f": {trouble}" if trouble else "")


def _stacks(thread: r.ThreadReport, cycle: r.StackCycle | None) -> Iterator[str]:
    if thread.stack and thread.stack.low and thread.stack.high:
        size = int(thread.stack.high, 16) - int(thread.stack.low, 16)
        yield f"stack from {thread.stack.low} to {thread.stack.high}, {size_words(size)}"
    yield from python_lines(thread.python_stack or [], True)
    yield from numbered_lines(thread, cycle if thread.crashed else None)


def _crash(process: r.ProcessReport) -> Iterator[Section]:
    also = [
        f"thread {item.tid}: {item.signal} ({item.code}) at {item.addr}, code at {item.pc}"
        for item in process.also_crashed or []
    ]
    if also:
        yield "crashed as well", also
    if process.registers:
        yield "registers", list(_registers(process.registers))
    if process.pointers:
        width = max(len(item.register or "") for item in process.pointers)
        yield "pointers", [f"{item.register or '':<{width}} {item.addr} {item.says}" for item in process.pointers]
    for block in process.memory_blocks or []:
        yield f"memory near {block.register} = {block.value}", list(hex_lines(block))
    images = sorted(process.images or [], key=lambda item: int(item.start or "0", 16))
    if images:
        yield (
            count_words(len(images), "image"),
            [f"{item.start or '?':<14} {item.build_id or 'no build id':<40} {item.path}" for item in images],
        )
    if process.mappings:
        files = {item.path for item in process.mappings if item.path and item.path.startswith("/")}
        of_files = f", {count_words(len(files), 'file')}" if files else ""
        yield f"{count_words(len(process.mappings), 'mapping')}{of_files}: see --json", []


def _groups(process: r.ProcessReport) -> Iterator[Section]:
    found = (
        ("last collectives", buffer_lines(process)),
        ("DDP buckets", bucket_lines(process)),
        ("FSDP units", unit_lines(process)),
    )
    listed = ((title, list(lines)) for title, lines in found if process.role == "rank")
    yield from ((title, lines) for title, lines in listed if lines)


def _registers(registers: dict[str, str]) -> Iterator[str]:
    cells = [f"{name:>6} {value:<18}" for name, value in registers.items()]
    for start in range(0, len(cells), _REGISTERS_A_LINE):
        yield "".join(cells[start : start + _REGISTERS_A_LINE]).rstrip()


def hex_lines(block: r.MemoryBlock) -> Iterator[str]:
    """16 bytes a line at addresses divisible by 16, in groups of 4, with their ASCII characters."""
    content, addr = bytes.fromhex(block.bytes or ""), int(block.addr or "0", 16)
    at = addr - addr % _BYTES_A_LINE
    while at < addr + len(content):
        line: list[int | None] = [
            content[position - addr] if addr <= position < addr + len(content) else None
            for position in range(at, at + _BYTES_A_LINE)
        ]
        groups = [line[start : start + _GROUP] for start in range(0, _BYTES_A_LINE, _GROUP)]
        digits = " ".join("".join("  " if byte is None else f"{byte:02x}" for byte in group) for group in groups)
        yield f"{at:#014x}  {digits}  {''.join(_character(byte) for byte in line)}".rstrip()
        at += _BYTES_A_LINE


def _character(byte: int | None) -> str:
    if byte is None:
        return " "
    return chr(byte) if 0x20 <= byte < 0x7F else "."
