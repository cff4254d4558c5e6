"""The loop of the program that a process went round in for long, when it was ended: which one, and why it went on."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.native.fault_function import own_function
from pytracer.analyze.evidence.native.native_stack import image_name
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.ended_streams import ended_stream
from pytracer.analyze.evidence.syntax.endless import reason_of
from pytracer.analyze.evidence.syntax.iterations import counted_up
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.outcomes import ValueOf
from pytracer.analyze.evidence.syntax.removals import removal_of
from pytracer.analyze.evidence.syntax.same_successors import same_again
from pytracer.analyze.evidence.syntax.same_tests import unmoved
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.evidence.syntax.standing_steps import may_stand
from pytracer.analyze.evidence.syntax.unbounded import (
    EndlessLoop,
    Reason,
    body_of,
    catches_all_tries,
    head_of,
    is_unbounded,
    never_asked_to_stop,
    not_entered_again,
    only_draws,
    yields_only_where,
)
from pytracer.analyze.evidence.waits.empty_appends import empty_append
from pytracer.analyze.evidence.waits.empty_passes import empty_pass
from pytracer.analyze.evidence.waits.empty_removals import empty_removal
from pytracer.analyze.evidence.waits.endless_work import endless_work
from pytracer.analyze.evidence.waits.missed_draws import is_first_item, missed_draws
from pytracer.analyze.evidence.waits.quiet import Pause, pause_of
from pytracer.analyze.evidence.waits.running_loops import loops_of, values_of
from pytracer.analyze.evidence.waits.skipped_passes import skipped_pass
from pytracer.analyze.evidence.waits.slow_regex import slow_regex
from pytracer.analyze.evidence.waits.standing_masks import standing_mask
from pytracer.analyze.evidence.waits.swallowed_tries import swallowed_tries
from pytracer.analyze.evidence.waits.unlimited_tries import between_tries, came_through, tries_reason
from pytracer.analyze.evidence.waits.waits import (
    before_signal,
    end_of,
    main_stack,
    takes_turn,
    wait_of,
    was_asleep,
)
from pytracer.analyze.evidence.waits.watched_flags import flag_reason
from pytracer.analyze.naming import place_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, PythonFrame

_FRAMES = 6
_LONGEST = 60
_NEAR = 4
_WAITS = Pattern(r"/(selectors|socket|ssl|threading|queue|subprocess)\.py$|/(asyncio|multiprocessing|concurrent)/")
_BLOCKS = Pattern(r"poll|select|accept|recv|read|write|send|futex|wait|connect|sem_|lock")
_LIBC = Pattern(r"(libc|libpthread)[.-]")
_TORCH = Pattern(r"lib(torch|c10|mkl)")
_TAKE_ALL = frozenset({"list", "tuple", "set", "frozenset", "sorted", "sum", "max", "min", "dict", "Counter", "deque"})
_SOME = frozenset({"islice", "zip", "takewhile", "next"})
_COMPREHENSION = Pattern(r"<(listcomp|setcomp|dictcomp|genexpr)>$")


class StoodLoop(msgspec.Struct, frozen=True):
    """`at`: the line in the loop, `inner` that of the program that ran. `line`, `head`: None where no loop is known."""

    at: PythonFrame
    inner: PythonFrame
    pause: Pause | None
    line: int | None
    head: str | None
    reason: Reason | None

    @property
    def confidence(self) -> Confidence | None:
        """That it stood still; None where it may as well have worked, as one does that makes tensors."""
        still = self.pause is not None and self.pause.still
        if self.reason is None or not (self.reason.sure or self.reason.idle or still):
            return None
        return "likely" if self.reason.sure else "possible"

    @property
    def never_ends(self) -> bool:
        """Whether the recording shows that, and not the source alone."""
        return self.reason is not None and self.reason.spins and self.reason.sure

    @property
    def loop_words(self) -> str:
        """`in the loop of line 28 (`while True`) at data.py:29 in batches`."""
        within = f", which ran {place_words(self.inner)}" if self.inner != self.at else ""
        loop = f"in the loop of line {self.line} (`{self.head}`) " if self.line is not None else ""
        return f"{loop}at {place_words(self.at)}{within}"

    @property
    def words(self) -> str:
        """After the process: where it was, for how long, and why. Of what it computed for ever, first why."""
        if self.reason is not None and self.reason.spins:
            for_long = f"; it {self.pause.words}" if self.pause is not None else ""
            return f"computed for ever {self.loop_words}: {self.reason.words}{for_long}"
        why = f"; {self.reason.words}" if self.reason is not None else ""
        stood = f"; it {self.pause.words}" if self.pause is not None else ""
        return f"was {self.loop_words}{stood}{why}"

    @property
    def advice(self) -> str:
        """What to change, or to look at."""
        if self.reason is not None:
            more = " If it only takes long, raise the time limit." if self.confidence is None else ""
            return f"{self.reason.advice}{more}"
        if self.line is not None:
            return (
                f"Find out whether the loop of line {self.line} (`{self.head}`) still comes nearer to its end: print "
                "what it reads, and count its passes. If it does, raise the time limit."
            )
        return (
            f"If {place_words(self.at)} is not work that may take so long, see what it went on with there: print "
            "how far it is. Else raise the time limit."
        )


def stood_loop(view: ProcessView) -> StoodLoop | None:
    """None where it had done something just before, waited, or is not known to have run Python."""
    end = end_of(view)
    until = end.mono_ns if end is not None else view.process.exception_mono_ns
    stack = view.exception_stack if view.raised else main_stack(view)
    if until is None or not stack or _WAITS.search(stack[0].file or ""):
        return None
    asleep = was_asleep(view)
    if not asleep and not view.raised and _waits(view):
        return None
    asleep = asleep or (not view.raised and _is_blocked(view))
    frames = _of_program(stack)
    if not frames:
        return None
    pause, counted = pause_of(view, until), _counted_up(view, stack)
    if counted is not None:
        frame, loop, reason = counted
        return StoodLoop(frame, frames[0], pause, loop.lineno, head_of(loop), reason)
    empty = empty_pass(view, stack, frames[0], until) if not asleep else None
    if empty is not None and (pause is not None or empty.reason.sure or empty.reason.idle):
        return StoodLoop(empty.frame, frames[0], pause, empty.loop.lineno, head_of(empty.loop), empty.reason)
    spun = empty_append(view, frames[0]) if not asleep else None
    if spun is not None and spun.reason.spins:
        return StoodLoop(frames[0], frames[0], pause, spun.loop.lineno, head_of(spun.loop), spun.reason)
    still = _standing(view, stack, frames)
    if still is not None:
        return StoodLoop(still[0], frames[0], pause, still[1].lineno, head_of(still[1]), still[2])
    for place, frame in enumerate(frames if not asleep or takes_turn(view) else ()):
        paused = pause is not None or (place + 1 < len(frames) and is_first_item(view, frames[place + 1]))
        found = _shown(view, frame, values_of(view, stack, frame), paused=paused)
        if found is not None:
            return StoodLoop(frame, frames[0], pause, found[0].lineno, head_of(found[0]), found[1])
    work = endless_work(view, stack, frames, blocked=asleep and pause is not None)
    if work is not None:
        return StoodLoop(work.frame, frames[0], pause, work.line, work.head, work.reason)
    kept = (empty_removal(view, item, values_of(view, stack, item)) for item in (frames if not asleep else ()))
    for shown in kept:
        if shown is not None and shown.reason.idle:
            return StoodLoop(shown.frame, frames[0], pause, shown.loop.lineno, head_of(shown.loop), shown.reason)
    tried = between_tries(view, frames[0]) if was_asleep(view) else None
    if tried is not None:
        return StoodLoop(frames[0], frames[0], pause, tried[0].lineno, head_of(tried[0]), tried[1])
    searched = _search(view, frames, pause, asleep=asleep) if pause is not None else None
    explained = searched is not None and searched.reason is not None
    skipped = skipped_pass(view, frames[0], until) if not asleep and not explained else None
    if skipped is not None:
        return StoodLoop(frames[0], frames[0], pause, skipped.loop.lineno, head_of(skipped.loop), skipped.reason)
    if pause is None:
        return None
    if searched is not None or asleep:
        return searched
    return StoodLoop(frames[0], frames[0], pause, None, None, None) if pause.stood else None


def _waits(view: ProcessView) -> bool:
    """A process that opens a file may open one of many."""
    wait = wait_of(view)
    return wait is not None and wait.kind != "open"


def _shown(
    view: ProcessView, frame: PythonFrame, values: ValueOf, *, paused: bool
) -> tuple[EndlessLoop, Reason] | None:
    """A loop whose recorded passes, or variables, show that it has not come nearer to its end."""
    mask = standing_mask(view, frame)
    if mask is not None:
        return mask.loop, mask.reason
    tried = swallowed_tries(view, frame, values)
    if tried is not None and (tried.reason.sure or paused):
        return tried.loop, tried.reason
    missed = missed_draws(view, frame, values) if paused else None
    return (missed.loop, missed.reason) if missed is not None else None


def _counted_up(view: ProcessView, stack: Sequence[PythonFrame]) -> tuple[PythonFrame, ast.For, Reason] | None:
    """A loop over an object's __getitem__ that nothing ends; a DataLoader would stand between the two."""
    for inner, outer in itertools.pairwise(stack):
        if is_library_file(inner.file) or is_library_file(outer.file):
            continue
        trees = [syntax_tree(view.process.snapshot, frame) for frame in (inner, outer)]
        if trees[0] is None or trees[1] is None or inner.line is None or outer.line is None:
            continue
        found = counted_up(trees[0], inner.line, trees[1], outer.line)
        if found is not None:
            return outer, *found
    return None


