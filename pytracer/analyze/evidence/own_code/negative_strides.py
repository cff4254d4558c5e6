"""An array with a negative stride that torch.from_dlpack() was given: torch has none, and its check cannot be caught.

`img[:, ::-1]` and np.flip() make such views. from_numpy() raises ValueError for them. from_dlpack() computes the size
of the storage in a function that is noexcept, so that the error there ends the process.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.native.aborts import cpp_exception
from pytracer.analyze.evidence.own_code.passed_memory import is_flipped
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_REFUSED = Pattern(r"Storage size calculation overflowed with sizes=\[[\d, ]*\] and strides=(\[[-\d, ]*-\d[-\d, ]*\])")
_TAKES = "from_dlpack"
_QUOTED = 40
_MOST = 2


class NegativeStrides(msgspec.Struct, frozen=True):
    """`given`: what the line passes. `flips`: the expressions of the program that make such views, with their lines."""

    given: str
    line: int
    strides: str
    flips: tuple[str, ...]

    @property
    def what(self) -> str:
        """After `aborted: `."""
        made = f", such as {list_words(self.flips, _MOST)} makes" if self.flips else ""
        return (
            f"{_TAKES}() at line {self.line} was given an array with a negative stride (`{self.given}`, strides "
            f"{self.strides}){made}, and what torch then throws cannot be caught"
        )

    @property
    def advice(self) -> str:
        """A copy, there or where it is flipped."""
        there = f", or add .copy() to {list_words(self.flips, _MOST, 'or')}" if self.flips else ""
        return (
            f"Pass `np.ascontiguousarray({self.given})` to {_TAKES}() at line {self.line}{there}: torch has no "
            "negative strides. Or flip the tensor (torch.flip() copies). torch.from_numpy() would raise a ValueError "
            "that says so."
        )


def negative_strides(view: ProcessView) -> NegativeStrides | None:
    """None where the exception is another one, or the line calls no from_dlpack()."""
    exception, frames = cpp_exception(view), program_frames(view)
    found = _REFUSED.search(exception.what or "") if exception is not None else None
    if found is None or not frames or frames[0].line is None:
        return None
    tree = syntax_tree(view.process.snapshot, frames[0])
    calls = [item for item in calls_on(tree, frames[0].line) if called_name(item) == _TAKES] if tree is not None else []
    if len(calls) != 1 or not calls[0].args:
        return None
    files = program_files(view.process.snapshot, frames)
    flips = [
        LineWords(f"`{shortened(ast.unparse(item), _QUOTED)}` at {line_in(file, line, frames[0].file)}", file, line)
        for file, tree in files.items()
        for line, item in _flips(tree)
    ]
    given = shortened(ast.unparse(calls[0].args[0]), _QUOTED)
    return NegativeStrides(given, frames[0].line, found[1], tuple(flips) if len(flips) <= _MOST else ())


def _flips(tree: ast.AST) -> Iterator[tuple[int, ast.expr]]:
    for item in nodes_of(tree):
        if isinstance(item, (ast.Subscript, ast.Call)) and is_flipped(item):
            yield item.lineno, item
