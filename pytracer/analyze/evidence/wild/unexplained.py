"""An address without an explanation: what the line passes to native code, and what is suspicious of it."""

from __future__ import annotations

from dataclasses import dataclass

from pytracer.analyze.evidence.heap.heap_suspects import ONLY_NOTICED, only_suspect, suspect_words
from pytracer.analyze.evidence.heap.text_buffers import text_buffer
from pytracer.analyze.evidence.indices.sparse_source import sparse_operator_advice
from pytracer.analyze.evidence.indices.unchecked_sparse import UncheckedSparse, unchecked_sparse
from pytracer.analyze.evidence.lifetime.never_made import never_made
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.native.fault_function import own_function
from pytracer.analyze.evidence.operators.in_backward import backward, changed_advice
from pytracer.analyze.evidence.operators.line_tensors import passes_list
from pytracer.analyze.evidence.operators.operator import find_operator, is_of_torch
from pytracer.analyze.evidence.operators.suspect_argument import suspect_argument
from pytracer.analyze.evidence.operators.unfit_operands import unfit_operands
from pytracer.analyze.evidence.own_code.ctypes_call import declaration_advice, number_as_pointer
from pytracer.analyze.evidence.own_code.dropped_handle import DroppedHandle, dropped_handle
from pytracer.analyze.evidence.own_code.own_arguments import kept_address
from pytracer.analyze.evidence.own_code.own_libraries import own_libraries
from pytracer.analyze.evidence.own_code.passed import passed, shapes_advice, unequal_tensors, unfit_clause
from pytracer.analyze.evidence.own_code.passed_memory import called_by_ctypes
from pytracer.analyze.evidence.own_code.pointer_content import half_of_storage, numbers_in_pointer, text_in_pointer
from pytracer.analyze.evidence.own_code.unheld_memory import UnheldMemories, unheld_memory
from pytracer.analyze.evidence.own_code.wrapped_counts import wrapped_count
from pytracer.analyze.evidence.wild.address import is_block_size, was_large_block
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView

_SANITIZER = (
    "Check the sizes, counts and offsets that {} passes to native code, which uses them unchecked. If they are right, "
    "a pointer was overwritten before: `pytracer run --guard` stops at the first byte outside of a tensor."
)
_OVERWRITTEN = (
    "A pointer was overwritten before, or what it pointed at is gone; which line did it is not known. `pytracer run "
    "--guard` stops at the first byte outside of a tensor, AddressSanitizer or valgrind at every such write."
)
_GUARD = (
    "`pytracer run --guard` stops at the first byte written behind a tensor; compare the sizes of what was passed to "
    "native code there with what it assumes."
)


@dataclass(frozen=True)
class Unexplained(Explanation):
    """How the process got the address is not known."""

    is_sufficient = False

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return ""

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        unheld = _unheld(view) if not called_by_ctypes(view) else None  # there it stands before this advice
        if unheld is not None:
            return f"{unheld.advice} {ONLY_NOTICED}"
        dropped = _dropped(view)
        if dropped is not None:
            return f"{dropped.advice} {ONLY_NOTICED}"
        return _by_operands(view) or _by_arguments(view) or _by_content(view) or _by_line(view)


def arguments_clause(view: ProcessView) -> str:
    """What is wrong of what the line passes, for the headline; nothing where a suspect says more in the advice."""
    buffer = text_buffer(view) if text_in_pointer(view) is not None else None
    if buffer is not None:
        return f": overwritten {buffer.summary}"
    unheld = _unheld(view)
    if unheld is not None:
        return f": {unheld.summary}"
    dropped = _dropped(view)
    if dropped is not None:
        return f": memory may have been overwritten before; the first suspect: {dropped.fact}"
    suspect = only_suspect(view) if not program_frames(view) and number_as_pointer(view) is None else None
    if suspect is not None:
        return f": memory may have been overwritten before; the first suspect is {suspect}"
    sparse = _sparse(view) if half_of_storage(view) is not None else None
    if sparse is not None:
        return f": memory was overwritten; the first suspect is {sparse.summary}"
    count = wrapped_count(view)
    counts = count is not None and count.proven
    unfit = "" if suspect_argument(view) is not None else unfit_clause(view, counts=counts)
    number = number_as_pointer(view) if not unfit and not is_block_size(view) else None
    return f": {number.summary(view)}" if number is not None else unfit


def is_suspicious(view: ProcessView) -> bool:
    """Whether something that the line passes, or what the pointer holds, would explain the address without an index."""
    told = arguments_clause(view) or _by_operands(view) or _by_arguments(view) or _by_content(view)
    return bool(told) or dropped_handle(view) is not None


