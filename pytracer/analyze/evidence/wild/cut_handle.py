"""An address that C returned, and that ctypes cut to 32 bits: the function's `restype` was not set.

The program holds the number - in a variable or an attribute - and passes it on; the register that C used as a pointer
has the same 32 bits.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from pytracer.analyze.address_space.referrers import STATE_REGISTERS
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.own_code.passed_memory import called_by_ctypes
from pytracer.analyze.evidence.own_code.unset_restype import UnsetRestype, may_set, unset_restype
from pytracer.analyze.evidence.phrases import access_verb
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.makers import makers
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.calls import calls_on, passed_values
from pytracer.analyze.evidence.syntax.lines import names_of_line
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.wild.address import address_words
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.evidence.wild.truncated_address import HALF, NEAR_BYTES, is_half
from pytracer.analyze.platform.instruction import signed
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence


@dataclass(frozen=True)
class CutHandle(Explanation):
    """`name` held `value`, and register `held_in` had it as a pointer; `returned`: what returned it, if known.

    `declared`: whether a line may set the argtypes of the function that it is passed to.
    """

    name: str
    value: int
    held_in: str
    returned: UnsetRestype | None
    declared: bool = False

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def access(self, view: ProcessView) -> str | None:
        """See Explanation."""
        return f"{access_verb(view)} memory through a wild pointer, {address_words(view)},"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        used = f": the number {self.value} of `{self.name}` was used as a pointer"
        if self.returned is None:
            return f"{used}, which has 64 bits"
        return f"{used}, the lower 32 bits of {self.returned.source}"

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        line = line_words(view)
        if self.returned is not None:
            passed = (
                " An int is passed in 32 bits, too: wrap the result in ctypes.c_void_p(...) where it is made, or set "
                f"the argtypes of every function that takes `{self.name}`."
            )
            return (
                f"{self.returned.repair}: without it ctypes takes what the function returns for a C int, and keeps 32 "
                f"bits of the address, {self.value}, which {line} passes.{'' if self.declared else passed}"
            )
        return (
            f"Look where `{self.name}`, which {line} passes, was made: where a C function returned it, set its restype "
            "to ctypes.c_void_p, else ctypes keeps 32 bits of an address. So it is with argtypes where it is passed."
        )


def cut_handle(view: ProcessView) -> CutHandle | None:
    """None where no register near the fault address has a number of 32 bits that the line passes by ctypes."""
    crash, place, frame = view.crash, view.place, next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if crash is None or place is None or tree is None or frame is None or frame.line is None:
        return None
    if not called_by_ctypes(view):
        return None
    names = names_of_line(tree, frame.line)
    held = {
        item.value % HALF: item
        for item in crash.numbers
        if item.expression in names and is_half(item.value)
        if (item.frame.file, item.frame.line) == (frame.file, frame.line)
    }
    for register, value in crash.registers.items():
        found = held.get(value % HALF)
        near = register not in STATE_REGISTERS and abs(signed(place.addr - value)) < NEAR_BYTES
        if found is not None and near and is_half(value):
            made = _made(view, tree, frame.line, found.expression)
            called = made.node if made is not None and isinstance(made.node, ast.Call) else None
            if made is None or called is None or not isinstance(called.func, ast.Attribute):
                return CutHandle(found.expression, found.value, register, None)
            files = program_files(view.process.snapshot, program_frames(view))
            returned = unset_restype(view, files, made.spot.file, called, frame.file)
            if returned is None:
                return None
            declared = _is_declared(files, tree, frame.line, found.expression)
            return CutHandle(found.expression, found.value, register, returned, declared)
    return None


def _made(view: ProcessView, tree: ast.Module, line: int, name: str) -> Made | None:
    frames = program_frames(view)
    search, files = Slice(view.process.snapshot, frames), program_files(view.process.snapshot, frames)
    spot = search.spot(0)
    for node in nodes_of(tree):
        if variable(node) == name and getattr(node, "lineno", 0) == line and isinstance(node, ast.expr) and spot:
            found = makers(files, search, node, spot)
            return found[0] if len(found) == 1 else None
    return None


def _is_declared(files: dict[str, ast.Module], tree: ast.Module, line: int, name: str) -> bool:
    """Whether a line may set the argtypes of what is given the number."""
    given = [item for item in calls_on(tree, line) if any(variable(part) == name for part in passed_values(item))]
    functions = [item.func.attr for item in given if isinstance(item.func, ast.Attribute)]
    return bool(functions) and all(may_set(files, item, "argtypes") for item in functions)
