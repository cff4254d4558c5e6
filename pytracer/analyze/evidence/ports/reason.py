"""Why a server could not get its port: who has it, and what to do about that."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import count_words
from pytracer.analyze.evidence.ports.in_job import presumed_reason, reason_in_job
from pytracer.analyze.evidence.ports.owners import Owner, age_words, owner_of
from pytracer.analyze.evidence.ports.refused import PortReason, Refused, port_evidence, refused_of
from pytracer.analyze.evidence.ports.taken import taken_port
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import PythonFrame


def port_reason(job: JobView, view: ProcessView, stack: Sequence[PythonFrame]) -> PortReason | None:
    """None for other exceptions, and where nothing is known of who had the port.

    Args:
        job: All processes.
        view: The one that ended with the exception.
        stack: Of the exception that is about the port, innermost first.
    """
    taken = taken_port(view.exception.variables) if view.exception is not None else None
    if taken is None:
        return presumed_reason(job, view, stack)
    refused = refused_of(view, taken, stack)
    if taken.state in ("closing", "free"):
        return _of_closing(refused) if taken.state == "closing" else _of_ended(refused)
    owner = owner_of(job, view, taken.holder) if taken.holder is not None else None
    if owner is None:
        return _of_unseen(refused)
    if taken.state == "connected":
        return _of_connection(refused, owner)
    return reason_in_job(refused, owner) if owner.of_job else _of_other(refused, owner)


def _of_other(refused: Refused, owner: Owner) -> PortReason:
    """No recorded process has it, nor a child of one."""
    holder = owner.holder
    older = "is older than this job" if owner.before else "is not recorded as one of this job"
    left = " It has no parent but process 1: it may be left over from an earlier run." if holder.parent == 1 else ""
    again = " Its program has the name of this one: it may be another run of it." if owner.same_program else ""
    return PortReason(
        f"{owner.name}, which had run for {age_words(holder)} and {older}, listens on {refused.port}",
        f"{refused.another}, or end process {holder.pid} if nobody needs it any more "
        f"(`ps -o pid,ppid,lstart,cmd -p {holder.pid}`).{again}{left}",
        port_evidence(refused, owner),
    )


def _of_connection(refused: Refused, owner: Owner) -> PortReason:
    """No server: a connection has the number as its own end."""
    return PortReason(
        f"no process listens on {refused.port}, but a connection of {owner.name.rstrip(',')} has it as its own end",
        f"{refused.another} below those that the system gives to outgoing connections "
        "(`sysctl net.ipv4.ip_local_port_range`, mostly from 32768): such a connection took it before the server came, "
        "or a server that has ended left it open.",
        port_evidence(refused, owner),
    )


def _of_closing(refused: Refused) -> PortReason:
    count = count_words(refused.taken.closing, "connection")
    return PortReason(
        f"no process listens on {refused.port} any more, but {count} of a server that has ended "
        f"{'is' if refused.taken.closing == 1 else 'are'} still closing (TIME_WAIT)",
        f"Let {refused.server} set SO_REUSEADDR before it binds, in each run "
        "(sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); "
        "`allow_reuse_address = True` of a socketserver), or wait: the system keeps these for 60 s. Or take another "
        "port. There is no process to end.",
        port_evidence(refused, None),
    )


def _of_ended(refused: Refused) -> PortReason:
    """A socket that is bound and does not listen is in no table of the system."""
    return PortReason(
        f"no process listened on {refused.port}, and no connection had it, when the exception had reached the top of "
        "the program",
        "A socket that is only bound is not seen: a helper that looks for a free port and keeps its socket (bind() "
        "without listen()) has to close it before the server comes. Else whoever had the port has ended or closed it "
        "meanwhile: a server of this program that a `with` or `finally` closed on the way, or a process that was just "
        "ending. Start again; where it comes back, look during the run with "
        f"`ss -tanp 'sport = :{refused.taken.port}'`. {refused.another}.",
        port_evidence(refused, None),
    )


def _of_unseen(refused: Refused) -> PortReason | None:
    """Its sockets are seen, but no process, or several."""
    own, user, taken = refused.view.process.snapshot.uid, refused.taken.user, refused.taken
    if taken.state != "listening":
        return None
    if taken.count:
        look = f"`ss -ltnp 'sport = :{taken.port}'` names them"
        who = f"{taken.count} processes that are not related listen on {refused.port}"
        return PortReason(who, f"{refused.another}: {look}.", port_evidence(refused, None))
    other = user is not None and user != own
    who = f"a process of another user (uid {user})" if other else "a process that could not be seen from this one"
    why = "" if other else " It may be in another container on the same network."
    return PortReason(f"{who} listens on {refused.port}", f"{refused.another}.{why}", port_evidence(refused, None))
