"""Loops that have as many rounds on two ranks, by what is recorded of both and by the source."""

from __future__ import annotations

import ast

import msgspec
from msgspec import structs

from pytracer.analyze.collectives.rounds import is_fixed
from pytracer.analyze.collectives.ways import Side
from pytracer.analyze.evidence.slicing.by_rank import size_source
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, keyword_value, without_wrappers
from pytracer.analyze.evidence.syntax.gradients import is_over_parameters
from pytracer.analyze.evidence.syntax.loops import Loop
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.journal import CommandLine, Loader

_WRAPPERS = ("tqdm", "track", "enumerate", "iter")
_RANGES = ("range", "trange")


def has_same_rounds(side: Side, other: Side, position: int, loop: Loop) -> bool:
    """Where nothing ends it early.

    Args:
        side: A rank that is in the loop.
        other: Another one, which runs the same program.
        position: Of the function of the loop in the way of the first.
        loop: The loop.
    """
    if is_fixed(loop) or is_over_parameters(loop):
        return True
    if isinstance(loop, ast.While):
        return isinstance(loop.test, ast.Constant)
    slice_, spot, head = _head(side, position, loop)
    if spot is None:
        return False
    if isinstance(head, ast.Call) and called_name(head) in _RANGES:
        return all(_is_same_number(slice_, item, spot, side, other) for item in head.args)
    return _is_dealt_alike(slice_, slice_.made(head, spot, calls=True), side, other)


class Samples(msgspec.Struct, frozen=True):
    """Of the DataLoader of a loop, on two ranks. `shared`: a DistributedSampler shares them out, of one data set.

    `size`: of its batches, where the source has that; `drops`: whether it leaves out a last one that is smaller.
    """

    mine: int
    theirs: int
    shared: bool
    size: int | None = None
    drops: bool = False

    def batches(self, samples: int, *, drops: bool | None = None) -> int | None:
        """How many of so many samples."""
        if self.size is None:
            return None
        return samples // self.size if (self.drops if drops is None else drops) else -(-samples // self.size)


def differing_samples(side: Side, other: Side, position: int, loop: Loop) -> Samples | None:
    """Where it goes through a DataLoader that is over another number of samples on each rank."""
    if isinstance(loop, ast.While):
        return None
    slice_, spot, head = _head(side, position, loop)
    made = slice_.made(head, spot, calls=True) if spot is not None else None
    if made is None or not isinstance(made.node, ast.Call) or called_name(made.node) != "DataLoader":
        return None
    pair = _loader_of(made.node, made.spot, _loaders(side.view), _loaders(other.view))
    if pair is None or not all(_is_even(item) for item in pair):
        return None
    mine, theirs = pair[0].samples, pair[1].samples
    if mine is None or theirs is None or mine == theirs:
        return None
    size, drops = _batches(slice_, made.node, made.spot)
    found = Samples(mine, theirs, all(item.distributed for item in pair), size, drops)
    return found if size is None or found.batches(mine) != found.batches(theirs) else None


def _batches(slice_: Slice, call: ast.Call, spot: Spot) -> tuple[int | None, bool]:
    """The size of the batches of a `DataLoader(...)`, and whether it drops the rest; None where that is not known."""
    last = keyword_value(call, "drop_last")
    if keyword_value(call, "batch_sampler") is not None or any(item.arg is None for item in call.keywords):
        return None, False
    if last is not None and not isinstance(last, ast.Constant):
        return None, False
    given = argument_at(call, 1, "batch_size")
    size = slice_.made(given, spot, calls=True).node if given is not None else ast.Constant(1)
    number = size.value if isinstance(size, ast.Constant) else None
    known = number if isinstance(number, int) and number > 0 else None
    return known, bool(last is not None and last.value)


def _loader_of(call: ast.Call, spot: Spot, mine: list[Loader], theirs: list[Loader]) -> tuple[Loader, Loader] | None:
    """The records of a `DataLoader(...)`: the only one, the one in the same place, or the only one that differs."""
    if len(mine) != len(theirs):
        return None
    calls = [item for item in nodes_of(spot.tree) if isinstance(item, ast.Call) and called_name(item) == "DataLoader"]
    own = [item for item in own_nodes(spot.scope) if isinstance(item, ast.Call) and item in calls]
    pairs = list(zip(mine, theirs, strict=True))
    if len(calls) == len(own) == len(pairs) and call in own:
        return pairs[sorted(own, key=lambda item: (item.lineno, item.col_offset)).index(call)]
    differing = [(one, two) for one, two in pairs if one != two]
    return differing[0] if len(differing) == 1 else None


def _head(side: Side, position: int, loop: ast.For | ast.AsyncFor) -> tuple[Slice, Spot | None, ast.expr]:
    """What it goes through, without `enumerate()` and the like."""
    frames = side.way[::-1]
    slice_ = Slice(side.view.process.snapshot, frames)
    spot = slice_.spot(len(frames) - 1 - position)
    head = without_wrappers(loop.iter, _WRAPPERS)
    return slice_, structs.replace(spot, line=loop.lineno) if spot is not None else None, head


def _is_same_number(slice_: Slice, node: ast.expr, spot: Spot, side: Side, other: Side) -> bool:
    """A number of the program, or an option of command lines that are alike."""
    made = slice_.made(node, spot, calls=True).node
    if isinstance(made, ast.Call) and called_name(made) == "add_argument":
        lines = [[fact.data for fact in item.view.process.snapshot.recorded(CommandLine)] for item in (side, other)]
        return bool(lines[0]) and lines[0] == lines[1]
    return isinstance(made, ast.Constant)


def _is_dealt_alike(slice_: Slice, made: Made, side: Side, other: Side) -> bool:
    """A DataLoader, of which each rank has one over as many samples, with a sampler that gives all ranks as many."""
    if not isinstance(made.node, ast.Call) or called_name(made.node) != "DataLoader":
        return False
    if keyword_value(made.node, "batch_sampler") is not None or size_source(slice_, made.node, made.spot) is not None:
        return False
    mine, theirs = (_loaders(item.view) for item in (side, other))
    return bool(mine) and mine == theirs and all(_is_even(item) for item in mine)


def _loaders(view: ProcessView) -> list[Loader]:
    return [fact.data for fact in view.process.snapshot.recorded(Loader)]


def _is_even(item: Loader) -> bool:
    return bool(item.distributed or item.plain) and not item.iterable and item.samples is not None
