"""stale-grad: the address of a gradient was used after `zero_grad()` had dropped it.

What: the fault address lies in a storage that was freed inside `Optimizer.zero_grad()` or `Module.zero_grad()`, or on
a line of the program that sets `.grad` to None.

Why it happens: since torch 2.0 `zero_grad()` sets `.grad` to None, so that every backward() makes new gradients.
Code that keeps the address of a gradient - a monitor, a communication library, an optimizer - reads released memory.

What to do: take the address after every backward(), or keep the memory with `zero_grad(set_to_none=False)`.

How it can be wrong: the line that freed the memory is known, but not that the address which was used came from `.grad`:
another alias of the same storage is reported in the same way. A line that sets `.grad` to None is known by its text
only; a change of the file since is noticed by its time stamp.
"""

from __future__ import annotations

from pytracer.analyze.rules.freed_memory import FreedMemoryRule


class StaleGrad(FreedMemoryRule):
    """Fires for memory that zero_grad() released."""

    id = "stale-grad"
    kinds = ("zero-grad",)
    absent = "no fault address lay in memory that zero_grad() released"
