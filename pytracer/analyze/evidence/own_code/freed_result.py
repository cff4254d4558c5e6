"""A copy of a text, which a line frees by ctypes: `restype = c_char_p` makes `bytes` of what C returned.

ctypes copies the text and drops its address (CPython, Modules/_ctypes/cfield.c, z_get). What the line passes on is the
address of the characters inside of an object of Python, which malloc() never gave out, and what C had allocated leaks.
`string_at()` copies as well.
"""

from __future__ import annotations

import ast
import re

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.c_text import declared_name, split
from pytracer.analyze.evidence.own_code.own_signature import own_definition
from pytracer.analyze.evidence.own_code.passed_memory import called_by_ctypes
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.makers import makers
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.bindings import each_set
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_COPIED = {"c_char_p": "bytes", "c_wchar_p": "str"}
_READS = {"string_at": "bytes", "wstring_at": "str"}
_AROUND = frozenset({"c_void_p", "c_char_p", "c_wchar_p", "cast"})
# `free`, `word_free`, `releaseString`, `free_text`; `release_notes` may read them.
_VERBS, _NOUNS = (
    r"(?:free|dealloc(?:ate)?|release|destroy|delete|dispose|drop)",
    r"(?:c?str(?:ing)?|c?text|buf(?:fer)?|mem(?:ory)?|ptr|pointer|result|char|block|data)s?",
)
_RELEASES = Pattern(rf"(?:.*[_a-z0-9])?{_VERBS}(?:_?{_NOUNS})?", re.IGNORECASE)
_FREED = r"(?:\bfree\s*\(\s*(?:\([\w\s*]+\)\s*)?|\bdelete\s*(?:\[\s*\])?\s*){}\b"


class FreedResult(msgspec.Struct, frozen=True):
    """`line` passes `name` to `function`, which frees it; it is of type `kind`, a copy that was made at `made`.

    `maker`: the function of C whose result was copied, because of `restype`, which `declared` sets; of string_at()
    there is none, but the `address` that it was given.
    """

    name: str
    function: str
    line: LineWords
    kind: str
    made: LineWords
    maker: str | None
    restype: str | None
    declared: LineWords | None
    address: str | None

    @property
    def summary(self) -> str:
        """Behind the headline."""
        passed = f"`{self.name}`, which {self.line} passes to {self.function}(), is a {self.kind} object of Python"
        if self.maker is None:
            return f"{passed}, a copy that {self.made} makes"
        return (
            f"{passed}: by restype {self.restype} ({self.declared}) ctypes copies the text that {self.maker}() "
            f"({self.made}) returns, and drops its address"
        )

    @property
    def advice(self) -> str:
        """The change to make."""
        if self.maker is None:
            return f"Pass the address itself, `{self.address}`, to {self.function}() at {self.line}, not its copy."
        reads = "string_at" if self.kind == "bytes" else "wstring_at"
        return (
            f"Set restype of {self.maker} to ctypes.c_void_p at {self.declared}, read the text by "
            f"`ctypes.{reads}(address)`, and pass that address to {self.function}() at {self.line}, with argtypes "
            f"[c_void_p]. Without its address, what {self.maker}() allocated is never freed."
        )

    @property
    def places(self) -> tuple[Place, ...]:
        """The lines that declare and make it."""
        found = (self.declared, self.made)
        return tuple((item.file, item.line) for item in found if item is not None and item.line is not None)


def freed_result(view: ProcessView) -> FreedResult | None:
    """None where the line frees nothing by ctypes, or something else than such a copy."""
    frames = program_frames(view)
    back = Slice(view.process.snapshot, frames)
    spot = back.spot(0)
    if spot is None or not called_by_ctypes(view):
        return None
    calls = [item for item in calls_on(spot.tree, spot.line) if called_name(item) not in _AROUND]
    found = [
        result
        for call in calls
        for place, given in enumerate(call.args)
        if (function := _function(back, call, spot)) is not None and _frees(view, function, place)
        if (result := _result(view, back, spot, function, _bare(given))) is not None
    ]
    return found[0] if len(found) == 1 else None


def _function(back: Slice, call: ast.Call, spot: Spot) -> str | None:
    """The function of C that is called: `drop` of `lib.drop(x)`, and of `drop = lib.drop`."""
    made = back.made(call.func, spot, calls=False).node if isinstance(call.func, ast.Name) else call.func
    return made.attr if isinstance(made, ast.Attribute) else None


def _frees(view: ProcessView, function: str, place: int) -> bool:
    """Whether its source frees that argument; of a function whose source is not here, by its name."""
    source = own_definition(view, function)
    if source is None:
        return _RELEASES.fullmatch(function) is not None
    given = split(source.parameters)
    name = declared_name(given[place]) if place < len(given) else ""
    return bool(name) and re.search(_FREED.format(re.escape(name)), source.body) is not None


def _bare(node: ast.expr) -> ast.expr:
    """`text` of `ctypes.c_char_p(text)` and of `cast(text, c_void_p)`."""
    while isinstance(node, ast.Call) and called_name(node) in _AROUND and node.args:
        node = node.args[0]
    return node


def _result(view: ProcessView, back: Slice, spot: Spot, function: str, node: ast.expr) -> FreedResult | None:
    files = program_files(view.process.snapshot, program_frames(view))
    made = makers(files, back, node, spot)
    calls = [item.node for item in made if isinstance(item.node, ast.Call)]
    names = {called_name(item) for item in calls}
    if not calls or len(calls) != len(made) or len(names) != 1:
        return None
    name, call, at = names.pop() or "", calls[0], made[0]
    text, line, where = ast.unparse(node), place_of(view, spot.file, spot.line), _place(view, at)
    if name in _READS and call.args:
        return FreedResult(text, function, line, _READS[name], where, None, None, None, ast.unparse(call.args[0]))
    maker = _function(back, call, at.spot)
    declared = restype_of(files, maker) if maker is not None else None
    kind = _COPIED.get(declared[0]) if declared is not None else None
    if maker is None or declared is None or kind is None:
        return None
    set_at = place_of(view, declared[1], declared[2])
    return FreedResult(text, function, line, kind, where, maker, declared[0], set_at, None)


def _place(view: ProcessView, made: Made) -> LineWords:
    return place_of(view, made.spot.file, made.line)


def restype_of(files: dict[str, ast.Module], function: str) -> tuple[str, str, int] | None:
    """`c_char_p`, and where that is set: `lib.make.restype = c_char_p`; None where it is set otherwise, or twice."""
    found = {
        (ast.unparse(value).rpartition(".")[2], file, node.lineno)
        for file, tree in files.items()
        for node in nodes_of(tree)
        if isinstance(node, ast.Assign)
        for target, value in each_set(node.targets, node.value)
        if isinstance(target, ast.Attribute) and target.attr == "restype" and _is_of(tree, target.value, function)
    }
    return found.pop() if len(found) == 1 else None


def _is_of(tree: ast.Module, node: ast.expr, function: str) -> bool:
    """Of `lib.make`, and of a variable that is `lib.make`."""
    if isinstance(node, ast.Attribute):
        return node.attr == function
    if not isinstance(node, ast.Name):
        return False
    bound = [
        item.value
        for item in nodes_of(tree)
        if isinstance(item, ast.Assign)
        if any(isinstance(target, ast.Name) and target.id == node.id for target in item.targets)
    ]
    return any(isinstance(item, ast.Attribute) and item.attr == function for item in bound)
