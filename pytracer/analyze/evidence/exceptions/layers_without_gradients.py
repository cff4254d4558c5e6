"""Layers that run only below torch.no_grad(): their parameters get no gradient, whatever comes of the results."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView

_OFF = Pattern(r"\b(?:no_grad|inference_mode)\b|set_grad_enabled\((?:mode=)?False\)")


class Ungraded(msgspec.Struct, frozen=True):
    """`layers`: attributes of the class `owner`. `text`: `with torch.no_grad()`, at `place`."""

    layers: tuple[str, ...]
    owner: str
    text: str
    place: str

    @property
    def words(self) -> str:
        """`` `lateral` and `fpn` of DecodeHead run only below `with torch.no_grad()` (train.py:18) ``."""
        layers = list_words([f"`{layer}`" for layer in self.layers], len(self.layers))
        run = "runs" if len(self.layers) == 1 else "run"
        return f"{layers} of {self.owner} {run} only below `{self.text}` ({self.place})"


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
        (owner.name, text, f"{short_file(file)}:{line}")
        for file, tree in program_files(view.process.snapshot, frames).items()
        for owner in nodes_of(tree)
        if isinstance(owner, ast.ClassDef) and all(_sets(owner, layer or "") for layer in layers)
        for text, line in [_around_all(owner, [layer or "" for layer in layers])]
    }
    if len(found) != 1:
        return None
    owner_name, text, place = found.pop()
    return Ungraded(tuple(layer or "" for layer in layers), owner_name, text, place) if text else None


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


def _around_all(owner: ast.ClassDef, layers: Sequence[str]) -> tuple[str, int]:
    """The one block or decorator that all uses of the layers are below; an empty text where there is none."""
    found = set[tuple[str, int]]()
    for method in owner.body:
        if not isinstance(method, ast.FunctionDef) or method.name == "__init__":
            continue
        off = [
            (f"with {ast.unparse(part.context_expr)}", item.lineno, item.end_lineno or 0)
            for item in own_nodes(method)
            if isinstance(item, ast.With)
            for part in item.items
            if _OFF.search(ast.unparse(part.context_expr))
        ]
        off += [
            (f"@{ast.unparse(item)}", item.lineno, method.end_lineno or 0)
            for item in method.decorator_list
            if _OFF.search(ast.unparse(item))
        ]
        for item in own_nodes(method):
            if isinstance(item, ast.Attribute) and variable(item) in {f"self.{layer}" for layer in layers}:
                around = [(text, line) for text, line, end in off if line <= item.lineno <= end]
                found.add(around[-1] if around else ("", 0))
    return found.pop() if len(found) == 1 else ("", 0)
