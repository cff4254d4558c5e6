"""A message of a rank to itself: gloo has no connection for it, and send() and recv() of torch refuse it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, keyword_value
from pytracer.analyze.evidence.syntax.names import names_of, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_of_rank
from pytracer.analyze.evidence.syntax.scopes import function_named, own_nodes
from pytracer.analyze.naming import LineWords
from pytracer.decode.types.snapshot import Collective, Snapshot

# torch 2.13, _check_not_self_rank() of distributed_c10d.py
_REFUSED = Pattern(r"Invalid (?:destination|source) rank: \w+ rank should not be the same as the rank of the current")
_NAMES = frozenset({"send", "recv", "isend", "irecv", "send_object_list", "recv_object_list"})
_C10D = "/torch/distributed/distributed_c10d.py"
_PEERS = ("dst", "src", "peer", "group_dst", "group_src", "group_peer")
_MOST = 40
_CLAMPS = {"max": "first", "min": "last"}
_BOUNDS = 2
_LAST = ("size - 1", "world - 1", "size() - 1", "ranks - 1", "world_size() - 1")  # not of stages or groups


class _Message(msgspec.Struct, frozen=True):
    """The calls that name the rank itself, the expression by which they do, and where its value came from."""

    calls: tuple[ast.Call, ...]
    peer: ast.expr

    @property
    def line(self) -> int:
        """The first of them."""
        return self.calls[0].lineno

    @property
    def kinds(self) -> set[str]:
        """`send`, `recv`."""
        return {_kind(item) for item in self.calls}


def message_to_itself(at: FailingLine) -> str | None:
    """The peer, the line that made it, and what to do in place of a message."""
    if not _fails_so(at):
        return None
    found = _found(at)
    if found is None:
        return (
            f"A rank cannot send to itself or receive from itself, and line {at.line} names its own rank as the peer: "
            "print the peer on each rank. Copy the tensor where the peer is the rank itself, or use at least two ranks."
        )
    peer, own = source(found.peer), _own_rank_call(found)
    name = variable(found.peer)
    by = _modulo_one(at, found.peer)
    why = f" {by}" if by is not None else ""
    came = at.came(name) if name is not None else ""
    ends = _clamped(at, found.peer) if by is None else None
    if ends is not None:
        return (
            f"{_lines(found)} `{peer}` as the peer{came}, which is this rank itself: {ends}. Leave the message out on "
            f"that rank: `if {peer} != {own}:`."
        )
    return (
        f"{_lines(found)} `{peer}` as the peer{came}, which is this rank itself: "
        f"a rank cannot {_verbs(found)} itself.{why} Where `{peer} == {own}`, copy the tensor in place of the message "
        "(`received.copy_(sent)`); or use at least two ranks along that way."
    )


def itself_subject(at: FailingLine) -> str | None:
    """For the headline."""
    if not _fails_so(at):
        return None
    found = _found(at)
    if found is None:
        return "the peer of that message is the rank itself"
    line = f" at {at.here(found.line)}" if found.line != at.line else ""
    return f"`{source(found.peer)}`, the peer of its message{line}, is the rank itself"


def itself_behind(at: FailingLine) -> Behind | None:
    """The peer, and the lines that name it."""
    found = _found(at) if _fails_so(at) else None
    if found is None:
        return None
    lines = [(at.frame.file, item.lineno) for item in found.calls[:1]]
    return Behind.of([source(found.peer)], *lines, _modulo_one(at, found.peer))


def _fails_so(at: FailingLine) -> bool:
    return _REFUSED.match(at.message) is not None or _last_is_own(at)


def _last_is_own(at: FailingLine) -> bool:
    """Whether the last message that the process began, at that line, failed, and was one to itself."""
    below = at.stack[: at.stack.index(at.frame)]
    if not any(frame.function in _NAMES and (frame.file or "").endswith(_C10D) for frame in below):
        return False
    calls = at.snapshot.collectives
    last = calls[-1] if calls else None
    if last is None or not last.point_to_point or last.state != "failed" or not is_to_itself(at.snapshot, last):
        return False
    return last.place is not None and (last.place.file, last.place.line) == (at.frame.file, at.frame.line)


def is_to_itself(snapshot: Snapshot, call: Collective) -> bool:
    """Whether the peer of a message is the rank that sends or receives it."""
    groups = [group for group in snapshot.own_groups if group.name == call.group and group.own_rank is not None]
    return len(groups) == 1 and call.peer is not None and call.peer == groups[0].own_rank


def _found(at: FailingLine) -> _Message | None:
    """The calls of the line, else the P2POp of its function, whose peer has the value of the rank."""
    own = _own_rank(at)
    named = [(item, peer) for item in calls_on(at.tree, at.line) if (peer := _peer(item)) is not None]
    if len(named) == 1:
        return _Message((named[0][0],), named[0][1])
    built = [item for item in own_nodes(at.scope) if isinstance(item, ast.Call) and called_name(item) == "P2POp"]
    pairs = [(item, peer) for item in built if (peer := _peer(item)) is not None]
    known = {at.value(peer) for _, peer in pairs}
    if len({ast.unparse(peer) for _, peer in pairs}) != 1 or known != {None}:
        pairs = [(item, peer) for item, peer in pairs if own is not None and at.value(peer) == str(own)]
    first = pairs[0][1] if pairs else None
    if first is None:
        return None
    return _Message(tuple(item for item, peer in pairs if ast.unparse(peer) == ast.unparse(first)), first)


def _own_rank(at: FailingLine) -> int | None:
    """Its rank in the group of the last message, as the whole job numbers it."""
    calls = at.snapshot.collectives
    group = next((item for item in at.snapshot.own_groups if calls and item.name == calls[-1].group), None)
    if group is None or group.own_rank is None:
        return None
    return group.ranks[group.own_rank] if group.ranks and group.own_rank < len(group.ranks) else group.own_rank


def _peer(call: ast.Call) -> ast.expr | None:
    name = called_name(call)
    if name not in _NAMES and name != "P2POp":
        return None
    named = keyword_value(call, *_PEERS)
    place = 2 if name == "P2POp" else 1
    spread = any(isinstance(item, ast.Starred) for item in call.args)
    return named or (call.args[place] if place < len(call.args) and not spread else None)


def _kind(call: ast.Call) -> str:
    name = called_name(call) or ""
    if name == "P2POp" and call.args:
        name = ast.unparse(call.args[0])
    return "recv" if "recv" in name else "send"


def _verbs(found: _Message) -> str:
    words = {"send": "send to", "recv": "receive from"}
    return " or ".join(words[kind] for kind in ("send", "recv") if kind in found.kinds)


def _lines(found: _Message) -> str:
    lines = sorted({item.lineno for item in found.calls})
    if len(lines) == 1:
        return f"Line {lines[0]} names"
    return f"Lines {', '.join(str(line) for line in lines[:-1])} and {lines[-1]} name"


def _own_rank_call(found: _Message) -> str:
    """`dist.get_rank()`; of a group, too, as peers are numbers of the whole job."""
    call = found.calls[0]
    of_group = any(item.arg in ("group_dst", "group_src", "group_peer") for item in call.keywords)
    group = keyword_value(call, "group")
    return f"dist.get_rank({source(group)})" if of_group and group is not None else "dist.get_rank()"


def _modulo_one(at: FailingLine, peer: ast.expr) -> LineWords | None:
    """`` It comes from `col % self.cols` (line 16), where `grid.cols` was 1. ``: a ring of one, if that is recorded."""
    spot = at.slice.spot(0)
    recorded = [*at.values.items(), *(item for values in at.outer.values() for item in values.items())]
    for node, place in _reached(at, peer, spot) if spot is not None else ():
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mod):
            continue
        size = ast.unparse(node.right)
        last = size.rpartition(".")[2]
        name = next((name for name, value in recorded if value == "1" and name.rpartition(".")[2] == last), None)
        if size.isdigit() or name is None:
            continue
        words = f"It comes from `{source(node)}` ({at.place(place, node.lineno)}), where `{name}` was 1."
        return LineWords(words, place.file, node.lineno)
    return None


def _clamped(at: FailingLine, peer: ast.expr) -> str | None:
    """`` `max(rank - 1, 0)` (line 12) gives the first rank itself, which has no neighbour on that side ``."""
    spot = at.slice.spot(0)
    for node, place in _reached(at, peer, spot) if spot is not None else ():
        if not isinstance(node, ast.Call) or called_name(node) not in _CLAMPS or len(node.args) != _BOUNDS:
            continue
        which = _CLAMPS[called_name(node) or ""]
        bounds = [item for item in node.args if not is_of_rank(item)]
        end = source(bounds[0]) if len(bounds) == 1 else ""
        if (end == "0" if called_name(node) == "max" else end.endswith(_LAST)) and _is_end(at, which):
            where = at.place(place, node.lineno)
            return f"`{source(node)}` ({where}) gives the {which} rank itself, which has no neighbour on that side"
    return None


def _is_end(at: FailingLine, which: str) -> bool:
    """Whether this is that rank: of another one, the value has another reason."""
    own, sizes = _own_rank(at), {len(item.ranks) for item in at.snapshot.own_groups if item.ranks}
    return own is not None and (own == 0 if which == "first" else own + 1 == max(sizes, default=0))


def _reached(at: FailingLine, peer: ast.expr, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
    """What a value can be computed from: its own parts, its variables, what functions of the file return."""
    waiting: list[tuple[ast.AST, Spot]] = [(peer, spot)]
    seen: set[int] = set()
    while waiting and len(seen) < _MOST:
        node, place = waiting.pop(0)
        made = at.slice.made(node, place, calls=False)
        if id(made.node) in seen:
            continue
        seen.add(id(made.node))
        for item in nodes_of(made.node):
            yield item, made.spot
            function = function_named(made.spot.tree, called_name(item) or "") if isinstance(item, ast.Call) else None
            for part in own_nodes(function) if function is not None else ():
                if isinstance(part, ast.Return) and part.value is not None:
                    inside = Spot(made.spot.file, made.spot.tree, function, part.lineno)  # type: ignore[arg-type]
                    waiting.append((part.value, inside))
        for name in names_of(made.node):
            waiting += [(value, made.spot) for _, value, _ in bindings_of(made.spot.scope, name) if value is not None]
