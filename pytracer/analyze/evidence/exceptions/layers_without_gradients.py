"""Layers that run only below torch.no_grad(): their parameters get no gradient, whatever comes of the results."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._text import list_words
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.cut_values import sets_no_graph
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans_body
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView


class Ungraded(msgspec.Struct, frozen=True):
    """`layers`: attributes of the class `owner`. `text`: `with torch.no_grad()`, at `place`.

    `unless`: the branch by which they run elsewhere, `if self.tune (line 12)`.
    """

    layers: tuple[str, ...]
    owner: str
    text: str
    place: str
    unless: str | None = None

    @property
    def words(self) -> str:
        """`` `lateral` and `fpn` of DecodeHead run only below `with torch.no_grad()` (train.py:18) ``."""
        layers = list_words([f"`{layer}`" for layer in self.layers], len(self.layers))
        run = "runs" if len(self.layers) == 1 else "run"
        below = f"below `{self.text}` ({self.place})"
        return f"{layers} of {self.owner} {run} {f'{below} unless {self.unless}' if self.unless else f'only {below}'}"


def layers_without_gradients(view: ProcessView, names: Sequence[str]) -> Ungraded | None:
    """Of all the parameters, where one line of the program explains them.

    Args:
        view: The process that raised DDP's exception.
        names: Of the parameters, as `decode_head.lateral.weight`.
    """
    frames = view.exception_stack_of_program
    layers = dict.fromkeys(_layer(name) for name in names)
    if not layers or None in layers:
        return None
    found = {
        (owner.name, text, f"{short_file(file)}:{line}", unless)
        for file, tree in program_files(view.process.snapshot, frames).items()
        for owner in nodes_of(tree)
        if isinstance(owner, ast.ClassDef) and all(_sets(owner, layer or "") for layer in layers)
        for text, line, unless in [_around_all(owner, [layer or "" for layer in layers])]
    }
    if len(found) != 1:
        return None
    owner_name, text, place, unless = found.pop()
    return Ungraded(tuple(layer or "" for layer in layers), owner_name, text, place, unless) if text else None


def _layer(name: str) -> str | None:
    """`lateral` of `decode_head.lateral.0.weight`."""
    return next((part for part in reversed(name.split(".")[:-1]) if not part.isdecimal()), None)


def _sets(owner: ast.ClassDef, layer: str) -> bool:
    return any(
        isinstance(item, ast.Assign) and any(variable(target) == f"self.{layer}" for target in item.targets)
        for method in owner.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        for item in own_nodes(method)
    )


def _around_all(owner: ast.ClassDef, layers: Sequence[str]) -> tuple[str, int, str | None]:
    """The one block or decorator that all uses of the layers are below; an empty text where there is none.

    Those in a branch of an `if` that does not have that block do not count: the `if` is the last item then.
    """
    found, branches = set[tuple[str, int]](), list[ast.If | None]()
    for method in owner.body:
        if not isinstance(method, ast.FunctionDef) or method.name == "__init__":
            continue
        off = [
            (f"with {ast.unparse(part.context_expr)}", item.lineno, item.end_lineno or 0)
            for item in own_nodes(method)
            if isinstance(item, ast.With)
            for part in item.items
            if sets_no_graph(part.context_expr)
        ]
        off += [
            (f"@{ast.unparse(item)}", item.lineno, method.end_lineno or 0)
            for item in method.decorator_list
            if sets_no_graph(item)
        ]
        for item in own_nodes(method):
            if isinstance(item, ast.Attribute) and variable(item) in {f"self.{layer}" for layer in layers}:
                around = [(text, line) for text, line, end in off if line <= item.lineno <= end]
                if around:
                    found.add(around[-1])
                else:
                    branches.append(_branch_without(method, item.lineno, [line for _, line, _ in off]))
    if len(found) != 1 or None in branches or len({id(item) for item in branches}) > 1:
        return "", 0, None
    other = branches[0] if branches else None
    unless = f"`{ast.unparse(other.test)}` (line {other.lineno})" if other is not None else None
    return (*found.pop(), unless)


def _branch_without(method: ast.FunctionDef, line: int, blocks: Sequence[int]) -> ast.If | None:
    """The `if` of the method whose body has the line, and none of the blocks."""
    return next(
        (
            item
            for item in own_nodes(method)
            if isinstance(item, ast.If) and blocks and spans_body(item.body, line)
            if not any(spans_body(item.body, block) for block in blocks)
        ),
        None,
    )
