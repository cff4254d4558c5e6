"""The object that owned memory and that the program closed while arrays or tensors of its buffer were in use.

`SharedMemory.close()` and `mmap.close()` unmap the memory. What was made of the buffer by `np.ndarray(buffer=...)`,
`np.frombuffer()` or torch.frombuffer() does not stop them, and does not know.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.lifetime.dropped_owner import dropped_owner
from pytracer.analyze.evidence.lifetime.unmapping import unmapping_line, unmapping_of
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.syntax.bindings import set_from_outside
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.names import holds, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import ENTRY, UNKNOWN, reaching
from pytracer.analyze.evidence.syntax.scopes import Scope, all_parameters, class_around, own_nodes, scope_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_QUOTED = 60
_CLOSES = ("close", "release", "unmap", "__exit__")
_COPIES = ("copy", "clone", "tobytes", "tolist", "deepcopy")
_NUMBERS = ("item", "mean", "sum", "len", "max", "min", "print", "format")
_SHOWN = 2


class ClosedOwner(msgspec.Struct, frozen=True):
    """`name`: of the object, `shm`; `call`: what closed it, at `at`; `made`: the line that bound it.

    `views`: what was made of it there, with the lines. `used`: the line of a caller that was to be over first, and
    `called`: its line that had called what closed it.
    """

    name: str
    call: str
    at: LineWords
    made: LineWords | None
    views: tuple[tuple[str, LineWords], ...]
    used: LineWords | None
    called: LineWords | None = None
    is_with: bool = False

    @property
    def by(self) -> str:
        """Who unmapped it: `` `shm.close()` at line 43 in build_loader ``."""
        return f"{self.call} at {self.at}"

    @property
    def still(self) -> str:
        """What is still made of it, behind the headline's words; or nothing."""
        return f"; {self.at_views} {'are' if len(self.views) > 1 else 'is'} made of it" if self.views else ""

    @property
    def at_views(self) -> str:
        """`` `series` (line 37) ``."""
        return list_words([f"`{name}` ({line})" for name, line in self.views[:_SHOWN]])

    def advice(self, what: str) -> str:
        """What to keep open, and until when. `what`: the tensor, or its memory."""
        made = f" ({self.made})" if self.made is not None else ""
        last = f"until {self.used} has run for the last time"
        until = last if self.used is not None else f"for as long as {what} is used"
        first = self.views[0] if self.views else None
        copied = f"`{first[0]}` ({first[1]}: `.copy()` or `.clone()`)" if first is not None else "the data"
        called = f", which {self.called} calls" if self.called is not None else ""
        later = (
            "and end that `with` behind it"
            if self.is_with
            else f"keep a reference to it, return it with the data or set it as an attribute, and move {self.call} "
            f"({self.at}{called}) behind that"
        )
        return (
            f"Keep `{self.name}`{made} open {until}{', ' if self.is_with else ': '}{later}. Or copy {copied} before: "
            f"no array or tensor that is made of its buffer keeps the memory of `{self.name}` mapped."
        )


def closed_owner(view: ProcessView) -> ClosedOwner | None:
    """None where no line of the program closed it by a call or a `with` of its own, or its object was collected."""
    unmapping = unmapping_of(view)
    frame = unmapping_line(unmapping) if unmapping is not None else None
    tree = syntax_tree(view.process.snapshot, frame)
    if unmapping is None or frame is None or frame.line is None or tree is None or dropped_owner(view) is not None:
        return None
    scope = scope_of(tree, frame.line)
    closing = [*_closing(tree, scope, frame.line)]
    if len(closing) != 1:
        return None
    name, call = closing[0]
    bound = _bound(tree, scope, name, frame.line)
    made = _quoted(view, frame.file, bound, "{}: `{}`") if bound is not None else None
    views = [found for one in _scopes(tree, scope, name) for found in _made_of(one, name, frame.line)]
    shown = tuple((text, place_of(view, frame.file, line)) for text, line in views[:_SHOWN])
    stack = [python_frame(item) for item in unmapping.stack]
    at = place_of(view, frame.file, frame.line).then(f" in {frame.function}")
    used, called = _used(view, stack)
    return ClosedOwner(name, call, at, made, shown, used, called, call.endswith(f"as {name}`"))


