"""A callback of ctypes that an earlier line gave to C, and that nothing keeps: it is freed when that call returns."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.view import ProcessView

_PROTOTYPES = ("CFUNCTYPE", "PYFUNCTYPE", "WINFUNCTYPE")
_QUOTED = 44


@dataclass(frozen=True)
class DroppedCallback:
    """`text`: `LIKELIHOOD(loglike)`, of `line`."""

    text: str
    line: int

    @property
    def advice(self) -> str:
        """The change to make."""
        return (
            f"Keep the `{self.text}` of line {self.line} in a variable or attribute for as long as C may call it: it "
            "owns the code that C calls, and is freed when the call of that line returns, unless it is held."
        )


def dropped_callback(view: ProcessView) -> DroppedCallback | None:
    """Of the file of the failing line; not of that line itself, whose call has not returned."""
    frames = program_frames(view)
    spot = Slice(view.process.snapshot, frames).spot(0)
    if spot is None:
        return None
    nodes = [*ast.walk(spot.tree)]
    types = {
        name
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and called_name(node.value) in _PROTOTYPES
        for target in node.targets
        if (name := variable(target)) is not None
    }
    here = {frame.line for frame in frames if frame.file == spot.file}
    for node in nodes:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.lineno in here:
            continue
        if ast.unparse(node.func.value) == "self":
            continue  # a method may keep it
        made = [item for item in node.args if isinstance(item, ast.Call) and ast.unparse(item.func) in types]
        if made:
            return DroppedCallback(shortened(ast.unparse(made[0]), _QUOTED), node.lineno)
    return None
