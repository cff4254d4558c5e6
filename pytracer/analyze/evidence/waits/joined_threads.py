"""Why the threads that a process waits for do not end: each waits itself, for what the waiting thread alone would do.

A thread that takes from a queue until a mark (`None`) ends by one mark; one mark ends one of several. One that fills a
queue with a limit waits for room, which nobody makes while its taker joins it. One that takes a lock waits for as long
as the joining thread is inside of the `with` of that lock.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.comprehension_loops import rounds_around
from pytracer.analyze.evidence.syntax.loops import Loop, counting_loop, loops_around
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.passing import names_of_object
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, qualified_name, scope_of
from pytracer.analyze.evidence.syntax.unbounded import head_of, is_unbounded, leaves, loops_at
from pytracer.analyze.evidence.waits.blocked_loops import blocked_loop
from pytracer.analyze.evidence.waits.copied_objects import copied_object
from pytracer.analyze.evidence.waits.held_locks import inside_of, is_one_lock
from pytracer.analyze.evidence.waits.queue_marks import may_be_mark, puts_into, taking
from pytracer.analyze.evidence.waits.standing_threads import (
    StandingThread,
    ThreadReason,
    others_of,
    standing_threads,
    threads_words,
)
from pytracer.analyze.evidence.waits.standing_together import never_given_back, together
from pytracer.analyze.evidence.waits.thread_ends import thread_end
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait, WaitKind
from pytracer.analyze.evidence.waits.waited_object import object_at
from pytracer.analyze.evidence.waits.waits import is_between_processes, main_stack, program_stack
from pytracer.analyze.naming import line_in, place_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import PythonFrame

_JOINS: tuple[WaitKind, ...] = ("thread", "thread-at-exit")
_FOR_OTHERS: tuple[WaitKind, ...] = (
    *_JOINS, "notice", "queue", "full-queue", "executor", "undone", "barrier", "lock"
)  # fmt: skip
_LONGEST, _LISTED = 50, 2
_TAKES = ("get", "get_nowait")
_MAKES = ("Thread", "Process", "submit")


class _Asked(msgspec.Struct, frozen=True):
    """A line at which threads or processes stand that take from a queue, or fill one; `names`: of it in its file.

    `who`, `count`: that stand there. `noun`: what they are.
    """

    at: PythonFrame
    line: int
    tree: ast.Module
    queue: str
    names: frozenset[str]
    who: str = ""
    count: int = 0
    noun: str = "thread"

    @property
    def each(self) -> str:
        """How often a mark is needed."""
        return f"once for each {self.noun}" if self.count > 1 else "once"

    def line_words(self, line: int) -> str:
        """Of its file."""
        return f"line {line} in {qualified_name(self.tree, scope_of(self.tree, line))}"


def thread_reason(job: JobView, view: ProcessView, wait: ProcessWait) -> ThreadReason | None:
    """None where a thread may be at work, or may be waited for by somebody else."""
    if wait.kind not in _FOR_OTHERS or is_between_processes(view):
        return None
    blocked = blocked_loop(view, wait) or _before_takers(view, wait) or copied_object(view, wait)
    if blocked is not None:
        return blocked
    threads = standing_threads(view)
    kept = never_given_back(view, wait, threads)
    if kept is not None:
        return kept
    if not threads:
        return thread_end(job, view, wait)
    held = _held(view, threads) or together(view, wait, threads)
    if held is not None or wait.kind not in _JOINS:
        return held
    if len({(item.at.file, item.at.line) for item in threads}) > 1:
        return None
    method = (threads[0].called or "").rpartition(".")[2]
    asked = _asked(view, threads, method) if method in ("get", "put") else None
    found = None
    if asked is not None:
        found = _unmarked(view, asked) if method == "get" else _without_room(view, asked)
    return found or (_others(view, wait, threads) if wait.kind == "thread" else thread_end(job, view, wait))


def process_reason(
    view: ProcessView, parent: ProcessView, alike: int, wait: ProcessWait, joins: ProcessWait
) -> ThreadReason | None:
    """Of children that all wait for a queue of their parent, which waits for their end. `alike`: how many."""
    at = wait.at
    tree = syntax_tree(view.process.snapshot, at) if at is not None else None
    if wait.kind != "queue" or joins.kind != "child" or tree is None or at is None or at.line is None:
        return None
    taken = taking(tree, at.line)
    name = last_name(taken.queue) if taken is not None else None
    if taken is None or name is None:
        return None
    text, who = shortened(ast.unparse(taken.queue), _LONGEST), f"{alike} children of its parent" if alike > 1 else "it"
    asked = _Asked(at, at.line, tree, text, names_of_object(tree, name), who, alike, "process")
    return _unmarked(parent, asked)


def _held(view: ProcessView, threads: Sequence[StandingThread]) -> ThreadReason | None:
    """The thread that waits is inside of a lock which the others wait for."""
    for thread in threads:
        wanted = {text.rpartition(".")[2]: text for text in thread.locks}
        inside = inside_of(view, main_stack(view), wanted) if wanted else None
        if inside is None or not is_one_lock(view, thread.at, view, inside):
            continue
        if inside.lock.startswith("self.") and _has_several(view, inside.frame):
            continue
        alike = [item for item in threads if item.at == thread.at]
        own = program_stack(view)[0]
        taken = line_in(inside.frame.file, inside.line, own.file)
        return ThreadReason(
            f"it held `{inside.lock}` ({taken}) meanwhile, for which {threads_words(alike)} waited at "
            f"{place_words(thread.at)}: neither side can go on",
            f"Leave `{inside.lock}` ({taken}) before line {own.line} waits: what it waits for takes that lock at "
            f"{place_words(thread.at)}. Hold it only around what it protects.",
            tuple((item.file, item.line) for item in (inside.frame, thread.at) if item.line is not None),
        )
    return None


def _has_several(view: ProcessView, at: PythonFrame) -> bool:
    """Whether the program may make several objects of the class with that line: each has its own locks and queues."""
    tree = syntax_tree(view.process.snapshot, at)
    owner = class_around(tree, scope_of(tree, at.line or 0)) if tree is not None else None
    if owner is None:
        return False
    made = [
        (other, item)
        for other in program_files(view.process.snapshot, program_stack(view)).values()
        for item in nodes_of(other)
        if isinstance(item, ast.Call) and called_name(item) == owner.name
    ]
    return len(made) > 1 or any(rounds_around(other, item.lineno, owner.name) for other, item in made)


def _asked(view: ProcessView, threads: Sequence[StandingThread], method: str) -> _Asked | None:
    at = threads[0].at
    tree = syntax_tree(view.process.snapshot, at)
    if tree is None or at.line is None:
        return None
    taken = taking(tree, at.line) if method == "get" else None
    queue = taken.queue if taken is not None else _put_into(tree, at.line) if method == "put" else None
    name = last_name(queue) if queue is not None else None
    if queue is None or name is None:
        return None
    if ast.unparse(queue).startswith("self.") and _has_several(view, at):
        return None
    text = shortened(ast.unparse(queue), _LONGEST)
    return _Asked(at, at.line, tree, text, names_of_object(tree, name), threads_words(threads), len(threads))


def _put_into(tree: ast.Module, line: int) -> ast.expr | None:
    called = [item.func for item in calls_on(tree, line)]
    found = [item.value for item in called if isinstance(item, ast.Attribute) and item.attr == "put"]
    return found[0] if len(found) == 1 else None


def _unmarked(view: ProcessView, asked: _Asked) -> ThreadReason | None:
    """Takers that stop at a mark which does not come, or not for each."""
    taken, puts = taking(asked.tree, asked.line), puts_into(asked.tree, asked.names)
    if taken is None or not puts:
        return None
    waits = f"{asked.who} waited for the queue `{asked.queue}` at {place_words(asked.at)}"
    if taken.mark is None:
        return _endless(asked, waits)
    marks = [item for item in puts if item.args and _last(item.args[0]) == taken.mark.rpartition(".")[2]]
    if not marks and any(may_be_mark(asked.tree, item, taken.mark) for item in puts):
        return None
    if not marks:
        return ThreadReason(
            f"{waits}, and no line of this file puts the mark `{taken.mark}` at which it stops",
            f"Put `{taken.mark}` into `{asked.queue}` {asked.each}, behind the last item and before the join().",
            tuple((asked.at.file, item.lineno) for item in puts[:_LISTED]),
        )
    mark = marks[0] if len(marks) == 1 else None
    if mark is None or scope_of(asked.tree, mark.lineno) is scope_of(asked.tree, asked.line):
        return None
    return _of_mark(view, asked, mark, waits, taken.mark)


def _of_mark(view: ProcessView, asked: _Asked, mark: ast.Call, waits: str, text: str) -> ThreadReason | None:
    """The only line that puts the mark: once for several threads, or behind the wait for them."""
    own = next((item for item in program_stack(view) if _is_in(asked, item, mark.lineno)), None)
    if own is None or own.line is None:
        return None
    rounds = rounds_around(asked.tree, mark.lineno, "put")
    if rounds:
        return _too_few(asked, mark, own.line, rounds, text) if mark.lineno < own.line else None
    put = f"`{shortened(ast.unparse(mark), _LONGEST)}`"
    places = ((asked.at.file, mark.lineno), (asked.at.file, asked.line))
    if mark.lineno > own.line:
        return ThreadReason(
            f"{waits}; the mark at which it stops is put by line {mark.lineno} ({put}) only, behind the join()",
            f"Move line {mark.lineno} ({put}) above line {own.line}"
            + (f", and put the mark {asked.each}." if asked.count > 1 else "."),
            places,
        )
    if asked.count == 1 and _may_lose_mark(asked):
        return None
    more = f"{asked.count} more" if asked.count > 1 else f"one more {asked.noun}"
    return ThreadReason(
        f"line {mark.lineno} ({put}) puts the mark at which they stop once, which ends one of them: {more} waited for "
        f"one at {place_words(asked.at)}",
        f"Put one `{text}` for each {asked.noun}, in a loop over them, at line {mark.lineno}. Or let each {asked.noun} "
        "put the mark back before it ends.",
        places,
    )


def _too_few(asked: _Asked, mark: ast.Call, line: int, rounds: Sequence[Loop], text: str) -> ThreadReason | None:
    """Marks that a loop puts, which is not the one over what is joined: takers are left."""
    joins = loops_around(asked.tree, line, (ast.For,))
    loop = rounds[0] if len(rounds) == 1 else None
    if not isinstance(loop, ast.For) or not joins or not isinstance(joins[-1], ast.For):
        return None
    joined, puts = ast.unparse(joins[-1].iter), ast.unparse(loop.iter)
    if not _is_less(asked.tree, puts, joined):
        return None
    left = f"{asked.count} {asked.noun}{'s' if asked.count > 1 else ''}"
    return ThreadReason(
        f"line {mark.lineno} (`{shortened(ast.unparse(mark), _LONGEST)}`) puts fewer marks than there are takers, one "
        f"for each item of `{shortened(puts, _LONGEST)}` (line {loop.lineno}): {left} still waited for one at "
        f"{place_words(asked.at)}",
        f"Put one `{text}` for each {asked.noun}: `for _ in {joined}` in line {loop.lineno}.",
        ((asked.at.file, loop.lineno), (asked.at.file, mark.lineno)),
    )


def _is_less(tree: ast.Module, puts: str, joined: str) -> bool:
    """Of `range(len(threads) - 1)` and `threads`; of `range(n - 1)`, where a loop over `range(n)` makes them."""
    if puts in (joined, f"range(len({joined}))"):
        return False
    made = {
        ast.unparse(loop.iter)
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) in _MAKES
        for loop in rounds_around(tree, item.lineno, called_name(item))
        if isinstance(loop, ast.For)
    }
    return joined in puts or any(puts.startswith(f"{item.removesuffix(')')} - ") for item in made)


def _may_lose_mark(asked: _Asked) -> bool:
    """Whether the one taker may have had the mark: taken elsewhere as well, or in a loop inside of its loop."""
    return len(set(_takes(asked))) > 1 or len(loops_around(asked.tree, asked.line)) > 1


def _is_in(asked: _Asked, frame: PythonFrame, line: int) -> bool:
    """Whether a frame is in the function of that line."""
    if frame.file != asked.at.file or frame.line is None:
        return False
    return scope_of(asked.tree, frame.line) is scope_of(asked.tree, line)


def _endless(asked: _Asked, waits: str) -> ThreadReason | None:
    """Takers in a loop that nothing leaves."""
    loop = next(iter(loops_at(scope_of(asked.tree, asked.line), asked.line)), None)
    if loop is None or not is_unbounded(loop) or leaves(loop):
        return None
    head = f"the loop of line {loop.lineno} (`{head_of(loop)}`)"
    return ThreadReason(
        f"{waits}, and nothing leaves {head}",
        f"Let {head} end at a mark: `if item is None: break`, and put None into `{asked.queue}` {asked.each}, behind "
        "the last item. Or start the thread with daemon=True, where what is left in the queue may be lost.",
        ((asked.at.file, loop.lineno), (asked.at.file, asked.line)),
    )


def _without_room(view: ProcessView, asked: _Asked) -> ThreadReason:
    """A thread in the put() of a full queue: all others stand as well, so nobody takes from it."""
    takes = sorted(_takes(asked))
    lines = list_words([f"line {item}" for item in takes[:_LISTED]])
    by = f"; {lines} take{'s' if len(takes) == 1 else ''} from it, in the thread that waits now" if takes else ""
    own = next((item.line for item in program_stack(view)), None)
    before = f"Before line {own} waits" if own is not None else "Before the program ends"
    loop = counting_loop(asked.tree, asked.line)
    within = f" in the loop of line {loop}" if loop is not None else ""
    return ThreadReason(
        f"{asked.who} waited for room in the full queue `{asked.queue}` at {place_words(asked.at)}, and nobody was "
        f"left to take from it{by}",
        f"{before}, tell the thread to stop: an Event that it looks at{within}, with put(timeout=...); or take from "
        f"`{asked.queue}` until its last item has come. A `break` out of the loop that takes leaves it full.",
        ((asked.at.file, asked.line), *((asked.at.file, item) for item in takes[:_LISTED])),
    )


def _before_takers(view: ProcessView, wait: ProcessWait) -> ThreadReason | None:
    """A full queue of whose takers none runs yet: the thread is started, or the line reached, only further below."""
    at = wait.at
    tree = syntax_tree(view.process.snapshot, at) if wait.kind == "full-queue" and not others_of(view) else None
    queue = _put_into(tree, at.line) if tree is not None and at is not None and at.line is not None else None
    name = last_name(queue) if queue is not None else None
    if tree is None or queue is None or name is None or at is None or at.line is None:
        return None
    text = shortened(ast.unparse(queue), _LONGEST)
    asked = _Asked(at, at.line, tree, text, names_of_object(tree, name))
    takes, scope = sorted(_takes(asked)), scope_of(tree, at.line)
    own = [item for item in takes if scope_of(tree, item) is scope]
    if own and own == takes and own[0] > at.line and not loops_around(tree, own[0]):
        return _later(asked, f"line {own[0]} takes from it", f"line {own[0]}", own[0])
    starts = sorted(
        item.lineno for item in own_nodes(scope) if isinstance(item, ast.Call) and called_name(item) == "start"
    )
    if own or not takes or not starts or starts[0] < at.line:
        return None
    who = f"the thread that takes from it ({asked.line_words(takes[0])}) is started by line {starts[0]}"
    return _later(asked, who, f"the start() of line {starts[0]}", starts[0])


def _later(asked: _Asked, who: str, what: str, line: int) -> ThreadReason:
    return ThreadReason(
        f"nobody takes from it meanwhile: {who}, behind the lines that fill it",
        f"Move {what} above the loop that fills `{asked.queue}`, or make the queue without a limit (`maxsize=0`).",
        ((asked.at.file, asked.line), (asked.at.file, line)),
    )


def _takes(asked: _Asked) -> Iterator[int]:
    """Lines with `q.get`, called or passed: `iter(q.get, None)`."""
    for item in nodes_of(asked.tree):
        if isinstance(item, ast.Attribute) and item.attr in _TAKES and last_name(item.value) in asked.names:
            yield item.lineno


def _others(view: ProcessView, wait: ProcessWait, threads: Sequence[StandingThread]) -> ThreadReason | None:
    """What else they wait for, by the object of their line."""
    thing = object_at(view, threads[0].at, threads[0].called) if threads[0].called is not None else None
    if thing is None or thing.advice is None:
        return None
    return ThreadReason(
        f"{threads_words(threads)} waited {'at' if thing.noun == 'Barrier' else 'for'} {thing.words} at "
        f"{place_words(threads[0].at)}" + (f"; {thing.only_words}" if thing.only_words is not None else ""),
        f"{thing.advice}{thing.limit}",
        tuple((threads[0].at.file, item.line) for item in thing.providers[:_LISTED]),
        sure=False,
    )


def _last(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]
