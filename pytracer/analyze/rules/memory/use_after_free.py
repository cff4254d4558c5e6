"""use-after-free: memory of a storage was used after the storage had been released.

What: the fault address is in a storage that was freed, and in no live one; the memory has been released to the
system, so that the access faulted.

Why it happens: native code, or a NumPy or ctypes view, kept an address without keeping the tensor. DDP's gradient
buckets are a trap of this kind: DDP rebuilds them once, at the start of the second forward, and releases the first
ones. FSDP releases the full parameters of a unit by resizing their storage to zero when it reshards. And a collective
with `async_op=True` works on its tensors until `wait()` returns, whatever happens to their memory. So does a thread
that saves a checkpoint, such as that of torch.distributed.checkpoint.async_save() if its stager copies nothing. A
function that returns only the address of a tensor of its own leaves its caller with that of freed memory.

What to do: keep a reference to the tensor for as long as its memory is used, or take the address again each time.

How it can be wrong: memory that something else mapped into the hole and unmapped again would be blamed on the storage
that was there before. Where part of it is still mapped anew, and nothing held the storage's address, it is likely
only: what lies there now may be what the access was counted from; where a register has the first byte of an array that
lies there, or the instruction adds an index to a pointer into it, it is `out-of-bounds`. An access that was counted
from a live storage may end in a freed one: where a pointer into a live storage was held and the address of the freed
one was not, it is likely only; where rows of the live one lead exactly there, or native code that counts an expanded
tensor's elements in a row comes by, it is `out-of-bounds`. Small storages are usually not unmapped when freed, so a
use of them after free reads silently. Both ends below `--guard`, where a freed storage stays inaccessible and its
memory is used by nothing else. The reason is that of the last owner: a pointer may be older. A tensor that is
overwritten while a thread saves it is no fault at all, and nothing sees it: the file has old and new values.
"""

from __future__ import annotations

from pytracer.analyze.rules.freed_memory import FreedMemoryRule


class UseAfterFree(FreedMemoryRule):
    """Fires when the last storage around the address was freed; not where `stale-grad` or `storage-swapped` do."""

    id = "use-after-free"
    kinds = (None, "ddp-rebuild", "fsdp-reshard", "collective")
    absent = "no fault address lay in a freed storage that is still remembered"
