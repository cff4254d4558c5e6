"""A conclusion in words: what its rule says, with the line, and with what else is known of the fault."""

from __future__ import annotations

from msgspec import structs

from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.at_fault import of_looked_up
from pytracer.analyze.evidence.ends.exit_handler import exit_handler
from pytracer.analyze.evidence.ends.native_exit import native_exit
from pytracer.analyze.evidence.exceptions.living_senders import RAN_ON
from pytracer.analyze.evidence.heap.beyond_storage import beyond_advice, beyond_storage
from pytracer.analyze.evidence.indices.coordinates import not_finite_coordinates
from pytracer.analyze.evidence.indices.passed_floats import passed_floats
from pytracer.analyze.evidence.indices.reached_row import reached_row
from pytracer.analyze.evidence.indices.smallest import smallest_index
from pytracer.analyze.evidence.known_crashes import known_crash
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.native.loading import loading, ran_past_end
from pytracer.analyze.evidence.native.other_profilers import other_profilers
from pytracer.analyze.evidence.operators.not_finite_lines import not_finite_lines
from pytracer.analyze.evidence.operators.operator import find_operator, out_of_range
from pytracer.analyze.evidence.operators.state_sizes import state_advice, state_behind, state_size
from pytracer.analyze.evidence.own_code.counted_bytes import counted_bytes
from pytracer.analyze.evidence.own_code.differing_layout import differing_layout
from pytracer.analyze.evidence.own_code.looked_up import looked_up
from pytracer.analyze.evidence.own_code.native_line import with_native_line
from pytracer.analyze.evidence.own_code.overfilled import overfilled
from pytracer.analyze.evidence.own_code.pointer_content import text_in_pointer
from pytracer.analyze.evidence.own_code.pointer_depth import pointer_depth
from pytracer.analyze.evidence.own_code.sort_order import sort_order
from pytracer.analyze.evidence.own_code.text_of_bytes import text_of_bytes
from pytracer.analyze.evidence.own_code.two_threads import at_once
from pytracer.analyze.evidence.own_code.unfit_structure import unfit_structure
from pytracer.analyze.evidence.phrases import access_verb, in_function
from pytracer.analyze.evidence.slicing.stores import store_of
from pytracer.analyze.headline import with_line
from pytracer.analyze.naming import introduction
from pytracer.analyze.rules.base import AnyJudgement, AnyRule, Description
from pytracer.analyze.view import JobView, ProcessView

# Classes whose headline says what a known crash is; those of others have it by their rules.
_NAMED_IN = ("python-exception", "null-dereference", "out-of-bounds")
# Whose advice is about what a line passes to native code, where it begins so.
_OF_ARGUMENTS = ("wild-pointer", "null-dereference", "arithmetic", "out-of-bounds", "runaway-access", "wrong-index")
_OF_CODE = (*_OF_ARGUMENTS, "illegal-instruction", "read-only-memory", "misaligned-access", "other-death")
_BY_POINTERS = ("wild-pointer", "null-dereference", "out-of-bounds", "runaway-access")
_OF_MEMORY = ("use-after-free", "heap-corruption", "unmapped-memory", "abort")
_BY_INDEX = ("out-of-bounds", "runaway-access", "wrong-index")
_OF_ENDED_SENDER = "tensor-sender-ended"
_STOPPED_TWICE = "profiler-stopped-twice"
_ABOUT_ARGUMENTS = ("Check ", "Compare ")


