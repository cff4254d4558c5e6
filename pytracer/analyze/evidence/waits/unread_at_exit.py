"""A program that has come to its end and joins the thread of a queue that it filled, which nobody reads any more.

CPython, multiprocessing/queues.py: put() of a Queue without a limit never waits; a thread (`_feed`) writes what was put
into a pipe. At the end of the program Queue._finalize_join joins that thread, which cannot end while the pipe is full.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened, time_words
from pytracer.analyze.behind import Place
from pytracer.analyze.deaths.ending import asked_to_end
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import counting_loop, loops_around
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.passing import names_of_object
from pytracer.analyze.evidence.syntax.scopes import qualified_name, scope_of
from pytracer.analyze.evidence.waits.queue_marks import puts_into, taking
from pytracer.analyze.evidence.waits.unread_queues import entries, made_queues
from pytracer.analyze.evidence.waits.wait_advice import AT_END, LEFT
from pytracer.analyze.evidence.waits.wait_chain import running_children, work_words
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import at_program_end, main_stack
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import LineWords, line_in, names_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import PythonFrame

_FEEDS = Pattern(r"/multiprocess(?:ing)?/queues\.py$")
_WRITES = Pattern(r"/multiprocess(?:ing)?/connection\.py$")
_LONGEST, _NAMED = 60, 3
_BEFORE_NS = 1_000_000_000


class Reader(msgspec.Struct, frozen=True):
    """`function` takes at `line`, in the `loop`: as many as `count`, which is `bound`; or while a `test` holds, or
    until a `mark`.
    """

    function: str
    line: int
    loop: int | None
    count: str | None
    bound: tuple[str, LineWords] | None
    mark: str | None
    test: str | None = None

    @property
    def words(self) -> str:
        """`Writer._run takes `n` items (the loop of line 5; `n` is `len(loader)`, line 9)`."""
        if self.count is not None:
            bound = f"; `{self.count}` is `{self.bound[0]}`, {self.bound[1]}" if self.bound is not None else ""
            return f"{self.function} takes `{self.count}` items (the loop of line {self.loop}{bound}), and ends"
        if self.test is not None:
            return f"{self.function} takes while `{self.test}` (line {self.loop}), and ends"
        if self.mark is not None:
            return f"{self.function} takes (line {self.line}) until it gets `{self.mark}`, and ends"
        return f"{self.function} takes at line {self.line}, and ended before it had taken all"


class Filling(msgspec.Struct, frozen=True):
    """The lines that put items, and those that call their function, with the loops around these; `mark`: puts that."""

    puts: tuple[int, ...]
    calls: tuple[int, ...]
    loops: tuple[tuple[int, str], ...]
    mark: int | None = None

    @property
    def words(self) -> str:
        """`line 8 puts, called at line 12 once for each round of `for view in views` (line 11)`."""
        many = len(self.puts) > 1
        put = f"line{'s' * many} {list_words([str(item) for item in self.puts])} put{'s' * (not many)}"
        calls = list_words([str(item) for item in self.calls])
        called = f", called at line{'s' * (len(self.calls) > 1)} {calls}" if calls else ""
        rounds = list_words([f"`{text}` (line {line})" for line, text in self.loops])
        mark = f", and line {self.mark} puts the mark" if self.mark is not None else ""
        return f"{put}{called}{f' in each round of {rounds}' if rounds else ''}{mark}"


class UnreadAtExit(msgspec.Struct, frozen=True):
    """`queue`, as the program names it. `gone`: all its children, which had ended; `running`: those that had not."""

    gone: tuple[ProcessView, ...]
    running: tuple[ProcessView, ...]
    file: str | None = None
    queue: str | None = None
    reader: Reader | None = None
    filling: Filling | None = None

    @property
    def wait_words(self) -> str:
        """What it waited for."""
        what = f"`{self.queue}`" if self.queue is not None else "a multiprocessing queue"
        return f"had come to its end, and waited until all that it had put into {what} is read"

    @property
    def words(self) -> str:
        """After that: who cannot read it any more."""
        if not self.gone:
            working = work_words(self.running)
            return f"; {working}" if working else ""
        last = max((item.ended_ns for item in self.gone if item.ended_ns is not None), default=None)
        at = f" at {time_words(int(last))}" if last is not None else ""
        return f"; {names_words(self.gone)} had ended with status 0{at}, and no other child could read it"

    @property
    def advice(self) -> str:
        """What the two sides count."""
        if self.reader is None or self.filling is None:
            return AT_END
        read = self.reader
        if read.mark is not None:
            return f"{read.words}; {self.filling.words}. Put that mark last, and once for each reader. {LEFT}"
        until = "Let it take until a mark (`None`) that is put last, before its join()"
        return f"{read.words}; {self.filling.words}. {until}{', rather than a count' * bool(read.count)}. {LEFT}"

    @property
    def at(self) -> PythonFrame | None:
        """The line that puts, or calls what does."""
        lines = (self.filling.calls or self.filling.puts) if self.filling is not None else ()
        return PythonFrame(file=self.file, line=lines[0]) if lines else None

    @property
    def places(self) -> tuple[Place, ...]:
        """The lines to show."""
        if self.reader is None or self.filling is None or self.file is None:
            return ()
        bound = self.reader.bound[1] if self.reader.bound is not None else None
        called = self.filling.calls
        made = [(bound.file, bound.line)] if bound is not None and bound.line is not None else []
        lines = [
            self.reader.loop,
            self.reader.line,
            *self.filling.puts,
            *called,
            self.filling.mark,
            *(line for line, _ in self.filling.loops),
        ]
        return (*((self.file, line) for line in lines if line is not None), *made)


def unread_at_exit(job: JobView, view: ProcessView, wait: ProcessWait) -> UnreadAtExit | None:
    """Of a program, not of a child of multiprocessing, whose end has another place; None where no thread writes."""
    if wait.kind != "unread-queue" or not at_program_end(main_stack(view)) or not _writes(view):
        return None
    running, children = running_children(job, view), children_of(job, view)
    ended = view.ended_ns or 0
    over = all(item.ended_ns is not None and item.ended_ns <= ended - _BEFORE_NS for item in children)
    gone = tuple(children) if over and all(item.process.exit_code == 0 for item in children) else ()
    found = UnreadAtExit(gone, tuple(running))
    for script in scripts_of(job, view):
        tree = syntax_tree(view.process.snapshot, script)
        named = _sides(view, script, tree) if tree is not None else None
        if named is not None:
            queue, reader, filling = named
            return msgspec.structs.replace(found, file=script.file, queue=queue, reader=reader, filling=filling)
    return found


def _writes(view: ProcessView) -> bool:
    """Whether the thread of a queue waits for room in its pipe."""
    end = asked_to_end(view.process)
    return any(
        frames
        and _WRITES.search(frames[0].file) is not None
        and any(_FEEDS.search(item.file) and item.function.rpartition(".")[2] == "_feed" for item in frames)
        for _, frames in (end.python_threads if end is not None else ())
    )


def scripts_of(job: JobView, view: ProcessView) -> Iterator[PythonFrame]:
    """The program's first file: no frame of it is left."""
    launcher = job.job.launcher_of(view.process.snapshot)
    folder = launcher.cwd if launcher is not None else ""
    for word in view.process.snapshot.argv:
        if word.endswith(".py"):
            yield PythonFrame(file=os.path.join(folder, word), line=1)


