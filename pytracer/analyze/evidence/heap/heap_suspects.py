"""Who may have damaged a heap, as far as the recording supports it, and what to do to find out."""

from __future__ import annotations

import ast
import re

from msgspec.structs import replace

from pytracer._patterns import Pattern
from pytracer._text import capital, function_words, list_words, shortened
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.heap.behind_storage import Overwritten
from pytracer.analyze.evidence.heap.freed_twice import freed_twice
from pytracer.analyze.evidence.heap.heap import NUMPY_FREES
from pytracer.analyze.evidence.heap.overwritten import unchecked_calls
from pytracer.analyze.evidence.indices.sparse_source import sparse_advice, sparse_source
from pytracer.analyze.evidence.indices.written_value import constant
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.operators.operator import find_operator, is_of_torch, is_sparse, shape_words
from pytracer.analyze.evidence.own_code.call_origins import may_reach_call, native_calls_on
from pytracer.analyze.evidence.own_code.counted_writes import CountedWrite, counted_write, limited_write
from pytracer.analyze.evidence.own_code.infinity_stores import infinity_store
from pytracer.analyze.evidence.own_code.large_ids import LargeIds, large_ids
from pytracer.analyze.evidence.own_code.own_allocations import own_allocation
from pytracer.analyze.evidence.own_code.own_arguments import passed_tensor
from pytracer.analyze.evidence.own_code.own_libraries import (
    OwnCall,
    OwnLibraries,
    allocating_frames,
    files_of_program,
    is_own_path,
    own_libraries,
)
from pytracer.analyze.evidence.own_code.short_buffers import ShortBuffer, short_buffer
from pytracer.analyze.evidence.own_code.unheld_memory import unheld_memory
from pytracer.analyze.evidence.preconditions.violated import unchecked_calls_before, unchecked_words
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.bindings import binding
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_GUARD = "`pytracer run --guard` stops at the first byte that is written behind a tensor, in the call that writes it."
_TOOLS = "`pytracer run --guard` finds writes beside tensors, AddressSanitizer or valgrind beside every block."
_SHORT = (
    "To see that write, run with the library built by -fsanitize=address and "
    '`LD_PRELOAD="$(gcc -print-file-name=libasan.so)"`, or below valgrind.'
)
ONLY_NOTICED = f"The stack shows only who noticed the damage. {_TOOLS}"
_BEFORE = (
    "Something wrote outside of a block of memory, or into a freed one, in this call or long before: the stack shows "
    "only who noticed."
)
_SPARSE = "indices that are not checked (sparse tensors: check_invariants=True)"
_UNCHECKED = "sizes and indices that native code does not check,"
_EXTENSIONS = "extensions built for another torch"
_FREES = (
    "Look first at {}, which frees it: what it frees is no block of malloc(), lies inside of one, or was freed before, "
    "such as by the deleter of from_blob(). If that is right, the damage was done earlier: run it with --guard, "
    "MALLOC_CHECK_=3, under AddressSanitizer or valgrind."
)
_OF_ARRAY = (
    "Look first at {}: native code must not free(), realloc() or write outside of memory that the program owns, "
    "such as a NumPy array's, which was damaged or freed when NumPy came to free it. AddressSanitizer or valgrind "
    "names the moment; --guard watches tensors only."
)
_MOST_GIVEN, _QUOTED = 4, 44
_WHOLE = Pattern(r"\b(int|long|int32|int64|argmax|argsort|randint|nonzero|floor|round|multinomial|ids?|idx|index)\b")
_EMPTY = Pattern(r"\b(zeros|empty|full|ones)(_like)?\(")
_OF_LIBC = ("libc.", "libc-", "ld-")
_FREE, _MOST_FRAMES = ("free", "cfree", "_int_free", "__libc_free", "__GI___libc_free"), 14
_FOREIGN_CALLS = ("libffi.", "_ctypes.", "_cffi_backend.")
_OF_SPARSE = ("sparse", "csr", "csc", "coo", "bsr", "bsc")


