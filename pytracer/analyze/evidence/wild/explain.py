"""The explanations of a wild address in their order: the first that is found is taken."""

from __future__ import annotations

from collections.abc import Callable

from pytracer.analyze.evidence.native.jumps import Jump
from pytracer.analyze.evidence.wild.address import may_be_indexed
from pytracer.analyze.evidence.wild.array_index import array_index
from pytracer.analyze.evidence.wild.based_index import based_index
from pytracer.analyze.evidence.wild.below_null import below_null
from pytracer.analyze.evidence.wild.by_lookup import by_far_lookup, by_lookup
from pytracer.analyze.evidence.wild.by_source import by_empty_count, by_indexed_array, by_letter
from pytracer.analyze.evidence.wild.called_number import called_number
from pytracer.analyze.evidence.wild.closed_handle import closed_handle
from pytracer.analyze.evidence.wild.copied_row import copied_row
from pytracer.analyze.evidence.wild.cut_argument import cut_argument
from pytracer.analyze.evidence.wild.cut_handle import cut_handle
from pytracer.analyze.evidence.wild.deregistered_operator import deregistered_operator
from pytracer.analyze.evidence.wild.ended_field import ended_address, ended_field
from pytracer.analyze.evidence.wild.ended_memory import ended_memory
from pytracer.analyze.evidence.wild.expanded_argument import expanded_argument
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.evidence.wild.far_index import far_index
from pytracer.analyze.evidence.wild.fixed_array import fixed_array, overrun_pointer
from pytracer.analyze.evidence.wild.float_index import float_index
from pytracer.analyze.evidence.wild.freed_argument import freed_argument
from pytracer.analyze.evidence.wild.freed_callback import freed_callback
from pytracer.analyze.evidence.wild.int_overflow import int_overflow
from pytracer.analyze.evidence.wild.looked_up_index import looked_up_index
from pytracer.analyze.evidence.wild.lost_object import lost_object
from pytracer.analyze.evidence.wild.memory import missing_memory, overwritten_memory
from pytracer.analyze.evidence.wild.misread_elements import misread_elements
from pytracer.analyze.evidence.wild.misread_floats import misread_floats
from pytracer.analyze.evidence.wild.overwritten_global import overwritten_global
from pytracer.analyze.evidence.wild.parsed_argument import overwritten_by_parse
from pytracer.analyze.evidence.wild.second_owner import second_owner
from pytracer.analyze.evidence.wild.short_vector import short_vector
from pytracer.analyze.evidence.wild.small_argument import small_argument
from pytracer.analyze.evidence.wild.sparse_index import sparse_index
from pytracer.analyze.evidence.wild.stored_objects import stored_objects
from pytracer.analyze.evidence.wild.taken_jump import WildJump
from pytracer.analyze.evidence.wild.thread_table import thread_table
from pytracer.analyze.evidence.wild.truncated_address import truncated_address
from pytracer.analyze.evidence.wild.unexplained import Unexplained
from pytracer.analyze.evidence.wild.unloaded_code import unloaded_code
from pytracer.analyze.evidence.wild.unread_index import unread_index
from pytracer.analyze.view import ProcessView


def explained_jump(view: ProcessView, jump: Jump) -> Explanation:
    """Of a jump to no code."""
    return (
        freed_callback(view)
        or overwritten_memory(view)
        or called_number(view, jump)
        or unloaded_code(view, jump)
        or without_cause(jump)
    )


def explained_access(view: ProcessView) -> Explanation:
    """Of any other access."""
    return next(filter(None, (find(view) for find in _FINDERS)), without_cause(None))


def is_freed_code(view: ProcessView) -> bool:
    """Whether what was called had been freed, by the program's source: the address, null as well, is what lay there."""
    return freed_callback(view) is not None or deregistered_operator(view) is not None


def without_cause(jump: Jump | None) -> Explanation:
    """Where nothing shows what led there."""
    return WildJump(jump) if jump is not None else Unexplained()


def _wrong_index(view: ProcessView) -> Explanation | None:
    """Out of the storage that a register points at: the least sure of all, so that it comes last."""
    if not may_be_indexed(view):
        return None
    return unread_index(view) or expanded_argument(view) or small_argument(view)


def _far_index(view: ProcessView) -> Explanation | None:
    """With the array and the index by the program's own source, where they are those of the failing instruction."""
    far = far_index(view)
    based = based_index(view) if far is not None and not far.is_converted else None
    known = far is not None and based is not None and based.own is not None and based.value == far.value
    return based if known else by_far_lookup(view, far) if far is not None else None


def _based_index(view: ProcessView) -> Explanation | None:
    """With the arrays that the index came from, where the source shows these."""
    based = based_index(view)
    return by_far_lookup(view, based) if based is not None else None


def _overflow(view: ProcessView) -> Explanation | None:
    """Not where the address may also be reached by an index out of a storage that a register points at."""
    return int_overflow(view) if _wrong_index(view) is None else None


_FINDERS: tuple[Callable[[ProcessView], Explanation | None], ...] = (
    lost_object,
    stored_objects,
    ended_memory,
    deregistered_operator,
    freed_callback,
    below_null,
    overwritten_by_parse,
    overwritten_global,
    truncated_address,
    cut_argument,
    missing_memory,
    fixed_array,
    overrun_pointer,
    by_empty_count,
    short_vector,
    ended_field,
    second_owner,
    freed_argument,
    ended_address,
    misread_elements,
    misread_floats,
    float_index,
    looked_up_index,
    array_index,
    by_indexed_array,
    _far_index,
    copied_row,
    _overflow,
    cut_handle,
    closed_handle,
    thread_table,
    by_letter,
    overwritten_memory,
    sparse_index,
    _wrong_index,
    _based_index,
    by_lookup,
)
