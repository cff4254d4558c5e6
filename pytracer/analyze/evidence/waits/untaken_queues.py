"""A full queue that a child stands at, while its parent, which alone takes from it, waits for the child's end.

CPython, multiprocessing/queues.py: put() of a queue with a limit waits until somebody has called get(). So does that of
a SimpleQueue whose pipe is full.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import shortened
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.slicing.files import MOST_FILES, program_files
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.loops import last_of, loops_around
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.evidence.waits.joined_children import Join, join_at, joined_child, may_join
from pytracer.analyze.evidence.waits.pipes import is_bootstrap
from pytracer.analyze.evidence.waits.queue_takers import SharedQueue, Taker, shared_queue
from pytracer.analyze.evidence.waits.unread_queues import unread_queue
from pytracer.analyze.evidence.waits.wait_chain import at_words
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import (
    called_by_program,
    end_of,
    is_between_processes,
    main_stack,
    waiting_frame,
)
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import line_in, name_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import PythonFrame

_ENDS = ("terminate", "kill")
_LONGEST = 40


class UntakenQueue(msgspec.Struct, frozen=True):
    """`child` stands in put() of `name`, `parent` in its `join`. `exact`: it is known to join this very child."""

    parent: ProcessView
    its: ProcessWait
    child: ProcessView
    wait: ProcessWait
    name: str
    queue: SharedQueue
    join: Join
    exact: bool
    simple: bool
    """Whether its put() has no timeout."""
    test: tuple[str, PythonFrame] | None
    """What the loop around put() asks in each round: `while not stop.is_set()`."""
    ends: tuple[str, int] | None
    """A call below the join that would end the child: `p.terminate()`."""
    late: Taker | None
    """The first line that takes, where all come after the join in its function."""

    @property
    def words(self) -> str:
        """After the parent."""
        size = f" (maxsize {self.queue.size})" if self.queue.size is not None else ""
        whom = name_words([self.child])
        whom = f"{whom}, which" if self.exact else f"its children, of which {whom}"
        put = f"waited for room in the full queue `{self.name}`{size} at {self._line(self.wait.at, with_function=True)}"
        again = f"; so it never gets back to `{self.test[0]}` ({self._line(self.test[1])})" if self.test else ""
        takes = self.queue.words(self._here)
        return f"waited in `{self.join.text}`{at_words(self.its)} for {whom} cannot end: it {put}{takes}{again}"

    @property
    def advice(self) -> str:
        """To take on until the children have ended, or to let them end without that."""
        put = self._line(self.wait.at)
        asks = f"ask `{self.test[0]}` again" if self.test else "see whether it should end (an Event)"
        tries = f" Or let {put} call put(timeout=1) in a `try`, and {asks} at queue.Full." if not self.simple else ""
        if self.ends is not None:
            ends = f" Or call `{self.ends[0]}` before it, which now comes after it (line {self.ends[1]})."
        else:
            ends = " Or call terminate() of each before it, if what they do may be cut off."
        again = "get() where it is not empty()" if self.simple else "get(timeout=1), and go on at queue.Empty"
        until = f"until the children have ended (while one of them is_alive(): {again})"
        if self.late is not None:
            late = f"Line {self.late.line} (`{self.late.text}`) comes after `{self.join.text}` (line {self.join.line})"
            return f"{late}: take from `{self.queue.name}` before that, {until}.{tries}{ends}"
        before = f"Before `{self.join.text}` (line {self.join.line})"
        return f"{before}, take from `{self.queue.name}` {until}.{tries}{ends}"

    @property
    def places(self) -> tuple[Place, ...]:
        """The lines to show."""
        frames = [self.its.at, self.wait.at, self.test[1] if self.test else None]
        own = [(item.file, item.line) for item in frames if item is not None and item.line is not None]
        return (*own, *((item.file, item.line) for item in self.queue.takers))

    @property
    def _here(self) -> str | None:
        return self.its.at.file if self.its.at is not None else None

    def _line(self, at: PythonFrame | None, *, with_function: bool = False) -> str:
        if at is None:
            return "?"
        return f"{line_in(at.file, at.line, self._here)}{f' in {at.function}' if with_function and at.function else ''}"


def untaken_queue(job: JobView, chain: Sequence[tuple[ProcessView, ProcessWait]]) -> UntakenQueue | None:
    """None where somebody else may take from the queue, or put() or join() may have a timeout.

    Args:
        job: All processes.
        chain: Who waits for whom; the last one is the child.
    """
    if len(chain) < 2:
        return None
    (parent, its), (child, wait) = chain[-2:]
    if its.kind != "child" or wait.kind != "full-queue" or not is_between_processes(child):
        return None
    files = _files(parent, child) if _is_main_program(parent) else None
    join, put = _join(files, its.at), _put(files, wait.at)
    if files is None or join is None or put is None or its.at is None or its.at.line is None:
        return None
    children = children_of(job, parent)
    joined = joined_child(parent, children)
    if joined is not None and joined.index != child.index:
        return None
    if joined is None and not may_join(files[its.at.file or ""], its.at.line, parent, child):
        return None
    queue = shared_queue(files, last_name(put) or "")
    if queue is None or _takes_now(job, parent, queue.takers):
        return None
    simple = (called_by_program(child) or "").startswith("SimpleQueue")
    name = shortened(ast.unparse(put), _LONGEST)
    own = files[its.at.file or ""]
    test, ends, late = _test(files, child), _end_below(own, join), _late(own, its.at.file, join, queue.takers)
    return UntakenQueue(parent, its, child, wait, name, queue, join, joined is not None, simple, test, ends, late)


def unread_by_parent(job: JobView, chain: Sequence[tuple[ProcessView, ProcessWait]]) -> SharedQueue | None:
    """The queue whose thread a child at its end waits for, where the parent that joins it alone takes from that.

    None as in untaken_queue, and where it is not known which queue that is.
    """
    if len(chain) < 2:
        return None
    (parent, its), (child, wait) = chain[-2:]
    queue = unread_queue(parent, its) if wait.kind == "unread-queue" and its.kind == "child" else None
    files = _files(parent, child) if queue is not None and _is_main_program(parent) else None
    shared = shared_queue(files, queue.name) if files is not None and queue is not None else None
    return shared if shared is not None and not _takes_now(job, parent, shared.takers) else None


def _is_main_program(view: ProcessView) -> bool:
    """Whether nothing of multiprocessing started it: else its own parent may take from the queue."""
    return not any(is_bootstrap(frame) for frame in main_stack(view))


def _files(parent: ProcessView, child: ProcessView) -> dict[str, ast.Module] | None:
    """Of both; None where there may be more."""
    found: dict[str, ast.Module] = {}
    for view in (parent, child):
        own = program_files(view.process.snapshot, [*_own_frames(view)])
        if len(own) >= MOST_FILES:
            return None
        found |= {file: tree for file, tree in own.items() if file not in found}
    return found


def _own_frames(view: ProcessView) -> Iterator[PythonFrame]:
    """The program's lines that a process runs, innermost first: not those copied by a fork."""
    own = takewhile(lambda frame: not is_bootstrap(frame), main_stack(view))
    return (frame for frame in own if not is_library_file(frame.file))