def _sides(view: ProcessView, script: PythonFrame, tree: ast.Module) -> tuple[str, Reader, Filling] | None:
    """The one queue that a child's function takes from, and another function fills."""
    own = list(entries(tree))
    found = []
    for name in dict.fromkeys(made_queues(tree)):
        names = names_of_object(tree, name)
        gets = [item for function in own for item in gets_of(function, names)]
        puts = [item for item in puts_into(tree, names) if scope_of(tree, item.lineno) not in own]
        if len(gets) == 1 and puts:
            found.append((name, names, gets[0], puts))
    if len(found) != 1 or script.file is None:
        return None
    name, names, get, puts = found[0]
    reader = reader_of(view, script.file, tree, get)
    return _text(puts[0]), reader, _filling(tree, puts, names, reader.mark)


def _text(put: ast.Call) -> str:
    return ast.unparse(put.func.value) if isinstance(put.func, ast.Attribute) else ""


def gets_of(function: ast.AST, names: frozenset[str]) -> Iterator[ast.Call]:
    """The calls in it that take from a queue of these names."""
    for item in nodes_of(function):
        if not isinstance(item, ast.Call) or not isinstance(item.func, ast.Attribute) or item.func.attr != "get":
            continue
        if (last_name(item.func.value) or "") in names:
            yield item


