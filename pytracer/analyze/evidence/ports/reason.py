"""Why a server could not get its port: who has it, by which line, and how both get one of their own."""

from __future__ import annotations

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import capital, count_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.ports.owners import Owner, age_words, owner_of
from pytracer.analyze.evidence.ports.serving import STORE, Serving, own_frames, serving_line
from pytracer.analyze.evidence.ports.taken import TakenPort, taken_port
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.journal import Rendezvous
from pytracer.report.job import Evidence, PythonFrame

_GROUP, _GROUP_FILE = "init_process_group", "/torch/distributed/distributed_c10d.py"
_PREFIX = "dist.PrefixStore"


class PortReason(msgspec.Struct, frozen=True):
    """For the headline, and what to do. `lines`: that opened the port."""

    subject: str
    advice: str
    evidence: Evidence
    lines: tuple[LineWords, ...] = ()

    @property
    def behind(self) -> Behind | None:
        """Those lines."""
        return Behind.of([], *self.lines) if self.lines else None


class _Refused(msgspec.Struct, frozen=True):
    """What could not serve. `what`: "group", "store" or "server"; `master`: what MASTER_PORT was."""

    view: ProcessView
    taken: TakenPort
    at: PythonFrame | None
    what: str
    master: int | None

    @property
    def here(self) -> str | None:
        """The file of its line."""
        return self.at.file if self.at is not None else None

    @property
    def port(self) -> str:
        """`port 29500 (MASTER_PORT)`."""
        return f"port {self.taken.port}{' (MASTER_PORT)' if self.master == self.taken.port else ''}"

    @property
    def line(self) -> LineWords:
        """`line 91`."""
        return line_in(self.here, self.at.line if self.at is not None else None, self.here)


def port_reason(job: JobView, view: ProcessView) -> PortReason | None:
    """None for other exceptions, and where it is not known whether anything had the port."""
    taken = taken_port(view.exception.variables if view.exception is not None else None)
    if taken is None:
        return None
    refused = _refused(view, taken)
    if taken.state in ("closing", "free"):
        return _of_closing(refused) if taken.state == "closing" else _of_ended(refused)
    owner = owner_of(job, view, taken.holder) if taken.holder is not None else None
    if owner is None:
        return _of_unseen(refused)
    if taken.state == "connected":
        return _of_connection(refused, owner)
    return _of_job(refused, owner) if owner.of_job else _of_other(refused, owner)


def _refused(view: ProcessView, taken: TakenPort) -> _Refused:
    at = next(iter(own_frames(view)), None)
    joins = [fact.data for fact in view.process.snapshot.recorded(Rendezvous)]
    given = view.process.snapshot.environment.get("MASTER_PORT", "")
    master = joins[-1].master_port if joins else int(given) if given.isdecimal() else None
    inside = any(item.function == _GROUP and (item.file or "").endswith(_GROUP_FILE) for item in view.exception_stack)
    what = "group" if inside else "store" if _calls_store(view, at) else "server"
    return _Refused(view, taken, at, what, master)


def _calls_store(view: ProcessView, at: PythonFrame | None) -> bool:
    tree = syntax_tree(view.process.snapshot, at)
    calls = calls_on(tree, at.line) if tree is not None and at is not None and at.line is not None else []
    return any(called_name(item) == STORE for item in calls)


def _of_job(refused: _Refused, owner: Owner) -> PortReason:
    """Another server of the job has it."""
    serving = _serving(refused, owner)
    group = _group_line(refused, owner) if serving is None else None
    subject = f"{owner.name} already listens on {refused.port}"
    lines: tuple[LineWords, ...] = ()
    if serving is not None:
        line = serving.line(refused.here)
        lines = (line, line_in(*serving.place, refused.here))
        opened = "opened" if serving.sure else "alone may have opened"
        subject = f"{subject.rstrip(',')}, which {line} {opened}{serving.inner(refused.here)}"
    elif group is not None:
        lines = (group,)
        subject = f"{subject}, where it serves the store of its process group since {group}"
    elif owner.is_agent and refused.master == refused.taken.port:
        subject = f"{subject}, where it serves the store of the ranks that it starts"
    if refused.what == "group" and group is None:
        subject = f"{subject}; {_GROUP}() needs it for a store of its own"
    return PortReason(subject, _advice(refused, owner, serving, group), _evidence(refused, owner), lines)


