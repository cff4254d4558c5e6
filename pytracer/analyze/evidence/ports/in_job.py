"""A port that a process of the job itself has: by which line, and how both get one of their own."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.evidence.ports.owners import Owner, owner_of
from pytracer.analyze.evidence.ports.refused import GROUP, PortReason, Refused, port_evidence, refused_of
from pytracer.analyze.evidence.ports.serving import STORE, Serving, serving_line
from pytracer.analyze.evidence.ports.taken import Holder, TakenPort
from pytracer.analyze.kin import parent_of
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.journal import Rendezvous
from pytracer.report.job import PythonFrame

_PREFIX = "dist.PrefixStore"
# torch 2.13, TCPStoreLibUvBackend.cpp and socket.cpp.
_STORE_IN_USE = Pattern(
    r"server socket has failed[^\n]*?(?:port: (\d{1,5}), [^\n]*EADDRINUSE|:(\d{1,5}) \(errno: 98\b)"
)


def reason_in_job(refused: Refused, owner: Owner) -> PortReason:
    """Another server of the job has it."""
    serving = _serving(refused, owner)
    group = _group_line(refused, owner) if serving is None else None
    subject = f"{owner.name} already listens on {refused.port}"
    lines: tuple[LineWords, ...] = ()
    if serving is not None:
        lines = (serving.line(refused.here), line_in(*serving.place, refused.here))
        subject = f"{subject}, which {_opened(refused, serving)}"
    elif group is not None:
        lines = (group,)
        subject = f"{subject}, where it serves the store of its process group since {group}"
    elif owner.is_agent and refused.master == refused.taken.port:
        subject = f"{subject}, where it serves the store of the ranks that it starts"
    if refused.what == "group" and group is None:
        subject = f"{subject}; {GROUP}() needs it for a store of its own"
    advice = f"{_advice(refused, owner, serving, group)} {_nobody_else(owner)}"
    return PortReason(subject, advice, port_evidence(refused, owner), lines)


def _opened(refused: Refused, serving: Serving) -> str:
    """`` line 116 (`WeightBoard(settings, serve=True)`) opened (TCPStore at line 28) ``."""
    if _is_same(refused, serving) and serving.caller is None:
        return "the same line opened"
    opened = "opened" if serving.sure else "alone may have opened"
    return f"{serving.line(refused.here)} {opened}{serving.inner(refused.here)}"


def _serving(refused: Refused, owner: Owner) -> Serving | None:
    if owner.view is None or owner.is_agent:
        return None
    if _group_line(refused, owner) is not None:
        return None
    return serving_line(owner.view, refused.view, refused.taken.port, master=refused.master, failing=refused.at)


def _group_line(refused: Refused, owner: Owner) -> LineWords | None:
    """Where the owner, as rank 0, had called init_process_group() for that port."""
    raised = refused.view.process.exception_mono_ns
    facts = owner.view.process.snapshot.recorded(Rendezvous) if owner.view is not None else ()
    for fact in facts:
        own, caller = fact.data, fact.data.caller
        serves = own.rank == 0 and own.master_port == refused.taken.port
        earlier = not owner.itself or (raised is not None and refused.what != "group")
        if serves and earlier and caller is not None and not is_library_file(caller.file):
            return line_in(caller.file, caller.line, refused.here).then(f" ({GROUP}())")
    return None


def _advice(refused: Refused, owner: Owner, serving: Serving | None, group: LineWords | None) -> str:
    """By what both are."""
    if serving is not None and _is_same(refused, serving):
        return _of_same_line(refused, owner, serving.line(refused.here))
    own = serving.line(refused.here) if serving is not None else None
    if refused.what == "group" and serving is not None and serving.name == STORE:
        return (
            f"Give the store of {own} a port of its own (port=0, and hand its `store.port` on to those that connect), "
            f"or let the process group use it instead of serving a second one there: {GROUP}(..., "
            f'store={_PREFIX}("group", store), rank=rank, world_size=world_size).'
        )
    if refused.what == "store" and (group is not None or owner.is_agent):
        who = f"{group}" if group is not None else "torchrun"
        return (
            f"Give the store of {refused.line} a port of its own (port=0 where it serves, and send its `store.port` to "
            f"the others), or use the one that {who} serves: is_master=False for all, in a {_PREFIX} of its own."
        )
    if refused.what == "group" and (group is not None or owner.is_agent):
        return "Give each process group that has a rank 0 of its own another MASTER_PORT."
    if owner.itself:
        opened = f"what {own} opened" if own is not None else "the server that has it"
        return f"Close {opened} before {refused.opener} opens the port again, or give one of them another port."
    if refused.what == "agent":
        return f"{refused.another}."
    other = f"{own}" if own is not None else f"what process {owner.holder.pid} serves"
    return f"Give {other} or {refused.opener} another port: 0 takes one that is free."


def _is_same(refused: Refused, serving: Serving) -> bool:
    """Whether it is the line that was refused the port."""
    return refused.at is not None and serving.place == (refused.at.file, refused.at.line)


def _of_same_line(refused: Refused, owner: Owner, line: LineWords) -> str:
    """Two processes run it, or one of them twice."""
    if owner.itself:
        return f"{capital(line)} ran here before: keep what it made and use that, or close it first."
    if refused.what == "store":
        return (
            f"{capital(line)} serves in both processes: let one alone serve (is_master=rank == 0), and the others "
            "connect to it."
        )
    return (
        f"{capital(line)} serves in both processes: let one alone run it, or give each a port of its own, such as the "
        "first one plus its rank."
    )


def _nobody_else(owner: Owner) -> str:
    if owner.itself:
        return "No other program has to be ended."
    return f"Process {owner.holder.pid} belongs to this job: no other program has to be ended."


def presumed_reason(job: JobView, view: ProcessView, stack: Sequence[PythonFrame]) -> PortReason | None:
    """Without what the recorder sees, as with --no-values: a line of this process or of its parent opens the port."""
    message, raised = view.exception.message if view.exception is not None else None, view.process.exception_mono_ns
    found = _STORE_IN_USE.search(message or "")
    if found is None or raised is None:
        return None
    port = int(found[1] or found[2])
    refused, parent = refused_of(view, TakenPort(port, "listening"), stack), parent_of(job, view)
    ended = parent.process.ended_mono_ns if parent is not None else None
    there = [view, *([parent] if parent is not None and (ended is None or ended > raised) else [])]
    ways = []
    for item in there:
        snapshot = item.process.snapshot
        owner = owner_of(job, view, Holder(snapshot.pid, snapshot.start_ticks, snapshot.ppid, 0, None))
        serving = _serving(refused, owner)
        if serving is not None and serving.sure:
            ways.append((owner, serving))
    if len(ways) != 1:
        return None
    owner, serving = ways[0]
    lines = (serving.line(refused.here), line_in(*serving.place, refused.here))
    subject = f"probably {owner.name} listens on {refused.port}, which {_opened(refused, serving)}"
    return PortReason(subject, _advice(refused, owner, serving, None), None, lines)
