"""What glibc prints when it finds its heap damaged, each text in one sentence (malloc/malloc.c, glibc 2.17 to 2.41)."""

from __future__ import annotations

import re

_AFTER_FREE = "the list of freed blocks was overwritten: a write to memory after it was freed"
_PAST_LAST = "the end of the heap was overwritten: a write past the end of its last block"
_NOT_MALLOCS = "was given an address that malloc() never gave out"
_NOTES = "the allocator found its own notes overwritten"
# The first pattern that a text begins with counts.
_TEXTS = (
    (r"free\(\): double free detected in tcache", "the same block was freed twice"),
    (r"double free or corruption \(fasttop\)", "the same small block was freed twice in a row"),
    (
        r"double free or corruption",
        "a block was freed twice, or the size that is noted beside it was overwritten",
    ),
    (
        r"free\(\): invalid pointer",
        f"free() {_NOT_MALLOCS}, or the bytes before the block were overwritten",
    ),
    (
        r"free\(\): invalid next size",
        "the size of the block behind the freed one was overwritten: a write past the end of a block",
    ),
    (
        r"free\(\): invalid size",
        "the size before the freed block was overwritten, or the address is not the beginning of a block",
    ),
    (r"free\(\): (too many|unaligned) chunks? detected in tcache", _AFTER_FREE),
    (r"free\(\): corrupted unsorted chunks", _AFTER_FREE),
    (r"munmap_chunk\(\): invalid pointer", f"free() {_NOT_MALLOCS}, or one inside a block"),
    (r"(mremap_chunk|realloc)\(\): invalid pointer", f"realloc() {_NOT_MALLOCS}"),
    (
        r"realloc\(\): invalid (old|next) size",
        "the sizes around the reallocated block were overwritten: a write past the end of a block",
    ),
    (
        r"corrupted size vs\. prev_size",
        "two neighbouring blocks disagree about a size: a write past the end of a block",
    ),
    (r"corrupted double-linked list", _AFTER_FREE),
    (r"malloc\(\): corrupted top size", _PAST_LAST),
    (
        r"malloc\(\): (invalid|mismatching)",
        "the size of a free block was overwritten: a write past the end of its neighbour",
    ),
    (r"malloc\(\): (unaligned|unsorted|corrupted|smallbin|largebin|memory corruption)", _AFTER_FREE),
    (
        r"malloc_consolidate\(\):",
        "a freed block was overwritten: a write after it was freed, or past the end of its neighbour",
    ),
    (
        r"tcache_thread_shutdown\(\):",
        _AFTER_FREE,
    ),
    (r".*malloc\.c:\d+:? \(?sysmalloc\)?: [Aa]ssertion", _PAST_LAST),
    (r".*(malloc|arena)\.c:\d+:? .*[Aa]ssertion", _NOTES),
    (r"break adjusted to free malloc space|invalid fastbin entry|top chunk is corrupted", _NOTES),
)
_TABLE = tuple((re.compile(pattern), meaning) for pattern, meaning in _TEXTS)


def explain_text(text: str) -> str | None:
    """The meaning of the C library's message; None if it is not about the heap."""
    return next((meaning for pattern, meaning in _TABLE if pattern.match(text)), None)
