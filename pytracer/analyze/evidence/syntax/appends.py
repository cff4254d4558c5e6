"""A loop that adds to a variable until that is long enough: by what, and whose length decides how much each pass adds.

`while len(chosen) < count: chosen = torch.cat((chosen, torch.randperm(len(pool))))` ends, unless `pool` is empty: then
each pass adds nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.changes import PURE, RANDOM, is_among, is_own, names_read, touched
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes
from pytracer.analyze.evidence.syntax.unbounded import (
    LONGEST,
    EndlessLoop,
    Reason,
    body_of,
    is_unbounded,
    leaves,
    short_text,
    yields,
)

_JOINS = frozenset({"cat", "concat", "concatenate", "hstack", "append"})
_OF_TORCH = frozenset({"torch.cat", "torch.concat", "torch.concatenate", "torch.hstack"})
_AS_MANY = frozenset({"randperm", "permutation", "arange"})  # by their only argument
_ALL_OF = frozenset({"permutation", "list", "tuple", "sorted"})
_SIZES = frozenset({"numel", "nelement"})
_READS = _SIZES | {"size", "dim", "item", "tolist", "clone", "cpu"}  # methods that change nothing


class Append(msgspec.Struct, frozen=True):
    """`node` adds to `whole`; what it adds has no element where `source` has none (`is_count`: where that is 0).

    `made`: the line that makes it, by `maker`. `always_new`: each pass that adds one makes a tensor of torch's there.
    `fixed`: nothing else is given `source`, which could fill it.
    """

    node: ast.stmt
    size: str
    enough: str
    whole: str
    source: str
    asked: str
    is_count: bool
    made: int
    maker: str
    always_new: bool
    fixed: bool

    @property
    def _lacks(self) -> str:
        return f"`{self.source}` is {'0' if self.is_count else 'empty'}"

    def reason(self, tree: ast.Module, scope: Scope, loop: EndlessLoop, *, proven: bool) -> Reason:
        """Why it went on. `proven`: the recording shows that no pass has added anything."""
        line, made = self.node.lineno, f"`{self.maker}`"
        by = f"{made} (line {self.made})" if self.made != line else made
        if proven:
            words = (
                f"{self._lacks}, so {by} has no element, line {line} adds nothing to `{self.whole}` in any pass, and "
                f"`{self.size}` never reaches `{self.enough}`"
            )
        else:
            words = (
                f"line {line} adds {by} to `{self.whole}` until `{self.size}` reaches `{self.enough}`: where "
                f"{self._lacks}, no pass adds anything, and it never ends"
            )
        return Reason(
            words, self._advice(tree, scope, loop, proven=proven), sure=proven and self.fixed, idle=proven, spins=proven
        )

    def _advice(self, tree: ast.Module, scope: Scope, loop: EndlessLoop, *, proven: bool) -> str:
        around = [item for item in loops_around(tree, loop.lineno) if item is not loop and isinstance(item, ast.For)]
        test = f"`{self.asked} == 0`"
        bound = [item for item in _assigned(own_nodes(scope), self.source) if item.lineno < loop.lineno]
        made = max(bound, key=lambda item: item.lineno, default=None)
        why = f" See why it is: it is `{short_text(made.value)}` (line {made.lineno})." if made is not None else ""
        if not around:
            return f"Raise before the loop of line {loop.lineno} where {test}: there is nothing to take from.{why}"
        outer = f"`{_head(around[-1])}` (line {around[-1].lineno})"
        whose = "the round that has nothing to take from" if proven else "each round that has nothing to take from"
        return (
            f"Skip {whose}: before the loop of line {loop.lineno}, go on with the next one of {outer} by `continue` "
            f"where {test}. Or leave it out of what that loop goes through, or give it something to take from.{why}"
        )


def _head(loop: ast.For) -> str:
    """`for place, key in enumerate(keys)`."""
    target = ast.unparse(loop.target)
    names = target[1:-1] if isinstance(loop.target, ast.Tuple) and target.startswith("(") else target
    return shortened(f"for {names} in {ast.unparse(loop.iter)}", LONGEST)


def append_of(tree: ast.Module, scope: Scope, loop: EndlessLoop) -> Append | None:
    """What the loop adds in each pass, where that alone decides whether it ends."""
    found = _wanted(loop)
    if found is None or leaves(loop) or yields(body_of(loop)):
        return None
    size, enough, whole = found
    if not _is_local(scope, whole) or _changed(loop.body, names_read(enough)):
        return None
    changing = [item for item in loop.body if _changed([item], [whole])]
    added = _added(changing[0], whole) if len(changing) == 1 else None
    if added is None:
        return None
    made, line = _maker(loop, added, changing[0])
    source = _source(made)
    others = [item for item in loop.body if item is not changing[0]]
    if source is None or _changed(others, read := names_read(source[0])) or is_among(whole, {*read}):
        return None
    of, asked, is_count = source
    return Append(
        changing[0],
        short_text(size),
        short_text(enough),
        whole,
        short_text(of),
        short_text(asked),
        is_count,
        line,
        short_text(made),
        isinstance(added, ast.Name) and _is_joined_by_torch(tree, changing[0]),
        _is_fixed(scope, of),
    )


def _wanted(loop: EndlessLoop) -> tuple[ast.expr, ast.expr, str] | None:
    """Of `while len(chosen) < count`: `len(chosen)`, `count` and `chosen`."""
    test = loop.test if isinstance(loop, ast.While) and not is_unbounded(loop) else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    size, enough = test.left, test.comparators[0]
    if isinstance(test.ops[0], (ast.Gt, ast.GtE)):
        size, enough = enough, size
    elif not isinstance(test.ops[0], (ast.Lt, ast.LtE)):
        return None
    whole = sized(size)
    return (size, enough, whole.id) if isinstance(whole, ast.Name) and whole.id not in names_read(enough) else None


def sized(node: ast.expr) -> ast.expr | None:
    """`x` of `len(x)`, `x.shape[0]`, `x.size(0)`, `x.numel()`."""
    if isinstance(node, ast.Call):
        func, plain = node.func, not node.keywords
        if isinstance(func, ast.Name) and func.id == "len" and len(node.args) == 1 and plain:
            return node.args[0]
        if (
            isinstance(func, ast.Attribute)
            and plain
            and (_is_first(node.args) if func.attr == "size" else not node.args)
        ):
            return func.value if func.attr in _SIZES or func.attr == "size" else None
        return None
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        return node.value.value if _is_first([node.slice]) else None
    return None


def _is_first(args: Sequence[ast.expr]) -> bool:
    return len(args) == 1 and isinstance(args[0], ast.Constant) and args[0].value == 0


def _is_local(scope: Scope, name: str) -> bool:
    """Of the function alone; of a script's own lines, where no function sets it."""
    if not isinstance(scope, ast.Module):
        return is_own(scope, name)
    return not any(isinstance(item, ast.Global) and name in item.names for item in nodes_of(scope))


