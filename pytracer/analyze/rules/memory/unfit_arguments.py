"""unfit-arguments: an operator of torch got arguments that do not fit together, and does not check them.

What: a refused memory access in an operator whose kernel takes a size or a range of values for granted
(`analyze/known/operators.toml`), while the line that called it passes something else: statistics of 16 channels for an
input of 32, an index beyond its plane, a gradient of another number of planes, a state with a batch dimension for an
input without one, offsets of an embedding bag that make no bag, numbers of rows whose sum overflows.

Why it happens: the functions of torch.nn compare what they are given; the operators below them, which extensions,
exported programs and hand-written backwards call, often do not. They then read or write past the end of the smaller
tensor, and where that leads to is chance: freed memory, a library, another tensor, or nothing.

An offset that is as large as a recorded tensor has elements, or bytes, in as many rows as there are, counts these where
rows are meant; the line of the program that counts so is named, also where a file lies between. A factor of 8 or less
may be chance, and counts only with such a line.

What to do: make the named argument fit at the line that is named.

How it can be wrong: which variable is which argument is read from the program's source, so the file must be as it was.
It is *likely* only where the native stack does not name the operator that the line calls and the access lies elsewhere
than behind the argument, within the size that is taken for granted; and where a write that ran
on has gone over the numbers of the argument: those of what it was made of are taken then, where they are known. Where
such a call had returned already, in a function that had not, the fault is taken for what it had written:
heap-corruption, *likely*.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer.analyze.evidence.at_fault import of_unfit
from pytracer.analyze.evidence.heap.heap import heap_damage
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.operators.operator import find_operator, is_of_torch
from pytracer.analyze.evidence.phrases import (
    access_verb,
    collective_evidence,
    fault_evidence,
    in_function,
    python_evidence,
)
from pytracer.analyze.evidence.preconditions.violated import Violated, violated, violated_before
from pytracer.analyze.naming import introduction, place_words
from pytracer.analyze.platform.signals import SIGSEGV
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.rules.fault import MemoryFaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence


class UnfitArguments(MemoryFaultRule[Violated]):
    """Fires where the operator that ran takes something for granted that does not hold."""

    id = "unfit-arguments"
    needs = ("crash",)
    signals: tuple[int, ...] = (SIGSEGV,)

    def judge(self, view: ProcessView) -> Judgement[Violated] | None:
        """See MemoryFaultRule."""
        if heap_damage(view) is not None:
            return None  # where the allocator met the damage, the damage is what ended the process
        found, operator = violated(view), find_operator(view)
        if found is None:
            before = violated_before(view)
            led = before is not None and before.leads_to(view)
            return Judgement("heap-corruption", "likely", (view,), before) if before is not None and led else None
        if not found.leads_to(view):
            return None
        named = operator is not None and is_of_torch(operator) and not operator.from_records
        recorded = not found.culprit.overwritten
        sure = (named or found.is_reached(view)) and recorded
        return Judgement("out-of-bounds", "certain" if sure else "likely", (view,), found)

    def describe(self, job: JobView, judgement: Judgement[Violated]) -> Description:
        """See MemoryFaultRule."""
        view, found = judgement.views[0], judgement.found
        what = "memory by a pointer that had been overwritten" if found.before else "out of bounds"
        return Description(
            f"{introduction(judgement.views)} {access_verb(view)} {what}{_place(view)}: {found.summary}.",
            [
                _evidence(found),
                fault_evidence(view),
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            found.advice(view),
            explained=True,
            behind=of_unfit(view, found),
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See MemoryFaultRule."""
        return not_found("no operator that ran takes something for granted that did not hold")


def _place(view: ProcessView) -> str:
    """The native function; for a thread that runs no Python also the main thread's line."""
    frame = next(iter(program_frames(view)), None) if view.python_frame is None else None
    main = f", while the main thread was at {place_words(frame)}" if frame is not None else ""
    return f"{in_function(view)}{main}"


def _evidence(found: Violated) -> Evidence:
    return Evidence(
        "tensor",
        f"{found.call.operator} does not check this: {found.summary}",
        tensor=found.culprit.name.strip("`"),
        value=found.broken.left.value,
        limit=found.broken.right.value,
    )