def _serving(refused: _Refused, owner: Owner) -> Serving | None:
    if owner.view is None or owner.is_agent:
        return None
    if _group_line(refused, owner) is not None:
        return None
    return serving_line(owner.view, refused.view, refused.taken.port, master=refused.master, failing=refused.at)


def _group_line(refused: _Refused, owner: Owner) -> LineWords | None:
    """Where the owner, as rank 0, had called init_process_group() for that port."""
    raised = refused.view.process.exception_mono_ns
    facts = owner.view.process.snapshot.recorded(Rendezvous) if owner.view is not None else ()
    for fact in facts:
        own, caller = fact.data, fact.data.caller
        serves = own.rank == 0 and own.master_port == refused.taken.port
        earlier = not owner.itself or (raised is not None and refused.what != "group")
        if serves and earlier and caller is not None and not is_library_file(caller.file):
            return line_in(caller.file, caller.line, refused.here).then(f" ({_GROUP}())")
    return None


def _advice(refused: _Refused, owner: Owner, serving: Serving | None, group: LineWords | None) -> str:
    """By what both are."""
    if serving is not None and refused.at is not None and serving.place == (refused.at.file, refused.at.line):
        return _of_same_line(refused, owner)
    own = serving.line(refused.here) if serving is not None else None
    if refused.what == "group" and serving is not None and serving.name == STORE:
        return (
            f"Give the store of {own} a port of its own (port=0, and hand its `store.port` on to those that connect), "
            f"or let the process group use it instead of serving a second one there: {_GROUP}(..., "
            f'store={_PREFIX}("group", store), rank=rank, world_size=world_size). {_nobody_else(owner)}'
        )
    if refused.what == "store" and (group is not None or owner.is_agent):
        who = f"{group}" if group is not None else "torchrun"
        return (
            f"Give the store of {refused.line} a port of its own (port=0 where it serves, and send its `store.port` to "
            f"the others), or use the one that {who} serves: is_master=False for all, in a {_PREFIX} of its own. "
            f"{_nobody_else(owner)}"
        )
    if refused.what == "group" and (group is not None or owner.is_agent):
        return f"Give each process group that has a rank 0 of its own another MASTER_PORT. {_nobody_else(owner)}"
    if owner.itself:
        opened = f"what {own} opened" if own is not None else "the server that has it"
        return f"Close {opened} before {refused.line} opens the port again, or give one of them another port."
    other = f"{own}" if own is not None else f"what process {owner.holder.pid} serves"
    return f"Give {other} or {refused.line} another port: 0 takes one that is free. {_nobody_else(owner)}"


def _of_same_line(refused: _Refused, owner: Owner) -> str:
    """Two processes run it, or one of them twice."""
    if owner.itself:
        return f"{capital(refused.line)} ran here before: keep what it made and use that, or close it first."
    if refused.what == "store":
        return (
            f"{capital(refused.line)} serves in both processes: let one alone serve (is_master=rank == 0), and the "
            "others connect to it."
        )
    return (
        f"{capital(refused.line)} serves in both processes: let one alone run it, or give each a port of its own, such "
        "as the first one plus its rank."
    )


def _nobody_else(owner: Owner) -> str:
    return f"Process {owner.holder.pid} belongs to this job: no other program has to be ended."


