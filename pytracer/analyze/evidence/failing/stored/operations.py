"""Calls that work once on a path: what removes, moves or makes a file or folder, and cannot do so again."""

from __future__ import annotations

import ast

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_GONE, _THERE = "FileNotFoundError", "FileExistsError"
_OF_MODULES = {
    "os.remove": _GONE, "os.unlink": _GONE, "os.rmdir": _GONE, "os.removedirs": _GONE, "shutil.rmtree": _GONE,
    "os.rename": _GONE, "os.renames": _GONE, "os.replace": _GONE, "shutil.move": _GONE,
    "os.mkdir": _THERE, "os.makedirs": _THERE, "os.symlink": _THERE, "os.link": _THERE, "shutil.copytree": _THERE,
}  # fmt: skip
_OF_PATHS = {
    "unlink": _GONE, "rmdir": _GONE, "rename": _GONE, "replace": _GONE,
    "mkdir": _THERE, "symlink_to": _THERE, "hardlink_to": _THERE,
}  # fmt: skip
_PATHLIB = Pattern(r"/pathlib(?:/\w+)?\.py$")
_SECOND = ("symlink", "link", "copytree")  # the argument that they make
_MOVES = ("rename", "renames", "replace", "move")
_MAKES_FOLDERS = ("mkdir", "makedirs", "copytree")
_IGNORES = ("exist_ok", "dirs_exist_ok", "missing_ok", "ignore_errors")


class Operation(msgspec.Struct, frozen=True):
    """A call, the path that it needs to be there or not to be, and whether it failed as that was otherwise."""

    call: ast.Call
    name: str
    path: ast.expr

    @property
    def makes(self) -> bool:
        """Whether it needs that nothing is there."""
        return self.name in _MAKES_FOLDERS or "link_to" in self.name or "hardlink" in self.name or self.name in _SECOND

    @property
    def verb(self) -> str:
        """`removes`."""
        return "makes" if self.makes else "moves" if self.name in _MOVES else "removes"

    @property
    def kind(self) -> str:
        """What it works on, as far as its name says so."""
        folder = self.name in _MAKES_FOLDERS or self.name in ("rmdir", "rmtree", "removedirs")
        return "folder" if folder else "file or folder" if self.name in _MOVES else "link" if self.makes else "file"

    @property
    def tolerant(self) -> str | None:
        """How to let it be done twice."""
        if self.name in ("mkdir", "makedirs"):
            return "exist_ok=True"
        if self.name == "rmtree":
            return "ignore_errors=True"
        return "`Path(...).unlink(missing_ok=True)`" if self.name in ("remove", "unlink") else None


def failed_operation(at: FailingLine) -> Operation | None:
    """The one of a line that found its path gone, or already there; None where a folder above it is missing, too."""
    calls = [item for item in nodes_of(at.node) if isinstance(item, ast.Call)] if at.node is not None else []
    every = [item for call in calls if (item := _operation(at, call)) is not None]
    found = every[0] if len(every) == 1 else None
    if found is None or any(_is_set(keyword_value(found.call, name)) for name in _IGNORES):
        return None
    if not found.makes and found.name not in ("rmtree", "removedirs"):
        path, part = at.values.get("file"), at.values.get("file missing part")
        if path is None or part is None or path.rstrip("/").rpartition("/")[2] != part:
            return None
    return found


def _operation(at: FailingLine, call: ast.Call) -> Operation | None:
    spot = at.slice.spot(0)
    origin = imported_as(spot.tree, call.func) if spot is not None else None
    name = called_name(call)
    if origin is not None:
        if _OF_MODULES.get(origin) != at.kind or name is None:
            return None
        name = origin.rpartition(".")[2]
        number = 1 if name in _SECOND else 0
        return Operation(call, name, call.args[number]) if len(call.args) > number else None
    if not isinstance(call.func, ast.Attribute) or _OF_PATHS.get(call.func.attr) != at.kind:
        return None
    of_path = _PATHLIB.search(at.stack[0].file or "") is not None
    return Operation(call, call.func.attr, call.func.value) if of_path else None


def _is_set(node: ast.expr | None) -> bool:
    return node is not None and not (isinstance(node, ast.Constant) and not node.value)
