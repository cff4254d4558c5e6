"""A limit of memory of the program's own: the condition that decided that a line killed a process, and its limit.

`if job.memory_info().rss > limit`, and where a variable has what was measured: `used > mem_mb`. The innermost `if`
alone is asked: it has the line in its body, or leaves the function or the round right before it. Where something else
decides in between (another condition, an `else`, an `except`), or as well (`or`), there is none.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened, size_words
from pytracer.analyze.evidence.ends.memory_measures import Measured
from pytracer.analyze.evidence.ends.text_watches import StartedText, option_of
from pytracer.analyze.evidence.ports.numbers import Ports
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import is_order
from pytracer.analyze.evidence.syntax.loops import LEAVES, LOOPS, deciding_ifs, last_of
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import spans, spans_body
from pytracer.analyze.kin import parent_of
from pytracer.analyze.naming import name_words
from pytracer.analyze.tensors.source_lines import is_own_text
from pytracer.analyze.view import JobView, ProcessView, RecordedSender
from pytracer.report.job import Evidence, PythonFrame

_PARSES = frozenset({"parse_args", "parse_known_args", "parse_intermixed_args"})
_QUOTED, _PEAKS = 40, 4
_LAUNCHER_BYTES = 256 << 20
_BEFORE_TICKS, _BEHIND_TICKS = 10, 100  # of the kernel's clock, 10 ms each
_LIMIT = "That is a limit of memory:"
_TO_BYTES = Pattern(r"2\*\*[23]0|1024\*\*[23]|1024\*1024|1<<[23]0|1048576|1000\*\*[23]|1000\*1000|1e[69]|1000000")
_FREE = "It watches free memory:"
_KEEPS = "find what the processes that it counts keep (what grows from round to round), {}use fewer of them"


class MemoryLimit(msgspec.Struct, frozen=True):
    """`test`: of line `line`; `limit`: what it compares with, of `value` where that is known, by `option`.

    `free`: it asks for the least of free memory, which nobody may raise. `leaves`: where it holds, nothing is killed.
    `argument`: the place in sys.argv that it is made of. `in_bytes`: it is turned into them, `mb << 20`.
    `given`: what the option has, where that is of another program.
    """

    test: str
    line: int
    limit: str
    value: int | None = None
    option: str | None = None
    free: bool = False
    leaves: bool = False
    argument: int | None = None
    in_bytes: bool = False
    given: str | None = None

    def words(self, condition: str | None) -> str:
        """`` , where `used > mem_mb` holds (line 67, `mem_mb` is 1300) ``; `condition`: the words for the innermost."""
        known = self.value is not None and self.limit != str(self.value)
        value = f", `{self.limit}` is {self.amount}" if known else ""
        if condition is not None and condition.endswith(f"(line {self.line})"):
            return f", {condition[:-1]}{value})"
        return f", where `{self.test}` {'does not hold' if self.leaves else 'holds'} (line {self.line}{value})"

    @property
    def nbytes(self) -> int | None:
        """Of used memory; None where the unit is not known."""
        return self.value if self.in_bytes and not self.free else None

    @property
    def amount(self) -> str:
        """`520.0 MiB`; `1300` where the unit is not known."""
        return size_words(self.value) if self.in_bytes and self.value is not None else str(self.value)

    @property
    def advice(self) -> str:
        """What to do beside the line: ``use fewer of them, or raise the limit, `--mem` (1300)``."""
        if self.free:
            return f"{_FREE} {_KEEPS.format('or ')}."
        return f"{_LIMIT} {_KEEPS.format('')}, or {self.raising}"

    @property
    def raising(self) -> str | None:
        """What may be raised: ``raise the limit, `--mem` (1300)``."""
        named = self.option or self.limit
        known = self.value is not None and named != str(self.value)
        value = f" ({self.given})" if self.given is not None else f" ({self.amount})" if known else ""
        return f"raise the limit, `{named}`{value}, where there is memory for it." if not self.free else None


def memory_limit(sent: RecordedSender) -> MemoryLimit | None:
    """Of the line of the program that sent a signal; None where no condition about memory decided that."""
    frames = _frames(sent)
    slice_ = Slice(sent.sender.snapshot, frames)
    for depth in range(len(frames)):
        spot = slice_.spot(depth)
        if spot is None:
            return None
        decides = _decider(spot)
        if decides is not None:
            found_limit = _limit(sent, slice_, decides, replace(spot, line=decides.test.lineno))
            changed = found_limit is not None and found_limit.option is not None and _sets_options(sent, frames)
            return replace(found_limit, value=None) if changed and found_limit is not None else found_limit
    return None


def asks_memory(sent: RecordedSender) -> bool:
    """Whether a condition about the line that sent a signal compares memory, also one that others stand in between."""
    slice_ = Slice(sent.sender.snapshot, _frames(sent))
    spot = slice_.spot(0)
    tests = [item.test for item, _ in deciding_ifs(spot.tree, spot.line)] if spot is not None else []
    parts = [part for test in tests for part in nodes_of(test) if isinstance(part, ast.Compare)]
    return spot is not None and any(
        Measured(slice_).measure(side, replace(spot, line=part.lineno)) is not None
        for part in parts
        for side in (part.left, *part.comparators)
    )


def _frames(sent: RecordedSender) -> list[PythonFrame]:
    """The program's lines that led to the one that sent a signal, innermost first."""
    found = (PythonFrame(function=item.function, file=item.file, line=item.line) for item in sent.send.stack)
    own = sent.sender.snapshot
    return [item for item in found if not is_library_file(item.file) or is_own_text(own, item)]


