"""A tensor behind which the heap is overwritten: the handler found no size where malloc() notes that of the next block.

Whoever wrote there wrote past the end of the tensor, or before the start of what lies behind it; the fault or the
complaint of the C library comes later, in code that has nothing to do with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from pytracer._text import count_words, hex_addr, list_words, size_words
from pytracer.analyze.evidence.pointer_content import numbers_in_word
from pytracer.analyze.evidence.program_syntax import called_name, class_named, function_named
from pytracer.analyze.evidence.variables import plain_expression, program_frames, variable_of
from pytracer.analyze.naming import short_file
from pytracer.analyze.parts import is_library_file, python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Holder, Overrun
from pytracer.report.job import Evidence

_NAME = re.compile(r"[A-Za-z_]\w*")
_INSIDE = re.compile(r"\[[^\]]*\]")
_MOST_LINES, _MOST_NAMES = 2, 4
_HARMLESS = ("len", "print", "type", "id", "append", "extend", "isinstance", "enumerate", "zip", "range", "list", "size")
_GUARD = "`pytracer run --guard` stops at the first byte that is written behind a tensor."


@dataclass(frozen=True)
class Overwritten:
    """`tensor`: `` `scores` in fit() (15 elements, 60 bytes) ``; `advice`: what to compare, and where."""

    tensor: str
    overrun: Overrun
    advice: str

    @property
    def summary(self) -> str:
        """For the headline."""
        return f"the memory right behind {self.tensor} is overwritten"

    @property
    def evidence(self) -> Evidence:
        """What stands there."""
        word = self.overrun.word
        numbers = numbers_in_word(word)
        return Evidence(
            "neighbor",
            f"behind it, where malloc() notes the size of the next block, is {hex_addr(word)}"
            f"{f': {numbers}' if numbers else ''}, which is none",
            base=hex_addr(self.overrun.storage.base),
            nbytes=self.overrun.storage.nbytes,
            value=word,
        )


def overwritten(view: ProcessView) -> Overwritten | None:
    """The one that the program has a variable for, if any has."""
    found = view.crash.overruns if view.crash is not None else ()
    named = [item for item in found if _holder(view, item.storage.base) is not None]
    return next((_described(view, item) for item in (*named, *found)), None)


def _described(view: ProcessView, item: Overrun) -> Overwritten:
    storage = item.storage
    holder, variable = _holder(view, storage.base), variable_of(view, storage.base)
    size = size_words(storage.nbytes)
    made = _made(view, item)
    if holder is None or variable is None:
        tensor = f"a tensor of {size}{f' that {made} made' if made else ''}"
    else:
        tensor = f"{variable} ({count_words(holder.elements, 'element')}, {size})"
    return Overwritten(tensor, item, f"{_compare(view, item, holder, made)} {_GUARD}")


def _holder(view: ProcessView, base: int) -> Holder | None:
    """A variable of the program."""
    held = view.crash.holders if view.crash is not None else ()
    own = (item for item in held if item.base == base and item.frame and not is_library_file(item.frame.file))
    return next(own, None)


def _compare(view: ProcessView, item: Overrun, holder: Holder | None, made: str | None) -> str:
    calls = list(_calls(view, _last_name(holder.expression))) if holder is not None else []
    lines = list(dict.fromkeys(line for line, _ in calls))
    made_there = _made_line(view, item)
    if holder is not None and 0 < len(lines) <= _MOST_LINES and made_there not in lines:
        name, where = f"`{plain_expression(holder.expression)}`", list_words([f"line {line}" for line in lines])
        larger = _larger(view, holder, [name for _, names in calls for name in names])
        with_it = f" with {larger}, which {where} passes with it" if larger else f" with what {where} passes with it"
        of = f", made at {made}," if made else ""
        return f"Compare the size of {name}{of}{with_it}: native code wrote past its end, by a size or an index."
    passed = [name for line, names in _calls(view, None) if line == made_there for name in names]
    what = f" (`{'`, `'.join(dict.fromkeys(passed[:_MOST_NAMES]))}`)" if passed else ""
    if made is not None:
        return (
            f"Check the sizes and indices that {made} passes{what}: native code wrote past the end of the tensor that "
            "is made there, in that call or in a later one that uses it."
        )
    return "Check the sizes and indices of the calls that use that tensor: native code wrote past its end."


def _larger(view: ProcessView, holder: Holder, names: list[str]) -> str | None:
    """The largest of the other tensors of a call, where it is larger."""
    others = [
        item
        for item in (view.crash.holders if view.crash is not None else ())
        if _last_name(item.expression) in names and item.elements > holder.elements and item.base != holder.base
    ]
    best = max(others, key=lambda item: item.elements, default=None)
    return f"`{plain_expression(best.expression)}` ({best.elements} elements)" if best is not None else None


def _last_name(expression: str) -> str:
    """`chunks` of `layer.chunks[0]`."""
    return _NAME.findall(_INSIDE.sub("", plain_expression(expression)))[-1]


def _calls(view: ProcessView, name: str | None) -> Iterator[tuple[int, list[str]]]:
    """The calls of the program's files that pass a variable to what is not defined in them: line, and all names.

    Of the file of the innermost frame and those of its callers. None: all calls.
    """
    for frame in {frame.file: frame for frame in program_frames(view)}.values():
        tree = syntax_tree(view.process.snapshot, frame)
        for node in ast.walk(tree) if tree is not None else ():
            if not isinstance(node, ast.Call) or not _is_foreign(tree, node):
                continue
            names = list(_passed_names(node))
            if names and name in (None, *names):
                yield node.lineno, names


def _is_foreign(tree: ast.Module | None, node: ast.Call) -> bool:
    called = called_name(node)
    if tree is None or called is None or called in _HARMLESS:
        return False
    return function_named(tree, called) is None and class_named(tree, called) is None


def _passed_names(node: ast.Call) -> Iterator[str]:
    """Of its arguments, and of the tensor whose method it is."""
    parts: list[ast.expr] = [*node.args, *(item.value for item in node.keywords)]
    for part in parts:
        for item in ast.walk(part):
            if isinstance(item, ast.Attribute):
                yield item.attr
            elif isinstance(item, ast.Name) and item.id != "self":
                yield item.id
    if isinstance(node.func, ast.Attribute):
        owner = node.func.value
        if isinstance(owner, ast.Name) and owner.id not in ("torch", "self"):
            yield owner.id
        elif isinstance(owner, ast.Attribute) and isinstance(owner.value, ast.Name) and owner.value.id == "self":
            yield owner.attr


def _made_line(view: ProcessView, item: Overrun) -> int | None:
    """The program's line that made the storage, of the file that the headline names."""
    site = item.storage.allocated_by
    made = next((at for at in (site.python, site.caller) if at is not None and not is_library_file(at.file)), None)
    files = [frame.file for frame in program_frames(view)]
    return made.line if made is not None and python_frame(made).file in files else None


def _made(view: ProcessView, item: Overrun) -> str | None:
    site = item.storage.allocated_by
    made = next((at for at in (site.python, site.caller) if at is not None and not is_library_file(at.file)), None)
    if made is None:
        return None
    frame = python_frame(made)
    own = frame.file == next((item.file for item in program_frames(view)), frame.file)
    return f"line {frame.line}" if own else f"{short_file(frame.file)}:{frame.line}"
