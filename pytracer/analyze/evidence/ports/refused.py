"""What was refused a port, where, and what the recorder saw of the one that had it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import count_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.ports.owners import Owner, age_words
from pytracer.analyze.evidence.ports.serving import STORE
from pytracer.analyze.evidence.ports.taken import TakenPort
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.job.identity import runs_agent
from pytracer.decode.types.journal import Rendezvous
from pytracer.report.job import Evidence, PythonFrame

GROUP, _GROUP_FILE = "init_process_group", "/torch/distributed/distributed_c10d.py"


class PortReason(msgspec.Struct, frozen=True):
    """For the headline, and what to do. `lines`: that opened the port."""

    subject: str
    advice: str
    evidence: Evidence | None
    lines: tuple[LineWords, ...] = ()

    @property
    def behind(self) -> Behind | None:
        """Those lines."""
        return Behind.of([], *self.lines) if self.lines else None


class Refused(msgspec.Struct, frozen=True):
    """What could not serve. `what`: "agent" (torchrun), "group", "store" or "server".

    `master`: what MASTER_PORT was.
    """

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

    @property
    def opener(self) -> str:
        """`line 91`, or `the server` where no line of the program is known that opens it."""
        known = self.at is not None and self.at.line is not None and self.what != "agent"
        return f"{self.line}" if known else "the server"

    @property
    def server(self) -> str:
        """`the server of line 91`."""
        return self.opener if self.opener == "the server" else f"the server of {self.opener}"

    @property
    def another(self) -> str:
        """What to do where the port is another one's; without a full stop."""
        if self.what in ("agent", "group") or self.master == self.taken.port:
            return "Take another MASTER_PORT for this job (torchrun --standalone, or --rdzv-endpoint HOST:0, finds one)"
        return f"Give {self.server} another port"


def refused_of(view: ProcessView, taken: TakenPort, stack: Sequence[PythonFrame]) -> Refused:
    """By the stack of the exception, the failing line, and what the process noted of its rendezvous."""
    at = next((item for item in stack if not is_library_file(item.file)), None)
    joins = [fact.data for fact in view.process.snapshot.recorded(Rendezvous)]
    given = view.process.snapshot.environment.get("MASTER_PORT", "")
    master = joins[-1].master_port if joins else int(given) if re.fullmatch(r"[0-9]{1,5}", given) else None
    inside = any(item.function == GROUP and (item.file or "").endswith(_GROUP_FILE) for item in stack)
    agent = runs_agent(view.process.snapshot.argv)
    what = "agent" if agent else "group" if inside else "store" if _calls_store(view, at) else "server"
    return Refused(view, taken, at, what, master)


def _calls_store(view: ProcessView, at: PythonFrame | None) -> bool:
    tree = syntax_tree(view.process.snapshot, at)
    calls = calls_on(tree, at.line) if tree is not None and at is not None and at.line is not None else []
    return any(called_name(item) == STORE for item in calls)


def port_evidence(refused: Refused, owner: Owner | None) -> Evidence:
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
