"""Two lines of a program that list an optimizer's parameters in different orders.

`model.parameters()`, and `[p for p in params if p.ndim > 1] + [p for p in params if p.ndim <= 1]`, `sorted(...)` or
groups: by syntax alone, from all calls that make the optimizer whose state is loaded.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

import msgspec

from pytracer._text import capital, shortened
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.slicing.callers import called_function
from pytracer.analyze.evidence.slicing.keepers import Files
from pytracer.analyze.evidence.slicing.makers import makers
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans_body
from pytracer.analyze.naming import LineWords

_PLAIN = frozenset({"parameters", "named_parameters"})
_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp)
_QUOTED = 44
_REORDERS = frozenset({"sorted", "reversed", "set", "sample", "permutation"})


class ParameterLists(msgspec.Struct, frozen=True):
    """`one` lists them as the model does, if a line does so, `other` otherwise; `test`: the condition around that."""

    one: Made
    other: Made
    test: ast.expr | None

    @property
    def both(self) -> tuple[Made, Made]:
        """The lines."""
        return self.one, self.other

    def words(self, place: Callable[[Spot, int], LineWords]) -> str:
        """`` Line 54 (`sorted(params)`) lists the parameters in another order than line 52 (...) where `cfg.x`. ``"""
        one, other = (place(item.spot, item.line).quoted(_quoted(item.node)) for item in self.both)
        where = f" where `{_quoted(self.test)}`" if self.test is not None else ""
        return f"{capital(other)} lists the parameters in another order than {one}{where}."

    @property
    def places(self) -> tuple[Place, ...]:
        """For the code that is shown."""
        return tuple((item.spot.file, item.line) for item in self.both)


def parameter_lists(files: Files, back: Slice, optimizer: str) -> ParameterLists | None:
    """None where no line lists them in another order, or several do.

    Args:
        files: Those of the program.
        back: Of the process.
        optimizer: What loads the state, as its line has it: `self.optim`.
    """
    listed = {
        (item.spot.file, item.line): item
        for call, spot in _made(files, optimizer)
        for given in (*call.args[:1], keyword_value(call, "params"))
        if given is not None
        for item in makers(files, back, given, spot, ordered=True)
    }
    plain = [item for item in listed.values() if _is_plain(item.node)]
    others = {ast.unparse(item.node): item for item in listed.values() if _is_ordered(item.node)}
    both = [*plain[:1], *others.values()]
    if len(both) != 2 or not others:
        return None
    one, other = both
    return ParameterLists(one, other, _test(other.spot, other.line))


def _made(files: Files, optimizer: str) -> Iterator[tuple[ast.Call, Spot]]:
    """The calls that make an optimizer of that name, also in a function that returns it."""
    for tree in files.values():
        for item in nodes_of(tree):
            call = item.value if isinstance(item, ast.Assign) else None
            if not isinstance(item, ast.Assign) or not isinstance(call, ast.Call):
                continue
            if any(_last(ast.unparse(target)) == _last(optimizer) for target in item.targets):
                yield from _constructions(files, tree, call)


def _constructions(files: Files, tree: ast.Module, call: ast.Call) -> Iterator[tuple[ast.Call, Spot]]:
    if is_optimizer(call):
        yield call, _spot(files, tree, call)
        return
    found = called_function(files, tree, call)
    if found is None:
        return
    file, function = found
    for node in own_nodes(function):
        value = node.value if isinstance(node, ast.Return) else None
        if isinstance(value, ast.Call) and is_optimizer(value):
            yield value, Spot(file, files[file], function, value.lineno, call=(call, _spot(files, tree, call)))


def _spot(files: Files, tree: ast.Module, call: ast.Call) -> Spot:
    file = next(file for file, one in files.items() if one is tree)
    return Spot(file, tree, scope_of(tree, call.lineno), call.lineno)


def _quoted(node: ast.AST) -> str:
    return shortened(ast.unparse(node), _QUOTED)


def _last(name: str) -> str:
    """`opt` of `self.opt` and of `trainer.opt`."""
    return name.rpartition(".")[2]


def is_optimizer(call: ast.Call) -> bool:
    """`torch.optim.SGD(...)`, `optim.SGD(...)`."""
    return ast.unparse(call.func).rpartition(".")[0].rpartition(".")[2] == "optim"


def _is_plain(node: ast.AST) -> bool:
    """Whether it lists them as the model does: `model.parameters()`, also without some of them."""
    if isinstance(node, _COMPREHENSIONS):
        return len(node.generators) == 1 and _is_plain(node.generators[0].iter)
    if isinstance(node, ast.Call) and called_name(node) == "filter" and len(node.args) == 2:
        return _is_plain(node.args[1])
    return isinstance(node, ast.Call) and called_name(node) in _PLAIN


def _is_ordered(node: ast.AST) -> bool:
    """Whether it lists what is there in an order of its own: sorted, reversed, or one part behind another."""
    if isinstance(node, _COMPREHENSIONS):
        return _is_ordered(node.generators[0].iter)
    if isinstance(node, ast.Call):
        return called_name(node) in _REORDERS
    if isinstance(node, ast.Subscript):
        step = node.slice.step if isinstance(node.slice, ast.Slice) else None
        return isinstance(step, ast.UnaryOp) and isinstance(step.op, ast.USub)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add)
    return isinstance(node, ast.List) and sum(isinstance(item, (ast.Dict, ast.Starred)) for item in node.elts) > 1


def _test(spot: Spot, line: int) -> ast.expr | None:
    """Of the innermost `if` around a line; in its `else`, none that could be quoted."""
    around = [item for item in own_nodes(spot.scope) if isinstance(item, ast.If) and spans_body(item.body, line)]
    return around[-1].test if around else None
