"""A loop that tries one item after the other, where the next one follows from the last one alone.

A dataset that takes another item for one it refuses computes which: by a step around its length, or by a generator that
each pass seeds anew. Then the items that follow an item are always the same, and a circle of refused ones never ends.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.changes import PURE, RANDOM, bound_in, names_read, touched
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, function_named, own_nodes
from pytracer.analyze.evidence.syntax.unbounded import (
    LONGEST,
    EndlessLoop,
    Reason,
    body_of,
    head_of,
    leaves,
    short_text,
    yields,
)

_SAME = PURE | {"hash", "divmod", "pow", "floor", "item"}  # of the same arguments always
_GENERATORS = frozenset({"Random", "default_rng", "RandomState", "manual_seed"})
_SEEDS = frozenset({"seed", "manual_seed"})
_DEPTH, _DEEPEST = 2, 4
_LIBRARIES = frozenset({"numpy", "np", "torch", "cv2", "PIL", "json", "pickle", "math", "re", "Image", "F"})
_STEADY = frozenset(  # of what they are given, besides: they read a file, or look at a value
    {"load", "loads", "open", "imread", "convert", "decode", "array", "asarray", "split", "strip", "lower", "upper"}
    | {"startswith", "endswith", "mean", "std", "numel", "dim", "size", "count", "index", "find", "copy", "clone", "to"}
    | {"astype", "float", "long", "tolist", "numpy", "keys", "values", "items", "get", "isnan", "isfinite", "nonzero"}
)
_VARYING = Pattern(  # what another thread or process changes
    r"(^|[._])(next|readline|pop\w*|get_nowait|recv|time|monotonic|input|exists|is_?file|stat|busy|idle|ready|alive|done"
    r"|free|state|status|full|empty|locked|active|available|running|qsize|acquire|poll|sleep|wait)$"
)
_ENDS = (ast.Break, ast.Return, ast.Raise)
_STORES = frozenset({"append", "add", "pop", "update", "setdefault", "remove", "extend", "clear", "insert", "discard"})


def same_again(tree: ast.Module, scope: Scope, loop: EndlessLoop) -> Reason | None:
    """Why the loop may go round for ever; None where anything but the item itself may end it, or decide what follows.

    Args:
        tree: The file, whose functions the loop may call.
        scope: The function of the loop.
        loop: The loop.
    """
    if not isinstance(loop, ast.While) or yields(body_of(loop)):
        return None
    body = _Body(tree, class_around(tree, scope), body_of(loop))
    for name, values in body.values.items():
        node = body.carried_by(name, loop.test)
        made = body.made_of(values or ()) if node is not None else None
        if made is None or node is None or name not in made.names or not made.bounded:
            continue
        if not body.keeps(made.names) or any(body.goes_on(item, name) for item in made.names - {name}):
            continue
        if not body.takes(name, loop.test) or body.compares(name, loop.test):
            continue
        test = _end_by(body, loop, name)
        if test is not None:
            return _reason(loop, name, node, made.seeded, test)
    return None


def _reason(loop: ast.While, name: str, node: ast.stmt, seeded: ast.Call | None, test: ast.expr) -> Reason:
    again = "once one comes again that was refused, the same ones follow it for ever"
    bound = (
        f"Bound the tries of the loop of line {loop.lineno} (`{head_of(loop)}`), and raise where none fits; or leave "
        f"those items out in advance that line {test.lineno} (`{short_text(test)}`) does not accept."
    )
    if seeded is None:
        text = shortened(ast.unparse(node), LONGEST)
        return Reason(
            f"the next `{name}` (line {node.lineno}: `{text}`) follows from the last one alone: {again}",
            bound,
            tries=True,
        )
    return Reason(
        f"the next `{name}` follows from the last one alone, as line {seeded.lineno} seeds the generator anew for each "
        f"(`{short_text(seeded)}`): {again}",
        f"Seed the generator once, before the tries begin, so that it goes on to other values (line {seeded.lineno}). "
        f"{bound}",
        tries=True,
    )


class _Made(msgspec.Struct, frozen=True):
    """What values are made of: the names, whether they stay in a range, and the call that seeds their generator."""

    names: frozenset[str] = frozenset()
    bounded: bool = False
    seeded: ast.Call | None = None
    also: tuple[ast.expr, ...] = ()
    """More expressions that they are made of."""

    def __or__(self, other: _Made) -> _Made:
        return _Made(
            self.names | other.names,
            self.bounded or other.bounded,
            self.seeded or other.seeded,
            (*self.also, *other.also),
        )


class _Body:
    """Statements that run each time: of a loop, or of a function that it calls."""

    def __init__(
        self, tree: ast.Module, owner: ast.ClassDef | None, nodes: Sequence[ast.AST], depth: int = _DEPTH
    ) -> None:
        self.nodes, self.values = nodes, _values(nodes)
        self._tree, self._owner, self._depth = tree, owner, depth
        self._bound, self._touched = bound_in(nodes), touched(nodes, passed=False) - {"self"} - _imported(tree)

    def made_of(self, values: Sequence[ast.AST]) -> _Made | None:
        """All that values are made of here; None where that is not known, or is not the same each time."""
        found, todo = _Made(), list(values)
        while todo:
            node = todo.pop()
            for call in _calls(node):
                own = self._same(call)
                if own is None:
                    return None
                found |= own
                todo += own.also
            found |= _Made(
                bounded=any(isinstance(item, ast.BinOp) and isinstance(item.op, ast.Mod) for item in nodes_of(node))
            )
            for name in set(self._read(node)) - found.names:
                found |= _Made(frozenset({name}))
                if name in self.values and self.values[name] is None:
                    return None
                todo += self.values.get(name) or ()
        return found

    def keeps(self, names: frozenset[str]) -> bool:
        """Whether nothing here changes those that no plain assignment sets; of attributes, no method may do so."""
        methods = [item for item in self._owner.body if isinstance(item, ast.FunctionDef)] if self._owner else []
        stored = {one for item in methods if item.name != "__init__" for one in bound_in(own_nodes(item))}
        return not any(
            name in self._bound or name in self._touched or ("." in name and name in stored)
            for name in names
            if name not in self.values
        )

    def behind(self, node: ast.AST, name: str) -> set[str]:
        """What an expression reads here, with what that is made of, up to a variable."""
        todo, seen = self._read(node), set[str]()
        while todo:
            item = todo.pop()
            if item not in seen:
                seen.add(item)
                values = (self.values.get(item) or ()) if item != name else ()
                todo += [one for value in values for one in self._read(value)]
        return seen

    def takes(self, name: str, test: ast.expr) -> bool:
        """Whether a variable says which item is looked at: as an index, or passed to what gives it."""
        nodes = [*self.nodes, *nodes_of(test)]
        places = [item.slice for item in nodes if isinstance(item, ast.Subscript)]
        calls = [item for item in nodes if isinstance(item, ast.Call) and called_name(item) not in _SAME]
        places += [one for item in calls for one in passed_values(item)]
        return any(isinstance(item, ast.Name) and item.id == name for item in places)

    def compares(self, name: str, test: ast.expr) -> bool:
        """Whether an end asks for the variable itself, as `if i == first: raise`, which is then what ends a circle."""
        tests = [test, *(item.test for item in self.nodes if isinstance(item, ast.Assert))]
        ifs = (item for item in self.nodes if isinstance(item, ast.If))
        tests += [item.test for item in ifs if any(isinstance(one, _ENDS) for one in nodes_of(item))]
        sides = [
            (item.left, *item.comparators) for one in tests for item in nodes_of(one) if isinstance(item, ast.Compare)
        ]
        return any(isinstance(one, ast.Name) and one.id == name for item in sides for one in item)

    def goes_on(self, item: str, name: str) -> bool:
        """Whether a variable gets its next value from its last one, without another variable: a counter."""
        return item != name and any(item in self.behind(value, name) for value in self.values.get(item) or ())

    def carried_by(self, name: str, test: ast.expr) -> ast.Assign | ast.AugAssign | None:
        """The first statement that sets a variable whose last value the pass, or the condition, reads before."""
        sets = [
            item for item in self.nodes if isinstance(item, (ast.Assign, ast.AugAssign)) and name in bound_in([item])
        ]
        first = min(sets, key=lambda item: item.lineno, default=None)
        loads = (item for item in (*nodes_of(test), *self.nodes) if isinstance(item, ast.Name) and item.id == name)
        read = min((item.lineno for item in loads if isinstance(item.ctx, ast.Load)), default=None)
        return first if first is not None and read is not None and read <= first.lineno else None

    def _read(self, node: ast.AST) -> list[str]:
        """What an expression reads; of `item.size`, where `item` is a variable that is set here, that one."""
        found = [(name, name.partition(".")[0]) for name in names_read(node)]
        return [root if root in self.values else name for name, root in found]

    def is_steady(self, test: ast.expr, name: str) -> bool:
        """Whether it comes out the same for the same value of a variable: no counter, no set of those tried."""
        made: list[ast.AST] = [test]
        behind = self.behind(test, name) - {name}
        for item in behind:
            values = self.values.get(item)
            if values is None and (item in self._bound or item in self._touched):
                return False
            if self.goes_on(item, name):
                return False
            made += values or ()
            if self._owner is not None and "." in item and item in _stored_in(self._owner):
                return False
        read = (one for node in made for one in nodes_of(node) if isinstance(one, ast.Attribute))
        if any(_VARYING.search(one.attr) for one in read):
            return False
        seen: set[ast.AST] = set()
        return not any(self._varies(call, _DEEPEST, seen) for node in made for call in _calls(node))

    def _same(self, call: ast.Call) -> _Made | None:
        """Of a call that returns the same for the same arguments."""
        name = called_name(call) or ""
        if name in _GENERATORS:
            return _Made(seeded=call) if passed_values(call) else None
        if name in _SAME or (name == "Generator" and not RANDOM.search(name)):
            return _Made()
        if RANDOM.search(ast.unparse(call.func)):
            return self._drawn(call)
        function = self._function(call)
        if function is None or not self._depth:
            return None
        body = _Body(self._tree, self._owner, own_nodes(function), self._depth - 1)
        made = body.made_of(
            [item.value for item in body.nodes if isinstance(item, ast.Return) and item.value is not None]
        )
        if made is None:
            return None
        attributes = frozenset(item for item in made.names if item.startswith("self."))
        return _Made(attributes, made.bounded, made.seeded)

    def _drawn(self, call: ast.Call) -> _Made | None:
        """A draw from a generator that is made, or seeded, here."""
        base = keyword_value(call, "generator") or (call.func.value if isinstance(call.func, ast.Attribute) else None)
        if base is None:
            return None
        made = (self.values.get(base.id) if isinstance(base, ast.Name) else None) or [base]
        if all(isinstance(item, ast.Call) and called_name(item) in _GENERATORS for item in made):
            return _Made(bounded=True, also=tuple(made))
        seeds = [
            item
            for item in self.nodes
            if isinstance(item, ast.Call) and called_name(item) in _SEEDS and passed_values(item)
            and isinstance(item.func, ast.Attribute) and ast.unparse(item.func.value) in (ast.unparse(base), "torch")
        ]  # fmt: skip
        return _Made(bounded=True, seeded=seeds[0], also=tuple(passed_values(seeds[0]))) if len(seeds) == 1 else None

    def _varies(self, call: ast.Call, depth: int, seen: set[ast.AST]) -> bool:
        """Whether it may return something else for the same arguments, as far as its source shows."""
        text, name = ast.unparse(call.func), called_name(call) or ""
        if _VARYING.search(text):
            return True
        function = self._function(call)
        if function is not None and function not in seen:
            seen.add(function)
            inner = (self._varies(item, depth - 1, seen) for item in _calls(function))
            return not depth or _stores(function) or any(inner)
        if function is not None:
            return False
        if RANDOM.search(text):
            return self._drawn(call) is None
        known = name in _SAME | _STEADY | _GENERATORS | _SEEDS or text.partition(".")[0] in _LIBRARIES
        return not known

    def _function(self, call: ast.Call) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The program's function that is called: by its bare name, or as a method of `self`."""
        base = call.func.value if isinstance(call.func, ast.Attribute) else None
        of_self = isinstance(base, ast.Name) and base.id == "self"
        return function_named(self._tree, called_name(call) or "") if base is None or of_self else None