def reader_of(view: ProcessView, file: str, tree: ast.Module, get: ast.Call) -> Reader:
    """Until when the function around `get` takes."""
    scope = scope_of(tree, get.lineno)
    loops = loops_around(tree, get.lineno)
    count, bound = None, None
    loop = loops[-1] if loops else None
    if isinstance(loop, ast.For):
        rounds = loop.iter
        is_range = isinstance(rounds, ast.Call) and called_name(rounds) == "range" and len(rounds.args) == 1
        number = rounds.args[0] if isinstance(rounds, ast.Call) and is_range else None
        count = shortened(ast.unparse(number), _LONGEST) if number is not None else None
        bound = _bound(view, number, Spot(file, tree, scope, loop.lineno)) if number is not None else None
    taken = taking(tree, get.lineno)
    mark = taken.mark if taken is not None and count is None else None
    line = loop.lineno if loop is not None else None
    asks = loop.test if isinstance(loop, ast.While) and mark is None else None
    test = shortened(ast.unparse(asks), _LONGEST) if asks is not None and not isinstance(asks, ast.Constant) else None
    return Reader(qualified_name(tree, scope), get.lineno, line, count, bound, mark, test)


def _bound(view: ProcessView, number: ast.expr, spot: Spot) -> tuple[str, LineWords] | None:
    """What made the count, where another line did."""
    start = PythonFrame(file=spot.file, line=1)
    made = Slice(view.process.snapshot, [start]).made(number, spot, calls=False)
    if not made.through or ast.unparse(made.node) == ast.unparse(number):
        return None
    return shortened(ast.unparse(made.node), _LONGEST), line_in(made.spot.file, made.line, spot.file)


def _filling(tree: ast.Module, puts: Sequence[ast.Call], names: frozenset[str], mark: str | None) -> Filling:
    marks = [item.lineno for item in puts if item.args and mark is not None and ast.unparse(item.args[0]) == mark]
    lines = tuple(dict.fromkeys(item.lineno for item in puts if item.lineno not in marks)) or tuple(marks)
    calls: tuple[int, ...] = ()
    at = lines[0] if len(lines) == 1 else None
    if at is not None and counting_loop(tree, at) is None:  # else its own loop counts
        calls = _calls(tree, at, names)
        at = calls[0] if len(calls) == 1 else None if calls else at
    loops = loops_around(tree, at) if at is not None else []
    heads = tuple((item.lineno, _head(item)) for item in loops)
    return Filling(lines, calls, heads, marks[0] if len(marks) == 1 and lines != tuple(marks) else None)


def _calls(tree: ast.Module, line: int, names: frozenset[str]) -> tuple[int, ...]:
    """Where the function of a line is called, if at few places; its name may be that of the queue's own method."""
    scope = scope_of(tree, line)
    if isinstance(scope, (ast.Module, ast.Lambda)):
        return ()
    found = tuple(
        item.lineno
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) == scope.name
        if not (isinstance(item.func, ast.Attribute) and last_name(item.func.value) in names)
    )
    return tuple(sorted(found)) if len(found) <= _NAMED else ()


def _plain(target: ast.expr) -> str:
    """`i, (x, y)` without brackets around all, as a `for` has it."""
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    return ", ".join(ast.unparse(item) for item in parts)


def _head(loop: ast.For | ast.AsyncFor | ast.While) -> str:
    if isinstance(loop, ast.While):
        return shortened(f"while {ast.unparse(loop.test)}", _LONGEST)
    return shortened(f"for {_plain(loop.target)} in {ast.unparse(loop.iter)}", _LONGEST)
