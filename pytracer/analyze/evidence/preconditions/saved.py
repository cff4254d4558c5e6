"""The arguments of an operator by what the node of its backward keeps, where no variable holds them any more."""

from __future__ import annotations

from dataclasses import replace

from pytracer.analyze.evidence.operators.operator import find_operator
from pytracer.analyze.evidence.preconditions.call import BoundCall
from pytracer.analyze.evidence.preconditions.terms import Given
from pytracer.analyze.view import ProcessView

_KIND = "saved"


def with_saved(view: ProcessView, call: BoundCall, node: str) -> BoundCall:
    """The call with the tensors that the node keeps, as the running operator is given them.

    As it is where the process has several nodes of that name, or one that keeps other tensors.
    """
    crash, operator = view.crash, find_operator(view)
    names = call.entry.saved.split()
    kept = [
        item for item in (crash.holders if crash is not None else ()) if item.kind == _KIND and item.expression == node
    ]
    if operator is None or not names or len(kept) != len(names):
        return call
    given = dict(call.given)
    for name, holder in zip(names, kept, strict=True):
        alike = [item.item for item in operator.tensors if item.item.base == holder.base]
        if name not in given and len({(item.sizes, item.dtype) for item in alike}) == 1:
            text = call.texts.get(name, name)
            given[name] = Given(f"`{text}`", alike[0], elements=alike[0].elements, base=holder.base)
    return replace(call, given=given)