def _end_by(body: _Body, loop: ast.While, name: str) -> ast.expr | None:
    """The condition of the loop's end that reads a variable; None where anything else may end it."""
    tests = [loop.test] if not isinstance(loop.test, ast.Constant) else []
    for item in leaves(loop):
        around = [one.test for one in body.nodes if isinstance(one, ast.If) and item in nodes_of(one)]
        if not around:
            return None
        tests += around
    found = [item for item in tests if name in body.behind(item, name)]
    return found[0] if found and all(body.is_steady(item, name) for item in tests) else None


def _values(nodes: Sequence[ast.AST]) -> dict[str, list[ast.expr] | None]:
    """What assignments give to each variable; None where it gets a value in another way, too."""
    found: dict[str, list[ast.expr]] = {}
    plain: set[ast.AST] = set()
    for item in nodes:
        target = item.targets[0] if isinstance(item, ast.Assign) and len(item.targets) == 1 else None
        if isinstance(item, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
            target = item.target
        value: ast.expr | None = getattr(item, "value", None)
        if not isinstance(target, ast.Name) or value is None:
            continue
        plain.add(target)
        if isinstance(item, ast.AugAssign):
            value = ast.BinOp(ast.Name(target.id, ast.Load()), item.op, value)
        found.setdefault(target.id, []).append(value)
    stored = (item for item in nodes if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store))
    others = {item.id for item in stored if item not in plain}
    return {**found, **dict.fromkeys(others)}


