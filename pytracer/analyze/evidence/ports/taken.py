"""The port that a server was refused, and what had it, as the recorder wrote it beside the variables of the line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from pytracer._patterns import Pattern
from pytracer.report.job import VariableReport

_PREFIX = "taken port"
_DIGITS = 20
_REFUSED = Pattern(  # as in record/torch/taken_port.py
    r"EADDRINUSE|[Aa]ddress (?:is )?already in use|[Ff]ailed to bind to address|[Pp]ort \d+ is.* in use"
    r"|\[Errno 98\]|errno: 98\b"
)


class Holder(msgspec.Struct, frozen=True):
    """A process that has the socket. `count`: with those that it was forked into, or that forked it."""

    pid: int
    start_ticks: int
    parent: int
    seconds: int
    program: str | None
    count: int = 1


class TakenPort(msgspec.Struct, frozen=True):
    """`state`: "listening", "connected", "closing" (TIME_WAIT) or "free", when the exception had reached the top.

    "free": a socket that is bound and does not listen is not seen. `user`: the uid of whoever made the socket.
    `holder`: None where none is seen, or `count` processes have it that are no parents and children.
    """

    port: int
    state: str
    user: int | None = None
    closing: int = 0
    holder: Holder | None = None
    count: int = 0


def speaks_of_refusal(message: str | None) -> bool:
    """Whether it says that an address is in use."""
    return _REFUSED.search(message or "") is not None


def taken_port(variables: Iterable[VariableReport] | None) -> TakenPort | None:
    """None for other exceptions, and where the recorder could not find the port or read the machine's sockets."""
    facts = {
        item.name.removeprefix(_PREFIX).lstrip(): item.value
        for item in variables or ()
        if item.name and item.value and item.name.startswith(_PREFIX)
    }
    port, state = _number(facts, ""), facts.get("state")
    if port is None or state is None:
        return None
    closing, count = _number(facts, "closing") or 0, _number(facts, "holder count") or 0
    return TakenPort(port, state, _number(facts, "user"), closing, _holder(facts), count)


def _holder(facts: Mapping[str, str]) -> Holder | None:
    numbers = [_number(facts, f"holder {name}") for name in ("pid", "start", "parent", "seconds")]
    pid, start, parent, seconds = numbers
    if pid is None or start is None or parent is None or seconds is None:
        return None
    return Holder(pid, start, parent, seconds, facts.get("holder program"), _number(facts, "holder count") or 1)


def _number(facts: Mapping[str, str], name: str) -> int | None:
    text = facts.get(name, "")
    return int(text) if len(text) <= _DIGITS and text.isascii() and text.isdecimal() else None
