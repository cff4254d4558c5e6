"""The sentence of collective-mismatch: what each side called or passed, and from which line."""

from __future__ import annotations

import textwrap

from pytracer._text import capital, count_words
from pytracer.analyze.collectives.call_sites import calls_by_site, calls_of_group, site_of
from pytracer.analyze.collectives.counted_calls import loss_without_parameters
from pytracer.analyze.collectives.description import at_place, group_words, is_default, place_of, span_words, value_of
from pytracer.analyze.collectives.library_calls import library_call
from pytracer.analyze.collectives.matching import GroupMatch, Mismatch, Variant
from pytracer.analyze.collectives.mismatch_advice import Explained, size_cause
from pytracer.analyze.collectives.mismatch_sides import from_other_lines, two_sides
from pytracer.analyze.collectives.model_sizes import unequal_parameter
from pytracer.analyze.collectives.program_lines import at_lines
from pytracer.analyze.deaths.attribution import views_of
from pytracer.analyze.naming import line_in, short_file
from pytracer.analyze.view import JobView

LISTED = 4
_LINES, _COLUMNS = 4, 96


def mismatch_summary(job: JobView, match: GroupMatch, found: Mismatch, told: Explained, below: str | None) -> str:
    """Who called or passed what, where, and why as far as the source shows it: four lines of a terminal at most.

    Where that takes more, the reason comes first. `below`: what is said of one call beside, which tells who alone
    called it.
    """
    words = _summary(job, match, found, told, below, brief=False)
    if not _is_long(words):
        return words
    return _reason_first(job, match, found, told) or _summary(job, match, found, told, below, brief=True)


def is_shortened(job: JobView, match: GroupMatch, found: Mismatch, told: Explained) -> bool:
    """Whether the headline has the brief form of the cause: the evidence has the other one, then."""
    brief = told.brief is not None and found.odd is None
    return brief and _is_long(_summary(job, match, found, told, None, brief=False))


def _is_long(words: str) -> bool:
    return len(textwrap.wrap(words, _COLUMNS)) > _LINES


def _reason_first(job: JobView, match: GroupMatch, found: Mismatch, told: Explained) -> str | None:
    """The cause, then the two sides; None where none is known, or its lines are of one of several files."""
    if told.cause is None or found.odd is not None:
        return None
    files = {place.file if (place := place_of(item.call)) is not None else None for item in found.variants}
    file = files.pop() if len(files) == 1 else None
    if told.brief is None and (file is None or not told.opens):
        return None
    cause = capital(told.brief) if told.brief is not None else f"In {short_file(file)}, {told.cause}"
    file = file if told.brief is None else None  # which a brief cause need not name
    return f"{cause}. {_summary(job, match, found, told, None, brief=True, bare=True, file=file)}"


def _summary(
    job: JobView,
    match: GroupMatch,
    found: Mismatch,
    told: Explained,
    below: str | None,
    *,
    brief: bool,
    bare: bool = False,
    file: str | None = None,
) -> str:
    """`brief`: places without functions and sizes, which the rows of the calls have. `bare`: without the cause.

    `file`: which the words before have named.
    """
    added = f"; {below}" if below is not None else ""
    of = "" if brief and is_default(match) else f" of {group_words(match)}"
    where = f"collective {found.sequence_nr}{of}"
    if found.field != "op":
        where = f"{found.variants[0].call.op} ({where})"
    end = _silence(job, match, found)
    if from_other_lines(found):
        items = found.variants[:LISTED]
        if brief:
            sides = ", ".join(f"{span_words(item.ranks)}{_at(item, items[0], file)}" for item in items)
        else:
            sides = "; ".join(f"{span_words(item.ranks)} {_call_words(item)}{at_place(item.call)}" for item in items)
        why = "" if bare else f"; {told.cause}" if told.cause is not None else added
        return f"Ranks were at different lines in {where}: {sides}{why}{end}."
    right, wrong = found.variants[0], found.variants[1]
    if found.odd is None:
        sides, line = _sides(job, match, found, alone=below is None and told.cause is None, brief=brief, file=file)
        why = "" if bare else _cause(job, match, found, told) or added
        return f"Ranks disagree in {where}{line}: {sides}{why}{end}."
    end = f"{f'; {told.cause}' if told.cause is not None else added}{end}"
    if len(found.variants) > 2:
        return (
            f"{capital(span_words(found.odd))} disagree with {span_words(right.ranks)} in {where}: "
            f"{_passed(right, found, match)}{end}."
        )
    wrong_words, right_words = (_passed(item, found, match) + _inside(job, item, found) for item in (wrong, right))
    (place,) = at_lines(job, [(wrong.ranks[0], wrong.call)])
    if found.field == "op":
        return f"{capital(wrong_words)}{place} where {right_words} ({where}){end}."
    return f"{capital(wrong_words)} in {where}{place}, where {right_words}{end}."


