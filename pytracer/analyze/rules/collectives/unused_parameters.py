"""unused-parameters: DistributedDataParallel waited for gradients of parameters that the loss did not use.

What: the RuntimeError "Expected to have finished reduction in the prior iteration" names parameters by index; here they
get their names. Where ranks left different parameters unused, that is reported: such ranks diverge.

Why it happens: a branch of forward that is not always taken, a head that is not part of the loss, a frozen part that
still requires gradients, a layer that is frozen or replaced after DDP has wrapped the model. The error is raised one
iteration late, in the next forward.

Where forward() gives several outputs, and only one line of the source makes a loss without one of them, that line is
named; a branch that decides whether the loss has it only may leave it out. Nothing is named where the output also goes
to what is not followed. Both are followed by syntax: through assignments, branches and functions of the program.

What to do: use all parameters, give them requires_grad_(False), or pass find_unused_parameters=True.

How it can be wrong: names are taken from the first DDP module with enough parameters; with several modules they may be
those of another one.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._patterns import Pattern
from pytracer._text import capital, list_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.collectives.description import span_words
from pytracer.analyze.evidence.exceptions.changed_layers import changed_layer
from pytracer.analyze.evidence.exceptions.layers_without_gradients import layers_without_gradients
from pytracer.analyze.evidence.exceptions.left_out_outputs import is_raised_by_ddp
from pytracer.analyze.evidence.exceptions.unused_layers import unused_layer
from pytracer.analyze.naming import place_words
from pytracer.analyze.rules.account import account
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.journal import Buckets, Module
from pytracer.report.job import Evidence

_UNUSED = Pattern(r"Expected to have finished reduction in the prior iteration")
_STATIC_GRAPH = Pattern(r"static_graph(?:=| set to )True")
_ADVICE = "Pass find_unused_parameters=True to DistributedDataParallel, or let all parameters take part in the loss."
_STATIC = (
    "Let all parameters take part in the loss (add `0 * p.sum()` of the unused ones), or remove static_graph=True and "
    "pass find_unused_parameters=True: with a static graph DistributedDataParallel ignores that flag."
)
_UNGRADED = (
    "If they shall learn, take that away; else requires_grad_(False) for them before DistributedDataParallel wraps the "
    "model, or find_unused_parameters=True."
)
_INDICES = Pattern(r"Parameter indices which did not receive grad for rank \d+: ([\d ]+)")
_NAMES = Pattern(r"Parameters which did not receive grad for rank \d+: ([^\n]+)")
_SHOWN = 4
_Unused = dict[tuple[str, ...], list[int]]  # names of parameters, and the ranks that left just these unused


class UnusedParameters:
    """Fires for DDP's exception about parameters without gradients."""

    id = "unused-parameters"
    needs = ("EXCEPTION", "MODULE", "BUCKETS")

    def check(self, job: JobView) -> tuple[Judgement[_Unused], ...] | NoFinding:
        """One judgement for all ranks that raised it."""
        views = [
            view for view in job.views if view.raised and view.process.role == "rank" and _UNUSED.search(_message(view))
        ]
        if not views:
            return not_found("no exception of DDP says that parameters did not take part in the loss")
        sets: _Unused = {}
        for view in views:
            rank = view.process.rank if view.process.rank is not None else -1
            sets.setdefault(tuple(_unused(view)), []).append(rank)
        culprits = _everybody(sets)
        judgement = Judgement(
            "misuse",
            "certain",
            tuple(sorted(views, key=lambda view: view.process.rank or 0)),
            sets,
            undecided=len(culprits) > 1,
        )
        did = dict.fromkeys(culprits, "left parameters out of the loss")
        return (account(job, judgement, f"{span_words(culprits)} left parameters out of the loss", did, ends=True),)

    def describe(self, job: JobView, judgement: Judgement[_Unused]) -> Description:
        """See Rule."""
        sets = judgement.found
        names, everybody = next(iter(sets)), _everybody(sets)
        what = _named(names) if names else "some parameters"
        sides = "; ".join(f"{span_words(ranks)} without {list_words(unused, _SHOWN)}" for unused, ranks in sets.items())
        ended = _ended(job, judgement.views)
        healthy = [p.rank for p in job.job.ranks if p.rank is not None and p.rank not in (*everybody, *ended)]
        ungraded = layers_without_gradients(judgement.views[0], names) if len(sets) == 1 else None
        changed = changed_layer(judgement.views[0], names) if len(sets) == 1 and ungraded is None else None
        layer = unused_layer(judgement.views[0], names) if names and changed is None and ungraded is None else None
        reason = ungraded.words if ungraded is not None else layer.reason if layer is not None else None
        raised, who = _raised_words(judgement.views), span_words(everybody)
        left = f"{who} had left" if raised is not None else f"{capital(who)} left"
        if ended and raised is not None:  # the others may have done as well
            left = "the step before left"
        why = f"; {reason}" if reason is not None and len(sets) == 1 else ""
        said = (
            f"{f'{raised}: ' if raised is not None else ''}{left} parameters out of the loss, for whose gradients DDP "
            f"waits: {what if len(sets) == 1 else sides}{why}."
        )
        if changed is not None:
            said = f"{changed.words}; DDP waits for the gradients of {what} on {span_words(everybody)}."
        return Description(
            said,
            [
                Evidence(
                    "exception",
                    "the exception comes in the next forward; the parameters were unused in the backward before it",
                    tensors=list(names),
                ),
                Evidence("rank-state", f"the sets differ between ranks: {sides}", ranks=everybody)
                if len(sets) > 1
                else None,
                Evidence(
                    "rank-state",
                    f"{span_words(healthy)} did not raise it: the ranks take different branches",
                    ranks=healthy,
                )
                if healthy
                else None,
                Evidence("rank-state", f"{span_words(ended)} {_did(job, ended)}", ranks=ended) if ended else None,
            ],
            f"{capital(ungraded.words)}. {_UNGRADED}"
            if ungraded is not None
            else changed.advice
            if changed is not None
            else f"{f'{layer.words}. ' if layer is not None else ''}"
            f"{_STATIC if any(_STATIC_GRAPH.search(_message(view)) for view in judgement.views) else _ADVICE}",
            [] if names else ["the names: neither the message nor the recorded module has them"],
            has_place=raised is not None,
            behind=Behind.of([], list(layer.places)) if layer is not None else None,
        )


