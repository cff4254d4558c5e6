"""A table that was made with the number of another object's entries, which then got more."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.calls import argument_of, method_of
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import elements, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, is_parameter, own_nodes, scope_of, statement_at

_OF_TOKENIZERS = frozenset({"add_tokens", "add_special_tokens"})
_ADDS = _OF_TOKENIZERS | {"add_token", "append", "extend", "add", "update", "insert", "setdefault"}
_ALWAYS_ADDS = ("append", "insert")
_COUNT = Pattern(r"(?:list|dict|set|tuple|OrderedDict|Counter|defaultdict) of (\d+)$")
_RESIZES = ("resize_token_embeddings", "resize_embeddings", "resize_embedding")
_BLOCKS = (ast.For, ast.AsyncFor, ast.With, ast.AsyncWith)
_HOPS = 4


class GrownTable(msgspec.Struct, frozen=True):
    """`count`: what the table was made with, of the object `of`. `made`, `grown`: these two lines, and their texts."""

    of: str
    count: str
    made: tuple[str | None, int, str]
    grown: tuple[str | None, int, str]
    of_library: bool  # a method that tokenizers have, of no class of the program
    sure: bool  # else what is added may be there already
    further: tuple[int, ...] = ()  # lines behind `grown` that add, too

    def why(self, at: FailingLine) -> str:
        """`` line 91 adds to `tokenizer` after line 88 made it with len(tokenizer) ``."""
        adds = "adds" if self.sure else "may add"
        return f"{at.in_file(*self.grown[:2])} {adds} to `{self.of}` after {at.in_file(*self.made[:2])} {self._with}"

    @property
    def _with(self) -> str:
        return f"made it with {self.count}"

    def advice(self, at: FailingLine) -> str:
        """The order, or a larger table."""
        grown, made = at.in_file(*self.grown[:2]), at.in_file(*self.made[:2])
        larger = (
            f"resize_token_embeddings({self.count})"
            if self.of_library
            else "a new nn.Embedding with the old rows copied"
        )
        if self.further:
            lines = [grown, *(at.in_file(self.grown[0], line) for line in self.further)]
            move = f"Move {list_words(lines)} above {made}"
        else:
            move = f"Move {grown} (`{short(self.grown[2])}`) above {made} (`{short(self.made[2])}`)"
        return f"{move}, or enlarge the table after it ({larger}, before the optimizer is made)."


def grown_table(at: FailingLine, table: str, rows: int, high: int) -> GrownTable | None:
    """Where the source shows the count, and a later line that adds; None where that adds too few.

    Args:
        at: The failing line.
        table: The layer, as the line names it.
        rows: That it has.
        high: The index that is beyond them.
    """
    made = at.made(table)
    call = made.node if made is not None else None
    if made is None or not isinstance(call, ast.Call):
        return None
    size = keyword_value(call, "num_embeddings") or next(iter(call.args), None)
    found = at.slice.made(size, made.spot, calls=False) if size is not None else None
    of = _counted(found.node) if found is not None else None
    if found is None or of is None or _is_resized(at):
        return None
    spot, count = found.spot, found.node
    for _ in range(_HOPS):
        additions = [*_additions(at, of, count, spot)]
        for line, text, added, adds, is_sure in additions:
            now = _length(at, of) if isinstance(count, ast.Call) and called_name(count) == "len" else None
            if now is not None and now <= high:
                return None
            is_sure = is_sure or (added is not None and added > 1 and rows + added - 1 == high)  # exactly these
            if now is None and high == rows and not is_sure:
                return None  # as well an index that is numbered from 1
            if added is not None and rows + added <= high:
                return None  # not the reason, or not the only one
            statement = statement_at(spot.tree, spot.line)
            words = source(statement) if isinstance(statement, ast.Expr | ast.Assign) else source(found.node)
            of_library = adds in _OF_TOKENIZERS and at.slice.class_of(of, spot) is None
            return GrownTable(source(of), _renamed(found.node, of), (spot.file, spot.line, words),
                              (spot.file, line, text), of_library, is_sure or now is not None,
                              tuple(item[0] for item in additions if item[0] > line))  # fmt: skip
        outer = _passed(at, of, spot)
        if outer is None:
            return None
        of, spot = outer
    return None


def _length(at: FailingLine, of: ast.expr) -> int | None:
    """That was recorded at the failure, of a variable of any frame."""
    held = [
        *(at.exception.variables or ()),
        *(item for outer in at.exception.outer or () for item in outer.variables or ()),
    ]
    found = {int(told[1]) for item in held if item.name == source(of) and (told := _COUNT.match(item.value or ""))}
    return found.pop() if len(found) == 1 else None


def _passed(at: FailingLine, of: ast.Name | ast.Attribute, spot: Spot) -> tuple[ast.Name | ast.Attribute, Spot] | None:
    """The object in the function that passes it, by the stack or as the only one that calls."""
    if not isinstance(of, ast.Name) or not is_parameter(spot.scope, of.id):
        return None
    found = at.slice.argument(of.id, spot)
    node, outer = found if found is not None else (None, spot)
    if found is None and isinstance(spot.scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        calls = [
            (file, tree, item)
            for file, tree in at.files.items()
            for item in nodes_of(tree)
            if isinstance(item, ast.Call) and called_name(item) == spot.scope.name
        ]
        if len(calls) == 1:
            file, tree, call = calls[0]
            node, outer = (
                argument_of(call, spot.scope, of.id),
                Spot(file, tree, scope_of(tree, call.lineno), call.lineno),
            )
            depth = next((n for n, frame in enumerate(at.frames) if outer.is_of(frame)), None)
            outer = structs.replace(outer, depth=depth)
    return (node, outer) if isinstance(node, (ast.Name, ast.Attribute)) else None


def _counted(node: ast.AST) -> ast.Name | ast.Attribute | None:
    """`x` of `len(x)`, `x.size`, `x.get_vocab_size()`."""
    of: ast.AST | None = None
    if isinstance(node, ast.Call) and called_name(node) == "len" and len(node.args) == 1:
        of = node.args[0]
    elif isinstance(node, ast.Call) and not node.args and isinstance(node.func, ast.Attribute):
        of = node.func.value
    elif isinstance(node, ast.Attribute):
        of = node.value
    plain = isinstance(of, ast.Name) or (isinstance(of, ast.Attribute) and variable(of) is not None)
    return of if plain and isinstance(of, (ast.Name, ast.Attribute)) and source(of) != "self" else None


def _renamed(node: ast.AST, of: ast.Name | ast.Attribute) -> str:
    """`len(tokenizer)`, where that object's name is another one in the function that counts."""
    if isinstance(node, ast.Call) and node.args:
        return f"len({source(of)})"
    last = node.func if isinstance(node, ast.Call) else node
    return f"{source(of)}.{getattr(last, 'attr', '')}{'()' if isinstance(node, ast.Call) else ''}"


