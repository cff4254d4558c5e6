"""The result of a search, which the line passes to native code, maybe by way of a function of a library.

`graph.findNode(kind)` of TorchScript gives None where the graph has no such node, and pybind11 makes a null pointer of
None. None is not recorded, and other pointers of the call may have been null: it is said as probable only. Not where
the program tests the variable, or where a tensor or number was recorded for it.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import function_words, shortened
from pytracer.analyze.evidence.lifetime.variables import plain_expression, program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes
from pytracer.analyze.view import ProcessView

_BINDING = "pybind11::cpp_function::"
_SEARCHES = ("find", "search", "lookup")
_QUOTED = 60


class FoundNothing(msgspec.Struct, frozen=True):
    """`name`, which `line` passes, comes from `search`, which `place` calls, for `sought` if that is written there."""

    name: str
    line: int
    search: str
    place: str
    sought: str | None

    @property
    def summary(self) -> str:
        """`` `act`, which line 21 passes, is probably None: `graph.findNode('aten::relu')` at line 20 ... ``."""
        what = f"no {self.sought}" if self.sought is not None else "nothing"
        return (
            f"`{self.name}`, which line {self.line} passes, is probably None: `{self.search}` at {self.place} found "
            f"{what}"
        )

    @property
    def advice(self) -> str:
        """What to test, and what to look at."""
        other = (
            f" Print what was searched: it may have another name or variant of {self.sought}." if self.sought else ""
        )
        return (
            f"Test `{self.name}` for None before line {self.line} passes it: `{self.search}` at {self.place} returns "
            f"None where it finds nothing, and the native function uses the null pointer that it gets for None.{other}"
        )


def found_nothing(view: ProcessView) -> FoundNothing | None:
    """None where no binding was called at a null pointer, or not just one such result is passed."""
    instruction = view.instruction
    if instruction is None or instruction.base is None or instruction.base_value != 0:
        return None
    inner = next(iter(own_frames(view)), None)
    if inner is None or not function_words(inner.function or "").startswith(_BINDING):
        return None  # in a lambda of the binding itself
    back = Slice(view.process.snapshot, program_frames(view))
    spot = back.spot(0)
    calls = calls_on(spot.tree, spot.line) if spot is not None else []
    if spot is None or len(calls) != 1:
        return None
    tested = _tested(spot.scope)
    held = {plain_expression(item.expression) for item in (view.crash.holders if view.crash is not None else ())}
    held |= {item.expression for item in (view.crash.numbers if view.crash is not None else ())}
    found = []
    for item in passed_values(calls[0]):
        if not isinstance(item, ast.Name) or item.id in tested or item.id in held:
            continue
        made = back.made(item, spot, calls=False)
        if isinstance(made.node, ast.Call) and (called_name(made.node) or "").lower().startswith(_SEARCHES):
            place = place_of(view, made.spot.file, made.line)
            text = shortened(ast.unparse(made.node), _QUOTED)
            found.append(FoundNothing(item.id, spot.line, text, place, _sought(made.node)))
    return found[0] if len(found) == 1 else None


def _sought(call: ast.Call) -> str | None:
    """A text that is all or the first of what the search is given."""
    first = next(iter(passed_values(call)), None)
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def _tested(scope: Scope) -> set[str]:
    """Variables in conditions of a function."""
    tests = [item.test for item in own_nodes(scope) if isinstance(item, (ast.If, ast.Assert, ast.While, ast.IfExp))]
    return {node.id for test in tests for node in nodes_of(test) if isinstance(node, ast.Name)}
