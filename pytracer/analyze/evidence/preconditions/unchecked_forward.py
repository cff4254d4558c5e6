"""A tensor that the forward saved, of an operator whose forward does not check its values: they may never have fitted.

`ctc_loss` runs with any targets, and its backward writes where they lead: that it ran shows nothing of them.
"""

from __future__ import annotations

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.lifetime.where_made import line_that_made
from pytracer.analyze.evidence.operators.operator import OperatorTensor
from pytracer.analyze.evidence.preconditions.call import BoundCall, earlier_calls
from pytracer.analyze.evidence.preconditions.given_words import Texts, range_words, source_words
from pytracer.analyze.evidence.preconditions.saved import with_saved
from pytracer.analyze.evidence.preconditions.terms import (
    Broken,
    as_code,
    broken,
    broken_but_for_condition,
    left_argument,
    left_function,
)
from pytracer.analyze.known.operators import Precondition, preconditions
from pytracer.analyze.view import ProcessView

_NODE = Pattern(r"^(\w+?)Backward\d*$")
_OF_VALUES = ("min", "max")
_MOST_TERMS = 2


def forward_calls(view: ProcessView, node: str | None) -> list[BoundCall]:
    """Calls of the operator whose node it is, `ctc_loss` of CtcLossBackward0, of functions on the Python stack."""
    called = operator_of(node)
    return [call for call in earlier_calls(view, preconditions()) if _plain(call.operator) == called]


def operator_of(node: str | None) -> str | None:
    """`ctcloss` of CtcLossBackward0."""
    found = _NODE.match(node or "")
    return found[1].lower() if found is not None else None


def unchecked_advice(view: ProcessView, node: str | None, item: OperatorTensor) -> str | None:
    """What such a tensor must hold before which line passes it; None where the operator is not known to take it so."""
    calls = forward_calls(view, node)
    if node is None or len({(call.file, call.line) for call in calls}) > 1:
        return None
    if not calls:
        return _without_call(node, item)
    call = with_saved(view, calls[0], node)
    argument = next((name for name, given in call.given.items() if given.base and given.base == item.item.base), None)
    terms = [text for text in _terms(call.entry) if left_argument(text) == argument]
    if argument is None or not terms:
        return None
    given, line = call.given[argument], f"line {call.line}"
    unfit = next(
        (one for text in terms if (one := broken(text, call.given) or broken_but_for_condition(text, call.given))), None
    )
    if unfit is None:
        codes = dict.fromkeys(code for text in terms if (code := as_code(text, call.texts)) is not None)
        listed = list_words([f"`{code}`" for code in codes][:_MOST_TERMS])
        return f"Check that {listed} before {line}: {call.operator} does not check that." if listed else None
    made = line_that_made(view, item.item.base, quote=False)
    since = f", which {made} made," if made is not None else ""
    hint = f" {call.entry.hint.format_map(Texts(call.texts))}" if call.entry.hint and unfit.left.value >= 0 else ""
    return (
        f"Check the values of {given.name}{range_words(given)}{since} before {line} passes it: they must be "
        f"{_limit(unfit, call)}{', but for what only pads rows' * (argument in call.entry.padded)}. {call.operator} "
        f"does not check them.{hint}"
    )


def _limit(unfit: Broken, call: BoundCall) -> str:
    return f"{unfit.relation}{unfit.right.value}{source_words(unfit.right, call.given)}"


def _without_call(node: str, item: OperatorTensor) -> str | None:
    """Where the function that called it has returned, and no variable has the tensor's limit."""
    found = [(name, entry) for name, entry in preconditions().items() if _plain(name) == operator_of(node)]
    if not found or not _terms(found[0][1]):
        return None
    values = f" ({item.item.minimum}..{item.item.maximum})" if item.item.minimum is not None else ""
    name = f"{f'`{item.name}`' if item.name else f'the saved tensor of {item.item.dtype}'}{values}"
    return (
        f"Check the values of {name} where the forward passes it, and look for what may have changed it since: "
        f"{found[0][0]} does not check all of its arguments, so that it may have been wrong from the start."
    )


def _terms(entry: Precondition) -> list[str]:
    """Comparisons of what an argument holds."""
    return [text for text in (*entry.must, *entry.implied) if left_function(text) in _OF_VALUES]


def _plain(operator: str) -> str:
    return operator.rpartition(".")[2].replace("_", "")
