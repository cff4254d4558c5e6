"""A message that a rank waits for and that its sender never sends: its line is below a condition, or a loop too short.

`if len(rows): dist.send(rows, dst=0)` sends nothing for an empty part; `for rank in range(1, world - 1)` leaves out the
last rank.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.behind import Place
from pytracer.analyze.collectives.wait_graph import Wait
from pytracer.analyze.deaths.attribution import views_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.leaving import obstacles
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.outcomes import number
from pytracer.analyze.evidence.syntax.ranks import is_rank
from pytracer.analyze.evidence.syntax.scopes import qualified_name, scope_of
from pytracer.analyze.evidence.waits.waits import program_stack
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import JobView, ProcessView

_SENDS = ("send", "isend")
_WORLD = Pattern(
    r"(\w+\.)*get_world_size\(\)|int\((\w+\.)?(environ\[.WORLD_SIZE.\]|(getenv|environ\.get)\(.WORLD_SIZE.[^()]*\))\)"
)  # itself: half of it, or one less, is another number
_DISTRIBUTED = Pattern(r"/torch/distributed/")
_LONGEST, _MOST = 60, 64


class UnsentMessage(msgspec.Struct, frozen=True):
    """`subject`: for the headline; `advice`: what to change."""

    subject: str
    advice: str
    places: tuple[Place, ...]


class _Send(msgspec.Struct, frozen=True):
    file: str
    tree: ast.Module
    call: ast.Call
    to: ast.expr


def unsent_message(job: JobView, wait: Wait) -> UnsentMessage | None:
    """Of a receive; None where several lines may send such a message, on several ways."""
    if wait.call.op != "recv" or len(wait.targets) != 1:
        return None
    receiver, sender = wait.waiters[0], wait.targets[0]
    for view in views_of(job, [sender]):
        sends = [*_sends(view)]
        frame = wait.call.caller or wait.call.python
        here = frame.file if frame is not None else None
        short = next((found for item in sends if (found := _short_loop(job, view, item, receiver, here))), None)
        only = len(sends) == 1 and not _sends_otherwise(view) and not _is_at_work(view)
        return short or (_below_test(view, sends[0], receiver, here) if only else None)
    return None


def _sends(view: ProcessView) -> Iterator[_Send]:
    for file, tree in program_files(view.process.snapshot, program_stack(view)).items():
        for item in nodes_of(tree):
            to = argument_at(item, 1, "dst") if isinstance(item, ast.Call) and called_name(item) in _SENDS else None
            if isinstance(item, ast.Call) and to is not None:
                yield _Send(file, tree, item, to)


def _is_at_work(view: ProcessView) -> bool:
    """Whether it was in no call of torch.distributed: it may have been on its way to the line that sends."""
    stack = view.python_stack or ()
    return bool(stack) and not any(_DISTRIBUTED.search(item.file or "") for item in stack)


def _sends_otherwise(view: ProcessView) -> bool:
    """By `P2POp(dist.isend, ...)`, say: whoever names such a function without a call of it."""
    trees = program_files(view.process.snapshot, program_stack(view)).values()
    nodes = [item for tree in trees for item in nodes_of(tree)]
    called = {id(item.func) for item in nodes if isinstance(item, ast.Call)}
    named = (item for item in nodes if isinstance(item, (ast.Attribute, ast.Name)) and last_name(item) in _SENDS)
    return any(id(item) not in called for item in named)


def _below_test(view: ProcessView, send: _Send, receiver: int, here: str | None) -> UnsentMessage | None:
    """The only line that sends, below a condition of the sender's data."""
    found = [item for item in obstacles(send.tree, send.call.lineno) if not _is_of_rank(send.tree, item.line)]
    if not found or not isinstance(send.to, ast.Constant) or send.to.value != receiver:
        return None
    test, rank = found[0], view.process.rank
    line = _quoted(send, here)
    return UnsentMessage(
        f"the only line that sends to rank {receiver}, {line}, is {test.words}",
        f"Let rank {rank} send in each round: on the other way of line {test.line}, too, an empty or neutral tensor; "
        f"or first how many rows follow, which rank {receiver} looks at before it receives them.",
        ((send.file, send.call.lineno), (send.file, test.line)),
    )


def _is_of_rank(tree: ast.Module, line: int) -> bool:
    """`if rank == 0`: that is how the ranks share the work."""
    tests = [item.test for item in nodes_of(tree) if isinstance(item, ast.If) and item.lineno == line]
    return any(is_rank(part) for test in tests for part in nodes_of(test))


def _short_loop(job: JobView, view: ProcessView, send: _Send, receiver: int, here: str | None) -> UnsentMessage | None:
    """A loop over ranks that the sender has left, and that did not come to the receiver."""
    loops = [item for item in loops_around(send.tree, send.call.lineno) if isinstance(item, ast.For)]
    loop = loops[-1] if loops else None
    if loop is None or ast.unparse(loop.target) != ast.unparse(send.to) or not isinstance(loop.iter, ast.Call):
        return None
    scope = scope_of(send.tree, loop.lineno)
    frames = program_stack(view)
    depth = next((at for at, frame in enumerate(frames) if frame.file == send.file and frame.line is not None
                  and scope_of(send.tree, frame.line) is scope), None)  # fmt: skip
    spot = Slice(view.process.snapshot, frames).spot(depth) if depth is not None else None
    if depth is None or spot is None or (frames[depth].line or 0) <= (loop.end_lineno or 0):
        return None
    world = len(job.job.ranks)
    ranks = _ranks(Slice(view.process.snapshot, frames), loop.iter, spot, world)
    if ranks is None or receiver in ranks:
        return None
    line = line_in(send.file, loop.lineno, here).quoted(shortened(f"for {ast.unparse(loop.target)} in "
                                                                  f"{ast.unparse(loop.iter)}", _LONGEST))  # fmt: skip
    to = f"rank {list_words([str(item) for item in ranks])}" if ranks else "no rank"
    name = qualified_name(send.tree, scope)
    return UnsentMessage(
        f"the loop of {line} in {name} sends to {to} only, of {world} ranks",
        f"Let the loop of {line} come to rank {receiver}, too: the end of a range() is left out, so "
        f"`range(1, world)` is all ranks but the first.",
        ((send.file, loop.lineno), (send.file, send.call.lineno)),
    )


def _ranks(slice_: Slice, call: ast.Call, spot: Spot, world: int) -> list[int] | None:
    """Those of `range(1, world - 1)`."""
    if called_name(call) != "range" or call.keywords:
        return None

    def value_of(node: ast.expr) -> str | None:
        made = ast.unparse(slice_.made(node, spot, calls=False).node)
        return str(world) if _WORLD.fullmatch(made) else None

    bounds = [number(item, value_of) for item in call.args]
    if any(not isinstance(item, int) for item in bounds):
        return None
    found = range(*(item for item in bounds if isinstance(item, int)))
    return [*found] if len(found) <= _MOST else None


def _quoted(send: _Send, here: str | None) -> LineWords:
    return line_in(send.file, send.call.lineno, here).quoted(shortened(ast.unparse(send.call), _LONGEST))