def _standing(
    view: ProcessView, stack: Sequence[PythonFrame], frames: Sequence[PythonFrame]
) -> tuple[PythonFrame, EndlessLoop, Reason] | None:
    """A loop whose condition stays as it is, by the values that its function had when the process was ended."""
    for frame in frames:
        tree, value_of = syntax_tree(view.process.snapshot, frame), values_of(view, stack, frame)
        for loop in loops_of(view, frame):
            scope = scope_of(tree, frame.line or 0) if tree is not None else None
            reason = unmoved(scope, loop, value_of) if scope is not None else None
            if reason is not None and _may_raise(view, frame, loop):
                reason = msgspec.structs.replace(reason, sure=False, spins=False)
            if reason is not None:
                return frame, loop, reason
    return None


def _may_raise(view: ProcessView, frame: PythonFrame, loop: EndlessLoop) -> bool:
    """Whether what it calls raises an exception of the program, or next(), which may be how it ends."""
    called = {called_name(item) for item in body_of(loop) if isinstance(item, ast.Call)}
    return "next" in called or any(
        isinstance(item, ast.FunctionDef) and item.name in called
        and any(isinstance(part, ast.Raise) for part in own_nodes(item))
        for tree in program_files(view.process.snapshot, [frame]).values()
        for item in nodes_of(tree)
    )  # fmt: skip


