"""A tensor behind which the heap is overwritten: the handler found no size where malloc() notes that of the next block.

Whoever wrote there wrote past the end of the tensor, or before the start of what lies behind it; the fault or the
complaint of the C library comes later, in code that has nothing to do with it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import count_words, hex_addr, list_words, shortened, size_words
from pytracer.analyze.evidence.heap.unchecked_maker import UncheckedMaker, unchecked_maker
from pytracer.analyze.evidence.lifetime.variables import plain_expression, program_frames, variable_of
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.native_stack import functions
from pytracer.analyze.evidence.own_code.pointer_content import may_be_address, numbers_in_word
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_named, function_named, spans
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Holder, Overrun, Storage
from pytracer.report.job import Evidence, PythonFrame

_NAME = Pattern(r"[A-Za-z_]\w*")
_INSIDE = Pattern(r"\[[^\]]*\]")
_MOST_LINES, _MOST_NAMES, _MOST_FRAMES, _QUOTED = 2, 4, 14, 60
_FREES = ("free", "cfree", "_int_free", "__libc_free", "__GI___libc_free", "_int_free_chunk", "munmap_chunk")
_BY_OPS = "torch/_ops.py"
_HARMLESS = (
    "len",
    "print",
    "type",
    "id",
    "append",
    "extend",
    "isinstance",
    "enumerate",
    "zip",
    "range",
    "list",
    "size",
)
_BEFORE = "before it, where malloc() notes the size of its block"
_BEHIND = "behind it, where malloc() notes the size of the next block"
_WROTE = "native code wrote past its end, by a size or an index, or before the start of what lies behind it"
_WROTE_BEFORE = "native code wrote before its start, by a negative index, or past the end of what lies before it"
_GUARD = "`pytracer run --guard` stops at the first byte that is written behind a tensor."


class Overwritten(msgspec.Struct, frozen=True):
    """`tensor`: `` `scores` in fit() (15 elements, 60 bytes) ``; `advice`: what to compare, and where.

    `maker`: the operator that made it, where that takes sizes for granted.
    """

    tensor: str
    overrun: Overrun
    advice: str
    maker: UncheckedMaker | None = None
    name: str | None = None  # of the variable that held it, or that the line that made it binds
    made: PythonFrame | None = None

    @property
    def summary(self) -> str:
        """For the headline."""
        suspect = f"; the first suspect is {self.maker.summary}" if self.maker is not None else ""
        return f"the memory right {'before' if self.overrun.before else 'behind'} {self.tensor} is overwritten{suspect}"

    @property
    def evidence(self) -> Evidence:
        """What stands there."""
        word = self.overrun.word
        numbers = numbers_in_word(word)
        return Evidence(
            "neighbor",
            f"{_BEFORE if self.overrun.before else _BEHIND}, is {hex_addr(word)}"
            f"{f': {numbers}' if numbers else ''}, which is none",
            base=hex_addr(self.overrun.storage.base),
            nbytes=self.overrun.storage.nbytes,
            value=word,
        )


def overwritten(view: ProcessView) -> Overwritten | None:
    """The one that the program has a variable for, if any has. What was freed last counts only of a death in free().

    Addresses are left out: malloc() itself writes those of its lists, over live blocks, where it took a wrong size.
    """
    found = view.crash.overruns if view.crash is not None else ()
    freeing = any(name.partition(".")[0] in _FREES for name in functions(view)[:_MOST_FRAMES])
    found = tuple(item for item in found if (item.storage.state == "live" or freeing) and not may_be_address(item.word))
    named = [item for item in found if _holder(view, item.storage) is not None]
    return next((_described(view, item) for item in (*named, *found)), None)


def _described(view: ProcessView, item: Overrun) -> Overwritten:
    storage = item.storage
    holder, variable, made = _holder(view, storage), variable_of(view, storage.base), _made(view, storage)
    size = size_words(storage.nbytes)
    if holder is not None and variable is not None:
        tensor = f"{variable} ({count_words(holder.elements, 'element')}, {size})"
    else:
        tensor = f"a tensor of {size}{f' that {made.words} made' if made is not None else ''}"
    maker = unchecked_maker(view, storage) if not item.before else None
    if maker is not None:
        return Overwritten(tensor, item, f"{maker.advice} {_GUARD}", maker)
    advice = f"{_compare(view, holder, made)}: {_WROTE_BEFORE if item.before else _WROTE}. {_GUARD}"
    name = plain_expression(holder.expression) if holder is not None else made.target if made is not None else None
    return Overwritten(tensor, item, advice, name=name, made=made.frame if made is not None else None)


def _holder(view: ProcessView, storage: Storage) -> Holder | None:
    """A variable of the program."""
    held = view.crash.holders if view.crash is not None and storage.state == "live" else ()
    own = (item for item in held if item.base == storage.base and item.frame and not is_library_file(item.frame.file))
    return next(own, None)


class _Made(msgspec.Struct, frozen=True):
    """The program's line that made a tensor: in words with its text, and the variable that it binds."""

    frame: PythonFrame
    place: str
    text: str
    target: str | None

    @property
    def words(self) -> str:
        return f"{self.place}{self.text}"