def _additions(
    at: FailingLine, of: ast.Name | ast.Attribute, count: ast.AST, spot: Spot
) -> Iterator[tuple[int, str, int | None, str | None, bool]]:
    """Line, text, how many, by which method, and whether that surely adds, of what runs after the count."""
    name = source(of)
    end = at.frames[spot.depth].line if spot.depth is not None else None
    binds = [line for line, _ in lines_that_bind(spot.scope, name) if line > spot.line]
    for item in _always(getattr(spot.scope, "body", [])):
        if item.lineno <= spot.line or item.lineno >= (end or item.lineno + 1):
            continue
        if any(line <= item.lineno for line in binds):
            return
        target = item.targets[0] if isinstance(item, ast.Assign) else None
        of_it = isinstance(target, ast.Subscript) and source(target.value) == name
        if of_it and isinstance(item, ast.Assign) and f"len({name})" in source(item.value):
            yield item.lineno, source(item), None, None, False
        call = item.value if isinstance(item, (ast.Expr, ast.Assign, ast.AugAssign)) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        owner = source(call.func.value)
        sure = _adds(at, call, of, count, spot) if owner == name else None
        sure = _adds_to_own(call, name, spot) if owner == "self" and name.startswith("self.") else sure
        if sure is not None:
            yield item.lineno, source(call), _how_many(call, item, spot), call.func.attr, sure


