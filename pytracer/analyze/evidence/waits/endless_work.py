"""A loop of the program that works for ever: its steps come and go, and nothing ends it.

A `break` inside of a `for` below `while True` leaves the `for` alone. A loop over a generator that never ends, such as
an IterableDataset with `while True`, or itertools.cycle(), has no last item.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values, without_wrappers
from pytracer.analyze.evidence.syntax.loops import breaks_of
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, class_named, function_named, own_nodes, scope_of, spans
from pytracer.analyze.evidence.syntax.unbounded import (
    Reason,
    body_of,
    head_of,
    is_unbounded,
    leaves,
    never_asked_to_stop,
    short_text,
    yields,
)
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_OF_CHILDREN = Pattern(r"/multiprocess(?:ing)?/process\.py$|/concurrent/futures/|/torch/utils/data/_utils/worker\.py$")
_WRAPPERS = frozenset({"enumerate", "tqdm", "iter"})
# Calls that end an iteration, or the process, by an exception; at the end of a file or a stream, too.
_RAISES = frozenset(
    {"next", "exit", "_exit", "get_nowait", "throw", "load", "recv", "unpack", "readexactly", "recv_bytes", "popleft"}
)
_ENDS = frozenset({"exit", "_exit", "abort", "interrupt_main", "raise_signal", "kill", "throw"})
_UNNAMED = {"__call__", "forward", "__getitem__", "__iter__", "__next__"}
_LOADERS = frozenset({"DataLoader", "WebLoader"})
_EXITS = {"StopIteration", "SystemExit", "KeyboardInterrupt"}
_NEXT = ("__next__", "<lambda>")
_BINARY = ("rb", "br", "rb+", "r+b")
_PLAIN = (ast.For, ast.While)


class EndlessWork(msgspec.Struct, frozen=True):
    """The loop around the line of a frame, and why nothing ends it."""

    frame: PythonFrame
    line: int
    head: str
    reason: Reason


def endless_work(
    view: ProcessView, stack: Sequence[PythonFrame], frames: Sequence[PythonFrame], *, blocked: bool
) -> EndlessWork | None:
    """Of the main program; a child, or a thread of a pool, may be meant to work until somebody ends it.

    Args:
        view: The process.
        stack: Of its main thread.
        frames: The program's own of these, innermost first.
        blocked: Whether it stood in a system call that may wait: only a read of a file may be part of such work.
    """
    if any(_OF_CHILDREN.search(item.file or "") for item in stack):
        return None
    values, files = Slice(view.process.snapshot, frames), program_files(view.process.snapshot, frames)
    for depth, frame in enumerate(frames):
        tree = syntax_tree(view.process.snapshot, frame)
        for loop in _loops(tree, frame, stack) if tree is not None else ():
            reason = None
            if not blocked:
                reason = _left_inside_only(loop)
            if reason is None and isinstance(loop, ast.For):
                reason = _without_last_item(values, depth, loop, blocked=blocked)
            if (
                reason is not None
                and tree is not None
                and _goes_on_behind(tree, loop)
                and not _is_tried(tree, loop)
                and not _left_by_error(files, loop)
            ):
                return EndlessWork(frame, loop.lineno, head_of(loop), reason)
            if isinstance(loop, ast.While):
                return None  # which may be the one that does not end
    return None


def _loops(tree: ast.Module, frame: PythonFrame, stack: Sequence[PythonFrame]) -> list[ast.For | ast.While]:
    """Those around a line, the innermost first; one at whose head it is counts where that asks for the next item."""
    line = frame.line or 0
    place = next((number for number, item in enumerate(stack) if item is frame), 0)
    called = (stack[place - 1].function or "").rpartition(".")[2] if place else "__next__"
    found = [
        item
        for item in own_nodes(scope_of(tree, line))
        if isinstance(item, _PLAIN) and spans(item, line)
        if item.lineno < line or called in _NEXT
    ]
    return sorted(found, key=lambda item: -item.lineno)


def _left_by_error(files: Mapping[str, ast.Module], loop: ast.For | ast.While) -> bool:
    """Whether a function that it calls raises an exception of the program's own, such as `EarlyStop`, or an exit.

    Also one that such a function calls, and what objects do when they are called, or asked for items.
    """
    nodes = [item for tree in files.values() for item in nodes_of(tree)]
    own = {item.name for item in nodes if isinstance(item, ast.ClassDef)} | _EXITS
    functions = [item for item in nodes if isinstance(item, ast.FunctionDef)]
    called, known = _called(body_of(loop)) | _UNNAMED, set[str]()
    while called - known:
        new = called - known
        known |= new
        called |= {name for item in functions if item.name in new for name in _called(own_nodes(item))}
    reached = [item for item in functions if item.name in known]
    raised = [part.exc for item in reached for part in own_nodes(item) if isinstance(part, ast.Raise)]
    named = [item.func if isinstance(item, ast.Call) else item for item in raised]
    exits = any(name in _ENDS for item in reached for name in _called(own_nodes(item)))
    return exits or any(item is not None and last_name(item) in own for item in named)


def _called(nodes: Sequence[ast.AST]) -> set[str]:
    return {called_name(item) or "" for item in nodes if isinstance(item, ast.Call)}


def _is_tried(tree: ast.Module, loop: ast.For | ast.While) -> bool:
    """Whether an error is meant to end it: a `try` around it, whose `except` goes on behind."""
    return any(
        isinstance(item, ast.Try) and any(part is loop for one in item.body for part in nodes_of(one))
        and any(not isinstance(handler.body[-1], ast.Raise) for handler in item.handlers)
        for item in own_nodes(scope_of(tree, loop.lineno))
    )  # fmt: skip


def _goes_on_behind(tree: ast.Module, loop: ast.For | ast.While) -> bool:
    """Whether its function has lines behind it, which are meant to be reached: it is not to work for good."""
    scope, last = scope_of(tree, loop.lineno), loop.end_lineno or 0
    return any(isinstance(item, ast.stmt) and item.lineno > last for item in own_nodes(scope))


def _left_inside_only(loop: ast.For | ast.While) -> Reason | None:
    """`while True: for batch in loader: ...; if step >= n: break`."""
    if not is_unbounded(loop) or _may_end(loop):
        return None
    inner = [item for item in body_of(loop) if isinstance(item, _PLAIN)]
    found = [(item, one) for item in inner for one in breaks_of(item)]
    if len(found) != 1:
        return None
    within, leaving = found[0]
    guard = next((item for item in nodes_of(within) if isinstance(item, ast.If) and leaving in item.body), None)
    if guard is None:
        return None
    test, outer = short_text(guard.test), f"the loop of line {loop.lineno} (`{head_of(loop)}`)"
    return Reason(
        f"the `break` of line {leaving.lineno} (where `{test}`) leaves only the loop of line {within.lineno} "
        f"(`{head_of(within)}`), which is begun again: nothing leaves {outer}",
        f"Leave the outer loop as well: behind the loop of line {within.lineno}, `if {test}: break`. Or put both into "
        f"a function, and `return` at line {leaving.lineno}.",
        sure=True,
        spins=True,
    )


def _without_last_item(values: Slice, depth: int, loop: ast.For, *, blocked: bool) -> Reason | None:
    """A loop over what yields for ever."""
    spot = values.spot(depth)
    if spot is None or _may_end(loop):
        return None
    if isinstance(loop.iter, ast.Call) and called_name(loop.iter) == "iter" and len(loop.iter.args) == 2:
        return _never_equal(spot.scope, loop, loop.iter)
    if blocked:
        return None
    items = without_wrappers(loop.iter, _WRAPPERS)
    made = values.made(items, spot, calls=False)
    call = made.node
    if not isinstance(call, ast.Call):
        return None
    name, source = called_name(call), made
    if name in _LOADERS and call.args:
        source = values.made(call.args[0], made.spot, calls=False)
        if not isinstance(source.node, ast.Call):
            return None
        name = called_name(source.node)
    found = _endless_generator(source.spot.tree, name or "")
    text, is_cycle = short_text(items), name == "cycle" and _is_of_itertools(source.spot.tree, call)
    if found is None and not is_cycle:
        return None
    why, one_pass = "cycle() begins again for ever", "."
    if found is not None:
        why = f"{found[0]} (line {found[1].lineno}, `{head_of(found[1])}`) yields for ever"
        one_pass = f". Where one pass is meant, as for validation, let {found[0]} end after it."
    return Reason(
        f"`{text}` has no last item: {why}, and nothing leaves the loop of line {loop.lineno}",
        f"Take as many as are wanted: `for ... in itertools.islice({text}, n)` at line {loop.lineno}, or `break` after "
        f"n{one_pass}",
        sure=True,
        spins=True,
    )


def _is_of_itertools(tree: ast.Module, call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute):
        return ast.unparse(call.func.value) == "itertools"
    return (
        any(
            isinstance(item, ast.ImportFrom)
            and item.module == "itertools"
            and any(one.name == "cycle" for one in item.names)
            for item in nodes_of(tree)
        )
        and function_named(tree, "cycle") is None
    )


def _never_equal(scope: Scope, loop: ast.For, items: ast.Call) -> Reason | None:
    """`iter(lambda: file.read(n), "")` of a file that is opened in binary mode."""
    end = items.args[1]
    if not isinstance(end, ast.Constant) or end.value != "" or not isinstance(end.value, str):
        return None
    modes = [
        item
        for item in own_nodes(scope)
        if isinstance(item, ast.Call) and called_name(item) == "open" and any(
            isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value in _BINARY
            for part in passed_values(item)
        )
    ]  # fmt: skip
    if len(modes) != 1 or not any(
        isinstance(item, ast.Call) and called_name(item) == "read" for item in nodes_of(items)
    ):
        return None
    opened = short_text(modes[0])
    return Reason(
        f"the file is opened in binary mode (line {modes[0].lineno}, `{opened}`), where read() returns b'' at its end, "
        f"and the loop of line {loop.lineno} ends at '' only, which b'' never equals",
        f"Compare with b'' at line {loop.lineno}: `iter(..., b'')`; or `while chunk := f.read(n):`, which ends "
        "with either.",
        sure=True,
        spins=True,
    )


def _endless_generator(tree: ast.Module, name: str) -> tuple[str, ast.For | ast.While] | None:
    """The loop of a generator function, or of the __iter__ of a class, that yields and that nothing leaves."""
    owner = class_named(tree, name)
    methods = [item for item in owner.body if isinstance(item, ast.FunctionDef)] if owner is not None else []
    function = (
        next((item for item in methods if item.name == "__iter__"), None) if owner else function_named(tree, name)
    )
    if not isinstance(function, ast.FunctionDef):
        return None
    loops = [item for item in own_nodes(function) if isinstance(item, _PLAIN) and never_asked_to_stop(item)]
    before = [item for item in own_nodes(function) if isinstance(item, (ast.Return, ast.Raise))]
    if len(loops) != 1 or before or _raises(loops[0]) or _left_by_error({"": tree}, loops[0]):
        return None
    return f"{owner.name}.__iter__" if owner is not None else name, loops[0]


def _may_end(loop: ast.For | ast.While) -> bool:
    return bool(leaves(loop)) or yields(body_of(loop)) or _raises(loop)


def _raises(loop: ast.For | ast.While) -> bool:
    """Whether it calls what ends an iteration, or the process, by an exception."""
    return any(isinstance(item, ast.Call) and called_name(item) in _RAISES for item in body_of(loop))
