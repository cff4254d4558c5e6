"""The line of a program that keeps files open: it puts each into a list or dict that only grows.

From the source alone. What is kept may be the file itself, an object whose class opens one and keeps it as an
attribute, or what a function of the program returns. `with`, and a file that is read in the expression that opens it,
keep none; a cache that drops some is none of these.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.ends.growing_containers import only_grows, stored
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, keyword_value
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, qualified_name, scope_of
from pytracer.analyze.naming import LineWords, line_in
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_OPENERS = frozenset({"open", "File", "ZipFile", "TarFile", "memmap", "VideoCapture", "VideoReader", "safe_open"})
_GATHERS = frozenset({"list", "tuple", "dict", "ConcatDataset", "ChainDataset", "StackDataset"})
_CACHES = ("cache", "lru_cache")
_COMMON = frozenset({"get", "pop", "read", "load", "setdefault", "__getitem__", "__enter__", "__iter__", "__next__"})
_ROUNDS, _QUOTED = 4, 60


class Opener(msgspec.Struct, frozen=True):
    """The line that opens a file: `line 23`, its text. `owner`: the class whose attribute it becomes."""

    place: LineWords
    text: str
    owner: str | None = None
    reader: tuple[str, str] | None = None
    """The only other method of the class that uses it, and its place."""


class KeptFiles(msgspec.Struct, frozen=True):
    """`place`: the line that keeps each in `holder`."""

    place: LineWords
    holder: str
    opener: Opener
    at: PythonFrame
    at_once: bool = False
    """Whether it opens all of them."""

    @property
    def words(self) -> str:
        """`line 46 keeps each file that line 23 opens in `self.readers``."""
        opened = "" if self.opener.place == self.place else f" that {self.opener.place} opens"
        return f"{self.place} keeps each file{opened} in {self.holder}"

    @property
    def advice(self) -> str:
        """Where to open it instead, or how to keep few."""
        opener = self.opener
        if opener.owner is None:
            few = "" if self.at_once else ", or keep only the last few and close() the one that is dropped"
            return (
                f"Keep no open file for each item in {self.holder} ({self.place}): open it by `with` where it is read"
                f"{few}."
            )
        few = (
            ""
            if self.at_once
            else (
                f"; or keep only the last few in {self.holder} ({self.place}), and close() the file of the one that is "
                "dropped"
            )
        )
        where = f" in {opener.reader[0]}() ({opener.reader[1]})" if opener.reader is not None else " where it is read"
        return (
            f"Each {opener.owner} keeps its file open (`{opener.text}` at {opener.place}): keep the path there, and "
            f"open it by `with`{where}{few}."
        )


def kept_files(snapshot: Snapshot, frames: Sequence[PythonFrame]) -> KeptFiles | None:
    """The only such line of a program's files; None where there is none, or several."""
    if not frames:
        return None
    files = program_files(snapshot, frames)
    makers: dict[str, Opener] = {}
    for _ in range(_ROUNDS):
        more = {
            name: opener
            for file, tree in files.items()
            for name, opener in _makers(file, tree, makers, frames[0].file)
            if name not in makers
        }
        if not more:
            break
        makers |= more
    found = [item for file, tree in files.items() for item in _keepers(file, tree, makers, frames[0].file)]
    return found[0] if len({item.place for item in found}) == 1 else None


def _makers(
    file: str, tree: ast.Module, makers: Mapping[str, Opener], here: str | None
) -> Iterator[tuple[str, Opener]]:
    """Classes that keep an open file in each of their objects, and functions that return one."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Assign):
            opener, held = _opener(node.value, file, makers, here), variable(node.targets[0])
            if opener is None or held is None or not held.startswith("self."):
                continue
            scope = scope_of(tree, node.lineno)
            owner = class_around(tree, scope)
            if owner is None or _closes(scope, held):
                continue
            yield owner.name, _owned(opener, node, owner, held, line_in(file, node.lineno, here), file, here)
        elif isinstance(node, ast.FunctionDef) and node.name not in _COMMON and not _is_cached(node):
            opener = _returned(node, file, makers, here)
            if opener is not None:
                yield node.name, opener


def _owned(
    opener: Opener, node: ast.Assign, owner: ast.ClassDef, held: str, place: LineWords, file: str, here: str | None
) -> Opener:
    """What a class opens; where one of its objects has an object that opens it, that one's."""
    if opener.owner is not None:
        return opener
    users = [
        item
        for item in owner.body
        if isinstance(item, ast.FunctionDef)
        if item.name not in ("close", "__del__", "__exit__") and not any(part is node for part in nodes_of(item))
        if any(variable(part) == held for part in nodes_of(item))
    ]
    reader = (f"{owner.name}.{users[0].name}", line_in(file, users[0].lineno, here)) if len(users) == 1 else None
    return Opener(place, shortened(ast.unparse(node), _QUOTED), owner.name, reader)


