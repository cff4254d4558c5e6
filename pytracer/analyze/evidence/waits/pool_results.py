"""A multiprocessing pool whose thread that receives results has ended, so that no result can come any more."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._text import count_words, shortened
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import function_named, own_nodes
from pytracer.analyze.evidence.waits.ended_threads import lacks_receiver
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import end_of
from pytracer.analyze.kin import children_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView

GIVE = frozenset(
    {"apply", "apply_async", "map", "map_async", "imap", "imap_unordered", "starmap", "starmap_async"}
)  # of Pool: the first argument is the function
_LIMIT = "maxtasksperchild"
_LONGEST = 50


class EndedReceiver(msgspec.Struct, frozen=True):
    """`ended`: how many of its workers had ended with status 0 before.

    `limited`: the line and text of `maxtasksperchild=...`. `task`: the only function that the file gives to a pool, and
    the lines and values that it returns.
    """

    ended: int
    limited: tuple[int, str] | None = None
    task: str | None = None
    returns: tuple[tuple[int, str], ...] = ()

    @property
    def words(self) -> str:
        """`the pool's thread that receives results had ended: ...`."""
        limit = f"`{self.limited[1]}`, line {self.limited[0]}" if self.limited is not None else None
        told = f" ({limit})" if limit is not None and self.ended else ""
        gone = f"; {count_words(self.ended, 'worker')} had ended with status 0 by then{told}" if self.ended else ""
        return (
            "the pool's thread that receives results had ended, as it does without a word when a result cannot be "
            f"loaded (`Pool._handle_results`){gone}"
        )

    @property
    def advice(self) -> str:
        """What a task should return, and where."""
        returned = " or ".join(f"line {line} (`{text}`)" for line, text in self.returns[:2])
        task = f"`{self.task}` returns at {returned}" if self.task and returned else "the function of the pool returns"
        why = (
            "A tensor comes as a file descriptor, which is fetched from the worker when the result is loaded: a worker "
            "that has ended meanwhile cannot give it. "
        )
        limit = f", or leave out `{self.limited[1]}` at line {self.limited[0]}" if self.limited is not None else ""
        return (
            f"{why}Look at what {task}: return NumPy arrays, lists or numbers (`.numpy()`, `.tolist()`) instead of "
            f'tensors{limit}, or call torch.multiprocessing.set_sharing_strategy("file_system") before the pool is '
            "made. get(timeout=...) or next(timeout) ends such a wait."
        )


def ended_receiver(job: JobView, view: ProcessView, wait: ProcessWait) -> EndedReceiver | None:
    """Of a process that waits for the result of a pool's task; None where the thread runs or nothing is known."""
    if wait.kind not in ("pool", "workers") or not lacks_receiver(view):
        return None
    end, tree = end_of(view), syntax_tree(view.process.snapshot, wait.at)
    ended = [
        item
        for item in children_of(job, view)
        if item.left_well
        if end is None or (item.process.ended_mono_ns or end.mono_ns) < end.mono_ns
    ]
    if tree is None:
        return EndedReceiver(len(ended))
    limits = [*_limits(tree)]
    named = set(tasks_given(tree))
    task = named.pop() if len(named) == 1 else None
    return EndedReceiver(
        len(ended), limits[0] if len(limits) == 1 else None, task, tuple(_returns(tree, task)) if task else ()
    )


def _limits(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each `maxtasksperchild=1` of the file."""
    for item in nodes_of(tree):
        if isinstance(item, ast.Call) and called_name(item) == "Pool":
            for word in item.keywords:
                if word.arg == _LIMIT and not is_none(word.value):
                    yield word.value.lineno, f"{_LIMIT}={shortened(ast.unparse(word.value), _LONGEST)}"


def tasks_given(tree: ast.Module) -> Iterator[str]:
    """The functions that the file gives to a pool, by name."""
    for item in nodes_of(tree):
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in GIVE:
            first: Sequence[ast.expr] = item.args[:1]
            yield from (part.id for part in first if isinstance(part, ast.Name))


def _returns(tree: ast.Module, name: str) -> Iterator[tuple[int, str]]:
    """What the function of that name returns."""
    function = function_named(tree, name)
    for item in own_nodes(function) if function is not None else ():
        if isinstance(item, ast.Return) and item.value is not None:
            yield item.lineno, shortened(f"return {ast.unparse(item.value)}", _LONGEST)