def heap_advice(view: ProcessView, user: str | None, *, frees: bool, freed: bool = False) -> str:
    """What to look at first.

    Args:
        view: The process that died of a damaged heap.
        user: The function that called the allocator.
        frees: Whether the address itself that it freed may be wrong.
        freed: Whether it was freed before.
    """
    source = sparse_source(view) if running_conversion(view) is not None else None
    if source is not None:
        return f"{sparse_advice(view, source)} {_BEFORE}"
    libraries = own_libraries(view)
    limited = limited_suspect(view) if libraries is not None and not frees else None
    if limited is not None:
        return f"{limited.advice} {_SHORT}"
    if libraries is not None and user in NUMPY_FREES:
        return _OF_ARRAY.format(libraries.words)
    twice = freed_twice(view) if libraries is not None and freed and user not in NUMPY_FREES else None
    if twice is not None:
        return twice.advice
    if frees and user is not None and user not in NUMPY_FREES:
        return _FREES.format(f"{line_words(view)}" if _calls_foreign(view) else function_words(user))
    sparse = _uses_sparse(view)
    if libraries is not None and sparse:
        return f"First suspects are {_SPARSE} and {libraries.words}. {_BEFORE} {_TOOLS}"
    if libraries is not None:
        return suspect_words(view) or _TOOLS
    by_hand = unchecked_calls(view, program_frames(view) or allocating_frames(view))
    if by_hand and not sparse:
        return f"First suspects are {list_words(by_hand)}. {_BEFORE} {_TOOLS}"
    return f"{_BEFORE} First suspects are {_UNCHECKED if sparse is False else _SPARSE} and {_EXTENSIONS}. {_TOOLS}"


def first_suspect(view: ProcessView, beside: Overwritten | None = None) -> str | None:
    """The one that the advice begins with, for the headline; None where there are several, or none.

    `` the first suspects are the indices of `graph`, which torch.sparse_csr_tensor() at line 21 does not check ``.

    `beside`: the tensor beside which the memory is overwritten, where that is known.
    """
    if own_libraries(view) is not None and running_conversion(view) is None:
        counted = _counted(view, beside)
        infinity = infinity_store(view, beside.overrun.word) if beside is not None else None
        other = own_allocation(view) or counted_memory(view) or infinity
        if infinity is not None and other is infinity:
            return f"the first suspect is {infinity.summary}"
        found = counted.summary if counted is not None and other is None else only_suspect(view)
    else:
        source = sparse_source(view)
        if source is not None:
            return f"the first suspects are {source.unchecked_words(view)}"
        calls = unchecked_calls_before(view)
        found = calls[0] if len(calls) == 1 else None
    return f"the first suspect is {found}" if found is not None else None


def _counted(view: ProcessView, beside: Overwritten | None) -> CountedWrite | None:
    """What fills the tensor behind which the memory is overwritten, or one that may lie before it.

    Where no tensor is known to be overrun, what may fill more of a buffer than the program made.
    """
    if beside is None:
        return limited_suspect(view)
    if beside.name is None:
        return None
    if not beside.overrun.before:
        return counted_write(view, beside.name)
    found = counted_write(view)
    return found if found is not None and found.buffer != beside.name else None


def limited_suspect(view: ProcessView) -> CountedWrite | None:
    """A buffer that the program's own C may fill beyond its end; None where its calls have another first suspect."""
    found = limited_write(view)
    if found is None:
        return None
    other = own_allocation(view) or counted_memory(view) or freed_twice(view) or negative_words(view)
    return found if other is None else None


def has_known_suspect(view: ProcessView) -> bool:
    """Whether the source shows a write that may leave a block, and not only that a call is given memory."""
    libraries = own_libraries(view)
    found = own_allocation(view) or counted_memory(view) or limited_suspect(view) or negative_words(view)
    return (found or (_negative(view, libraries) if libraries is not None else None)) is not None


def suspect_behind(view: ProcessView, beside: Overwritten | None) -> Behind | None:
    """The program's lines that pass a buffer and its count to the first suspect, and the one that made the buffer."""
    short = own_allocation(view)
    infinity = infinity_store(view, beside.overrun.word) if beside is not None else None
    large = counted_memory(view) or infinity if short is None else None
    if large is not None:
        return Behind.of([], large)
    counted = _counted(view, beside) if short is None else None
    if counted is None:
        return None
    return Behind.of([], beside.made if beside is not None and not beside.overrun.before else None, *counted.lines)


def unchecked_advice(view: ProcessView) -> str | None:
    """Of operators of torch that check nothing, where the program brought no native code of its own."""
    unchecked = unchecked_words(view) if own_libraries(view) is None else None
    return f"{unchecked} {_GUARD}" if unchecked is not None else None


def beside_advice(view: ProcessView, beside: Overwritten) -> str:
    """Where the memory beside a tensor is overwritten: what may have led there, else where to look."""
    short = own_allocation(view)
    if short is not None:
        return f"{short.advice} {_SHORT}"
    large = counted_memory(view) or infinity_store(view, beside.overrun.word)
    if large is not None:
        return f"{large.advice} {_SHORT}"
    counted = _counted(view, beside)
    if counted is not None:
        return f"{counted.advice} {_GUARD}"
    negative = negative_words(view)
    if negative is not None:
        return f"{negative} {_GUARD}"
    source = sparse_source(view) if own_libraries(view) is None else None
    if source is not None:
        return sparse_advice(view, source)
    return unchecked_advice(view) or running_advice(view, beside) or beside.advice


