"""A loop that waits for a file whose name no other line of the program has: one writes another name instead.

`while not (cache / ".success").exists()`, where the only mark that the program makes is `(cache / "_SUCCESS").touch()`.
"""

from __future__ import annotations

import ast
import difflib
import os
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.path_ends import path_end
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans_body
from pytracer.analyze.evidence.waits.polled_paths import asked_paths
from pytracer.analyze.naming import LineWords, line_in
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_WRITES = frozenset(
    {"touch", "save", "dump", "write_text", "write_bytes", "mkdir", "makedirs", "mknod", "rename", "savez", "savetxt",
     "save_file", "symlink", "copyfile"}
)  # fmt: skip
_NUMBERS = Pattern(r"\d+")
_LEAST, _ALIKE, _LONGEST = 4, 0.75, 60


class MissingName(msgspec.Struct, frozen=True):
    """`name`: that the loop asks for. `writes`: the line that makes a file of a similar one, `other`."""

    name: str
    path: str
    writes: LineWords
    other: str
    sure: bool = True
    """Whether the names differ in case and signs alone, so that one was meant."""
    of_all: bool = True

    @property
    def sentence(self) -> str:
        """For the headline."""
        return (
            f"It looks for `{self.name}`, a name that no other line of the program has; {self.writes} makes "
            f"`{self.other}`"
        )

    @property
    def advice(self) -> str:
        """What to change."""
        return (
            f"Use one name in both places, best a constant: the loop waits for `{self.name}` (`{self.path}`), "
            f"{self.writes} makes `{self.other}`. Give the loop a limit, after which it raises an error with the path."
        )


def missing_name(snapshot: Snapshot, frames: Sequence[PythonFrame], test: ast.expr) -> MissingName | None:
    """None where another line of the program mentions that name, or nothing is written under one like it."""
    slice_, files = Slice(snapshot, frames), program_files(snapshot, frames)
    spot = slice_.spot(0)
    asked = next(asked_paths(slice_, test, spot), None) if spot is not None else None
    if asked is None or spot is None or asked[2]:
        return None
    path, at, _ = asked
    made = slice_.made(path, at, calls=False)
    tree = files.get(made.spot.file or "")
    end = path_end(tree, made.line, made.node) if tree is not None else None
    name = os.path.basename(end) if end is not None else ""
    if len(name) < _LEAST or len(list(_mentions(files, name))) != 1:
        return None
    behind = {(item.file, node) for item in frames for node in _behind(files.get(item.file or ""), item.line)}
    written = [item for item in _written(files) if _is_like(name, item[2]) and (item[0], item[1]) not in behind]
    if len({item[2] for item in written}) != 1:
        return None
    file, call, other = written[0]
    line = line_in(file, call.lineno, spot.file).quoted(shortened(ast.unparse(call), _LONGEST))
    return MissingName(name, shortened(ast.unparse(path), _LONGEST), line, other, _letters(name) == _letters(other))


def _behind(tree: ast.Module | None, line: int | None) -> Iterator[ast.Call]:
    """Calls that the process itself comes to after a line, of that function and not in another branch of an `if`."""
    if tree is None or line is None:
        return
    nodes = own_nodes(scope_of(tree, line))
    other = {id(part) for item in nodes if isinstance(item, ast.If) and spans_body(item.body, line)
             for one in item.orelse for part in nodes_of(one)}  # fmt: skip
    yield from (item for item in nodes if isinstance(item, ast.Call) and item.lineno > line and id(item) not in other)


def writes_file(call: ast.Call) -> bool:
    """Whether it makes a file, or changes one; open() only where its mode does."""
    if called_name(call) != "open":
        return called_name(call) in _WRITES
    mode = argument_at(call, 0 if isinstance(call.func, ast.Attribute) else 1, "mode")
    return isinstance(mode, ast.Constant) and isinstance(mode.value, str) and any(sign in mode.value for sign in "wax+")


def _mentions(files: Mapping[str, ast.Module], name: str) -> Iterator[ast.Constant]:
    """Each text of the program that has the name in it."""
    for tree in files.values():
        for item in nodes_of(tree):
            if isinstance(item, ast.Constant) and isinstance(item.value, str) and name in item.value:
                yield item


def _written(files: Mapping[str, ast.Module]) -> Iterator[tuple[str, ast.Call, str]]:
    """The calls that make files whose names the source shows, with these names."""
    for file, tree in files.items():
        for item in nodes_of(tree):
            if not isinstance(item, ast.Call) or not writes_file(item):
                continue
            owner = [item.func.value] if isinstance(item.func, ast.Attribute) else []
            for given in (*owner, *passed_values(item)):
                end = path_end(tree, item.lineno, given)
                if end is not None and len(os.path.basename(end)) >= _LEAST:
                    yield file, item, os.path.basename(end)


def _is_like(name: str, other: str) -> bool:
    """Whether one is the other with another case, other signs, or a slip of the pen; another number is another file."""
    one, two = (_letters(item) for item in (name, other))
    if _NUMBERS.findall(name) != _NUMBERS.findall(other):
        return False
    return name != other and (one == two or difflib.SequenceMatcher(None, one, two).ratio() >= _ALIKE)


def _letters(text: str) -> str:
    return "".join(item for item in text.casefold() if item.isalnum())