def _join(files: Mapping[str, ast.Module] | None, at: PythonFrame | None) -> Join | None:
    tree = files.get(at.file or "") if files is not None and at is not None else None
    return join_at(tree, at.line) if tree is not None and at is not None and at.line is not None else None


def _put(files: Mapping[str, ast.Module] | None, at: PythonFrame | None) -> ast.expr | None:
    """`games` of the one `games.put(x)` of a line that has no timeout."""
    tree = files.get(at.file or "") if files is not None and at is not None else None
    if tree is None or at is None or at.line is None:
        return None
    puts = [item for item in calls_on(tree, at.line) if called_name(item) == "put"]
    if len(puts) != 1 or len(puts[0].args) > 1 or any(word.arg != "obj" for word in puts[0].keywords):
        return None
    return puts[0].func.value if isinstance(puts[0].func, ast.Attribute) else None


def _takes_now(job: JobView, parent: ProcessView, takers: Sequence[Taker]) -> bool:
    """Whether another thread of the parent, or a process below it, was in a function that takes from the queue."""
    end, at = end_of(parent), waiting_frame(parent)
    threads = [[python_frame(frame) for frame in frames] for _, frames in (end.python_threads if end else ())]
    stacks = [stack for stack in threads if at not in stack]
    stacks += [[*_own_frames(view)] for view in _below(job, parent)]
    return any(_is_in(frame, taker) for stack in stacks for frame in stack for taker in takers)


def _is_in(frame: PythonFrame, taker: Taker) -> bool:
    if taker.span is None or frame.line is None or frame.file != taker.file:
        return False
    return taker.span[0] <= frame.line <= taker.span[1]


def _below(job: JobView, view: ProcessView) -> list[ProcessView]:
    """Its children, and theirs."""
    found, seen = children_of(job, view), {view.index}
    for item in found:
        seen.add(item.index)
        found += [one for one in children_of(job, item) if one.index not in seen]
    return found


def _test(files: Mapping[str, ast.Module], child: ProcessView) -> tuple[str, PythonFrame] | None:
    """Of the innermost loop around put() that has one."""
    for frame in _own_frames(child):
        tree = files.get(frame.file or "")
        for loop in reversed(loops_around(tree, frame.line)) if tree is not None and frame.line is not None else ():
            asks = _asks(loop) if isinstance(loop, ast.While) else None
            if asks is not None:
                text = shortened(f"{'while' if asks is loop else 'if'} {ast.unparse(asks.test)}", _LONGEST)
                return text, PythonFrame(file=frame.file, line=asks.lineno, function=frame.function)
    return None


def _asks(loop: ast.While) -> ast.While | ast.If | None:
    """Itself, or of `while True` the one `if` that leaves it when an Event is set."""
    if not isinstance(loop.test, ast.Constant):
        return loop
    found = [
        item
        for item in own_nodes(loop)
        if isinstance(item, ast.If) and isinstance(last_of(item.body), (ast.Break, ast.Return))
        if any(isinstance(node, ast.Call) and called_name(node) == "is_set" for node in nodes_of(item.test))
    ]
    return found[0] if len(found) == 1 else None


def _late(tree: ast.Module, file: str | None, join: Join, takers: Sequence[Taker]) -> Taker | None:
    scope = scope_of(tree, join.line)
    after = (item.file == file and item.line > join.line and scope_of(tree, item.line) is scope for item in takers)
    return takers[0] if all(after) else None


def _end_below(tree: ast.Module, join: Join) -> tuple[str, int] | None:
    for item in own_nodes(scope_of(tree, join.line)):
        if isinstance(item, ast.Call) and called_name(item) in _ENDS and item.lineno > join.line:
            owner = item.func.value if isinstance(item.func, ast.Attribute) else None
            if owner is not None and ast.unparse(owner) == join.joined:
                return ast.unparse(item), item.lineno
    return None
