"""Vector instructions that need an aligned address: the processor refuses them without a word on the address."""

from __future__ import annotations

import msgspec

from pytracer._text import hex_addr
from pytracer.analyze.evidence.native.fault_function import own_function
from pytracer.analyze.evidence.operators.line_tensors import line_tensors
from pytracer.analyze.evidence.operators.operator import OperatorTensor, shape_words
from pytracer.analyze.evidence.own_code.arrays import array_at, array_words
from pytracer.analyze.evidence.own_code.passed_memory import held_tensor, made_view, pointers
from pytracer.analyze.platform.signals import SI_KERNEL
from pytracer.analyze.view import ProcessView

_STACK, _SMALLEST = ("rsp", "rbp"), 16
_ALIGNED = ("movaps", "movapd", "movdqa", "movntps", "movntpd", "movntdq", "vmovntps", "vmovntpd", "vmovntdq")


def needed_alignment(view: ProcessView) -> int | None:
    """The alignment in bytes that the refused instruction needs and its address has not; None for any other fault."""
    crash, place, instruction = view.crash, view.place, view.instruction
    if crash is None or place is None or instruction is None or crash.code != SI_KERNEL or not instruction.size:
        return None
    name = instruction.text.split(" ", 1)[0]
    aligned = name.removeprefix("v").startswith(_ALIGNED) or name in _ALIGNED
    mapped = place.kind != "non-canonical" and place.addr != 0
    return instruction.size if aligned and mapped and place.addr % instruction.size else None


class Unaligned(msgspec.Struct, frozen=True):
    """`nbytes`: what the address must be a multiple of; `behind`: how far it is from one.

    `what`: `` row 1 of `x` [16, 100] ``; `why`: for the headline; `advice`: what to change.
    """

    nbytes: int
    behind: int
    what: str
    why: str
    advice: str


def unaligned(view: ProcessView, nbytes: int) -> Unaligned:
    """Why the address is none: where the tensor's first element lies, or how far its rows are apart."""
    addr = view.place.addr if view.place is not None else 0
    tensor, function = _tensor_at(view, addr), own_function(view)
    if tensor is None and view.instruction is not None and view.instruction.base in _STACK:
        words = "Look for assembly, or a caller of another ABI, below which the stack pointer is no multiple of 16."
        return _elsewhere(nbytes, addr, f"its stack at {hex_addr(addr)}", words)
    vector = f"_mm{nbytes * 8 if nbytes > _SMALLEST else ''}_loadu_ps"
    use = (
        f"Use unaligned loads and stores in {function.words} ({vector} and the like)" if function is not None else None
    )
    if tensor is not None:
        return _of_tensor(nbytes, addr, tensor, use)
    made = made_view(view, ("later", "stepped"))
    begins = (
        f"{made.fact}: a copy begins at a new block, of malloc() at a multiple of 16, of torch at one of 64."
        if made is not None
        else "A slice, an array over a buffer with an offset, and a block of malloc() may begin at another address."
    )
    array = array_at(view, addr)
    what = f"memory at {hex_addr(addr)}"
    if array is not None:
        what = f"{f'byte {addr - array.data} of ' if addr != array.data else ''}{array_words(array)}"
    return _elsewhere(nbytes, addr, what, f"{use}. {begins}" if use is not None else begins)


def _elsewhere(nbytes: int, addr: int, what: str, advice: str) -> Unaligned:
    return Unaligned(nbytes, addr % nbytes, what, f": it is {addr % nbytes} bytes behind one", advice)


def _of_tensor(nbytes: int, addr: int, tensor: OperatorTensor, use: str | None) -> Unaligned:
    item, name = tensor.item, f"`{tensor.name}`" if tensor.name else "the tensor"
    size = item.element_bytes or 1
    begins = item.base + item.offset * size
    shape = f"{name} {shape_words(item)} {item.dtype}"
    if begins % nbytes:
        at = f"{item.offset * size} bytes into its storage" if item.offset else f"at {hex_addr(begins)}"
        copy = f"{tensor.name}.clone()" if tensor.name else "a clone() of the tensor"
        other = f"ass `{copy}`, which begins at a multiple of 64"
        return _elsewhere(
            nbytes, addr, f"{shape}, which begins {at},", f"{use}, or p{other}." if use is not None else f"P{other}."
        )
    row = next((step * size for step in item.steps[:-1] if step * size % nbytes), None)
    pad = f"ad the rows of {name} to a multiple of {nbytes} bytes"
    if row is None or row <= 0:
        return _elsewhere(nbytes, addr, f"byte {addr - begins} of {shape}", f"{use}." if use else f"P{pad}.")
    return Unaligned(
        nbytes,
        addr % nbytes,
        f"row {(addr - begins) // row} of {shape}",
        f": its rows are {row} bytes apart, which is none",
        f"{use}: rows of {row} bytes do not all begin at a multiple of {nbytes}. Or p{pad}." if use else f"P{pad}.",
    )


def _tensor_at(view: ProcessView, addr: int) -> OperatorTensor | None:
    """The only tensor of the line that has memory there."""
    storage = view.space.live_around(addr)
    if storage is None:
        return None
    of_line = [
        OperatorTensor(item, name, None, passed=True)
        for name, _, _ in pointers(view)
        if (item := held_tensor(view, name)) is not None and item.base == storage.base
    ]
    found = of_line or [item for item in line_tensors(view) if item.item.base == storage.base and item.name]
    shapes = {(item.item.offset, item.item.sizes, item.item.strides) for item in found}
    return found[0] if len(shapes) == 1 else None
