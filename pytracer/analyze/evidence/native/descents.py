"""What a function of the program goes down by when it calls itself: `tree.children`, `node.next`, `items[1:]`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.wraps import Wrap, wraps_of_classes
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import is_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import parameters, scope_of, statement_at
from pytracer.analyze.naming import LineWords, line_in
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import NativeFrame, PythonFrame

_LONGEST = 60
_OWN = ("self", "cls")
_ITERATES = frozenset({"enumerate", "reversed", "list", "tuple", "sorted", "iter", "values", "items", "children"})
# A call of C that Python code makes once in each round, and the frame of Python that stands for it.
_ONCE = (("slot_tp_call", "_wrapped_call_impl"), ("gen_iternext", "<genexpr>"))


class Descent(msgspec.Struct, frozen=True):
    """`parts`: what each level goes down by, as its line has it. `wrap`: the only line that adds a level to that."""

    parts: tuple[str, ...]
    at: LineWords
    wrap: LineWords | None
    text: str
    when: str

    @property
    def clause(self) -> str:
        """Behind the line that calls itself."""
        return f", each time one level down in {self._part}"

    @property
    def _part(self) -> str:
        return list_words([f"`{part}`" for part in self.parts], conjunction="or")

    @property
    def advice(self) -> str:
        """The recursion is not to be ended: what it walks through is that deep."""
        if self.wrap is None:
            return (
                f"Either {self._part} ({self.at}) leads in a circle, or the data is deeper than the stack holds: walk "
                "through it by a loop, with a list of what is left to do, or limit its depth."
            )
        return (
            f"The data goes deeper in {self._part} ({self.at}) than the stack holds: {self.wrap} (`{self.text}`) may "
            f"add a level {self.when}. Walk through it by a loop, with a list of what is "
            "left to do, or limit or balance its depth there."
        )


def descent(snapshot: Snapshot, stack: Sequence[PythonFrame], at: PythonFrame) -> Descent | None:
    """Of the line that calls itself; None where that shows no part of what its function is given."""
    files = program_files(snapshot, stack)
    tree = files.get(at.file or "")
    if tree is None or at.line is None:
        return None
    found = {ast.unparse(part): part for part in _parts(tree, at.line)}
    names = {part.attr if isinstance(part, ast.Attribute) else None for part in found.values()}
    if not found or (
        len(found) > 1 and (None in names or len({ast.unparse(part.value) for part in found.values()}) > 1)
    ):
        return None  # `items[:n]`, `items[n:]`: each level has a part of it
    wraps = [item for item in wraps_of_classes(files) if item.attribute is not None and item.attribute in names]
    wrap: Wrap | None = wraps[0] if len(wraps) == 1 else None
    return Descent(
        tuple(found),
        line_in(at.file, at.line, at.file),
        line_in(wrap.file, wrap.line, at.file) if wrap is not None else None,
        shortened(wrap.text, _LONGEST) if wrap is not None else "",
        wrap.when if wrap is not None else "",
    )


def levels(native: Sequence[NativeFrame], python: Sequence[PythonFrame], repeats: int | None) -> int | None:
    """How often the program's function is on the stack, where each round of the native frames is one call of it."""
    for called, frame in _ONCE:
        in_native = sum((item.function or "") == called for item in native)
        in_python = sum((item.function or "").endswith(frame) for item in python)
        if in_native == in_python == 1:
            return repeats
    return None


def _parts(tree: ast.Module, line: int) -> Iterator[ast.Attribute | ast.Subscript]:
    """Of a parameter, in what a call of the line's own function is given or called on."""
    scope, statement = scope_of(tree, line), statement_at(tree, line)
    if isinstance(scope, (ast.Module, ast.Lambda)) or statement is None:
        return
    nodes = [*nodes_of(statement)]
    heads = [(item.target, item.iter) for item in nodes if isinstance(item, ast.comprehension)]
    heads += [(item.target, item.iter) for item in loops_around(tree, line) if not isinstance(item, ast.While)]
    if isinstance(statement, ast.For):
        heads.append((statement.target, statement.iter))
    given = {*parameters(scope)}
    for call in (item for item in nodes if isinstance(item, ast.Call)):
        for value in _passed(call, scope.name):
            part = _looped(value, heads)
            if isinstance(part, ast.Subscript) and isinstance(part.value, ast.Attribute):
                part = part.value  # `node.kids[0]`
            base = part.value if isinstance(part, (ast.Attribute, ast.Subscript)) else None
            if isinstance(part, (ast.Attribute, ast.Subscript)) and isinstance(base, ast.Name) and base.id in given:
                yield part


def _passed(call: ast.Call, name: str) -> Iterator[ast.expr]:
    """`child` of `self(child)`, `self.walk(child)`, `walk(child)` and `child.walk()`."""
    func = call.func
    if isinstance(func, ast.Name) and (func.id in (name, *_OWN) or f"__{func.id}__" == name):  # len() of __len__
        yield from call.args
    elif isinstance(func, ast.Attribute) and func.attr == name:
        yield from call.args if ast.unparse(func.value) in _OWN else [func.value]


def _looped(value: ast.expr, heads: Sequence[tuple[ast.expr, ast.expr]]) -> ast.expr:
    """What a loop's variable comes from; anything else as it is."""
    if not isinstance(value, ast.Name):
        return value
    own = [source for target, source in heads if any(is_name(part, value.id) for part in nodes_of(target))]
    source = own[-1] if own else value
    while isinstance(source, ast.Call):
        called = source.func.attr if isinstance(source.func, ast.Attribute) else getattr(source.func, "id", "")
        if called not in _ITERATES:
            break
        inner = source.args[0] if source.args else getattr(source.func, "value", None)
        if inner is None:
            break
        source = inner
    return source
