"""An attribute of a library's module that its line passes on, and that a line of the program may set to 0.

A constructor checks what it is given; an attribute that is set afterwards nobody checks. Mostly its value is not
recorded: where just one attribute of the call is set by the program, at just one line, to what may be 0, that is the
likely divisor.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames, python_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.constructors import ConstructorReader
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.positive import may_be_zero
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.evidence.syntax.set_attributes import SetAttribute, lines_that_set_attribute
from pytracer.analyze.known.operators import preconditions
from pytracer.analyze.naming import LineWords
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import PythonFrame
from pytracer.report import job as r

_QUOTED = 80
_LEAST_ONE = " >= 1"


class SetDivisor(msgspec.Struct, frozen=True):
    """`name`: `num_heads`; `owner`: whose method passes it; `line`: where the program sets it, with its text.

    `recorded`: that it is 0. `value`: the variable that it is set to, and `origin`: the line that made that.
    `checked_by`: the class whose constructor checks such an argument.
    """

    name: str
    owner: str
    line: str
    frame: r.PythonFrame
    recorded: bool = False
    value: str | None = None
    origin: str | None = None
    checked_by: str | None = None

    @property
    def words(self) -> str:
        """`` `num_heads`, which Layer.forward passes, is probably 0: it is set by line 50 (`...`) ``."""
        sure = "0" if self.recorded else "probably 0"
        return f"`{self.name}`, which {self.owner} passes, is {sure}: it is set by {self.line}"

    @property
    def advice(self) -> str:
        """What to change at which line."""
        what = f"`{self.value}`" if self.value is not None else f"`{self.name}`"
        comes = f", which comes from {self.origin}" if self.origin is not None else ""
        unchecked = (
            f"The constructor of {self.checked_by} checks `{self.name}`; an attribute that is set later is not checked."
            if self.checked_by is not None
            else "An attribute that is set after the module was made is not checked."
        )
        return (
            f"Keep {what} from being 0 at {self.line}{comes}: {self.owner} passes `{self.name}` to the native code "
            f"that divides. {unchecked}"
        )


def set_divisor(view: ProcessView) -> SetDivisor | None:
    """None where the innermost line is the program's own, or what is set at several lines may be it."""
    innermost, frames = next(iter(python_frames(view)), None), program_frames(view)
    if innermost is None or innermost.line is None or not frames or not is_library_file(innermost.file):
        return None
    frame = python_frame(innermost)
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None:
        return None
    (others, zeros), reader = _known(view, innermost), ConstructorReader(view.process.snapshot, tree, innermost)
    candidates = _passed_attributes(tree, innermost.line)
    passed = {name for name, positive in candidates if positive or reader.checked_by(name) is not None}
    passed = passed & zeros or passed - others
    owner = (innermost.function or "").rpartition(".")[0]
    found = [
        (expression, file, setting)
        for expression in sorted(passed)
        for file, own in program_files(view.process.snapshot, frames).items()
        for setting in lines_that_set_attribute(own, expression.rpartition(".")[2])
        if not _is_of_another_class(own, setting, owner) and may_be_zero(own, setting)
    ]
    if len(found) != 1:
        return None
    expression, file, setting = found[0]
    line = _line_words(view, file, setting.line)
    if line is None:
        return None
    name = expression.rpartition(".")[2]
    value = setting.value.id if isinstance(setting.value, ast.Name) else None
    return SetDivisor(
        name,
        innermost.function or "the library",
        line,
        r.PythonFrame(function=None, file=file, line=setting.line),
        expression in zeros,
        value,
        _origin(view, frames, file, setting),
        reader.checked_by(expression),
    )


def _passed_attributes(tree: ast.Module, line: int) -> Iterator[tuple[str, bool]]:
    """`self.self_attn.num_heads` of what the line passes, and whether it is known that it must be 1 at least.

    Where that is known of some, only these.
    """
    for call in calls_on(tree, line)[:1]:
        entry = preconditions().get(called_name(call) or "")
        names = entry.arguments.split() if entry is not None else []
        must = entry.must if entry is not None else ()
        positive = {text.removesuffix(_LEAST_ONE) for text in must if text.endswith(_LEAST_ONE)}
        places = {names.index(name) for name in positive if name in names}
        for place, item in enumerate(passed_values(call)):
            if not places or place in places:
                yield from ((name, bool(places)) for name in _attributes(tree, line, item))


def _attributes(tree: ast.Module, line: int, item: ast.expr) -> Iterator[str]:
    if isinstance(item, (ast.Tuple, ast.List)):
        for part in item.elts:
            yield from _attributes(tree, line, part)
    elif isinstance(item, ast.Name):  # `heads = self.num_heads` above
        bound = [value for at, value in lines_that_bind(scope_of(tree, line), item.id) if at < line]
        if len(bound) == 1 and isinstance(bound[0], ast.Attribute):
            yield from _attributes(tree, line, bound[0])
    elif isinstance(item, ast.Attribute):
        root: ast.expr = item
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and root.id == "self":
            yield ast.unparse(item)


def _known(view: ProcessView, frame: PythonFrame) -> tuple[set[str], set[str]]:
    """Attributes that are recorded as tensors or as other numbers than 0; and those that are 0."""
    crash = view.crash
    if crash is None:
        return set(), set()
    numbers = {item.expression: item.value for item in crash.numbers if item.frame == frame}
    zeros = {name for name, value in numbers.items() if value == 0}
    return ({*numbers} - zeros) | {item.expression for item in crash.holders if item.frame == frame}, zeros


def _is_of_another_class(tree: ast.Module, setting: SetAttribute, owner: str) -> bool:
    """Whether it is `self.num_heads` of a class of the program that is not derived from the library's."""
    if setting.owner != "self":
        return False
    around = [
        item
        for item in nodes_of(tree)
        if isinstance(item, ast.ClassDef) and item.lineno <= setting.line <= (item.end_lineno or 0)
    ]
    return not any(ast.unparse(base).endswith(owner) for item in around[-1:] for base in item.bases)


def _line_words(view: ProcessView, file: str, line: int) -> LineWords | None:
    text = line_text(view.process.snapshot, r.PythonFrame(function=None, file=file, line=line))
    return place_of(view, file, line).quoted(shortened(text, _QUOTED)) if text is not None else None


def _origin(view: ProcessView, frames: Sequence[r.PythonFrame], file: str, setting: SetAttribute) -> str | None:
    """The first line above that makes the variable which is set."""
    tree = program_files(view.process.snapshot, frames).get(file)
    if tree is None or not isinstance(setting.value, ast.Name):
        return None
    bound = lines_that_bind(scope_of(tree, setting.line), setting.value.id)
    lines = [at for at, value in bound if at < setting.line and value is not None]
    return _line_words(view, file, lines[-1]) if lines else None
