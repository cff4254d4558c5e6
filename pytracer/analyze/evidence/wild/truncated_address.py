"""The address of a tensor that lost its upper 32 bits: passed as a C int, such as by ctypes without argtypes."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from pytracer._text import hex_addr, size_words
from pytracer.analyze.address_space.referrers import STATE_REGISTERS
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames, variable_of
from pytracer.analyze.evidence.native.fault_function import own_function
from pytracer.analyze.evidence.own_code.own_signature import argtypes, signature
from pytracer.analyze.evidence.own_code.passed_memory import called_by_ctypes
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.platform.instruction import signed
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Storage
from pytracer.report.job import Confidence, Evidence

HALF = 1 << 32
_LEAST = 1 << 20  # below, a number may be anything
NEAR_BYTES = 4096  # where a function begins to read


@dataclass(frozen=True)
class TruncatedAddress(Explanation):
    """The register `held_in` had `value`: the lower half of `addr`, with or without its sign.

    `addr`: where `storage` begins, or a tensor with `elements` in it that is a view.
    """

    held_in: str
    value: int
    storage: Storage
    addr: int
    elements: int | None = None

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        name = variable_of(view, self.storage.base, self.elements) or f"a tensor of {size_words(self.storage.nbytes)}"
        return f": the lower 32 bits of the address of {name}"

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        own = Evidence(
            "register-value",
            f"{self.held_in} held {hex_addr(self.value)}, the lower 32 bits of {hex_addr(self.addr)}, where "
            + (
                f"a storage of {size_words(self.storage.nbytes)} begins"
                if self.addr == self.storage.base
                else f"a tensor begins, in a storage of {size_words(self.storage.nbytes)}"
            ),
            register=self.held_in,
            addr=hex_addr(self.value),
            base=hex_addr(self.storage.base),
            nbytes=self.storage.nbytes,
        )
        return (own, address)

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        own = _of_call(view)
        if own is not None:
            return own
        return (
            f"Pass the address in 64 bits at {line_words(view)}: ctypes converts a Python int to a C int unless the "
            "function's argtypes (and restype) are set; wrap it in ctypes.c_void_p(...). In C, an int or a missing "
            "prototype does the same."
        )


def truncated_address(view: ProcessView) -> TruncatedAddress | None:
    """None where no register near the fault address holds half of a live storage's address."""
    crash, place = view.crash, view.place
    if crash is None or place is None or not is_half(place.addr):
        return None
    near = {
        value % HALF: (name, value)
        for name, value in crash.registers.items()
        if name not in STATE_REGISTERS and is_half(value) and abs(signed(place.addr - value)) < NEAR_BYTES
    }
    if not near:
        return None
    for storage in view.process.snapshot.storages.by_size():
        if storage.state == "live" and storage.base >= HALF and (found := near.get(storage.base % HALF)) is not None:
            return TruncatedAddress(*found, storage, storage.base)
    for tensor in crash.arguments:
        addr = tensor.data
        held = view.space.live_around(addr) if addr is not None and addr >= HALF else None
        if held is not None and addr is not None and (found := near.get(addr % HALF)) is not None:
            return TruncatedAddress(*found, held, addr, tensor.elements)
    return None


def _of_call(view: ProcessView) -> str | None:
    """Of the ctypes call of the line, by its name: what to write there, and which argtypes by the function's source."""
    function, frame = own_function(view), next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if function is None or tree is None or frame is None or frame.line is None or not called_by_ctypes(view):
        return None
    name = function.name.rpartition("::")[2]
    calls = [node for node in calls_on(tree, frame.line) if called_name(node) == name]
    if len(calls) != 1 or not isinstance(calls[0].func, ast.Attribute):
        return None
    bare = [ast.unparse(item) for item in calls[0].args if _is_bare(item)]
    files = program_files(view.process.snapshot, [frame]).values()
    if not bare or any(_sets_argtypes(node, name) for item in files for node in nodes_of(item)):
        return None
    taken = signature(view, name)
    types = argtypes(taken) if taken is not None and len(taken) == len(calls[0].args) else None
    wrapped = f"`ctypes.c_void_p({bare[0]})`"
    return (
        f"Set `{ast.unparse(calls[0].func)}.argtypes = {types or '[ctypes.c_void_p, ...]'}` where the library is "
        f"loaded, or pass {wrapped} at line {frame.line}: without argtypes ctypes passes a Python int, such as "
        f"`{bare[0]}`, as a C int of 32 bits. Sizes of more than 32 bits need the same."
    )


def _is_bare(node: ast.expr) -> bool:
    """`x.data_ptr()` or `x.ctypes.data`, or a sum with one, without a type of ctypes around it."""
    if isinstance(node, ast.BinOp):
        return _is_bare(node.left) or _is_bare(node.right)
    if isinstance(node, ast.Call):
        return called_name(node) == "data_ptr"
    return isinstance(node, ast.Attribute) and ast.unparse(node).endswith(".ctypes.data")


def _sets_argtypes(node: ast.AST, name: str) -> bool:
    """Whether it may be this function's: of `getattr(lib, name).argtypes` that is not known."""
    if not isinstance(node, ast.Attribute) or node.attr != "argtypes":
        return False
    return not isinstance(node.value, ast.Attribute) or node.value.attr == name


def is_half(value: int) -> bool:
    """Whether a number fits into 32 bits, or is negative and does."""
    number = signed(value % (1 << 64))
    return abs(number) >= _LEAST and -(HALF >> 1) <= number < HALF