def _ended(job: JobView, views: Sequence[ProcessView]) -> list[int]:
    """Ranks that were ended before they could raise it: they had called no collective that who raised it had not.

    One that uses the parameters goes on to the all-reduce of their gradients.
    """
    last = max((_calls(view) for view in views), default=0)
    others = [view for view in job.views if view.process.role == "rank" and view not in views]
    quiet = [view for view in others if view.process.status_kind == "signaled" and not (view.raised or view.is_fault)]
    return sorted(view.process.rank for view in quiet if view.process.rank is not None and _calls(view) <= last)


def _calls(view: ProcessView) -> int:
    return max((item.sequence_nr or 0 for item in view.collectives), default=0)


def _did(job: JobView, ranks: Sequence[int]) -> str:
    """What was seen of ranks that were ended."""
    stacks = [view.python_stack or () for view in job.views if view.process.rank in ranks]
    raising = all(any((frame.function or "").endswith("excepthook") for frame in stack) for stack in stacks)
    last = "had reduced none of these gradients either"
    return (
        f"{last}, and was reporting an exception of its own when it was ended" if raising else f"{last} when it ended"
    )


def _raised_words(views: Sequence[ProcessView]) -> str | None:
    """`RuntimeError in DDP's forward at train.py:60 in train_step (step 25)`.

    None where the ranks were at others, or where the program made another exception of DDP's.
    """
    first = views[0]
    places = {(item[0].file, item[0].line) if (item := view.exception_stack_of_program) else None for view in views}
    if first.exception is None or len(places) != 1 or None in places or not all(map(is_raised_by_ddp, views)):
        return None
    steps = {view.step for view in views}
    step = f" (step {first.step})" if len(steps) == 1 and first.step is not None else ""
    return f"{first.exception.type} in DDP's forward at {place_words(first.exception_stack_of_program[0])}{step}"


def _named(names: Sequence[str]) -> str:
    """`a.weight and a.bias`; of many in one module `12 parameters of encoder.layers.2`."""
    modules = [name.split(".")[:-1] for name in names]
    alike = [parts[0] for parts in zip(*modules, strict=False) if len({*parts}) == 1]
    if len(names) <= _SHOWN or not alike:
        return list_words(names, _SHOWN)
    return f"{len(names)} parameters of {'.'.join(alike)}"


def _everybody(sets: _Unused) -> list[int]:
    return sorted(rank for ranks in sets.values() for rank in ranks)


def _message(view: ProcessView) -> str:
    return (view.exception.message if view.exception else None) or ""


def _unused(view: ProcessView) -> list[str]:
    """Their names: from the message where TORCH_DISTRIBUTED_DEBUG added them, else by index."""
    told = _NAMES.search(_message(view))
    if told is not None:
        return [name.strip() for name in told[1].split(",")]
    found = _INDICES.search(_message(view))
    if found is None:
        return []
    indices = [int(word) for word in found[1].split()]
    for names in _parameters(view):
        if indices and max(indices) < len(names):
            return [names[index] for index in indices]
    return [f"parameter {index}" for index in indices]


def _parameters(view: ProcessView) -> list[list[str]]:
    """Of each DDP module, the parameters that take part in its buckets, in the order in which DDP counts them."""
    snapshot = view.process.snapshot
    in_buckets: dict[str, set[str]] = {}
    for layout in snapshot.recorded(Buckets):
        names = in_buckets.setdefault(layout.data.module, set())
        names.update(item.fqn for bucket in layout.data.buckets for item in bucket.parameters)
    found = []
    for module in snapshot.recorded(Module):
        reduced = in_buckets.get(module.data.module, set())
        found.append([t.fqn for t in module.data.tensors if t.role == "parameter" and t.fqn in reduced])
    return found
