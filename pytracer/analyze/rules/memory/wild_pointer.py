"""wild-pointer: an address that never belonged to anything known.

What: the kernel refused an access at an address in no mapping, no live storage and no remembered freed one; or at a
non-canonical address; or at a small address whose base register held garbage instead of null. Or the processor was
sent to execute where no code is: through an overwritten function pointer or vtable, or an overwritten return address.

Why it happens: memory that was overwritten or never initialised was used as a pointer, an object was cast to a class
that it is not, or an address outlived its target by so long that no record of it is left.

An index far too large for an array on the stack or the heap gives such an address, too: where registers hold both parts
of the sum, the index is named, and the class is out-of-bounds. So it is, as *possible*, where the running operator has
one integer tensor too large to be read, and the address is a whole number of rows away from another one of its tensors;
or where the line passes a small tensor with a large one, and the address is behind the small one by less than the size
of the other. Where a variable's tensor has a storage that ends before the address, which its sizes reach, that is
*likely*.

Where the handler found the heap behind a live tensor overwritten, the pointer was most likely overwritten with it: the
class is heap-corruption, and the tensor is named.

Where the address lies as far before a buffer of more than 2**31 elements or bytes as an index in a C int leads that
passed 2**31, the class is out-of-bounds: *likely* if numbers that the line passes give such a product.

A register that held the lower 32 bits of a live storage's address shows that the address was passed as an int. A small
number that a function called by ctypes used as a pointer shows that its declaration in Python does not fit.

What to do: check what the program's line passes to the native function, run it with `--guard` or under
AddressSanitizer, or check the casts and lifetimes on the way to it. After a smashed return address, look for local
arrays in the function that was returning.

How it can be wrong: only CPU storages of torch are remembered. Memory of other allocators that was unmapped before
looks the same, as does a storage that was freed so long ago that its record was overwritten, and the code of a
library that was unloaded. malloc() gives large blocks pages of their own, from byte 16 on: an unmapped address that
ends so is *possible* only, and the report says what it may have been. Where a register points at the first byte of a
storage, or the stack at that of one in the same part of memory, a wrong index into it looks the same: the finding is
*possible* there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytracer._text import count_words, hex_addr, size_words
from pytracer.analyze.address_space.null_pointer import null_confidence, null_sibling
from pytracer.analyze.address_space.referrers import STATE_REGISTERS, stack_words
from pytracer.analyze.address_space.stack_bounds import beside_stack, ran_over
from pytracer.analyze.evidence.behind_storage import Overwritten, overwritten
from pytracer.analyze.evidence.beyond_storage import BeyondStorage, beyond_advice, beyond_storage
from pytracer.analyze.evidence.closed_handle import ClosedHandle, closed_handle
from pytracer.analyze.evidence.ctypes_call import declaration_advice, number_as_pointer
from pytracer.analyze.evidence.cut_handle import CutHandle, cut_handle
from pytracer.analyze.evidence.far_index import FarIndex, far_index
from pytracer.analyze.evidence.fault_function import own_function
from pytracer.analyze.evidence.heap import heap_damage
from pytracer.analyze.evidence.heap_suspects import suspect_words
from pytracer.analyze.evidence.in_backward import backward, changed_advice, saved_advice
from pytracer.analyze.evidence.int_overflow import IntOverflow, int_overflow
from pytracer.analyze.evidence.jumps import Jump, wild_jump
from pytracer.analyze.evidence.known_crashes import KnownCrash, known_crash
from pytracer.analyze.evidence.native_stack import below_function
from pytracer.analyze.evidence.never_made import never_made
from pytracer.analyze.evidence.operator import (
    OperatorTensor,
    find_operator,
    is_of_torch,
    shape_words,
    tensor_with,
    tensor_words,
)
from pytracer.analyze.evidence.passed import (
    SmallArgument,
    passed,
    shapes_advice,
    small_argument,
    unequal_tensors,
    unfit_clause,
)
from pytracer.analyze.evidence.phrases import (
    access_verb,
    collective_evidence,
    fault_evidence,
    in_function,
    missing_operands,
    python_evidence,
)
from pytracer.analyze.evidence.pointer_content import numbers_in_pointer
from pytracer.analyze.evidence.runs import ran_on
from pytracer.analyze.evidence.sparse_source import sparse_operator_advice
from pytracer.analyze.evidence.state_sizes import small_state
from pytracer.analyze.evidence.suspect_argument import suspect_argument
from pytracer.analyze.evidence.truncated_address import TruncatedAddress, truncated_address
from pytracer.analyze.evidence.unfit_operands import unfit_operands
from pytracer.analyze.evidence.unmapping import unmapping_of
from pytracer.analyze.evidence.unread_index import UnreadIndex, unread_index
from pytracer.analyze.evidence.variables import line_words, variable_of
from pytracer.analyze.evidence.where_made import made_words
from pytracer.analyze.naming import introduction
from pytracer.analyze.platform.addresses import why_none
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.rules.fault import MemoryFaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Confidence, Evidence, VerdictClass

_SANITIZER = (
    "Check the sizes, counts and offsets that {} passes to native code, which uses them unchecked. If they are right, "
    "a pointer was overwritten before: `pytracer run --guard` stops at the first byte outside of a tensor."
)
_GUARD = (
    "`pytracer run --guard` stops at the first byte written behind a tensor; compare the sizes of what was passed to "
    "native code there with what it assumes."
)
_NEAR_BYTES = 1 << 20
_SAME_PART_BYTES = 1 << 32
_PAGE_BYTES, _CHUNK_HEADER_BYTES = 4096, 16
_LEAST_CHUNK, _MOST_CHUNK = 0x20, 0x1000
_BY_JUMP = {
    "return": "Look for a write past a local array in the function that was returning, and in what it called; "
    "AddressSanitizer or -fstack-protector-all names it.",
    "call": "Look at the object whose method was called: it was overwritten, already destroyed, or of another class. "
    "Running it under AddressSanitizer names the moment.",
    None: "A function pointer, a vtable or a return address was overwritten: AddressSanitizer names the moment.",
}


@dataclass(frozen=True)
class _Wild:
    """How the process got the address, and whether it is one of torch's known crashes."""

    jump: Jump | None
    known: KnownCrash | None
    far: FarIndex | None
    cut: TruncatedAddress | None = None
    unread: UnreadIndex | None = None
    small: SmallArgument | None = None
    behind: Overwritten | None = None
    beyond: BeyondStorage | None = None
    handle: CutHandle | None = None
    closed: ClosedHandle | None = None
    wrapped: IntOverflow | None = None

    @property
    def is_index(self) -> bool:
        """Whether it is an index that leads out of something, as far as is known."""
        sure = self.known is not None and self.known.confidence == "certain"
        if self.handle is not None or self.closed is not None:
            return False
        return not sure and any((self.far, self.unread, self.small, self.beyond, self.wrapped))


