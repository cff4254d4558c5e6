"""A number that does not fit, and is what the program pads rows with: padding that is read as if it were data.

`pad_sequence(labels, padding_value=FILL)` together with lengths that are all the padded width: what lies behind a row's
length is never read, so the number does no harm where the lengths are those of the rows.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

import msgspec
from msgspec import structs

from pytracer._text import capital, shortened
from pytracer.analyze.evidence.indices.written_value import constant
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.preconditions.call import BoundCall
from pytracer.analyze.evidence.preconditions.terms import Broken
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.keepers import set_by
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

# What fills, where the number is passed by position, and by which keywords.
_PADS = {
    "pad_sequence": (2, ("padding_value",)),
    "pad_packed_sequence": (2, ("padding_value",)),
    "pad": (3, ("value", "constant_values")),
    "ConstantPad1d": (1, ("value",)),
    "zip_longest": (None, ("fillvalue",)),
    "full": (1, ("fill_value",)),
    "new_full": (1, ("fill_value",)),
    "full_like": (1, ("fill_value",)),
}
_FILLS = frozenset({"full", "new_full", "full_like"})
_LENGTHS = frozenset({*_FILLS, "tensor", "LongTensor", "IntTensor", "as_tensor"})
_PADDED = frozenset({"pad_sequence"})
_WIDTHS = (1, -1)
_LEAST, _QUOTED = 2, 70
_NOTHING = ast.parse("")


class Padding(msgspec.Struct, frozen=True):
    """`line` (`text`) puts `value` where rows are shorter. `width`: of the padded rows, where their lengths are that.

    `lengths`: as the program calls them; `counting`: the line that makes them, with its text. `rows`: what was given to
    pad_sequence().
    """

    value: int
    line: LineWords
    text: str
    verb: str
    lengths: str | None = None
    width: int | None = None
    counting: LineWords | None = None
    rows: str | None = None

    @property
    def words(self) -> str:
        """`` line 79 pads with it, and `lengths` counts the padding: it is 7 for each row, the padded width ``."""
        counted = f", and {self._lengths} count the padding: {self.width} for each row, the padded width"
        return f"{self.line} {self.verb} with it{counted if self.width is not None else ''}"

    @property
    def _lengths(self) -> str:
        return f"the lengths in {self.lengths}" if self.lengths is not None else "the lengths"

    def advice(self, culprit: str, operator: str, limit: str) -> str:
        """To pass the length of each row; to pad with what fits is a way to hide it."""
        first = f"{self.value} is what {self.line} (`{self.text}`) {self.verb} with"
        if self.width is None:
            return (
                f"{first}: pass {culprit} without its padding. What {operator} reads must be {limit}, and it does not "
                "check that."
            )
        makes = f" {capital(self.counting)} makes them." if self.counting is not None else ""
        own = f" (`torch.tensor([len(row) for row in {self.rows}])`)" if self.rows is not None else ""
        return (
            f"{first}, and {self._lengths} are {self.width} for each row, as wide as {culprit} is with its padding, so "
            f"that {operator} takes the padding for data.{makes} Pass the length that each row had before{own}: what "
            f"lies behind that is not read. Another number to pad with would only hide this; {operator} does not check "
            f"that what it reads is {limit}."
        )


def padding(view: ProcessView, call: BoundCall, found: Broken) -> Padding | None:
    """None where no line of the program, or more than one, pads with the number."""
    name, value = found.left.argument or "", found.left.value
    if name not in call.entry.padded or found.left.function not in ("min", "max") or 0 <= value < _LEAST:
        return None
    tensor = call.given[name].tensor
    other = None if tensor is None else tensor.minimum if value >= found.right.value else tensor.maximum
    if tensor is None or other is None or (other < found.right.value) != (value >= found.right.value):
        return None  # the others do not fit either
    files = program_files(view.process.snapshot, program_frames(view))
    pads = {(file, node.lineno): node for file, tree in files.items() for node in _padding(tree, value)}
    if len(pads) != 1:
        return None
    ((file, line), node) = pads.popitem()
    lengths = call.given.get(call.entry.padded[name])
    pads_rows = isinstance(node, ast.Call) and called_name(node) in _PADDED
    made = Padding(value, place_of(view, file, line), shortened(ast.unparse(node), _QUOTED), _verb(node))
    if len(tensor.sizes or ()) < _LEAST:
        return made  # the rows are one behind the other
    rows = node.args[0] if pads_rows and isinstance(node, ast.Call) and node.args else None
    return structs.replace(
        made,
        lengths=lengths.name if lengths is not None else None,
        width=tensor.sizes[-1],
        counting=_counting_line(view, files, file, node, call),
        rows=ast.unparse(rows) if isinstance(rows, ast.Name) else None,
    )


def _verb(node: ast.expr) -> str:
    return "pads" if not isinstance(node, ast.Call) or called_name(node) not in _FILLS else "fills"


def _padding(tree: ast.Module, value: int) -> Iterator[ast.expr]:
    """`pad_sequence(rows, padding_value=PAD)`, `torch.full((n, longest), PAD)`, `[PAD] * missing`."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and called_name(node) in _PADS:
            at, names = _PADS[called_name(node) or ""]
            given = keyword_value(node, *names)
            if given is None and at is not None and len(node.args) > at:
                given = node.args[at]
            if given is not None and constant(given, tree) == value:
                yield node
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for part in (node.left, node.right):
                if isinstance(part, ast.List) and len(part.elts) == 1 and constant(part.elts[0], tree) == value:
                    yield node


