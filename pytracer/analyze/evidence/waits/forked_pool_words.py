"""What to say of a forked child that waits for threads which a native library has in the parent, and what to do."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.waits.fork_line import SPAWNED
from pytracer.analyze.evidence.waits.forked_pool import ForkedPool, forked_pool
from pytracer.analyze.evidence.waits.pipes import forked_at
from pytracer.analyze.evidence.waits.waits import end_of, main_native, main_stack, program_stack
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView


def pool_of(view: ProcessView) -> ForkedPool | None:
    """Of a process with such a wait."""
    return forked_pool(view, end_of(view), main_stack(view), main_native(view))


def pool_wait(view: ProcessView) -> str | None:
    """`waited in encode() of libfast.so, in a forked child, for threads of that library that its parent alone has,`."""
    pool = pool_of(view)
    if pool is None:
        return None
    return f"waited in {pool.words}, in a forked child, for threads of that library that its parent alone has,"


def pool_words(view: ProcessView, together: int) -> str:
    """`; line 98 (`tokenizer.encode(corpus)`) had used it in the parent before line 103 forked`."""
    pool = pool_of(view)
    if pool is None:
        return ""
    here = next((frame.file for frame in program_stack(view)), None)
    earlier, fork = (line_in(item.file, item.line, here) for item in (pool.earlier.at, pool.earlier.forked))
    more = f"; {together} processes waited there" if together > 1 else ""
    return f"{more}; {earlier} (`{pool.earlier.text}`) had used it in the parent before {fork} forked"


def pool_advice(view: ProcessView) -> str | None:
    """How to have the threads where they are waited for."""
    pool, fork = pool_of(view), forked_at(main_stack(view))
    if pool is None or fork is None:
        return None
    at, starter = fork
    line, here = pool.earlier.at.line, line_in(at.file, at.line, None)
    earlier = line_in(pool.earlier.at.file, line, at.file)
    made = _made(view, starter)
    where = f" at line {made}" if made is not None else ""
    own = "into the workers (`worker_init_fn`, or their first sample)" if starter == "DataLoader" else "into the child"
    alone = ", or use num_workers=0" if starter == "DataLoader" else ""
    spawn = f"start it {SPAWNED[starter]}" if starter != "DataLoader" else f"pass {SPAWNED[starter][5:]}"
    source = (
        f" The library itself can start its threads anew in a child, by pthread_atfork() ({pool.started} starts them)."
        if pool.started is not None
        else ""
    )
    return (
        f"fork() copies one thread: those that {pool.library} started in the parent do not run in a child, which "
        f"{here} forks. Let the children use the library first: move what {earlier} does with it {own}, or run that in "
        f"a process of its own{alone}. Or {spawn}{where}, and let each child make its own object of the library "
        f"there.{source}"
    )


def _made(view: ProcessView, starter: str) -> int | None:
    """The only line that makes the DataLoader or pool, if that is another one than the one that forks."""
    fork = forked_at(main_stack(view))
    tree = syntax_tree(view.process.snapshot, fork[0]) if fork is not None else None
    calls = [item for item in nodes_of(tree or ast.Module([], [])) if isinstance(item, ast.Call)]
    made = [item.lineno for item in calls if called_name(item) == starter]
    return made[0] if len(made) == 1 and fork is not None and made[0] != fork[0].line else None
