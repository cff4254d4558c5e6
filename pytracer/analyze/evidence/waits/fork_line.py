"""The line that forked a child which waits in the OpenMP runtime, and how that line starts it without a fork."""

from __future__ import annotations

import ast

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import capital, list_words, shortened
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.evidence.waits.forked_team import computed_before
from pytracer.analyze.evidence.waits.pipes import Starter, fork_file, forked_at, forked_inside, is_process_class
from pytracer.analyze.evidence.waits.plain_fork import PlainFork, plain_fork
from pytracer.analyze.evidence.waits.ran_before import ran_before
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import main_stack
from pytracer.analyze.naming import line_in, place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_LONGEST = 60
_STARTS = ("start", "submit", "map")
# Made by a context, too; those of another one are refused when a spawned process is given them.
_OF_CONTEXT = frozenset(
    {"Queue", "JoinableQueue", "SimpleQueue", "Lock", "RLock", "Event", "Condition", "Semaphore", "BoundedSemaphore"}
    | {"Barrier", "Value", "Array"}
)
_NUMBERS = ("num_proc", "n_jobs", "num_workers", "processes", "n_workers", "nproc", "max_workers", "workers")
_MODULES = ("multiprocessing", "torch.multiprocessing", "multiprocess")
_CONTEXT = 'multiprocessing.get_context("spawn")'
SPAWNED: dict[Starter, str] = {
    "Process": 'by `multiprocessing.get_context("spawn").Process(...)`',
    "Pool": 'by `multiprocessing.get_context("spawn").Pool(...)`',
    "ProcessPoolExecutor": 'with `mp_context=multiprocessing.get_context("spawn")`',
    "DataLoader": 'with `multiprocessing_context="spawn"`',
}
_MADE: dict[Starter, str] = {
    "Process": "it",
    "Pool": "the pool",
    "ProcessPoolExecutor": "the pool",
    "DataLoader": "the DataLoader",
}
_INITIALIZER = "call torch.set_num_threads(1) in the `initializer` of the pool"
# Workers of a DataLoader do so already: theirs is the OpenMP of another library.
_ALONE: dict[Starter, str] = {
    "Process": "call torch.set_num_threads(1) first in the child",
    "Pool": _INITIALIZER,
    "ProcessPoolExecutor": _INITIALIZER,
    "DataLoader": "fork before the parent's first operator",
}


class Within(msgspec.Struct, frozen=True):
    """An installed package that starts the processes by itself. `task`: what they run of the program first.

    `option`: of the call, that has the number of processes.
    """

    package: str
    task: PythonFrame | None
    option: str | None

    def advice(self, here: str | None) -> str:
        """Where the program can do something about it."""
        task = self.task
        first = f" in `{task.function}` ({line_in(task.file, task.line, here)})" if task is not None else ""
        out = f", or leave `{self.option}` out (this process then does the work)" if self.option is not None else ""
        return f"call torch.set_num_threads(1) first{first}{out}"


class ForkLine(msgspec.Struct, frozen=True):
    """`text`: the call of that line. `made`: the line above it that makes the process or pool, if that is another."""

    at: PythonFrame
    starter: Starter
    text: str | None
    made: int | None
    used: PythonFrame | None = None
    """A line at which its parent had computed with OpenMP threads."""
    derived: tuple[str, int] | None = None
    """The class of the program, derived from Process, of what was started, and its line."""
    shared: tuple[tuple[str, int], ...] = ()
    """`Queue`, 53: what else the program makes for its processes by the default context."""
    within: Within | None = None
    fork: str | None = None
    """The file of the package that forked."""
    here: str | None = None
    """The file that the headline names first: where the child waits."""

    @property
    def words(self) -> str:
        """`its parent had used OpenMP threads before it forked at train.py:28 in start`."""
        return f"its parent had used OpenMP threads before it forked at {place_words(self.at)}"

    @property
    def advice(self) -> str:
        """The change to make there, or in the child."""
        text = f" (`{self.text}`)" if self.text is not None else ""
        used = f" (used at {place_words(self.used)})" if self.used is not None else ""
        place = capital(self._line(self.at.line))
        if self.within is not None:
            return (
                f"{place}{text} lets {self.within.package} fork the worker, and the OpenMP threads of the parent{used} "
                f"do not exist in a forked child: {self.within.advice(self.here)}."
            )
        shared = list_words([f"the {name}() of {self._line(line)}" for name, line in self.shared])
        also = f", and {shared} by the same context" if self.shared else ""
        made = f" at {self._line(self.made)}" if self.made is not None else ""
        forked = "it" if self.starter == "Process" else "the worker"
        spawned = f"make {_MADE[self.starter]} {SPAWNED[self.starter]}{made}"
        alone = _ALONE[self.starter]
        if self.fork is not None and "/multiprocess/" in self.fork:
            spawned = spawned.replace("multiprocessing.", "multiprocess.")
        if self.derived is not None:
            alone = f"call torch.set_num_threads(1) first in {self.derived[0]}.run()"
            spawned = f"derive {self.derived[0]} ({self._line(self.derived[1])}) from `{_CONTEXT}.Process`"
            also = f", and make {shared} by the same context" if self.shared else ""
        return (
            f"{place}{text} forks {forked}, and the OpenMP threads of the parent{used} do not exist in a forked child: "
            f"{alone}, or {spawned}{also} (the program's main part below "
            '`if __name__ == "__main__":`).'
        )

    def _line(self, line: int | None) -> str:
        return line_in(self.at.file, line, self.here)


