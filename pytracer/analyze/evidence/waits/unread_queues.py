"""The multiprocessing queue that children fill and nobody reads while their parent waits for their end."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, keyword_value
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.passing import names_of_object
from pytracer.analyze.evidence.syntax.scopes import function_named
from pytracer.analyze.evidence.waits.pipes import forked_at, is_process_class
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import main_stack
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_QUEUES = ("Queue", "JoinableQueue")  # SimpleQueue has no thread that a process would wait for
_PUTS = ("put", "put_nowait")
_MANAGERS = ("Manager", "SyncManager")
_FUNCTIONS = 12  # that are looked through
_LONGEST = 40


class UnreadQueue(msgspec.Struct, frozen=True):
    """`name`: as the program binds it. `join`: the call that waits for the children, and its line."""

    name: str
    join: tuple[int, str] | None

    def advice(self, later: str) -> str:
        """To read until the children have ended. `later`: that a line below the join() reads, or nothing."""
        name = self.name
        call, at = (f"`{self.join[1]}`", f" (line {self.join[0]})") if self.join is not None else ("join()", "")
        ends = "a child ends when all that it put there has gone into the pipe, which holds 64 KiB"
        if later:
            return f"{later}take all of `{name}` before {call}: {ends}."
        return (
            f"Before {call}{at}, take from `{name}` until all children have ended (while "
            f"multiprocessing.active_children(): `{name}.get(timeout=1)`, and go on at queue.Empty): {ends}. Or let "
            f"the child call `{name}.cancel_join_thread()` before it ends, which drops the rest."
        )


def unread_queue(view: ProcessView, wait: ProcessWait) -> UnreadQueue | None:
    """Of the process that waits for its child, or of a child that was forked; None where several come into question."""
    forked = forked_at(main_stack(view)) if wait.kind == "unread-queue" else None
    at = wait.at if forked is None else forked[0]
    tree = syntax_tree(view.process.snapshot, at)
    if tree is None or at is None or at.line is None:
        return None
    made = {*made_queues(tree)}
    filled = {name for put in _puts(tree) for name in made & names_of_object(tree, put)}
    if len(filled) != 1:
        return None
    joins = [item for item in calls_on(tree, at.line) if called_name(item) in ("join", "wait") and not item.args]
    join = (joins[0].lineno, shortened(ast.unparse(joins[0]), _LONGEST)) if len(joins) == 1 else None
    return UnreadQueue(next(iter(filled)), join)


def made_queues(tree: ast.Module) -> Iterator[str]:
    """Variables that hold such a queue; what is put into one of a manager is in that process at once."""
    for target, value in (pair for item in nodes_of(tree) for pair in set_by(item)):
        name = last_name(target)
        if not isinstance(value, ast.Call) or name is None:
            continue
        owner = value.func.value if isinstance(value.func, ast.Attribute) else None
        of_manager = isinstance(owner, ast.Call) and called_name(owner) in _MANAGERS
        if called_name(value) in _QUEUES and not of_manager:
            yield name


def _puts(tree: ast.Module) -> Iterator[str]:
    """The child's names of what it puts something into."""
    functions = [*entries(tree)]
    for function in functions:
        for item in nodes_of(function):
            if not isinstance(item, ast.Call):
                continue
            name = last_name(item.func.value) if isinstance(item.func, ast.Attribute) else None
            if called_name(item) in _PUTS and name is not None:
                yield name
            inner = function_named(tree, called_name(item) or "")
            if inner is not None and inner not in functions and len(functions) < _FUNCTIONS:
                functions.append(inner)


def entries(tree: ast.Module) -> Iterator[ast.AST]:
    """What runs in a child: the `target` of a Process, and run() of a class that is derived from it."""
    calls = {called_name(item) for item in nodes_of(tree) if isinstance(item, ast.Call)}
    for item in nodes_of(tree):
        if isinstance(item, ast.Call) and (called_name(item) or "").endswith("Process"):
            target = keyword_value(item, "target")
            function = function_named(tree, last_name(target) or "") if target is not None else None
            if function is not None:
                yield function
        elif isinstance(item, ast.ClassDef) and item.name in calls and is_process_class(item):
            yield from (part for part in item.body if isinstance(part, ast.FunctionDef) and part.name == "run")