def _always(body: object) -> Iterator[ast.stmt]:
    """Statements that no `if` decides on."""
    for item in body if isinstance(body, list) else []:
        if isinstance(item, _BLOCKS):
            yield from _always(item.body)
        elif not isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield item


def _adds(at: FailingLine, call: ast.Call, of: ast.expr, count: ast.AST, spot: Spot) -> bool | None:
    """By the source of the method, one of a library by its name: None where it adds nothing, False where it may."""
    attribute = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    owner = at.slice.class_of(of, spot)
    method = method_of(owner[0], (attribute,)) if owner is not None and isinstance(owner[0], ast.ClassDef) else None
    if owner is None or not isinstance(owner[0], ast.ClassDef) or method is None:
        return attribute in _ALWAYS_ADDS if attribute in _ADDS and isinstance(count, ast.Call) else None
    kept = _kept(owner[0], count)
    fills = [item for item in own_nodes(method) if kept is not None and _fills(item, kept)]
    tests = [item for item in own_nodes(method) if isinstance(item, (ast.If, ast.IfExp, ast.Try))]
    return not tests and any(map(_always_adds, fills)) if fills else None


def _always_adds(node: ast.AST) -> bool:
    """Not what sets a key, or adds to a set: it may be there already."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _ALWAYS_ADDS
    return isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add)


def _adds_to_own(call: ast.Call, kept: str, spot: Spot) -> bool | None:
    """As _adds(), of another method of the same object: `self.add(token)`."""
    owner = class_around(spot.tree, spot.scope)
    attribute = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    method = method_of(owner, (attribute,)) if owner is not None else None
    fills = [item for item in own_nodes(method) if _fills(item, kept)] if method is not None else []
    tests = [item for item in own_nodes(method) if isinstance(item, (ast.If, ast.IfExp, ast.Try))] if fills else []
    return not tests and any(map(_always_adds, fills)) if fills else None


def _kept(owner: ast.ClassDef, count: ast.AST) -> str | None:
    """`self.vocab` of a `__len__`, property or method with `return len(self.vocab)`; None: not known."""
    asked = count.func if isinstance(count, ast.Call) else count
    attribute = asked.attr if isinstance(asked, ast.Attribute) else "__len__"
    method = method_of(owner, (attribute,))
    if method is None:
        return f"self.{attribute}"
    returns = [item.value for item in own_nodes(method) if isinstance(item, ast.Return) and item.value is not None]
    own: ast.expr | None = returns[0] if len(returns) == 1 else None
    if isinstance(own, ast.Call):
        own = _counted(own)
    return variable(own) if own is not None else None


def _fills(node: ast.AST, kept: str) -> bool:
    """Whether a statement of a method adds to that attribute of the object."""
    of: ast.AST | None = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDS:
        of = node.func.value
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Add, ast.BitOr)):
        of = node.target
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        of = node.targets[0].value
    return of is not None and kept.startswith("self.") and variable(of) == kept


def _how_many(call: ast.Call, item: ast.stmt, spot: Spot) -> int | None:
    """As many as a list that is written there has; one for each call is not known, as it may be in a loop."""
    given = call.args[0] if len(call.args) == 1 and not call.keywords else None
    if not any(item is part for part in getattr(spot.scope, "body", [])):
        return None
    if isinstance(given, ast.Dict):
        lists = [elements(part) for part in given.values]
        return sum(map(len, lists))
    if not isinstance(given, (ast.List, ast.Tuple, ast.Set)):
        return None
    return None if any(isinstance(part, ast.Starred) for part in given.elts) else len(given.elts)


def _is_resized(at: FailingLine) -> bool:
    """Whether the program makes such a table larger somewhere: when that ran is not known."""
    return any(
        isinstance(item, ast.Call) and called_name(item) in _RESIZES
        for tree in at.files.values()
        for item in nodes_of(tree)
    )
