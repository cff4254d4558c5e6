"""Who may have damaged a heap, as far as the recording supports it, and what to do to find out."""

from __future__ import annotations

import ast

from pytracer._text import function_words
from pytracer.analyze.evidence.native_stack import image_name, own_frames
from pytracer.analyze.evidence.operator import find_operator, is_of_torch, is_sparse
from pytracer.analyze.evidence.own_libraries import own_libraries
from pytracer.analyze.evidence.sparse_source import sparse_advice, sparse_source
from pytracer.analyze.evidence.variables import line_words, program_frames
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_BEFORE = (
    "The damage was done before, in this call or long ago: `pytracer run --guard` stops at the first byte written "
    "behind a tensor; MALLOC_CHECK_=3, AddressSanitizer or valgrind find it behind any block."
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
    "Look first at {}: native code must not free(), realloc() or write past the end of memory that the program owns, "
    "such as a NumPy array's, which was damaged or freed when NumPy came to free it. AddressSanitizer or valgrind "
    "names the moment; --guard watches tensors only."
)
_NUMPY = ("array_dealloc", "array_data_free", "npy_free_cache", "PyDataMem_UserFREE")
_FOREIGN_CALLS = ("libffi.", "_ctypes.", "_cffi_backend.")
_OF_SPARSE = ("sparse", "csr", "csc", "coo", "bsr", "bsc")


def heap_advice(view: ProcessView, user: str | None, *, frees: bool) -> str:
    """What to look at first.

    Args:
        view: The process that died of a damaged heap.
        user: The function that called the allocator.
        frees: Whether the address itself that it freed may be wrong.
    """
    source = sparse_source(view) if running_conversion(view) is not None else None
    if source is not None:
        return f"{sparse_advice(view, source)} {_BEFORE}"
    libraries = own_libraries(view)
    if libraries is not None and user in _NUMPY:
        return _OF_ARRAY.format(libraries.words)
    if frees and user is not None and user not in _NUMPY:
        return _FREES.format(f"{line_words(view)}" if _calls_foreign(view) else function_words(user))
    sparse = _uses_sparse(view)
    if libraries is not None and sparse:
        return f"{_BEFORE} First suspects are {_SPARSE} and {libraries.words}."
    if libraries is not None:
        suspects = "suspect is" if len(libraries.names) == 1 else "suspects are"
        return f"{_BEFORE} First {suspects} {libraries.words}: check the sizes and addresses that are passed."
    return f"{_BEFORE} First suspects are {_UNCHECKED if sparse is False else _SPARSE} and {_EXTENSIONS}."


def running_conversion(view: ProcessView) -> str | None:
    """The operator that was running, where it writes where the indices of a sparse tensor say, unchecked."""
    operator = find_operator(view)
    return operator.name if operator is not None and is_sparse(operator) and is_of_torch(operator) else None


def _calls_foreign(view: ProcessView) -> bool:
    """Whether free() was called by ctypes or cffi itself."""
    images = [image_name(frame.image) for frame in own_frames(view)]
    inner = next((image for image in images if not image.startswith(("libc.", "libc-", "ld-"))), "")
    return inner.startswith(_FOREIGN_CALLS)


def _uses_sparse(view: ProcessView) -> bool | None:
    """Whether the running operator or the program's files on the stack name something sparse; None where these are not
    known.
    """
    operator = find_operator(view)
    if operator is not None and is_sparse(operator):
        return True
    frames = {frame.file: frame for frame in program_frames(view)}
    trees = [syntax_tree(view.process.snapshot, frame) for frame in frames.values()]
    known = [tree for tree in trees if tree is not None]
    if any(_names_sparse(tree) for tree in known):
        return True
    return False if trees and len(known) == len(trees) else None


def _names_sparse(tree: ast.Module) -> bool:
    names = (getattr(node, "attr", None) or getattr(node, "id", None) or "" for node in ast.walk(tree))
    return any(part in name for name in names for part in _OF_SPARSE)
