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
from pytracer.analyze.evidence.syntax.loops import breaks_of
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.evidence.syntax.unbounded import body_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_CLOSED = frozenset({"GeneratorExit", "BaseException"})
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
            f"never comes back to where its `{self.word}` ({self.left}) or an exception leaves it"
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
    """The only loop that is left early, over a generator which calls one of these functions behind its `yield`.

    None where another line calls one, too: which of their objects was left is open.
    """
    if sum(_calls(item, functions) for tree in files.values() for item in nodes_of(tree)) != 1:
        return None
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


def _calls(node: ast.AST, functions: Collection[str]) -> bool:
    return isinstance(node, ast.Call) and called_name(node) in functions


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
        calls = [item for item in own_nodes(function) if isinstance(item, ast.Call) and _calls(item, functions)]
        behind = [item for item in calls if yields and all(item.lineno > one.lineno for one in yields)]
        if len(behind) != 1 or len(calls) != 1 or _is_sure(function, behind[0]):
            continue
        if owner is None:
            yield f"{function.name}()", function.name, behind[0]
        elif function.name == "__iter__":
            yield f"{owner}.__iter__()", owner, behind[0]


def _is_sure(function: ast.FunctionDef, call: ast.Call) -> bool:
    """Whether it is in a `finally`, or an `except` takes the GeneratorExit of a loop that was left."""
    tries = [item for item in own_nodes(function) if isinstance(item, ast.Try)]
    taken = [one.type for item in tries for one in item.handlers]
    if any(item is None or _CLOSED & {variable(node) for node in nodes_of(item)} for item in taken):
        return True
    return any(node is call for item in tries for part in item.finalbody for node in nodes_of(part))


def _left_loops(tree: ast.Module, made_by: str) -> Iterator[tuple[ast.For, ast.stmt]]:
    """Loops over what a class or function of that name makes, which a line of theirs leaves."""
    made, others = set[str](), set[str]()
    for item in nodes_of(tree):
        if isinstance(item, ast.Assign):
            is_made = isinstance(item.value, ast.Call) and called_name(item.value) == made_by
            names = made if is_made else others
            names.update(name for target in item.targets if (name := variable(target)) is not None)
    for loop in nodes_of(tree):
        if isinstance(loop, ast.For) and _is_over(loop.iter, made_by, made - others):
            for left in _exits(loop)[:1]:
                yield loop, left


def _is_over(node: ast.expr, made_by: str, names: set[str]) -> bool:
    while isinstance(node, ast.Call) and called_name(node) in _PASSES_ON and node.args:
        node = node.args[0]
    if isinstance(node, ast.Call):
        return called_name(node) == made_by
    return variable(node) in names


def _exits(loop: ast.For) -> list[ast.stmt]:
    """`break` of the loop itself, and `return`, also from a loop inside of it; in their order."""
    returns = (item for item in body_of(loop) if isinstance(item, ast.Return))
    return sorted((*breaks_of(loop), *returns), key=lambda item: item.lineno)