def _closing(tree: ast.Module, scope: Scope, line: int) -> Iterator[tuple[str, str]]:
    """What is closed there, and by what: `` `shm.close()` ``."""
    for call in calls_on(tree, line):
        if called_name(call) in _CLOSES and isinstance(call.func, ast.Attribute) and not call.args:
            owner = ast.unparse(call.func.value)
            yield owner, f"`{owner}.{call.func.attr}()`"
    for item in own_nodes(scope):
        if isinstance(item, ast.With) and item.lineno == line:
            for one in item.items:
                name = variable(one.optional_vars) if one.optional_vars is not None else None
                if name is not None and isinstance(one.context_expr, ast.Call):
                    yield name, f"the end of `with ... as {name}`"


def _bound(tree: ast.Module, scope: Scope, name: str, line: int) -> int | None:
    """The only line that can have given the variable, or the attribute of the class, the object that is closed."""
    given = dict[int, list[ast.AST | None]]()
    for one in _scopes(tree, scope, name):
        for at, value, _ in bindings_of(one, name):
            given.setdefault(at, []).append(value)
    places = _places(tree, scope, name, line, given)
    nothing = {at for at, values in given.items() if all(is_none(item) for item in values)}
    withs = [item for item in own_nodes(scope) if isinstance(item, ast.With) and item.lineno == line]
    held = any(one.optional_vars is not None and holds(one.optional_vars, name) for item in withs for one in item.items)
    places = ({line} if held else places) - nothing
    at = places.pop() if len(places) == 1 else UNKNOWN
    made = given.get(at, [])
    return at if (held and at == line) or (len(made) == 1 and isinstance(made[0], ast.Call)) else None


def _places(tree: ast.Module, scope: Scope, name: str, line: int, given: Iterable[int]) -> set[int]:
    """The lines that can have bound it, also UNKNOWN ones."""
    if name.startswith("self."):
        owner = class_around(tree, scope)
        outside = set_from_outside(tree, owner, name.removeprefix("self.")) if owner is not None else [UNKNOWN]
        return {*given, *outside}
    shared = any(isinstance(item, ast.Global) and name in item.names for item in nodes_of(tree))
    found = {UNKNOWN} if shared else {*(reaching(scope, name, line) or (UNKNOWN,))}
    return found if name in all_parameters(scope) else found - {ENTRY}


def _scopes(tree: ast.Module, scope: Scope, name: str) -> list[Scope]:
    """The function; of an attribute of the object the methods of its class."""
    around = class_around(tree, scope) if name.startswith("self.") else None
    return [item for item in around.body if isinstance(item, ast.FunctionDef)] if around is not None else [scope]


def _made_of(scope: Scope, name: str, line: int) -> Iterator[tuple[str, int]]:
    """Variables that got its buffer: `series = np.ndarray(..., buffer=shm.buf)`."""
    for item in own_nodes(scope):
        if not isinstance(item, ast.Assign) or len(item.targets) != 1 or not isinstance(item.value, ast.Call):
            continue
        target, inside = variable(item.targets[0]), [*nodes_of(item.value)]
        copied = any(isinstance(one, ast.Call) and called_name(one) in (*_COPIES, *_NUMBERS) for one in inside)
        given = any(isinstance(one, ast.expr) and ast.unparse(one) in (name, f"{name}.buf") for one in inside)
        if target is not None and target != name and given and not copied and item.lineno != line:
            yield target, item.lineno


def _used(view: ProcessView, stack: list[PythonFrame]) -> tuple[LineWords | None, LineWords | None]:
    """The line that was running, of the function that had also called what closed it, and its line that had."""
    for frame in program_frames(view):
        both = [one for one in stack if (one.file, one.function) == (frame.file, frame.function)]
        if both and frame.line is not None:
            if any(one.line == frame.line for one in both):
                return None, None  # one call did both
            own = both[0] is _innermost(stack)
            called = place_of(view, frame.file, both[0].line) if not own else None
            return _quoted(view, frame.file, frame.line, "{} (`{}`)"), called
    return None, None


def _innermost(stack: list[PythonFrame]) -> PythonFrame | None:
    """The innermost line of the program."""
    return next((one for one in stack if not is_library_file(one.file)), None)


def _quoted(view: ProcessView, file: str | None, line: int, form: str) -> LineWords:
    at = PythonFrame(function=None, file=file, line=line)
    text = line_text(view.process.snapshot, at)
    words = place_of(view, file, line)
    return LineWords(form.format(words, shortened(text, _QUOTED)), words.file, words.line) if text else words
