"""Why a line of the program sent the signal that ended a process: the condition around it, and a limit of memory."""

from __future__ import annotations

import re

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.ends.exit_condition import condition_at
from pytracer.analyze.evidence.ends.memory_limits import MemoryLimit, asks_memory
from pytracer.analyze.tensors.source_lines import is_own_text
from pytracer.analyze.view import RecordedSender

_MEMORY = Pattern(r"memory|\b(?:rss|pss|uss|vms)\b|meminfo|statm", re.IGNORECASE)


def kill_condition(sent: RecordedSender) -> str | None:
    """What held where the program's line sent the signal: `` where `age > self.timeout` holds (line 70) ``."""
    frame = sent.frame
    snapshot = sent.sender.snapshot
    if frame is None or (is_library_file(frame.file) and not is_own_text(snapshot, frame)):
        return None
    return condition_at(snapshot, frame)


def asks_for_memory(sent: RecordedSender, below: str | None) -> bool:
    """Whether a condition about that line asks for memory of some kind, if only by a name: the process may have had it.

    `below`: of kill_condition().
    """
    return (below is not None and is_about_memory(below)) or asks_memory(sent)


def is_about_memory(condition: str) -> bool:
    """Whether the condition below which a process was killed asks for memory: `job.memory_info().rss > limit`."""
    return _MEMORY.search(condition) is not None


def reason_words(below: str | None, limit: MemoryLimit | None) -> str:
    """`` , where `used > mem_mb` holds (line 67, `mem_mb` is 1300) ``; `below`: of kill_condition()."""
    return limit.words(below) if limit is not None else f", {below}" if below is not None else ""
