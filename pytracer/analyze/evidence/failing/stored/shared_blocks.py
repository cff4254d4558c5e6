"""A block of shared memory that is gone: by the line that unlinks it, or by who may have; or one that is there already.

The latter is `taken_blocks`.
"""

from __future__ import annotations

import ast

from pytracer._library_files import of_multiprocessing
from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.taken_blocks import taken_block, taken_block_subject
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.constants import is_true
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)
# What surely does not wait between the two lines until the others have attached.
_GOES_ON = frozenset(
    {"ndarray", "frombuffer", "from_numpy", "copy_", "close", "print", "info", "debug", "append", "put", "send", "len"}
    | {"Process", "start", "range", "unlink", "ShareableList", "asarray", "zeros", "copyto", "reshape", "view", "dict"}
)


def no_shared_memory(at: FailingLine) -> str | None:
    """multiprocessing.shared_memory, attached by name."""
    if not _is_gone(at):
        return taken_block(at)
    unlinked = _unlinked(at)
    if unlinked is not None:
        return (
            f"{capital(unlinked)}, and waits for nobody: a process that comes to line {at.line} later "
            "finds no block. Unlink it when all have attached (a barrier before it), or at the end of its maker."
        )
    return (
        f"No block of that name is left for line {at.line}: its maker ended or called unlink(), or another process "
        "that only attached has ended: before Python 3.13 the resource tracker of each such process unlinks it then. "
        "Attach with track=False (3.13), or call resource_tracker.unregister(shm._name, 'shared_memory') after it."
    )


def shared_memory_subject(at: FailingLine) -> str | None:
    """What the headline says of it: of a program that makes such blocks itself, who may have removed this one."""
    if not _is_gone(at):
        return taken_block_subject(at)
    unlinked = _unlinked(at)
    if unlinked is not None:
        return f"the block is gone: {unlinked}"
    made = any("SharedMemory(" in text and "create=True" in text for text in map(ast.unparse, at.files.values()))
    by = "a process that attached before may have removed it at its end (its resource tracker)"
    return f"the block is gone: {by}" if made else "the shared memory of that name is gone, or was never made"


def _is_gone(at: FailingLine) -> bool:
    return at.kind == "FileNotFoundError" and (at.stack[0].file or "").endswith(of_multiprocessing("shared_memory"))


def _unlinked(at: FailingLine) -> str | None:
    """`line 16 (`block.unlink()`) removes the block that line 11 makes`: the only maker, in one function, in a row."""
    made = [
        (file, scope, item)
        for file, tree in at.files.items()
        for scope in (part for part in nodes_of(tree) if isinstance(part, _FUNCTIONS))
        for item in own_nodes(scope)
        if isinstance(item, ast.Assign) and _makes(item.value)
    ]
    if len(made) != 1:
        return None
    file, scope, maker = made[0]
    calls = [item for item in own_nodes(scope) if isinstance(item, ast.Call) and item.lineno > maker.lineno]
    name = variable(maker.targets[0])
    ends = [
        item for item in calls
        if isinstance(item.func, ast.Attribute) and item.func.attr == "unlink" and variable(item.func.value) == name
    ]  # fmt: skip
    if name is None or len(ends) != 1 or _is_cleanup(scope, ends[0]):
        return None
    if any(item.lineno < ends[0].lineno and called_name(item) not in _GOES_ON for item in calls):
        return None
    line, begun = at.in_file(file, ends[0].lineno), at.in_file(file, maker.lineno)
    return f"{line} (`{source(ends[0])}`) removes the block that {begun} makes"


def _makes(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or called_name(node) != "SharedMemory":
        return False
    return is_true(keyword_value(node, "create"))


def _is_cleanup(scope: ast.AST, call: ast.Call) -> bool:
    """In a handler, a `finally`, a `with` or a loop, where what ran before is not known."""
    held = (ast.Try, ast.With, ast.For, ast.While)
    return any(isinstance(item, held) and call in [*nodes_of(item)] for item in own_nodes(scope))