def _made(view: ProcessView, storage: Storage) -> _Made | None:
    site = storage.allocated_by
    known = [at for at in (site.caller, site.python, *site.stack) if at is not None and at.line]
    own = next((python_frame(at) for at in known if not is_library_file(at.file)), None)
    if own is None and any((at.file or "").endswith(_BY_OPS) for at in known):
        own = _only_call_by_ops(view)
    if own is None or own.line is None:
        return None
    text, tree = line_text(view.process.snapshot, own), syntax_tree(view.process.snapshot, own)
    quoted = f" (`{shortened(text, _QUOTED)}`)" if text else ""
    return _Made(own, place_of(view, own.file, own.line), quoted, _target(tree, own.line) if tree is not None else None)


def _only_call_by_ops(view: ProcessView) -> PythonFrame | None:
    """The only line of the program's files that calls an operator by torch.ops; the recording has torch/_ops.py."""
    found = [
        PythonFrame(function=None, file=frame.file, line=node.lineno)
        for frame, tree in _trees(view)
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("torch.ops.")
    ]
    return found[0] if len(found) == 1 else None


def _target(tree: ast.Module, line: int) -> str | None:
    """`chunks` of `self.chunks[0] = ...`."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Assign) and spans(node, line) and len(node.targets) == 1:
            words = ast.unparse(node.targets[0])
            return _last_name(words) if _NAME.search(_INSIDE.sub("", words)) and "," not in words else None
    return None


def _compare(view: ProcessView, holder: Holder | None, made: _Made | None) -> str:
    """What to look at: the call that the tensor is passed to, else the line that made it."""
    key = _last_name(holder.expression) if holder is not None else made.target if made is not None else None
    calls = [call for call in _calls(view, key) if made is None or call[0] != made.frame.line] if key else []
    lines = list(dict.fromkeys(line for line, _ in calls))
    if 0 < len(lines) <= _MOST_LINES:
        name = f"`{plain_expression(holder.expression)}`" if holder is not None else "that tensor"
        where = list_words([f"line {line}" for line in lines])
        larger = _larger(view, holder, [name for _, names in calls for name in names]) if holder is not None else None
        with_it = f" with {larger}, which {where} passes with it" if larger else f" with what {where} passes with it"
        of = f", which {made.words} made," if made is not None and holder is not None else ""
        return f"Compare the size of {name}{of}{with_it}"
    if made is None:
        return "Check the sizes and indices of the calls that use that tensor"
    passed = [name for line, names in _calls(view, None) if line == made.frame.line for name in names]
    held = _held_names(view)
    passed = [name for name in passed if name in held] or passed
    passed = list(dict.fromkeys(passed))
    what = f" ({', '.join(f'`{name}`' for name in passed)})" if 0 < len(passed) <= _MOST_NAMES else ""
    return f"Check the sizes and indices that {made.place} passes{what}, and of later calls that use that tensor"


def _held_names(view: ProcessView) -> set[str]:
    crash = view.crash
    if crash is None:
        return set()
    expressions = [*(item.expression for item in crash.holders), *(item.expression for item in crash.numbers)]
    return {_last_name(item) for item in expressions}


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
    names: list[str] = _NAME.findall(_INSIDE.sub("", plain_expression(expression)))
    return names[-1] if names else expression


def _calls(view: ProcessView, name: str | None) -> Iterator[tuple[int, list[str]]]:
    """The calls of the program's files that pass a variable to what is not defined in them: line, and all names.

    None: all calls.
    """
    for _, tree in _trees(view):
        calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call) and _is_foreign(tree, item)]
        found = [(item, names) for item in calls if (names := list(_passed_names(item))) and name in (None, *names)]
        # `run(c_void_p(x.data_ptr()))` is one call that is given x
        inner = {id(part) for item, _ in found for part in nodes_of(item) if part is not item}
        yield from ((item.lineno, names) for item, names in found if name is None or id(item) not in inner)


def _trees(view: ProcessView) -> Iterator[tuple[PythonFrame, ast.Module]]:
    """Of the files of the program's frames on the stack; else of those whose lines made the overrun storages."""
    frames = program_frames(view)
    if not frames and view.crash is not None:
        sites = (item.storage.allocated_by for item in view.crash.overruns)
        own = (at for site in sites for at in (site.caller, site.python) if at is not None)
        frames = [python_frame(at) for at in own if not is_library_file(at.file)]
    for frame in {frame.file: frame for frame in frames}.values():
        tree = syntax_tree(view.process.snapshot, frame)
        if tree is not None:
            yield frame, tree


def _is_foreign(tree: ast.Module, node: ast.Call) -> bool:
    called = called_name(node)
    if called is None or called in _HARMLESS:
        return False
    return function_named(tree, called) is None and class_named(tree, called) is None


def _passed_names(node: ast.Call) -> Iterator[str]:
    """Of its arguments, and of the tensor whose method it is."""
    parts: list[ast.expr] = passed_values(node)
    for part in parts:
        for item in nodes_of(part):
            if isinstance(item, ast.Attribute):
                yield item.attr
            elif isinstance(item, ast.Name) and item.id not in ("self", "torch"):
                yield item.id
    if isinstance(node.func, ast.Attribute):
        owner = node.func.value
        if isinstance(owner, ast.Name) and owner.id not in ("torch", "self"):
            yield owner.id
        elif isinstance(owner, ast.Attribute) and isinstance(owner.value, ast.Name) and owner.value.id == "self":
            yield owner.attr
