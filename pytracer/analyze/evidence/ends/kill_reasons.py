"""Why a line of the program sent the signal that ended a process: the condition around it, and a limit of memory."""

from __future__ import annotations

import ast
import re

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.ends.exit_condition import condition_at
from pytracer.analyze.evidence.ends.memory_limits import MemoryLimit, asks_memory
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import bare_names
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.tensors.source_lines import is_own_text, syntax_tree
from pytracer.analyze.view import RecordedSender

_TIMES = Pattern(
    r"time_?out|monotonic\(|perf_counter\(|\btime\(|deadline|heart_?beat|elapsed|\bstale|_seconds\b|_secs?\b"
)
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


def asks_for_time(sent: RecordedSender, below: str) -> bool:
    """Whether that condition asks for a time: by itself, or by what its line's function binds to a name in it."""
    if _TIMES.search(below) is not None:
        return True
    frame = sent.frame
    tree = syntax_tree(sent.sender.snapshot, frame) if frame is not None else None
    if tree is None or frame is None or frame.line is None:
        return False
    around = next((item for item, is_around in deciding_ifs(tree, frame.line) if is_around), None)
    if around is None:
        return False
    names = bare_names(around.test)
    pairs = (pair for item in own_nodes(scope_of(tree, frame.line)) for pair in set_by(item))
    bound = [value for target, value in pairs if isinstance(target, ast.Name) and target.id in names]
    return any(value is not None and _TIMES.search(ast.unparse(value)) is not None for value in bound)