def _cause(job: JobView, match: GroupMatch, found: Mismatch, told: Explained) -> str:
    """What the next step says of the size, or of a loss."""
    fresh = loss_without_parameters(job, match, found)
    if fresh is not None:
        return f"; {fresh.subject}"
    if told.cause is not None:
        return f"; {told.cause}"
    if told.packing is not None:
        return f"; {told.packing.subject}"
    words = size_cause(job, match, found, told.advice) if found.field == "size" else None
    sides = two_sides(job, found) if found.field == "size" else None
    parameter = unequal_parameter(*sides) if sides is not None else None
    comes = f"the size {words.removeprefix('it ')}" if words is not None else None
    models = f"the models differ in `{parameter}`" if parameter is not None else None
    return "".join(f"; {item}" for item in (models, comes) if item is not None)


def _at(item: Variant, first: Variant, file: str | None) -> str:
    """` at train.py:12`, and ` at line 15` of another one in that file, or of one in `file`."""
    one, other = place_of(first.call), place_of(item.call)
    if other is None or other.line is None:
        return ""
    if item is first or one is None:
        return f" at {line_in(other.file, other.line, file)}"
    return f" at {line_in(other.file, other.line, one.file)}"


def _sides(
    job: JobView, match: GroupMatch, found: Mismatch, *, alone: bool, brief: bool, file: str | None = None
) -> tuple[str, str]:
    """What each side passed, with its line where these differ; and the line where all are at the same one.

    `alone`: whether to say that a rank has not made the other's call; what is said of the cause says more.
    """
    items = found.variants[:LISTED]
    only = [_alone(job, match, item, found) if alone else "" for item in items]
    if all(only):
        only = ["" for _ in items]  # each has a line of its own
    places = at_lines(job, [(item.ranks[0], item.call) for item in items])
    apart = len(set(places)) > 1
    sides = [
        (
            _passed(item, found, match) + (_inside(job, item, found) if apart or not brief else ""),
            (_at(item, items[0], file) if brief and apart else place) + more,
        )
        for item, place, more in zip(items, places, only, strict=True)
    ]
    lines = {line for _, line in sides}
    if len(lines) == 1:
        return "; ".join(words for words, _ in sides), lines.pop()
    return "; ".join(words + line for words, line in sides), ""


def _inside(job: JobView, item: Variant, found: Mismatch) -> str:
    """` in Tensor.backward()`: what of a library called it there."""
    views = views_of(job, item.ranks[:1]) if found.field == "op" else []
    name = library_call(views[0], item.call) if views else None
    return f" in {name}()" if name is not None else ""


def _alone(job: JobView, match: GroupMatch, item: Variant, found: Mismatch) -> str:
    """That the other of two ranks has not made that call, of what always calls one."""
    inside = _inside(job, item, found)
    if found.field != "op" or len(found.variants) != 2 or inside.endswith(("forward()", "backward()", "step()")):
        return ""
    site = site_of(item.call)
    other = next(side for side in found.variants if side is not item)
    counts = [calls_by_site(view, match.name) for view in views_of(job, other.ranks)]
    if site is None or not counts or any(count is None or count[site] for count in counts):
        return ""
    return f", a call that {span_words(other.ranks)} had not made"


def _call_words(item: Variant) -> str:
    """`in all_reduce of 4680 elements`."""
    return f"in {item.call.op} of {count_words(item.call.numel or 0, 'element')}"


def _passed(item: Variant, found: Mismatch, match: GroupMatch) -> str:
    """`rank 2 passed int32`."""
    value, ranks = value_of(item.call, found.field, match), span_words(item.ranks)
    if found.field == "op":
        return f"{ranks} called {value}"
    if found.field == "root":
        return f"{ranks} named rank {value} as root"
    if found.field == "reduce_op":
        return f"{ranks} asked for {value}"
    if found.field == "size" and len({other.call.numel for other in found.variants}) == 1:
        return f"{ranks} expected {count_words(item.call.output_numel or 0, 'element')} in all"
    if found.field == "size":
        return f"{ranks} passed {count_words(item.call.numel or 0, 'element')} {list(item.call.sizes)}"
    return f"{ranks} passed {value}"


def _silence(job: JobView, match: GroupMatch, found: Mismatch) -> str:
    """What a mismatch means that no rank noticed."""
    if not found.succeeded or found.field == "shape":
        return ""
    if found.later is not None:
        return f"; that reported success on all ranks, and collective {found.later} did not fit either"
    raised = _raised_behind(job, match, found)
    if raised is not None:
        return f"; every call reported success with corrupt data, and {raised}"
    return "; every rank's call reported success, and the data is corrupt"


def _raised_behind(job: JobView, match: GroupMatch, found: Mismatch) -> str | None:
    """`rank 1 raised RuntimeError at line 78`: of the only rank that ended so before any other call of the group.

    Not of an error of the communication itself, which comes of the end of another rank.
    """
    views = [view for side in found.variants for view in views_of(job, side.ranks) if view.raised]
    ended = [
        view
        for view in views
        if not any(call.sequence_nr > found.sequence_nr for call in calls_of_group(view, match.name))
        and not any("/torch/distributed/" in (frame.file or "") for frame in view.exception_stack)
    ]
    frame = next(iter(ended[0].exception_stack_of_program), None) if len(ended) == 1 else None
    first = place_of(found.variants[0].call)
    if frame is None or frame.line is None or ended[0].exception is None:
        return None
    at = line_in(frame.file, frame.line, first.file if first is not None else None)
    return f"rank {ended[0].process.rank} raised {ended[0].exception.type} at {at}"
