"""The line of a program that opened a port in one of its processes: the only call that serves there, and who called it.

That the process has the port is recorded; here only which line can have opened it. A call counts where its port comes
to that number, or where no other call does and its own port is not known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.exceptions.store_servers import is_rank_0, master_of
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.ports.numbers import Ports
from pytracer.analyze.evidence.slicing.call_chains import Chain, Chains, Step, chain_of, may_follow, spot_of
from pytracer.analyze.evidence.slicing.files import first_file, program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import parameters, scope_of
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

STORE = "TCPStore"
# Where calls have the port or the address; None: only as a keyword.
_ALWAYS = (STORE, "HTTPServer", "ThreadingHTTPServer", "TCPServer", "ThreadingTCPServer", "SimpleXMLRPCServer")
_SERVERS: dict[str, int | None] = {
    **dict.fromkeys(_ALWAYS, 0),
    STORE: 1,
    **dict.fromkeys(("Listener", "bind", "create_server", "start_http_server"), 0),
    **dict.fromkeys(("add_insecure_port", "add_secure_port"), 0),
    **dict.fromkeys(("start_server", "serve"), 2),
    "make_server": 1,
    **dict.fromkeys(("run", "run_app", "launch", "BaseManager", "SyncManager"), None),
}
_BY_NAME = ("port", "server_port", "address", "server_address", "addr")
_PROCESSES = frozenset({"spawn", "start_processes", "Process", "apply", "apply_async", "map", "submit"})
_LONGEST = 72


class Serving(msgspec.Struct, frozen=True):
    """`call` serves on the port. `caller`: the call that makes it do so, where another function has it.

    `sure`: its port comes to that number; else it is only the one call that may.
    """

    name: str
    file: str
    call: ast.Call
    caller: Step | None
    sure: bool

    @property
    def place(self) -> tuple[str, int]:
        """Of the call itself."""
        return self.file, self.call.lineno

    def line(self, here: str | None) -> LineWords:
        """`` line 116 (`WeightBoard(settings, serve=True)`) ``."""
        node = self.caller.call if self.caller is not None and self.caller.call is not None else self.call
        file = self.caller.file if self.caller is not None else self.file
        return line_in(file, node.lineno, here).quoted(_shown(node))

    def inner(self, here: str | None) -> str:
        """` (TCPStore at line 28)`, where that is another line."""
        return f" ({self.name} at {line_in(*self.place, here)})" if self.caller is not None else ""


def _shown(call: ast.Call) -> str:
    """Of a long one what it serves on."""
    text = ast.unparse(call)
    port = _port_of(call) if called_name(call) in _SERVERS else None
    if len(text) <= _LONGEST or port is None:
        return shortened(text, _LONGEST)
    master = [f"is_master={ast.unparse(item)}" for item in (master_of(call),) if item is not None]
    return shortened(f"{ast.unparse(call.func)}({', '.join(['...', ast.unparse(port), *master])})", _LONGEST)


def serving_line(
    owner: ProcessView, near: ProcessView, port: int, *, master: int | None, failing: PythonFrame | None
) -> Serving | None:
    """None where no line, or more than one, may have opened it in that process.

    Args:
        owner: The process that has the port.
        near: One that runs the same program, of which the stack is known; it may be the same.
        port: That one.
        master: What MASTER_PORT was.
        failing: The line of `near` that was refused the port.
    """
    own = _own_frames(owner)
    shown = owner if own else near
    snapshot, frames = shown.process.snapshot, own or _own_frames(near)
    files = {**program_files(snapshot, frames), **program_files(near.process.snapshot, _own_frames(near))}
    back = Slice(snapshot, frames)
    chains = Chains(files, back, first_file(snapshot, frames))
    ports = Ports(back, owner.process.snapshot, master)
    stack = chain_of(snapshot, own)
    found: dict[tuple[int, int], Serving] = {}
    for file, call in _calls(files):
        if owner is near and failing is not None and (file, call.lineno) == (failing.file, failing.line):
            continue
        for chain, spot in _ways(chains, files, file, call):
            if not _runs_in(owner, chain) or (stack and chain and may_follow(stack, chain) is False):
                continue
            serves, same = _serves(back, call, spot, owner), _is_port(ports, call, spot, port)
            if serves is False or same is False or (same is None and not _is_server(call)):
                continue
            item = Serving(called_name(call) or "", file, call, _caller(chain), bool(serves and same))
            found.setdefault((id(call), id(item.caller.call) if item.caller is not None else 0), item)
    sure = [item for item in found.values() if item.sure]
    only = sure or [*found.values()]
    return only[0] if len(only) == 1 else None


def _own_frames(view: ProcessView) -> list[PythonFrame]:
    """Of the program, where an exception left the process, or where it was at its end; innermost first."""
    return view.exception_stack_of_program or program_frames(view)


def _calls(files: Mapping[str, ast.Module]) -> Iterator[tuple[str, ast.Call]]:
    for file, tree in files.items():
        for item in nodes_of(tree):
            if not isinstance(item, ast.Call) or called_name(item) not in _SERVERS or _port_of(item) is None:
                continue
            if not _looks_for_one(tree, item):
                yield file, item


def _looks_for_one(tree: ast.Module, call: ast.Call) -> bool:
    """Whether it is `bind(("", 0))` of a helper that asks with getsockname() which port is free."""
    given = _port_of(call)
    last = given.elts[1] if isinstance(given, ast.Tuple) and len(given.elts) > 1 else None
    if called_name(call) != "bind" or not isinstance(last, ast.Constant) or last.value != 0:
        return False
    inside = nodes_of(scope_of(tree, call.lineno))
    return any(isinstance(item, ast.Call) and called_name(item) == "getsockname" for item in inside)


def _port_of(call: ast.Call) -> ast.expr | None:
    place = _SERVERS[called_name(call) or ""]
    named = keyword_value(call, *_BY_NAME)
    return named if named is not None or place is None or len(call.args) <= place else call.args[place]


def _is_server(call: ast.Call) -> bool:
    """Whether it is one whatever it is given: many things are called `run` or `bind`."""
    return called_name(call) in _ALWAYS or isinstance(_port_of(call), ast.Tuple)


def _ways(chains: Chains, files: Mapping[str, ast.Module], file: str, call: ast.Call) -> Sequence[tuple[Chain, Spot]]:
    """How the program comes there; the call alone where that is not known."""
    found = [(chain, spot) for chain in chains.to(file, call) or () if (spot := spot_of(chain)) is not None]
    return found or [((), Spot(file, files[file], scope_of(files[file], call.lineno), call.lineno))]


def _runs_in(owner: ProcessView, chain: Chain) -> bool:
    """Whether a process of that kind runs it: what is handed to another process, the program's first one does not."""
    handed = any(step.later and step.call is not None and called_name(step.call) in _PROCESSES for step in chain)
    return not chain or handed == (owner.process.snapshot.worker is not None or _is_child(owner))


