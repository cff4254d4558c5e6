"""Why a line of the program sent the signal that ended a process: the condition around it, and a limit of memory."""

from __future__ import annotations

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.ends.exit_condition import condition_at
from pytracer.analyze.evidence.ends.memory_limits import MemoryLimit, memory_limit
from pytracer.analyze.evidence.ends.worker_caches import is_about_memory
from pytracer.analyze.view import RecordedSender


def kill_condition(sent: RecordedSender) -> str | None:
    """What held where the program's line sent the signal: `` where `age > self.timeout` holds (line 70) ``."""
    frame = sent.frame
    return condition_at(sent.sender.snapshot, frame) if frame is not None and not is_library_file(frame.file) else None


def kill_limit(sent: RecordedSender, below: str | None) -> MemoryLimit | None:
    """The condition about memory that decided it; also one that has nothing more than the name of memory."""
    found = memory_limit(sent)
    if found is None and below is not None and is_about_memory(below):
        return MemoryLimit(None, None)
    return found


def reason_words(below: str | None, limit: MemoryLimit | None) -> str:
    """`` , where `used > mem_mb` holds (line 67, `mem_mb` is 1300) ``; `below`: of kill_condition()."""
    return limit.words(below) if limit is not None else f", {below}" if below is not None else ""
