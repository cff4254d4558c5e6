"""Deaths at a limit: CPU time that was used up, an address space that C++ found too small, a file that grew too large.

The launcher notes limits and CPU time of each process every two seconds. The kernel kills a process at its hard
limit of CPU time.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence

import msgspec
from msgspec import structs

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import capital, list_words, size_words
from pytracer.analyze.evidence.ends.oom import killed_by_sigkill, witness_of
from pytracer.analyze.evidence.limits.numbers import ADDRESS_SPACE, CPU, FILE_SIZE, seen_numbers
from pytracer.analyze.evidence.limits.setters import (
    RESOURCES,
    Setter,
    possible_setter,
    setter_before,
    setter_of,
    setting_lines,
)
from pytracer.analyze.evidence.limits.slow_patterns import SlowPattern, slow_pattern
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.evidence.waits.waits import program_stack, wait_of
from pytracer.analyze.kin import parent_of
from pytracer.analyze.naming import place_words
from pytracer.analyze.platform.signals import SIGXCPU, SIGXFSZ
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.host_counters import SeenProcess
from pytracer.report.job import PythonFrame

_CORES, _FEW = 64, 4  # of the time since it was last seen; of one that had used few, and how often its average
_LEAST = 0.2  # of its limit, that it had used when it was last seen
_MISSED = 0.3  # seconds, where the last count is exact
ALL_THREADS = (
    "It is the CPU time of all threads of the process together: a longer wall time does not help, and more threads use "
    "it up sooner."
)
_CPU_ELSEWHERE = (
    "`ulimit -t` in its shell; a batch system's limit, or the submitting shell's, which Slurm passes on without "
    "--propagate=NONE"
)
_SIZE_ELSEWHERE = "`ulimit -f` in its shell, a batch system's limit"
_LINES = 3
_SCRIPT = Pattern(r"\.py$")
_POOL_CALLS = (
    "map", "imap", "imap_unordered", "starmap", "apply", "map_async", "starmap_async", "apply_async", "submit",
)  # fmt: skip
_POOL = Pattern(r"/multiprocess(?:ing)?/pool\.py$")


class CpuLimit(msgspec.Struct, frozen=True):
    """`used`: seconds, when it was last seen; None where it is not known."""

    limit: int
    used: float | None
    setter: Setter | None

    @property
    def words(self) -> str:
        """`its limit of CPU time (RLIMIT_CPU, 3 s, line 15)`."""
        set_by = f", {self.setter.words}" if self.setter is not None else ""
        return f"its limit of CPU time (RLIMIT_CPU, {self.limit} s{set_by})"

    @property
    def change(self) -> str:
        """How to raise it."""
        return _raising(self.setter, "`ulimit -t` in its shell, the batch system's limit")


def cpu_limit(job: JobView, view: ProcessView) -> CpuLimit | None:
    """Of a process that SIGKILL ended when its CPU time may have reached the hard limit."""
    seen = seen_of(job, view)
    numbers = seen_numbers(seen)
    hard = numbers.hard(CPU)
    if hard is None and seen is not None and ((seen.limits or {}).get(CPU) or (None, None))[1] is not None:
        hard = numbers.limit(CPU)
    if seen is None or hard is None or seen.cpu_seconds is None or not killed_by_sigkill(view) or view.senders:
        return None
    since = ((seen.gone_mono_ns or seen.alive_mono_ns) - seen.alive_mono_ns) / 1e9
    if seen.cpu_seconds < hard * _LEAST or seen.cpu_seconds + _cores(seen) * since < hard:
        return None
    if seen.how == "zombie" and seen.cpu_seconds < hard - _MISSED:
        return None
    return CpuLimit(hard, seen.cpu_seconds, _any_setter(job, view, CPU, hard))


def _cores(seen: SeenProcess) -> float:
    """How many it may have used since, by those that it used on average."""
    lived = (seen.alive_mono_ns - seen.first_mono_ns) / 1e9
    return min(_CORES, _FEW * max(1.0, (seen.cpu_seconds or 0) / lived)) if lived > _FEW else _CORES


class SignalLimit(msgspec.Struct, frozen=True):
    """Of a process that the kernel ended by SIGXCPU or SIGXFSZ. `amount`: `10 s`; None where it is not known."""

    name: str
    amount: str | None
    setter: Setter | None
    lines: tuple[str, ...] = ()
    """Those of the program that set such a limit, where it is not known which one did."""

    @property
    def words(self) -> str | None:
        """`RLIMIT_CPU, 5 s, line 9`."""
        if self.amount is None:
            return None
        set_by = f", {self.setter.words}" if self.setter is not None else ""
        return f"{RESOURCES[self.name]}, {self.amount}{set_by}"

    @property
    def line(self) -> PythonFrame | None:
        """That sets it."""
        return self.setter.frame if self.setter is not None else None

    @property
    def advice(self) -> str:
        """How to raise it, and what does not help."""
        if self.name == CPU:
            return f"{capital(_raising(self.setter, _CPU_ELSEWHERE, self.lines))}, or end earlier. {ALL_THREADS}"
        return f"{capital(_raising(self.setter, _SIZE_ELSEWHERE, self.lines))}, or write smaller files."


def limit_of_signal(job: JobView, view: ProcessView, signal: int) -> SignalLimit | None:
    """None for other signals."""
    name = {SIGXCPU: CPU, SIGXFSZ: FILE_SIZE}.get(signal)
    if name is None:
        return None
    limit = seen_numbers(seen_of(job, view)).limit(name)
    if limit is None:
        return SignalLimit(name, None, None)
    amount = f"{limit} s" if name == CPU else size_words(limit)
    setter = _any_setter(job, view, name, limit)
    here = view.python_frame.file if view.python_frame is not None else None
    lines = setting_lines(view.process.snapshot, _frames(job, view), name, here) if setter is None else ()
    return SignalLimit(name, amount, setter, lines)


def _raising(setter: Setter | None, elsewhere: str, lines: Sequence[str] = ()) -> str:
    """`elsewhere`: how it is set before the program begins; `lines`: of the program, that may."""
    if setter is None and lines[1:]:
        return (
            f"raise that limit where it was set: {list_words(lines, _LINES)} set one, or it came from where the job is "
            f"started ({elsewhere})"
        )
    if setter is None:
        return f"raise that limit where the job is started ({elsewhere})"
    at = f"at {setter.place} (`{setter.text}`)"
    return f"raise that limit {at}{'' if setter.sure else f', or where the job is started ({elsewhere})'}"


class FileLimit(msgspec.Struct, frozen=True):
    """Of each file that it writes. `limit`: bytes; None where it is only known that the program sets one."""

    limit: int | None
    setter: Setter | None

    @property
    def words(self) -> str:
        """`4.0 MiB for each file (RLIMIT_FSIZE, line 15)`."""
        set_by = f", {self.setter.place}" if self.setter is not None else ""
        return f"{size_words(self.limit or 0)} for each file (RLIMIT_FSIZE{set_by})"

    @property
    def change(self) -> str:
        """How to raise it."""
        if self.setter is not None:
            return f"raise that limit at {self.setter.place} (`{self.setter.text}`)"
        return "raise that limit where the job is started (`ulimit -f` in its shell, the batch system's limit)"


def file_limit(job: JobView, view: ProcessView) -> FileLimit | None:
    """As the launcher last saw it; of a process that it did not see, what the program sets.

    One without a limit may have set it since: in the function whose line was running.
    """
    seen = seen_of(job, view)
    limit = seen_numbers(seen).limit(FILE_SIZE)
    if limit is None and seen is not None:
        here = view.python_frame.file if view.python_frame is not None else None
        found = setter_before(view.process.snapshot, program_stack(view), FILE_SIZE, here)
        return FileLimit(found[1], found[0]) if found is not None else None
    setter = _setter(job, view, FILE_SIZE, limit)
    return FileLimit(limit, setter) if limit is not None or setter is not None else None


def memory_limit_words(job: JobView, view: ProcessView) -> tuple[str, str] | None:
    """For the headline and the next step, of an allocation of native code that failed below a limit."""
    numbers = seen_numbers(seen_of(job, view))
    limit, used = numbers.limit(ADDRESS_SPACE), numbers.used(ADDRESS_SPACE)
    if limit is None:
        return None
    setter = _setter(job, view, ADDRESS_SPACE, limit)
    set_by = f", {setter.place}" if setter is not None else ""
    held = f", {size_words(used)} of which it had when it was last seen" if used is not None and used <= limit else ""
    how = f"at {setter.place} (`{setter.text}`)" if setter is not None else "where the job is started (`ulimit -v`)"
    return (
        f"its address space is limited to {size_words(limit)} (RLIMIT_AS{set_by}){held}",
        (
            f"What native code asked for did not fit into that limit: raise it {how}, or let it ask for less; look at "
            "what it sizes by a file, an option or an argument."
        ),
    )


class LostTask(msgspec.Struct, frozen=True):
    """What a multiprocessing.Pool waits for that lost a worker. `function`: what it runs, with its line."""

    at: PythonFrame
    function: tuple[str, str] | None

    @property
    def words(self) -> str:
        """For the headline."""
        return f"its parent waits for its result at {place_words(self.at)}, which never comes"

    @property
    def advice(self) -> str:
        """How to notice it."""
        return (
            "multiprocessing.Pool replaces a worker that was killed, but not its task: "
            "concurrent.futures.ProcessPoolExecutor raises BrokenProcessPool instead, and map_async(...).get(timeout) "
            "ends the wait."
        )


def lost_task(job: JobView, view: ProcessView) -> LostTask | None:
    """Of a killed worker whose parent stood in a pool's call until the end."""
    parent = parent_of(job, view)
    wait = wait_of(parent) if parent is not None else None
    if parent is None or wait is None or wait.kind not in ("pool", "workers") or wait.at is None:
        return None
    if not any(_POOL.search(frame.file or "") for frame in parent.python_stack or ()):
        return None
    return LostTask(wait.at, _function(parent, wait.at))


