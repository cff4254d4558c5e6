"""An address that the running call was given of a tensor that the program's own variables of that function do not hold.

`pointer = self.state["weights"].data_ptr()`: another thread may put another tensor there while native code reads.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.view import ProcessView

_TAKES = ("data_ptr", "untyped_storage")
_QUOTED = 44


class UnheldAddress(msgspec.Struct, frozen=True):
    """`owner` (`self.state["weights"]`), whose address `line` takes; `used`: the line of the call."""

    owner: str
    line: int
    used: int

    @property
    def advice(self) -> str:
        """The change to make."""
        return (
            f"Hold the tensor while native code reads it: `held = {self.owner}` before line {self.line} takes its "
            f"address (held.data_ptr()), until the call of line {self.used} has returned. Another thread may replace "
            f"`{self.owner}` meanwhile."
        )


def unheld_address(view: ProcessView) -> UnheldAddress | None:
    """Of the failing line; None where it passes no address of an attribute or element, or of several."""
    back = Slice(view.process.snapshot, program_frames(view))
    spot = back.spot(0)
    if spot is None:
        return None
    found = {}
    for argument in (item for call in calls_on(spot.tree, spot.line) for item in call.args):
        made = back.made(argument, spot, calls=False)
        node = made.node
        if not isinstance(node, ast.Call) or called_name(node) not in _TAKES or made.spot.scope is not spot.scope:
            continue
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if isinstance(owner, (ast.Attribute, ast.Subscript)):
            text = shortened(ast.unparse(owner), _QUOTED)
            found[text] = UnheldAddress(text, node.lineno, spot.line)
    return next(iter(found.values())) if len(found) == 1 else None
