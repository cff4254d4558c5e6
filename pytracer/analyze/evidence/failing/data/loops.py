"""What a loop changes while it runs, and lists whose items a loop makes: the line in it that does so."""

from __future__ import annotations

import ast
import re

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import bound_value, is_empty_container, lines_that_fill
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes

_CHANGED = Pattern(r"(?:dictionary|[Ss]et|deque|OrderedDict|dictionary keys) (?:changed|mutated)\b.*during iteration")
_CHANGES = frozenset({"pop", "popitem", "update", "setdefault", "add", "remove", "discard", "clear", "append",
                      "appendleft", "popleft", "extend"})  # fmt: skip
_IMAGE = 3  # dimensions
_VIEWS = ("items", "keys", "values")
_THREADS = Pattern(r"\b(?:ThreadPoolExecutor|ThreadPool|Thread|Timer)\(")
_STACK = Pattern(r"equal size, but got (\[[\d, ]*\]) at entry 0 and (\[[\d, ]*\]) at entry (\d+)")


def changed_in_loop(at: FailingLine) -> str | None:
    """`for key in table: table.pop(key)`; or by another thread."""
    loop = at.statement
    if not _CHANGED.search(at.message):
        return None
    if not isinstance(loop, (ast.For, ast.AsyncFor)):
        return _by_thread(at)
    over = loop.iter
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr in _VIEWS:
        over = over.func.value
    table = source(over)
    changes = [
        (item.lineno, source(item), "")
        for part in loop.body
        for item in nodes_of(part)
        if isinstance(item, (ast.Call, ast.Delete, ast.Assign)) and _changes(item, table)
        if not _sets_own_key(item, loop) and not _leaves_after(item, loop)
    ]
    changes = changes or _in_called(at, loop, table)
    if not changes:
        return _by_thread(at)
    line, text, by = changes[0]
    kind = "dict" if "dict" in at.message.lower() else "container"
    copy = f"list({source(loop.iter)})"
    others = f" or line {changes[1][0]} (`{changes[1][1]}`)" if len(changes) > 1 and not by else ""
    return (
        f"Line {line} (`{text}`){others}{by} changes `{table}` while the loop of {at.here(loop.lineno)} runs over it. "
        f"Loop over a copy (`for ... in {copy}:`), or collect what is to change, and make a new {kind} after the loop."
    )


def _by_thread(at: FailingLine) -> str | None:
    """Where the line runs on a thread: another one changed what it went through."""
    own = any((frame.file or "").endswith(("concurrent/futures/thread.py", "/threading.py")) for frame in at.stack)
    started = any(_THREADS.search(ast.unparse(tree)) for tree in at.files.values())
    inside = [*nodes_of(at.statement or ast.Pass())]
    over = [item.iter for item in inside if isinstance(item, (ast.comprehension, ast.For))]
    if not (own or started) or len(over) != 1:
        return None
    table = over[0].func.value if isinstance(over[0], ast.Call) and isinstance(over[0].func, ast.Attribute) else over[0]
    calls = (item for item in inside if isinstance(item, (ast.Call, ast.Delete, ast.Assign)))
    if any(_changes(item, source(table)) for item in calls):
        return None
    return (
        f"Another thread has likely changed `{source(table)}` while line {at.line} went through it: go through a copy "
        f"that is made below a lock (`with lock: items = list({source(over[0])})`), and change it below the same lock."
    )


def _changes(item: ast.AST, table: str) -> bool:
    if isinstance(item, ast.Call):
        func = item.func
        return isinstance(func, ast.Attribute) and func.attr in _CHANGES and source(func.value) == table
    targets = item.targets if isinstance(item, (ast.Delete, ast.Assign)) else []
    return any(isinstance(target, ast.Subscript) and source(target.value) == table for target in targets)


def _leaves_after(item: ast.AST, loop: ast.AST) -> bool:
    """Whether the loop is left behind it, so that it goes through nothing more."""
    blocks = [getattr(around, name, None) for around in nodes_of(loop) for name in ("body", "orelse")]
    for block in (part for part in blocks if isinstance(part, list)):
        for n, part in enumerate(block):
            if not hasattr(part, "body") and any(inner is item for inner in nodes_of(part)):
                return any(isinstance(after, (ast.Break, ast.Return, ast.Raise)) for after in block[n + 1 :])
    return False


def _sets_own_key(item: ast.AST, loop: ast.For | ast.AsyncFor) -> bool:
    """`table[key] = value` of the key that the loop is at, which makes no other."""
    targets = item.targets if isinstance(item, ast.Assign) else []
    names = {part.id for part in nodes_of(loop.target) if isinstance(part, ast.Name)}
    own = [target for target in targets if isinstance(target, ast.Subscript) and variable(target.slice) in names]
    return bool(own)