def _of_other(refused: _Refused, owner: Owner) -> PortReason:
    """No recorded process has it, nor a child of one."""
    holder = owner.holder
    older = ", and is older than this job" if owner.before else ", and was not recorded with this job"
    ran = f"had run for {age_words(holder)}{older}"
    left = " It has no parent but process 1: it may be left over from an earlier run." if holder.parent == 1 else ""
    again = " Its program has the same name as this one." if owner.same_program else ""
    return PortReason(
        f"{owner.name} listens on {refused.port}; it {ran}",
        f"{_another(refused)}, or end process {holder.pid} if nobody needs it any more "
        f"(`ps -o pid,ppid,lstart,cmd -p {holder.pid}`).{again}{left}",
        _evidence(refused, owner),
    )


def _of_connection(refused: _Refused, owner: Owner) -> PortReason:
    """No server: a connection has the number as its own end."""
    return PortReason(
        f"no process listens on {refused.port}, but a connection of {owner.name.rstrip(',')} has it as its own end",
        f"{_another(refused)} below those that the system gives to outgoing connections "
        "(`sysctl net.ipv4.ip_local_port_range`, mostly from 32768): such a connection took it before the server came, "
        "or a server that has ended left it open.",
        _evidence(refused, owner),
    )


def _of_closing(refused: _Refused) -> PortReason:
    count = count_words(refused.taken.closing, "connection")
    return PortReason(
        f"no process listens on {refused.port} any more, but {count} of a server that has ended still "
        f"close{'s' if refused.taken.closing == 1 else ''} (TIME_WAIT)",
        "Let the server set SO_REUSEADDR before it binds, in each run (sock.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1); "
        "`allow_reuse_address = True` of a socketserver), or wait: the system keeps these for 60 s. Or take another "
        "port. There is no process to end.",
        _evidence(refused, None),
    )


def _of_ended(refused: _Refused) -> PortReason:
    return PortReason(
        f"nothing had {refused.port} any more when the exception had reached the top of the program",
        "Whoever had it has ended or closed it meanwhile: a server of this program that a `with` or `finally` closed "
        "on the way, or a process that was just ending. Start again; where it comes back, look during the run with "
        f"`ss -ltnp 'sport = :{refused.taken.port}'`. {_another(refused)}.",
        _evidence(refused, None),
    )


def _of_unseen(refused: _Refused) -> PortReason | None:
    """Its sockets are seen, but no process."""
    own, user = refused.view.process.snapshot.uid, refused.taken.user
    if refused.taken.state != "listening":
        return None
    other = user is not None and user != own
    who = f"a process of another user (uid {user})" if other else "a process that could not be seen from this one"
    why = "" if other else " It may be in another container on the same network."
    return PortReason(f"{who} listens on {refused.port}", f"{_another(refused)}.{why}", _evidence(refused, None))


def _another(refused: _Refused) -> str:
    if refused.what == "group" or refused.master == refused.taken.port:
        return "Take another MASTER_PORT for this job (torchrun --standalone, or --rdzv-endpoint HOST:0, finds one)"
    return f"Give the server of {refused.line} another port"


def _evidence(refused: _Refused, owner: Owner | None) -> Evidence:
    """What the recorder saw."""
    taken = refused.taken
    if owner is None:
        seen = "a process that is not seen listened" if taken.state == "listening" else "no process listened"
        return Evidence("port", f"when the exception had come, {seen} on port {taken.port}", value=taken.port)
    did = "listened on" if taken.state == "listening" else "had a connection from"
    program = f" ({owner.holder.program})" if owner.holder.program else ""
    shared = (
        f", as had {count_words(owner.holder.count - 1, 'process')} forked with it" if owner.holder.count > 1 else ""
    )
    return Evidence(
        "port",
        f"when the exception had come, process {owner.holder.pid}{program} {did} port {taken.port}{shared}; "
        f"it had run for {age_words(owner.holder)}",
        value=taken.port,
        pid=owner.holder.pid,
        name=owner.holder.program,
    )
