"""Whether what one expression gives takes part in a loss: forwards from it, through functions of the program.

Each value is known by its ways: on each it carries the gradient, or not, and then by which line. What is not followed
(calls of libraries, comprehensions) carries what it is given, so that a way without it is one that the source shows.
Where a value that carries it goes to what others read (a list of the module, an object of a library), it has escaped:
nothing is known then.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from msgspec import structs

from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.slicing.calls import argument_of, method_of
from pytracer.analyze.evidence.slicing.gradient_values import (
    CUT,
    NOTHING,
    Level,
    Value,
    cut,
    differ,
    joined,
    made_of,
    of_parts,
    part_of,
)
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.cut_values import names_switch
from pytracer.analyze.evidence.syntax.names import holds, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import all_parameters, class_around, own_nodes, parameters, spans

_DEEPEST, _MOST_CALLS = 5, 60
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_CUTS = frozenset({"detach", "detach_", "item", "tolist", "numpy", "argmax", "argmin"})
_CUT_ATTRIBUTES = frozenset({"data"})
_SIZES = frozenset({"shape", "dtype", "device", "ndim", "size", "dim", "numel", "requires_grad"})
_GROWS = frozenset({"append", "extend", "add", "update", "insert", "put", "appendleft"})
_MAKE_CONTAINERS = frozenset({"list", "dict", "set", "defaultdict", "OrderedDict", "deque"})
_CONTAINERS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_LOGGERS, _LOGS = frozenset({"logger", "logging", "log"}), frozenset({"debug", "info", "warning"})


_Env = dict[str, Value]


class Flow:
    """Follows one expression's gradient.

    `losses`: what each backward() is called of; `escaped`: whether it goes into what is not followed. `seen`: whether
    the seed was reached. `decides`: the branches of which one side carries it and another does not, by place; a
    function that returns both is there as None.

    Args:
        slice_: Of the process.
        seed: The call that gives the value.
        value: Of that call.
    """

    def __init__(self, slice_: Slice, seed: ast.Call | None, value: Value = NOTHING) -> None:
        self._slice, self._seed, self._value = slice_, seed, value
        self._calls = 0
        self.off = 0  # blocks around in which no gradient is recorded
        self.losses: dict[ast.Call, Value] = {}
        self.escaped = self.seen = False
        self.decides: dict[Place, ast.AST | None] = {}
        self.unfollowed: set[ast.Call] = set()

    def run(self, spot: Spot, env: _Env, depth: int = 0) -> Value:
        """What a function returns."""
        function = spot.scope
        if not isinstance(function, ast.FunctionDef) or depth > _DEEPEST:
            self.escaped = True
            return NOTHING
        self.escaped |= any(map(_yields, own_nodes(function))) or self._is_called_again(function)
        off = any(map(names_switch, function.decorator_list))
        self.off += off
        run = _Run(self, spot, depth)
        run.block(function.body, env)
        self.off -= off
        if differ(run.returned):
            self.decides[spot.file, function.lineno] = None
        return joined(run.returned) if run.returned else NOTHING

    def _is_called_again(self, scope: ast.AST) -> bool:
        """Whether a function has another call of what the seed calls, or gives that to another function."""
        if self._seed is None:
            return False
        own = ast.unparse(self._seed.func)
        for item in nodes_of(scope):
            if isinstance(item, ast.Call) and item is not self._seed:
                name = ast.unparse(item.func)
                given = any(ast.unparse(part) == own for part in passed_values(item))
                if given or name == own or name.startswith(f"{own}.module"):
                    return True
        return False

    def called(self, call: ast.Call, spot: Spot, env: _Env, depth: int, given: list[Value]) -> Value | None:
        """What a function of the program gives for a call that passes what carries the gradient; None of another one.

        One of the object itself is gone through as well, where a part of the object has it.
        """
        inside = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "self"
        own = {name: value for name, value in env.items() if name.startswith("self.")} if inside else {}
        if not own and all(item.lacks for item in given):
            if inside and self._seed is not None:  # another method may call the model again
                found = self._slice.function(call, spot)
                self.escaped |= found is not None and self._is_called_again(found[0])
            return None
        found = self._slice.function(call, spot)
        if found is None:
            return None
        function, at = found
        spread = any(isinstance(item, ast.Starred) for item in call.args) or any(k.arg is None for k in call.keywords)
        self._calls += 1
        if spread or self._calls > _MOST_CALLS or any(_yields(item) for item in nodes_of(function)):
            self.escaped = True
            return None
        passed = {name: argument_of(call, function, name) for name in parameters(function)}
        known = [node for node in passed.values() if node is not None]
        values = zip(passed_values(call), given, strict=True)
        self.escaped |= any(not value.lacks and all(node is not item for item in known) for node, value in values)
        run = _Run(self, spot, depth)
        bound = {name: run.value(node, env) for name, node in passed.items() if node is not None}
        inner = structs.replace(at, scope=function, line=function.lineno + 1, depth=None, call=(call, spot))
        around = env if any(item is function for item in nodes_of(spot.scope)) else {}
        outer = {name: value for name, value in around.items() if name not in all_parameters(function)}
        return self.run(inner, {**outer, **own, **bound}, depth + 1)

    def seeded(self, call: ast.Call) -> Value | None:
        """Of the call that it begins at."""
        if call is not self._seed:
            return None
        self.seen = True
        return self._value

    def is_seeded_at(self, spot: Spot, place: Place) -> bool:
        """Whether a line of the spot's file is one of the seed's."""
        return self._seed is not None and place[0] == spot.file and spans(self._seed, place[1])

    def recorded(self, value: Value) -> Value:
        """As it is where it is made: without a gradient where none is recorded."""
        return CUT if self.off and Level.CARRIES in value.levels else value


class _Run:
    """One run through a function."""

    def __init__(self, flow: Flow, spot: Spot, depth: int) -> None:
        self._flow, self._spot, self._depth = flow, spot, depth
        self.returned: list[Value] = []
        self._left: list[list[_Env]] = []  # of each loop around, what there is at its break and continue
        scope = spot.scope
        self._inner = [item for item in nodes_of(scope) if isinstance(item, _FUNCTIONS) and item is not scope]
        declared = [item for item in own_nodes(scope) if isinstance(item, (ast.Global, ast.Nonlocal))]
        self._shared = {name for item in declared for name in item.names}

    def block(self, body: Sequence[ast.stmt], env: _Env) -> bool:
        """Changes `env`; returns whether it goes on behind the block."""
        return all(self._statement(item, env) for item in body)

    def _statement(self, item: ast.stmt, env: _Env) -> bool:
        if isinstance(item, (ast.Assign, ast.AnnAssign)):
            if item.value is not None:
                for target in item.targets if isinstance(item, ast.Assign) else [item.target]:
                    if variable(target) == "_":
                        self._alone(item.value, env)
                    self._bind(target, self._placed(item.value, item, env), env)
        elif isinstance(item, ast.AugAssign):
            name = variable(item.target)
            before, added = env.get(name or "", NOTHING), self.value(item.value, env)
            if Level.CARRIES in added.levels and not before.carries and name in all_parameters(self._spot.scope):
                self._flow.escaped = True  # a tensor or a list is changed in place
            self._bind(item.target, made_of([before, added]), env)
        elif isinstance(item, ast.Return):
            self.returned.append(self._placed(item.value, item, env) if item.value is not None else NOTHING)
            return False
        elif isinstance(item, ast.If):
            self.value(item.test, env)
            return self._branches(item, [item.body, item.orelse], env)
        elif isinstance(item, (ast.For, ast.AsyncFor, ast.While)):
            self._loop(item, env)
        elif isinstance(item, (ast.With, ast.AsyncWith)):
            return self._with(item, env)
        elif isinstance(item, ast.Try):
            return self._try(item, env)
        elif isinstance(item, ast.Expr):
            self._alone(item.value, env)
        elif isinstance(item, ast.Match):
            self.value(item.subject, env)
            return self._branches(item, [*(case.body for case in item.cases), []], env)
        elif isinstance(item, ast.Assert):
            self.value(item.test, env)
        elif isinstance(item, (ast.Continue, ast.Break)) and self._left:
            self._left[-1].append(dict(env))
        elif isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
            env[item.name] = self._of_names(item, env)
        return not isinstance(item, (ast.Raise, ast.Continue, ast.Break))

    def _branches(self, item: ast.AST, bodies: Sequence[Sequence[ast.stmt]], env: _Env) -> bool:
        ends = []
        for body in bodies:
            own = dict(env)
            if self.block(body, own):
                ends.append(own)
        return self._join(item, ends, env)

    def _join(self, item: ast.AST, ends: Sequence[_Env], env: _Env) -> bool:
        names = {name for end in ends for name in end}
        for name in names:
            values = [end.get(name, NOTHING) for end in ends]
            if differ(values):
                self._flow.decides[self._spot.file, getattr(item, "lineno", 0)] = item
            env[name] = joined(values)
        return bool(ends)

    def _try(self, item: ast.Try, env: _Env) -> bool:
        ends = []
        whole = dict(env)
        if self.block([*item.body, *item.orelse], whole):
            ends.append(whole)
        for handler in item.handlers:
            own = dict(env)
            self.block(item.body, own)
            if self.block(handler.body, own):
                ends.append(own)
        goes_on = self._join(item.handlers[0] if len(item.handlers) == 1 else item, ends, env)
        return self.block(item.finalbody, env) and goes_on

    def _loop(self, item: ast.For | ast.AsyncFor | ast.While, env: _Env) -> None:
        """What adds up does so in at least one round; what only some rounds change is not known."""
        before = set(env)
        for _ in range(2):  # what one round made is there in the next one
            own = dict(env)
            if isinstance(item, ast.While):
                self.value(item.test, own)
            else:
                self._bind(item.target, Value(self.value(item.iter, own).ways), own)
            self._left.append([])
            goes_on = self.block(item.body, own)
            ends = [*([own] if goes_on else []), *self._left.pop()]
            for name in {name for end in ends for name in end}:
                values = [end[name] for end in ends if name in end]
                value = joined(values)
                if differ(values) or (name in before and not value.carries and not value.lacks):
                    self._flow.escaped = True
                env[name] = value
        self.block(item.orelse, env)

    def _with(self, item: ast.With | ast.AsyncWith, env: _Env) -> bool:
        for part in item.items:
            self.value(part.context_expr, env)
        off = any(names_switch(part.context_expr) for part in item.items)
        self._flow.off += off
        goes_on = self.block(item.body, env)
        self._flow.off -= off
        return goes_on

    def _alone(self, node: ast.expr, env: _Env) -> None:
        """A call for its effect: what is put into a list, or changed in place."""
        value = self.value(node, env)
        if not isinstance(node, ast.Call):
            self._flow.escaped |= Level.CARRIES in value.levels
            return
        if node not in self._flow.unfollowed:
            return
        name = called_name(node) or ""
        given = {level for item in passed_values(node) for level in self.value(item, env).levels}
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if owner is not None and name.endswith("_") and Level.CARRIES in value.levels | self.value(owner, env).levels:
            self._put(owner, value, env)
            self._flow.escaped |= name in _CUTS
        elif Level.CARRIES not in given or _is_log(node):
            return
        elif owner is not None and name in _GROWS:
            self._put(owner, value, env)
        else:
            self._flow.escaped = True

    def _put(self, base: ast.expr, value: Value, env: _Env) -> None:
        """Into a part of an object: of a container that this function makes, else it is not known who reads it."""
        while isinstance(base, (ast.Subscript, ast.Attribute)) and variable(base) is None:
            base = base.value
        name = variable(base)
        if name is None or not self._is_made_here(name) or self._is_given_above(name, base.lineno):
            self._flow.escaped = True
        else:
            env[name] = Value(made_of([env.get(name, NOTHING), value]).ways)

    def _is_given_above(self, name: str, line: int) -> bool:
        """Whether a line above has another name for the same, or gives it to a call: `bag = Bag(parts)`."""
        nodes = own_nodes(self._spot.scope)
        used = {id(item.value) for item in nodes if isinstance(item, (ast.Attribute, ast.Subscript))}
        return any(
            isinstance(item, ast.Name)
            and item.id == name
            and isinstance(item.ctx, ast.Load)
            and item.lineno < line
            and id(item) not in used
            for item in nodes
        )

    def _is_made_here(self, name: str) -> bool:
        scope = self._spot.scope
        if name in self._shared or name in all_parameters(scope):
            return False
        bound = [item for item in own_nodes(scope) if isinstance(item, (ast.Assign, ast.AnnAssign))]
        made = []
        for item in bound:
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            if any(holds(target, name) for target in targets):
                made.append(item.value if any(variable(target) == name for target in targets) else None)
        return bool(made) and all(
            isinstance(item, _CONTAINERS) or (isinstance(item, ast.Call) and called_name(item) in _MAKE_CONTAINERS)
            for item in made
        )

    def _bind(self, target: ast.expr, value: Value, env: _Env) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            starred = any(isinstance(item, ast.Starred) for item in target.elts)
            for place, item in enumerate(target.elts):
                part = value.parts.get(place) if value.parts is not None and not starred else None
                inner = item.value if isinstance(item, ast.Starred) else item
                self._bind(inner, part if part is not None else Value(value.ways), env)
        elif isinstance(target, ast.Name):
            env[target.id] = value
            if Level.CARRIES in value.levels:
                self._flow.escaped |= target.id in self._shared or self._is_read_by_earlier(target)
        elif Level.CARRIES in value.levels:
            self._put(target if variable(target) is not None else target.value, value, env)  # type: ignore[attr-defined]

    def _is_read_by_earlier(self, target: ast.Name) -> bool:
        """Whether a function inside, made above, reads a variable: it has what the variable is when it is called."""
        return any(
            isinstance(item, ast.Name) and item.id == target.id and isinstance(item.ctx, ast.Load)
            for inner in self._inner
            if inner.lineno < target.lineno
            for item in nodes_of(inner)
        )

    def _placed(self, node: ast.expr, item: ast.stmt, env: _Env) -> Value:
        """Of a statement's expression: where it lacks the gradient on all ways, it does so by this line.

        Not by this one where it only hands on, or changes, what this function made without it before; nor where it is
        given by a function of the program to which the gradient came.
        """
        value = self.value(node, env)
        places = [place for _, place in value.ways if place is not None]
        if not value.lacks or (isinstance(node, ast.Call) and places and self._takes(node, env)):
            return value
        scope, names = self._spot.scope, {variable(part) for part in nodes_of(node)}
        made_here = bool(places) and all(
            file == self._spot.file and isinstance(scope, ast.FunctionDef) and spans(scope, line)
            for file, line in places
        )
        targets = item.targets if isinstance(item, ast.Assign) else []
        hands_on = isinstance(node, ast.Name) or any(variable(target) in names - {None} for target in targets)
        if made_here and hands_on and not any(self._is_of_seed(place) for place in places):
            return value
        return value.at((self._spot.file, item.lineno))

    def _is_of_seed(self, place: Place) -> bool:
        return self._flow.is_seeded_at(self._spot, place)

    def _takes(self, call: ast.Call, env: _Env) -> bool:
        return any(not self.value(item, env).lacks for item in passed_values(call))

    def value(self, node: ast.AST, env: _Env) -> Value:
        """Of an expression."""
        return self._flow.recorded(self._value(node, env))

    def _value(self, node: ast.AST, env: _Env) -> Value:
        name = variable(node)
        if isinstance(node, ast.Name) or (name is not None and name in env):
            return env.get(name or "", NOTHING)
        if isinstance(node, ast.Call):
            return self._call(node, env)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, env)
        if isinstance(node, ast.Subscript):
            base = self.value(node.value, env)
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            return part_of(base, key)
        if isinstance(node, (ast.Tuple, ast.List)):
            return of_parts({place: self.value(item, env) for place, item in enumerate(node.elts)})
        if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
            pairs = zip(node.keys, node.values, strict=True)
            return of_parts({key.value: self.value(item, env) for key, item in pairs})  # type: ignore[union-attr]
        if isinstance(node, ast.IfExp):
            sides = [self.value(item, env) for item in (node.body, node.orelse)]
            here = (self._spot.file, node.lineno)
            self.value(node.test, env)
            if differ(sides):
                self._flow.decides[here] = node
            return joined([item.at(here) for item in sides]) if not all(item.lacks for item in sides) else sides[0]
        if isinstance(node, ast.Compare):
            for item in (node.left, *node.comparators):
                self.value(item, env)
            return NOTHING
        if isinstance(node, ast.NamedExpr):
            value = self.value(node.value, env)
            self._bind(node.target, value, env)
            return value
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Starred)):
            return made_of([self.value(item, env) for item in ast.iter_child_nodes(node) if isinstance(item, ast.expr)])
        return self._of_names(node, env)

    def _of_names(self, node: ast.AST, env: _Env) -> Value:
        """Of what is not followed: all that it reads."""
        self._flow.escaped |= any(isinstance(item, ast.NamedExpr) for item in nodes_of(node))
        read = [value for item in nodes_of(node) if (value := env.get(variable(item) or "")) is not None]
        inner = [value for item in nodes_of(node) if isinstance(item, ast.Call) and (value := self._flow.seeded(item))]
        return made_of([*read, *inner]) if read or inner else NOTHING

    def _attribute(self, node: ast.Attribute, env: _Env) -> Value:
        base = self.value(node.value, env)
        if base.parts is not None and node.attr in base.parts:
            return base.parts[node.attr]
        if node.attr in _SIZES:
            return NOTHING
        return cut(base) if node.attr in _CUT_ATTRIBUTES else Value(base.ways)

    def _call(self, call: ast.Call, env: _Env) -> Value:
        seeded = self._flow.seeded(call)
        if seeded is not None:
            return seeded
        name = called_name(call)
        receiver = self.value(call.func.value, env) if isinstance(call.func, ast.Attribute) else NOTHING
        given = [self.value(item, env) for item in passed_values(call)]
        if name == "backward":
            self._backward(call, [receiver, *given])
            return NOTHING
        if name in _SIZES:
            return NOTHING
        here = structs.replace(self._spot, line=call.lineno)
        known = self._flow.called(call, here, env, self._depth, given)
        if known is not None:
            return known
        self._flow.unfollowed.add(call)
        passed = passed_values(call)
        if any(name.startswith("self.") for name in env) and any(
            self._is_method(item) or variable(item) in env.keys() - {*parameters(self._spot.scope)}
            for item in passed
            if isinstance(item, ast.Attribute)
        ):
            self._flow.escaped = True  # checkpoint(self.decode, x), checkpoint(self.head, x)
        steps = any("optim" in ast.unparse(item) for item in passed)  # loss_scaler(loss, optimizer)
        self._flow.escaped |= steps and any(Level.CARRIES in item.levels for item in given)
        own = [] if isinstance(call.func, ast.Attribute) and variable(call.func) not in env else [call.func]
        whole = made_of([receiver, *given, *(self.value(item, env) for item in own)])
        if name in _CUTS:
            return cut(whole)
        of_names = bool(call.keywords) and not call.args and all(item.arg is not None for item in call.keywords)
        if of_names and (name == "dict" or (name or "")[:1].isupper()):
            return of_parts({item.arg: value for item, value in zip(call.keywords, given, strict=True)})
        return whole

    def _backward(self, call: ast.Call, values: Sequence[Value]) -> None:
        """`loss.backward()`, `accelerator.backward(loss)`, `scaler.scale(loss).backward()`: all that is given."""
        loss = made_of(values)
        places = {place for _, place in loss.ways if place is not None}
        known = places and not any(self._is_of_seed(place) for place in places)
        loss = loss if known else loss.at((self._spot.file, call.lineno))
        before = self._flow.losses.get(call)
        self._flow.losses[call] = joined([before, loss]) if before is not None else loss

    def _is_method(self, node: ast.expr) -> bool:
        owner = class_around(self._spot.tree, self._spot.scope)
        name = variable(node) or ""
        return owner is not None and name.startswith("self.") and method_of(owner, (name[5:],)) is not None


def _is_log(call: ast.Call) -> bool:
    """`print(loss)`, `logger.info(loss)`."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    name = called_name(call)
    return name == "print" if owner is None else name in _LOGS and variable(owner) in _LOGGERS


def _yields(node: ast.AST) -> bool:
    return isinstance(node, (ast.Yield, ast.YieldFrom))
