"""Threads that all stand, and the waiting one with them: at a Barrier, in put() of their own queue, for a Semaphore.

A Barrier opens for as many as it was made for. A queue with a limit has no taker left where all who take from it wait
in put() for room in it. A Semaphore that a branch does not give back has one place less for each pass through it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, calls_on
from pytracer.analyze.evidence.syntax.loops import last_of, loops_around
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.passing import names_of_object
from pytracer.analyze.evidence.syntax.scopes import own_nodes, qualified_name, scope_of
from pytracer.analyze.evidence.waits.standing_threads import StandingThread, ThreadReason, others_of, threads_words
from pytracer.analyze.evidence.waits.unreleased import Unreleased, unreleased
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waited_object import WaitedObject, object_at
from pytracer.analyze.evidence.waits.waits import called_by_program, program_stack
from pytracer.analyze.naming import place_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_BARRIER, _PUT, _SEMAPHORES = "Barrier.wait", "Queue.put", ("Semaphore.acquire", "BoundedSemaphore.acquire")
_POOL = Pattern(r"/concurrent/futures/thread\.py$|/multiprocess(?:ing)?/pool\.py$")
_TAKES = ("get", "get_nowait")
_LONGEST = 60


def together(view: ProcessView, wait: ProcessWait, threads: Sequence[StandingThread]) -> ThreadReason | None:
    """`threads`: all others, each of which stands."""
    return _at_barrier(view, wait, threads) or _in_own_queue(view, wait, threads)


def never_given_back(view: ProcessView, wait: ProcessWait, threads: Sequence[StandingThread]) -> ThreadReason | None:
    """A lock or Semaphore that the waiting thread, or others, ask for, and that a branch of the program keeps.

    `threads`: all others, where each of them stands; else only what the waiting thread asks for itself counts.
    """
    for at, called, who in _askers(view, wait, threads):
        tree = syntax_tree(view.process.snapshot, at)
        asked = _asked_name(view, at, called)
        if tree is None or asked is None or at.file is None:
            continue
        left = unreleased(program_files(view.process.snapshot, [at]), at.file, names_of_object(tree, asked))
        if left:
            one = left[0]
            return ThreadReason(f"{who}{one.words}", one.advice, _places(one), sure=_nobody_works(view, threads))
    return None


def _places(one: Unreleased) -> tuple[tuple[str, int], ...]:
    return ((one.file, one.line), (one.file, one.taken))


def _nobody_works(view: ProcessView, threads: Sequence[StandingThread]) -> bool:
    """Whether no other thread is left that may give it back."""
    return bool(threads) or not others_of(view)


def _askers(
    view: ProcessView, wait: ProcessWait, threads: Sequence[StandingThread]
) -> Iterator[tuple[PythonFrame, str | None, str]]:
    called = called_by_program(view)
    if wait.at is not None and (wait.kind == "lock" or called in _SEMAPHORES):
        yield wait.at, None if wait.kind == "lock" else called, ""
    for item in threads:
        if item.called is None or item.called in _SEMAPHORES:
            alike = [other for other in threads if other.at == item.at]
            yield item.at, item.called, f"{threads_words(alike)} waited for it at {place_words(item.at)}: "


def _asked_name(view: ProcessView, at: PythonFrame, called: str | None) -> str | None:
    thing = object_at(view, at, called)
    return thing.last if thing is not None else None


def _at_barrier(view: ProcessView, wait: ProcessWait, threads: Sequence[StandingThread]) -> ThreadReason | None:
    """All threads wait at one Barrier, and the one that joins them does not come to it."""
    if wait.kind not in ("thread", "thread-at-exit", "notice", "executor") or not threads:
        return None
    things = {thing.last: thing for item in threads if (thing := _barrier(view, item)) is not None}
    if len(things) != 1 or any(_barrier(view, item) is None for item in threads):
        return None
    thing, at = next(iter(things.values())), threads[0].at
    call = _constructor(view, at, thing)
    parties = argument_at(call, 0, "parties") if call is not None else None
    if call is None or parties is None:
        return None
    made = f"line {call.lineno} makes it for `{shortened(ast.unparse(parties), _LONGEST)}`"
    left = _leaves_before(view, at)
    who = f"{threads_words(threads)} waited at the Barrier `{thing.name}` at {place_words(at)}"
    gone = f"; {left}" if left is not None else ""
    return ThreadReason(
        f"{who}: {made}, and no other thread is left to come to it{gone}",
        f"Let line {call.lineno} count exactly those that call wait() in each round. {_how(left, threads)}",
        ((at.file or "", call.lineno), (at.file or "", at.line or 0)),
    )


def _how(left: str | None, threads: Sequence[StandingThread]) -> str:
    if any(_POOL.search(frame.file or "") for item in threads for frame in item.frames):
        return (
            "A pool runs as many tasks at once as it has threads: give it one for each that the Barrier waits for, at "
            "least (`max_workers`)."
        )
    if left is None:
        return "Leave out of its number whoever does not call it, such as the thread that only joins the others."
    return "Let a thread that leaves early call abort() of it, or go on with wait() until the others are done."


def _barrier(view: ProcessView, item: StandingThread) -> WaitedObject | None:
    return object_at(view, item.at, _BARRIER) if item.called == _BARRIER else None


def _constructor(view: ProcessView, at: PythonFrame, thing: WaitedObject) -> ast.Call | None:
    tree = syntax_tree(view.process.snapshot, at)
    if tree is None or thing.made is None:
        return None
    calls = [item for item in calls_on(tree, thing.made[0]) if called_name(item) == "Barrier"]
    return calls[0] if len(calls) == 1 else None


def _leaves_before(view: ProcessView, at: PythonFrame) -> str | None:
    """The branch of the loop around a wait() that leaves it: a thread that went there comes no more."""
    tree = syntax_tree(view.process.snapshot, at)
    loops = loops_around(tree, at.line) if tree is not None and at.line is not None else []
    if tree is None or not loops:
        return None
    for item in own_nodes(loops[-1]):
        if isinstance(item, ast.If) and isinstance(leaving := last_of(item.body), (ast.Return, ast.Break)):
            how = type(leaving).__name__.lower()
            head = shortened(f"if {ast.unparse(item.test)}", _LONGEST)
            where = qualified_name(tree, scope_of(tree, item.lineno))
            return f"the `{how}` of line {leaving.lineno} in {where} (below `{head}`) leaves the rounds early"
    return None


def _in_own_queue(view: ProcessView, wait: ProcessWait, threads: Sequence[StandingThread]) -> ThreadReason | None:
    """All who take from a full queue wait in put() for room in it."""
    places = [item.at for item in threads if item.called == _PUT]
    stacks = [[frame.line for frame in item.frames if frame.file == item.at.file] for item in threads]
    at = wait.at if wait.kind == "full-queue" else places[0] if places else None
    tree = syntax_tree(view.process.snapshot, at) if at is not None else None
    if at is None or tree is None or not places or len(places) != len(threads):
        return None
    names = [_put_name(view, item) for item in (at, *places)]
    if None in names or len({*names}) != 1 or any(item.file != at.file for item in places):
        return None
    takes = [*_takes(tree, names_of_object(tree, names[0] or ""))]
    scopes = {scope_of(tree, line) for stack in stacks for line in stack if line is not None}
    scopes |= {scope_of(tree, frame.line or 0) for frame in program_stack(view) if frame.file == at.file}
    if not takes or any(scope_of(tree, item.lineno) not in scopes for item in takes):
        return None
    line, put = takes[0].lineno, places[0]
    text = shortened(ast.unparse(takes[0].value), _LONGEST)
    return ThreadReason(
        f"{threads_words(threads)}, which alone take from `{text}` (line {line}), put into it themselves and waited "
        f"for room there, too, at {place_words(put)}: the queue is full, and nobody is left to make room",
        f"Do not let who takes from `{text}` wait in put() for it: at line {put.line}, put what is to be tried again "
        "into a queue or list of its own without a limit, or try it again there; or make the queue without a limit "
        "(`maxsize=0`).",
        ((at.file or "", put.line or 0), (at.file or "", line)),
    )


def _put_name(view: ProcessView, at: PythonFrame) -> str | None:
    tree = syntax_tree(view.process.snapshot, at)
    found = [
        item.func.value
        for item in (calls_on(tree, at.line) if tree is not None and at.line is not None else ())
        if isinstance(item.func, ast.Attribute) and item.func.attr == "put"
    ]
    return last_name(found[0]) if len(found) == 1 else None


def _takes(tree: ast.Module, names: frozenset[str]) -> Iterator[ast.Attribute]:
    """`jobs.get()`, and `jobs.get` of `iter(jobs.get, None)`."""
    for item in nodes_of(tree):
        if isinstance(item, ast.Attribute) and item.attr in _TAKES and last_name(item.value) in names:
            yield item
