"""The line of a data set that made a part of a batch: `targets` of `for inputs, targets in loader`.

Through the DataLoader, random_split() and Subset to the one `return` of __getitem__, or of the program's own
collate_fn; of a TensorDataset to its tensor. By syntax alone: nothing where two lines may have given it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.slicing.bindings import bindings_of, last_binding
from pytracer.analyze.evidence.slicing.calls import method_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import holds, variable
from pytracer.analyze.evidence.syntax.scopes import all_parameters, own_nodes, spans

_HOPS = 12
_MOVES = frozenset({"to", "cuda", "cpu", "contiguous", "clone", "detach"})
_PASS_ON = frozenset({"enumerate", "tqdm", "track", "trange", "iter", "islice"})
_PARTS_OF_DATA = frozenset({"random_split", "Subset"})
_ITEM = "__getitem__"
_OTHER_WAYS = ("__iter__", "__getitems__")  # by which a DataLoader may ask in place of it
_BY_PLACE = 4  # arguments of a DataLoader before those that change what a batch is
_Key = int | str


class BatchItem(msgspec.Struct, frozen=True):
    """`function`: `Rows.__getitem__`; empty of a TensorDataset. `loader`: the call that made the DataLoader."""

    function: str
    made: Made
    loader: Made


class _Part(msgspec.Struct, frozen=True):
    """An expression, of which the parts `keys` are meant, the outermost first."""

    node: ast.AST
    spot: Spot
    keys: tuple[_Key, ...] = ()


def batch_item(follow: Slice, node: ast.AST, spot: Spot) -> BatchItem | None:
    """What made a value of a loop over a DataLoader; None of any other value."""
    part: _Part | None = _Part(node, spot)
    for _ in range(_HOPS):
        if part is None:
            return None
        found = follow.made(part.node, part.spot, calls=False)
        part = _Part(found.node, found.spot, part.keys)
        looped = _looped(part)
        if looped is not None:
            return _of_loader(follow, looped)
        part = _step(part)
    return None


def _step(part: _Part) -> _Part | None:
    """One step back inside of a function, of what a slice cannot take apart: the value of a batch."""
    node = part.node
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        key = node.slice.value
        return _Part(node.value, part.spot, (key, *part.keys)) if isinstance(key, (int, str)) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MOVES:
        return _Part(node.func.value, part.spot, part.keys) if _only_moves(node) else None
    if isinstance(node, ast.Tuple) and part.keys and isinstance(part.keys[0], int) and part.keys[0] < len(node.elts):
        return _Part(node.elts[part.keys[0]], part.spot, part.keys[1:])
    if isinstance(node, ast.Name):
        bound = last_binding(part.spot.scope, node.id, part.spot.line)
        if bound is None or bound[1] is None:
            return None
        keys = part.keys if bound[2] is None else (bound[2], *part.keys)
        return _Part(bound[1], structs.replace(part.spot, line=bound[0]), keys)
    return None


def _only_moves(call: ast.Call) -> bool:
    """Not `x.to(torch.float64)`, which makes another value."""
    given = [*call.args, *(item.value for item in call.keywords if item.arg not in ("non_blocking", "copy"))]
    return all("device" in ast.unparse(item) or isinstance(item, ast.Constant) for item in given)


def _looped(part: _Part) -> _Part | None:
    """Of a loop's variable what the loop runs over; of `next(batches)` what that was made of."""
    node, spot = part.node, part.spot
    if isinstance(node, ast.Call) and called_name(node) == "next" and node.args:
        return _Part(node.args[0], spot, part.keys)
    name = variable(node)
    if name is None:
        return None
    heads = [*_heads(spot, name)]
    if len(heads) != 1 or name in all_parameters(spot.scope):
        return None
    first, head = heads[0]
    if any(first < line < spot.line for line, _, _ in bindings_of(spot.scope, name)):
        return None  # of another value by now
    keys = _place(head.target, name)
    if keys is None:
        return None
    if isinstance(head.iter, ast.Call) and called_name(head.iter) == "enumerate":
        if keys[:1] != (1,):
            return None
        keys = keys[1:]
    return _Part(head.iter, structs.replace(spot, line=first), (*keys, *part.keys))


def _heads(spot: Spot, name: str) -> Iterator[tuple[int, ast.For | ast.AsyncFor | ast.comprehension]]:
    """The loops around a line that set a variable, and those of a comprehension in it, with their line."""
    for item in own_nodes(spot.scope):
        if isinstance(item, (ast.stmt, ast.expr)) and spans(item, spot.line):
            heads = [item] if isinstance(item, (ast.For, ast.AsyncFor)) else getattr(item, "generators", [])
            first = item.lineno if isinstance(item, ast.stmt) else spot.line
            yield from ((first, head) for head in heads if holds(head.target, name))


