"""Tensors of 0 elements that an operator was given where it takes some for granted, so that it met a null pointer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._text import count_words, list_words
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.lifetime.variables import line_words, plain_expression
from pytracer.analyze.evidence.preconditions.call import BoundCall
from pytracer.analyze.evidence.preconditions.violated import violated
from pytracer.analyze.evidence.slicing.zero_sizes import zero_size
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Holder

_NOT = "not "


class EmptyArguments(msgspec.Struct, frozen=True):
    """`summary`: behind what the headline says of them. `lines`: those that made them so."""

    summary: str
    advice: str
    lines: tuple[Place, ...]


def empty_arguments(view: ProcessView, empty: Sequence[Holder]) -> EmptyArguments | None:
    """None where the operator is not known, or takes nothing for granted of these tensors."""
    unfit = violated(view) if empty and not any(item.elements for item in empty) else None
    if unfit is None or unfit.before or unfit.broken.left.function != "numel" or unfit.broken.left.value:
        return None
    texts = [plain_expression(item.expression) for item in empty]
    arguments = [name for name, text in unfit.call.texts.items() if text in texts]
    if unfit.broken.left.arguments[0] not in arguments:
        return None
    names = list_words([f"`{text}`" for text in texts])
    made = zero_size(view, empty[0])
    count, line = count_words(unfit.broken.right.value, "element"), line_words(view)
    alike = {unfit.call.entry.needs.get(name) for name in arguments}
    together = {name for name, flag in unfit.call.entry.needs.items() if flag in alike}  # torch asks for all or none
    if together == set(arguments) and all(_may_be_none(unfit.call, name) for name in arguments):
        advice = f"Pass None for {names} at {line}, or a tensor of {count}"
    else:
        advice = f"Give {names} {count} before {line}"
    words = f"; {made.words}" if made is not None else ""
    why = f" L{made.words[1:]}." if made is not None and made.words.startswith("line ") else ""
    return EmptyArguments(
        f", where {unfit.taken}{words}",
        f"{advice}: {unfit.call.operator} does not check for an empty one.{why}",
        made.places if made is not None else (),
    )


def _may_be_none(call: BoundCall, argument: str) -> bool:
    """Whether the operator takes None for it, and the flags of the call leave it unread then."""
    flag = call.entry.needs.get(argument)
    given = call.given.get(flag.removeprefix(_NOT)) if flag else None
    if not flag or given is None or given.value is None:
        return False
    return bool(given.value) == flag.startswith(_NOT)
