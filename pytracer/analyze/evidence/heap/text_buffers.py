"""A buffer of a fixed size into which the program's own C function writes text without being told that size.

`create_string_buffer(64)` for `char *out` of a function that calls sprintf(): longer text goes on behind the buffer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.c_text import split
from pytracer.analyze.evidence.own_code.own_signature import own_definition
from pytracer.analyze.evidence.slicing.bindings import last_binding
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.view import ProcessView

_MAKES = ("create_string_buffer", "create_unicode_buffer", "bytearray")
_HANDS_ON = ("byref", "cast", "c_char_p", "c_void_p", "addressof")
_CHARACTERS = Pattern(r"^(?:unsigned\s+|signed\s+)?char\s*\*\s*(?P<name>\w+)$")
_WRITES = Pattern(r"\b(?P<name>sprintf|vsprintf|strcpy|strcat|stpcpy|gets)\s*\(")


class TextBuffer(msgspec.Struct, frozen=True):
    """`made` (`create_string_buffer(64)`) at `place` is given to `function` at `call`, which writes by `writer`."""

    name: str
    made: str
    place: str
    function: str
    call: str
    defined: str
    writer: str

    @property
    def summary(self) -> str:
        """Behind the headline."""
        return (
            f"likely by {self.function}() ({self.defined}), which writes text by {self.writer}() into `{self.name}` = "
            f"`{self.made}` of {self.place}, whose size it is not told"
        )

    @property
    def advice(self) -> str:
        """The change to make."""
        return (
            f"Make `{self.name}` at {self.place} (`{self.made}`) as large as the longest text of {self.function}(), "
            f"which {self.call} calls; better, pass its size (`len({self.name})`) and let {self.function}() "
            f"({self.defined}) write by snprintf() instead of {self.writer}()."
        )


def text_buffer(view: ProcessView) -> TextBuffer | None:
    """The only such call in the program's files; None without its source."""
    found = [
        item
        for file, tree in program_files(view.process.snapshot, program_frames(view)).items()
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        for item in _buffers(view, file, tree, node)
    ]
    return found[0] if len(found) == 1 else None


def _buffers(view: ProcessView, file: str, tree: ast.Module, call: ast.Call) -> Iterator[TextBuffer]:
    for place, argument in enumerate(call.args):
        handed = isinstance(argument, ast.Call) and called_name(argument) in _HANDS_ON and argument.args
        inner = argument.args[0] if isinstance(argument, ast.Call) and handed else argument
        name = variable(inner)
        bound = last_binding(scope_of(tree, call.lineno), name, call.lineno) if name is not None else None
        made = bound[1] if bound is not None else None
        if bound is None or name is None or not isinstance(made, ast.Call) or called_name(made) not in _MAKES:
            continue
        function = called_name(call) or ""
        found = own_definition(view, function)
        parameters = split(found.parameters) if found is not None else ()
        match = _CHARACTERS.match(parameters[place]) if place < len(parameters) else None
        writer = _WRITES.search(found.body) if found is not None else None
        if found is None or match is None or writer is None:
            continue
        yield TextBuffer(
            name,
            ast.unparse(made),
            place_of(view, file, bound[0]),
            function,
            place_of(view, file, call.lineno),
            found.place,
            writer["name"],
        )