def described(job: JobView, rule: AnyRule, judgement: AnyJudgement, *, is_cause: bool) -> Description:
    """As the rule says it; of the cause of a death with its line, and with what is known of such crashes."""
    words = rule.describe(job, judgement)
    if is_cause:
        words = _of_looked_up(rule.id, judgement, words)
        words = _of_layout(rule.id, judgement, words)
        words = _of_bytes(rule.id, judgement.views[0], words)
        words = _of_shown_bytes(rule.id, judgement.views[0], words)
        words = _of_overfilled(rule.id, judgement.views[0], words)
        words = _of_coordinates(judgement, words)
        words = _while_loading(rule.id, judgement, words)
        words = _at_exit(rule.id, judgement, words)
        words = _during_exit(rule.id, judgement, words)
        # where somebody else ended it, the line is where the process was, not what went wrong
        if judgement.verdict_class != "external-kill" and not words.has_place:
            words = structs.replace(words, summary=with_line(words.summary, judgement.views))
        words = _recognized(judgement, words)
        words = _of_profilers(judgement.views[0], words)
        state = state_size(judgement.views[0]) if rule.id in _OF_ARGUMENTS else None
        if state is not None:
            lines = state_behind(judgement.views[0], state) or words.behind
            words = structs.replace(words, advice=state_advice(judgement.views[0], state), explained=True, behind=lines)
        words = _of_smallest(judgement, words)
        words = _of_passed_floats(judgement, words)
        words = _of_larger_tensor(rule.id, judgement.views[0], words) if state is None else words
        may_race = not words.explained and rule.id in (*_OF_ARGUMENTS, "heap-corruption")
        others = at_once(judgement.views[0]) if may_race else None
        if others is not None:
            summary = f"{words.summary.removesuffix('.')}; {others.summary}."
            words = structs.replace(words, summary=summary, advice=others.advice)
        words = _of_a_sort(rule.id, judgement.views[0], words)
        about_arguments = words.advice.startswith(_ABOUT_ARGUMENTS) and not words.names_source
        if rule.id in _OF_ARGUMENTS and about_arguments:
            words = structs.replace(words, advice=with_native_line(judgement.views[0], words.advice))
        words = _with_store(judgement.views[0], words)
    return words


def _of_coordinates(judgement: AnyJudgement, words: Description) -> Description:
    """With the floats that an operator made its index of, where these are NaN."""
    view = judgement.views[0]
    found = not_finite_coordinates(view) if judgement.verdict_class == "out-of-bounds" and view.is_fault else None
    if found is None:
        return words
    access = f"{access_verb(view)} out of bounds{in_function(view)}"
    return structs.replace(
        words,
        summary=f"{introduction(judgement.views)} {access}: {found.summary}.",
        evidence=[*words.evidence, found.evidence],
        advice=found.advice,
        missing=(),
        behind=found.behind,
        explained=True,
        names_source=True,
    )


def _of_smallest(judgement: AnyJudgement, words: Description) -> Description:
    """With the conversion that made an index the smallest integer, or the line that writes that down."""
    found = smallest_index(judgement.views[0]) if judgement.verdict_class == "out-of-bounds" else None
    floats = passed_floats(judgement.views[0]) if found is not None and not words.explained else None
    if found is None or (floats is not None and floats.summary is not None):
        return words
    summary = f"{words.summary.removesuffix('.')}; {found.summary}."
    about = words.behind or found.behind
    behind = structs.replace(about, lines=(*about.lines, *found.behind.lines))
    return structs.replace(
        words, summary=summary, advice=found.advice, behind=behind, explained=True, names_source=True
    )


def _of_passed_floats(judgement: AnyJudgement, words: Description) -> Description:
    """With the floats that the program's own native code made its index of, where these are NaN."""
    view, of_class = judgement.views[0], judgement.verdict_class == "out-of-bounds"
    found = passed_floats(view) if of_class and view.is_fault and not words.explained else None
    if found is None:
        return words
    if found.summary is None or found.evidence is None:
        return structs.replace(words, advice=found.advice, names_source=True)
    access = f"{access_verb(view)} out of bounds{in_function(view)}"
    return structs.replace(
        words,
        summary=with_line(f"{introduction(judgement.views)} {access}: {found.summary}.", judgement.views),
        evidence=[*words.evidence, found.evidence],
        advice=found.advice,
        missing=(),
        behind=found.behind,
        explained=True,
        names_source=True,
    )


def _with_store(view: ProcessView, words: Description) -> Description:
    """With the line that put the value at fault where the failing line takes it from, where that is one line."""
    about = words.behind
    if about is None or not about.names or about.sizes or about.nearest or view.raised:
        return words
    stores = (store_of(view.process.snapshot, program_frames(view), name) for name in about.names)
    found = [item for item in stores if item is not None]
    if len(found) != 1:
        return words
    store = found[0]
    more = store.change_words if store.places[0] in about.lines else store.words
    if not more:
        return words
    return structs.replace(
        words, advice=f"{words.advice} {more}", behind=structs.replace(about, lines=(*about.lines, *store.places))
    )


