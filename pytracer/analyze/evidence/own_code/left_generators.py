"""A call behind the last `yield` of a generator, which a loop that is left early never comes to.

`for x, y in loader: ... break` leaves `__iter__` at its `yield`: what stands behind that, such as a close(), does not
run, unless it is in a `finally` or in what a `with` leaves. By the program's source alone.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

import msgspec

from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_PASSES_ON = frozenset({"enumerate", "tqdm", "iter", "track"})


class LeftGenerator(msgspec.Struct, frozen=True):
    """`call`: the line behind the `yield` of `generator`; `left`: the line that leaves the loop `loop` over it."""

    called: str
    call: LineWords
    generator: str
    loop: LineWords
    left: LineWords
    word: str

    @property
    def summary(self) -> str:
        """Behind what had not run."""
        return (
            f"{self.called}() ({self.call}) is behind the `yield` of {self.generator}, which the loop at {self.loop} "
            f"never comes back to after its `{self.word}` ({self.left})"
        )

    @property
    def advice(self) -> str:
        """What to write there."""
        return (
            f"Put {self.called}() ({self.call}) into a `finally:` around the loop with the `yield` of "
            f"{self.generator}: it also runs where `{self.word}` ({self.left}) leaves the loop at {self.loop}, once "
            "the generator is closed or collected."
        )


def left_generator(view: ProcessView, files: dict[str, ast.Module], functions: Collection[str]) -> LeftGenerator | None:
    """The only loop that is left early, over a generator which calls one of these functions behind its `yield`."""
    found = [
        LeftGenerator(
            called_name(call) or "",
            place_of(view, file, call.lineno),
            name,
            place_of(view, user, loop.lineno),
            place_of(view, user, exit_.lineno),
            "break" if isinstance(exit_, ast.Break) else "return",
        )
        for file, tree in files.items()
        for name, made_by, call in _generators(tree, functions)
        for user, other in files.items()
        for loop, exit_ in _left_loops(other, made_by)
    ]
    return found[0] if len(found) == 1 else None


def _generators(tree: ast.Module, functions: Collection[str]) -> Iterator[tuple[str, str, ast.Call]]:
    """`PrefetchLoader.__iter__` with the class to make, or a function; and the call behind its `yield`."""
    owners = {
        id(item): owner.name for owner in nodes_of(tree) if isinstance(owner, ast.ClassDef) for item in owner.body
    }
    for function in nodes_of(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        owner = owners.get(id(function))
        yields = [item for item in own_nodes(function) if isinstance(item, (ast.Yield, ast.YieldFrom))]
        calls = [item for item in own_nodes(function) if isinstance(item, ast.Call) and called_name(item) in functions]
        behind = [item for item in calls if yields and all(item.lineno > one.lineno for one in yields)]
        if len(behind) != 1 or len(calls) != 1 or _is_sure(function, behind[0]):
            continue
        if owner is None:
            yield f"{function.name}()", function.name, behind[0]
        elif function.name == "__iter__":
            yield f"{owner}.__iter__()", owner, behind[0]


def _is_sure(function: ast.FunctionDef, call: ast.Call) -> bool:
    """Whether it is in a `finally`."""
    final = [part for item in own_nodes(function) if isinstance(item, ast.Try) for part in item.finalbody]
    return any(node is call for part in final for node in nodes_of(part))


def _left_loops(tree: ast.Module, made_by: str) -> Iterator[tuple[ast.For, ast.stmt]]:
    """Loops over what a class or function of that name makes, which a line of theirs leaves."""
    names = {
        name
        for item in nodes_of(tree)
        if isinstance(item, ast.Assign) and isinstance(item.value, ast.Call) and called_name(item.value) == made_by
        for target in item.targets
        if (name := variable(target)) is not None
    }
    for loop in nodes_of(tree):
        if isinstance(loop, ast.For) and _is_over(loop.iter, made_by, names):
            left = next(_exits(loop.body, inner=False), None)
            if left is not None:
                yield loop, left


def _is_over(node: ast.expr, made_by: str, names: set[str]) -> bool:
    while isinstance(node, ast.Call) and called_name(node) in _PASSES_ON and node.args:
        node = node.args[0]
    if isinstance(node, ast.Call):
        return called_name(node) == made_by
    return variable(node) in names


def _exits(body: list[ast.stmt], *, inner: bool) -> Iterator[ast.stmt]:
    """`break` of the loop itself, and `return`, also from a loop inside of it."""
    for item in body:
        if isinstance(item, ast.Return) or (isinstance(item, ast.Break) and not inner):
            yield item
        elif isinstance(item, (ast.For, ast.While)):
            yield from _exits(item.body, inner=True)
            yield from _exits(item.orelse, inner=inner)
        elif isinstance(item, (ast.If, ast.With, ast.Try)):
            handlers = [part for one in getattr(item, "handlers", ()) for part in one.body]
            rest = [*getattr(item, "orelse", ()), *handlers, *getattr(item, "finalbody", ())]
            yield from _exits([*item.body, *rest], inner=inner)
