"""Calls of operators that had returned, by the autograd nodes that are kept: what a node saved was given to it.

The variables of the call are gone, or were never the program's: a module of torch made it. The node of the result keeps
the tensors, and the result's storage has the line that made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.lifetime.variables import plain_expression, registered_name
from pytracer.analyze.evidence.lifetime.where_made import own_line
from pytracer.analyze.evidence.preconditions.call import BoundCall
from pytracer.analyze.evidence.preconditions.terms import Given
from pytracer.analyze.known.operators import Precondition
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Crash, Holder, Storage

_NODE = Pattern(r"^(\w+?)Backward\d*$")
_KIND = "saved"


def node_calls(view: ProcessView, known: Mapping[str, Precondition]) -> Iterator[BoundCall]:
    """Of the nodes whose operator is known, and what it saves."""
    crash = view.crash
    saved = [item for item in crash.holders if item.kind == _KIND] if crash is not None else []
    for node in dict.fromkeys(item.expression for item in saved):
        name = _operator(node, known)
        if crash is None or name is None:
            continue
        kept, size = [item for item in saved if item.expression == node], len(known[name].saved.split())
        groups = [kept[at : at + size] for at in range(0, len(kept), size)]
        if all(len(group) == size and len({item.distance for item in group}) == 1 for group in groups):
            yield from (item for group in groups if (item := _call(view, crash, group, name, known[name])) is not None)


def _operator(node: str, known: Mapping[str, Precondition]) -> str | None:
    """`_weight_norm_interface` of `WeightNormInterfaceBackward0`."""
    found = _NODE.match(node)
    wanted = found[1].lower() if found is not None else None
    return next((name for name, entry in known.items() if entry.saved and name.replace("_", "") == wanted), None)


def _call(view: ProcessView, crash: Crash, kept: Sequence[Holder], name: str, entry: Precondition) -> BoundCall | None:
    """None where no line of it is recorded."""
    given = {}
    for argument, holder in zip(entry.saved.split(), kept, strict=True):
        alike = [item for item in crash.arguments if item.base and item.base == holder.base]
        if len({(item.sizes, item.dtype) for item in alike}) == 1:
            text = registered_name(view, holder.base) or _expression(crash, holder.base) or argument
            given[argument] = Given(f"`{text}`", alike[0], elements=alike[0].elements, base=holder.base)
    given |= _numbers(crash, [item.base for item in kept], entry, given.keys())
    texts = {argument: item.name.strip("`") for argument, item in given.items()}
    result = view.space.live_around(kept[-1].base)
    own = own_line(result.allocated_by) if result is not None and not result.older else None
    if own is not None and own.line is not None:
        return BoundCall(name, given, entry, own.line, texts, file=own.file)
    place = _library_place(result)
    return BoundCall(name, given, entry, 0, texts, place=place, of_node=True) if place is not None else None


def _expression(crash: Crash, base: int) -> str | None:
    """The first variable that holds it."""
    held = (plain_expression(item.expression) for item in crash.holders if item.base == base and item.frame is not None)
    return next(held, None)


def _numbers(crash: Crash, bases: Sequence[int], entry: Precondition, but: object) -> dict[str, Given]:
    """Arguments that are no tensors, by an attribute of that name, where the same frame has the saved tensors."""
    frames = [item.frame for item in crash.holders if item.base in bases and item.frame is not None]
    found: dict[str, set[int]] = {}
    for item in crash.numbers:
        owner, _, attribute = item.expression.rpartition(".")
        if owner and attribute in entry.arguments.split() and item.frame in frames:
            found.setdefault(attribute, set()).add(item.value)
    return {name: Given(f"`{name}`", value=values.pop()) for name, values in found.items() if len(values) == 1}


def _library_place(storage: Storage | None) -> str | None:
    """`torch/nn/utils/weight_norm.py:29`."""
    site = storage.allocated_by.python if storage is not None and not storage.older else None
    return f"{short_file(site.file)}:{site.line}" if site is not None and is_library_file(site.file) else None
