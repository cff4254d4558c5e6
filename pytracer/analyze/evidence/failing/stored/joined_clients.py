"""A store that waited for more processes than came: the line that computes how many, and the numbers it takes."""

from __future__ import annotations

import ast

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value

_JOINED = Pattern(r"(\d+)/(\d+) clients joined")
_STORES = {"TCPStore": 2}  # the place of world_size (torch 2.13)
_LONGEST = 70  # characters of an expression
_SIZES = ("world_size", "num_workers")


class _Counted(msgspec.Struct, frozen=True):
    """`place`, `text`: the line that makes the number, and how; `numbers`: those of the program that it takes."""

    place: str
    text: str
    numbers: tuple[str, ...]


def clients_joined(at: FailingLine) -> str | None:
    """A store that waited for the others."""
    found = _JOINED.search(at.message)
    if found is None:
        return None
    came, wanted, counted = found[1], found[2], _counted(at)
    if counted is None:
        return (
            f"{came} of {wanted} processes came: start all {wanted} (torchrun, or one with each RANK), with the "
            f"same MASTER_ADDR and MASTER_PORT, or correct world_size, where line {at.line} takes it from."
        )
    numbers = f" ({'; '.join(counted.numbers)})" if counted.numbers else ""
    all_came = _size_of_job(at) == int(came)
    these = ", as many as this job has" if all_came else ""
    start = f"or start {wanted} processes" if all_came else f"or start all {wanted}, with the same address and port"
    return (
        f"{came} of {wanted} processes came{these}: {counted.place} (`{counted.text}`) computes {wanted}{numbers}. "
        f"Correct the number that counts a process which is not started, {start}."
    )


def clients_subject(at: FailingLine) -> str | None:
    """For the headline, where the line is known that computes how many."""
    found, counted = _JOINED.search(at.message), _counted(at)
    if found is None or counted is None:
        return None
    numbers = f" ({'; '.join(counted.numbers)})" if counted.numbers else ""
    job = f", and this job has {found[1]} processes" if _size_of_job(at) == int(found[1]) else ""
    return f"{counted.place} (`{counted.text}`) counts {found[2]}{numbers}{job}"


def _counted(at: FailingLine) -> _Counted | None:
    """Where an expression of the program makes the number that the store was given."""
    found, call = _JOINED.search(at.message), at.only(ast.Call)
    if found is None or call is None or called_name(call) not in (*_STORES, "init_process_group"):
        return None
    place = _STORES.get(called_name(call) or "")
    node = keyword_value(call, *_SIZES)
    if node is None and place is not None and len(call.args) > place:
        node = call.args[place]
    spot = at.slice.spot(0)
    made = at.slice.made(node, spot, calls=True) if node is not None and spot is not None else None
    if made is None or not isinstance(made.node, ast.BinOp):
        return None
    known = at.evaluated(made.node, made.spot)
    if known is not None and known != int(found[2]):
        return None  # another value reached the line
    numbers = tuple(at.shown(item) for item in at.constants(made.node, made.spot)) if known is not None else ()
    return _Counted(str(at.place(made.spot, made.line)), shortened(ast.unparse(made.node), _LONGEST), numbers)


def _size_of_job(at: FailingLine) -> int | None:
    """As the launcher started it."""
    given = at.snapshot.environment.get("WORLD_SIZE", "")
    return int(given) if given.isdigit() else None
