"""An argument that an operator of torch does not check, and that does not fit the others."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import msgspec

from pytracer._text import list_words
from pytracer.analyze.evidence.heap.heap import heap_damage
from pytracer.analyze.evidence.indices.byte_order import reversed_range
from pytracer.analyze.evidence.indices.counted_elements import Counted, counted_elements, counted_rows
from pytracer.analyze.evidence.indices.index_origins import byte_order_advice
from pytracer.analyze.evidence.lifetime.variables import line_words, plain_expression
from pytracer.analyze.evidence.lifetime.where_made import line_that_made
from pytracer.analyze.evidence.operators.in_backward import backward
from pytracer.analyze.evidence.operators.operator import find_operator
from pytracer.analyze.evidence.preconditions.call import BoundCall, bound_call, bound_calls, earlier_calls
from pytracer.analyze.evidence.preconditions.given_words import Texts, held_words, named, range_words, source_words
from pytracer.analyze.evidence.preconditions.kept import kept_words
from pytracer.analyze.evidence.preconditions.library_calls import library_calls
from pytracer.analyze.evidence.preconditions.module_lines import module_line
from pytracer.analyze.evidence.preconditions.node_calls import node_calls
from pytracer.analyze.evidence.preconditions.origin import with_numbers_of_origin
from pytracer.analyze.evidence.preconditions.padding import Padding, padding
from pytracer.analyze.evidence.preconditions.replaced import replaced_words, replacing_line
from pytracer.analyze.evidence.preconditions.row_fill import RowFill, row_fill
from pytracer.analyze.evidence.preconditions.saved import with_saved
from pytracer.analyze.evidence.preconditions.terms import (
    Broken,
    Given,
    as_code,
    broken,
    broken_but_for_condition,
    holds,
    is_decided,
    left_argument,
    left_number,
    may_be_equal,
    unfit_numbers,
)
from pytracer.analyze.evidence.preconditions.unchecked_forward import forward_calls
from pytracer.analyze.known.operators import preconditions
from pytracer.analyze.view import ProcessView

_NULL = ("null", "near-null")  # an argument is missing or empty
_OTHERWISE = (*_NULL, "stack-guard")  # or the stack was full
_ATEN = "aten::"
_OF_VALUES, _OF_SIZES = ("min", "max", "least_sum"), ("size", "numel")
_MOST_TERMS, _MOST_CALLS = 2, 2
_WHERE_MADE = "{made}"
_LARGEST_CODE = 0x10FFFF  # of a character


class Violated(msgspec.Struct, frozen=True):
    """What the operator takes for granted, and what was passed instead."""

    call: BoundCall
    broken: Broken
    before: bool = False  # whether the call had returned
    counted: Counted | None = None  # what its numbers count instead, where they show that
    padding: Padding | None = None  # where the number is what the program pads with
    fill: RowFill | None = None  # where rows are padded with another one

    @property
    def culprit(self) -> Given:
        """The argument that does not fit."""
        return self.call.given[self.broken.left.arguments[0]]

    @property
    def is_of_values(self) -> bool:
        """Whether what it holds does not fit, and not its size."""
        return self.broken.left.function in _OF_VALUES or self.culprit.value is not None

    def leads_to(self, view: ProcessView) -> bool:
        """Whether it explains an access there: one at null only where the operator's result has no memory by it."""
        if view.place is None:
            return False
        kind = view.place.kind
        return kind not in _OTHERWISE or (kind in _NULL and self.call.entry.no_memory and not self.before)

    def is_reached(self, view: ProcessView) -> bool:
        """Whether the access lies behind the argument, within what it would have if it were as large as is taken."""
        crash, storage = view.crash, view.space.live_around(self.culprit.base) if self.culprit.base else None
        if crash is None or storage is None or self.broken.left.function not in _OF_SIZES:
            return False
        mine = self.broken.left.argument
        found = [item for text in self.call.entry.must if (item := broken(text, self.call.given)) is not None]
        times = {
            item.left.dimension: Fraction(item.right.value, item.left.value)
            for item in found
            if item.left.argument == mine and item.left.function in _OF_SIZES and item.left.value
        }
        taken = math.prod(times.values(), start=Fraction(storage.nbytes))
        return storage.nbytes <= crash.fault_addr - storage.base < taken

    @property
    def summary(self) -> str:
        """`` `bias` [16] has 16 elements, where native_batch_norm takes 32 for granted (size 1 of `x` [4, 32]) ``."""
        why = self.call.entry.why.get(self.broken.text)
        reason = f": {why}" if why is not None else ""
        ends = reversed_range(self.culprit.tensor)
        if ends is not None:
            reason += f" (with the bytes of each number reversed it holds {ends[0]}..{ends[1]})"
        elif self.counted is not None and self.counted.is_sure:
            reason += f": {self.counted.words}"
        elif self.padding is not None:
            reason += f": {self.padding.words}"
        elif self.fill is not None:
            reason += f"; {self.fill.words}"
        return f"{held_words(self.broken.left, self.call.given)}, where {self.taken}{reason}"

    @property
    def _may_number(self) -> bool:
        """Whether the number may be one of a numbering, as of characters by their codes."""
        return bool(self.call.entry.hint) and 0 <= self.broken.left.value <= _LARGEST_CODE

    @property
    def taken(self) -> str:
        """`native_batch_norm takes 32 for granted (size 1 of `x` [4, 32])`."""
        at = f" at line {self.call.line}" if self.before else ""
        at = f" at {self.call.place}" if self.call.place is not None else at
        limit = f"{self.broken.relation}{self.broken.right.value}"
        return f"{self.call.operator}{at} takes {limit} for granted{source_words(self.broken.right, self.call.given)}"

    def advice(self, view: ProcessView) -> str:
        """What to change, and since which line it is so."""
        left, right = self.broken.left, self.broken.right
        of_library = self.call.place is not None
        culprit = self.culprit
        line = f"line {self.call.line}" if self.before and not of_library else line_words(view)
        made = line_that_made(view, culprit.base, quote=False) if culprit.base else None
        module = module_line(view, culprit.base) if made is not None and culprit.base else None
        since = f", which {made} made{f' for {module}' if module is not None else ''}," if made is not None else ""
        limit = f"{self.broken.relation}{right.value}{source_words(right, self.call.given)}"
        fix, ends = self.call.entry.fix.get(self.broken.text), reversed_range(culprit.tensor)
        if ends is not None:
            return byte_order_advice(f"{named(culprit)}{since}", ends)
        if fix is not None:
            other = f" {named(self.call.given[right.arguments[0]])}" if right.arguments else ""
            made = replacing_line(view, culprit.base) or made
            texts = Texts(self.call.texts, made=f" at {made}" if made is not None else "")
            of_line = (f" at {line}", since) if _WHERE_MADE not in fix else ("", "")
            return (
                f"{fix.format_map(texts)}{of_line[0]}: {named(culprit)}{of_line[1]} does not fit{other}, "
                f"and {self.call.operator} does not check it."
            )
        if left.function in _OF_VALUES:
            what = "sum to" if left.function == "least_sum" else "be"
            hint = f" {self.call.entry.hint.format_map(Texts(self.call.texts))}" if self._may_number else ""
            if self.padding is not None:
                return self.padding.advice(culprit.name, self.call.operator, limit)
            if self.counted is not None and not self.counted.is_sure:
                hint = f" {self.counted.doubtful_words}{hint}"
            elif self.counted is not None:
                name = plain_expression(culprit.name.strip("`"))
                return (
                    f"{self.counted.advice(view, name, line)} {self.call.operator} does not check that {culprit.name} "
                    f"holds {limit}."
                )
            return (
                f"Check the values of {culprit.name}{range_words(culprit)}{since} before {line} passes it: they must "
                f"{what} {limit}. {self.call.operator} does not check them.{_lost_words(self.call)}{hint}"
            )
        if culprit.value is not None:
            return f"Pass {limit} for {culprit.name} at {line}: {self.call.operator} does not check it."
        others = [self.call.given[name] for name in (*right.arguments, *left.arguments[1:])]
        beside = f" with {named(others[0])}" if others else ""
        uses = "runs the module" if of_library else "passes them"
        before = "the module runs" if self.call.of_node else f"{line} {uses}"
        return (
            f"Compare {named(culprit)}{since}{beside} before {before}: {self.call.operator} takes {limit} "
            f"for granted, and does not check it.{kept_words(view, culprit, made)}{replaced_words(view, culprit.base)}"
        )


