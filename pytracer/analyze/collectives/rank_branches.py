"""The `if` on the rank around a line that led to a collective: below it, some ranks never call that."""

from __future__ import annotations

from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.naming import place_words
from pytracer.analyze.parts import is_library_file
from pytracer.analyze.tensors.source_lines import rank_branch
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective


def branch_advice(view: ProcessView, call: Collective) -> str | None:
    """`train.py:22 in save is below `if rank == 0:` (line 21), ...`; None where the sources show no such branch.

    Args:
        view: a rank that called it.
        call: its own call, of whose lines the innermost is recorded, and the others where the rank ended in it.
    """
    at = place_of(call)
    stack = view.exception_stack if view.raised else view.python_stack or []
    called = stack if at is None or at in stack else [at]
    for frame in called:
        if is_library_file(frame.file):
            continue
        found = rank_branch(view.process.snapshot, frame)
        if found is not None:
            return (
                f"{place_words(frame)} is below `{found[1]}` (line {found[0]}), so that only some ranks call what "
                "communicates there: take it out of that branch, call it on all ranks, and keep only the printing or "
                "saving of its result for one rank."
            )
    return None