def _counting_line(
    view: ProcessView, files: dict[str, ast.Module], file: str, node: ast.expr, call: BoundCall
) -> LineWords | None:
    """`` line 80 (`lengths = torch.full((len(targets),), targets.size(1))`) ``: the only one with the padded width.

    Beside the line that pads, or in the function that passes both.
    """
    scope = scope_of(files[file], node.lineno)
    names = {
        name
        for item in own_nodes(scope)
        if isinstance(item, ast.stmt)
        for name, value in set_by(item)
        if _has(value, node)
    }
    found = {(file, item.lineno): item for item in _counting(scope, names)}
    if call.file in files:
        passing = scope_of(files[call.file], call.line)
        found |= {(call.file, item.lineno): item for item in _counting(passing, set(call.texts.values()))}
    if len(found) != 1:
        return None
    ((at, line), statement) = found.popitem()
    return place_of(view, at, line).quoted(shortened(ast.unparse(statement), _QUOTED))


def _has(value: ast.AST | None, node: ast.expr) -> bool:
    return value is not None and any(item is node for item in nodes_of(value))


def _counting(scope: Scope, names: Collection[str]) -> Iterator[ast.Assign]:
    """Assignments that give each row the padded width of one of these tensors."""
    for item in own_nodes(scope):
        if isinstance(item, ast.Assign) and any(_repeats(part, names) for part in nodes_of(item.value)):
            yield item


def _repeats(node: ast.AST, names: Collection[str]) -> bool:
    if isinstance(node, ast.Call) and called_name(node) in _LENGTHS:
        return any(_is_width(part, names) for given in passed_values(node) for part in _plain(given))
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    lists = [side.elts for side in (node.left, node.right) if isinstance(side, (ast.List, ast.Tuple))]
    return any(len(items) == 1 and _is_width(items[0], names) for items in lists)


def _plain(node: ast.expr) -> list[ast.expr]:
    """What is passed, and not the sizes of a tensor that is made."""
    return [] if isinstance(node, ast.Tuple) else [node]


def _is_width(node: ast.AST, names: Collection[str]) -> bool:
    """`targets.size(1)`, `targets.shape[-1]`."""
    if isinstance(node, ast.Call) and called_name(node) == "size" and len(node.args) == 1:
        owner, which = node.func, node.args[0]
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        owner, which = node.value, node.slice
    else:
        return False
    number = constant(which, _NOTHING)
    return isinstance(owner, ast.Attribute) and ast.unparse(owner.value) in names and number in _WIDTHS