def running_advice(view: ProcessView, beside: Overwritten) -> str | None:
    """Where the program's own native code frees what is damaged: that, and not a tensor which only lies beside it.

    None where its call is given the tensor: its size may be what does not fit then.
    """
    libraries = own_libraries(view)
    spot = Slice(view.process.snapshot, program_frames(view)).spot(0)
    if libraries is None or len(libraries.names) != 1 or spot is None or not _frees_in_own(view):
        return None
    calls = native_calls_on(view, spot)
    inner = {id(part) for item in calls for given in passed_values(item) for part in nodes_of(given)}
    outer = [item for item in calls if id(item) not in inner]
    names = {item.id for call in outer for item in nodes_of(call) if isinstance(item, ast.Name)}
    if len(outer) != 1 or called_name(outer[0]) in _FREE or beside.name is None or names & _names_of(view, beside):
        return None
    return (
        f"First suspect is the native function that {line_words(view)} calls (`{_shown(outer[0])}`; the program's own "
        f"library is {libraries.names[0]}), as free() was called in it: an index or count that is negative or too "
        "large writes outside of a block, of those that it is given or of one that it allocates itself. "
        f"`{beside.name}` is not passed to it, and only lies beside what was written. {_SHORT}"
    )


def _names_of(view: ProcessView, beside: Overwritten) -> set[str]:
    """Variables of the program that have its memory, or hold what has."""
    holders = view.crash.holders if view.crash is not None else ()
    same = [item.expression for item in holders if item.base == beside.overrun.storage.base]
    return {re.split(r"[.\[(]", text)[0] for text in (*same, beside.name or "")}


def _shown(call: ast.Call) -> str:
    return f"{ast.unparse(call.func)}({'...' if passed_values(call) else ''})"


def _frees_in_own(view: ProcessView) -> bool:
    """Whether free() was called by code of the program's library, or last of all by it, so that ctypes seems to."""
    frames = [frame for frame in own_frames(view) if not image_name(frame.image).startswith(_OF_LIBC)]
    frees = any((frame.function or "").partition(".")[0] in _FREE for frame in own_frames(view)[:_MOST_FRAMES])
    return frees and bool(frames) and (is_own_path(frames[0].image) or _calls_foreign(view))


def counted_memory(view: ProcessView) -> LargeIds | ShortBuffer | None:
    """A call of the program's own C whose numbers lead out of the memory that it is given, or that it makes."""
    return large_ids(view) or short_buffer(view)


def suspect_words(view: ProcessView) -> str | None:
    """What of the program's own native code may have overwritten memory before; None where it brought none."""
    unheld = unheld_memory(view)
    if unheld is not None:
        return f"{unheld.advice} {ONLY_NOTICED}"
    libraries = own_libraries(view)
    if libraries is None:
        return None
    short = own_allocation(view)
    if short is not None:
        return f"{short.advice} {_SHORT}"
    large = counted_memory(view)
    if large is not None:
        return f"{large.advice} {_SHORT}"
    negative = negative_words(view)
    if negative is not None:
        return f"{negative} {_TOOLS}"
    limited = limited_suspect(view)
    if limited is not None:
        return f"{limited.advice} {_SHORT}"
    return " ".join(filter(None, (_own(view, libraries), _negative(view, libraries), _TOOLS)))


def only_suspect(view: ProcessView) -> str | None:
    """`confusion() of ops.so (train.py:43)`: the one call that gives the program's own native code memory.

    Where its source allocates too little, with the line that does.
    """
    short = own_allocation(view)
    if short is not None:
        return short.summary
    large = counted_memory(view)
    if large is not None:
        return large.summary
    limited = limited_suspect(view)
    if limited is not None:
        return limited.summary
    libraries = own_libraries(view)
    call = libraries.only_call if libraries is not None else None
    if libraries is None or call is None or len(libraries.names) > 1:
        return None
    return f"{call.function}() of {libraries.names[0]} ({libraries.line(call.at)})"


def _own(view: ProcessView, libraries: OwnLibraries) -> str:
    """`` First suspect is vote() of libhough.so, to which line 25 passes the memory of `cells` and `grid`: ... ``"""
    call = libraries.only_call
    if call is None or len(libraries.names) > 1:
        suspects = "suspect is" if len(libraries.names) == 1 else "suspects are"
        return (
            f"First {suspects} {libraries.words}: an index or count that is negative or too large writes outside of a "
            "block, and so does a type of another size."
        )
    given = list_words([f"`{name}`{_range(view, call, name)}" for name in call.passes], _MOST_GIVEN)
    function, line = f"{call.function}() of {libraries.names[0]}", libraries.line(call.at)
    return (
        f"First suspect is {function}, to which {line} passes {given}: an index or count "
        "that is negative or too large writes outside of a block."
    )


