"""The keys that a program gives a dict, by its source: which always, and which only below a branch."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import deciding_ifs, last_of
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans_body

_VIEWS = ("items", "keys", "values")
_COPIES = ("sorted", "list", "tuple")
_MAKES = ("dict", "defaultdict", "OrderedDict")
_TAKES = ("pop", "popitem", "clear", "__delitem__")
_MOST = 4  # dicts that a dict is made of


class Branch(msgspec.Struct, frozen=True):
    """An `if`, and where it stands. `inside`: whether what it decides about is below its head, not in its `else`.

    `outer`: the next one that decides about the same line.
    """

    test: ast.If
    spot: Spot
    inside: bool
    outer: Branch | None = None

    @property
    def at(self) -> tuple[str | None, int]:
        """Its file and line."""
        return self.spot.file, self.test.lineno


class SetKey(msgspec.Struct, frozen=True):
    """`key`: None of one that is computed, or of what another dict adds. `below`: the innermost branch that decides."""

    key: str | None
    below: Branch | None

    def is_like(self, other: SetKey) -> bool:
        """Whether both are one key, by one `if`."""
        below = self.below.at if self.below is not None else None
        return self.key == other.key and below == (other.below.at if other.below is not None else None)


class DictKeys(msgspec.Struct, frozen=True):
    """`made`: where the dict is made."""

    made: Made
    keys: tuple[SetKey, ...]

    @property
    def name(self) -> str:
        """`losses`: of the last variable that it went through, else what makes it."""
        held = [name for part, _ in self.made.through if (name := variable(part)) is not None]
        return held[-1] if held else ast.unparse(self.made.node)

    @property
    def branches(self) -> list[Branch]:
        """Those that add keys which no other line sets, in the order of their lines."""
        found = {item.below.at: item.below for item in self.added() if item.below is not None}
        return [found[at] for at in sorted(found, key=lambda at: (at[0] or "", at[1]))]

    def added(self, branch: Branch | None = None) -> list[SetKey]:
        """The keys that only a branch sets, or that one alone."""
        always = {item.key for item in self.keys if item.below is None and item.key is not None}
        own = [item for item in self.keys if item.below is not None and item.key not in always]
        return [item for item in own if branch is None or (item.below is not None and item.below.at == branch.at)]

    @property
    def always(self) -> int | None:
        """How many keys it always has; None where some are not known."""
        return _number([item for item in self.keys if item.below is None])

    def count(self, branch: Branch) -> int | None:
        """How many keys a branch adds; None where some are not known."""
        return _number(self.added(branch))


def _number(keys: Sequence[SetKey]) -> int | None:
    return len({item.key for item in keys}) if all(item.key is not None for item in keys) else None


def dict_of(head: ast.expr) -> tuple[ast.expr, bool] | None:
    """What `metrics.items()`, `sorted(metrics)` go through, and whether the call shows that it is a dict."""
    if isinstance(head, ast.Call) and called_name(head) in _COPIES and len(head.args) == 1:
        return dict_of(head.args[0])
    if isinstance(head, ast.Call) and isinstance(head.func, ast.Attribute) and head.func.attr in _VIEWS:
        return head.func.value, True
    return (head, False) if variable(head) is not None else None


def copied_dict(made: ast.AST) -> ast.expr | None:
    """The dict of `{k: v.mean() for k, v in losses.items()}`, or of the same inside of `dict()`: all of its keys."""
    if isinstance(made, ast.Call) and called_name(made) in _MAKES and len(made.args) == 1 and not made.keywords:
        made = made.args[0]
        pair = made.elt if isinstance(made, (ast.GeneratorExp, ast.ListComp)) else None
        key = pair.elts[0] if isinstance(pair, ast.Tuple) and pair.elts else None
    else:
        key = made.key if isinstance(made, ast.DictComp) else None
    if not isinstance(made, (ast.DictComp, ast.GeneratorExp, ast.ListComp)) or len(made.generators) != 1:
        return None
    part, name = made.generators[0], variable(key) if key is not None else None
    target = part.target.elts[0] if isinstance(part.target, ast.Tuple) else part.target
    given = dict_of(part.iter)
    return given[0] if name is not None and variable(target) == name and not part.ifs and given is not None else None


def dict_keys(slice_: Slice, node: ast.AST, spot: Spot, most: int = _MOST) -> DictKeys | None:
    """Of the dict that an expression has, as its function fills it; None of what is no dict, or loses keys."""
    made = slice_.made(node, spot, calls=True)
    inner = copied_dict(made.node)
    whole = dict_keys(slice_, inner, made.spot, most - 1) if inner is not None and most else None
    if whole is None and not makes_dict(made.node):
        return None
    held = [(name, at) for part, at in made.through if (name := variable(part)) is not None]
    if any(_loses(item, name) for name, at in held for item in own_nodes(at.scope)):
        return None
    first = [SetKey(key, None) for key in _literal(made.node)] if whole is None else whole.keys
    later = [key for name, at in held for key in _set_later(slice_, name, at, most)]
    return DictKeys(whole.made if whole is not None else made, (*first, *_joined(later)))


def makes_dict(node: ast.AST) -> bool:
    """Whether an expression is a new dict."""
    return isinstance(node, ast.Dict) or (isinstance(node, ast.Call) and called_name(node) in _MAKES)


def _literal(node: ast.AST) -> Iterator[str | None]:
    """The keys of `{"a": x}` and of `dict(a=x)`."""
    if isinstance(node, ast.Dict):
        yield from (constant_key(item) for item in node.keys)
    elif isinstance(node, ast.Call):
        taken = called_name(node) != "defaultdict" and bool(node.args)
        yield from ((None,) if taken else ())
        yield from (_named(item.arg) for item in node.keywords)


def constant_key(key: ast.AST | None) -> str | None:
    """How a key that is written out is written: `'loss'`; None of one that is computed."""
    return repr(key.value) if isinstance(key, ast.Constant) else None


def _named(keyword: str | None) -> str | None:
    return repr(keyword) if keyword is not None else None


def _loses(item: ast.AST, name: str) -> bool:
    """Whether a node takes keys away."""
    if isinstance(item, ast.Delete):
        return any(isinstance(part, ast.Subscript) and variable(part.value) == name for part in item.targets)
    return (
        isinstance(item, ast.Call)
        and isinstance(item.func, ast.Attribute)
        and item.func.attr in _TAKES
        and variable(item.func.value) == name
    )


def _set_later(slice_: Slice, name: str, spot: Spot, most: int) -> Iterator[SetKey]:
    """Keys that the lines of a function set in the dict of a variable before it is read at a spot."""
    for item in own_nodes(spot.scope):
        if getattr(item, "lineno", spot.line) >= spot.line:
            continue
        if isinstance(item, ast.Subscript) and isinstance(item.ctx, ast.Store) and variable(item.value) == name:
            yield SetKey(constant_key(item.slice), _below(spot, item.lineno))
        elif isinstance(item, ast.AugAssign) and isinstance(item.op, ast.BitOr) and variable(item.target) == name:
            yield from _of_dict(slice_, item.value, spot, item.lineno, most)
        elif isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and variable(item.func.value) == name:
            if item.func.attr == "setdefault" and item.args:
                yield SetKey(constant_key(item.args[0]), _below(spot, item.lineno))
            elif item.func.attr == "update":
                yield from (SetKey(_named(part.arg), _below(spot, item.lineno)) for part in item.keywords)
                for part in item.args:
                    yield from _of_dict(slice_, part, spot, item.lineno, most)


def _of_dict(slice_: Slice, node: ast.expr, spot: Spot, line: int, most: int) -> Iterator[SetKey]:
    """What another dict adds; below the branch of the line that adds it, else below that dict's own."""
    below = _below(spot, line)
    at = msgspec.structs.replace(spot, line=line)
    inner = dict_keys(slice_, node, at, most - 1) if most else None
    if inner is None and isinstance(node, ast.Dict):
        yield from (SetKey(constant_key(key), below) for key in node.keys)
    elif inner is None:
        yield SetKey(None, below)
    else:
        yield from (SetKey(item.key, below or item.below) for item in inner.keys)


def _below(spot: Spot, line: int) -> Branch | None:
    """The closest `if` by which a line is reached or not, and the reader all the same; one that raises ends the run."""
    returns = any(isinstance(item, ast.Return) and item.lineno == spot.line - 1 for item in own_nodes(spot.scope))
    read = deciding_ifs(spot.tree, spot.line - returns)
    found: Branch | None = None
    for item, around in reversed(deciding_ifs(spot.tree, line)):
        shared = any(other is item and also == around for other, also in read)
        if not shared and (around or not isinstance(last_of(item.body), ast.Raise)):
            at = msgspec.structs.replace(spot, line=item.lineno)
            found = Branch(item, at, spans_body(item.body, line), found)
    return found


def _joined(found: Sequence[SetKey]) -> Iterator[SetKey]:
    """A key that both ways of an `if` set is up to the next one around; without one it is always set."""
    for item in found:
        ways = {other.below.inside for other in found if other.below is not None and other.is_like(item)}
        both = item.key is not None and item.below is not None and ways == {True, False} and item.below.test.orelse
        yield SetKey(item.key, item.below.outer) if both and item.below is not None else item