def lost_pattern(job: JobView, view: ProcessView, lost: LostTask) -> SlowPattern | None:
    """A regular expression in the task of a killed worker which can take for ever."""
    parent = parent_of(job, view)
    if parent is None or lost.function is None:
        return None
    own = program_stack(parent)
    return slow_pattern(program_files(parent.process.snapshot, own), lost.function[0])


def seen_of(job: JobView, view: ProcessView) -> SeenProcess | None:
    """What the launcher saw of it; of one without a recording, by its pid and how it ended."""
    witness, own = witness_of(job, view), view.process.snapshot
    if witness is None:
        return None
    exact = witness.process(own.pid, own.start_ticks)
    if exact is not None:
        return exact
    found = [item for item in witness.processes if item.pid == own.pid and item.signal == view.process.signal]
    return found[0] if len(found) == 1 and found[0].signal is not None else None


def _setter(job: JobView, view: ProcessView, name: str, limit: int | None) -> Setter | None:
    """A process without a stack of its own, as one that was killed, has no file that its sentence names."""
    here = view.python_frame.file if view.python_frame is not None else None
    return setter_of(view.process.snapshot, _frames(job, view), name, limit, here)


def _any_setter(job: JobView, view: ProcessView, name: str, limit: int) -> Setter | None:
    """Also a line that sets one of several limits: surely this one, where the process got it after it had begun."""
    here = view.python_frame.file if view.python_frame is not None else None
    found = possible_setter(view.process.snapshot, _frames(job, view), name, limit, here)
    return structs.replace(found, sure=True) if found is not None and _has_changed(seen_of(job, view), name) else found