def _while_loading(rule: str, judgement: AnyJudgement, words: Description) -> Description:
    """Of a fault: that a function without a return ran on, or that the library was only being loaded."""
    view = judgement.views[0]
    if not view.is_fault or rule not in _OF_CODE:
        return words
    ran_on, load = ran_past_end(view), loading(view)
    if ran_on is not None:
        summary = f"{introduction(judgement.views)} {ran_on.words}{load.when(view) if load is not None else ''}."
        return structs.replace(words, summary=summary, advice=ran_on.advice, explained=True, has_place=load is not None)
    if load is None or words.explained or not words.advice.startswith(_ABOUT_ARGUMENTS):
        return words
    summary = f"{words.summary.removesuffix('.')}{load.when(view)}, by {load.step}."
    return structs.replace(words, summary=summary, advice=load.advice(view), explained=True, has_place=True)


def _at_exit(rule: str, judgement: AnyJudgement, words: Description) -> Description:
    """Of a function that C ran at exit, and that called Python when there was none any more."""
    view = judgement.views[0]
    found = exit_handler(view) if rule in _BY_POINTERS and view.is_fault else None
    if found is None:
        return words
    return structs.replace(
        _by_exit(judgement, words, found.summary, found.advice, Behind.of([], found)), has_place=True
    )


def _during_exit(rule: str, judgement: AnyJudgement, words: Description) -> Description:
    """Of a fault that only followed the exit() of the program's own native code, with what that gave up for."""
    view = judgement.views[0]
    found = native_exit(view) if view.is_fault and rule in (*_OF_CODE, *_OF_MEMORY) else None
    if found is None:
        return words
    return structs.replace(
        _by_exit(judgement, words, found.summary, found.advice, Behind.of([], *found.lines)), missing=()
    )


def _by_exit(judgement: AnyJudgement, words: Description, reason: str, advice: str, behind: Behind) -> Description:
    """With the reason in place of the access, which only followed."""
    told = structs.replace(words, summary=f"{introduction(judgement.views)} {reason}.", advice=advice, behind=behind)
    return structs.replace(told, explained=True, names_cause=True, names_source=True)


def _of_looked_up(rule: str, judgement: AnyJudgement, words: Description) -> Description:
    """With the array that the index was looked up in, where no tensor of the line is known to hold the index itself."""
    view = judgement.views[0]
    found = looked_up(view) if rule in _BY_INDEX and not words.explained else None
    if found is None or (rule == "runaway-access" and not found.wrong):
        return words
    if _is_index_known(view):  # and said; not why there are so few
        why = f"{words.advice} {found.short_advice}" if found.short_advice else words.advice
        return structs.replace(words, advice=why)
    access = f"{access_verb(view)} out of bounds{in_function(view)}"
    summary = f"{introduction(judgement.views)} {access}: {found.summary}."
    return structs.replace(
        words,
        summary=summary,
        evidence=[*words.evidence, found.evidence],
        advice=found.advice(view),
        missing=(),
        names_source=True,
        explained=True,
        behind=of_looked_up(found),
    )


def _of_layout(rule: str, judgement: AnyJudgement, words: Description) -> Description:
    """With the structure that Python and the failing function lay out differently."""
    view = judgement.views[0]
    if rule not in _OF_ARGUMENTS or not view.is_fault or words.explained:
        return words
    found, text = differing_layout(view) or pointer_depth(view) or unfit_structure(view), text_in_pointer(view)
    if found is None:
        return words
    address = f"through a pointer that is the text `{text}`" if text is not None else "at a wrong address"
    access = f"{access_verb(view)} memory {address}{in_function(view)}"
    return structs.replace(
        words,
        summary=f"{introduction(judgement.views)} {access}: {found.summary(view)}.",
        advice=found.advice(view),
        names_source=True,
        explained=True,
        behind=Behind.of([], found),
    )


def _of_bytes(rule: str, view: ProcessView, words: Description) -> Description:
    """With the count that is one of bytes, where the failing line counts elements by it."""
    found = counted_bytes(view) if rule in _BY_INDEX and view.is_fault and not words.explained else None
    if found is None:
        return words
    return _beside(words, found.summary, found.advice, Behind.of([found.text], found))


def _of_shown_bytes(rule: str, view: ProcessView, words: Description) -> Description:
    """With the line that makes the text "b'...'" of bytes, which the failing line passes."""
    about = rule in (*_OF_ARGUMENTS, "heap-corruption") and not words.explained
    found = text_of_bytes(view) if about else None
    if found is None:
        return words
    words = structs.replace(words, evidence=[*words.evidence, found.evidence])
    return _beside(words, found.summary, found.advice, Behind.of([], found), sure=found.register is not None)