def _search(view: ProcessView, frames: Sequence[PythonFrame], pause: Pause, *, asleep: bool) -> StoodLoop | None:
    """A loop that the source shows not to end comes first; else the innermost one."""
    regex = None if asleep else slow_regex(view, frames[0])
    if regex is not None:
        return StoodLoop(frames[0], frames[0], pause, None, None, regex)
    for place, frame in enumerate(frames):
        for loop in loops_of(view, frame):
            reason = _outer_reason(view, frames, place, loop)
            if reason is not None:
                return StoodLoop(frame, frames[0], pause, loop.lineno, head_of(loop), reason)
    if asleep or _in_torch(view):
        return None
    found = _possible(view, frames)
    if found is None:
        return None
    frame, loop, reason = found
    return StoodLoop(frame, frames[0], pause, loop.lineno, head_of(loop), reason)


def _possible(
    view: ProcessView, frames: Sequence[PythonFrame]
) -> tuple[PythonFrame, EndlessLoop, Reason | None] | None:
    """The innermost loop, or one around the call of what ran; of that only where the source shows what may keep it."""
    for place, frame in enumerate(frames):
        loop, reason = _innermost(view, frame, called=place > 0)
        if loop is not None and (reason is not None or (not place and own_function(view) is None)):
            return frame, loop, reason
        if _in_any_loop(view, frame):
            return None
    return None


