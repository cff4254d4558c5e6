"""C that a program has as text: what it gives to a compiler, where no file of it is left.

Each file of the program is read as one source that has its C at the lines at which the program has it, and nothing
else. A text that is a pattern, which the program fills in, is left out: the compiler got another one.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator, Sequence

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.own_code.native_source import SUFFIXES
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_C = Pattern(
    r"\)\s*(?:const\s*|noexcept\s*)?\{.*;.*\}|\bstruct\b[\s\w]*\{.*;.*\}|^[ \t]*#[ \t]*(?:include|define)\b",
    re.S | re.M,
)
_FILLS = frozenset({"format", "format_map", "replace", "substitute", "safe_substitute", "render", "translate"})
_MAKES_PATTERN = frozenset({"Template", "sub"})


def program_sources(
    view: ProcessView, libraries: Sequence[str], frames: Sequence[PythonFrame] = ()
) -> list[tuple[str, list[str]]]:
    """The files of the program that have C, with its lines; those that are newer than the libraries are left out.

    `frames`: lines of the program, of a process that did not crash.
    """
    snapshot = view.process.snapshot
    found = []
    for file, tree in program_files(snapshot, frames or program_frames(view)).items():
        lines = _laid_out(tree, snapshot, file) if any(_may_be_from(file, item) for item in libraries) else []
        if lines:
            found.append((file, lines))
    return found


def named_sources(trees: Iterable[ast.Module]) -> list[str]:
    """The names of C and C++ files that a program's text has, as in its own call of a compiler."""
    texts = (node.value for tree in trees for node in nodes_of(tree) if isinstance(node, ast.Constant))
    return [*dict.fromkeys(text for text in texts if isinstance(text, str) and text.endswith(SUFFIXES))]


def _may_be_from(file: str, library: str) -> bool:
    """Whether a library is not older; one that is gone was made for this run only, most likely."""
    try:
        return os.stat(file).st_mtime_ns <= os.stat(library).st_mtime_ns
    except OSError:
        return not os.path.exists(library)


def _laid_out(tree: ast.Module, snapshot: Snapshot, file: str) -> list[str]:
    """Empty where the file has none."""
    lines: dict[int, str] = {}
    for node in _texts(tree):
        begin = _begin(node, snapshot, file)
        for number, text in enumerate(str(node.value).split("\n"), begin or 0) if begin is not None else ():
            lines[number] = f"{lines[number]} {text}" if number in lines else text
    return [lines.get(number, "") for number in range(1, max(lines, default=0) + 1)]


def _texts(tree: ast.Module) -> Iterator[ast.Constant]:
    nodes = [*nodes_of(tree)]
    found = [item for item in nodes if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    found = [item for item in found if _C.search(str(item.value)) is not None]
    if not found:
        return
    filled = _filled(nodes)
    named = {
        id(node.value): target.id
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    parts = {id(item) for node in nodes if isinstance(node, ast.JoinedStr) for item in node.values}
    for node in found:
        if id(node) not in parts and not {id(node), named.get(id(node))} & filled:
            yield node


def _filled(nodes: Iterable[ast.AST]) -> set[int | str]:
    """Texts that the program changes, and the names of such: `SOURCE % n`, `SOURCE.format(n)`, `Template(SOURCE)`."""
    found: set[int | str] = set()
    for node in nodes:
        text: ast.expr | None = None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            text = node.left
        elif isinstance(node, ast.Attribute) and node.attr in _FILLS:
            text = node.value
        elif isinstance(node, ast.Call) and called_name(node) in _MAKES_PATTERN and node.args:
            found |= {item.id if isinstance(item, ast.Name) else id(item) for item in node.args}
        if text is not None:
            found.add(text.id if isinstance(text, ast.Name) else id(text))
    return found


def _begin(node: ast.Constant, snapshot: Snapshot, file: str) -> int | None:
    """The line of the file at which its first line is; None where their lines do not agree, as by escapes."""
    text = str(node.value)
    lines, breaks = (node.end_lineno or node.lineno) - node.lineno, text.count("\n")
    if breaks == lines or (breaks == lines + 1 and text.endswith("\n")):
        return node.lineno
    first = line_text(snapshot, PythonFrame(file=file, line=node.lineno)) or ""
    return node.lineno + 1 if breaks + 1 == lines and first.endswith("\\") else None