def _has_changed(seen: SeenProcess | None, name: str) -> bool:
    """Whether a process has another limit than when it was first seen."""
    if seen is None or seen.first_limits is None:
        return False
    return seen.first_limits.get(name) != (seen.limits or {}).get(name)


def _frames(job: JobView, view: ProcessView) -> Sequence[PythonFrame]:
    """The program's, of the process or its parent; else the script that it was started with."""
    for item in (view, parent_of(job, view)):
        stack = (item.python_stack or item.exception_stack) if item is not None else []
        own = [frame for frame in stack if not is_library_file(frame.file)]
        if own:
            return own
    launcher = job.job.launcher_of(view.process.snapshot)
    scripts = [word for word in view.process.snapshot.argv if _SCRIPT.search(word)]
    if not scripts or launcher is None:
        return []
    return [PythonFrame(file=os.path.join(launcher.cwd, scripts[0]), line=1)]


def _function(parent: ProcessView, at: PythonFrame) -> tuple[str, str] | None:
    """Its name and `line 18`."""
    tree = syntax_tree(parent.process.snapshot, at)
    around = nodes_of(scope_of(tree, at.line)) if tree is not None and at.line is not None else ()
    near = [item for item in around if isinstance(item, ast.Call) and called_name(item) in _POOL_CALLS and item.args]
    here = [item for item in near if item.lineno <= (at.line or 0) <= (item.end_lineno or 0)]
    calls = here or near  # the line may ask for the result of what another one has given
    if len(calls) != 1 or tree is None or not isinstance(calls[0].args[0], ast.Name):
        return None
    name = calls[0].args[0].id
    made = [item for item in nodes_of(tree) if isinstance(item, ast.FunctionDef) and item.name == name]
    return (name, f"line {made[0].lineno}") if len(made) == 1 else None