def fork_line(view: ProcessView, wait: ProcessWait, parent: ProcessView | None = None) -> ForkLine | PlainFork | None:
    """Of a child that waits in the OpenMP runtime; None where its frames do not show it."""
    if wait.kind != "forked-openmp":
        return None
    found = forked_at(main_stack(view))
    if found is None:
        return plain_fork(view, parent)
    at, starter = found
    tree = syntax_tree(view.process.snapshot, at)
    calls = calls_on(tree, at.line) if tree is not None and at.line is not None else []
    call = next((item for item in calls if called_name(item) in (*_STARTS, starter)), None)
    text = shortened(ast.unparse(call), _LONGEST) if call is not None else None
    made = _made(tree, call, starter) if tree is not None and call is not None else None
    site = computed_before(view, parent)
    used = python_frame(site.place) if site is not None and site.place is not None else _before(view, at)
    derived = _derived(tree, call) if tree is not None and starter == "Process" else None
    shared = _shared(tree) if tree is not None and starter in ("Process", "Pool") else ()
    within = _within(view, call) if starter != "DataLoader" else None
    stack = main_stack(view)
    here = next((frame.file for frame in stack if not is_library_file(frame.file)), None)
    return ForkLine(at, starter, text, made, used, derived, shared, within, fork_file(stack), here)


def _within(view: ProcessView, call: ast.Call | None) -> Within | None:
    """torch's own are told by what they start."""
    found = forked_inside(main_stack(view))
    if found is None:
        return None
    words = [item.arg for item in call.keywords if item.arg in _NUMBERS] if call is not None else []
    return Within(*found, words[0] if len(words) == 1 else None)


def _before(view: ProcessView, at: PythonFrame) -> PythonFrame | None:
    """What the parent ran of that which the child waits in."""
    stack = main_stack(view)
    return ran_before(view, stack, stack.index(at))


def _derived(tree: ast.Module, call: ast.Call | None) -> tuple[str, int] | None:
    """Of `sampler.start()`: the class of `sampler`, where the file has it; the only one that can be meant."""
    name = variable(call.func.value) if call is not None and isinstance(call.func, ast.Attribute) else None
    bound = lines_that_bind(scope_of(tree, call.lineno), name) if call is not None and name is not None else []
    made = {called_name(item) for _, item in bound if isinstance(item, ast.Call)}
    if not made:
        made = {called_name(item) for item in nodes_of(tree) if isinstance(item, ast.Call)}
    if "Process" in made:
        return None
    classes = [item for item in nodes_of(tree) if isinstance(item, ast.ClassDef) and item.name in made]
    found = [item for item in classes if is_process_class(item)]
    return (found[0].name, found[0].lineno) if len(found) == 1 else None


def _shared(tree: ast.Module) -> tuple[tuple[str, int], ...]:
    """By what is imported: `Queue()` of multiprocessing, not of the module queue."""
    found: dict[tuple[str, int], None] = {}
    for item in nodes_of(tree):
        name = called_name(item) if isinstance(item, ast.Call) else None
        if name in _OF_CONTEXT and isinstance(item, ast.Call):
            origin = (imported_as(tree, item.func) or "").rpartition(".")[0]
            if origin in _MODULES:
                found[name, item.lineno] = None
    return tuple(found)


def _made(tree: ast.Module, call: ast.Call, starter: Starter) -> int | None:
    """Of `p.start()`: the only line of its function that binds `p`, else the only one of the file that makes such."""
    if called_name(call) == starter:
        return None
    name = variable(call.func.value) if isinstance(call.func, ast.Attribute) else None
    bound = [item for _, item in lines_that_bind(scope_of(tree, call.lineno), name)] if name is not None else []
    made = [item for item in (bound or nodes_of(tree)) if isinstance(item, ast.Call) and called_name(item) == starter]
    return made[0].lineno if len(made) == 1 else None
