"""Waits for the other end of a socket, or of a child's pipe, without a time limit: what was asked, and how to limit it.

CPython asks poll() before it reads from a socket that has a time limit (socketmodule.c, `sock_call_ex`): a thread
inside of recv() or accept() itself has none.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import takewhile

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened, uncapital
from pytracer.analyze.evidence.native.native_stack import image_name
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, keyword_value
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait, WaitKind
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame, PythonFrame

_SOCKET = Pattern(r"(_socket|_ssl)\b")
_SOCKET_CALL = Pattern(r"(sock_(recv|accept)\w*|_ssl__SSLSocket_\w+)$")
_RECV, _ACCEPT = Pattern(r"_*(libc_)?(recv|recvfrom|recvmsg|read)$"), Pattern(r"_*(libc_)?accept4?$")
_OF_OTHERS = Pattern(r"/(multiprocess(?:ing)?/\w+|asyncio/\w+|selectors|socketserver|http/server|xmlrpc/server)\.py$")
_NEAR = 24  # native frames; those of libssl lie between
_READS = frozenset({"readline", "read", "readlines", "read1"})
_LONGEST = 60
_ASK = (
    "Compare with the other end: is that process there, does `curl` or `nc` get an answer from the same address, does "
    "`ss -tnp` show the connection?"
)
_NOBODY = (
    "Nobody has connected: start the other side (a simulator, a client), and see that it uses this host and port. "
)
CHILD_PRINTS = (
    "See whether the child prints at all, and flushes: print(..., flush=True), or `python -u`, as what is written to a "
    "pipe is kept in a buffer of 8 KiB; and what it waits for itself, such as a line of its own input."
)


def socket_wait(native: Sequence[NativeFrame], stack: Sequence[PythonFrame]) -> WaitKind | None:
    """By the innermost call of the C library, below CPython's sockets; no wait of a server that a library runs."""
    inner = next((frame.function for frame in native if frame.function is not None), None) or ""
    near = native[:_NEAR]
    own = any(_SOCKET.match(image_name(frame.image)) or _SOCKET_CALL.match(frame.function or "") for frame in near)
    called = takewhile(lambda frame: is_library_file(frame.file), stack)
    if not own or any(_OF_OTHERS.search(frame.file or "") for frame in called):
        return None
    if _ACCEPT.match(inner):
        return "accept"
    return "network" if _RECV.match(inner) else None


def asks_child(view: ProcessView, native: Sequence[NativeFrame], stack: Sequence[PythonFrame]) -> bool:
    """Whether its line reads what a child prints: `self.engine.stdout.readline()`."""
    inner = next((frame.function for frame in native if frame.function is not None), None) or ""
    at = stack[0] if stack else None
    if at is None or at.line is None or is_library_file(at.file) or not _RECV.match(inner):
        return False
    tree = syntax_tree(view.process.snapshot, at)
    return tree is not None and asked_child(tree, at.line) is not None


def asked_child(tree: ast.Module, line: int) -> ast.expr | None:
    """`self.engine` of that line."""
    for item in calls_on(tree, line):
        owner = item.func.value if isinstance(item.func, ast.Attribute) and called_name(item) in _READS else None
        if isinstance(owner, ast.Attribute) and owner.attr == "stdout":
            return owner.value
    loops = (
        item.iter for item in own_nodes(scope_of(tree, line)) if isinstance(item, ast.For) and item.iter.lineno == line
    )
    return next((item.value for item in loops if isinstance(item, ast.Attribute) and item.attr == "stdout"), None)


def network_advice(view: ProcessView, wait: ProcessWait, called: str | None) -> str:
    """Where the time limit belongs. `called`: the function of the library that the line called."""
    at = wait.at
    tree = syntax_tree(view.process.snapshot, at) if at is not None else None
    name = (called or "").rpartition(".")[2]
    calls = calls_on(tree, at.line) if tree is not None and at is not None and at.line is not None else []
    found = next((item for item in calls if called_name(item) == name), None)
    if wait.kind == "accept":
        here = f"line {at.line}" if at is not None else "that line"
        return f"{_NOBODY}Print host and port before {here}; settimeout() makes such a wait an error."
    if found is not None and keyword_value(found, "timeout") is None:
        text = shortened(ast.unparse(found), _LONGEST)
        how = (
            f"Line {found.lineno} (`{text}`) has no time limit: give it one (`timeout=30`, or "
            "socket.setdefaulttimeout() at the start), and catch that error to try again, or to leave the item out. "
        )
    else:
        how = (
            "The socket has no time limit: settimeout() (or socket.setdefaulttimeout() at the start) makes such a wait "
            "an error, that can be caught to try again. "
        )
    return f"{how}{_ASK}"


