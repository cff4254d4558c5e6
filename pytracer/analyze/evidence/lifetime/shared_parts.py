"""Two models that share a part, of which one is offloaded: `reference.blocks[i] = policy.blocks[i]`.

What takes the memory of all parameters of the one away takes that of the part away, which the other one still uses.
Said where the source shows which model ran, which one a line emptied, and one line by which they share.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._text import capital, shortened
from pytracer.analyze.evidence.lifetime.emptied import lines_that_empty
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.slicing.calls import argument_of, call_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.keepers import classes_of, initializer, set_by
from pytracer.analyze.evidence.slicing.object_made import Key, MadeObject, object_of, spots_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import set_by as each_binding
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, parameters, statement_at
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_ALL = frozenset({"parameters", "named_parameters", "buffers", "named_buffers", "state_dict"})
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef)
_QUOTED, _HOPS = 60, 4


class SharedPart(msgspec.Struct, frozen=True):
    """`used` ran, and `line` (`text`) lets it share `part` with `emptied`, whose memory `taken` takes away.

    `taking`: the text of that line.
    """

    used: str
    emptied: str
    part: str
    line: LineWords
    text: str
    taken: LineWords
    taking: str

    @property
    def summary(self) -> str:
        """Behind what has no memory."""
        return (
            f"; {self.taken} takes the memory of `{self.emptied}` away, which shares a part with `{self.used}` by "
            f"{self.line}"
        )

    @property
    def advice(self) -> str:
        """What to copy, and where."""
        return (
            f"{capital(self.line)} (`{self.text}`) gives `{self.emptied}` and `{self.used}` the same part, and "
            f"{self.taken} (`{self.taking}`) empties it while `{self.used}` still uses it. Copy it at {self.line} "
            f"(copy.deepcopy({self.part})), or leave out at {self.taken} what `{self.used}` has as well."
        )


class _Share(msgspec.Struct, frozen=True):
    """A line by which `one` and `other` have the same part. `name`: what `one` is called."""

    spot: Spot
    node: ast.stmt
    one: ast.expr
    other: ast.expr
    part: ast.expr
    name: str


def shared_part(view: ProcessView, elements: int) -> SharedPart | None:
    """Of a tensor that should have so many elements, and whose memory one line took away."""
    lines = lines_that_empty(view, elements) if elements else []
    frames = program_frames(view)
    if len(lines) != 1 or not frames:
        return None
    (frame, text), snapshot = lines[0], view.process.snapshot
    files = program_files(snapshot, frames)
    if frame.file not in files or frame.line is None:
        return None
    walk = _Walk(files, Slice(snapshot, frames))
    ran, emptied = walk.ran(), walk.emptied(frame.file or "", frame.line)
    used = {item.key for item in ran}
    if not ran or not emptied or any(item is None or item.key in used for item in emptied):
        return None
    keys = {item.key for item in emptied if item is not None}
    found: dict[tuple[str | None, int], tuple[str, str, _Share]] = {}
    for share in walk.shares([*ran, *(item for item in emptied if item is not None)]):
        one, other = walk.key(share.one, share.spot), walk.key(share.other, share.spot)
        names = share.name, ast.unparse(share.other)
        if one in keys and other in used:
            found[share.spot.file, share.node.lineno] = (names[1], names[0], share)
        elif one in used and other in keys:
            found[share.spot.file, share.node.lineno] = (names[0], names[1], share)
    if len(found) != 1:
        return None
    running, gone, share = next(iter(found.values()))
    line = place_of(view, share.spot.file, share.node.lineno)
    taken = place_of(view, frame.file, frame.line).then(f" in {frame.function}")
    words = shortened(ast.unparse(share.node), _QUOTED)
    return SharedPart(running, gone, ast.unparse(share.part), line, words, taken, shortened(text, _QUOTED))


class _Walk:
    """Finds the objects and lines of one program."""

    def __init__(self, files: Mapping[str, ast.Module], back: Slice) -> None:
        self._files = files
        self._back = back

    def key(self, node: ast.expr, spot: Spot) -> Key | None:
        """Of the object of an expression."""
        found = object_of(self._files, self._back, node, spot)
        return found.key if found is not None else None

    def ran(self) -> list[MadeObject]:
        """The modules whose methods were running, innermost first, as far as the source shows which these were."""
        found = []
        for depth in range(1 << 10):
            inner, spot = self._back.spot(depth), self._back.spot(depth + 1)
            owner = class_around(inner.tree, inner.scope) if inner is not None else None
            if inner is None or spot is None or owner is None or not self._is_module(owner):
                break
            called = call_of(spot.tree, spot.line, inner.scope, owner) if isinstance(inner.scope, _NAMED) else None
            made = object_of(self._files, self._back, _receiver(called, inner), spot) if called is not None else None
            if made is not None:
                found.append(made)
        return found

    def _is_module(self, owner: ast.ClassDef, levels: int = _HOPS) -> bool:
        names = [ast.unparse(item).rpartition(".")[2] for item in owner.bases]
        inner = [item for item in classes_of(self._files) if item.name in names and item is not owner]
        return any(name.endswith("Module") for name in names) or (
            levels > 0 and any(self._is_module(item, levels - 1) for item in inner)
        )

    def emptied(self, file: str, line: int) -> list[MadeObject | None]:
        """Each object whose parameters the line may have gone through; None of those that are not known."""
        found: dict[Key | None, MadeObject | None] = {}
        for spot in spots_of(self._files, file, line):
            for owner, at in self._owners(spot, line):
                made = object_of(self._files, self._back, owner, at)
                found[made.key if made is not None else None] = made
        return [*found.values()]

    def _owners(self, spot: Spot, line: int) -> Iterator[tuple[ast.expr, Spot]]:
        """`self.model` of `for p in self.model.parameters()`, where `storage = p.untyped_storage()` is emptied."""
        calls = [item for item in nodes_of(statement_at(spot.tree, line) or spot.tree) if isinstance(item, ast.Call)]
        names = {name for item in calls if _is_emptying(item) and (name := _root(item)) is not None}
        for _ in range(_HOPS):
            loops = (item for item in own_nodes(spot.scope) if isinstance(item, (ast.For, ast.AsyncFor)))
            heads = [item for item in loops if _sets(item, names)]
            for head in heads:
                inner = [item for item in nodes_of(head.iter) if isinstance(item, ast.Call)]
                for call in inner:
                    if called_name(call) in _ALL and isinstance(call.func, ast.Attribute):
                        yield call.func.value, spot
            if heads:
                return
            bound = {
                root
                for item in own_nodes(spot.scope)
                for target, value in each_binding(item)
                if isinstance(target, ast.Name) and target.id in names and value is not None
                if (root := _root(value)) is not None
            }
            if bound and not bound <= names:
                names = bound
                continue
            called = spot.call
            if called is None or not isinstance(spot.scope, _NAMED) or not names & {*parameters(spot.scope)}:
                return
            given = [argument_of(called[0], spot.scope, name) for name in names]
            names = {name for item in given if item is not None and (name := _root(item)) is not None}
            spot = called[1]

    def shares(self, objects: Sequence[MadeObject]) -> Iterator[_Share]:
        """Lines that give a part of one object to another; and calls that make one of `objects` of a part."""
        for file, tree in self._files.items():
            for node in nodes_of(tree):
                for one, other, part in _set_parts(node):
                    if isinstance(node, ast.stmt):
                        yield from (
                            _Share(spot, node, one, other, part, ast.unparse(one))
                            for spot in spots_of(self._files, file, node.lineno)
                        )
        for item in objects:
            yield from self._made_of(item)

    def _made_of(self, item: MadeObject) -> Iterator[_Share]:
        """`Critic(actor.encoder)`, which keeps it, and `copy.copy(actor)`."""
        call, tree = item.call, item.spot.tree
        node = statement_at(tree, call.lineno)
        if node is None:
            return
        kept = self._kept(call)
        if imported_as(tree, call.func) == "copy.copy":
            kept = call.args[:1]
        for part in kept:
            root = _root_expression(part)
            if root is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else call.func
                yield _Share(item.spot, node, call, root, part, ast.unparse(target))

    def _kept(self, call: ast.Call) -> list[ast.expr]:
        """What a class of the program keeps of what it is given."""
        owners = [item for item in classes_of(self._files) if item.name == called_name(call)]
        made = initializer(owners[0]) if len(owners) == 1 else None
        if made is None:
            return []
        sets = [
            value
            for node in nodes_of(made)
            if isinstance(node, (ast.Assign, ast.AnnAssign))
            for _, value in set_by(node)
        ]
        names = {value.id for value in sets if isinstance(value, ast.Name)} & {*parameters(made)}
        return [part for name in sorted(names) if (part := argument_of(call, made, name)) is not None]


def _receiver(call: ast.Call, inner: Spot) -> ast.expr:
    """`policy` of `policy.logprobs(x)` and of `policy(x)`."""
    func = call.func
    by_name = isinstance(func, ast.Attribute) and func.attr == getattr(inner.scope, "name", None)
    return func.value if by_name and isinstance(func, ast.Attribute) else func


def _is_emptying(call: ast.Call) -> bool:
    """`storage.resize_(0)`."""
    return called_name(call) == "resize_" and any(
        isinstance(item, ast.Constant) and item.value == 0 for item in passed_values(call)
    )


def _set_parts(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr, ast.expr]]:
    """The roots of `a.blocks[i] = b.blocks[i]`, or `a.load_state_dict(b.state_dict(), assign=True)`, and the part."""
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, (ast.Attribute, ast.Subscript)):
                one, other = _root_expression(target), _root_expression(node.value)
                if one is not None and other is not None and ast.unparse(one) != ast.unparse(other):
                    yield one, other, node.value
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        given = call.args[0] if called_name(call) == "load_state_dict" and call.args else None
        assigns = keyword_value(call, "assign")
        if not isinstance(assigns, ast.Constant) or assigns.value is not True or not isinstance(given, ast.Call):
            return
        of = given.func.value if isinstance(given.func, ast.Attribute) and given.func.attr == "state_dict" else None
        if isinstance(call.func, ast.Attribute) and of is not None:
            yield call.func.value, of, given


def _root_expression(node: ast.expr) -> ast.expr | None:
    """`a` of `a.b[i].c`, `self.a` of `self.a.b`."""
    chain = [node]
    while isinstance(chain[-1], (ast.Attribute, ast.Subscript)):
        chain.append(chain[-1].value)
    root = chain[-1]
    if not isinstance(root, ast.Name):
        return None
    if root.id != "self":
        return root
    return chain[-2] if len(chain) > 1 and isinstance(chain[-2], ast.Attribute) else None


def _root(node: ast.AST) -> str | None:
    """`p` of `p.grad.untyped_storage()`."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _sets(loop: ast.For | ast.AsyncFor, names: set[str]) -> bool:
    return any(isinstance(item, ast.Name) and item.id in names for item in nodes_of(loop.target))