def _innermost(view: ProcessView, frame: PythonFrame, *, called: bool) -> tuple[EndlessLoop | None, Reason | None]:
    """The innermost loop of a frame that may not end, and why. Of a frame that called another one, only its own."""
    tree, line = syntax_tree(view.process.snapshot, frame), frame.line or 0
    loop = next(iter(loops_of(view, frame)), None)
    if loop is None or tree is None or (called and loops_around(tree, line)[-1:] not in ([loop], [])):
        return None, None
    scope = scope_of(tree, line)
    for around in loops_of(view, frame):
        again = same_again(tree, scope, around)
        if again is not None:
            return around, again
    adds = empty_append(view, frame)
    if adds is not None and adds.loop is loop:
        return loop, None if adds.grows else adds.reason
    values = values_of(view, main_stack(view), frame)
    if removal_of(scope, loop) is not None:
        removes = empty_removal(view, frame, values)
        return loop, removes.reason if removes is not None else None
    reason = reason_of(scope, loop, line)
    if reason is None and not _is_blocked(view):
        reason = ended_stream(loop)
    elif reason is not None and reason.by_others and isinstance(loop, ast.While):
        reason = flag_reason(view, loop.test, frame) or reason
    return loop, reason or may_stand(scope, loop, values)


def loop_reason(view: ProcessView) -> tuple[Reason, str] | None:
    """Why a loop of the program may not end, whatever it recorded meanwhile, and the loop where a call was in it."""
    frames = _of_program(main_stack(view))
    found = _possible(view, frames) if frames else None
    if found is None:
        return None
    frame, loop, reason = found
    end = end_of(view)
    if reason is None or (reason.of_pause and (end is None or pause_of(view, end.mono_ns) is None)):
        return None
    called = f", called in the loop of line {loop.lineno} (`{head_of(loop)}`) at {place_words(frame)}"
    return reason, called if frame != frames[0] else ""


def _of_program(stack: Sequence[PythonFrame]) -> list[PythonFrame]:
    own = [item for item in stack if not is_library_file(item.file) and not (item.file or "").startswith("<")]
    return [item for item in own if item.line is not None][:_FRAMES]


def _in_any_loop(view: ProcessView, frame: PythonFrame) -> bool:
    """Whether a bounded loop has the line, too: work that takes its time."""
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or _COMPREHENSION.search(frame.function or ""):
        return True
    return bool(loops_around(tree, frame.line or 0))


def _outer_reason(view: ProcessView, frames: Sequence[PythonFrame], place: int, loop: EndlessLoop) -> Reason | None:
    """What holds wherever in the loop it was: a generator that goes on for ever, or tries that all fail."""
    frame, snapshot = frames[place], view.process.snapshot
    tree = syntax_tree(snapshot, frame)
    if tree is None or frame.line is None or not is_unbounded(loop):
        return None
    again = not_entered_again(scope_of(tree, frame.line), loop, frame.line) if place == 0 else None
    if again is not None:
        return again
    only = yields_only_where(loop, frame.line) if place == 0 else None
    if never_asked_to_stop(loop) and place + 1 < len(frames):
        taken = _taken_by(view, frames[place + 1])
        if taken is not None:
            return Reason(
                f"nothing in it ends it, and {taken} of {place_words(frames[place + 1])} takes items until it ends",
                f"Take as many as are needed at line {frames[place + 1].line} (itertools.islice(..., n), or `break` "
                f"after n), or let `{head_of(loop)}` (line {loop.lineno}) end after one pass.",
                sure=only_draws(loop),
            )
    tried = catches_all_tries(loop, frame.line)
    return tries_reason(view, loop, tried) if tried is not None and not came_through(view, frame, loop) else only


def _taken_by(view: ProcessView, frame: PythonFrame) -> str | None:
    """What at a line takes all that an iterator has: `list()`. A `for` may work with each item, by design for ever."""
    tree = syntax_tree(view.process.snapshot, frame)
    line = frame.line
    if tree is None or line is None:
        return None
    names = [called_name(item) or "" for item in calls_on(tree, line)]
    if any(name in _SOME for name in names):
        return None
    taking = next((name for name in names if name in _TAKE_ALL), None)
    return f"{taking}()" if taking is not None else None


def _is_blocked(view: ProcessView) -> bool:
    """Whether its main thread stood in a system call that waits, as far as that stack is known."""
    first = next((item for item in before_signal(view) if item.function is not None), None)
    own = view.thread is None or end_of(view) is None or main_stack(view) == view.python_stack
    if first is None or not own or not view.python_stack:
        return False
    return bool(_LIBC.match(image_name(first.image)) and _BLOCKS.search(first.function or ""))


def _in_torch(view: ProcessView) -> bool:
    """Whether the line ran native code of torch's: one operator may take as long."""
    return any(_TORCH.match(image_name(item.image)) for item in before_signal(view)[:1])
