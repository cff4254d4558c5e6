"""What glibc prints when it finds its heap damaged, each text in one sentence (malloc/malloc.c, glibc 2.17 to 2.41).

A sentence has what glibc compared, and no more: the same note is overwritten from either side, by a write behind the
end of the block before it, before the beginning of the one after it, or into a block that was freed.
"""

from __future__ import annotations

from pytracer._patterns import Pattern

_LIST = "a link in its lists of free blocks is wrong"
_TOP = "the size of the unused rest of the heap is impossible"
_FREE_SIZE = "the size of a free block is impossible, or differs from the copy at its end"
_COPIES = "the size of a free block and the copy at its end differ"
_NOT_MALLOCS = "was given an address that malloc() never gave out, or the bytes before the block were overwritten"
_NOTES = "the allocator found its own notes wrong"
# The first pattern that a text begins with counts.
_TEXTS = (
    (r"free\(\): double free detected in tcache", "the same block was freed twice"),
    (r"double free or corruption \(fasttop\)", "the same small block was freed twice in a row"),
    (
        r"double free or corruption \(out\)",
        "the size that is noted beside a block leads out of the heap: it was overwritten, or the block was freed twice",
    ),
    (
        r"double free or corruption",
        "a block was freed twice, or the size that is noted beside it was overwritten",
    ),
    (r"free\(\): invalid pointer", f"free() {_NOT_MALLOCS}"),
    (
        r"free\(\): invalid next size",
        "the size of the block behind the freed one is impossible, or the freed one's own, which leads there, is wrong",
    ),
    (
        r"free\(\): invalid size",
        "the size before the freed block was overwritten, or the address is not the beginning of a block",
    ),
    (r"free\(\): (too many|unaligned) chunks? detected in tcache", _LIST),
    (r"free\(\): corrupted unsorted chunks", _LIST),
    (r"munmap_chunk\(\): invalid pointer", f"free() {_NOT_MALLOCS}"),
    (r"(mremap_chunk|realloc)\(\): invalid pointer", f"realloc() {_NOT_MALLOCS}"),
    (
        r"realloc\(\): invalid (old|next) size",
        "the size of the reallocated block, or of the one behind it, is impossible",
    ),
    (r"corrupted size vs\. prev_size", _COPIES),
    (r"corrupted double-linked list", _LIST),
    (r"malloc\(\): corrupted top size", _TOP),
    (r"malloc\(\): (invalid|mismatching|memory corruption)", _FREE_SIZE),
    (r"malloc\(\): (unaligned|unsorted|corrupted|smallbin|largebin)", _LIST),
    (r"malloc_consolidate\(\): invalid chunk size", "the size of a freed block is impossible"),
    (r"malloc_consolidate\(\):", _LIST),
    (r"tcache_thread_shutdown\(\):", _LIST),
    (r".*malloc assertion failure in sysmalloc:", _TOP),
    (r".*malloc assertion failure in ", _NOTES),
    (r".*malloc\.c:\d+:? \(?sysmalloc\)?: [Aa]ssertion", _TOP),
    (r".*(malloc|arena)\.c:\d+:? .*[Aa]ssertion", _NOTES),
    (r"break adjusted to free malloc space|invalid fastbin entry|top chunk is corrupted", _NOTES),
)
_TABLE = tuple((Pattern(pattern), meaning) for pattern, meaning in _TEXTS)


def explain_text(text: str) -> str | None:
    """The meaning of the C library's message; None if it is not about the heap."""
    return next((meaning for pattern, meaning in _TABLE if pattern.match(text)), None)
