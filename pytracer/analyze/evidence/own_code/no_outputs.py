"""A layer of torch that was made with 0 outputs, and runs where native code divides by their number.

Layers of floating point give an empty result then; the quantized ones of the QNNPACK engine divide the work among
threads by the number of outputs. The number is recorded as an attribute of the module that runs; the line of the
program that made the layer is found by its class, and by what it passes for the outputs: what may be 0.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.lifetime.variables import line_words, plain_expression, program_frames, python_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.native_stack import functions
from pytracer.analyze.evidence.own_code.empty_source import empty_source, is_never_empty
from pytracer.analyze.evidence.preconditions.modules import called_module
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, keyword_value
from pytracer.analyze.evidence.syntax.constants import constant_number
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.positive import may_be_zero
from pytracer.analyze.evidence.syntax.scopes import statement_at
from pytracer.analyze.evidence.syntax.set_attributes import SetAttribute
from pytracer.analyze.naming import LineWords
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import PythonFrame
from pytracer.report import job as r

_OUTPUTS = ("out_features", "out_channels", "hidden_size")  # the second argument of each constructor
_PLACE, _MOST, _QUOTED = 1, 2, 80
_QNNPACK = "qnnp"


class NoOutputs(msgspec.Struct, frozen=True):
    """`layer`: `head`, of the class `kind`, whose `attribute` is 0. `made`: the lines that may have made it.

    `passed`: what these pass for the outputs; `source`: what makes that 0, and its line. `line`: that runs it.
    `is_bound`: whether one of these sets what the layer is called by.
    """

    layer: str | None
    kind: str
    attribute: str
    line: str
    made: tuple[LineWords, ...]
    passed: str | None
    source: LineWords | None
    is_qnnpack: bool
    is_bound: bool = True

    @property
    def words(self) -> str:
        """`` `head`, a quantized Linear, has 0 outputs (`out_features`): line 19 (`...`) makes it with `n` ``."""
        kind = f"quantized {self.kind}" if self.is_qnnpack else self.kind
        named = f"`{self.layer}`, a {kind}," if self.layer is not None else f"the {kind} that {self.line} runs"
        makes = "makes" if self.is_bound else "may make"
        made = f": {list_words(list(self.made), conjunction='or')} {makes} it" if self.made else ""
        count = f" with `{self.passed}`" if self.passed is not None and made else ""
        source = f"; the count comes from {self.source}" if self.source is not None else ""
        return f"{named} has 0 outputs (`{self.attribute}`){made}{count}{source}"

    @property
    def advice(self) -> str:
        """The case to leave out."""
        of = f"`{self.layer}`" if self.layer is not None else f"the {self.kind}"
        where = f" at {self.made[0].partition(' (')[0]}" if self.is_bound and len(self.made) == 1 else ""
        count = f"`{self.passed}`" if self.is_bound and self.passed is not None else f"`{self.attribute}`"
        filled = f", or give {self.source} what belongs there" if self.source is not None else ""
        engine = (
            f", or keep {of} a layer of floating point: the QNNPACK engine divides by the number of outputs; float "
            "layers and the engine `x86` give an empty result"
            if self.is_qnnpack
            else ": the native code that it runs divides by 0"
        )
        return f"Make and run no layer{where} where {count} is 0{filled}{engine}."


def no_outputs(view: ProcessView) -> NoOutputs | None:
    """None where no module of torch runs at the program's line, or none of its numbers of outputs is 0."""
    crash, frames = view.crash, program_frames(view)
    running = _running(view)
    if crash is None or running is None or not frames or frames[0].line is None:
        return None
    frame, attribute = running
    kind = (frame.function or "").rpartition(".")[0]
    own = (frames[0].file, frames[0].function, frames[0].line)
    names = {
        plain_expression(item.expression).rpartition(".")[0]
        for item in crash.numbers
        if (item.frame.file, item.frame.function, item.frame.line) == own
        and item.value == 0
        and item.expression.rpartition(".")[2] == attribute
    } - {"self", ""}
    layer = names.pop() if len(names) == 1 else called_module(view, frame)
    files = program_files(view.process.snapshot, frames)
    made = _constructions(files, kind, attribute)
    called = {layer} if layer is not None else _called(files.get(frames[0].file or ""), frames[0].line)
    bound = [item for item in made if any(_binds(files[item[0]], item[1], name) for name in _names(called))]
    made = bound or [item for item in made if not _sets_attribute(files[item[0]], item[1])]
    made = [item for item in made if not is_never_empty(files, item[0], item[2])]
    found = made if len(made) <= _MOST else []
    texts = {ast.unparse(value) for _, _, value in found}
    sources = {item for file, _, value in found if (item := empty_source(files, file, value)) is not None}
    source = sources.pop() if bound and len(sources) == 1 else None
    return NoOutputs(
        layer,
        kind,
        attribute,
        line_words(view),
        tuple(_line(view, file, call.lineno) for file, call, _ in found),
        texts.pop() if len(texts) == 1 else None,
        place_of(view, source.file, source.line).quoted(source.text) if source is not None else None,
        any(_QNNPACK in name.lower() for name in functions(view)),
        bool(bound),
    )


