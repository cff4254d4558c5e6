"""null-dereference: native code used a null pointer.

What: the kernel refused an access at address 0, or a small offset from it, and the register that the address was
formed from was null.

Why it happens: an object that was never made, was already destroyed, or a failed call whose result was not checked;
in ctypes code, a missing `argtypes`/`restype` or a Python None passed as a pointer.

What to do: look at the native function and at the Python line that called it; check that what it is given exists.

A tensor with 0 elements, or whose storage was resized to 0, has no memory: its data pointer is null, and index -1 leads
to an address below it: a small negative number. That is *certain* where the register that was indexed was null, and
*likely* where the line passes such a tensor or torch's operator made one, of no rows. If a variable of the innermost
frame has such a tensor, and the function is torch's, takes tensors, or was made by torch.compile, it is named, with the
line that took its memory away, and where that is of another model that shares it, with the line by which they do; else
an argument of the running operator that has none, or is undefined. In the backward pass it is one that the forward
saved. A placeholder that nothing has filled is named with the line of the program that makes it empty, and with a line
that saves the state without it. Where the operator takes some elements for granted, it is said how many, and which line
of the module makes the size 0. Arguments that are None are named where the operator is known to read them
(`known/operators.toml`); of the program's own native code, a variable that is None where nothing else that the line
passes can be the null pointer. Where the line uses a native object that was given the handle of another one, whose
owner in Python freed it when that was collected or closed, the owner is named as probable.

Where native code that Python called has released the GIL and calls Python, the interpreter finds no thread state: the
function of CPython that reads it and the field are known, and the caller is named, with the line that released the GIL.

Where the failing line of the program's own C goes through a pointer that the same function made by malloc(), and by
nothing else, and that nothing asks for, that is named, with the empty array that the line passes where the size is
computed from it, and with the filter that left no rows. So is a pointer that another call returned, and nothing else
sets, with the text of the program that the call was given; also where a function of the C library used it, as fprintf()
does the stream that fopen() did not open. An element of a std::vector that is empty has no memory: the container is
named, with the array that it was made of, or the only call that could add to it.

How it can be wrong: without capstone the operands are unknown, so that a garbage pointer with a small value can
look like null plus an offset; the confidence is lower then. A pointer to a member of a null object was already
moved off null by the caller and is distinguished from garbage only by its alignment.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import list_words
from pytracer.analyze.address_space.null_pointer import (
    has_constant_address,
    is_below_null,
    null_confidence,
    null_sibling,
)
from pytracer.analyze.behind import Behind, places_in
from pytracer.analyze.evidence.lifetime.emptied_words import emptied_advice, several_words, taken_by, taken_words
from pytracer.analyze.evidence.lifetime.gathered_weights import gathered_weight
from pytracer.analyze.evidence.lifetime.meta_tensors import meta_tensors
from pytracer.analyze.evidence.lifetime.never_made import never_made
from pytracer.analyze.evidence.lifetime.placeholders import placeholder
from pytracer.analyze.evidence.lifetime.saved_memory import SavedWithoutMemory, saved_without_memory
from pytracer.analyze.evidence.lifetime.shared_parts import shared_part
from pytracer.analyze.evidence.lifetime.variables import (
    line_words,
    plain_expression,
    program_frames,
    python_frames,
    tensors_without_memory,
    without_memory_words,
)
from pytracer.analyze.evidence.native.native_stack import below_function, calls_python_by_ctypes
from pytracer.analyze.evidence.native.native_stack import calls_python_without_gil as without_gil
from pytracer.analyze.evidence.null_evidence import argument_evidence, empty_evidence, sibling_evidence
from pytracer.analyze.evidence.null_sources import null_source, of_null
from pytracer.analyze.evidence.operators.compiled import runs_compiled
from pytracer.analyze.evidence.operators.filtered import filtered
from pytracer.analyze.evidence.operators.node_operands import NodeOperands, node_operands
from pytracer.analyze.evidence.operators.operator import (
    Operator,
    OperatorTensor,
    find_operator,
    made_empty,
    tensor_words,
    without_memory,
)
from pytracer.analyze.evidence.own_code.capi_table import unfetched_table
from pytracer.analyze.evidence.own_code.dropped_handle import dropped_handle
from pytracer.analyze.evidence.own_code.empty_container import empty_container
from pytracer.analyze.evidence.own_code.empty_passed import empty_passed
from pytracer.analyze.evidence.own_code.passed import names_passed, passed
from pytracer.analyze.evidence.own_code.released_gil import (
    CalledWithoutGil,
    called_without_gil,
    caller_without_gil,
)
from pytracer.analyze.evidence.own_code.unchecked_allocation import unchecked_allocation
from pytracer.analyze.evidence.own_code.vector_bounds import vector_bounds
from pytracer.analyze.evidence.phrases import (
    collective_evidence,
    fault_evidence,
    in_function,
    missing_operands,
    python_evidence,
)
from pytracer.analyze.evidence.preconditions.empty_arguments import empty_arguments
from pytracer.analyze.evidence.preconditions.missing import missing_arguments
from pytracer.analyze.evidence.preconditions.violated import is_unfit
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.wild.explain import is_freed_code
from pytracer.analyze.naming import introduction
from pytracer.analyze.platform.instruction import signed
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.rules.fault import MemoryFaultRule
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import AlsoCrashed, Holder
from pytracer.report.job import Evidence

_GIL = (
    "Take the GIL before this thread calls Python: py::gil_scoped_acquire, or PyGILState_Ensure(), in the innermost "
    "function of the extension."
)
_GIL_OF_CTYPES = (
    "Call Python's C API by ctypes.pythonapi or ctypes.PyDLL, which keep the GIL: ctypes.CDLL releases it for each "
    "call, and the function then finds no thread state."
)
_IN_TORCH = ("at::", "torch::", "c10::", "void at::")  # called with tensors, not with addresses


class _Null(msgspec.Struct, frozen=True):
    """What was null, if that is known: tensors without memory; and another thread that was refused at null."""

    empty: tuple[Holder, ...]
    arguments: tuple[OperatorTensor, ...]
    operator: Operator | None
    saved: SavedWithoutMemory | None
    sibling: AlsoCrashed | None
    without_gil: bool
    given: NodeOperands | None  # what the layer was given whose backward failed
    by_ctypes: bool  # it is Python's function that a ctypes.CDLL called
    caller: CalledWithoutGil | None  # what called Python otherwise


class NullDereference(MemoryFaultRule[_Null]):
    """Fires when the address is close to zero and its base register was null, or nothing speaks against that."""

    id = "null-dereference"
    needs = ("crash",)

    def judge(self, view: ProcessView) -> Judgement[_Null] | None:
        """See MemoryFaultRule."""
        confidence = null_confidence(view)
        if confidence is None or is_unfit(view) or is_freed_code(view) or vector_bounds(view) is not None:
            return None
        operator = find_operator(view)
        with_tensors = operator is not None or (view.function or "").startswith(_IN_TORCH) or _by_torch_ops(view)
        saved = saved_without_memory(view, operator)
        empty = tuple(tensors_without_memory(view)) if with_tensors and saved is None else ()
        if not with_tensors and runs_compiled(view):  # its kernels read what has elements alone
            empty = tuple(item for item in tensors_without_memory(view) if item.elements)
        if not with_tensors and not empty and saved is None and empty_container(view) is None:
            empty = _empty_arguments(view)
        given = node_operands(view) if empty else None
        empty = tuple(item for item in empty if given is not None and item.expression in given.names) or empty
        arguments = tuple(without_memory(operator)) if not empty else ()
        if not empty and not arguments and is_below_null(view):  # row -1 of what has none
            arguments = tuple(made_empty(operator)[:1])
        by_ctypes = calls_python_by_ctypes(view)
        by_thread = not by_ctypes and without_gil(view)
        caller = None if by_ctypes else caller_without_gil(view) if by_thread else called_without_gil(view)
        by_python = by_ctypes or by_thread or caller is not None
        found = _Null(empty, arguments, operator, saved, null_sibling(view), by_python, given, by_ctypes, caller)
        return Judgement("null-dereference", confidence, (view,), found)

    def describe(self, job: JobView, judgement: Judgement[_Null]) -> Description:
        """See MemoryFaultRule."""
        view = judgement.views[0]
        addr = view.place.addr if view.place else 0
        crash = view.crash
        where = below_function(view) if crash is not None and crash.pc == addr else in_function(view)
        found, why = judgement.found, _why(view, judgement.found)
        return Description(
            f"{introduction(judgement.views)} {_verb(view)} through {_target(addr)}{where}{why.reason}.",
            [
                fault_evidence(view),
                Evidence(
                    "thread-state",
                    "this thread has no Python thread state, and the function reads it without a check"
                    if found.caller is None or not found.caller.of_python
                    else "without the GIL this thread has no current thread state, which the function reads unchecked",
                    tid=crash.tid if crash is not None else None,
                    function=view.function,
                )
                if found.without_gil
                else None,
                Evidence(
                    "instruction",
                    "the address is a constant in the instruction: the compiler knew that the pointer is null there",
                    instruction=view.instruction.text if view.instruction else None,
                )
                if has_constant_address(view)
                else None,
                *(empty_evidence(view, item) for item in found.empty),
                *(argument_evidence(item) for item in found.arguments),
                sibling_evidence(found.sibling) if found.sibling is not None else None,
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            why.advice,
            [missing_operands(view)],
            behind=why.behind,
            explained=found.caller is not None,
            names_cause=found.caller is not None,
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See MemoryFaultRule."""
        return not_found("no address was null or a small offset from a null register")


