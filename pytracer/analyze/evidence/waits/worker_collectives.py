"""A DataLoader worker that was forked and calls a collective: it has the parent's process group without its threads."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.bindings import bound_value
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import names_of
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.evidence.waits.waits import was_forked
from pytracer.analyze.naming import name_words, place_words, short_file
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_C10D = Pattern(r"/torch/distributed/distributed_c10d\.py$")
_LOOP = Pattern(r"/torch/utils/data/_utils/worker\.py$")
_WAITS = Pattern(r"^(?:all_|broadcast|reduce|gather|scatter|barrier|monitored_barrier|i?send|i?recv|new_group)")
_LONGEST = 60


class WorkerCollective(msgspec.Struct, frozen=True):
    """`name`: the function of torch.distributed; `at`: the program's line that called it.

    `entry`: the outermost function of the program in the worker. `loop`: the line that began to read from the loader.
    """

    worker: ProcessView
    name: str
    at: PythonFrame
    entry: PythonFrame
    loop: PythonFrame | None

    @property
    def words(self) -> str:
        """`DataLoader worker 0 of rank 0 stands in all_reduce() at data.py:25 in collate`."""
        return f"{name_words([self.worker])} stands in {self.name}() at {place_words(self.at)}"

    @property
    def reason(self) -> str:
        """What follows the words."""
        return "a forked worker has no threads of the process group, so that no collective ends there"


def collective_in_worker(view: ProcessView) -> WorkerCollective | None:
    """Where its stack shows one at its end; None of a worker that was spawned: it may have a group of its own."""
    stack = view.python_stack or []
    end = next((n for n, frame in enumerate(stack) if _LOOP.search(frame.file or "")), None)
    if end is None or view.process.snapshot.worker is None or not was_forked(view):
        return None
    inside = stack[:end]
    called = [
        n
        for n, frame in enumerate(inside)
        if _C10D.search(frame.file or "") and _WAITS.search((frame.function or "").rpartition(".")[2])
    ]
    own = [frame for frame in inside[called[-1] :] if not is_library_file(frame.file)] if called else []
    if not own:
        return None
    loop = next((frame for frame in stack[end:] if not is_library_file(frame.file)), None)
    return WorkerCollective(view, inside[called[-1]].function or "?", own[0], own[-1], loop)


def worker_advice(found: WorkerCollective) -> str:
    """With the line that makes the loader, where the source shows it."""
    name = (found.entry.function or "").rpartition(".")[2]
    made = _loader(found)
    runs = f"`{name}` runs in the loader's worker processes"
    if made is not None:
        line, call = made
        given = {word.arg: ast.unparse(word.value) for word in call.keywords if word.arg is not None}
        shown = [f"{key}={value}" for key, value in given.items() if key == "num_workers" or value.endswith(name)]
        told = f" ({shortened(', '.join(shown), _LONGEST)})" if shown else ""
        runs = f"`{name}` runs in the worker processes of the loader of line {line}{told}"
    after = "in the loop"
    if found.loop is not None and found.loop.line is not None:
        same = found.loop.file == found.at.file
        after = f"in the loop of {'line ' if same else f'{short_file(found.loop.file)}:'}{found.loop.line}"
    return (
        f"{runs}: call no collectives there. Do what needs {found.name}() in the main process, {after}, on each batch "
        "that comes from the loader; or before the loader is made, and hand it the result."
    )


def _loader(found: WorkerCollective) -> tuple[int, ast.Call] | None:
    """The `DataLoader(...)` that the loop goes through, of the same function or in the loop's own line."""
    frame = found.loop
    tree = syntax_tree(found.worker.process.snapshot, frame)
    if tree is None or frame is None or frame.line is None:
        return None
    heads = [item.iter for item in nodes_of(tree) if isinstance(item, ast.For) and item.lineno == frame.line]
    candidates: Sequence[ast.AST] = [part for head in heads for part in nodes_of(head)]
    for head in heads:
        for name in names_of(head):
            bound = bound_value(scope_of(tree, frame.line), name, frame.line)
            candidates = [*candidates, bound[1]] if bound is not None and bound[1] is not None else candidates
    for item in candidates:
        if isinstance(item, ast.Call) and called_name(item) == "DataLoader":
            known = line_text(found.worker.process.snapshot, PythonFrame(file=frame.file, line=item.lineno))
            return (item.lineno, item) if known is not None else None
    return None