def _is_child(owner: ProcessView) -> bool:
    """Whether multiprocessing started it."""
    return any("multiprocessing" in word for word in owner.process.snapshot.argv) or owner.work is not None


def _serves(back: Slice, call: ast.Call, spot: Spot, owner: ProcessView) -> bool | None:
    """Of a TCPStore by is_master; None where that is not known."""
    if called_name(call) != STORE:
        return True
    given = master_of(call)
    if given is None:
        return False
    made = back.made(given, spot, calls=True)
    if isinstance(made.node, ast.Constant):
        return bool(made.node.value)
    rank = owner.process.rank
    return rank == 0 if rank is not None and is_rank_0(made.node) else None


def _is_port(ports: Ports, call: ast.Call, spot: Spot, port: int) -> bool | None:
    given = _port_of(call)
    known = ports.port(given, spot) if given is not None else None
    return known == port if known else None  # 0 takes any that is free


def _caller(chain: Chain) -> Step | None:
    """The call of the function that serves, where it decides by what it passes, or makes an object."""
    if len(chain) < 2 or chain[-1].call is None or chain[-2].later:
        return None
    scope, call = chain[-1].scope, chain[-1].call
    deciding = (_port_of(call), master_of(call) if called_name(call) == STORE else None)
    used = {item.id for node in deciding if node is not None for item in nodes_of(node) if isinstance(item, ast.Name)}
    passed = {*parameters(scope)} - {"self"}
    return chain[-2] if getattr(scope, "name", "") == "__init__" or passed & used else None
