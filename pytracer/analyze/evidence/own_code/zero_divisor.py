"""A variable that holds 0 and that the failing line passes to code that divides by zero; the line that made it."""

from __future__ import annotations

import ast

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.exceptions.name_origins import follow
from pytracer.analyze.evidence.lifetime.variables import program_frames, python_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.passed import passed
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_ROUNDS = Pattern(r"//|\bint\(|\bfloor\(|>>|\bround\(")
_OF_SELF = Pattern(r"self\.(\w+)$")
_QUOTED = 80


class ZeroDivisor(msgspec.Struct, frozen=True):
    """The only variable of the line that is 0. `origin`: `` line 30 (`self.oov = ...`) ``; `quotient`: `28 // 30`."""

    name: str
    line: int
    origin: str | None
    rounds: bool
    of_module: bool = False  # an attribute of the module that the line runs
    quotient: str | None = None

    @property
    def words(self) -> str:
        """`` `heads`, which line 18 passes, is 0 ``."""
        return f"`{self.name}` is 0" if self.of_module else f"`{self.name}`, which line {self.line} passes, is 0"

    @property
    def advice(self) -> str:
        """Where to keep it from being 0."""
        if self.origin is None:
            return (
                f"Keep `{self.name}` from being 0 where line {self.line} passes it: the function divides by a number."
            )
        if self.of_module:
            return f"Keep `{self.name}` from being 0 when line {self.line} runs the module: it is set by {self.origin}."
        here = f", here {self.quotient}" if self.quotient is not None else ""
        see = "see whether both numbers are right; " if self.quotient is not None else ""
        rounded = f"{here}, which rounds down: {see}max(1, ...) keeps it positive" if self.rounds else ""
        return f"Keep `{self.name}` from being 0, which line {self.line} passes: it comes from {self.origin}{rounded}."


def zero_divisor(view: ProcessView) -> ZeroDivisor | None:
    """None where no variable that the line passes is 0, or more than one is."""
    given, frames = passed(view), program_frames(view)
    if given is None or len(given.zeros) != 1 or not frames:
        return _of_module(view, frames) if given is None or not given.zeros else None
    name = given.zeros[0]
    found = follow(view.process.snapshot, frames, name, None)
    if found is None:
        return ZeroDivisor(name, given.line, None, rounds=False)
    place = place_of(view, found.frame.file, found.frame.line)
    origin = place.quoted(shortened(found.text, _QUOTED))
    quotient = _quotient(view, found.frame, found.text)
    return ZeroDivisor(name, given.line, origin, bool(_ROUNDS.search(found.text)), quotient=quotient)


def _quotient(view: ProcessView, frame: PythonFrame, text: str) -> str | None:
    """The numbers of `stride = size // resolution`, where its frame has both variables and neither was set again."""
    try:
        statement = ast.parse(text.strip()).body[0]
    except (SyntaxError, IndexError):
        return None
    value = statement.value if isinstance(statement, ast.Assign) else None
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.FloorDiv) or view.crash is None:
        return None
    here = (frame.file, frame.function)
    held = {
        item.expression: item.value for item in view.crash.numbers if (item.frame.file, item.frame.function) == here
    }
    numbers = [
        item.value if isinstance(item, ast.Constant) else held.get(ast.unparse(item))
        for item in (value.left, value.right)
    ]
    above, below = numbers
    if not isinstance(above, int) or not isinstance(below, int) or not below or above // below != 0:
        return None
    return f"{above} // {below}"


def _of_module(view: ProcessView, frames: list[PythonFrame]) -> ZeroDivisor | None:
    """The only attribute that is 0 of a library's module that runs, if one line of the program sets it.

    Modules have others that may be 0 (padding); the program does not set these.
    """
    innermost, frame = next(iter(python_frames(view)), None), next(iter(frames), None)
    if innermost is None or frame is None or frame.line is None or not is_library_file(innermost.file):
        return None
    crash, here = view.crash, (frame.file, frame.function, frame.line)
    zeros = [item for item in (crash.numbers if crash is not None else ()) if item.value == 0]
    runs = {match[1] for item in zeros if item.frame == innermost and (match := _OF_SELF.match(item.expression))}
    tree = syntax_tree(view.process.snapshot, frame)
    nodes = nodes_of(tree) if tree is not None else ()
    used = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call) and node.lineno == frame.line}
    found = {
        item.expression: line
        for item in zeros
        if (item.frame.file, item.frame.function, item.frame.line) == here
        for name, _, attribute in [item.expression.rpartition(".")]
        if attribute in runs and name in used and (line := _setting_line(view, frames, attribute)) is not None
    }
    if len(found) != 1:
        return None
    name, origin = found.popitem()
    return ZeroDivisor(name, frame.line, origin, rounds=False, of_module=True)


def _setting_line(view: ProcessView, frames: list[PythonFrame], attribute: str) -> LineWords | None:
    """`` line 27 (`attention.num_heads = wanted`) ``, the only one."""
    lines = {
        (file, node.lineno)
        for file, tree in program_files(view.process.snapshot, frames).items()
        for node in nodes_of(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == attribute
    }
    if len(lines) != 1:
        return None
    file, line = lines.pop()
    text = line_text(view.process.snapshot, PythonFrame(function=None, file=file, line=line)) or ""
    return place_of(view, file, line).quoted(shortened(text, _QUOTED))
