"""Which of its children a process waits for: by what it gave waitpid(), else by what the program joins.

A process that waits for a child by join() without a timeout, or by subprocess, is in waitpid(pid) (CPython,
multiprocessing/popen_fork.py and subprocess.py). At a signal the registers still have the arguments of that call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import takewhile

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, keyword_value, without_wrappers
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.passing import names_of_object
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.evidence.waits.pipes import is_bootstrap, is_process_class
from pytracer.analyze.evidence.waits.waits import end_of, main_native, main_stack
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_WAITS = Pattern(r"_*(wait4|waitpid)|os_waitpid(_impl)?")  # of the C library; CPython
_FIRST = ("rdi", "x0")  # the registers of a call's first argument
_POLLS = Pattern(r"/(multiprocess(?:ing)?/popen_fork|subprocess)\.py$")
_SPAWN = Pattern(r"/torch/multiprocessing/spawn\.py$")
_JOINS = ("join", "wait")
_SPAWNS = ("spawn", "start_processes")  # which join by themselves
_WRAPPERS = ("enumerate", "list", "reversed", "tuple")
_LONGEST = 40


class Join(msgspec.Struct, frozen=True):
    """`text` of a call without a timeout, at `line`. `joined`: whose method it is, `p`; None of mp.spawn()."""

    text: str
    line: int
    joined: str | None


def joined_child(view: ProcessView, children: Sequence[ProcessView]) -> ProcessView | None:
    """By the number that it gave waitpid(); None where that is not known, or not one of these."""
    end, stack = end_of(view), main_stack(view)
    if end is None or end.tid != view.process.snapshot.pid or not stack or not _POLLS.search(stack[0].file or ""):
        return None
    inner = next((frame.function for frame in main_native(view) if frame.function is not None), "")
    if _WAITS.fullmatch(inner or "") is None:
        return None
    given = next((end.registers[name] for name in _FIRST if name in end.registers), None)
    return next((item for item in children if item.process.snapshot.pid == given), None)


def joins_spawned(stack: Sequence[PythonFrame]) -> bool:
    """Whether it waits for all processes of torch.multiprocessing.spawn()."""
    return any((frame.function or "").endswith("join") and _SPAWN.search(frame.file or "") for frame in stack)


def join_at(tree: ast.Module, line: int) -> Join | None:
    """The one call of a line that waits for processes; None where it may have a timeout."""
    found = [item for item in calls_on(tree, line) if called_name(item) in (*_JOINS, *_SPAWNS)]
    if len(found) != 1:
        return None
    call = found[0]
    text = shortened(ast.unparse(call), _LONGEST)
    if called_name(call) in _SPAWNS:
        return Join(f"{ast.unparse(call.func)}(...)", call.lineno, None)
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if call.args or call.keywords or owner is None:
        return None
    return Join(text, call.lineno, ast.unparse(owner))


def may_join(tree: ast.Module, line: int, view: ProcessView, child: ProcessView) -> bool:
    """Whether the join of a line waits for processes that run what `child` does, and for no other kind."""
    own = [*takewhile(lambda frame: not is_bootstrap(frame), main_stack(child))]
    if joins_spawned(main_stack(view)):
        return any(_SPAWN.search(frame.file or "") for frame in main_stack(child))
    entry = next((frame.function for frame in reversed(own) if not is_library_file(frame.file)), None)
    join = join_at(tree, line)
    if entry is None or join is None or join.joined is None:
        return False
    kinds = _kinds(tree, line, join.joined)
    return kinds in ({entry}, {entry.rpartition(".")[2]}, {entry.rpartition(".")[0]})


def _kinds(tree: ast.Module, line: int, joined: str) -> set[str]:
    """The functions, or classes of processes, that what is joined runs; of all, where that is not known."""
    name = _base(tree, line, ast.parse(joined, mode="eval").body)
    classes = _process_classes(tree)
    kept = _kept(tree, classes)
    names = names_of_object(tree, name) if name is not None else frozenset()
    found = {kind for key, kinds in kept.items() if key in names for kind in kinds}
    return found or {kind for item in nodes_of(tree) for kind in _started(item, classes)}


def _base(tree: ast.Module, line: int, node: ast.expr) -> str | None:
    """`workers` of the `p` of `for p in self.workers`."""
    name = last_name(node)
    if not isinstance(node, ast.Name):
        return name
    for item in own_nodes(scope_of(tree, line)):
        if isinstance(item, (ast.For, ast.comprehension)) and name in {
            last_name(part) for part in nodes_of(item.target) if isinstance(part, ast.Name)
        }:
            return last_name(without_wrappers(item.iter, _WRAPPERS))
    return name


def _kept(tree: ast.Module, classes: frozenset[str]) -> dict[str, set[str]]:
    """What each variable runs that has a process, or a list of them."""
    found: dict[str, set[str]] = {}
    for item in nodes_of(tree):
        for target, value in set_by(item):
            kinds = _started_in(value, classes) if value is not None else set()
            if kinds:
                found.setdefault(last_name(target) or "", set()).update(kinds)
    for item in nodes_of(tree):
        if not isinstance(item, ast.Call) or called_name(item) != "append" or len(item.args) != 1:
            continue
        given = item.args[0]
        kinds = _started_in(given, classes) | found.get(last_name(given) or "", set())
        if kinds and isinstance(item.func, ast.Attribute):
            found.setdefault(last_name(item.func.value) or "", set()).update(kinds)
    return found


def _process_classes(tree: ast.Module) -> frozenset[str]:
    """The names of those that are derived from Process."""
    return frozenset(item.name for item in nodes_of(tree) if isinstance(item, ast.ClassDef) and is_process_class(item))


def _started_in(value: ast.expr, classes: frozenset[str]) -> set[str]:
    return {kind for node in nodes_of(value) for kind in _started(node, classes)}


def _started(node: ast.AST, classes: frozenset[str]) -> Iterator[str]:
    """The `target` of a Process, or the class of one that is derived from it."""
    if not isinstance(node, ast.Call):
        return
    name = called_name(node) or ""
    target = keyword_value(node, "target") if name.endswith("Process") else None
    if target is not None:
        yield last_name(target) or "?"
    if name in classes:
        yield name
