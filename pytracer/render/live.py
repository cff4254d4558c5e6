"""The report of `pytracer attach` as text."""

from __future__ import annotations

from collections.abc import Iterator

from pytracer._printable import printable
from pytracer._text import function_words, size_words, time_words
from pytracer.report.live import LiveCollective, LiveFrame, LiveProcess, LiveReport, LiveThread

_MOST_PYTHON = 8
_MOST_NATIVE = 5
_LONGEST = 100
_QUIET = ("futex", "epoll_wait", "poll", "ppoll", "select", "pselect6", "clock_nanosleep", "nanosleep")


def render_live(report: LiveReport, *, everything: bool = False) -> str:
    """The whole report; threads without a Python stack are counted unless `everything`."""
    return "\n".join(_lines(printable(report), everything)) + "\n"


def _lines(report: LiveReport, everything: bool) -> Iterator[str]:
    if report.still_for_seconds is not None:
        yield f"No process has recorded anything for {report.still_for_seconds:g} s."
    if report.deadlock is not None:
        yield f"Deadlock: {report.deadlock.says}."
    for wait in report.waits:
        yield wait.says
    if not report.waits and any(process.rank is not None for process in report.processes):
        yield "No collective is open."
    for process in report.processes:
        yield ""
        yield from _process(process, everything)
    if report.notes:
        yield ""
    for note in report.notes:
        yield f"note: {note}"


def _process(process: LiveProcess, everything: bool) -> Iterator[str]:
    who = f"Rank {process.rank}, process {process.pid}" if process.rank is not None else f"Process {process.pid}"
    what = {"launcher": " (torchrun's agent)", "dataloader-worker": " (DataLoader worker)"}.get(process.role or "", "")
    facts = []
    if process.running_ns is not None:
        facts.append(f"recorded for {time_words(process.running_ns)}")
    if process.step is not None:
        facts.append(f"step {process.step}")
    if process.rss is not None:
        facts.append(f"{size_words(process.rss)} of memory")
    yield f"{who}{what}: {', '.join(facts)}" if facts else f"{who}{what}"
    if process.last_record is not None and process.last_record_ago_ns is not None:
        yield f"  last record  {process.last_record}, {time_words(process.last_record_ago_ns)} ago"
    for item in process.open_collectives:
        yield f"  waits in     {_collective(item)}"
    if not process.open_collectives and process.last_collective is not None:
        yield f"  last done    {_collective(process.last_collective)}"
    if everything or process.role != "launcher":  # the agent of torchrun waits for its workers, always
        yield from _threads(process, everything)
    for note in process.notes:
        yield f"  note         {note}"


def _collective(item: LiveCollective) -> str:
    words = f"{item.op} number {item.sequence_nr}"
    words += f" of group {item.group}" if item.group is not None else ""
    words += f" with rank {item.peer} of the group" if item.peer is not None else ""
    if item.dtype is not None and item.sizes:
        words += f", {item.dtype}[{', '.join(map(str, item.sizes))}]"
    words += f", {item.state}"
    words += f" {time_words(item.ago_ns)} ago" if item.ago_ns is not None else ""
    return words + (f", at {_place(item.called_at)}" if item.called_at else "")


def _threads(process: LiveProcess, everything: bool) -> Iterator[str]:
    shown = [thread for thread in process.threads if everything or thread.python_stack or thread.tid == process.pid]
    for thread in shown:
        yield f"  thread {thread.tid}  {_thread(thread)}"
        native = thread.native_stack if everything else thread.native_stack[:_MOST_NATIVE]
        yield from _frames("native", native, len(thread.native_stack))
        python = thread.python_stack if everything else thread.python_stack[:_MOST_PYTHON]
        yield from _frames("python", python, len(thread.python_stack))
    rest = [thread for thread in process.threads if thread not in shown]
    busy = sum(thread.system_call not in _QUIET for thread in rest)
    if rest:
        yield f"  {len(rest)} other thread{'s' * (len(rest) != 1)}, {busy} of them at work (--all)"


def _thread(thread: LiveThread) -> str:
    words = [thread.name or "without a name"]
    words += [thread.state] if thread.state else []
    words += [f"in {thread.system_call}()"] if thread.system_call else []
    words += ["holds the GIL"] if thread.holds_gil else []
    return ", ".join(words)


def _frames(kind: str, frames: list[LiveFrame], total: int) -> Iterator[str]:
    for frame in frames:
        yield f"    {kind}  {_place(frame)}"
    if total > len(frames):
        yield f"    {kind}  ... {total - len(frames)} more (--all)"


def _place(frame: LiveFrame) -> str:
    if frame.image is not None or frame.file is None:
        image = (frame.image or "").rsplit("/", 1)[-1]
        name = function_words(frame.function)[:_LONGEST] if frame.function else "?"
        return name + (f"  ({image})" if image else "")
    line = f":{frame.line}" if frame.line is not None else ""
    return f"{frame.file}{line} in {frame.function or '?'}"
