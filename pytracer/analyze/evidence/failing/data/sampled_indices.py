"""Indices of a sampler that do not fit the dataset of its loader: those of the whole for a part, and whole batches."""

from __future__ import annotations

import ast

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of, second_parameter

_OF_DATASET = "torch/utils/data/dataset.py"
_PARTS = ("Subset", "random_split")
_LIST = Pattern(r"(?:list|tuple) of (\d+)$")
_BY_LIST = Pattern(r"indices must be integers or slices, not (?:list|tuple)|unhashable type: 'list'")


class _Loader(msgspec.Struct, frozen=True):
    """A DataLoader that is given a sampler, and where."""

    call: ast.Call
    sampler: ast.expr
    keyword: str
    spot: Spot


def index_of_part(at: FailingLine) -> str | None:
    """Of a Subset that has fewer samples than its sampler counts."""
    if at.kind != "IndexError" or not (at.stack[0].file or "").endswith(_OF_DATASET):
        return None
    names = [item.function or "" for item in at.stack[:2]]
    if "." in names[0] and not names[0].startswith("Subset."):
        return None
    if not any(item.startswith("Subset.") or item.endswith("__getitems__") for item in names):
        return None
    loaders = [item for item in _loaders(at) if _part_of(at, item) is not None]
    if len(loaders) != 1:
        return _wholes_of_parts(at, loaders)
    loader = loaders[0]
    part, call = _part_of(at, loader) or ("", None)
    made = at.slice.made(loader.sampler, loader.spot, calls=True)
    sampler = made.node if isinstance(made.node, ast.Call) else loader.sampler
    line = at.in_file(made.spot.file, getattr(sampler, "lineno", loader.call.lineno))
    if call is None or not _counts_whole(sampler, call):
        if call is not None and not _has_all(at, call, loader.spot):
            return None
        return (
            f"`{source(sampler)}` ({line}) gives an index that `{part}` does not have: a Subset is indexed from 0 to "
            "its own length. Make the sampler for that length, or give the loader the whole data set."
        )
    whole = source(call.args[0])
    return (
        f"`{part}` (`{source(call)}`) is indexed from 0 on, and `{source(sampler)}` ({line}) gives the indices of the "
        f"whole data set: give the loader `{whole}` with that sampler, or `{part}` with shuffle=True and no sampler."
    )


def _wholes_of_parts(at: FailingLine, loaders: list[_Loader]) -> str | None:
    """Of several loaders that all have the same mistake: whichever it was."""
    first: tuple[str, str] | None = None
    for loader in loaders:
        part, call = _part_of(at, loader) or ("", None)
        made = at.slice.made(loader.sampler, loader.spot, calls=True).node
        if call is None or not _counts_whole(made if isinstance(made, ast.Call) else loader.sampler, call):
            return None
        first = first or (part, source(call.args[0]))
    if first is None:
        return None
    named, whole = first
    lines = list_words([at.in_file(item.spot.file, item.call.lineno) for item in loaders])
    return (
        f"A Subset, such as `{named}`, is indexed from 0 on, and the samplers at {lines} give indices of the whole "
        f"data set: give these loaders `{whole}` with their samplers, or the Subsets without a sampler (shuffle=True)."
    )


def batch_as_index(at: FailingLine) -> str | None:
    """A __getitem__ that is given the list of a whole batch."""
    if at.kind != "TypeError" or not _BY_LIST.search(at.message) or getattr(at.scope, "name", "") != "__getitem__":
        return None
    name = second_parameter(at.scope)
    held = _LIST.match(at.value(name) or "") if name is not None else None
    loaders = _loaders(at)
    if held is None or len(loaders) != 1:
        return None
    loader = loaders[0]
    line = at.in_file(loader.spot.file, loader.call.lineno)
    gives = f"`{name}` is a list of {held[1]} indices, a whole batch, as `{loader.keyword}={source(loader.sampler)}`"
    size = keyword_value(loader.call, "batch_size")
    if isinstance(size, ast.Constant) and size.value is None:
        return (
            f"{gives} ({line}) gives with batch_size=None: take each in __getitem__ "
            f"(`[... for j in {name}]`), or define __getitems__()."
        )
    if loader.keyword == "sampler":
        return (
            f"{gives} ({line}) gives one for each sample: write `batch_sampler={source(loader.sampler)}` there, "
            "without batch_size, shuffle, sampler and drop_last."
        )
    return f"{gives} ({line}) gives lists of lists: let it give one list of numbers for each batch."


def _loaders(at: FailingLine) -> list[_Loader]:
    """Those of the program that are given one."""
    found = []
    for file, tree in at.files.items():
        for item in nodes_of(tree):
            if not isinstance(item, ast.Call) or called_name(item) != "DataLoader":
                continue
            for keyword in ("sampler", "batch_sampler"):
                value = keyword_value(item, keyword)
                if value is not None and not (isinstance(value, ast.Constant) and value.value is None):
                    spot = Spot(file, tree, scope_of(tree, item.lineno), item.lineno)
                    found.append(_Loader(item, value, keyword, spot))
    return found


def _part_of(at: FailingLine, loader: _Loader) -> tuple[str, ast.Call | None] | None:
    """The dataset of a loader as it is named there, and the call of Subset(); None where it is no part."""
    given = argument_at(loader.call, 0, "dataset")
    if given is None:
        return None
    made = at.slice.made(given, structs.replace(loader.spot, depth=None), calls=True)
    calls = [item for item in nodes_of(made.node) if isinstance(item, ast.Call) and called_name(item) in _PARTS]
    if not calls:
        return None
    return source(given), calls[0] if called_name(calls[0]) == "Subset" and len(calls[0].args) > 1 else None


def _has_all(at: FailingLine, part: ast.Call, spot: Spot) -> bool:
    """Whether the whole has the indices of a part: written out, or refused by the data set's own method else."""
    indices, whole = (
        at.slice.made(item, structs.replace(spot, depth=None), calls=False).node
        for item in (part.args[1], part.args[0])
    )
    return isinstance(indices, (ast.List, ast.Tuple)) or (
        isinstance(whole, ast.Call) and (called_name(whole) or "")[:1].isupper()
    )


def _counts_whole(sampler: ast.expr, part: ast.Call) -> bool:
    """Whether the sampler is given the same indices as the part."""
    given = sampler.args[0] if isinstance(sampler, ast.Call) and sampler.args else None
    return given is not None and ast.unparse(given) == ast.unparse(part.args[1])