def unflushed(view: ProcessView, wait: ProcessWait) -> tuple[int, str, str] | None:
    """Line and text of a write to the child that stays in a buffer here, and the child; None where it is flushed."""
    at = wait.at
    tree = syntax_tree(view.process.snapshot, at) if at is not None else None
    child = asked_child(tree, at.line) if tree is not None and at is not None and at.line is not None else None
    if tree is None or child is None or at is None or at.line is None:
        return None
    name = ast.unparse(child)
    own = [item for item in own_nodes(scope_of(tree, at.line)) if isinstance(item, ast.Call)]
    to = [
        item for item in own if isinstance(item.func, ast.Attribute) and ast.unparse(item.func.value) == f"{name}.stdin"
    ]
    writes = [item for item in to if called_name(item) in ("write", "writelines") and item.lineno <= at.line]
    flushes = any(called_name(item) in ("flush", "close") for item in to)
    flushes |= any(called_name(item) in ("print", "communicate", "send", "close", "reconfigure") for item in own)
    flushes |= any("flush" in (called_name(item) or "") for item in own)
    made = [item for item in nodes_of(tree) if isinstance(item, ast.Call) and called_name(item) == "Popen"]
    buffered = len(made) == 1 and keyword_value(made[0], "bufsize") is None and len(made[0].args) == 1
    passed = any(item.arg is None for item in made[0].keywords) if made else True
    if flushes or not writes or not buffered or passed or last_name(child) is None:
        return None
    last = max(writes, key=lambda item: item.lineno)
    return last.lineno, shortened(ast.unparse(last), _LONGEST), name


def _unread_errors(view: ProcessView, wait: ProcessWait) -> int | None:
    """The line that makes a child's stderr a pipe of its own, which nothing reads while its stdout is read."""
    at = wait.at
    tree = syntax_tree(view.process.snapshot, at) if at is not None else None
    if tree is None or at is None or at.line is None or asked_child(tree, at.line) is None:
        return None
    made = [item for item in nodes_of(tree) if isinstance(item, ast.Call) and called_name(item) == "Popen"]
    errors = keyword_value(made[0], "stderr") if len(made) == 1 else None
    if errors is None or ast.unparse(errors).rpartition(".")[2] != "PIPE":
        return None
    later = {id(item) for item in own_nodes(scope_of(tree, at.line)) if getattr(item, "lineno", 0) > at.line}
    read = [item for item in nodes_of(tree) if isinstance(item, ast.Attribute) and item.attr == "stderr"
            and last_name(item.value) != "sys"]  # fmt: skip
    return made[0].lineno if all(id(item) in later for item in read) else None


def answer_words(view: ProcessView, wait: ProcessWait) -> str:
    """Why no answer comes, as far as the source shows."""
    found = unflushed(view, wait)
    if found is None:
        errors = _unread_errors(view, wait)
        if errors is None:
            return ""
        return (
            f"; line {errors} makes the child's stderr a pipe, too, which nothing reads meanwhile: a child that has "
            "written 64 KiB there waits in its next write"
        )
    line, text, name = found
    held = f"what line {line} (`{text}`) writes to the child is still in the buffer of `{name}.stdin`"
    return f"; {held}: nothing flushes it"


def answer_advice(view: ProcessView, wait: ProcessWait) -> str:
    """Of a child that is asked by its input."""
    found = unflushed(view, wait)
    if found is None:
        errors = _unread_errors(view, wait)
        if errors is None:
            return CHILD_PRINTS
        return (
            f"If the child writes much to stderr (warnings, a progress bar), let line {errors} pass "
            "stderr=subprocess.STDOUT, subprocess.DEVNULL or a file, or read both by communicate() or a thread. If it "
            f"writes little there: {uncapital(CHILD_PRINTS)}"
        )
    line, _, name = found
    return (
        f"Call `{name}.stdin.flush()` behind line {line} (or Popen(..., text=True, bufsize=1), which flushes each "
        "line). The child needs the same for its answer: print(..., flush=True), or `python -u`."
    )