def _place(target: ast.AST, name: str) -> tuple[_Key, ...] | None:
    """`(1, 0)` of `y` in `step, (y, x)`."""
    if variable(target) == name:
        return ()
    if not isinstance(target, (ast.Tuple, ast.List)) or any(isinstance(item, ast.Starred) for item in target.elts):
        return None
    for place, item in enumerate(target.elts):
        inner = _place(item, name)
        if inner is not None:
            return (place, *inner)
    return None


def _of_loader(follow: Slice, part: _Part) -> BatchItem | None:
    node, spot = part.node, part.spot
    for _ in range(_HOPS):
        found = follow.made(node, spot, calls=True)
        node, spot = found.node, found.spot
        if not isinstance(node, ast.Call) or called_name(node) not in _PASS_ON or not node.args:
            break
        node = node.args[0]
    else:
        return None
    if not isinstance(node, ast.Call) or called_name(node) != "DataLoader" or keyword_value(node, "batch_sampler"):
        return None
    if any(item.arg is None for item in node.keywords) or any(isinstance(item, ast.Starred) for item in node.args):
        return None  # `**options` may have a collate_fn
    if len(node.args) > _BY_PLACE or follow.defined(node.func, spot) is not None:
        return None  # a collate_fn by its place, or the program's own class of that name
    collate = keyword_value(node, "collate_fn")
    if collate is not None:
        return _of_collate(follow, collate, part.keys, found)
    data = node.args[0] if node.args else keyword_value(node, "dataset")
    return _of_data(follow, data, spot, part.keys, found) if data is not None else None


def _of_collate(follow: Slice, collate: ast.expr, keys: tuple[_Key, ...], loader: Made) -> BatchItem | None:
    """A function of the program."""
    found = follow.defined(collate, loader.spot)
    if found is None or not isinstance(found[0], ast.FunctionDef):
        return None
    made = _returned(follow, found[0], found[1], keys)
    return BatchItem(found[0].name, made, loader) if made is not None else None


def _of_data(follow: Slice, data: ast.AST, spot: Spot, keys: tuple[_Key, ...], loader: Made) -> BatchItem | None:
    for _ in range(_HOPS):
        found = follow.made(data, spot, calls=True)
        node, spot = found.node, found.spot
        if isinstance(node, ast.Name):  # `train, val = random_split(data, ...)`
            bound = last_binding(spot.scope, node.id, spot.line)
            if bound is None or not isinstance(bound[1], ast.Call) or called_name(bound[1]) != "random_split":
                return None
            node = bound[1]
        if not isinstance(node, ast.Call):
            return None
        if called_name(node) not in _PARTS_OF_DATA or not node.args:
            break
        data = node.args[0]
    else:
        return None
    if called_name(node) == "TensorDataset":
        place = keys[0] if keys else None
        if not isinstance(place, int) or not 0 <= place < len(node.args) or isinstance(node.args[place], ast.Starred):
            return None
        tensor = follow.made(node.args[place], spot, calls=False)
        return BatchItem("", tensor, loader) if not isinstance(tensor.node, (ast.Name, ast.Attribute)) else None
    owner = follow.defined(node.func, spot)
    if owner is None or not isinstance(owner[0], ast.ClassDef):
        return None
    method = method_of(owner[0], (_ITEM,)) if method_of(owner[0], _OTHER_WAYS) is None else None
    made = _returned(follow, method, owner[1], keys) if method is not None else None
    return BatchItem(f"{owner[0].name}.{_ITEM}", made, loader) if made is not None else None


def _returned(follow: Slice, function: ast.FunctionDef, spot: Spot, keys: tuple[_Key, ...]) -> Made | None:
    """The part of what a function returns, where it has one `return`."""
    returns = [item for item in own_nodes(function) if isinstance(item, ast.Return)]
    if len(returns) != 1 or returns[0].value is None:
        return None
    inside = structs.replace(spot, scope=function, line=returns[0].lineno + 1, depth=None, call=None)
    found = Made(returns[0].value, inside)
    for key in keys:
        whole = follow.made(found.node, found.spot, calls=False)
        item = _item(whole.node, key)
        if item is None:
            return None
        found = Made(item, whole.spot)
    made = follow.made(found.node, found.spot, calls=False)
    return None if isinstance(made.node, ast.Name) and made.node.id in all_parameters(function) else made


def _item(node: ast.AST, key: _Key) -> ast.expr | None:
    if isinstance(node, (ast.Tuple, ast.List)) and isinstance(key, int):
        whole = not any(isinstance(item, ast.Starred) for item in node.elts)
        return node.elts[key] if whole and -len(node.elts) <= key < len(node.elts) else None
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        held = [value for name, value in pairs if isinstance(name, ast.Constant) and name.value == key]
        return held[0] if len(held) == 1 and None not in node.keys else None
    return keyword_value(node, key) if isinstance(node, ast.Call) and _is_dict(node) and isinstance(key, str) else None


def _is_dict(call: ast.Call) -> bool:
    return called_name(call) == "dict" and not call.args
