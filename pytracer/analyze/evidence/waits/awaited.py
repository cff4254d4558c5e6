"""Why an event loop has nothing left to run, by the source of the coroutines that it was given.

The stack of a loop that waits has none of its coroutines. Their source shows what they await, and whether anything can
end that: a Semaphore that a task asks for once more while it holds it, one that a branch does not give back, a queue
whose items nobody marks as done, a worker that takes from a queue for ever and is awaited itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.coroutines import (
    Coroutine,
    Made,
    coroutines_behind,
    coroutines_from,
    is_limited,
    is_one_object,
    made_by,
)
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.passing import names_of_object
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans_body
from pytracer.analyze.evidence.syntax.swallowed import caught_names
from pytracer.analyze.evidence.syntax.unbounded import head_of, is_unbounded, leaves
from pytracer.analyze.evidence.waits.awaited_circles import circle
from pytracer.analyze.evidence.waits.quiet import pause_of
from pytracer.analyze.evidence.waits.rounded_takers import rounded_taker
from pytracer.analyze.evidence.waits.standing_threads import ThreadReason, others_of
from pytracer.analyze.evidence.waits.undone_items import DONE, skipped_in
from pytracer.analyze.evidence.waits.unreleased import unreleased
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import end_of, program_stack
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import ProcessView

_LOCKS = ("Semaphore", "BoundedSemaphore", "Lock", "Condition")
_QUEUES = ("Queue", "PriorityQueue", "LifoQueue", "JoinableQueue")
_GATHERS = frozenset({"gather", "wait"})
_TASKS = frozenset({"create_task", "ensure_future"})
_OUTSIDE = frozenset(
    {"open_connection", "open_unix_connection", "start_server", "serve_forever", "create_connection", "connect",
     "drain", "read", "readline", "readexactly", "readuntil", "recv", "request", "fetch", "post", "sock_recv",
     "sock_connect", "sock_accept", "create_subprocess_exec", "create_subprocess_shell", "communicate", "getaddrinfo"}
)  # fmt: skip
_CLIENTS = Pattern(
    r"\b(aiohttp|httpx|websockets|grpc|aiofiles|aioboto\w*|asyncpg|aioredis|redis|openai|anthropic|aiobotocore|fsspec)\b"
)
_LONGEST, _PAUSE = 60, 5  # characters, seconds


def awaited_reason(view: ProcessView, wait: ProcessWait) -> ThreadReason | None:
    """Of a loop that waits for its own tasks only: None where another thread may be at work for it."""
    at = wait.at
    if wait.kind != "event-loop" or at is None or at.file is None or at.line is None or others_of(view):
        return None
    files = program_files(view.process.snapshot, program_stack(view))
    run = coroutines_from(files, at.file, at.line)
    reason = next(
        (found for find in (_taken_again, _never_given_back, circle, _endless_taker, _never_done)
         if (found := find(files, run, at.file)) is not None),
        None,
    )  # fmt: skip
    end = end_of(view)
    if reason is None or end is None:
        return None
    still = pause_of(view, end.mono_ns) is not None and not _asks_outside(files, run)
    return msgspec.structs.replace(reason, sure=reason.sure and still)


def _asks_outside(files: Mapping[str, ast.Module], run: Sequence[Coroutine]) -> bool:
    """Whether a coroutine may wait for a server or a child, which may only be slow: then the loop is not at its end."""
    of_library = any(
        isinstance(item, (ast.Import, ast.ImportFrom)) and _CLIENTS.search(ast.unparse(item))
        for tree in files.values()
        for item in nodes_of(tree)
    )
    return of_library or any(
        called_name(call) in _OUTSIDE or (called_name(call) == "sleep" and _is_long(call))
        for part in run
        for item in own_nodes(part.node)
        if isinstance(item, (ast.Await, ast.AsyncWith, ast.AsyncFor))
        for call in nodes_of(item)
        if isinstance(call, ast.Call)
    )


def _is_long(call: ast.Call) -> bool:
    first = call.args[0] if call.args else None
    return isinstance(first, ast.Constant) and isinstance(first.value, (int, float)) and first.value >= _PAUSE


def _taken_again(files: Mapping[str, ast.Module], run: Sequence[Coroutine], here: str) -> ThreadReason | None:
    """A Semaphore or Lock that is held while what asks for it again is awaited."""
    for outer in run:
        for entered, thing in _entered(outer):
            made = made_by(files, thing, _LOCKS)
            if made is None:
                continue
            for inner in coroutines_behind(files, [*_awaited(entered)]):
                again = next((line for other, line in _asked(inner) if is_one_object(outer, thing, inner, other)), None)
                if again is not None and not is_limited(own_nodes(inner.node), again):
                    return _again_words(outer, entered, thing, inner, again, made, here)
    return None


def _again_words(
    outer: Coroutine,
    entered: ast.AsyncWith,
    thing: ast.expr,
    inner: Coroutine,
    again: int,
    made: Made,
    here: str,
) -> ThreadReason:
    name, kind = ast.unparse(thing), called_name(made.call) or ""
    first, second = line_in(outer.file, entered.lineno, here), line_in(inner.file, again, here)
    if kind == "Lock":
        why = "a Lock of asyncio cannot be taken twice by one task"
    else:
        text = shortened(ast.unparse(made.call), _LONGEST)
        why = (
            f"once as many tasks are inside as {line_in(made.file, made.call.lineno, here)} (`{text}`) admits, none "
            "gets it a second time"
        )
    return ThreadReason(
        f"{outer.name} holds `{name}` ({first}) while it awaits {inner.node.name}(), which takes it again ({second}): "
        f"{why}",
        f"Take `{name}` in one of the two only: leave out the `async with` of {first}, or that of {second}; or give "
        f"{outer.name} a {kind} of its own.",
        ((outer.file, entered.lineno), (inner.file, again)),
    )


def _entered(part: Coroutine) -> Iterator[tuple[ast.AsyncWith, ast.expr]]:
    for item in own_nodes(part.node):
        if isinstance(item, ast.AsyncWith):
            yield from ((item, one.context_expr) for one in item.items
                        if isinstance(one.context_expr, (ast.Name, ast.Attribute)))  # fmt: skip


def _asked(part: Coroutine) -> Iterator[tuple[ast.expr, int]]:
    """What it enters, or acquires."""
    yield from ((thing, item.lineno) for item, thing in _entered(part))
    for item in own_nodes(part.node):
        if isinstance(item, ast.Await) and (owner := _owner(item.value, "acquire")) is not None:
            yield owner, item.lineno


def _awaited(entered: ast.AsyncWith) -> Iterator[ast.AST]:
    """What a block waits for; the tasks that it makes, too, where it gathers them."""
    inside = [part for item in entered.body for part in (item, *own_nodes(item))]
    waits = [item for item in inside if isinstance(item, ast.Await)]
    for item in waits:
        if not is_limited(inside, item.lineno):
            yield from nodes_of(item)
    if any(isinstance(item.value, ast.Call) and called_name(item.value) in _GATHERS for item in waits):
        yield from (part for item in inside if isinstance(item, ast.Call) and called_name(item) in _TASKS
                    for part in nodes_of(item))  # fmt: skip


def _never_given_back(files: Mapping[str, ast.Module], run: Sequence[Coroutine], here: str) -> ThreadReason | None:
    """A branch that leaves with what acquire() took."""
    for part in run:
        for thing, _ in _asked(part):
            name = last_name(thing)
            if name is None or made_by(files, thing, _LOCKS) is None:
                continue
            left = [item for item in unreleased(files, part.file, frozenset({name})) if item.file == here]
            if left:
                one = left[0]
                return ThreadReason(one.words, one.advice, ((one.file, one.line), (one.file, one.taken)))
    return None


def _never_done(files: Mapping[str, ast.Module], run: Sequence[Coroutine], here: str) -> ThreadReason | None:
    """`await queue.join()`, where whoever takes leaves an item without task_done(), or ends by an error."""
    joins = [(part, owner, item.lineno) for part in run for item in own_nodes(part.node)
             if isinstance(item, ast.Await) and (owner := _owner(item.value, "join")) is not None
             if made_by(files, owner, _QUEUES) is not None
             if not is_limited(own_nodes(part.node), item.lineno)]  # fmt: skip
    if len(joins) != 1:
        return None
    part, owner, line = joins[0]
    joined = f"{line_in(part.file, line, here)} awaits `{ast.unparse(owner)}.join()`"
    names = names_of_object(part.tree, last_name(owner) or "")
    takers = [item for item in run if item.file == part.file and _takes(item, names)]
    if len(takers) != 1:
        return None
    taker = takers[0]
    done = [item for item in own_nodes(taker.node) if (named := _owner(item, DONE)) is not None
            and last_name(named) in names]  # fmt: skip
    places = ((part.file, line), (taker.file, taker.node.lineno))
    if not done:
        return _unmarked(taker, joined, names, places) if not _marks(files) else None
    name = last_name(_owner(done[-1], DONE) or owner) or ""
    skips = [*skipped_in(taker.file, taker.tree, done[-1], name)]  # type: ignore[arg-type]
    if skips:
        one = skips[0]
        return ThreadReason(
            f"{joined}, and the `{one.how}` of line {one.line} in {one.function} (below `{one.head}`) leaves an item "
            f"without `{one.call}`",
            f"Call `{one.call}` before the `{one.how}` of line {one.line}, too: each item that get() has taken needs "
            "it once, so a `try` around the work with the call in `finally` is safest.",
            places,
        )
    fewer = rounded_taker(files, run, taker, names, here)
    if fewer is not None:
        return ThreadReason(f"{joined}; {fewer.words}", fewer.advice, places, sure=False)
    return _by_an_error(taker, done, joined, places) if _is_task(run, part, taker) else None


def _is_task(run: Sequence[Coroutine], part: Coroutine, taker: Coroutine) -> bool:
    """Whether an error of the taker may stay in a task of its own: one that is awaited itself ends the program."""
    if taker.node is part.node:
        return False
    awaited = [item.value for one in run for item in own_nodes(one.node) if isinstance(item, ast.Await)]
    return not any(isinstance(item, ast.Call) and called_name(item) == taker.node.name for item in awaited)


def _unmarked(taker: Coroutine, joined: str, names: frozenset[str], places: tuple[Place, ...]) -> ThreadReason:
    return ThreadReason(
        f"{joined}, and no line calls {DONE}(), which it waits for once for each item",
        f"Call `{sorted(names)[0]}.{DONE}()` in {taker.name} when an item is done, best in a `finally`.",
        places,
    )


def _by_an_error(
    taker: Coroutine, done: Sequence[ast.AST], joined: str, places: tuple[Place, ...]
) -> ThreadReason | None:
    """A taker without `try`: an error of its work stays in its task, which is not awaited before the join()."""
    nodes = own_nodes(taker.node)
    if any(isinstance(item, ast.Try) for item in nodes):
        return None
    first = min(item.lineno for item in nodes if isinstance(item, ast.Await))
    last = max(getattr(item, "lineno", 0) for item in done)
    if last <= first + 1:
        return None
    return ThreadReason(
        f"{joined}; an error between line {first} and line {last} of {taker.name} would end that task without "
        f"{DONE}(), and stay in it unseen",
        f"Print what the tasks of {taker.name} have: `task.exception()` of those that are done(). Await them together "
        f"with the join() of line {places[0][1]}, as by asyncio.wait(..., return_when=asyncio.FIRST_COMPLETED), so "
        f"that an error is raised; and call {DONE}() in a `finally`.",
        places,
        sure=False,
    )


def _endless_taker(files: Mapping[str, ast.Module], run: Sequence[Coroutine], here: str) -> ThreadReason | None:
    """A loop that takes from a queue, that nothing leaves, and whose coroutine is awaited."""
    for taker in run:
        for loop in (item for item in own_nodes(taker.node) if isinstance(item, ast.While)):
            gets = [item for item in nodes_of(loop) if isinstance(item, ast.Await)
                    and _owner(item.value, "get") is not None]  # fmt: skip
            if len(gets) != 1 or not is_unbounded(loop) or leaves(loop) or _is_tried(taker, loop):
                continue
            if is_limited(own_nodes(taker.node), gets[0].lineno):
                continue
            waits = [found for part in run if (found := _awaits(part, taker.node.name)) is not None]
            if len(waits) != 1 or _cancels(run):
                continue
            part, line = waits[0]
            if _raises_out(run, part, line):
                continue
            queue = shortened(ast.unparse(gets[0].value.func.value), _LONGEST)  # type: ignore[attr-defined]
            awaits, takes = line_in(part.file, line, here), line_in(taker.file, gets[0].lineno, here)
            head = f"`{head_of(loop)}` ({line_in(taker.file, loop.lineno, here)})"
            return ThreadReason(
                f"{awaits} awaits {taker.name}, which takes from `{queue}` for ever ({takes}): nothing leaves its "
                f"loop {head}, so that this does not end when the last item has come",
                f"Let the loop end at a mark: put `None` into `{queue}` behind the last item, once for each taker, and "
                f"`break` on it behind {takes}. Or do not await the takers at {awaits}: await the queue's join() there "
                "and cancel() them.",
                ((part.file, line), (taker.file, gets[0].lineno)),
            )
    return None


def _raises_out(run: Sequence[Coroutine], part: Coroutine, line: int) -> bool:
    """Whether a coroutine raises what the `try` around a line takes: so gather() ends, whatever else it waits for."""
    tries = [item for item in own_nodes(part.node) if isinstance(item, ast.Try) and spans_body(item.body, line)]
    caught = {name for item in tries for one in item.handlers for name in caught_names(one)}
    raised = (item.exc for one in run for item in own_nodes(one.node) if isinstance(item, ast.Raise))
    return any(last_name(item.func if isinstance(item, ast.Call) else item) in caught for item in raised if item)


def _awaits(part: Coroutine, name: str) -> tuple[Coroutine, int] | None:
    """The line of a function at which it waits for the end of another one: itself, or by gather()."""
    nodes = own_nodes(part.node)
    for item in nodes:
        if not isinstance(item, ast.Await) or is_limited(nodes, item.lineno):
            continue
        gathers = (
            isinstance(item.value, ast.Call)
            and called_name(item.value) in _GATHERS
            and keyword_value(item.value, "return_when") is None
        )
        called = [call for call in nodes_of(item) if isinstance(call, ast.Call) and called_name(call) == name]
        if called and (gathers or item.value in called):
            return part, item.lineno
        if gathers and _gathers_tasks(nodes, item, name):
            return part, item.lineno
    return None


def _gathers_tasks(nodes: Sequence[ast.AST], waits: ast.Await, name: str) -> bool:
    """`workers = [create_task(f()) for ...]`, and `gather(*workers)`."""
    given = {last_name(item) for item in nodes_of(waits) if isinstance(item, (ast.Name, ast.Attribute))}
    return any(
        isinstance(item, ast.Assign)
        and any(last_name(target) in given for target in item.targets)
        and any(isinstance(call, ast.Call) and called_name(call) == name for call in nodes_of(item.value))
        for item in nodes
    )


def _is_tried(taker: Coroutine, loop: ast.While) -> bool:
    """Whether a `try` around the loop, or in it, may be how it ends."""
    tries = [item for item in own_nodes(taker.node) if isinstance(item, ast.Try)]
    return any(spans_body(item.body, loop.lineno) or item in nodes_of(loop) for item in tries)


def _cancels(run: Sequence[Coroutine]) -> bool:
    return any(_owner(item, "cancel") is not None for part in run for item in own_nodes(part.node))


def _takes(part: Coroutine, names: frozenset[str]) -> bool:
    return any(last_name(owner) in names for item in own_nodes(part.node)
               for method in ("get", "get_nowait") if (owner := _owner(item, method)) is not None)  # fmt: skip


def _marks(files: Mapping[str, ast.Module]) -> bool:
    return any(_owner(item, DONE) is not None for tree in files.values() for item in nodes_of(tree))


def _owner(node: ast.AST, method: str) -> ast.expr | None:
    """`queue` of `queue.join()`."""
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr=found)) if found == method:
            return owner
    return None
