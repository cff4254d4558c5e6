"""An object of fsspec that was made before a fork: its event loop runs in a thread that the child does not have."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine

_REFUSED = "This class is not fork-safe"  # fsspec/asyn.py, AsyncFileSystem.loop
_FILE = "/fsspec/asyn.py"


def not_fork_safe(at: FailingLine) -> str | None:
    """What the line asks there, and which line made it."""
    if at.message != _REFUSED or not (at.stack[0].file or "").endswith(_FILE):
        return None
    node = at.node
    asked = node.func if isinstance(node, ast.Call) else node
    owner = asked.value if isinstance(asked, ast.Attribute) else None
    what = f"`{source(owner)}`{at.came(ast.unparse(owner))}" if owner is not None else f"what line {at.line} asks"
    return (
        f"{what} was made before the fork, and a forked child does not have the thread of fsspec's event loop: make it "
        "in each worker, at its first use there (None until then) or in a `worker_init_fn`, or start the workers by "
        'spawn (`multiprocessing_context="spawn"`). One process alone does not repeat it.'
    )
