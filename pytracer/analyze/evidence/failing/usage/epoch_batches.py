"""How many batches the loader has whose loop steps a schedule, by its record, and how many that was made for."""

from __future__ import annotations

import ast

import msgspec

from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, without_wrappers
from pytracer.analyze.evidence.syntax.loops import deciding_ifs, loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of, spans
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.journal import Loader

_WRAPPERS = frozenset({"enumerate", "tqdm", "trange", "iter", "track"})


class EpochBatches(msgspec.Struct, frozen=True):
    """`count` of an epoch of the DataLoader made at `place`, which the loop knows as `name`."""

    count: int
    place: str
    name: str

    @property
    def words(self) -> str:
        """`the DataLoader of line 7 has 80 batches an epoch`."""
        return f"the DataLoader of {self.place} has {self.count} batches an epoch"


class Counted(msgspec.Struct, frozen=True):
    """The steps of an epoch that a schedule was made for, and where they were given, as the argument `each`."""

    steps: int
    epochs: int
    given: str
    batches: EpochBatches
    each: str

    @property
    def words(self) -> str:
        """After "it was"."""
        return f"made for {self.epochs} epochs of {self.steps} steps ({self.given}), and {self.batches.words}"

    @property
    def advice(self) -> str:
        """What to pass."""
        return f"Pass {self.each}=len({self.batches.name}) instead"


def epoch_batches(at: FailingLine) -> EpochBatches | None:
    """Of the innermost loop that steps once for each batch; None where a condition may leave some out."""
    if _is_stepped_elsewhere(at):
        return None
    for depth, frame in enumerate(at.frames):
        tree, line = syntax_tree(at.snapshot, frame), frame.line or 0
        if tree is None or deciding_ifs(tree, line) or _may_leave_out(tree, line):
            return None
        if _is_called_elsewhere(at, scope_of(tree, line)):
            return None
        loops = loops_around(tree, line)
        if loops:
            loop = loops[-1]
            whole = isinstance(loop, (ast.For, ast.AsyncFor)) and not _may_end_early(loop)
            return _of_loop(at, loop, depth) if whole and isinstance(loop, (ast.For, ast.AsyncFor)) else None
    return None


def _is_stepped_elsewhere(at: FailingLine) -> bool:
    """Whether another line steps a schedule of that name."""
    call = at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    name = source(owner).rpartition(".")[2] if owner is not None else None
    steps = [
        item
        for tree in at.files.values()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "step"
        if source(item.func.value).rpartition(".")[2] == name
    ]
    return len(steps) > 1


def _is_called_elsewhere(at: FailingLine, scope: Scope) -> bool:
    """Whether several lines call a function, which may pass other loaders; not model.train() and model.train(True)."""
    name = getattr(scope, "name", None)
    calls = [
        item
        for tree in at.files.values()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and name is not None and called_name(item) == name
        if any(not isinstance(part, ast.Constant) for part in (*item.args, *item.keywords))
    ]
    return len(calls) > 1


def _may_leave_out(tree: ast.Module, line: int) -> bool:
    """A call that a condition within its expression decides on: `synced and self.step()`."""
    for item in nodes_of(tree):
        if isinstance(item, (ast.BoolOp, ast.IfExp)) and spans(item, line):
            parts = item.values[1:] if isinstance(item, ast.BoolOp) else [item.body, item.orelse]
            if any(isinstance(node, ast.Call) and spans(node, line) for part in parts for node in nodes_of(part)):
                return True
    return False


def _may_end_early(loop: ast.For | ast.AsyncFor) -> bool:
    """Also behind the line: `if done == limit: break`."""
    body = own_nodes(ast.Module([*loop.body], []))
    return any(isinstance(item, (ast.Break, ast.Return)) for item in body)


def _of_loop(at: FailingLine, loop: ast.For | ast.AsyncFor, depth: int) -> EpochBatches | None:
    over = without_wrappers(loop.iter, _WRAPPERS)
    made = at.made(over, depth=depth) if isinstance(over, (ast.Name, ast.Attribute)) else None
    if made is None or not isinstance(made.node, ast.Call) or called_name(made.node) != "DataLoader":
        return None
    counts = {
        item.data.batches
        for item in at.snapshot.facts
        if isinstance(item.data, Loader) and item.data.at is not None
        if item.data.at.file == made.spot.file and spans(made.node, item.data.at.line or 0)
    }
    count = next(iter(counts)) if len(counts) == 1 else None
    # The name that the loader has at the line that made it, and where the schedule is made.
    names = [source(node) for node, _ in made.through if isinstance(node, (ast.Name, ast.Attribute))]
    return EpochBatches(count, at.place(made.spot, made.line), names[-1] if names else source(over)) if count else None


def _recorded(at: FailingLine, node: ast.AST, spot: Spot) -> int | None:
    """What a variable on the way was, such as `args.steps`."""
    text = at.value_at(node, spot)
    return int(text) if text is not None and text.isdecimal() else None


def counted_otherwise(at: FailingLine, each: ast.expr, spot: Spot, epochs: int | None, total: int) -> Counted | None:
    """None where an epoch has as many batches as the schedule counts for one, or that is not known.

    Args:
        at: The line that raised it.
        each: What the schedule was given as steps_per_epoch.
        spot: Where it was made.
        epochs: Of the schedule, where that is known.
        total: All its steps.
    """
    made = at.slice.made(each, spot, calls=True)
    steps = at.evaluated(each, spot)
    if steps is None:
        steps = next((number for part in made.through if (number := _recorded(at, *part)) is not None), None)
    if steps is None and epochs:
        steps = total // epochs
    if not steps or total % steps or (epochs is not None and epochs * steps != total):
        return None
    batches = epoch_batches(at)
    if batches is None or batches.count <= steps:
        return None
    where = at.place(made.spot, made.line)
    option = made.node.args[0] if isinstance(made.node, ast.Call) and called_name(made.node) == "add_argument" else None
    given = str(option.value) if isinstance(option, ast.Constant) else f"steps_per_epoch={source(made.node)}"
    return Counted(steps, total // steps, f"{where}: `{short(given)}`", batches, "steps_per_epoch")
