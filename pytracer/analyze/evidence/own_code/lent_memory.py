"""Memory of an array that ended, in C that ctypes called: its address alone was in what the failing line passes.

By the program's source; what was recorded says which address it was: a field of the structure that a register points
at, or an attribute's number, which the line passes, leads to the memory that is gone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from pytracer._text import hex_addr
from pytracer.analyze.address_space.referrers import data_registers
from pytracer.analyze.evidence.lifetime.ended_owner import EndedOwner, ended_given
from pytracer.analyze.evidence.lifetime.unmapping import unmapping_of
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.native.native_stack import memory_word
from pytracer.analyze.evidence.own_code.passed_memory import called_by_ctypes
from pytracer.analyze.evidence.own_code.struct_fields import Field, Structure, ctypes_structures
from pytracer.analyze.evidence.slicing.callers import only_function
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.given_memory import Search
from pytracer.analyze.evidence.slicing.lent_addresses import Lent, LentAddresses
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import parameters, scope_of
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence


class LentMemory(msgspec.Struct, frozen=True):
    """`ended`, whose address is all that `holder` (`` `rows` of Job ``) has; None where the line passes that itself.

    `proof`: where the address was found. `alone`: whether nothing else is seen to be put there.
    """

    ended: EndedOwner
    holder: str | None
    proof: Evidence | None
    alone: bool


class _Found(msgspec.Struct, frozen=True):
    lent: Lent
    ended: EndedOwner | None
    structure: Structure | None
    field: Field | None

    @property
    def holder(self) -> str | None:
        """`` `rows` of Job ``."""
        if self.lent.holder is not None:
            return f"`{self.lent.holder}`"
        return f"`{self.field.name}` of {self.structure.name}" if self.field and self.structure else None


def lent_memory(view: ProcessView, *, proven: bool) -> LentMemory | None:
    """The only one that ended; None where C was not called by ctypes, or what the line passes may be alive.

    `proven`: only where the address was found in what the line passes; else only where it was not.
    """
    place = view.place
    if place is None or place.kind != "unmapped" or not called_by_ctypes(view) or unmapping_of(view) is not None:
        return None
    found = [*_found(view)]
    known = [(item, proof) for item in found if (proof := _proof(view, item)) is not None]
    if known:
        names = {item.holder for item, _ in known}
        ended = {
            str(item.ended.made) + item.ended.owner: (item, proof) for item, proof in known if item.ended is not None
        }
        if not proven or len(names) != 1 or len(ended) != 1:
            return None
        item, proof = next(iter(ended.values()))
        alone = all(other.ended is not None for other, _ in known)
        return LentMemory(item.ended, item.holder, proof, alone) if item.ended is not None else None
    over = {str(item.ended.made) + item.ended.owner: item for item in found if item.ended is not None}
    one = next(iter(over.values())) if len(over) == 1 and not proven else None
    return LentMemory(one.ended, one.holder, None, alone=False) if one is not None and one.ended is not None else None


def _found(view: ProcessView) -> Iterator[_Found]:
    frame = next(iter(program_frames(view)), None)
    files = program_files(view.process.snapshot, program_frames(view))
    tree = files.get(frame.file) if frame is not None and frame.file is not None else None
    if frame is None or tree is None or frame.line is None:
        return
    structures = {
        item.name: item
        for source in files.values()
        for node, item in ctypes_structures(source)
        if not any(getattr(part, "name", None) == "__init__" for part in node.body)
    }
    spot, search = Spot(frame.file, tree, scope_of(tree, frame.line), frame.line), Search(files)
    addresses = LentAddresses(search, structures)
    outer = next(
        (call for call in calls_on(tree, frame.line) if only_function(files, called_name(call) or "") is None), None
    )
    values = passed_values(outer) if outer is not None else []
    for lent in [item for value in values for item in addresses.of(value, spot)]:
        structure = structures.get(lent.owner or "")
        field = _field(structure, lent.field)
        attribute = field.name if field is not None else (lent.holder or "").removeprefix("self.")
        other = bool(attribute) and _is_set_elsewhere(files, attribute, addresses.followed, own=field is None)
        ended = ended_given(view, Search(files), lent.memory) if not other else None
        yield _Found(lent, ended, structure, field)


def _is_set_elsewhere(files: Mapping[str, ast.Module], attribute: str, followed: set[int], *, own: bool) -> bool:
    """Whether a line that was not followed may set it, such as a helper that is given the structure.

    `own`: it is an attribute of `self`, which any line may set from outside; else a field of a structure.
    """
    for tree in files.values():
        for node in (item for item in nodes_of(tree) if isinstance(item, ast.Assign)):
            if isinstance(node.value, ast.Constant) or id(node.value) in followed:
                continue
            for target in node.targets:
                if not isinstance(target, ast.Attribute) or target.attr != attribute:
                    continue
                name = target.value.id if isinstance(target.value, ast.Name) else None
                if name != "self" and (own or name is None or name in parameters(scope_of(tree, node.lineno))):
                    return True
    return False


def _field(structure: Structure | None, field: str | int | None) -> Field | None:
    if structure is None or field is None:
        return None
    if isinstance(field, int):
        return structure.fields[field] if field < len(structure.fields) else None
    return next((item for item in structure.fields if item.name == field), None)


def _proof(view: ProcessView, found: _Found) -> Evidence | None:
    """Where the address was, as far as that was recorded."""
    crash, frame = view.crash, next(iter(program_frames(view)), None)
    if crash is None or frame is None:
        return None
    if found.lent.holder is not None:
        for number in crash.numbers:
            same = number.expression == found.lent.holder and number.frame.line == frame.line
            if same and number.frame.file == frame.file and _leads(view, number.value):
                words = f"{number.expression} was {hex_addr(number.value)}"
                return Evidence("register-value", words, addr=hex_addr(number.value))
    field = found.field
    if field is None or found.structure is None:
        return None
    for register, value in data_registers(crash).items():
        word = memory_word(crash, value + field.offset)
        if word is not None and _leads(view, word):
            words = f"{register} points at a {found.structure.name}, whose `{field.name}` was {hex_addr(word)}"
            return Evidence("register-value", words, register=register, addr=hex_addr(word))
    return None


def _leads(view: ProcessView, addr: int) -> bool:
    """Whether it is that of the memory that is gone: nothing is mapped from there to the fault."""
    place, crash = view.place, view.crash
    if place is None or crash is None or not 0 < addr <= place.addr:
        return False
    return not any(item.start <= place.addr and addr < item.end for item in crash.mappings)
