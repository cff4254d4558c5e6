"""Assertions that failed in a kernel: what the driver printed of them, and what they mean.

CUDA's calls return an error number only. The driver prints the rest, once for each thread of the device, when the host
waits; the recorder keeps the first of it. If a call that does not wait met the error, nothing is printed.
"""

from __future__ import annotations

import os
import re

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.known.device_assertions import Meaning, meaning_of
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.journal import DeviceAssertion
from pytracer.report.job import Evidence

# As libcuda prints it; the function is that of the source, without its arguments.
_LINE = Pattern(
    r"^(?P<file>.*?):(?P<line>\d+): (?:(?P<function>.*?): )?block: \[(?P<block>[\d,-]+)\], "
    r"thread: \[(?P<thread>[\d,-]+)\] Assertion `(?P<condition>.*?)(?:` failed\.?)?\s*$",
    re.DOTALL,
)
# Kernels that call no function with an assertion of its own: theirs have the kernel's name.
_WITH_NAMES = ("vectorized_gather_kernel", "indexSelect", "EmbeddingBag_updateOutputKernel")
_NAMELESS = ("operator()", "unknown", "")  # a lambda's, Triton's


class KernelAssertion(msgspec.Struct, frozen=True):
    """One that failed. `function`: as the compiler names it, `operator()` for a lambda's."""

    text: str
    file: str
    line: int
    function: str
    condition: str
    block: str
    thread: str
    meaning: Meaning | None

    @property
    def kernel(self) -> str | None:
        """The function with the assertion, if it has a name: the kernel, or what was inlined into it."""
        return None if self.function in _NAMELESS else self.function

    @property
    def is_python(self) -> bool:
        """Whether the kernel was compiled from Python source: Triton's, inductor's."""
        return self.file.endswith(".py")

    @property
    def place(self) -> str:
        """`Loss.cu:245`."""
        return f"{os.path.basename(self.file)}:{self.line}"

    @property
    def words(self) -> str:
        """`a target is no class (`t >= 0 && t < n_classes` in nll_loss_forward)`."""
        condition = f"`{self.condition}` in {self.kernel or self.place}"
        return f"{self.meaning.what} ({condition})" if self.meaning else condition

    def may_be_of(self, operator: str, kernel: str | None) -> bool:
        """Whether an operator may have it, of which this kernel is known: not in the other pass, nor in another kernel.

        A kernel such as nll_loss_forward is of the forward pass.
        """
        name = (kernel or "").partition("<")[0].rpartition("::")[2]
        if any(name.startswith(item) and not self.function.startswith(item) for item in _WITH_NAMES):
            return False
        if "forward" in self.function:
            return "backward" not in operator
        return "backward" in operator or "backward" not in self.function


def kernel_assertion(view: ProcessView) -> KernelAssertion | None:
    """The first that failed in a process, whose words were recorded."""
    for fact in view.process.snapshot.recorded(DeviceAssertion):
        found = parse_assertion(fact.data.text)
        if found is not None:
            return found
    return None


def parse_assertion(text: str) -> KernelAssertion | None:
    """Of one line of the driver; None if it has other words."""
    match = _LINE.match(text)
    if match is None:
        return None
    function = (match["function"] or "").strip()
    return KernelAssertion(
        text.strip(),
        match["file"],
        int(match["line"]),
        function,
        match["condition"],
        match["block"],
        match["thread"],
        meaning_of(match["file"], function, match["condition"]),
    )


def assertion_evidence(found: KernelAssertion | None) -> Evidence | None:
    """The driver's words, with the first thread of the device that failed."""
    if found is None:
        return None
    where = f"block {_place(found.block)}, thread {_place(found.thread)}"
    inside = f" in {found.kernel}" if found.kernel else ""
    return Evidence(
        "printed",
        f"the driver printed: assertion `{found.condition}` failed{inside} at {found.place}, first in {where}",
        function=found.kernel,
        path=found.file,
        text=found.text,
    )


def _place(numbers: str) -> str:
    """`(3, 0, 0)`."""
    return f"({', '.join(numbers.split(','))})"