def used_words(most: int | None) -> str | None:
    """`used up to 510.9 MiB of memory, shared pages included`; `most`: of most_memory()."""
    return f"used up to {size_words(most)} of memory, shared pages included" if most is not None else None


def with_option(limit: MemoryLimit | None, started: StartedText) -> MemoryLimit | None:
    """Named as its parent's program has it, which passes it on: `--quota` (520), in a unit of its own."""
    if limit is None or started.option is None:
        return limit
    given = str(started.value) if started.value is not None else None
    return replace(limit, option=started.option, given=given)


def most_memory(job: JobView, view: ProcessView) -> int | None:
    """The most bytes that it had in RAM, as the kernel counted for whoever reaped it; None where that is not known.

    The count survives exec: of a child that was started so it may be its parent's (Linux: setmax_mm_hiwater_rss() in
    fs/exec.c), and what reaped the child has it as well. So only of a forked process; of one that the launcher
    started, where it is more than that one ever needs; and of one that had more than a sibling which the same parent
    started then or right after it.
    """
    snapshot, usage = view.process.snapshot, view.process.usage
    was_forked = any(fact.mono_ns < snapshot.created_mono_ns for fact in snapshot.facts)  # and no exec() since
    by_launcher = any(item.child_pid == snapshot.pid for item in job.job.launchers)
    more = by_launcher and usage is not None and (usage.maxrss or 0) >= _LAUNCHER_BYTES
    if usage is None or not usage.maxrss:
        return None
    return usage.maxrss if was_forked or more or _least_of_siblings(job, view) < usage.maxrss else None


def _least_of_siblings(job: JobView, view: ProcessView) -> float:
    """The least peak of what its parent started at its time: it has the parent's memory of then, too."""
    parent, own = parent_of(job, view), view.process.snapshot
    return min(
        (
            item.process.usage.maxrss
            for item in job.views
            if item is not view and parent is not None and parent_of(job, item) is parent
            if item.process.usage is not None and item.process.usage.maxrss
            if item.process.snapshot.start_ticks and own.start_ticks
            if -_BEFORE_TICKS <= item.process.snapshot.start_ticks - own.start_ticks <= _BEHIND_TICKS
        ),
        default=math.inf,
    )


def peak_evidence(job: JobView, view: ProcessView) -> tuple[Evidence, ...]:
    """The peak of a killed process, and of other workers of its DataLoader."""
    parent = parent_of(job, view)
    kin = [item for item in job.views if item.process.role == view.process.role and parent_of(job, item) is parent]
    is_worker = view.process.snapshot.worker is not None and parent is not None
    return tuple(
        Evidence(
            "memory-use",
            f"{name_words([item])} had up to {size_words(most)} in RAM, shared pages included",
            pid=item.process.snapshot.pid,
            rank=item.process.rank,
            nbytes=most,
        )
        for item in [view, *(item for item in kin if is_worker and item is not view)][:_PEAKS]
        if (most := most_memory(job, item)) is not None
    )


class _Decider(msgspec.Struct, frozen=True):
    """`test` decides about a line: it is reached where that holds, or after it `leaves`, where it does not."""

    test: ast.expr
    leaves: bool


def _decider(spot: Spot) -> _Decider | None:
    """The innermost condition of a function about a line; with no known test where it is none that can be told."""
    body = spot.scope.body if not isinstance(spot.scope, ast.Lambda) else []
    return _within(body, spot.line, None)


_UNKNOWN = _Decider(ast.Constant(None, lineno=0), leaves=False)


def _within(block: Sequence[ast.stmt], line: int, around: _Decider | None) -> _Decider | None:
    """`around`: what decides that the block runs."""
    at = next((place for place, item in enumerate(block) if spans(item, line)), None)
    if at is None:
        return around
    for item in block[:at]:
        around = _left(item, around)
    return _inside(block[at], line, around)


