"""A lock file that is there already: the line that would have removed it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around
from pytracer.analyze.naming import LineWords

_REMOVES = frozenset({"remove", "unlink"})
_MODULES = ("os", "pathlib")
_LOCK = Pattern(r"(?i)lock|mutex|\bpid|\.pid\b|semaphore|sentinel")


def left_lock(at: FailingLine) -> str | None:
    """How to find out which of both it is, and a lock that nobody can leave behind."""
    subject, path = left_lock_subject(at), at.values.get("file")
    if subject is None or path is None:
        return None
    age = at.values.get("file age")
    since = f", written {age} s ago" if age is not None else ""
    return (
        f"'{path}'{since} is there when line {at.line} makes it: {subject.partition(': ')[2]}. Delete it if no process "
        "has it. Release it in a `finally`, so that an exception or an early return does; fcntl.flock() on an open "
        "file is released by the kernel at the end of its process, too."
    )


def left_lock_subject(at: FailingLine) -> str | None:
    """For the headline; whether the holder still runs is not recorded."""
    path = _exclusive(at)
    named = path is not None and _LOCK.search(f"{ast.unparse(path)} {at.values.get('file', '')}") is not None
    removals = [*_removals(at, path)] if path is not None and named else []  # an output is made by mode "x", too
    if len(removals) != 1:
        return None
    place, call = removals[0]
    return f"the lock is held: its holder still runs, or has left without {place} (`{source(call)}`), which removes it"


def _exclusive(at: FailingLine) -> ast.expr | None:
    """The path that the line makes only where it is not there: by O_EXCL, or by mode "x"."""
    call = _call(at) if at.kind == "FileExistsError" else None
    if call is None:
        return None
    of_os = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "os"
    if of_os:
        return call.args[0] if call.args and any("O_EXCL" in ast.unparse(item) for item in call.args[1:]) else None
    method = isinstance(call.func, ast.Attribute)
    modes = [keyword_value(call, "mode"), *call.args[: 1 if method else 2]]
    exclusive = any(isinstance(item, ast.Constant) and "x" in str(item.value)[:1] for item in modes)
    path = call.func.value if isinstance(call.func, ast.Attribute) else call.args[0] if call.args else None
    return path if exclusive else None


def _call(at: FailingLine) -> ast.Call | None:
    found = [item for item in nodes_of(at.node) if isinstance(item, ast.Call)] if at.node is not None else []
    opens = [item for item in found if called_name(item) == "open"]
    return opens[0] if len(opens) == 1 else None


def _removals(at: FailingLine, path: ast.expr) -> Iterator[tuple[LineWords, ast.Call]]:
    """Of the same path, as that function, or its class, writes it."""
    text, owner = ast.unparse(path), class_around(at.tree, at.scope)
    around: ast.AST = owner if owner is not None and text.startswith("self.") else at.tree
    for item in nodes_of(around):
        if not isinstance(item, ast.Call) or called_name(item) not in _REMOVES:
            continue
        base = item.func.value if isinstance(item.func, ast.Attribute) else None
        of_module = base is None or ast.unparse(base) in _MODULES
        removed = (item.args[0] if item.args else None) if of_module else base
        if removed is not None and ast.unparse(removed) == text:
            yield at.here(item.lineno), item
