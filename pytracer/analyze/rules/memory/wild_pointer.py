"""wild-pointer: an address that never belonged to anything known.

What: the kernel refused an access at an address in no mapping, no live storage and no remembered freed one; or at a
non-canonical address; or at a small address whose base register held garbage instead of null. Or the processor was
sent to execute where no code is: through an overwritten function pointer or vtable, or an overwritten return address.

Why it happens: memory that was overwritten or never initialised was used as a pointer, an object was cast to a class
that it is not, or an address outlived its target by so long that no record of it is left.

An index far too large for an array on the stack or the heap gives such an address, too: where registers hold both parts
of the sum, the index is named, and the class is out-of-bounds; also where only the sum is left and the address is
exactly 2**31 elements before what a register points at, as -2**31 is what NaN becomes in 32 bits. So it is, as
*possible*, where the running operator has one integer tensor too large to be read, and the address is a whole number of
rows away from another one of its tensors; or where the line passes a small tensor with a large one, and the address is
behind the small one by less than the size of the other. Where a variable's tensor has a storage that ends before the
address, which its sizes reach, that is *likely*. In native code of the program or of a library other than torch, base
and index of the failing instruction are enough: the base in memory that may be written, the index no address, and 1 MiB
or more between. Where the C source shows it, the array is named with the line that makes it and the number of its
elements, what the index is, the file it is read from, and the line of the program that writes a file of that name.

Where the program's own native line indexes an array by a number that it looked up in another one, and the arrays that
Python passed are recorded, the class is out-of-bounds, *likely*: the array that was looked up, what it was looked up
by, and why it may have so few elements are named. Which of them is wrong is known only where its numbers were read.

Where a register of the failing instruction points into an array of NumPy that the line passes, and its index leads out
of it, the array is named: *certain* from its first byte on, else *likely*; so it is, as *likely*, where any register
has its first byte and the address is at most its own length away.

Where such an index is two integers of 32 bits, read as one of 64, the array whose type does not fit the function is
named: *likely* by the source of the program's own function, or where the memory of the array has the two; else
*possible*.

Where the program's own function takes `double *`, or `float *`, and makes an index of an element, and the array that
the line passes has floats of another size, that array is named: *likely*, but *possible* where the numbers of it that
were recorded are small also as the function reads them.

Where the handler found the heap behind a live tensor overwritten, the pointer was most likely overwritten with it: the
class is heap-corruption, and the tensor is named.

Where the address lies as far before a buffer of more than 2**31 elements or bytes as an index in a C int leads that
passed 2**31, the class is out-of-bounds: *likely* if numbers that the line passes give such a product.

So it is, as *likely*, where torch's operator uses a sparse tensor whose line of construction checks nothing, and the
address is a whole number of elements away from a dense one. Where C called a callback, the fault is in libffi, ctypes,
cffi or the interpreter before the callback's Python code ran, and a line gave C a callback that nothing holds, or where
a destructor deletes what the source shows to have a second owner, the class is use-after-free, *likely* as well.

Where NumPy was reading references to Python objects, and a mapped file or shared memory has the address at a place that
a register points at, an array with an object field was stored there by another process: *certain*, with the field and
the line. By the program's source alone it is *likely*.

A small negative number, -4096 to -1, that no register and no empty tensor explains is *possible* only: index -1 of an
empty buffer, or an error code that was used as a pointer.

Where NumPy made the access, and the failing line passes the only array that was made of another one's address alone
(`from_address(x.ctypes.data)`), and that one ended, the class is use-after-free, *likely*.

Where the address is the start of such a large block of malloc() as an array of NumPy has, and the line passes by ctypes
the address of one array that had ended, a temporary or a variable of the function that returned it, the class is
use-after-free, *likely*.

So it is where C that ctypes called got the address of an array that had ended in a field of a structure, an element of
an array of addresses, or an attribute that keeps a number. Where the recorded memory behind a register has that field,
or the recorded number is it, and nothing is mapped from there to the fault, it is *certain*; by the source alone
*likely*, and only at the start of such a large block.

A register that held the lower 32 bits of a live storage's address, or of one that the line passes by ctypes, shows that
the address was passed as an int. A small number that a function called by ctypes used as a pointer shows that its
declaration in Python does not fit; where a field of a ctypes.Structure lies where the C struct has that pointer, both
are named. A small number that was called is no null pointer, either: nothing is added to the address of a function.

Where the program's own native line uses an array of a fixed size in a structure whose address Python has, the address
gives the index: the class is out-of-bounds, *certain* where a register has the address of the structure, and
registers or memory have the index, too; else *likely*.
The counter that lies right behind the array is named where it is the index. So it is, as *likely*, where a loop of C++
counts by one container and indexes another one: by both lengths, as the line passes them, or, with one of them, by the
bounds of the container on the stack and a register that points behind it; *certain* with all of these.

A buffer that the function which the line calls by ctypes fills by an unchecked counter, and that has room for fewer
elements than it goes through, is named as what may have been left before, and the line that makes the text "b'...'" of
bytes where the function takes a text for data.

A global variable that held the pointer, and that another library of the program defines by the same name as another
one, is named with what writes it there: with RTLD_GLOBAL, or where one library needs the other, both are one variable.

A native object that keeps the address of another one, which its owner in Python freed when that was collected or
closed, is named by the program's source, where nothing else is known.

Where the thread, or another one, was within an exit() that the program's own native code called, such as for a failed
check in a thread of a pool, the fault is told as what followed, with the check.

What to do: check what the program's line passes to the native function, run it with `--guard` or under
AddressSanitizer, or check the casts and lifetimes on the way to it. After a smashed return address, look for local
arrays in the function that was returning.

How it can be wrong: only CPU storages of torch are remembered. Memory of other allocators that was unmapped before
looks the same, as does a storage that was freed so long ago that its record was overwritten, and the code of a
library that was unloaded. malloc() gives large blocks pages of their own, from byte 16 on: an unmapped address that
ends so is *possible* only, and the report says what it may have been. Where a register points at the first byte of a
storage, or the stack at that of one in the same part of memory, a wrong index into it looks the same: the finding is
*possible* there. An address that no process can have is *certain* only where memory held it: else it may be the sum of
a pointer and an index, both of which are gone.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._text import uncapital
from pytracer.analyze.address_space.null_pointer import null_confidence, null_sibling
from pytracer.analyze.address_space.stack_bounds import beside_stack, ran_over
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.at_fault import of_wild
from pytracer.analyze.evidence.heap.heap import heap_damage
from pytracer.analyze.evidence.indices.runs import ran_on
from pytracer.analyze.evidence.known_crashes import KnownCrash, known_crash
from pytracer.analyze.evidence.lifetime.never_made import never_made
from pytracer.analyze.evidence.lifetime.unmapping import unmapping_of
from pytracer.analyze.evidence.native.jumps import Jump, wild_jump
from pytracer.analyze.evidence.native.native_stack import below_function
from pytracer.analyze.evidence.own_code.dropped_handle import dropped_handle
from pytracer.analyze.evidence.own_code.vector_bounds import vector_bounds
from pytracer.analyze.evidence.phrases import (
    access_verb,
    collective_evidence,
    fault_evidence,
    in_function,
    missing_operands,
    python_evidence,
)
from pytracer.analyze.evidence.preconditions.violated import is_unfit, suspect_forward
from pytracer.analyze.evidence.wild.address import access_words, address_evidence
from pytracer.analyze.evidence.wild.explain import explained_access, explained_jump, is_freed_code, without_cause
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.evidence.wild.freed_callback import FreedCallback
from pytracer.analyze.evidence.wild.memory import OverwrittenMemory
from pytracer.analyze.evidence.wild.taken_jump import WildJump, jump_words, refused_evidence, target_evidence
from pytracer.analyze.evidence.wild.unexplained import arguments_clause
from pytracer.analyze.naming import introduction
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.rules.fault import MemoryFaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence


class _Wild(msgspec.Struct, frozen=True):
    """How the process got the address, and whether it is one of torch's known crashes."""

    jump: Jump | None
    known: KnownCrash | None
    explanation: Explanation

    @property
    def is_known(self) -> bool:
        """Whether it is such a crash for certain; then the address is but one of its traces."""
        return self.known is not None and self.known.confidence == "certain"


