"""The text of bytes, "b'...'", which the program's own C was given for the bytes themselves.

`{"counts": str(rle["counts"])}` is no text of the same letters: str() of bytes adds a prefix and quotes, and doubles
backslashes. What decodes lengths from it finds other ones. Back from the line by the source, to the key below which
the program put the text; that it was passed is proven only where memory shows it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.c_text import declared_name, split
from pytracer.analyze.evidence.own_code.own_libraries import own_libraries
from pytracer.analyze.evidence.own_code.own_signature import CalledDefinition, called_definition, own_definition
from pytracer.analyze.evidence.own_code.passed_memory import called_by_ctypes
from pytracer.analyze.evidence.slicing.bytes_values import Files, is_bytes, key_of, shown_bytes, stored
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import is_parameter, scope_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence

_TEXT = Pattern(r"\bchar\s*(?:const\s*)?(?:\*|\w+\s*\[)")
_SHOWN = (b"b'", b'b"')
_SAME = ("encode", "bytes", "c_char_p", "create_string_buffer", "str", "strip")
_QUOTED, _HOPS, _LEAST = 50, 12, 8
_Value = tuple[ast.AST, Spot]


class TextOfBytes(msgspec.Struct, frozen=True):
    """`made` makes the text `text` of the bytes `of`; the line passes it to `function` as `given`.

    `register`: which pointed at such a text, `content`; None where memory does not show that it was one.
    """

    given: str
    function: str
    made: LineWords
    text: str
    of: str
    key: str | None
    register: str | None
    content: str = ""

    @property
    def summary(self) -> str:
        """Behind the headline."""
        if self.register is not None:
            return f'`{self.given}` is the text of bytes, "{self.content}", which {self.made} makes by `{self.text}`'
        return f"`{self.given}` may be the text of bytes, \"b'...'\", which {self.made} makes by `{self.text}`"

    @property
    def evidence(self) -> Evidence | None:
        """What memory has."""
        if self.register is None:
            return None
        sentence = f"{self.register} points at the text {self.content}, as str() shows bytes"
        return Evidence("source-line", sentence, register=self.register, text=self.content)

    @property
    def advice(self) -> str:
        """The change to make."""
        below = f', below "{self.key}"' if self.key is not None else ""
        put = f"ut `{self.of}.decode()` in place of `{self.text}` at {self.made}{below}"
        see = f"See whether `{self.given}` begins with b' before it is passed. If it does, p"
        return (
            f"{'P' if self.register is not None else see}{put}: str() of bytes gives a prefix and quotes, \"b'...'\", "
            f"and doubled backslashes, which {self.function}() takes for data. What was saved so has to be written "
            "again, or read by ast.literal_eval(). Let the C code check what it decodes against the room that it has "
            "before it writes."
        )


def text_of_bytes(view: ProcessView) -> TextOfBytes | None:
    """Of a `char *` of the function that the line calls; None where no line is known to make such a text.

    Where the process died later, of a damaged heap, of the only call that gives the program's library memory.
    """
    called = called_definition(view) if called_by_ctypes(view) else _only_called(view)
    if called is None or any(isinstance(item, ast.Starred) for item in called.call.args):
        return None
    frames = program_frames(view)
    files, back = program_files(view.process.snapshot, frames), Slice(view.process.snapshot, frames)
    for given, declared in zip(called.call.args, split(called.found.parameters), strict=False):
        if not _TEXT.search(declared):
            continue
        for text, spot, key in _texts(back, files, given, called.spot):
            of = shown_bytes(text)
            if of is not None and is_bytes(back, files, of, spot):
                return TextOfBytes(
                    shortened(ast.unparse(given), _QUOTED),
                    called_name(called.call) or declared_name(declared),
                    place_of(view, spot.file, text.lineno),
                    shortened(ast.unparse(text), _QUOTED),
                    shortened(ast.unparse(of), _QUOTED),
                    key,
                    *_in_memory(view),
                )
    return None


def _only_called(view: ProcessView) -> CalledDefinition | None:
    libraries = own_libraries(view)
    call = libraries.only_call if libraries is not None else None
    tree = syntax_tree(view.process.snapshot, call.at) if call is not None else None
    found = own_definition(view, call.function) if call is not None and tree is not None else None
    if call is None or tree is None or found is None or call.at.line is None:
        return None
    spot = Spot(call.at.file, tree, scope_of(tree, call.at.line), call.at.line)
    depth = next((n for n, frame in enumerate(program_frames(view)) if spot.is_of(frame)), None)
    calls = [item for item in calls_on(tree, call.at.line) if call.is_made_by(item)]
    return CalledDefinition(calls[0], structs.replace(spot, depth=depth), found) if len(calls) == 1 else None


def _texts(back: Slice, files: Files, node: ast.AST, spot: Spot) -> Iterator[tuple[ast.expr, Spot, str | None]]:
    """Expressions that may have made a value: those on its way, and what is put below the key that it is read from."""
    waiting: list[_Value] = [(node, spot)]
    seen: set[int] = set()
    while waiting and len(seen) < _HOPS:
        node, spot = waiting.pop(0)
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, ast.expr):
            yield node, spot, None
        key = key_of(node)
        if key is not None:
            yield from ((value, at, key) for value, at in stored(files, key))
        waiting += _before(back, node, spot)


def _before(back: Slice, node: ast.AST, spot: Spot) -> Iterator[_Value]:
    """What a value was, before it was encoded, and what a variable may have been given."""
    if isinstance(node, ast.Call) and called_name(node) in _SAME:
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if called_name(node) in ("encode", "strip") and owner is not None:
            yield owner, spot
        elif node.args:
            yield node.args[0], spot
    elif isinstance(node, ast.IfExp):
        yield from ((node.body, spot), (node.orelse, spot))
    elif isinstance(node, ast.Name):
        bound = lines_that_bind(spot.scope, node.id)
        if any(value is not None and _takes_apart(value) for _, value in bound):
            return
        yield from ((value, spot) for _, value in bound if value is not None)
        passed = back.argument(node.id, spot) if not bound and is_parameter(spot.scope, node.id) else None
        if passed is not None:
            yield passed


def _takes_apart(value: ast.AST) -> bool:
    """Whether it makes the bytes of such a text again: `literal_eval(x)`, `x[2:-1]`."""
    for item in nodes_of(value):
        if isinstance(item, ast.Call) and called_name(item) in ("literal_eval", "eval", "removeprefix", "removesuffix"):
            return True
        if isinstance(item, ast.Subscript) and isinstance(item.slice, ast.Slice):
            return True
    return False


def _in_memory(view: ProcessView) -> tuple[str | None, str]:
    """The register that points at the text of bytes, and how that begins."""
    for block in view.crash.memory if view.crash is not None else ():
        text = block.content[max(block.value - block.addr, 0) :]
        end = next((at for at, letter in enumerate(text) if not 32 <= letter < 127), len(text))
        if text.startswith(_SHOWN) and end >= _LEAST:
            return block.register, f"{text[:_LEAST].decode('ascii')}..."
    return None, ""