def violated(view: ProcessView) -> Violated | None:
    """None where all may fit, or the operator is none of those that are known."""
    calls, damaged = bound_calls(view, preconditions()), heap_damage(view) is not None
    for call in reversed([item for item in calls if may_run(view, item)]):  # the program's own first
        if damaged and call.entry.at_once:
            continue
        call = with_numbers_of_origin(view, call)
        found = _first_broken(call)
        if found is not None:
            return Violated(call, found, counted=_counted(view, call, found), padding=padding(view, call, found))
    return _of_backward(view) if not calls else None


def _counted(view: ProcessView, call: BoundCall, found: Broken) -> Counted | None:
    """What the number that does not fit counts, of one that may be as large as the limit: the end of the last row."""
    culprit = call.given[found.left.arguments[0]]
    if found.left.function != "max" or found.right.function not in _OF_SIZES or not may_be_equal(found.text):
        return None
    operands = [item.base for item in call.given.values() if item.base]
    text = plain_expression(culprit.name.strip("`"))
    value, limit = found.left.value, found.right.value
    ends = (culprit.tensor.minimum or 0 if culprit.tensor is not None else 0, value)
    exact = counted_elements(view, text, value, limit, culprit.base, operands)
    return exact or counted_rows(view, text, ends, limit, culprit.base, operands)