def _of_overfilled(rule: str, view: ProcessView, words: Description) -> Description:
    """With the buffer that the running function fills beyond the room that it was given."""
    found = overfilled(view) if rule in (*_OF_ARGUMENTS, "heap-corruption") and not words.explained else None
    if found is None:
        return words
    return _beside(words, found.summary, found.advice, Behind.of([found.buffer], found), sure=found.reached)


def _beside(words: Description, summary: str, advice: str, behind: Behind, *, sure: bool = True) -> Description:
    """With the reason behind the headline; `sure`: whether nothing else needs to be looked for."""
    told = f"{words.summary.removesuffix('.')}; {summary}."
    return structs.replace(words, summary=told, advice=advice, names_source=True, explained=sure, behind=behind)


def _is_index_known(view: ProcessView) -> bool:
    """Whether a tensor of the line holds the index that led out."""
    way, formation = reached_row(view), view.place.formation if view.place is not None else None
    if (way is not None and way.index is not None) or out_of_range(find_operator(view)) is not None:
        return True
    return formation is not None and formation.index_storage is not None


def _of_a_sort(rule: str, view: ProcessView, words: Description) -> Description:
    """With what makes std::sort() run past its range, where the fault is there."""
    order = sort_order(view) if rule in _BY_POINTERS and not words.explained else None
    if order is None:
        return words
    return structs.replace(words, summary=f"{words.summary.removesuffix('.')}: {order.summary}.", advice=order.advice)


def _of_larger_tensor(rule: str, view: ProcessView, words: Description) -> Description:
    """With the advice about a tensor that is larger than the storage at the fault."""
    storage = view.place.storage if view.place is not None else None
    beyond = beyond_storage(view) if rule in _OF_ARGUMENTS and storage is not None else None
    if beyond is None or storage is None or beyond.storage.base != storage.base:
        return words
    return structs.replace(words, advice=beyond_advice(view, beyond), explained=True)


def _of_profilers(view: ProcessView, words: Description) -> Description:
    """With the other threads that profiled, of a crash that is known to come of that."""
    known = any(item.id == _STOPPED_TWICE for item in words.evidence if item is not None)
    others = other_profilers(view) if known else None
    if others is None:
        return words
    summary = f"{words.summary.removesuffix('.')}{others.words}."
    return structs.replace(words, summary=summary, advice=f"{words.advice}{others.advice}", explained=True)


def _recognized(judgement: AnyJudgement, words: Description) -> Description:
    """The words about a cause, with what is known about such a crash; class and culprit stay those of the rule.

    The advice of a known crash replaces the general one, not one by recorded facts; a mere possibility is added to it.
    Where recorded facts are in headline and advice, that the death resembles another one adds nothing.
    """
    known = known_crash(judgement.views[0], judgement.verdict_class)
    if known is None or known.evidence in words.evidence:
        return words
    if known.id == _OF_ENDED_SENDER and any(item.state == RAN_ON for item in words.evidence if item is not None):
        return words
    is_general = known.confidence != "certain" or known.lists_causes
    if is_general and words.explained and words.names_cause and known.what not in words.summary:
        return words
    evidence = [known.evidence, *words.evidence]
    if known.confidence == "possible" and not words.explained:
        return structs.replace(words, evidence=evidence, advice=f"{words.advice} {known.advice}")
    named = judgement.verdict_class in _NAMED_IN and known.what not in words.summary
    named = named and not words.names_cause
    summary = f"{words.summary.removesuffix('.')}: {known.what}." if named else words.summary
    advice = words.advice if words.explained else known.advice
    lines = (
        not_finite_lines(judgement.views[0]) if known.not_finite_advice is not None and not words.explained else None
    )
    if lines is None:
        return structs.replace(words, summary=summary, evidence=evidence, advice=advice)
    about = words.behind or Behind()
    return structs.replace(
        words,
        summary=f"{summary.removesuffix('.')}{lines.subject}.",
        evidence=evidence,
        advice=f"{lines.advice} {known.not_finite_advice}",
        behind=structs.replace(about, lines=(*about.lines, *lines.behind.lines)),
        names_source=True,
    )