def negative_words(view: ProcessView) -> str | None:
    """`` `labels` [512] int64 holds -1, and line 21 passes it to class_means(): ... ``: of the only such tensor."""
    libraries = own_libraries(view)
    found: dict[str, str] = {}
    for call in libraries.suspects if libraries is not None else ():
        for name in call.passes:
            tensor = passed_tensor(view, call, name)
            if libraries is not None and tensor is not None and tensor.is_integer and (tensor.minimum or 0) < 0:
                found[name] = (
                    f"`{name}` {shape_words(tensor)} {tensor.dtype} holds {tensor.minimum}, and "
                    f"{libraries.line(call.at)} passes it to {call.function}(): as an index, unless that checks it, it "
                    "leads before the start of a block."
                )
    if libraries is None or len(found) != 1:
        return None
    return " ".join(filter(None, (*found.values(), _negative(view, libraries))))


def _range(view: ProcessView, call: OwnCall, name: str) -> str:
    """` (0..255)`, the smallest and largest number of a tensor that may be an index; else the line that made it."""
    tensor = passed_tensor(view, call, name)
    if tensor is None or not tensor.is_integer or tensor.minimum is None or tensor.maximum is None:
        return _made(view, call, name)
    return f" ({tensor.minimum}..{tensor.maximum})"


def _made(view: ProcessView, call: OwnCall, name: str) -> str:
    """`` (line 24: `cells = ...`) ``, of what was made an integer: it may be an index."""
    tree = syntax_tree(view.process.snapshot, call.at)
    if tree is None or call.at.line is None:
        return ""
    bound = binding(tree, scope_of(tree, call.at.line), name, call.at.line)
    text = line_text(view.process.snapshot, replace(call.at, line=bound[0])) if bound is not None else None
    if bound is None or text is None or not _WHOLE.search(text) or _EMPTY.search(text):
        return ""
    return f" (line {bound[0]}: `{shortened(text, _QUOTED)}`)"


def _negative(view: ProcessView, libraries: OwnLibraries) -> str | None:
    """`` Line 47 (`label[:, -8:] = -1`) makes negative numbers. ``: of one line that does."""
    files = files_of_program(view)
    found = {(file, line) for file, tree in files.items() for line in negative_lines(tree)}
    if len(found) != 1:
        return None
    file, line = next(iter(found))
    if not may_reach_call(view, files[file], line):
        return None
    at = PythonFrame(function=None, file=file, line=line)
    text = shortened(line_text(view.process.snapshot, at) or "", _QUOTED)
    place = libraries.line(at)
    begins = capital(place) if place.startswith("line ") else place
    return f"{begins} (`{text}`) makes negative numbers: none may get there as an index."


def negative_lines(tree: ast.Module) -> list[int]:
    """Lines that fill part of a tensor with a negative whole number, as labels to ignore and missing ids are."""
    lines = set()
    for node in nodes_of(tree):
        if isinstance(node, ast.Assign) and any(isinstance(item, ast.Subscript) for item in node.targets):
            value: ast.expr | None = node.value
        elif isinstance(node, ast.Call) and called_name(node) in ("masked_fill", "masked_fill_", "full", "fill_"):
            value = node.args[-1] if node.args else None
        else:
            continue
        number = constant(value, tree) if value is not None else None
        if number is not None and number < 0:
            lines.add(node.lineno)
    return sorted(lines)


def running_conversion(view: ProcessView) -> str | None:
    """The operator that was running, where it writes where the indices of a sparse tensor say, unchecked."""
    operator = find_operator(view)
    return operator.name if operator is not None and is_sparse(operator) and is_of_torch(operator) else None


def _calls_foreign(view: ProcessView) -> bool:
    """Whether free() was called by ctypes or cffi itself."""
    images = [image_name(frame.image) for frame in own_frames(view)]
    inner = next((image for image in images if not image.startswith(_OF_LIBC)), "")
    return inner.startswith(_FOREIGN_CALLS)


def _uses_sparse(view: ProcessView) -> bool | None:
    """Whether the running operator or the program's files on the stack name something sparse; None where these are not
    known.
    """
    operator = find_operator(view)
    if operator is not None and is_sparse(operator):
        return True
    frames = {frame.file: frame for frame in program_frames(view) or allocating_frames(view)}
    trees = [syntax_tree(view.process.snapshot, frame) for frame in frames.values()]
    known = [tree for tree in trees if tree is not None]
    if any(_names_sparse(tree) for tree in known):
        return True
    return False if trees and len(known) == len(trees) else None


def _names_sparse(tree: ast.Module) -> bool:
    names = (getattr(node, "attr", None) or getattr(node, "id", None) or "" for node in nodes_of(tree))
    return any(part in name for name in names for part in _OF_SPARSE)
