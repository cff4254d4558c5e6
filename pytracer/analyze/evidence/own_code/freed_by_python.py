"""A line of Python that frees, by the C library's free(), what a function of the program's own library returned."""

from __future__ import annotations

import ast

import msgspec

from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.freed_pointer import hands_out_inside, release_of
from pytracer.analyze.evidence.own_code.own_signature import own_definition
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.view import ProcessView

_FREES = ("free", "cfree")


class FreedByPython(msgspec.Struct, frozen=True):
    """`line` frees `name`, which `maker`() returned at `place`; its source is at `defined`. `right`: what frees it."""

    line: int
    name: str
    maker: str
    place: str
    defined: str
    right: str

    @property
    def summary(self) -> str:
        """Behind the headline."""
        return (
            f"line {self.line} frees `{self.name}` by free(), which is an address inside of a block: {self.maker}() "
            f"({self.place}, {self.defined}) returned it"
        )

    @property
    def advice(self) -> str:
        """The change to make."""
        return (
            f"Give `{self.name}` back by the library's own {self.right}() at line {self.line}, with argtypes "
            f"[c_void_p], not by free(): {self.maker}() returns an address behind the beginning of its block."
        )


def freed_by_python(view: ProcessView) -> FreedByPython | None:
    """None where the line frees nothing, the source is not known, or it returns what malloc() gave it."""
    frames = program_frames(view)
    back = Slice(view.process.snapshot, frames)
    spot = back.spot(0)
    if spot is None or spot.line is None:
        return None
    calls = [
        node
        for node in nodes_of(spot.tree)
        if isinstance(node, ast.Call) and called_name(node) in _FREES and len(node.args) == 1
        if node.lineno <= spot.line <= (node.end_lineno or 0)
    ]
    if len(calls) != 1 or not isinstance(calls[0].args[0], (ast.Name, ast.Attribute)):
        return None
    made = back.made(calls[0].args[0], spot, calls=False)
    maker = called_name(made.node) if isinstance(made.node, ast.Call) else None
    found = own_definition(view, maker) if maker is not None else None
    right = release_of(found.text, maker) if found is not None and maker is not None else None
    if found is None or maker is None or right is None or not hands_out_inside(found.text, maker):
        return None
    at = place_of(view, made.spot.file, made.node.lineno if isinstance(made.node, ast.Call) else made.spot.line)
    return FreedByPython(spot.line, ast.unparse(calls[0].args[0]), maker, at, found.place, right)
