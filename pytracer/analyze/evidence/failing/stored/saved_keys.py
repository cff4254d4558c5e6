"""Keys that the program's own dcp.save() gave a checkpoint, where dcp.load() asks for others around the same state."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import list_words
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.dict_keys import dict_keys
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of

_SAVES = tuple(f"torch.distributed.checkpoint.{name}" for name in ("save", "async_save"))
_FLAT = frozenset({"state_dict", "get_model_state_dict"})  # their keys are those of the parameters


class OtherKeys(msgspec.Struct, frozen=True):
    """`what` the program's line saves, and what `mends` it."""

    what: str
    mends: str


def other_keys(at: FailingLine, key: str, state: ast.expr) -> OtherKeys | None:
    """Of the program's calls that save, where all of them save the same keys.

    Args:
        at: A dcp.load().
        key: What the checkpoint lacks.
        state: What is loaded.
    """
    here, saves = at.slice.spot(0), [*_saves(at)]
    if here is None or not saves:
        return None
    asked, kinds = _top_keys(at, state, here), {_top_keys(at, node, spot) for node, spot in saves}
    node, spot = saves[0]
    saved = _top_keys(at, node, spot)
    if asked is None or saved is None or len(kinds) > 1 or {*saved} == {*asked}:
        return None
    top = repr(key.partition(".")[0])
    if top in saved or (asked and top not in asked):
        return None
    what = f"under {list_words(saved)}" if saved else f"`{source(node)}` itself"
    load = "load a dict with the same keys" if saved else "load such a state, without a key around it"
    save = f"save under {list_words(asked)}, too" if asked else "save the state itself, too"
    return OtherKeys(f"{at.place(spot, spot.line)} saves {what}", f"if that line wrote it, {load}, or {save}")


def _saves(at: FailingLine) -> Iterator[tuple[ast.expr, Spot]]:
    """What each call saves."""
    for file, tree in at.files.items():
        for call in (item for item in nodes_of(tree) if isinstance(item, ast.Call)):
            node = argument_at(call, 0, "state_dict") if imported_as(tree, call.func) in _SAVES else None
            if node is not None:
                yield node, Spot(file, tree, scope_of(tree, call.lineno), call.lineno)


def _top_keys(at: FailingLine, node: ast.expr, spot: Spot) -> tuple[str, ...] | None:
    """None where some are not known, and nothing of a state of parameters."""
    made = at.slice.made(node, spot, calls=False)
    if isinstance(made.node, ast.Call) and called_name(made.node) in _FLAT:
        return () if at.slice.function(made.node, made.spot) is None else None
    found = dict_keys(at.slice, node, spot)
    if found is None or any(item.key is None or item.below is not None for item in found.keys):
        return None
    return tuple(dict.fromkeys(item.key for item in found.keys if item.key is not None))
