"""The variable whose memory a tensor got by its address alone, and which ended: `_from_blob(x.ctypes.data, ...)`.

What is made of an address keeps nothing: the array ends with the function whose variable alone held it, with the next
round of a loop, or as a temporary with its line. Large arrays are unmapped then; small ones stay readable by luck.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.borrowing import borrowed_at
from pytracer.analyze.evidence.lifetime.unmapping import unmapping_of
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.fault_function import is_numpy
from pytracer.analyze.evidence.own_code.native_calls import Uses, parents_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.given_memory import GivenMemory, Search
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.lines import names_of_line
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, qualified_name, scope_of, statement_at
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_QUOTED = 60
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# What makes a tensor of the same memory that holds its owner, by how the address was taken.
_HOLDING = {"data_ptr()": "`{0}` itself (or a view of it)", "ctypes.data": "torch.from_numpy({0})"}
_ARRAY_INTERFACE = "torch.from_numpy({0})"
_ANY_BUFFER = "torch.frombuffer({0}, dtype=...)"
# Methods and functions whose results hold no memory of the array that they are given.
_NUMBERS = frozenset(
    ("mean", "sum", "min", "max", "std", "var", "any", "all", "item", "tolist", "tobytes", "astype", "copy", "clone")
    + ("fill", "sort", "itemsize", "ndim", "__array_interface__", "buffer_info", "flags", "is_contiguous", "typecode")
)
_LOOKS = frozenset(
    ("print", "len", "isinstance", "float", "readinto", "readinto1", "recv_into", "readinto_", "copyto", "isfinite")
    + ("isnan", "addressof", "allclose", "info", "debug")
)


class EndedOwner(msgspec.Struct, frozen=True):
    """`owner` of `function`, which `made` made, whose address `taken` (`values.ctypes.data`) is all a tensor got.

    `given`: the line that takes the address. `ended`: in words, when it was freed. `is_variable`: or a temporary.
    """

    owner: str
    is_variable: bool
    function: str
    made: LineWords
    taken: str
    how: str
    given: LineWords
    ended: str
    of_array: bool = False
    """Whether an array of NumPy was made of it, and no tensor."""
    assumed: bool = False
    """Whether it was made by a function that may have lent what something else holds."""

    @property
    def summary(self) -> str:
        """Behind the headline."""
        own = f"its variable `{self.owner}`" if self.is_variable else f"`{self.owner}`, a temporary"
        of = f" of {self.function}()" if self.function != "<module>" else ""
        what = f"`{self.owner}`{of}" if self.is_variable else own
        return (
            f"its memory was {'likely ' if self.assumed else ''}that of {what} ({self.made}), which {self.ended}, as "
            f"{self.given} takes only the address, `{self.taken}`"
        )

    @property
    def advice(self) -> str:
        """The change to make."""
        default = _ARRAY_INTERFACE if "__array_interface__" in self.how else _ANY_BUFFER
        what, copy = ("array", "copy()") if self.of_array else ("tensor", "clone()")
        holding = _HOLDING.get(self.how, default).format(self.owner)
        if self.of_array:
            holding = f"`{self.owner}` itself (or a view of it)"
        keep = f"keep `{self.owner}` with the {what}" if self.is_variable else f"keep it in a variable with the {what}"
        late = f"once {self.function}() has returned" if self.function != "<module>" else "later"
        return (
            f"Use {holding} at {self.given} instead of `{self.taken}`: it shares the memory, too, and keeps it, which "
            f"an address does not. Or {keep} for as long as that is used, or {copy} the {what} there: {late}, it is "
            f"too late. Smaller ones are freed as well, and are not unmapped: a {what} of them reads what others "
            "write there, without a crash, so check the results so far."
        )


def ended_owner(view: ProcessView) -> EndedOwner | None:
    """None where the tensor at the fault was not made of an address, or what had it may be alive or was unmapped."""
    borrowed = borrowed_at(view)
    files, spot = borrowed if borrowed is not None else (None, None)
    statement = statement_at(spot.tree, spot.line) if spot is not None else None
    if files is None or spot is None or statement is None:
        return None
    search = Search(files)
    owners = {ast.unparse(item.owner): item for item in search.given(statement, spot)}
    given = next(iter(owners.values())) if len(owners) == 1 else None
    return ended_given(view, search, given) if given is not None else None


def ended_array(view: ProcessView) -> EndedOwner | None:
    """Of what the failing line passes to NumPy, by its source alone: the only array that was made of an address."""
    frame = next(iter(program_frames(view)), None)
    if (
        frame is None
        or frame.file is None
        or frame.line is None
        or not is_numpy(view)
        or unmapping_of(view) is not None
    ):
        return None
    files = program_files(view.process.snapshot, program_frames(view))
    tree = files.get(frame.file)
    if tree is None:
        return None
    spot, search = Spot(frame.file, tree, scope_of(tree, frame.line), frame.line), Search(files)
    named = (ast.parse(name, mode="eval").body for name in names_of_line(tree, frame.line))
    found = {ast.unparse(item.owner): item for node in named for item in search.given(node, spot)}
    given = next(iter(found.values())) if len(found) == 1 else None
    found_owner = ended_given(view, search, given) if given is not None else None
    return structs.replace(found_owner, of_array=True) if found_owner is not None else None


def ended_given(view: ProcessView, search: Search, given: GivenMemory) -> EndedOwner | None:
    """What an address was taken of; None where that may be alive."""
    owner, spot = search.held(given.owner, given.spot)
    if not search.is_fresh(owner, spot):
        return None
    function = qualified_name(spot.tree, spot.scope)
    at = place_of(view, given.spot.file, given.line)
    line = getattr(owner, "lineno", given.line)
    if not isinstance(owner, ast.Name):
        ended = "was freed as soon as that line had run"
        text = shortened(ast.unparse(owner), _QUOTED)
        return EndedOwner(
            text,
            False,
            function,
            place_of(view, spot.file, line),
            given.text,
            given.how,
            at,
            ended,
            assumed=search.assumed,
        )
    bound = [item for item in lines_that_bind(spot.scope, owner.id) if item[0] <= line]
    if not bound or _keeps(spot, owner.id) or any(_shares(spot, owner.id, item[0]) for item in bound):
        return None
    words = _when(view, spot, owner.id, line)
    statement = statement_at(spot.tree, max(item[0] for item in bound))
    if words is None or statement is None:
        return None
    text = shortened(ast.unparse(statement), _QUOTED) if not isinstance(statement, ast.With) else owner.id
    made = place_of(view, spot.file, statement.lineno).then(f": `{text}`")
    return EndedOwner(owner.id, True, function, made, given.text, given.how, at, words, assumed=search.assumed)


def _when(view: ProcessView, spot: Spot, name: str, line: int) -> str | None:
    """When the variable let it go; None where it may still hold it."""
    running = [
        frame.line for frame in program_frames(view)
        if frame.file == spot.file and frame.line and scope_of(spot.tree, frame.line) is spot.scope
    ]  # fmt: skip
    stays = any(isinstance(item, (ast.Yield, ast.YieldFrom)) for item in own_nodes(spot.scope))
    inside = any(_binds_inside(item, spot, name) for item in loops_around(spot.tree, line))
    anew = f"the next round of its loop bound `{name}` anew"
    if isinstance(spot.scope, _FUNCTIONS) and not running and not stays:
        return f"was freed when {f'{anew}, or when ' * inside}{spot.scope.name}() returned"
    deleted = [node.lineno for node in own_nodes(spot.scope) if isinstance(node, ast.Delete) and _deletes(node, name)]
    if running and len(deleted) == 1 and line < deleted[0] < min(running):
        return f"was freed by `del {name}` at {place_of(view, spot.file, deleted[0])}"
    return f"was freed when {anew}" if inside else None


def _binds_inside(loop: ast.stmt, spot: Spot, name: str) -> bool:
    lines = (line for line, value in lines_that_bind(spot.scope, name) if value is not None)
    return any(loop.lineno < line <= (loop.end_lineno or 0) for line in lines)


def _deletes(node: ast.Delete, name: str) -> bool:
    return any(isinstance(item, ast.Name) and item.id == name for item in node.targets)


def _shares(spot: Spot, name: str, line: int) -> bool:
    """Whether the line gives the array to something else as well: `values = self.values = np.zeros(n)`."""
    node = statement_at(spot.tree, line)
    others = [item for item in node.targets if variable(item) != name] if isinstance(node, ast.Assign) else []
    return isinstance(node, ast.Assign) and len(node.targets) > 1 and bool(others)


def _keeps(spot: Spot, name: str) -> bool:
    """Whether anything else may hold the array: then it did not end with the variable."""
    uses = Uses(parents_of(spot.tree), _looks_at, is_read=lambda node: node.attr in _NUMBERS)
    return uses.keep(spot.scope, name, {*_lines_before(spot, name)})


def _lines_before(spot: Spot, name: str) -> Iterator[int]:
    """Lines that make the variable of itself, such as `values = values.reshape(-1)`."""
    for line, value in lines_that_bind(spot.scope, name):
        if value is not None and any(isinstance(item, ast.Name) and item.id == name for item in nodes_of(value)):
            yield line


def _looks_at(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and called_name(node) in _LOOKS