def _changed(body: Sequence[ast.stmt], names: Sequence[str]) -> bool:
    nodes = [part for item in body for part in (item, *own_nodes(item))]
    changed = touched([item for item in nodes if not (isinstance(item, ast.Call) and called_name(item) in _READS)])
    return any(is_among(name, changed) for name in names)


def _added(node: ast.stmt, whole: str) -> ast.expr | None:
    """`more` of `whole = torch.cat((whole, more))`, `whole.extend(more)`."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        return call.args[0] if ast.unparse(call.func) == f"{whole}.extend" and len(call.args) == 1 else None
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or ast.unparse(node.targets[0]) != whole:
        return None
    joined = node.value
    if not isinstance(joined, ast.Call) or called_name(joined) not in _JOINS or not joined.args:
        return None
    first, listed = joined.args[0], isinstance(joined.args[0], (ast.Tuple, ast.List))
    parts = first.elts if isinstance(first, (ast.Tuple, ast.List)) else joined.args[:2]
    if len(parts) != 2 or (called_name(joined) == "append") == listed:
        return None
    others = [item for item in parts if ast.unparse(item) != whole]
    return others[0] if len(others) == 1 and whole not in names_read(others[0]) else None


def _maker(loop: EndlessLoop, added: ast.expr, at: ast.stmt) -> tuple[ast.expr, int]:
    """What makes it in each pass, and the line."""
    if isinstance(added, ast.Name):
        bound = _assigned(body_of(loop), added.id)
        if len(bound) == 1 and bound[0] in loop.body and bound[0].lineno < at.lineno and bound[0].value is not None:
            return bound[0].value, bound[0].lineno
    return added, at.lineno


def _assigned(nodes: Sequence[ast.AST], name: str) -> list[ast.Assign]:
    return [
        item for item in nodes if isinstance(item, ast.Assign) and [ast.unparse(one) for one in item.targets] == [name]
    ]


def _source(made: ast.expr) -> tuple[ast.expr, ast.expr, bool] | None:
    """What has to be empty for it to have no element, its length, and whether it is a number itself."""
    if isinstance(made, ast.Subscript) and isinstance(made.slice, ast.Call):  # `pool[torch.randperm(len(pool))]`
        return _source(made.slice)
    if _is_plain(made):
        return made, _length(made), False
    if not isinstance(made, ast.Call) or not made.args:
        return None
    name, first = called_name(made), made.args[0]
    if name == "sample" and len(made.args) == 2:  # random.sample(pool, len(pool))
        first = made.args[1]
    elif name not in _AS_MANY | _ALL_OF or len(made.args) != 1:
        return None
    of = sized(first)
    if of is not None:
        return (of, first, False) if _is_plain(of) else None
    if name in _AS_MANY - _ALL_OF or name == "sample":
        return (first, first, True) if isinstance(first, ast.Name) else None
    return (first, _length(first), False) if name != "permutation" and _is_plain(first) else None


def _is_plain(node: ast.expr) -> bool:
    """A variable, an attribute or an item of one."""
    return isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and not any(
        isinstance(item, (ast.Call, ast.Slice, ast.Compare)) for item in nodes_of(node)
    )


def _length(node: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("len", ast.Load()), [node], [])


def _is_joined_by_torch(tree: ast.Module, node: ast.stmt) -> bool:
    value = getattr(node, "value", None)
    return isinstance(value, ast.Call) and imported_as(tree, value.func) in _OF_TORCH


def _is_fixed(scope: Scope, source: ast.expr) -> bool:
    """Whether it is a variable that the function hands to nobody: another thread may fill what it is given."""
    if not isinstance(source, ast.Name) or not _is_local(scope, source.id):
        return False
    inner = (item for item in nodes_of(scope) if isinstance(item, (ast.FunctionDef, ast.Lambda)) and item is not scope)
    if not isinstance(scope, ast.Module) and any(source.id in names_read(item) for item in inner):
        return False
    return not any(
        isinstance(value, ast.Name) and value.id == source.id
        for call in own_nodes(scope)
        if isinstance(call, ast.Call) and called_name(call) not in PURE
        if not RANDOM.search(ast.unparse(call.func)) and not _is_of_arrays(call)
        for value in passed_values(call)
    )


def _is_of_arrays(call: ast.Call) -> bool:
    """Of `torch.topk(values, 3)`: a function of torch's, which keeps nothing it is given."""
    return ast.unparse(call.func).startswith(("torch.", "np.", "numpy."))
