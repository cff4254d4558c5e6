"""What a null pointer came from, as the program's source shows it; and all that is known of one, as data."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.at_fault import names_on_line
from pytracer.analyze.evidence.lifetime.half_registered import half_registered
from pytracer.analyze.evidence.lifetime.placeholders import Placeholder
from pytracer.analyze.evidence.lifetime.saved_memory import SavedWithoutMemory
from pytracer.analyze.evidence.lifetime.variables import line_words, plain_expression, program_frames
from pytracer.analyze.evidence.operators.empty_operand import empty_of_forward
from pytracer.analyze.evidence.operators.spatial_dimensions import spatial_dimensions
from pytracer.analyze.evidence.own_code.empty_container import empty_container
from pytracer.analyze.evidence.own_code.found_nothing import found_nothing
from pytracer.analyze.evidence.own_code.null_argument import null_argument
from pytracer.analyze.evidence.own_code.null_element import null_element
from pytracer.analyze.evidence.own_code.null_function import NoSymbol, null_function
from pytracer.analyze.evidence.own_code.null_global import null_global
from pytracer.analyze.evidence.own_code.null_in_libc import null_in_libc
from pytracer.analyze.evidence.own_code.null_member import null_member
from pytracer.analyze.evidence.own_code.parsed_arguments import parsed_argument
from pytracer.analyze.evidence.own_code.passed_none import passed_none
from pytracer.analyze.evidence.own_code.per_thread_memory import per_thread_memory
from pytracer.analyze.evidence.own_code.unchecked_result import unchecked_result
from pytracer.analyze.evidence.preconditions.missing import Missing
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Holder


class NullSource(msgspec.Struct, frozen=True):
    """For the headline, what to do, and what it is about. `advice`: None where a known crash has it."""

    summary: str
    advice: str | None
    behind: Behind


def null_source(view: ProcessView, *, with_forward: bool) -> NullSource | None:
    """The first that is known. `with_forward`: also where a backward reads what its forward left empty."""
    parsed = parsed_argument(view)
    if parsed is not None:
        return NullSource(parsed.summary, parsed.advice, Behind.of([], parsed))
    container = empty_container(view)
    if container is not None:
        return NullSource(container.summary, container.advice, Behind.of([], container))
    none = passed_none(view)
    if none is not None:
        return NullSource(none.summary, none.advice, Behind.of([none.text], none))
    nothing = found_nothing(view)
    if nothing is not None:
        return NullSource(nothing.summary, nothing.advice, Behind.of([nothing.name], nothing))
    result = unchecked_result(view) or null_in_libc(view)
    if result is not None:
        return NullSource(result.summary, result.advice, Behind.of([], result))
    member = null_member(view)
    if member is not None:
        return NullSource(member.summary, member.advice, Behind.of([], member))
    called = null_function(view)
    if called is not None:
        advice = called.advice if isinstance(called, NoSymbol) else called.advice(line_words(view))
        return NullSource(called.summary, advice, Behind.of([], called))
    element = null_element(view)
    if element is not None:
        return NullSource(element.summary, element.advice, Behind.of([], element))
    argument = null_argument(view)
    if argument is not None:
        return NullSource(argument.summary, argument.advice, Behind.of([], argument))
    found = (empty_of_forward(view) if with_forward else None) or per_thread_memory(view)
    if found is not None:
        return NullSource(found.summary, found.advice, Behind.of([], found))
    spatial = spatial_dimensions(view)
    if spatial is not None:
        return NullSource(spatial.summary, spatial.advice, Behind.of(names_on_line(view, spatial.tensor), sizes=True))
    half = half_registered(view)
    if half is not None:
        return NullSource(half.summary, None, Behind.of([], half.call))
    unset = null_global(view)
    if unset is not None:
        return NullSource(unset.summary, unset.advice(line_words(view)), Behind.of([], unset))
    return None


def of_null(
    view: ProcessView,
    saved: SavedWithoutMemory | None,
    empty: Sequence[Holder],
    holds: Placeholder | None,
    missing: Missing | None,
    told: NullSource | None,
) -> Behind | None:
    """What was null: what the forward saved, tensors without memory, arguments that are None, or what else is told."""
    frame = next(iter(program_frames(view)), None)
    file = frame.file if frame is not None else None
    if saved is not None:
        return Behind.of([], saved)
    if empty:
        lines = [*((file, line) for line in holds.lines), holds.beside] if holds is not None else []
        left_out = holds.left_out.line if holds is not None and holds.left_out is not None else None
        unsaved = holds.unsaved.loads if holds is not None and holds.unsaved is not None else None
        return Behind.of([plain_expression(item.expression) for item in empty], *lines, left_out, unsaved)
    if missing is not None:
        return Behind.of(missing.texts, missing, *((file, line) for line in missing.lines))
    return told.behind if told is not None else None