def _keepers(file: str, tree: ast.Module, makers: Mapping[str, Opener], here: str | None) -> Iterator[KeptFiles]:
    if not any(_opener(item, file, makers, here) for item in nodes_of(tree) if isinstance(item, ast.expr)):
        return  # before the function around each statement is looked for
    for node in (item for item in nodes_of(tree) if isinstance(item, ast.stmt)):
        found = _kept_by(node, file, tree, makers, here)
        if found is not None:
            holder, opener, at_once = found
            line = _return_of(node) if isinstance(node, ast.FunctionDef) else node.lineno
            at = PythonFrame(qualified_name(tree, scope_of(tree, line)), file, line)
            yield KeptFiles(line_in(file, line, here), holder, opener, at, at_once)


def _kept_by(
    node: ast.stmt, file: str, tree: ast.Module, makers: Mapping[str, Opener], here: str | None
) -> tuple[str, Opener, bool] | None:
    """What keeps it, what opens it, and whether all are opened at once."""
    if isinstance(node, ast.FunctionDef):
        opener = _returned(node, file, makers, here) if _keeps_all(node) else None
        return (f"the cache of {node.name}()", opener, False) if opener is not None else None
    opener = _gathered(node, file, makers, here)
    if opener is not None and isinstance(node, ast.Assign):
        return f"`{ast.unparse(node.targets[0])}`", opener, True
    container, value = _stored(node) or (None, None)
    if container is None or not isinstance(value, (ast.Call, ast.Name)):
        return None
    scope = scope_of(tree, node.lineno)
    opener = _value(value, scope, file, makers, here)
    if opener is None or not only_grows(tree, scope, container, node):
        return None
    return f"`{ast.unparse(container)}`", opener, False


def _returned(function: ast.FunctionDef, file: str, makers: Mapping[str, Opener], here: str | None) -> Opener | None:
    """What a function opens and returns."""
    values = (item.value for item in own_nodes(function) if isinstance(item, ast.Return) and item.value is not None)
    openers = (_value(value, function, file, makers, here) for value in values)
    return next((item for item in openers if item is not None), None)


def _return_of(function: ast.FunctionDef) -> int:
    lines = (item.lineno for item in own_nodes(function) if isinstance(item, ast.Return))
    return max(lines, default=function.lineno)


def _stored(node: ast.stmt) -> tuple[ast.expr, ast.expr] | None:
    """Also of `files.setdefault(path, open(path))`; of `self.files[key] = reader = Reader(path)`."""
    call = node.value if isinstance(node, (ast.Expr, ast.Assign, ast.Return)) else None
    if isinstance(call, ast.Call) and called_name(call) == "setdefault" and isinstance(call.func, ast.Attribute):
        return (call.func.value, call.args[1]) if len(call.args) > 1 else None
    if isinstance(node, ast.Assign) and len(node.targets) > 1:
        items = [item for item in node.targets if isinstance(item, ast.Subscript)]
        return (items[0].value, node.value) if len(items) == 1 else None
    return stored(node)


def _gathered(node: ast.stmt, file: str, makers: Mapping[str, Opener], here: str | None) -> Opener | None:
    """`self.files = [open(path) for path in paths]`, also inside of a ConcatDataset()."""
    value = node.value if isinstance(node, ast.Assign) else None
    if isinstance(value, ast.Call) and called_name(value) in _GATHERS and len(value.args) == 1:
        value = value.args[0]
    if not isinstance(value, COMPREHENSIONS):
        return None
    return _opener(value.value if isinstance(value, ast.DictComp) else value.elt, file, makers, here)


def _value(value: ast.expr, scope: ast.AST, file: str, makers: Mapping[str, Opener], here: str | None) -> Opener | None:
    """Also of a variable that the same function has bound to it."""
    if not isinstance(value, ast.Name):
        return _opener(value, file, makers, here)
    for item in own_nodes(scope):
        if isinstance(item, ast.Assign) and any(variable(target) == value.id for target in item.targets):
            opener = _opener(item.value, file, makers, here)
            if opener is not None and not _closes(scope, value.id):
                return opener
    return None


def _opener(value: ast.expr, file: str, makers: Mapping[str, Opener], here: str | None) -> Opener | None:
    """Of a call that opens a file, or makes what keeps one open."""
    name = called_name(value) if isinstance(value, ast.Call) else None
    if name is None or not isinstance(value, ast.Call):
        return None
    if name in makers:
        return makers[name]
    mode = keyword_value(value, "mmap_mode") if name == "load" else None
    if name not in _OPENERS and (mode is None or is_none(mode)):
        return None
    return Opener(line_in(file, value.lineno, here), shortened(ast.unparse(value), _QUOTED))


def _closes(scope: ast.AST, name: str) -> bool:
    """Whether the same function closes it."""
    return any(
        isinstance(item, ast.Call)
        and called_name(item) == "close"
        and isinstance(item.func, ast.Attribute)
        and variable(item.func.value) == name
        for item in own_nodes(scope)
    )


def _is_cached(function: ast.FunctionDef) -> bool:
    return any(name in ast.unparse(item) for item in function.decorator_list for name in _CACHES)


def _keeps_all(function: ast.FunctionDef) -> bool:
    """`@cache`, `@lru_cache(maxsize=None)`."""
    for item in function.decorator_list:
        if isinstance(item, ast.Call) and called_name(item) == "lru_cache":
            size = argument_at(item, 0, "maxsize")
            return is_none(size)
        if not isinstance(item, ast.Call) and ast.unparse(item).rpartition(".")[2] == "cache":
            return True
    return False
