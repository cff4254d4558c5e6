"""A wait in a coroutine, or in what one calls: the event loop of its thread runs no other task meanwhile."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.evidence.waits.standing_threads import ThreadReason, others_of
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import called_by_program, main_stack
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_LOOP = Pattern(r"/asyncio/base_events\.py$")
_HANDS = "run_coroutine_threadsafe"
_LONGEST = 60


def blocked_loop(view: ProcessView, wait: ProcessWait) -> ThreadReason | None:
    """None where another thread may run the loop."""
    at = wait.at
    if wait.kind != "notice" or at is None or at.line is None:
        return None
    if not (called_by_program(view) or "").endswith("result"):
        return None
    if not any(_LOOP.search(frame.file or "") for frame in main_stack(view)):
        return None
    if any(_LOOP.search(frame.file) for frames in others_of(view) for frame in frames):
        return None
    tree = syntax_tree(view.process.snapshot, at)
    for item in own_nodes(scope_of(tree, at.line)) if tree is not None else ():
        if isinstance(item, ast.Call) and called_name(item) == _HANDS and item.args and item.lineno <= at.line:
            task = shortened(ast.unparse(item.args[0]), _LONGEST)
            call = shortened(ast.unparse(item), _LONGEST)
            return ThreadReason(
                "it waits in the thread of the event loop itself, which runs no other task meanwhile, so the "
                f"coroutine that line {item.lineno} (`{call}`) hands to it never begins",
                f"In the thread of the loop, await it: `await {task}` in place of line {item.lineno} and its result(), "
                f"in a coroutine. {_HANDS}() is for other threads: where it has to stay, call what waits by "
                "`await asyncio.to_thread(...)`.",
                ((at.file, item.lineno),),
            )
    return None