def _inside(item: ast.stmt, line: int, around: _Decider | None) -> _Decider | None:
    """Of a line in a statement."""
    if isinstance(item, ast.If):
        found = _within(item.body, line, _Decider(item.test, leaves=False))
        return found if spans_body(item.body, line) else _UNKNOWN
    if isinstance(item, (ast.For, ast.AsyncFor, ast.Try, ast.With, ast.AsyncWith)):
        in_body = spans_body(item.body, line)
        in_head = line < item.body[0].lineno
        return _within(item.body, line, around) if in_body else around if in_head else _UNKNOWN
    if isinstance(item, (ast.While, ast.Match)):
        held = _within(item.body, line, None) if isinstance(item, ast.While) and line >= item.body[0].lineno else None
        return held if held is not None else _UNKNOWN
    asks = (ast.BoolOp, ast.IfExp)
    decides = any(
        isinstance(part, asks) or (isinstance(part, ast.comprehension) and part.ifs) for part in nodes_of(item)
    )
    return _UNKNOWN if decides else around


def _left(item: ast.stmt, around: _Decider | None) -> _Decider | None:
    """What decides about the statements behind one."""
    if isinstance(item, ast.If) and isinstance(last_of(item.body), LEAVES) and not item.orelse:
        return _Decider(item.test, leaves=True)
    return _UNKNOWN if isinstance(item, ast.While) or any(_leaving(item)) else around


def _leaving(item: ast.AST, in_loop: bool = False) -> Iterator[ast.AST]:
    """What leaves the block from inside of a statement; `continue` of a loop in it does not."""
    if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
        return
    if isinstance(item, LEAVES) and not (in_loop and isinstance(item, ast.Continue)):
        yield item
    for part in ast.iter_child_nodes(item):
        yield from _leaving(part, in_loop or isinstance(item, LOOPS))


def _limit(sent: RecordedSender, slice_: Slice, decides: _Decider, spot: Spot) -> MemoryLimit | None:
    """Of memory that was used, more than the limit; of free memory, less. Of anything else none."""
    for part, holds in _compared(decides.test, not decides.leaves):
        sides = (part.left, part.comparators[0])
        measures = [Measured(slice_).measure(side, spot) for side in sides]
        if measures.count(None) != 1:
            continue
        at = measures.index(None)
        is_more = ((at == 1) == isinstance(part.ops[0], (ast.Gt, ast.GtE))) == holds
        if measures[1 - at] != ("used" if is_more else "free"):
            continue
        return MemoryLimit(
            shortened(ast.unparse(decides.test), _QUOTED),
            decides.test.lineno,
            shortened(ast.unparse(sides[at]), _QUOTED),
            Ports(slice_, sent.sender.snapshot, None).number(sides[at], spot),
            option_of(slice_, sides[at], spot),
            free=not is_more,
            leaves=decides.leaves,
            argument=_argument(slice_, sides[at], spot),
            in_bytes=_is_in_bytes(slice_.made(sides[at], spot, calls=True).node),
        )
    return None


def _compared(test: ast.expr, holds: bool) -> Iterator[tuple[ast.Compare, bool]]:
    """The comparison by which a line is reached, and whether it held; none where another one may have been it.

    Of `used > limit and children` the first. `holds`: whether the whole did.
    """
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _compared(test.operand, not holds)
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) == holds:
        asked = [item for item in test.values if any(map(is_order, nodes_of(item)))]
        yield from _compared(asked[0], holds) if len(asked) == 1 else ()
    elif isinstance(test, ast.Compare) and is_order(test):
        yield test, holds


def _argument(slice_: Slice, node: ast.expr, spot: Spot) -> int | None:
    """2, of `int(sys.argv[2]) << 20`."""
    made = slice_.made(node, spot, calls=True).node
    found = [
        item for item in nodes_of(made) if isinstance(item, ast.Subscript) and ast.unparse(item.value) == "sys.argv"
    ]
    place = found[0].slice if len(found) == 1 else None
    return place.value if isinstance(place, ast.Constant) and isinstance(place.value, int) else None


def _is_in_bytes(node: ast.AST) -> bool:
    """`mb << 20`, `gb * 2**30`, `mb * 1024 * 1024`."""
    if not isinstance(node, ast.BinOp):
        return False
    right = ast.unparse(node.right).replace(" ", "")
    if isinstance(node.op, ast.LShift):
        return right in ("20", "30")
    return isinstance(node.op, ast.Mult) and bool(_TO_BYTES.search(ast.unparse(node).replace(" ", "")))


def _sets_options(sent: RecordedSender, frames: Sequence[PythonFrame]) -> bool:
    """Whether the program gives options other values than those of the command line and add_argument()."""
    trees = program_files(sent.sender.snapshot, frames).values()
    calls = [item for tree in trees for item in nodes_of(tree) if isinstance(item, ast.Call)]
    given = [item for item in calls if called_name(item) in _PARSES and (item.args or item.keywords)]
    return any(called_name(item) == "set_defaults" for item in calls) or any(
        [ast.unparse(part) for part in item.args] != ["sys.argv[1:]"] or item.keywords for item in given
    )
