"""A tensor of 0 elements that a line of the program made so, as a placeholder for what is computed or loaded later.

Nothing was allocated for it, so no line is recorded: the source says which one makes the variable or the attribute with
0 elements. It may have been made empty again since: nothing is said where another line takes a part of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import structs

from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.lifetime.saved_states import (
    LeftOut,
    NotPersistent,
    left_out,
    loads_loosely,
    not_persistent,
)
from pytracer.analyze.evidence.lifetime.variables import line_words, plain_expression, program_frames
from pytracer.analyze.evidence.lifetime.where_made import line_that_made
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.bindings import set_from_outside
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import elements, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, scope_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Holder
from pytracer.report.job import PythonFrame

_OF_SIZE = frozenset({"empty", "zeros", "ones", "rand", "randn", "full"})
_OF_VALUES = frozenset({"tensor", "as_tensor", "Tensor", "FloatTensor", "IntTensor", "LongTensor"})
_WRAPS = frozenset({"Parameter", "Buffer", "to", "cuda", "int", "long", "float", "half"})
_QUOTED = 60


class Placeholder(msgspec.Struct, frozen=True):
    """`names`, `self.perm`, have 0 elements since `lines`; `text`: of the first; `setters`: `("init_random", 18)`.

    `is_only`: whether no other line sets them. `beside`: another tensor of the object, and the line outside of its
    class that made that. `left_out`: a line that saves a part of a state without it, where something loaded the object.
    `loose`: a line that loads a state that may lack it.
    """

    names: tuple[str, ...]
    lines: tuple[int, ...]
    text: str
    setters: tuple[tuple[str, int], ...] = ()
    is_only: bool = False
    beside: tuple[str, str] | None = None
    left_out: LeftOut | None = None
    loose: int | None = None
    unsaved: NotPersistent | None = None
    """Where it is a buffer that no state has."""

    @property
    def _named(self) -> str:
        return list_words([f"`{name}`" for name in self.names])

    @property
    def _made(self) -> str:
        """`line 13 makes it`."""
        if len(self.names) == 1:
            return f"line {self.lines[0]} makes it"
        lines = list(dict.fromkeys(map(str, self.lines)))
        return f"line {lines[0]} makes them" if len(lines) == 1 else f"lines {list_words(lines)} make them"

    @property
    def summary(self) -> str:
        """Behind `` `self.perm` in weight() has 0 elements ``."""
        known = self.left_out or self.unsaved
        left_out = f", and {known.summary}" if known is not None else ""
        return f", as {self._made}{left_out}"

    def advice(self, view: ProcessView) -> str:
        """Where it is to be filled, and what left it as it was."""
        if self.unsaved is not None and self.left_out is None:
            return self.unsaved.advice(self._named, list(dict.fromkeys(method for method, _ in self.setters)))
        fill = f"Fill {self._named} before {line_words(view)} uses {'it' if len(self.names) == 1 else 'them'}"
        what = self.left_out.advice(self._named) if self.left_out is not None else fill
        text = f" (`{self.text}`)" if len(self.names) == 1 else ""
        made = self._made.replace(" make", f"{text} make", 1)
        parts = [f"{what}: {made} with 0 elements{self._only()}"]
        if self.beside is not None:
            parts.append(f"`{self.beside[0]}` has its memory from {self.beside[1]}, which gave {self._named} none")
        if self.loose is not None:
            parts.append(f"line {self.loose} loads with strict=False, which leaves what the state lacks as it is")
        return f"{'; '.join(parts)}."

    def _only(self) -> str:
        them = "it" if len(self.names) == 1 else "them"
        if not self.setters:
            return f", and no other line of its class sets {them}" if self.is_only else ""
        lines: dict[str, list[str]] = {}
        for method, line in sorted(self.setters):
            lines.setdefault(method, []).append(str(line))
        listed = [f"{method}() (line{'s' * (len(at) > 1)} {list_words(at)})" for method, at in lines.items()]
        return f", and of its class only {list_words(listed)} {'sets' if len(listed) == 1 else 'set'} {them}"


def placeholder(view: ProcessView, items: Sequence[Holder]) -> Placeholder | None:
    """Of tensors without elements of the program's innermost frame; None where a line is not known for each."""
    frame = next(iter(program_frames(view)), None)
    names = list(dict.fromkeys(plain_expression(item.expression) for item in items))
    tree = syntax_tree(view.process.snapshot, frame)
    if frame is None or tree is None or frame.line is None or any(item.elements for item in items):
        return None
    if not all(is_of_frame(item, frame) for item in items):
        return None
    scope = scope_of(tree, frame.line)
    found = [
        _of_attribute(view, frame, tree, scope, name)
        if name.startswith("self.") and name.count(".") == 1
        else _of_variable(scope, frame.line, name)
        for name in names
    ]
    known = [item for item in found if item is not None]
    if not known or len(known) < len(found):
        return None
    return structs.replace(
        known[0],
        names=tuple(names),
        lines=tuple(item.lines[0] for item in known),
        setters=tuple(dict.fromkeys(setter for item in known for setter in item.setters)),
        is_only=all(item.is_only for item in known),
    )


def is_of_frame(item: Holder, frame: PythonFrame) -> bool:
    """Whether it is a variable of that frame."""
    at = item.frame
    return at is not None and (at.file, at.function, at.line) == (frame.file, frame.function, frame.line)