def is_unfit(view: ProcessView) -> bool:
    """Whether such an argument explains the access that was refused, wherever it led, as unfit-arguments says."""
    found = violated(view)
    return found is not None and found.leads_to(view)


def _of_backward(view: ProcessView) -> Violated | None:
    """Of the call whose backward is running: `ctc_loss` of the node CtcLossBackward0."""
    saved = backward(view)
    if saved is None or saved.node is None:
        return None
    called = forward_calls(view, saved.node)
    if not called:
        return None
    found = _first_broken(called[0])
    if found is None and len({(call.file, call.line) for call in called}) == 1:
        called = [with_saved(view, called[0], saved.node)]
        found = _first_broken(called[0])
    return _before(view, called[0], found)


def unchecked_here(view: ProcessView) -> str | None:
    """What the running operator does not check, where what it was passed is not known well enough to say more."""
    call = _running(view)
    terms = _open_terms(call) if call is not None else []
    if call is None or not terms:
        return None
    listed = list_words(terms[:_MOST_TERMS])
    return f"Check that {listed} before {line_words(view)}: {call.operator} takes that for granted.{_lost_words(call)}"


def unchecked_name(view: ProcessView) -> str | None:
    """The only argument with a number that nothing compares with its limit, which is not known; it may be lost, too."""
    call = _running(view)
    terms = [item for item in call.entry.must if not is_decided(item, call.given)] if call is not None else []
    if call is None:
        return None
    left = {name: item for item in terms if (name := left_argument(item)) is not None and name in call.given}
    known = [name for name, item in left.items() if left_number(item, call.given) is not None]
    known += [name for name in left if call.given[name].overwritten and name not in known]
    found = [call.given[name].name.strip("`") for name in known]
    return found[0] if len(found) == 1 else None


def unchecked_clause(view: ProcessView) -> str | None:
    """`` _convert_indices_from_coo_to_csr does not check that `index.max() < size` ``: where numbers are not known.

    Only where they are lost: the access has gone over the argument's memory.
    """
    call = _running(view)
    terms = _open_terms(call) if call is not None and _lost_words(call) else []
    if call is None or not terms:
        return None
    return f"{call.operator} does not check that {list_words(terms[:_MOST_TERMS])}"


def _running(view: ProcessView) -> BoundCall | None:
    call = bound_call(view, preconditions())
    return with_numbers_of_origin(view, call) if call is not None and may_run(view, call) else None


def _lost_words(call: BoundCall) -> str:
    """Of arguments that were overwritten, and what they were made of."""
    lost = [item for item in call.given.values() if item.overwritten]
    made = [f"{item.name} is made of {item.origin}; {item.holds}" for item in lost if item.origin is not None]
    if not lost:
        return ""
    names = list_words(list(dict.fromkeys(item.name for item in lost)))
    words = f" What is recorded of {names} itself is not what was passed: the write went over it."
    return f"{words} {list_words(list(dict.fromkeys(made)))}." if made else words


def _open_terms(call: BoundCall) -> list[str]:
    """Comparisons that nothing decides, as the program would write them: first those whose numbers do not fit.

    With the numbers that are known. Of `implied` ones they may not be used.
    """
    decided, unfit = set(), {}
    for item in call.entry.implied:
        text = as_code(item, call.texts)
        if is_decided(item, call.given):
            decided.add(text)
        elif (numbers := unfit_numbers(item, call.given)) is not None:
            unfit[text] = f" ({numbers[0]} and {numbers[1]} here, unless {numbers[0]} is padding)"
    terms = [item for item in call.entry.must if not is_decided(item, call.given) and not holds(item, call.given)]
    texts = {text: item for item in terms if (text := as_code(item, call.texts)) is not None and text not in decided}
    known = {text: left_number(item, call.given) for text, item in texts.items()}
    here = {text: f" ({value} here)" for text, value in known.items() if value is not None} | unfit
    return [f"`{text}`{here.get(text, '')}" for text in sorted(texts, key=lambda text: text not in unfit)]