def _running(view: ProcessView) -> tuple[PythonFrame, str] | None:
    """The innermost forward() of a module that has a number of outputs, which is 0."""
    for frame in python_frames(view):
        if not is_library_file(frame.file):
            return None
        if not (frame.function or "").endswith(".forward"):
            continue
        recorded = view.crash.numbers if view.crash is not None else ()
        numbers = {item.expression: item.value for item in recorded if item.frame == frame}
        known = [name for name in _OUTPUTS if f"self.{name}" in numbers]
        return (frame, known[0]) if len(known) == 1 and numbers[f"self.{known[0]}"] == 0 else None
    return None


def _constructions(files: Mapping[str, ast.Module], kind: str, attribute: str) -> list[tuple[str, ast.Call, ast.expr]]:
    """Calls of the class whose number of outputs may be 0, with that argument."""
    found = []
    for file, tree in files.items():
        for call in nodes_of(tree):
            if not isinstance(call, ast.Call) or called_name(call) != kind:
                continue
            value = keyword_value(call, attribute) or (call.args[_PLACE] if len(call.args) > _PLACE else None)
            if value is None or constant_number(value, tree) not in (None, 0):
                continue
            if may_be_zero(tree, SetAttribute(call.lineno, kind, value)):
                found.append((file, call, value))
    return found


def _called(tree: ast.Module | None, line: int) -> set[str]:
    """What the line calls by a name: the modules that it runs are among them."""
    calls = calls_on(tree, line) if tree is not None else []
    return {name for item in calls if (name := variable(item.func)) is not None}


def _names(called: Iterable[str]) -> set[str]:
    """By which a line may set it: `self.heads` for `self.heads[0]`, and `self.head`, in its class, for `net.head`."""
    containers = {name.partition("[")[0] for name in called}
    return {*containers, *(f"self.{name.rpartition('.')[2]}" for name in containers if "." in name)}


def _sets_attribute(tree: ast.Module, call: ast.Call) -> bool:
    """Whether the layer that it makes is called by another name than the one that runs."""
    statement = statement_at(tree, call.lineno)
    targets = statement.targets if isinstance(statement, ast.Assign) else ()
    return any((variable(item) or "").startswith("self.") for item in targets)


def _binds(tree: ast.Module, call: ast.Call, layer: str) -> bool:
    """Whether the statement sets what the layer is called by: `self.fc`, or `self.heads`, whose items are `head`."""
    statement = statement_at(tree, call.lineno)
    targets = {variable(item) for item in (statement.targets if isinstance(statement, ast.Assign) else ())}
    return layer in targets or any(target in _iterated(tree, layer) for target in targets if target)


def _iterated(tree: ast.Module, name: str) -> Iterator[str]:
    """`self.heads` of `for key, head in self.heads.items()`."""
    loops = (item for item in nodes_of(tree) if isinstance(item, (ast.For, ast.comprehension)))
    for loop in loops:
        if any(isinstance(item, ast.Name) and item.id == name for item in nodes_of(loop.target)):
            yield from (text for item in nodes_of(loop.iter) if isinstance(item, ast.expr) and (text := variable(item)))


def _line(view: ProcessView, file: str, line: int) -> LineWords:
    text = line_text(view.process.snapshot, r.PythonFrame(function=None, file=file, line=line)) or ""
    return place_of(view, file, line).quoted(shortened(text, _QUOTED))