def _unheld(view: ProcessView) -> UnheldMemories | None:
    """Where C that ctypes or cffi called used the pointer, or the interpreter did, whose objects are written over."""
    of_others = own_function(view) is not None or find_operator(view) is not None
    return unheld_memory(view) if called_by_ctypes(view) or not of_others else None


def _dropped(view: ProcessView) -> DroppedHandle | None:
    """Where neither an operator nor the program's own native code used the pointer: what wrote over it came before."""
    if own_function(view) is not None or find_operator(view) is not None or called_by_ctypes(view):
        return None
    return dropped_handle(view, anywhere=True)


def _by_operands(view: ProcessView) -> str | None:
    """Of an operator's tensors, or of an array that was read past its end."""
    sparse, operands = sparse_operator_advice(view), unfit_operands(view)
    if operands is not None:
        return operands.advice(view)
    if sparse is not None:
        return sparse
    if is_block_size(view):
        operator = find_operator(view)
        of = "the array or list that it takes" if passes_list(view) else "an array that it makes of them"
        if operator is None or not is_of_torch(operator):
            of = "an array or list that it uses"
        return (
            f"Check the number and the shapes of the tensors that {line_words(view)} passes: the function reads past "
            f"the end of {of}."
        )
    return None


def _by_arguments(view: ProcessView) -> str | None:
    """Of one argument that stands out, tensors of unequal sizes, or a number where C has a pointer."""
    unequal, number, suspect = unequal_tensors(view), number_as_pointer(view), suspect_argument(view)
    if suspect is not None:
        return f"{suspect.advice} {_SANITIZER.format(line_words(view))}"
    if unequal is not None:
        return shapes_advice(unequal, line_words(view))
    return declaration_advice(view, number) if number is not None else None


def _sparse(view: ProcessView) -> UncheckedSparse | None:
    """Of a pointer that holds numbers, in a program that brought no native code."""
    if own_function(view) is not None or numbers_in_pointer(view) is None or own_libraries(view) is not None:
        return None
    return unchecked_sparse(view)


def _when(view: ProcessView) -> str:
    """Since when somebody may have written there; as well at the same time, where the program runs several threads."""
    threads = view.crash.python_threads if view.crash is not None else ()
    return "in this call, in one before or in another thread" if len(threads) > 1 else "in this call or one before"


def _by_content(view: ProcessView) -> str | None:
    """Of what the pointer holds: numbers that were written over it, or where a large block of malloc() began."""
    numbers, text = numbers_in_pointer(view), text_in_pointer(view)
    if text is not None:  # of native code that wrote it there, or of a string in the memory of what was freed
        buffer = text_buffer(view)
        return buffer.advice if buffer is not None else None
    if numbers is not None:
        sparse = _sparse(view)
        suspects = suspect_words(view) if own_function(view) is None else None
        suspects = sparse.advice if sparse is not None and suspects is None else suspects
        wrote = "may have written" if "may be" in numbers else "wrote"
        return (
            f"The pointer holds {numbers}: native code {wrote} an array over the object that {line_words(view)} uses, "
            f"{_when(view)}. {suspects or _GUARD}"
        )
    if was_large_block(view):
        libraries = own_libraries(view)
        kept = kept_address(view, libraries) if libraries is not None else None
        if kept is not None:
            return (
                f"Keep {kept}, for as long as native code uses it (in an attribute or a global): the address is "
                "that of a large block of malloc(), such as a NumPy array's, that was freed, and that function has "
                "returned (possible)."
            )
        return (
            f"Keep what owns the memory that {line_words(view)} passes for as long as its address is used: the address "
            "is that of a large block of malloc(), such as a numpy array's, that was freed (.ctypes.data and "
            "data_ptr() of a temporary). If it is none, AddressSanitizer names the moment."
        )
    return None


def _by_line(view: ProcessView) -> str:
    if not program_frames(view):  # at the end of the process, or in a thread of native code
        return suspect_words(view) or _OVERWRITTEN
    given, tensor = passed(view), never_made(view)
    if tensor is not None:
        return tensor.advice(given)
    operator, saved = find_operator(view), backward(view)
    if saved is not None and operator is not None and is_of_torch(operator):
        return changed_advice(saved)
    if given is not None and given.numbers:
        return (
            f"Check {given.words}, which line {given.line} passes to native code: it uses them unchecked. If they are "
            "right, a pointer was overwritten before: `pytracer run --guard` stops at the first byte outside of a "
            "tensor."
        )
    return _SANITIZER.format(line_words(view))