def _stores(function: ast.AST) -> bool:
    """Whether a method changes an attribute, or an item of one: a counter, or what it keeps."""
    return any(name.startswith("self.") for name in bound_in(own_nodes(function)) | _filled(own_nodes(function)))


def _stored_in(owner: ast.ClassDef) -> set[str]:
    """Attributes that methods set, or fill, later than at first."""
    methods = [item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name != "__init__"]
    return {one for item in methods for one in bound_in(own_nodes(item)) | _filled(own_nodes(item))}


def _filled(nodes: Sequence[ast.AST]) -> set[str]:
    """`self.rows` of `self.rows[i] = row` and of `self.rows.append(row)`."""
    items = {
        ast.unparse(item.value)
        for item in nodes
        if isinstance(item, ast.Subscript) and not isinstance(item.ctx, ast.Load)
    }
    return items | {
        ast.unparse(item.func.value)
        for item in nodes
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in _STORES
    }


def _imported(tree: ast.Module) -> set[str]:
    names = (one for item in nodes_of(tree) if isinstance(item, ast.Import | ast.ImportFrom) for one in item.names)
    return {(one.asname or one.name).partition(".")[0] for one in names}


def _calls(node: ast.AST) -> list[ast.Call]:
    return [item for item in nodes_of(node) if isinstance(item, ast.Call)]
