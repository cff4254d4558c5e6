"""Sends and receives that do not meet: how many each side called, and what makes their number differ."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence

from pytracer._patterns import Pattern
from pytracer._text import capital, count_words, list_words
from pytracer.analyze.collectives.call_sites import Site, calls_by_site, site_of
from pytracer.analyze.collectives.description import at_place, place_of
from pytracer.analyze.collectives.rank_value_words import differing_advice
from pytracer.analyze.collectives.rank_values import Compared, passed_argument
from pytracer.analyze.collectives.rounds import leaver_words
from pytracer.analyze.collectives.wait_graph import Wait
from pytracer.analyze.collectives.ways import Side, quoted, way_to
from pytracer.analyze.deaths.attribution import views_of
from pytracer.analyze.evidence.failing.expressions import short
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.leaving import obstacles
from pytracer.analyze.evidence.syntax.lines import names_of_line
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import PythonFrame

_PAIR = 2
_LEAST_ANSWERS = 2
_RANK = Pattern(r"rank|is_(?:\w+_)?(?:first|last|main)|stage", re.IGNORECASE)


def counted(wait: Wait) -> str | None:
    """`rank 0 was at message 3 from rank 1, which had sent 2`; None where the numbers do not differ so."""
    if wait.counts is None or wait.tags is not None or wait.counts[0] <= wait.counts[1]:
        return None
    nth, theirs = wait.counts
    way, done = ("from", "sent") if wait.call.op == "recv" else ("to", "received")
    return (
        f"rank {wait.waiters[0]} was at message {nth} {way} rank {wait.targets[0]}, which had {done} {theirs or 'none'}"
    )


def counted_there(wait: Wait) -> str | None:
    """The same behind the name of the wait: `message 3, rank 1 had sent 2`."""
    if counted(wait) is None or wait.counts is None:
        return None
    nth, theirs = wait.counts
    done = "sent" if wait.call.op == "recv" else "received"
    return f"message {nth}, rank {wait.targets[0]} had {done} {theirs or 'none'}"


def number_advice(job: JobView, wait: Wait) -> str | None:
    """What to do where one side makes one message more, by the lines of both."""
    said = counted(wait)
    if said is None:
        return None
    return message_reason(job, wait) or (
        f"{capital(said)}{_last_words(wait)}: compare how often each side comes to its line (rounds, an early return, "
        f"a branch on the rank), and see what rank {wait.targets[0]} did instead."
    )


def message_reason(job: JobView, wait: Wait) -> str | None:
    """The same, as far as something on the way to the lines may make the difference."""
    said = counted(wait)
    if said is None:
        return None
    found = next((words for view in views_of(job, wait.waiters) for words in _by_rank(view, wait.call)), None)
    if found is not None:
        return (
            f"{found}: {said}{_last_words(wait)}. A round has a message on one side only: make both sides depend on "
            "the same."
        )
    views = views_of(job, wait.targets[:1])
    way = next((text for view in views for text in _obstacle(view, wait.other)), None)
    if way is None:
        return None
    return (
        f"{capital(said)}{_last_words(wait)}, {way}: see whether that left one out. Let the other side know of it: "
        "leave it out on both, or send an empty one."
    )


def _last_words(wait: Wait) -> str:
    other = wait.other
    return f", the last one{at_place(other)}" if other is not None and place_of(other) is not None else ""


def left_out_advice(there: Side, absent: Side, wait: Wait) -> str | None:
    """Of a rank in a collective, and one in a message that has called it once less: it may have left it out."""
    counts = [calls_by_site(side.view, there.call.group) for side in (there, absent)]
    site, at = site_of(there.call), place_of(absent.call)
    others = _calls_from(absent.view, there.call, site)
    if site is None or at is None or counts[0] is None or others is None or counts[0][site] != others + 1:
        return None
    said = counted(wait)
    message, own = line_in(at.file, at.line or 0, site[0]), counts[0][site]
    fewer = count_words(others, "time") if others else "never"
    first = f"{capital(said)}{_last_words(wait)}. " if said is not None else ""
    return (
        f"{first}{capital(there.name)} has called the {there.call.op} of line {site[2]} {count_words(own, 'time')}, "
        f"{absent.name} {fewer}: either {absent.name} passed it by and is in the next round at "
        f"{message} (an empty loop, a branch on the rank, an early return), or a round has a message more on one side. "
        "Print on both ranks, before each of the two lines, the round and what is called."
    )


def _calls_from(view: ProcessView, call: Collective, site: Site | None) -> int | None:
    """How often a rank called from a line, none where it never did; None where its calls are not all recorded."""
    items = view.process.snapshot.collectives
    whole = bool(items) and items[0].number == 1
    return sum(site_of(item) == site for item in items if item.group == call.group) if whole else None


def _obstacle(view: ProcessView, call: Collective | None) -> Iterator[str]:
    """`which is not reached after `if not batch` (line 14, which leaves)`: of a line that is in a loop."""
    frame = place_of(call) if call is not None else None
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame is None or frame.line is None or not loops_around(tree, frame.line):
        return
    inside = loops_around(tree, frame.line)[-1].lineno
    for item in obstacles(tree, frame.line):
        if item.line > inside:
            yield f"which is {item.words}"


def unanswered_advice(job: JobView, waits: Sequence[Wait]) -> str | None:
    """Of two ranks that both wait to receive: the one that answered all messages of the other but one, and went on."""
    if len(waits) != _PAIR or any(wait.call.op != "recv" or wait.counts is None for wait in waits):
        return None
    for wait in waits:
        rank, peer = wait.waiters[0], wait.targets[0]
        view = next(iter(views_of(job, [rank])), None)
        calls = _between(view, wait) if view is not None else []
        left_out = _unanswered(calls)
        if view is None or left_out is None:
            continue
        number, answer = left_out
        frame = place_of(answer)
        leaver = leaver_words(view.process.snapshot, frame) if frame is not None else None
        why = f": see whether {leaver} left it out" if leaver is not None else ""
        return (
            f"Rank {rank} answered each message of rank {peer}{at_place(answer)}, but not number {number}: it went on "
            f"to receive the next one{why}. Answer in every round, with zeros or a flag where there is nothing to send."
        )
    return None


def never_sent_advice(waits: Sequence[Wait]) -> str | None:
    """Of a circle: the one rank that waits for a first message which its peer has never sent, as the others have."""
    first = [wait for wait in waits if wait.call.op == "recv" and wait.counts is not None and wait.counts == (1, 0)]
    others = [wait for wait in waits if wait not in first]
    if len(first) != 1 or not others or any(wait.counts is None or not wait.counts[1] for wait in others):
        return None
    rank, peer = first[0].waiters[0], first[0].targets[0]
    return (
        f"Rank {rank} waits{at_place(first[0].call)} for its first message from rank {peer}, which has never sent one "
        f"to it; the others wait because of that. Compare what both take for their neighbours: either rank {peer} must "
        f"send to rank {rank}, too, or rank {rank} must not receive from it."
    )


def _between(view: ProcessView, wait: Wait) -> list[Collective]:
    """The messages of one rank to and from another one in a group, up to the one that it waits in."""
    items = view.process.snapshot.collectives
    own = [item for item in items if item.point_to_point and item.group == wait.call.group]
    return [item for item in own if item.peer == wait.call.peer and item.number <= wait.call.number]


def _unanswered(calls: Sequence[Collective]) -> tuple[int, Collective] | None:
    """The number of the received message, and the last answer; None unless receive and answer take turns otherwise."""
    ops = [item.op for item in calls]
    missing = [n for n, pair in enumerate(itertools.pairwise(ops)) if pair == ("recv", "recv")]
    answers = [item for item in calls if item.op == "send"]
    if len(missing) != 1 or len(answers) < _LEAST_ANSWERS or ops[0] != "recv":
        return None
    (at,) = missing
    whole = [*ops[: at + 1], "send", *ops[at + 1 :]]
    turns = all(op == ("recv", "send")[n % 2] for n, op in enumerate(whole))
    return (ops[: at + 1].count("recv"), answers[-1]) if turns else None


def tag_advice(job: JobView, wait: Wait) -> str:
    """The two lines that name the tags."""
    sides = [(wait.waiters[0], wait.call), (wait.targets[0], wait.other)]
    sides.sort(key=lambda side: side[1] is None or side[1].op != "send")
    lines = []
    for rank, call in sides:
        frame = place_of(call) if call is not None else None
        for view in views_of(job, [rank]) if frame is not None and frame.line is not None else []:
            text = quoted(view.process.snapshot, frame, frame.line or 0) if frame is not None else None
            lines += [f"line {frame.line} ({text})"] if text is not None and frame is not None else []
    known = _differing_tag(job, wait)
    if known is not None:
        return known
    if len(lines) < 2:
        return "Use the same tag on both sides."
    return (
        f"Make {list_words(lines)} count alike: both sides of a message need the same tag. Between two ranks messages "
        "come in the order in which they were sent, so that most programs need no tag."
    )


def _differing_tag(job: JobView, wait: Wait) -> str | None:
    views = views_of(job, [wait.waiters[0], wait.targets[0]])
    if len(views) < 2 or wait.other is None:
        return None
    sides = sorted(zip(views, (wait.call, wait.other), strict=True), key=lambda side: side[0].process.rank or 0)
    (one, call), (other, answer) = sides
    passed = [
        passed_argument(compared, ("tag",), item.op)
        for compared, item in ((Compared(one, call, other, answer), call), (Compared(other, answer, one, call), answer))
    ]
    texts = {ast.unparse(item[0]) if item is not None else None for item in passed}
    if len(texts) > 1:
        return None  # the lines compute it in different ways: no value of one is meant to be equal
    tags = str(call.tag or 0), str(answer.tag or 0)
    return differing_advice((sides[0], sides[1]), ("tag",), tags)


def _by_rank(view: ProcessView, call: Collective) -> Iterator[str]:
    """What depends on the rank on the way to a call, beside the branch that makes a rank send or receive."""
    snapshot = view.process.snapshot
    for frame in reversed(way_to(view, call)):
        tree = syntax_tree(snapshot, frame)
        if tree is None or frame.line is None:
            continue
        for loop in reversed(loops_around(tree, frame.line)):
            head = loop.test if isinstance(loop, ast.While) else loop.iter
            if _RANK.search(ast.unparse(head)):
                text = quoted(snapshot, frame, loop.lineno)
                yield f"The rounds of line {loop.lineno}{f' ({text})' if text is not None else ''} depend on the rank"
            told = _function_by_rank(tree, head)
            if told is not None:
                text = f"{quoted(snapshot, frame, loop.lineno)}"
                yield f"The rounds of line {loop.lineno} ({text}) depend on the rank, by {told}"
        for name in names_of_line(tree, frame.line):
            line = _chosen_by_rank(tree, frame, name)
            if line is not None:
                yield f"`{name}` is chosen by the rank at line {line} ({quoted(snapshot, frame, line)})"


def _function_by_rank(tree: ast.Module, head: ast.expr) -> str | None:
    """`` line 16 (`return 6 if rank == 0 else 5`) ``: of the function in the file that the head of a loop calls."""
    for item in nodes_of(head):
        name = called_name(item) if isinstance(item, ast.Call) else None
        found = [part for part in nodes_of(tree) if isinstance(part, ast.FunctionDef) and part.name == name]
        for part in own_nodes(found[0]) if len(found) == 1 else ():
            if isinstance(part, ast.Return) and part.value is not None and _RANK.search(ast.unparse(part.value)):
                return f"line {part.lineno} (`{short(ast.unparse(part))}`)"
    return None


def _chosen_by_rank(tree: ast.Module, frame: PythonFrame, name: str) -> int | None:
    """The line of `name = a if rank == 0 else b` above, or of an assignment below such an `if`."""
    if frame.line is None:
        return None
    for item in own_nodes(scope_of(tree, frame.line)):
        if not isinstance(item, ast.Assign) or item.lineno >= frame.line:
            continue
        if not any(isinstance(part, ast.Name) and part.id == name for part in item.targets):
            continue
        tests = [part.test for part in nodes_of(item.value) if isinstance(part, ast.IfExp)]
        if any(_RANK.search(ast.unparse(test)) for test in tests):
            return item.lineno
    return None
