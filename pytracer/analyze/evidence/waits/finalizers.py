"""A `__del__` that takes a lock which its own thread holds: Python ran it in the middle of the locked section.

Of an object in a reference cycle the garbage collector calls it, wherever that begins: at an allocation of any line. Of
others the line does that drops the last reference.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import indexed
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, parameters, scope_of
from pytracer.analyze.naming import line_in
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import PythonFrame as SnapshotFrame
from pytracer.report.job import NativeFrame, PythonFrame

_FINALIZER = "__del__"
# CPython 3.10 to 3.14: what calls tp_finalize. subtype_dealloc() does through the second of _BETWEEN.
_CALLS = "slot_tp_finalize"
_BETWEEN = ("call_finalizer", "PyObject_CallFinalizer", "PyObject_CallFinalizerFromDealloc")
_COLLECTOR = Pattern(r"_*(?:finalize_garbage|gc_collect_\w+|PyGC_Collect|Py_RunGC)\b")
_FREES = Pattern(r"_*(?:subtype_dealloc|Py_Dealloc|Py_DECREF|Py_XDECREF)\b")
_HOLDS_METHOD = ("partial", "list", "tuple", "dict", "MethodType")
_LONGEST = 60

_How = Literal["collector", "reference", "unknown"]
_RUNS: dict[_How, str] = {
    "collector": "the garbage collector runs it in the middle of anything, a locked section, too",
    "reference": "it runs wherever the last reference goes, inside of a locked section, too",
    "unknown": "Python may run it in the middle of a locked section",
}


class Finalizer(msgspec.Struct, frozen=True):
    """`within`: the line of the locked section that Python was at when it called `at`, the `__del__`.

    `cycle`: a statement of its class that puts into an object what holds the object, of one that the collector freed.
    """

    how: _How
    at: PythonFrame
    within: PythonFrame
    cycle: tuple[int, str] | None

    @property
    def words(self) -> str:
        """After "already": `: there the garbage collector ran, at line 35, and called Clip.__del__ (line 64) ...`."""
        there = f"line {self.within.line}"
        called = f"{self._name} ({line_in(self.at.file, self.at.line, self.within.file)}), which takes it again"
        if self.how == "collector":
            return f": there the garbage collector ran, at {there}, and called {called}"
        if self.how == "reference":
            return f": there {there} dropped the last reference to an object, so Python called {called}"
        return f": there, at {there}, Python called {called}"

    def advice(self, lock: str, made: int | None) -> str:
        """Not in `__del__`; or a lock that its own thread may take again."""
        cycle = (
            f" Line {self.cycle[0]} (`{self.cycle[1]}`) makes a cycle, which leaves such objects to the collector."
            if self.cycle is not None
            else ""
        )
        return (
            f"Take no lock in {self._name}: {_RUNS[self.how]}. Let it put what it gives back into a deque or "
            "queue.SimpleQueue that is emptied under the lock later, or close the object explicitly. Or make "
            f"`{lock}` a threading.RLock{f' (line {made})' if made is not None else ''}, if the section bears what "
            f"changes in its middle.{cycle}"
        )

    @property
    def _name(self) -> str:
        return self.at.function or _FINALIZER


def finalizer_between(
    view: ProcessView, frames: Sequence[SnapshotFrame], native: Sequence[NativeFrame], holding: int
) -> Finalizer | None:
    """The innermost `__del__` above the frame that holds the lock, which is `frames[holding]`."""
    place = next((n for n, item in enumerate(frames[:holding]) if is_finalizer(item)), None)
    if place is None:
        return None
    within = next((item for item in frames[place + 1 : holding + 1] if not is_library_file(item.file)), frames[holding])
    how, at = _how(native), python_frame(frames[place])
    return Finalizer(how, at, python_frame(within), _cycle(view, at) if how == "collector" else None)


def is_finalizer(frame: SnapshotFrame) -> bool:
    """Whether a frame is that of a `__del__`."""
    return frame.function.rpartition(".")[2] == _FINALIZER


def _how(native: Sequence[NativeFrame]) -> _How:
    """By what called the innermost `__del__`; inlined functions count."""
    names = [name for frame in native for name in _names(frame)]
    place = next((n for n, name in enumerate(names) if name == _CALLS), None)
    caller = next((name for name in names[place + 1 :] if name not in _BETWEEN), "") if place is not None else ""
    return "collector" if _COLLECTOR.match(caller) else "reference" if _FREES.match(caller) else "unknown"


def _names(frame: NativeFrame) -> Iterator[str]:
    if frame.lines:
        yield from (item.function.removesuffix(".cold") for item in frame.lines if item.function)
    elif frame.function:
        yield frame.function.partition(".")[0]


def _cycle(view: ProcessView, at: PythonFrame) -> tuple[int, str] | None:
    """`self.augment = [self.flip]`: a method that is bound to the object, or a lambda that uses it, in itself."""
    tree = syntax_tree(view.process.snapshot, at)
    owner = class_around(tree, scope_of(tree, at.line)) if tree is not None and at.line is not None else None
    if owner is None:
        return None
    methods = [item for item in owner.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
    names = {item.name for item in methods if not item.decorator_list}
    for method in methods:
        own = next(iter(parameters(method)), "")
        for node in own_nodes(method):
            if not (isinstance(node, ast.Assign) and any(_is_part(item, own) for item in node.targets)):
                continue
            if any(_holds(item, own, names) for item in _stored(node.value)):
                return node.lineno, shortened(ast.unparse(node), _LONGEST)
    return None


def _is_part(target: ast.expr, own: str) -> bool:
    """`self.x` and `self.x[i]`."""
    target = indexed(target)
    return isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == own


def _stored(value: ast.expr) -> Iterator[ast.expr]:
    """What an assigned value holds: the elements of a display, and the arguments of partial()."""
    match value:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            pass
        case ast.Dict(values=parts):
            pass
        case ast.IfExp(body=body, orelse=other):
            parts = [body, other]
        case ast.Call(args=parts) if called_name(value) in _HOLDS_METHOD:
            pass
        case _:
            yield value
            return
    for part in parts:
        yield from _stored(part)


def _holds(value: ast.expr, own: str, methods: set[str]) -> bool:
    match value:
        case ast.Name(id=name):
            return name == own
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return name == own and attribute in methods
        case ast.Lambda(body=body):
            return own not in parameters(value) and any(
                isinstance(item, ast.Name) and item.id == own for item in nodes_of(body)
            )
    return False
