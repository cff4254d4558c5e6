"""Why a loader or a dataset has nothing: fewer samples than a batch, or what its class keeps is empty."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.emptied import counted_by_len, emptied_attribute
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_FEWER = Pattern(r"^DataLoader, batch_size=(\d+), drop_last=True, (\d+) samples$")
_NOTHING = Pattern(r"^DataLoader, .*\b0 samples$")
_HOPS = 4
_PLAIN_ARGUMENTS = 3  # dataset, batch_size, shuffle


def without_batch(value: str | None) -> str | None:
    """Of a recorded loader without a batch: the reason."""
    return "its dataset has no sample" if _NOTHING.match(value or "") else too_few(value)


def too_few(value: str | None) -> str | None:
    """`its 5 samples are fewer than batch_size=8, and drop_last=True drops them`, by what is recorded of a loader."""
    found = _FEWER.match(value or "")
    if found is None or int(found[2]) >= int(found[1]):
        return None
    return f"its {found[2]} samples are fewer than batch_size={found[1]}, and drop_last=True drops them"


def empty_data(at: FailingLine, node: ast.AST, spot: Spot) -> str | None:
    """`` its 20 samples are fewer than batch_size=32 ``, `` `Folder('imgs')` keeps nothing in `self.paths`: ... ``.

    Args:
        at: The failing line.
        node: A loader or dataset that is known to be empty, or a call that makes one.
        spot: Where that is.
    """
    few = without_batch(at.value_at(node, spot))
    if few is not None:
        return few
    for _ in range(_HOPS):
        owner = node.value if isinstance(node, ast.Attribute) and node.attr == "dataset" else node
        made = at.slice.made(owner, spot, calls=True)
        call, spot = made.node, made.spot
        if not isinstance(call, ast.Call):
            return None
        if called_name(call) != "DataLoader":
            return _of_dataset(at, call, made)
        given = argument_at(call, 0, "dataset")
        if given is None or _may_leave_out(call):
            return None
        node = given
    return None


def _of_dataset(at: FailingLine, call: ast.Call, made: Made) -> str | None:
    """By the class of the program, and what its length counts."""
    found = at.slice.class_of(call, made.spot)
    owner = found[0] if found is not None else None
    counted = counted_by_len(owner) if isinstance(owner, ast.ClassDef) else None
    if isinstance(owner, ast.ClassDef) and _method(owner, "__iter__") is not None:
        return None  # which may leave out what it has
    if counted is None or not isinstance(owner, ast.ClassDef):
        return None
    here = any(item is owner for item in nodes_of(at.tree))
    why = emptied_attribute(at, owner, counted) if here else None
    keeps = f"`{source(call)}` ({at.place(made.spot, call.lineno)}) has nothing in `{counted}`"
    if why is not None:
        return f"{keeps}: {why}"
    return f"{keeps}, which {owner.name}.__init__() fills" if _method(owner, "__init__") is not None else keeps


def _may_leave_out(call: ast.Call) -> bool:
    """Whether a loader may be empty whose dataset has samples: fewer than a batch, or none that its sampler takes."""
    named = {item.arg for item in call.keywords}
    return len(call.args) > _PLAIN_ARGUMENTS or not named.isdisjoint(("sampler", "batch_sampler", "drop_last", None))


def _method(owner: ast.ClassDef, name: str) -> ast.AST | None:
    return next((item for item in owner.body if getattr(item, "name", "") == name), None)
