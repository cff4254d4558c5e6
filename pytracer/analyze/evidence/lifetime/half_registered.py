"""Saved tensors that have hooks without data: register_hooks() raised in the pack hook, and the program went on.

torch (SavedVariable::register_hooks) installs the hooks before it calls the pack hook, whose result is the data.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer.analyze.collectives.quiet_handlers import goes_on
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.native.native_stack import functions
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import spans_body
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView

_READS = "PySavedVariableHooks::retrieve_unpack_hook_data"


class HalfRegistered(msgspec.Struct, frozen=True):
    """The call of register_hooks() that may have raised, and the `except` around it."""

    call: LineWords
    handler: LineWords

    @property
    def summary(self) -> str:
        """Behind the headline."""
        return (
            "torch read the data of a saved tensor whose pack hook had raised, likely in register_hooks() at "
            f"{self.call}, which the `except` of {self.handler} catches"
        )


def half_registered(view: ProcessView) -> HalfRegistered | None:
    """The only such call of the program; None where the native function is another one, or none is caught."""
    if not any(_READS in name for name in functions(view)):
        return None
    frames = program_frames(view)
    here = frames[0].file if frames else None
    found = []
    for file, tree in program_files(view.process.snapshot, frames).items():
        tries = [item for item in nodes_of(tree) if isinstance(item, ast.Try)]
        for call in nodes_of(tree):
            if isinstance(call, ast.Call) and called_name(call) == "register_hooks":
                around = [item for item in tries if spans_body(item.body, call.lineno)]
                handlers = [part for item in around for part in item.handlers if goes_on(part)]
                if handlers:
                    found.append((line_in(file, call.lineno, here), line_in(file, handlers[0].lineno, here)))
    return HalfRegistered(*found[0]) if len(found) == 1 else None
