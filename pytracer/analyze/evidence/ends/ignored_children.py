"""Lines by which a program loses the exit statuses of its children: SIGCHLD ignored, or a wait for any child.

With SIGCHLD at SIG_IGN the kernel removes a child when it ends, and waitpid() for it fails with ECHILD. os.waitpid(-1)
and os.wait() take the status of whichever child ended: the one who started it gets ECHILD as well.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

import msgspec

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of

_CHILD, _IGNORE = "SIGCHLD", "SIG_IGN"
_WAITS_FOR_ANY = ("wait", "wait3")
_WAITS = ("waitpid", "wait4")
_SETS = 2


class LosingLine(msgspec.Struct, frozen=True):
    """`text`: the call; `ignores`: it sets SIGCHLD to SIG_IGN, rather than waits for any child."""

    file: str
    line: int
    text: str
    ignores: bool


def losing_lines(files: Mapping[str, ast.Module]) -> list[LosingLine]:
    """In order; not where the function that ignores the signal sets it back."""
    found = []
    for file, tree in files.items():
        calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call)]
        restored = {id(scope_of(tree, item.lineno)) for item in calls if _sets(item) and not _ignores(item)}
        for item in calls:
            ignores = _ignores(item) and id(scope_of(tree, item.lineno)) not in restored
            if ignores or _waits_for_any(item):
                found.append(LosingLine(file, item.lineno, ast.unparse(item), ignores))
    return found


def _sets(call: ast.Call) -> bool:
    """`signal.signal(signal.SIGCHLD, ...)`."""
    return called_name(call) == "signal" and len(call.args) == _SETS and last_name(call.args[0]) == _CHILD


def _ignores(call: ast.Call) -> bool:
    return _sets(call) and last_name(call.args[1]) == _IGNORE


def _waits_for_any(call: ast.Call) -> bool:
    name, of = called_name(call), call.func.value if isinstance(call.func, ast.Attribute) else None
    if not isinstance(of, ast.Name) or of.id != "os":
        return False
    return name in _WAITS_FOR_ANY or (name in _WAITS and bool(call.args) and ast.unparse(call.args[0]) in ("-1", "0"))