class _Why(msgspec.Struct, frozen=True):
    """Why the pointer was null, behind the place; what to do about that, and the values that it is about."""

    reason: str
    advice: str
    behind: Behind | None


def _why(view: ProcessView, found: _Null) -> _Why:
    named = [item for item in found.empty if item.frame is not None and not is_library_file(item.frame.file)]
    named = named or list(found.empty)
    sieved = filtered(view, named, found.given) if named else None
    reason = f": {without_memory_words(named[0])}" if len(named) == 1 else _reason(found)
    if len(named) > 1:
        reason = f": {several_words(named)} have no memory" + (
            "" if any(i.elements for i in named) else " (0 elements)"
        )
    holds, gathered, table = placeholder(view, named), gathered_weight(view, named), unfetched_table(view)
    plain = sieved is None and holds is None and gathered is None
    unfit = empty_arguments(view, named) if plain else None
    if sieved is not None:
        reason += f"{sieved.summary}{sieved.whole_words}"
    elif holds is not None:
        reason += holds.summary
    elif unfit is not None:
        reason += unfit.summary
    taken = taken_by(view, named) if plain and unfit is None and len(named) == 1 else None
    if taken is not None and shared_part(view, named[0].elements or 0) is None:  # which has the line as well
        reason += taken.summary
    if table is not None:
        reason = f": {table.summary}"
    elif found.by_ctypes:
        reason = ": Python's C API was called by ctypes.CDLL, which releases the GIL"
    elif found.caller is not None:
        reason = f": {found.caller.summary}"
    elif found.without_gil:
        reason = ": Python was called on a thread that does not hold the GIL"
    elif gathered is not None:
        reason = f": {gathered.summary}"
    sizes = {item.elements for item in named}
    meta = meta_tensors(view, named)
    shared = shared_part(view, sizes.pop()) if len(sizes) == 1 and gathered is None and meta is None else None
    reason = f": {meta.summary}" if meta is not None else f"{reason}{shared.summary if shared is not None else ''}"
    unasked = unchecked_allocation(view) if table is None and not found.without_gil else None
    if unasked is not None:
        reason = f": {unasked.summary}"
    dropped = dropped_handle(view) if not reason else None
    if dropped is not None:
        reason = f": {dropped.summary}"
    told = null_source(view, with_forward=bool(found.arguments)) if not reason else None
    if told is not None:
        reason = f": {told.summary}"
    missing = missing_arguments(view) if not reason or (_is_undefined(found) and dropped is None) else None
    if missing is not None and (found.arguments or not missing.is_own):
        reason = f": {missing.summary}"
    advised = table or unasked or dropped or missing or unfit or shared
    advice = (
        meta.advice(view)
        if meta is not None
        else told.advice
        if told is not None
        else sieved.advice(line_words(view))
        if sieved is not None
        else None
    )
    behind = of_null(view, found.saved, named, holds, missing, told)
    if table is not None or found.without_gil:
        behind = Behind()
    elif unasked is not None:
        behind = Behind.of([], unasked)
    elif gathered is not None and gathered.lines:
        behind = Behind.of([], gathered)
    elif dropped is not None:
        behind = Behind.of([], dropped)
    elif shared is not None or meta is not None:
        behind = Behind.of([], shared, meta)
    elif sieved is not None:
        behind = Behind.of([], sieved)
    elif unfit is not None and unfit.lines:
        behind = Behind.of([], *unfit.lines)
    elif taken is not None and behind is not None:
        behind = msgspec.structs.replace(behind, lines=(*behind.lines, *places_in([taken])))
    return _Why(reason, advised.advice if advised is not None else advice or _what_to_do(view, found), behind)