def _in_called(at: FailingLine, loop: ast.For | ast.AsyncFor, table: str) -> list[tuple[int, str, str]]:
    """Methods of the same object that the loop calls."""
    owner = class_around(at.tree, at.scope)
    methods = {
        item.name: item for item in (owner.body if owner is not None else ()) if isinstance(item, ast.FunctionDef)
    }
    found = []
    for part in loop.body:
        for item in nodes_of(part):
            name = called_name(item) if isinstance(item, ast.Call) and variable(item.func) is not None else None
            for inner in nodes_of(methods[name]) if name in methods else ():
                if isinstance(inner, (ast.Call, ast.Delete, ast.Assign)) and _changes(inner, table):
                    found.append((inner.lineno, source(inner), f", called at line {getattr(item, 'lineno', 0)},"))
    return found if table.startswith("self.") else []


def stacked_list(at: FailingLine) -> str | None:
    """torch.stack() of a list that the program fills itself, by slices or by a function."""
    found, call = _STACK.search(at.message), at.only(ast.Call)
    if found is None or call is None or not call.args or any("collate.py" in (item.file or "") for item in at.stack):
        return None
    made = at.made(call.args[0])
    node, spot = (made.node, made.spot) if made is not None else (call.args[0], at.slice.spot(0))
    if made is not None and isinstance(node, ast.List) and not node.elts:  # `out = []`, which a loop fills
        node, spot = next(((part, where) for part, where in made.through[::-1] if variable(part)), (node, spot))
    name = variable(node)
    item, line = _item_of(node, spot, name) if spot is not None else (None, 0)
    told = f"Entry 0 of `{source(call.args[0])}` is {found[1]} and entry {found[3]} {found[2]}"
    one, other = (re.findall(r"\d+", found[n]) for n in (1, 2))
    if len(one) == len(other) == _IMAGE and one[1:] == other[1:] and {one[0], other[0]} <= {"1", "3", "4"}:
        return f'{told}, in channels: convert all images alike (`.convert("RGB")`) where they are read.'
    if (
        one[1:] == other[1:]
        and len(one) == len(other) > 1
        and int(other[0]) < int(one[0])
        and _is_last(at, call, found[3])
    ):
        return (
            f"{told}, the last and shorter one, as a last batch of a loader is: join them with "
            f"`torch.cat({source(call.args[0])})`, which takes batches of any size, or set drop_last=True."
        )
    if item is None or spot is None:
        return f"{told}: pad or cut them to one size where they are made{at.came(call.args[0])}."
    sliced = _slice_of(item, spot, line)
    where = f"{at.place(spot, line)} (`{source(item)}`)"
    if sliced is None:
        return f"{told}, each made by {where}: pad or cut them to one size there."
    return (
        f"{told}: each is the slice of {where}, which is shorter where `{source(sliced.value)}` ends. Stop the loop "
        "before (`len(...) - size + 1` as its end), or pad the last ones to one size."
    )


def _is_last(at: FailingLine, call: ast.Call, entry: str) -> bool:
    """Whether that entry is the last of the list."""
    count = re.match(r"(?:list|tuple) of (\d+)$", at.value(call.args[0]) or "")
    return count is not None and int(count[1]) == int(entry) + 1


def _item_of(node: ast.AST, spot: Spot, name: str | None) -> tuple[ast.expr | None, int]:
    """What `out.append(item)` adds, or the element of a comprehension."""
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return node.elt, node.lineno
    if name is None:
        return None, 0
    fills = lines_that_fill(spot.scope, name)
    calls = [
        item for item in own_nodes(spot.scope) if isinstance(item, ast.Call) and item.lineno in fills and item.args
    ]
    added = [item for item in calls if isinstance(item.func, ast.Attribute) and variable(item.func.value) == name]
    begun = bound_value(spot.scope, name, spot.line)
    values = begun[1].elts if begun is not None and isinstance(begun[1], ast.Tuple) else [begun[1]] if begun else []
    if len(added) == len(fills) == 1 and values and all(map(is_empty_container, values)):  # `lows, highs = [], []`
        return added[0].args[0], added[0].lineno
    bound = bound_value(spot.scope, name, spot.line)
    inner = bound[1] if bound is not None else None
    return (inner.elt, inner.lineno) if isinstance(inner, ast.ListComp) and not fills else (None, 0)


def _slice_of(item: ast.expr, spot: Spot, line: int) -> ast.Subscript | None:
    name = variable(item)
    bound = bound_value(spot.scope, name, line) if name is not None else None
    value = bound[1] if bound is not None else item
    found = [part for part in nodes_of(value) if isinstance(part, ast.Subscript)] if value is not None else []
    held = [part for part in found if any(isinstance(inner, ast.Slice) and inner.upper is not None
                                          and not isinstance(inner.upper, ast.Constant)
                                          for inner in nodes_of(part.slice))]  # fmt: skip
    return held[0] if len(held) == 1 else None
