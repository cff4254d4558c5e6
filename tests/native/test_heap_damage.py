"""Which storages the handler finds with the heap behind them, or before them, overwritten."""

from __future__ import annotations

import pytest

from pytracer.decode.types.snapshot import Overrun
from tests.conditions import needs_core
from tests.native.harness import Native

pytestmark = needs_core

# Blocks as torch's CPU allocator asks for them: 60 bytes. malloc() gives 72 or, where a remainder is too small to be a
# block, a few more; the word behind those is the next block's size.
BLOCKS = """
import ctypes, os
libc = ctypes.CDLL(None)
def block(nbytes=60):
    at = ctypes.c_void_p()
    assert libc.posix_memalign(ctypes.byref(at), 64, nbytes) == 0
    t.testing_allocate(U64(at.value), U64(nbytes))
    return at.value
def end(at):
    return libc.malloc_usable_size(ctypes.c_void_p(at))
blocks = sorted(block() for _ in range(8))
"""


def overruns(native: Native, code: str) -> tuple[tuple[Overrun, ...], list[int]]:
    """What was found after an abort, and the blocks in their order."""
    ended = native.child(f"{BLOCKS}\nprint(*blocks, flush=True)\n{code}\nos.abort()")
    box = ended.box
    assert box.crash is not None
    return box.crash.overruns, [int(word) for word in ended.stdout.split()[:8]]


def test_write_past_the_end_names_the_storage_before_it(native: Native) -> None:
    """One of eight, with the word that stands where a size should."""
    found, blocks = overruns(native, "ctypes.memset(blocks[3], 0x3f, end(blocks[3]) + 8)")
    assert [(item.storage.base, item.storage.nbytes, item.before) for item in found] == [(blocks[3], 60, False)]
    assert found[0].word == 0x3F3F3F3F3F3F3F3F
    assert found[0].storage.state == "live"


def test_write_before_the_start_names_the_storage_behind_it(native: Native) -> None:
    """As an index of -1 does; the block before is none of a tensor, or it would be the one that is named."""
    found, _ = overruns(native, "ctypes.memset(block(5000) - 8, 0xff, 8)")
    assert [item.before for item in found] in ([True], [False])  # False where another storage lies right before it
    assert found[0].word == 0xFFFFFFFFFFFFFFFF


@pytest.mark.parametrize(
    "code", ["", "ctypes.memset(blocks[3], 0x3f, end(blocks[3]))"], ids=["untouched", "all of a block"]
)
def test_sound_heap_has_none(native: Native, code: str) -> None:
    """Also where all bytes are used that malloc() gave."""
    assert overruns(native, code)[0] == ()


def test_other_allocators_have_no_such_words(native: Native) -> None:
    """Storages inside of one large block, as an arena has them: nothing is known of what lies between.

    Two of them have a number before them that could be malloc()'s size, by chance.
    """
    found, _ = overruns(
        native,
        """
for at in blocks:
    t.testing_release(U64(at), U64(60))
arena = (ctypes.c_uint64 * 4096)(*range(1 << 44, (1 << 44) + 4096))
first = (ctypes.addressof(arena) + 64) & -64
for number in range(16):
    t.testing_allocate(U64(first + 256 * number), U64(60))
word = lambda at: ctypes.c_uint64.from_address(at)
word(first - 8).value, word(first + 256 - 8).value, word(first + 256 + 72).value = 81, 81, 97
""",
    )
    assert found == ()


def test_freed_last_is_looked_at_when_free_aborts(native: Native) -> None:
    """The end of a storage is recorded before it is freed; malloc() then finds the next block's size overwritten."""
    found, blocks = overruns(
        native,
        """
ctypes.memset(blocks[3], 0x3f, end(blocks[3]) + 8)
t.testing_release(U64(blocks[3]), U64(60))
""",
    )
    assert [(item.storage.base, item.storage.state, item.before) for item in found] == [(blocks[3], "freed", False)]