class WildPointer(MemoryFaultRule[_Wild]):
    """Fires for addresses in nothing known, small ones that do not come from null, and jumps to no code."""

    id = "wild-pointer"
    needs = ("crash",)

    def judge(self, view: ProcessView) -> Judgement[_Wild] | None:
        """See MemoryFaultRule."""
        if not _is_wild(view):
            return None
        jump = wild_jump(view)
        known = known_crash(view, "wild-pointer")
        if jump is not None:
            found = _Wild(jump, known, None, behind=overwritten(view))
        else:
            far, cut, beyond = far_index(view), truncated_address(view), _in_missing_memory(view)
            known_sum = far is not None or cut is not None or beyond is not None
            indexed = not known_sum and _may_be_indexed(view)
            unread = unread_index(view) if indexed else None
            small = small_argument(view) if indexed and unread is None else None
            wrapped = int_overflow(view) if not known_sum and unread is None and small is None else None
            known_sum = known_sum or wrapped is not None
            handle = cut_handle(view) if not known_sum else None
            closed = closed_handle(view) if not known_sum and handle is None else None
            behind = overwritten(view) if not known_sum and handle is None and closed is None else None
            found = (
                _Wild(
                    jump,
                    known,
                    None if beyond is not None else far,
                    cut,
                    unread,
                    small,
                    beyond=beyond,
                    handle=handle,
                    closed=closed,
                    wrapped=wrapped,
                )
                if behind is None
                else _Wild(jump, known, None, None, behind=behind)
            )
        class_: VerdictClass = "out-of-bounds" if found.is_index else "wild-pointer"
        if found.behind is not None and known is None:
            class_ = "heap-corruption"  # an object on the heap, or what it points at, was overwritten
        return Judgement(class_, _confidence(view, found), (view,), found)

    def describe(self, job: JobView, judgement: Judgement[_Wild]) -> Description:
        """See MemoryFaultRule."""
        view = judgement.views[0]
        known, jump, cut = judgement.found.known, judgement.found.jump, judgement.found.cut
        behind = judgement.found.behind if known is None else None
        access = f"{access_verb(view)} out of bounds" if judgement.found.is_index else _access_words(view)
        tensor = never_made(view) if jump is None and not judgement.found.is_index and behind is None else None
        if tensor is not None:
            access = f"{tensor.summary},"
        handle = judgement.found.handle
        if handle is not None:
            access = f"{access_verb(view)} memory through a wild pointer, {_address(view)},"
        explained = any((jump, cut, handle, judgement.found.is_index, known, behind))
        state = small_state(view) if jump is not None else None  # what was written over the object
        unfit = "" if explained or suspect_argument(view) is not None else unfit_clause(view)
        unfit = f"; {state}" if state is not None else unfit
        return Description(
            f"{introduction(judgement.views)} {_jump_words(jump) if jump else access}"
            f"{_where(view, jump)}{_far_words(view, judgement.found.far)}{_cut_words(view, cut)}"
            f"{_handle_words(handle)}{_closed_words(judgement.found.closed)}"
            f"{f': {judgement.found.wrapped.summary}' if judgement.found.wrapped is not None else ''}"
            f"{_unread_words(judgement.found.unread)}{_small_words(judgement.found.small)}"
            f"{f': {judgement.found.beyond.summary}' if judgement.found.beyond is not None else ''}"
            f"{f': {behind.summary}' if behind is not None else unfit or _number_words(view, explained)}.",
            [
                _branch(jump) if jump and jump.refused else fault_evidence(view),
                _far_evidence(judgement.found.far),
                _cut_evidence(view, cut),
                _unread_evidence(judgement.found.unread),
                _why_jump(jump) if jump else _not_null(view),
                known.evidence if known else None,
                behind.evidence if behind is not None else None,
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            known.advice
            if known
            else behind.advice
            if behind is not None
            else _BY_JUMP[jump.how]
            if jump
            else _advice(view, judgement.found),
            [
                missing_operands(view),
                "storages: none were recorded"
                if judgement.confidence == "possible" and not view.process.snapshot.storages
                else None,
                _missing_values(judgement.found.unread),
            ],
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See MemoryFaultRule."""
        return not_found("every fault address belonged to something known")


def _far_words(view: ProcessView, far: FarIndex | None) -> str:
    if far is None:
        return ""
    where = "on its stack" if far.stack else "in its memory"
    index = tensor_with(find_operator(view), far.value)
    of = f" of {_tensor_name(index)}" if index is not None else ""
    return f": index {far.value}{of} leads out of an array {where}"


def _far_evidence(far: FarIndex | None) -> Evidence | None:
    if far is None:
        return None
    return Evidence(
        "address-sum",
        f"the address is what {far.pointer} held + {far.scale} * {far.value}, which {far.index} held",
        register=far.index,
        value=far.value,
        scale=far.scale,
    )


def _tensor_name(item: OperatorTensor) -> str:
    return f"`{item.name}`" if item.name else f"a tensor {shape_words(item.item)} of {item.item.dtype}"


def _unread_words(unread: UnreadIndex | None) -> str:
    if unread is None:
        return ""
    return (
        f": possibly by an index of {_tensor_name(unread.index)}; the address is row {unread.rows} of "
        f"{_tensor_name(unread.data)}, which has {count_words(unread.data.item.sizes[0], 'row')}"
    )


def _unread_evidence(unread: UnreadIndex | None) -> Evidence | None:
    if unread is None:
        return None
    return Evidence(
        "tensor",
        f"a register held the first byte of {tensor_words(unread.data)}; the address is {unread.rows} rows of "
        f"{unread.row_bytes} bytes away, a whole number; {unread.operator} works on {tensor_words(unread.index)}, too",
        tensor=unread.index.name,
        value=unread.rows,
        limit=unread.data.item.sizes[0],
        nbytes=unread.row_bytes,
    )


def _small_words(small: SmallArgument | None) -> str:
    if small is None:
        return ""
    return f": {size_words(small.behind)} behind {small.small}, which was passed with {small.large}"


def _number_words(view: ProcessView, explained: bool) -> str:
    number = number_as_pointer(view) if not explained and not _is_block_size(view) else None
    return f": {number.summary}" if number is not None else ""


def _handle_words(handle: CutHandle | None) -> str:
    return f": {handle.words}" if handle is not None else ""


def _closed_words(closed: ClosedHandle | None) -> str:
    return f": {closed.words}" if closed is not None else ""


def _missing_values(unread: UnreadIndex | None) -> str | None:
    if unread is None:
        return None
    return f"the values of {_tensor_name(unread.index)}: a crash reads those of small tensors only"


def _cut_words(view: ProcessView, cut: TruncatedAddress | None) -> str:
    if cut is None:
        return ""
    name = variable_of(view, cut.storage.base) or f"a tensor of {size_words(cut.storage.nbytes)}"
    return f": the lower 32 bits of the address of {name}"


def _cut_evidence(view: ProcessView, cut: TruncatedAddress | None) -> Evidence | None:
    if cut is None:
        return None
    return Evidence(
        "register-value",
        f"{cut.register} held {hex_addr(cut.value)}, the lower 32 bits of {hex_addr(cut.storage.base)}, where a "
        f"storage of {size_words(cut.storage.nbytes)} begins",
        register=cut.register,
        addr=hex_addr(cut.value),
        base=hex_addr(cut.storage.base),
        nbytes=cut.storage.nbytes,
    )


def _advice(view: ProcessView, found: _Wild) -> str:
    """A pointer that is a block's size was an element behind the last one of an array."""
    far, unread = found.far, found.unread
    if found.cut is not None:
        return (
            f"Pass the address in 64 bits at {line_words(view)}: ctypes converts a Python int to a C int unless the "
            "function's argtypes (and restype) are set; wrap it in ctypes.c_void_p(...). In C, an int or a missing "
            "prototype does the same."
        )
    if found.beyond is not None:
        return beyond_advice(view, found.beyond)
    if found.wrapped is not None:
        return found.wrapped.advice
    if found.handle is not None:
        return found.handle.advice(line_words(view))
    if found.closed is not None:
        return found.closed.advice(line_words(view))
    if found.small is not None:
        return (
            f"Compare the shapes of {found.small.small} and {found.small.large}, which {line_words(view)} passes "
            "together: a loop over the larger one left the smaller one. They may be of different batches or layers."
        )
    if unread is not None:
        return (
            f"Check the values of {_tensor_name(unread.index)} before {line_words(view)} passes it: min() and max() "
            f"must lie inside {_tensor_name(unread.data)}, and none may come from torch.empty(). If they do, run it "
            "under AddressSanitizer."
        )
    if far is not None:
        return _far_advice(view, far)
    sparse, operands = sparse_operator_advice(view), unfit_operands(view)
    if operands is not None:
        return operands.advice(view)
    if sparse is not None:
        return sparse
    if _is_block_size(view):
        return (
            f"Check the number and the shapes of the tensors that {line_words(view)} passes: the function takes more "
            "from an array or list of them than it has."
        )
    unequal, number, suspect = unequal_tensors(view), number_as_pointer(view), suspect_argument(view)
    if suspect is not None:
        return f"{suspect.advice} {_SANITIZER.format(line_words(view))}"
    if unequal is not None:
        return shapes_advice(unequal, line_words(view))
    if number is not None:
        return declaration_advice(view, number)
    numbers = numbers_in_pointer(view)
    if numbers is not None:
        suspects = suspect_words(view) if own_function(view) is None else None
        wrote = "may have written" if "may be" in numbers else "wrote"
        return (
            f"The pointer holds {numbers}: native code {wrote} an array over the object that {line_words(view)} uses, "
            f"in this call or one before. {suspects or _GUARD}"
        )
    if _was_large_block(view):
        return (
            f"Keep what owns the memory that {line_words(view)} passes for as long as its address is used: the address "
            "is that of a large block of malloc(), such as a numpy array's, that was freed (.ctypes.data and "
            "data_ptr() of a temporary). If it is none, AddressSanitizer names the moment."
        )
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


def _in_missing_memory(view: ProcessView) -> BeyondStorage | None:
    """A tensor whose storage ends before the address, which its sizes reach."""
    place, beyond = view.place, beyond_storage(view)
    if place is None or beyond is None:
        return None
    reach = range(beyond.tensor.base + beyond.nbytes, beyond.tensor.base + beyond.needed)
    return beyond if place.addr in reach else None


def _far_advice(view: ProcessView, far: FarIndex) -> str:
    index, saved, line = tensor_with(find_operator(view), far.value), backward(view), line_words(view)
    if index is None:
        return (
            f"Check the numbers that {line} passes: an argument, such as a dimension or an index, is {far.value} or "
            "leads to that number, and the function uses it unchecked."
        )
    if saved is not None:
        return saved_advice(view, saved, index)
    made = made_words(view, index.item.base, _tensor_name(index)) if index.name else None
    return (
        f"Check the values of {_tensor_name(index)} before {line} passes it: {far.value} must not be among them "
        f"(min(), max()). {made or 'Find out where it was computed.'} The function does not check it."
    )


def _is_block_size(view: ProcessView) -> bool:
    """Whether the pointer is what the heap keeps before a block: an element behind the last one of an array."""
    return _is_small(view) and view.instruction is not None and _is_chunk_size(view.instruction.base_value or 0)


def _is_chunk_size(value: int) -> bool:
    """The word before a block of glibc's heap: a multiple of 16, and in its lowest bits that the one before is used."""
    return _LEAST_CHUNK <= value & ~7 <= _MOST_CHUNK and value & ~7 & 15 == 0 and value & 7 in (1, 5)


def _is_wild(view: ProcessView) -> bool:
    place = view.place
    if place is None or ran_over(view) or heap_damage(view) is not None or ran_on(view) is not None:
        return False
    if null_confidence(view) is not None:
        return False
    if place.kind in ("null", "near-null") or null_sibling(view) is not None:
        return True
    jump = wild_jump(view)
    if jump is not None:
        return place.kind != "freed-storage"
    if unmapping_of(view) is not None:
        return False  # unmapped-memory
    return place.kind in ("unmapped", "non-canonical") or beside_stack(view)


def _confidence(view: ProcessView, found: _Wild) -> Confidence:
    jump = found.jump
    if found.known is not None and found.known.confidence == "certain":
        return "certain"
    if found.behind is not None:
        return "likely"
    if jump is not None:
        return "certain" if jump.mapping is not None or jump.refused else "likely"
    if found.far is not None or found.cut is not None or found.beyond is not None or found.handle is not None:
        return "likely"
    if found.wrapped is not None:
        return "likely" if found.wrapped.product is not None and not _was_large_block(view) else "possible"
    if _may_be_indexed(view) or _was_large_block(view):
        return "possible"
    if view.place is not None and view.place.kind == "non-canonical":
        return "certain" if view.place.addr else "likely"
    return "likely" if view.process.snapshot.storages or _is_small(view) else "possible"


def _may_be_indexed(view: ProcessView) -> bool:
    """Whether a register points at the first byte of a live storage: the address may be that, plus a wrong index.

    So may it be where only the stack does, and the storage lies in the same part of memory.
    """
    crash, place = view.crash, view.place
    if crash is None or place is None or _is_small(view):
        return False
    if any(_is_start(view, value) for name, value in crash.registers.items() if name not in STATE_REGISTERS):
        return True
    near = (value for _, value in stack_words(crash) if abs(place.addr - value) < _SAME_PART_BYTES)
    return any(_is_start(view, value) for value in near)


def _is_start(view: ProcessView, value: int) -> bool:
    storage = view.space.live_around(value)
    return storage is not None and storage.base == value


def _was_large_block(view: ProcessView) -> bool:
    """Whether the address is the start of what malloc() maps for a large block alone: 16 bytes into a page."""
    crash, place = view.crash, view.place
    if crash is None or place is None or place.kind != "unmapped" or not crash.mappings:
        return False
    among = crash.mappings[0].start < place.addr < crash.mappings[-1].end
    return among and place.addr % _PAGE_BYTES == _CHUNK_HEADER_BYTES


def _is_small(view: ProcessView) -> bool:
    return view.place is not None and view.place.kind in ("null", "near-null")


def _access_words(view: ProcessView) -> str:
    executes = view.fault is not None and view.fault.access == "execute"
    if _was_large_block(view) and not executes:
        freed = "unmapped memory, where a large block of malloc() may have begun"
        return f"{access_verb(view)} {freed}, {_address(view)}{',' if in_function(view) else ''}"
    what = "jumped" if executes else f"{access_verb(view)} memory"
    numbers = numbers_in_pointer(view)
    holds = f", which holds {numbers}" if numbers is not None else ""
    return f"{what} through a wild pointer, {_address(view)}{holds}{',' if in_function(view) else ''}"


def _address(view: ProcessView) -> str:
    place = view.place
    if place is None or (place.kind == "non-canonical" and place.addr == 0):
        return "whose value the processor does not report"
    return hex_addr(place.addr)


def _jump_words(jump: Jump) -> str:
    target = hex_addr(jump.target) if jump.target is not None else "an address that is not known"
    where = f"data at {target}" if jump.mapping is not None else target
    if jump.how == "return":
        return f"returned to {where}: the return address on its stack was overwritten"
    if jump.how == "call":
        return f"called {where}: a function pointer or vtable was overwritten"
    return f"jumped to {where}: a function pointer, vtable or return address was overwritten"


def _where(view: ProcessView, jump: Jump | None) -> str:
    """The function at fault; after a jump that was taken, the innermost one that is still known."""
    return in_function(view) if jump is None or jump.refused else below_function(view)


def _why_jump(jump: Jump) -> Evidence | None:
    if jump.refused:
        return None
    target = hex_addr(jump.target) if jump.target is not None else None
    if jump.mapping is not None:
        owner = jump.mapping.path or "anonymous memory"
        return Evidence(
            "jump",
            f"the target lies in {owner} ({jump.mapping.permissions}), which cannot be executed",
            addr=target,
            path=jump.mapping.path or None,
            permissions=jump.mapping.permissions,
        )
    return Evidence("jump", "no code was mapped at the target", addr=target)


def _branch(jump: Jump) -> Evidence:
    """The branch that the processor refused; the kernel gives no address for it."""
    target = f" to {hex_addr(jump.target)}" if jump.target is not None else ""
    where = "where no process can have memory (not canonical on x86-64)"  # other processors take the branch, then fault
    return Evidence(
        "access",
        f"SIGSEGV (SI_KERNEL): {jump.how}{target}, {where}",
        signal="SIGSEGV",
        code="SI_KERNEL",
        access="execute",
        addr=hex_addr(jump.target) if jump.target is not None else None,
    )


def _not_null(view: ProcessView) -> Evidence | None:
    place, instruction = view.place, view.instruction
    if place is None:
        return None
    addr = hex_addr(place.addr)
    if place.kind == "non-canonical":
        why = why_none(view.process.snapshot.arch)
        return Evidence("address-bits", f"no process can have memory at such an address ({why})", addr=addr)
    if place.kind == "stack-guard":
        return Evidence(
            "stack-bounds",
            "the address lay just below this thread's stack by chance: the stack pointer was far from there",
            addr=addr,
        )
    if place.kind not in ("null", "near-null"):
        near = _near_mappings(view, place.addr)
        if not view.process.snapshot.storages:
            return Evidence("mapping", f"the address lay in no mapping{near}", addr=addr)
        return Evidence(
            "mapping",
            f"the address lay in no mapping{near}, no live storage and no freed storage that is still remembered",
            addr=addr,
        )
    if instruction is not None and instruction.base_value:
        held = hex_addr(instruction.base_value)
        if _is_chunk_size(instruction.base_value):
            size = instruction.base_value & ~7
            return Evidence(
                "register-value",
                f"{instruction.base} held {held}, which is what the heap keeps in front of "
                f"its next block, of {size} bytes: the pointer was read past the end of an array or vector",
                register=instruction.base,
                addr=held,
                nbytes=size,
            )
        return Evidence(
            "register-value",
            f"the base register {instruction.base} held {held}, which is neither null nor aligned as a pointer",
            register=instruction.base,
            addr=held,
        )
    words = "the address is not aligned as an offset from null would be, or no register was null"
    return Evidence("alignment", words, addr=addr)


def _near_mappings(view: ProcessView, addr: int) -> str:
    """Which mappings end or begin close to the address: a pointer that ran over their ends."""
    region = view.space.regions.at(addr)
    if region is None or region.kind != "unmapped":
        return ""
    near = any(abs(addr - edge) < _NEAR_BYTES for edge in (region.start, region.end) if edge)
    return f" ({region.beside})" if near else ""
