"""A native object that another one keeps a pointer to, and that its owner in Python freed when that was collected.

`self.handle = lib.ivf_new(quantizer.handle)` keeps the address alone. Where nothing holds `quantizer`, its `__del__`
frees the native object as soon as the function that made it returns, and the next call through `self.handle` uses freed
memory. By the program's source; the native function may use its argument during the call only, unless its own source is
known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.own_code.c_text import closing, declared_name, split
from pytracer.analyze.evidence.own_code.handles import DEL, releases
from pytracer.analyze.evidence.own_code.native_calls import native_calls
from pytracer.analyze.evidence.own_code.object_owners import Owned, Owners
from pytracer.analyze.evidence.own_code.own_libraries import allocating_frames
from pytracer.analyze.evidence.own_code.own_signature import own_definition
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.bindings import each_set, lines_that_bind
from pytracer.analyze.evidence.syntax.calls import LIBRARY_LOADERS, called_name, calls_on, passed_values
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, class_named, is_method, scope_of, spans
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_QUOTED = 44
_SETS = r"(?P<field>[\w.>-]+(?:->|\.)\w+)\s*=\s*(?:\([^()]*\)\s*)?{}(?:(?:->|\.)(?P<part>\w+))?\s*[;,]"
# It counts its users, or is copied.
_SHARES = Pattern(
    r"retain|inc_?ref|add_?ref|ref_?c(?:oun)?t|refs?\b|shared_ptr|\b\w*(?:copy|clone|dup)\w*\s*\(", re.IGNORECASE
)


class DroppedHandle(msgspec.Struct, frozen=True):
    """`what` (`` `quantizer` (IndexFlat, made at line 88) ``) ended, as `ended` has it; `freed`: what freed its object.

    `native` of `line` had given the address to what `kept_in` (a field in C) or the native object keeps. `advice`: the
    change to make.
    """

    what: LineWords
    ended: str
    freed: LineWords
    native: str
    line: LineWords
    kept_in: str | None
    advice: str

    @property
    def fact(self) -> str:
        """What the program does."""
        keeps = f"{self.native}() of {self.line} keeps"
        keeps += f" in `{self.kept_in}`" if self.kept_in is not None else ""
        return f"{self.what} {self.ended}, and {self.freed} freed what {keeps}"

    @property
    def summary(self) -> str:
        """Behind the headline, of a call that used it."""
        return f"probably {self.fact}"


def dropped_handle(view: ProcessView, *, anywhere: bool = False) -> DroppedHandle | None:
    """None unless the failing line calls native code through an object that was given such an address.

    `anywhere`: also where another line of the program may have done so before.
    """
    frames = program_frames(view) or (allocating_frames(view) if anywhere else [])
    images = [image_name(item.image) for item in own_frames(view) if is_of_own_image(item)]
    if not frames or not (images or anywhere):
        return None
    files = program_files(view.process.snapshot, frames)
    found = {*_Search(view, files, {name.split(".")[0] for name in images}).found(anywhere=anywhere)}
    return found.pop() if len(found) == 1 else None


class _Search:
    """Of the program's files. `stems`: names of the native images on the stack, as the program may import them."""

    def __init__(self, view: ProcessView, files: Mapping[str, ast.Module], stems: set[str]) -> None:
        self._view, self._files = view, files
        self._native = native_calls(files)
        self._native = structs.replace(self._native, owners=self._native.owners | {*self._modules(stems)})
        running = [(item.file, item.line) for item in program_frames(view) if item.line]
        self._owners = Owners(files, releases(files, self._is_native), self._is_native, running)

    def _is_native(self, node: ast.AST) -> bool:
        return self._native.is_of_library(node)

    def _modules(self, stems: set[str]) -> Iterator[str]:
        """Names by which the program knows extensions of its own."""
        for tree in self._files.values():
            for node in nodes_of(tree):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    for item in node.names:
                        if item.name.rpartition(".")[2] in stems:
                            yield (item.asname or item.name).rpartition(".")[2]
                elif isinstance(node, ast.Assign) and _loads(node.value):
                    yield from filter(None, map(last_name, node.targets))

    def found(self, *, anywhere: bool) -> Iterator[DroppedHandle]:
        """Of each native call that is given the handle of another object."""
        for file, tree in self._files.items():
            for call in (node for node in nodes_of(tree) if isinstance(node, ast.Call) and self._is_native(node)):
                keeper = self._keeper(file, tree, call)
                if keeper is None or not (anywhere or self._is_used(file, tree, call, keeper)):
                    continue
                for place, given in enumerate(passed_values(call)):
                    stored = self._stored(call, place)
                    if stored is not None:
                        yield from (self._described(file, tree, call, item, stored) for item in self._of(file, given))

    def _of(self, file: str, given: ast.expr) -> Iterator[Owned]:
        for node in nodes_of(given):
            if isinstance(node, (ast.Attribute, ast.Name)):
                yield from self._owners.dropped(file, node)

    def _keeper(self, file: str, tree: ast.Module, call: ast.Call) -> ast.expr | None:
        """What is set to the native object that a call makes; else the first one that it is given."""
        node: ast.AST | None = call
        inside: list[ast.expr] = []
        while isinstance(node, ast.expr):
            inside.append(node)
            node = self._owners.parents[file].get(id(node))
        if isinstance(node, ast.Assign):
            made = (target for target, value in each_set(node.targets, node.value) if value in inside)
            return next((item for item in made if last_name(item) is not None), None)
        own = is_method(tree, scope_of(tree, call.lineno))
        first = next(iter(call.args), None)
        if first is None or len(call.args) < 2 or not (own or isinstance(first, ast.Name)):
            return None
        return first if last_name(first) is not None else None

    def _is_used(self, file: str, tree: ast.Module, call: ast.Call, keeper: ast.expr) -> bool:
        """Whether the failing line passes the same object to native code, in a call that is not this one."""
        frame = program_frames(self._view)[0]
        other = self._files.get(frame.file or "")
        if other is None or frame.line is None or (frame.file == file and spans(call, frame.line)):
            return False
        owner = class_around(tree, scope_of(tree, call.lineno)) if ast.unparse(keeper).startswith("self.") else None
        user = class_around(other, scope_of(other, frame.line))
        given = [value for item in calls_on(other, frame.line) if self._is_native(item) for value in item.args]
        for node in (part for value in given for part in nodes_of(value)):
            if isinstance(node, (ast.Name, ast.Attribute)) and last_name(node) == last_name(keeper):
                of_self = ast.unparse(node).startswith("self.")
                of = user if of_self else self._class_of(other, node)
                if owner is None or of is None or _is_related(owner, of):
                    return True
        return False

    def _class_of(self, tree: ast.Module, node: ast.Name | ast.Attribute) -> ast.ClassDef | None:
        """Of `index` in `index.handle`, where the line that sets the variable shows it."""
        name = node.value.id if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) else None
        bound = lines_that_bind(scope_of(tree, node.lineno), name) if name is not None else []
        made = bound[0][1] if len(bound) == 1 else None
        called = called_name(made) if isinstance(made, ast.Call) else None
        found = (class_named(item, called) for item in self._files.values()) if called is not None else ()
        return next((item for item in found if item is not None), None)

    def _stored(self, call: ast.Call, place: int) -> str | None:
        """`v->quantizer`, where the C function puts an argument; "" where that is not known, None where it does not."""
        found = own_definition(self._view, called_name(call) or "")
        taken = split(found.parameters) if found is not None else ()
        if found is None or len(taken) != len(passed_values(call)) or "PyObject" in found.parameters:
            return ""  # of an extension, it takes its arguments from others
        name = declared_name(taken[place])
        start = found.body.find("{")
        body = found.body[start : closing(found.body, start)] if start >= 0 else ""
        if _SHARES.search(body):
            return None
        for match in re.finditer(_SETS.format(name), body):
            part = match["part"]
            if part is None or re.search(rf"\*\s*{part}\s*[,;]", found.text):  # `h->counts = b->counts`, a pointer
                return match["field"]
        # Used on the spot: `f->n`, `f[0]`, `*f`; anything else may pass it on.
        only_used = re.sub(rf"\b{name}\s*(?:->|\[)|\*\s*{name}\b|!\s*{name}\b", "", body)
        return "" if re.search(rf"\b{name}\b", only_used) else None

    def _described(self, file: str, tree: ast.Module, call: ast.Call, owned: Owned, stored: str) -> DroppedHandle:
        view, release = self._view, owned.release
        made = place_of(view, owned.file, owned.line)
        freed = place_of(view, release.file, release.line)
        line, native = place_of(view, file, call.lineno), called_name(call) or ""
        name = f"`{shortened(owned.name, _QUOTED)}`"
        kind = f"{release.owner}, made at " if release.owner and not owned.temporary else "made at "
        what = f"{name} ({kind}{made})" if not owned.temporary else f"the {release.owner} of {made}"
        return DroppedHandle(
            LineWords(what, made.file, made.line),
            owned.ended.format(place_of(view, owned.file, owned.ends_at) if owned.ends_at is not None else ""),
            LineWords(f"its {release.way} ({freed}: `{release.text}`)", freed.file, freed.line),
            native,
            line,
            stored or None,
            _advice(tree, call, owned, line, native),
        )