def _is_undefined(found: _Null) -> bool:
    """Whether all that is known to be null are undefined tensors, which is what None becomes."""
    return bool(found.arguments) and not found.without_gil and all(item.item.undefined for item in found.arguments)


def _empty_arguments(view: ProcessView) -> tuple[Holder, ...]:
    """Tensors of 0 elements that the line passes to a function of the program's own: their data_ptr() is null."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame is None or frame.line is None or _passes_none(tree, frame.line):
        return ()
    names = names_passed(view, tree, frame.line, innermost=True)
    items = [item for item in tensors_without_memory(view) if not item.elements and item.frame is not None]
    at = (frame.file, frame.function, frame.line)
    found = {
        item.expression: item
        for item in items
        if item.expression in (names or ())
        and item.frame is not None
        and (item.frame.file, item.frame.function, item.frame.line) == at
    }
    return tuple(found.values())


def _passes_none(tree: ast.Module, line: int) -> bool:
    """Whether the line has another null pointer to pass."""
    nodes = (node for node in nodes_of(tree) if isinstance(node, ast.Constant) and node.lineno == line)
    return any(node.value is None for node in nodes)


def _by_torch_ops(view: ProcessView) -> bool:
    """Whether torch.ops was called: below it, code that is made at run time has no names (oneDNN's kernels)."""
    frame = next(iter(python_frames(view)), None)
    return frame is not None and (frame.file or "").endswith("torch/_ops.py")


def _target(addr: int) -> str:
    """An index of -1 into a tensor without memory leads below null."""
    offset = signed(addr)
    if offset == 0:
        return "a null pointer"
    return f"a null pointer {'minus' if offset < 0 else 'plus'} {abs(offset)} bytes"


def _reason(found: _Null) -> str:
    """`: foo works on [0] float32, empty`."""
    if found.saved is not None:
        return f": {found.saved.summary}"
    if len(found.arguments) != 1 or found.operator is None:
        return ""
    first = found.arguments[0]
    if first.name is None and not first.item.elements and (given := _given(found.operator)):
        return f": {found.operator.name} was given {given}, and works on an empty tensor of its own"
    return f": {found.operator.name} works on {tensor_words(found.arguments[0])}"


def _given(operator: Operator) -> str | None:
    """The arguments with a name; what is empty without one is a result, which the operator made by its arguments."""
    named = [item for item in operator.tensors if item.passed and item.name is not None and item.item.base]
    return list_words([tensor_words(item) for item in named]) if named else None


def _what_to_do(view: ProcessView, found: _Null) -> str:
    if found.by_ctypes:
        return _GIL_OF_CTYPES
    if found.caller is not None:
        return found.caller.advice
    return _GIL if found.without_gil else _advice(view, found)


def _advice(view: ProcessView, found: _Null) -> str:
    empty = found.empty
    tensor = never_made(view)
    if tensor is not None and not empty and not found.arguments:
        return tensor.advice(passed(view))
    if found.saved is not None:
        return found.saved.advice
    if found.arguments and found.operator is not None:
        which = list_words([tensor_words(item) for item in found.arguments])
        no_names = all(item.name is None and not item.item.elements for item in found.arguments)
        given = _given(found.operator) if no_names else None
        if given is not None and is_below_null(view):
            return (
                f"Check the sizes and values of {given} before {line_words(view)}: the result of {found.operator.name} "
                "has no elements by them, and it reads the one before the first."
            )
        if given is not None:
            return (
                f"Check the values and sizes of {given} before {line_words(view)}: {found.operator.name} made room for "
                "its result by them, which is empty. A sum or product of numbers that are too large wraps to 0."
            )
        return (
            f"Check what {line_words(view)} passes to {found.operator.name}: it was given {which}, and uses the memory "
            f"that such a tensor does not have.{taken_words(view, found.arguments)}"
        )
    emptied, gathered = emptied_advice(view, empty), gathered_weight(view, empty)
    if emptied is not None or gathered is not None:
        return emptied or (gathered.advice if gathered is not None else "")
    own = [item for item in empty if item.frame is not None and not is_library_file(item.frame.file)]
    holds = placeholder(view, own or empty)
    if holds is not None:
        return holds.advice(view)
    if empty:
        names = list_words([f"`{plain_expression(item.expression)}`" for item in own or empty])
        if all(item.elements for item in empty):
            return (
                f"Find what resizes the storage of {names} to 0 before {line_words(view)} "
                "(untyped_storage().resize_(0), as offloading and sharding do): the shape stays, the memory is gone. "
                "Keep a copy (clone()), or use it before."
            )
        line = found.given.begin if found.given is not None else line_words(view)
        return (
            f"Check the size of {names} before {line}: the function does not, and uses the memory that an empty tensor "
            "does not have."
        )
    what = f"what {line_words(view)} passes to native code" if view.python_frame else "what the native code is given"
    kept = "in what that code keeps itself (never made, or already destroyed)"
    none = empty_passed(view)
    first = f"{none} no elements: see whether the code takes a first one for granted. " if none is not None else ""
    return f"{first}Check {what}: something is null there, or {kept}."


def _verb(view: ProcessView) -> str:
    access = view.fault.access if view.fault else None
    verbs = {"read": "read", "write": "wrote", "execute": "called a function"}
    return verbs.get(access or "", "accessed memory")