class WildPointer(MemoryFaultRule[_Wild]):
    """Fires for addresses in nothing known, small ones that do not come from null, and jumps to no code."""

    id = "wild-pointer"
    needs = ("crash",)

    def judge(self, view: ProcessView) -> Judgement[_Wild] | None:
        """See MemoryFaultRule."""
        if not _is_wild(view):
            return None
        jump, known = wild_jump(view), known_crash(view, "wild-pointer")
        explanation = explained_jump(view, jump) if jump is not None else explained_access(view)
        confidence = explanation.confidence(view)
        if known is not None and isinstance(explanation, OverwrittenMemory):
            explanation = without_cause(jump)  # that crash is what overwrote it
        found = _Wild(jump, known, explanation)
        if found.is_known:
            return Judgement("wild-pointer", "certain", (view,), found)
        return Judgement(explanation.verdict_class, confidence, (view,), found)

    def describe(self, job: JobView, judgement: Judgement[_Wild]) -> Description:
        """See MemoryFaultRule."""
        view, found = judgement.views[0], judgement.found
        jump, known, explanation = found.jump, found.known, found.explanation
        unsaid = known is None and not explanation.is_sufficient
        dropped = dropped_handle(view) if unsaid else None
        forward = suspect_forward(view) if known is None and isinstance(explanation, WildJump) else None
        if dropped is not None:
            clause = f": {dropped.summary}"
        elif forward is not None:
            clause = f"; the first suspect is {forward[0]}"
        else:
            clause = arguments_clause(view) if unsaid else ""
        return Description(
            f"{introduction(judgement.views)} {_access(view, found)}{_where(view, found)}"
            f"{explanation.clause(view)}{clause}.",
            [
                refused_evidence(jump) if jump is not None and jump.refused else fault_evidence(view),
                *explanation.evidence(view, _address_evidence(view, jump)),
                known.evidence if known is not None else None,
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            dropped.advice
            if dropped is not None
            else f"{forward[1]} If that holds: {uncapital(explanation.advice(view))}"
            if forward is not None
            else known.advice
            if known is not None and not isinstance(explanation, FreedCallback)
            else explanation.advice(view),
            [
                missing_operands(view),
                "storages: none were recorded"
                if judgement.confidence == "possible" and not view.process.snapshot.storages
                else None,
                explanation.missing,
            ],
            names_source=explanation.names_source,
            explained=explanation.is_explained and known is None,
            behind=Behind.of([], dropped) if dropped is not None else of_wild(view, explanation),
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See MemoryFaultRule."""
        return not_found("every fault address belonged to something known")


def _is_wild(view: ProcessView) -> bool:
    place = view.place
    if place is None or ran_over(view) or heap_damage(view) is not None or ran_on(view) is not None:
        return False
    if is_unfit(view):
        return False
    if place.kind in ("null", "near-null", "file-mapping", "heap") and is_freed_code(view):
        return True
    if place.kind in ("null", "near-null") and vector_bounds(view) is not None:
        return True  # what lies behind the container was 0
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


def _access(view: ProcessView, found: _Wild) -> str:
    """What the process did, for the headline."""
    if found.jump is not None:
        return found.explanation.access(view) or jump_words(found.jump)
    if found.explanation.is_index and not found.is_known:
        return f"{access_verb(view)} out of bounds"
    own = found.explanation.access(view)
    if own is not None:
        return own
    tensor = never_made(view)
    return f"{tensor.summary}," if tensor is not None else access_words(view)


def _where(view: ProcessView, found: _Wild) -> str:
    """The function at fault; after a jump that was taken, the innermost one that is still known."""
    jump, explanation = found.jump, found.explanation
    if isinstance(explanation, FreedCallback) or (jump is not None and explanation.access(view) is not None):
        return ""  # whose function it was is said
    return in_function(view) if jump is None or jump.refused else below_function(view)


def _address_evidence(view: ProcessView, jump: Jump | None) -> Evidence | None:
    return target_evidence(jump) if jump is not None else address_evidence(view)