def _of_variable(scope: Scope, line: int, name: str) -> Placeholder | None:
    """A local variable that one line makes, above all that use it."""
    found = [*bindings_of(scope, name)]
    empty = [(number, value) for number, value, index in found if index is None and _is_empty(value)]
    if len(empty) != 1 or empty[0][0] >= line or any(_reads(value, name) for _, value, _ in found):
        return None
    line, value = empty[0]
    if len(found) > 1 or value is None:
        return None
    return Placeholder((name,), (line,), shortened(ast.unparse(value), _QUOTED))


def _of_attribute(
    view: ProcessView, frame: PythonFrame, tree: ast.Module, scope: Scope, name: str
) -> Placeholder | None:
    owner = class_around(tree, scope)
    methods = [item for item in owner.body if isinstance(item, ast.FunctionDef)] if owner is not None else []
    found = [(method, number, value, index) for method in methods for number, value, index in bindings_of(method, name)]
    empty = [(method, number, value) for method, number, value, index in found if index is None and _is_empty(value)]
    if owner is None or len(empty) != 1 or empty[0][0].name != "__init__":
        return None
    if any(_reads(value, name) for _, _, value, _ in found) or _cuts(owner, name):
        return None
    attribute = name.partition(".")[2]
    others = [item for item in found if item[1] != empty[0][1]]
    outside = bool(set_from_outside(tree, owner, attribute))
    setters = tuple(dict.fromkeys((method.name, number) for method, number, _, _ in others))
    if any(method.name == "__init__" for method, _, _, _ in others):
        return None  # which of them ran is not known
    setting = {method.name for method, _, _, _ in others}
    trees = program_files(view.process.snapshot, program_frames(view))
    beside, loose = _beside(view, frame, owner, setting), loads_loosely(frame, trees)
    is_loaded = beside is not None or loose is not None
    kept = _statement(owner, empty[0][1]) or empty[0][2]
    return Placeholder(
        (name,),
        (empty[0][1],),
        shortened(ast.unparse(kept), _QUOTED) if kept is not None else "",
        () if outside else setters,
        not outside and not setters,
        beside,
        left_out(view, frame, trees, attribute, _is_buffer(owner, name)) if is_loaded else None,
        loose,
        not_persistent(view, owner, attribute, trees) if not outside else None,
    )


def _statement(owner: ast.ClassDef, line: int) -> ast.AST | None:
    return next(
        (item for item in nodes_of(owner) if isinstance(item, (ast.Expr, ast.Assign)) and item.lineno == line), None
    )


def _is_buffer(owner: ast.ClassDef, name: str) -> bool:
    """Whether register_buffer() or nn.Buffer() makes it, so that it is in no named_parameters()."""
    attribute = name.partition(".")[2]
    calls = (item for item in nodes_of(owner) if isinstance(item, ast.Call) and called_name(item) == "register_buffer")
    return any(getattr(item.args[0], "value", None) == attribute for item in calls if item.args)


def _beside(view: ProcessView, frame: PythonFrame, owner: ast.ClassDef, setting: set[str]) -> tuple[str, str] | None:
    """Another tensor of the same object that a line outside of its class gave its memory."""
    own = {item.name for item in owner.body if isinstance(item, ast.FunctionDef)} | setting
    for item in view.crash.holders if view.crash is not None else ():
        name = plain_expression(item.expression)
        if not is_of_frame(item, frame) or not item.base or not re.fullmatch(r"self\.\w+", name):
            continue
        line = line_that_made(view, item.base, quote=False)
        if line is not None and line.rpartition(".")[2].rpartition(" ")[2] not in own:
            return name, line
    return None


def _is_empty(value: ast.AST | None) -> bool:
    """`torch.empty(0, 3)`, `torch.zeros((0,))`, `torch.tensor([])`, also as a parameter or buffer."""
    if not isinstance(value, ast.Call):
        return False
    name = called_name(value) or ""
    if name in _WRAPS:
        inner = value.func.value if isinstance(value.func, ast.Attribute) and not value.args else None
        return _is_empty(inner) or (bool(value.args) and _is_empty(value.args[0]))
    if not isinstance(value.func, ast.Attribute) or ast.unparse(value.func.value) != "torch":
        return False
    if name in _OF_SIZE:
        return any(isinstance(item, ast.Constant) and item.value == 0 for item in _sizes(value, name))
    if name not in _OF_VALUES:
        return False
    return not value.args if name.endswith("Tensor") else bool(value.args) and _is_empty_list(value.args[0])


def _sizes(call: ast.Call, name: str) -> Iterator[ast.expr]:
    given = call.args[:1] if name == "full" else call.args
    for item in given:
        yield from elements(item)


def _is_empty_list(node: ast.expr) -> bool:
    return isinstance(node, (ast.List, ast.Tuple)) and not node.elts


def _reads(value: ast.AST | None, name: str) -> bool:
    """Whether a line that sets it makes it of itself: `self.rows = self.rows[keep]`."""
    return value is None or any(variable(item) == name for item in nodes_of(value))


def _cuts(owner: ast.ClassDef, name: str) -> bool:
    """Whether a method of the tensor may take its elements away."""
    methods = [
        item.func.attr
        for item in nodes_of(owner)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and variable(item.func.value) == name
    ]
    return bool({"resize_", "set_", "resize_as_"} & {*methods})
