"""storage-swapped: a tensor was given other memory, and the address of the old one was used.

What: the fault address lies in a storage that was freed by `set_()`, `resize_()`, an assignment to `.data`,
`share_memory_()`, `swap_tensors()`, `Module.to()` and its like, `load_state_dict(assign=True)`, or by pickling its
tensor for another process, which moves it into shared memory.

Why it happens: the tensor is still alive and looks the same, but its memory has been replaced. Code that kept
`data_ptr()`, a NumPy view or a registered buffer has the old address.

What to do: take the address again after every such change, or change the values in place (`copy_()`). A NumPy view that
NumPy itself used, and that a line of the program keeps beside its tensor, is named: make it where it is used, or copy.
A lock that the line which frees the memory is below, and that the thread which used it has not taken, is named.

How it can be wrong: operators that are written in C++ leave no frame of their own, so that they are known by the text
of the line that freed the memory; a line that calls two of them names the first. A change of the file since is noticed
by its time stamp.
"""

from __future__ import annotations

from pytracer.analyze.rules.freed_memory import FreedMemoryRule


class StorageSwapped(FreedMemoryRule):
    """Fires for memory that a tensor exchanged for other memory."""

    id = "storage-swapped"
    kinds = ("swap",)
    absent = "no fault address lay in memory that a tensor had exchanged for other memory"
