"""A loop that polls the Work of a send or receive of gloo: is_completed() of it is false until its wait() has returned.

SendWork and RecvWork of torch's ProcessGroupGloo are finished by their wait() alone (c10d::Work::isCompleted reads what
finish() sets). The Works of gloo's collectives are finished by its own threads, and can be polled.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import structs

from pytracer.analyze.collectives.counterparts import counterpart
from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.collectives.matching import STOOD_NS, UNFINISHED, state_of
from pytracer.analyze.collectives.ways import head_words
from pytracer.analyze.deaths.attribution import waited_ns
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.handed_on import makers
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.polling import PollingLoop, answer_of, polling_loop
from pytracer.analyze.evidence.syntax.scopes import qualified_name, spans
from pytracer.analyze.evidence.waits.waits import program_stack
from pytracer.analyze.naming import line_in, place_words
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import PythonFrame

_GLOO = "gloo"
_ASKED = "is_completed"
_BEGIN = ("irecv", "isend", "batch_isend_irecv", "recv", "send")  # the last two of a process group
_ISSUE = "pytorch/pytorch#30723"


class PolledWork(msgspec.Struct, frozen=True):
    """`call`: the send or receive, begun by a call of `name` at `begun`; `met`: what `peer` called.

    `at`: the function with the loop, at the line of its head.
    """

    view: ProcessView
    loop: PollingLoop
    at: PythonFrame
    name: str
    begun: PythonFrame
    call: Collective
    peer: ProcessView
    met: Collective
    waited_ns: int
    answer: Spot | None = None
    """The `return` of the function by which the loop asks."""

    @property
    def loop_words(self) -> str:
        """`` `while not work.is_completed()` (train.py:43 in serve) ``."""
        head = f"{head_words(self.view.process.snapshot, self.at, self.loop.loop)} ({place_words(self.at)})"
        if self.answer is not None:
            asks = line_in(self.answer.file, self.answer.line, self.at.file)
            return f"{head}, which ends only by `{ast.unparse(self.loop.asked[0])}`, that is, {_ASKED}() ({asks})"
        if self.loop.in_head:
            return head
        asked = self.loop.asked[0]
        return f"{head}, which ends only by `{ast.unparse(asked)}` (line {asked.lineno})"

    @property
    def words(self) -> str:
        """Why it does not end."""
        line = line_in(self.begun.file, self.begun.line, self.at.file)
        return f"gloo completes the Work of {self.name}() ({line}) only in its wait(), although {self.met_words}"

    @property
    def met_words(self) -> str:
        """`rank 1 has sent the message (line 59)`."""
        place = place_of(self.met)
        where = f" ({line_in(place.file, place.line, self.at.file)})" if place is not None else ""
        is_done = state_of(self.peer.process, self.met) == "completed"
        sends = self.met.op == "send"
        done, begun = ("has sent", "has begun to send") if sends else ("has received", "is ready to receive")
        return f"rank {self.peer.process.rank} {done if is_done else begun} the message{where}"

    @property
    def advice(self) -> str:
        """What to write instead of the loop, and how to work meanwhile."""
        names = {variable(item) for item in self.loop.objects}
        name = names.pop() if len(names) == 1 else None
        if self.answer is not None:
            wait = f"wait() of the Work that `{ast.unparse(self.loop.asked[0])}` asks"
            threads, ask = "let a thread call that: `waiting = ThreadPoolExecutor(1).submit(...)`", "`waiting.done()`"
        elif name is not None and name in self._own_names:
            wait, threads = (
                f"`{name}.wait()`",
                f"let a thread wait: `waiting = ThreadPoolExecutor(1).submit({name}.wait)`",
            )
            ask = "`waiting.done()`"
        else:
            wait = "wait() of each of these Works (`for work in works: work.wait()`)"
            threads = "let threads wait: `waiting = [pool.submit(work.wait) for work in works]`"
            ask = "`done()` of each"
        return (
            f"Call {wait} in place of the loop of line {self.at.line}. To work until then, {threads}, and ask {ask} in "
            "the loop. With gloo, is_completed() of a send or receive is False until its wait() has returned "
            f"({_ISSUE}); only Works of collectives can be polled."
        )

    @property
    def _own_names(self) -> set[str | None]:
        """The variables that the loop asks as they are, and that no part of its own goes through."""
        inside = {
            variable(part)
            for item in nodes_of(self.loop.loop)
            if isinstance(item, (ast.For, ast.comprehension))
            for part in nodes_of(item.target)
        }
        return {variable(item) for item in self.loop.objects} - inside


def polled_works(job: JobView) -> list[PolledWork]:
    """Of the ranks whose main thread was in such a loop long after the other rank had made its call."""
    found = (_polled_work(job, view) for view in job.views)
    return [item for item in found if item is not None]


def polling(job: JobView) -> set[int]:
    """The places of these ranks among the processes."""
    return {item.view.index for item in polled_works(job)}


def _polled_work(job: JobView, view: ProcessView) -> PolledWork | None:
    if view.process.role != "rank" or view.raised or view.is_fault:
        return None
    waiting = [item for item in view.process.snapshot.collectives if state_of(view.process, item) in UNFINISHED]
    if not waiting or any(not item.point_to_point or item.backend != _GLOO for item in waiting):
        return None  # which of them the loop asks is not known
    frames = program_stack(view)
    slice_, answers = Slice(view.process.snapshot, frames), _answers(program_files(view.process.snapshot, frames))
    for depth, frame in enumerate(frames):
        spot = slice_.spot(depth)
        loop = polling_loop(spot.scope, spot.line, _ASKED, answers) if spot is not None else None
        if spot is None or loop is None:
            continue
        head = PythonFrame(file=frame.file, function=qualified_name(spot.tree, spot.scope), line=loop.loop.lineno)
        asked = [_object(item, spot, answers) for item in loop.asked]
        made = [item for node, at in asked for item in makers(slice_, node, at, _BEGIN)]
        found = next(_of_loop(job, view, loop, head, made, waiting), None)
        by = next((answers[name] for item in loop.asked if (name := called_name(item) or "") in answers), None)
        return structs.replace(found, answer=by) if found is not None else None
    return None


def _answers(files: Mapping[str, ast.Module]) -> dict[str, Spot]:
    """The functions that return what is_completed() of an object does, by their name, at their `return`."""
    functions = [
        (file, tree, item)
        for file, tree in files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.FunctionDef)
    ]
    named = Counter(item.name for _, _, item in functions)
    return {
        item.name: Spot(file, tree, item, asked.lineno)
        for file, tree, item in functions
        if named[item.name] == 1 and (asked := answer_of(item, _ASKED)) is not None
    }


def _object(call: ast.Call, spot: Spot, answers: Mapping[str, Spot]) -> tuple[ast.expr, Spot]:
    """What is asked, and where: of a function that answers, in that."""
    inside = answers.get(called_name(call) or "")
    asked = (
        answer_of(inside.scope, _ASKED) if inside is not None and isinstance(inside.scope, ast.FunctionDef) else None
    )
    at = structs.replace(spot, line=call.lineno)
    if inside is not None and asked is not None:
        return asked, structs.replace(inside, call=(call, at))
    return (call.func.value if isinstance(call.func, ast.Attribute) else call.func), at


def _of_loop(
    job: JobView,
    view: ProcessView,
    loop: PollingLoop,
    head: PythonFrame,
    made: Sequence[tuple[ast.Call, Spot]],
    waiting: Sequence[Collective],
) -> Iterator[PolledWork]:
    """`made`: the calls that began what the loop asks; `waiting`: the rank's sends and receives that are not done."""
    for call in waiting:
        place, other = place_of(call), counterpart(job, view, call)
        begins = next((item for item, spot in made if place is not None and _is_at(item, spot, place)), None)
        if begins is None or place is None or other is None:
            continue
        peer, met = other
        lasted = min(waited_ns(view, call), _since(view, peer, met))
        if lasted >= STOOD_NS:
            yield PolledWork(view, loop, head, called_name(begins) or "", place, call, peer, met, lasted)


def _is_at(call: ast.Call, spot: Spot, place: PythonFrame) -> bool:
    return spot.file == place.file and place.line is not None and spans(call, place.line)


def _since(view: ProcessView, peer: ProcessView, met: Collective) -> int:
    """How long before the end of the one the other had made its call."""
    begun = peer.clock.relative(met.started_ns or met.scheduled_ns or 0) if met.started_ns or met.scheduled_ns else None
    return view.ended_ns - begun if view.ended_ns is not None and begun is not None else 0