def unchecked_words(view: ProcessView) -> str | None:
    """`` First suspect is ctc_loss at line 19, which does not check that `targets.max() < logits.size(-1)`. ``

    Of calls that had returned, where what they were passed is not known any more.
    """
    found = unchecked_calls_before(view)
    if not 0 < len(found) <= _MOST_CALLS:
        return None
    suspects = "suspect is" if len(found) == 1 else "suspects are"
    return f"First {suspects} {list_words(found)}."


def unchecked_calls_before(view: ProcessView) -> list[str]:
    """`` ctc_loss at line 19, which does not check that `targets.max() < logits.size(-1)` ``, of each such call."""
    found: dict[tuple[str, int], str] = {}
    for call in earlier_calls(view, preconditions()):
        terms = _open_terms(call)
        if terms:
            listed = list_words(terms[:_MOST_TERMS])
            found.setdefault(
                (call.operator, call.line), f"{call.operator} at line {call.line}, which does not check that {listed}"
            )
    return [*found.values()]


def suspect_forward(view: ProcessView) -> tuple[str, str] | None:
    """Of the call whose backward is running, and a recorded number of which does not fit, unless it is not read.

    `` ctc_loss at line 21, which does not check that `targets.max() < logp.size(-1)` (69 and 29 here, unless 69 is
    padding) ``, and what to check.
    """
    saved = backward(view)
    calls = forward_calls(view, saved.node) if saved is not None else []
    if len({(call.file, call.line) for call in calls}) != 1:
        return None
    call = calls[0]
    implied = [item for item in call.entry.implied if broken_but_for_condition(item, call.given) is not None]
    terms = [item for item in _open_terms(call) if item.endswith("is padding)")] if implied else []
    if not terms:
        return None
    listed = list_words(terms[:_MOST_TERMS])
    at = f"line {call.line}"
    check = (
        f"Check that {listed} before {at}: {call.operator} takes that for granted, and its backward writes where a "
        "number beyond that leads."
    )
    return f"{call.operator} at {at}, which does not check that {listed}", check


def has_unfit_before(view: ProcessView) -> bool:
    """Whether a recorded number of such a call does not fit, unless it is one that the call does not read."""
    return any(
        unfit_numbers(item, call.given) is not None and not is_decided(item, call.given)
        for call in earlier_calls(view, preconditions())
        for item in call.entry.implied
    )


def violated_before(view: ProcessView) -> Violated | None:
    """The same of a call that had returned, in a function that had not: what it wrote is found later."""
    running = {(call.operator, call.file, call.line) for call in bound_calls(view, preconditions())}
    known = preconditions()
    for call in (*library_calls(view, known), *earlier_calls(view, known), *node_calls(view, known)):
        if (call.operator, call.file, call.line) in running and may_run(view, call):
            continue
        found = _before(view, call, _first_broken(call))
        if found is not None:
            return found
    return None


def _before(view: ProcessView, call: BoundCall, found: Broken | None) -> Violated | None:
    """Of a call that had returned. Where nothing is decided: by what rows are padded with, if by another number."""
    if found is not None:
        return Violated(call, found, before=True, padding=padding(view, call, found))
    for text in call.entry.implied:
        unfit = broken_but_for_condition(text, call.given)
        fill = _other_fill(view, call, unfit) if unfit is not None else None
        if unfit is not None and fill is not None:
            return Violated(call, unfit, before=True, fill=fill)
    return None


def _other_fill(view: ProcessView, call: BoundCall, unfit: Broken) -> RowFill | None:
    """What rows are padded with, where the number that does not fit is another one, so that it is data."""
    name = unfit.left.argument or ""
    tensor = call.given[name].tensor if name in call.entry.padded else None
    if tensor is None or tensor.minimum is None or tensor.maximum is None or unfit.left.function not in ("min", "max"):
        return None
    fill = row_fill(view, call, name)
    held = fill is not None and tensor.minimum <= fill.number <= tensor.maximum
    return fill if fill is not None and held and fill.number != unfit.left.value else None


def may_run(view: ProcessView, call: BoundCall) -> bool:
    """Whether the native stack has the operator that the line calls, as far as it names one."""
    operator = find_operator(view)
    if operator is None or not operator.name.startswith(_ATEN):
        return True
    running, *called = (
        name.removeprefix(_ATEN).replace("_", "").lower() for name in (operator.name, call.operator, *call.entry.runs)
    )
    return any(running in name or name in running for name in called)


def _first_broken(call: BoundCall) -> Broken | None:
    """Of the argument that fits with the fewest others: the odd one out."""
    comparisons = (*call.entry.must, *call.entry.implied)
    found = [item for text in comparisons if (item := broken(text, call.given)) is not None]
    times = Counter(name for item in found for name in {*item.left.arguments, *item.right.arguments})
    return max(found, key=lambda item: times[item.left.arguments[0]], default=None)