def _advice(tree: ast.Module, call: ast.Call, owned: Owned, line: LineWords, native: str) -> str:
    """What holds the owner for as long as what keeps its native object."""
    given, release = owned.given, owned.release
    name = given.id if isinstance(given, ast.Name) else None
    own = (
        f"or let the native library own it, so that {release.function}() is not called from Python"
        if release.way == DEL
        else "or let the native library own it, and free it itself"
    )
    if not release.by_collection:
        return (
            f"Use what {native}() of {line} made only while `{owned.name}` is open: {release.way} frees its native "
            "object, of which only the address is kept."
        )
    if name is not None and is_method(tree, scope_of(tree, call.lineno)):
        where = f"`self.{name} = {name}` beside {line} ({native}() is given only its handle), {own}"
        return f"Keep `{name}` in the object that uses it: {where}."
    kept = f"`{owned.name}`" if not owned.temporary else f"the {release.owner} in a variable"
    return (
        f"Keep {kept} for as long as what {native}() of {line} made is used, such as in an attribute beside it, or "
        f"returned with it: {native}() is given only its handle; {own}."
    )


def _loads(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and called_name(node) in LIBRARY_LOADERS


def _is_related(one: ast.ClassDef, other: ast.ClassDef) -> bool:
    """Whether they are one class, or one is a base of the other."""
    bases = ({last_name(base) for base in item.bases} for item in (one, other))
    return one.name == other.name or any(name in of for name, of in zip((other.name, one.name), bases, strict=True))
