"""A loop that had no round: what it went over, and why that gave nothing, down to the dataset behind a DataLoader.

Only asked where it is known that it had none: a variable that each round sets is not set behind it, or has kept the
value from before.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.numbers import number_at
from pytracer.analyze.evidence.failing.usage.emptied import counted_by_len, emptied_attribute, emptied_by, is_empty
from pytracer.analyze.evidence.failing.usage.empty_data import too_few
from pytracer.analyze.evidence.failing.usage.missed_lines import DROPS_ALL
from pytracer.analyze.evidence.slicing.calls import method_of
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.loops import loops_of
from pytracer.analyze.evidence.syntax.names import holds, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, spans
from pytracer.analyze.evidence.syntax.tries import EXPECTING, hushes

_PASSES_ON = frozenset({"enumerate", "tqdm", "track", "list", "tuple", "iter", "reversed", "sorted"})
_OF_ALL = frozenset({"DistributedSampler", "SequentialSampler", "RandomSampler"})  # give nothing only of no samples
_MAP_STYLE = frozenset({"TensorDataset", "Subset", "ImageFolder", "DatasetFolder", "list", "sorted"})
_SKIPS = (ast.Continue, ast.Break, ast.Return)
_MAY_SKIP = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match)
_SOME = Pattern(r" of [1-9]\d*$|^\[[1-9]")  # `list of 3`, `[2, 3] float32`
_LONG = 260
_MOST_OF_RANGE = 3
_ONLY_IF = "Set `{name}` before the loop only if that may be so."

Loop = ast.For | ast.AsyncFor


class Nothing(msgspec.Struct, frozen=True):
    """What a loop went over: `` `self.loader` gave no batch ``, and why, where it is known. `step`: what to do."""

    what: str
    why: str | None = None
    step: str | None = None

    @property
    def words(self) -> str:
        """Both."""
        return self.what if self.why is None else f"{self.what}, {self.why}"


def set_by_no_round(at: FailingLine, name: str, line: int) -> str | None:
    """Of a variable that is not set: the loop that sets it in each round, and why it had none.

    Args:
        at: The failing line, which reads the variable.
        name: The variable.
        line: The only line above that sets it.
    """
    spot = at.slice.spot(0)
    loop = next((item for item in for_loops(at.scope) if _sets_in_each_round(item, name, line)), None)
    if spot is None or loop is None or spans(loop, at.line) or is_unset(at.scope, name) or had_items(at, loop):
        return None
    if not is_met(at.scope, loop, at.line):
        return None
    nothing = nothing_given(at, loop, spot)
    of = f"by {at.here(line)} in the loop of" if line != loop.lineno else "by the loop of"
    step = nothing.step or ("See why that is so." if nothing.why is None else None)
    words = f"`{name}` is set only {of} {at.here(loop.lineno)}, which had no round: {nothing.words}."
    return " ".join([words, *([step] if step is not None and len(words) < _LONG else []), _ONLY_IF.format(name=name)])


def is_unset(scope: Scope, name: str) -> bool:
    """By `del name`, or at the end of `except Error as name:`."""
    return any(
        (isinstance(item, ast.Delete) and any(holds(part, name) for part in item.targets))
        or (isinstance(item, ast.ExceptHandler) and item.name == name)
        for item in own_nodes(scope)
    )


def for_loops(scope: Scope) -> list[Loop]:
    """Of a function."""
    return [item for item in loops_of(scope) if isinstance(item, (ast.For, ast.AsyncFor))]


def _sets_in_each_round(loop: Loop, name: str, line: int) -> bool:
    """By its head, or by a statement of its body that no round can pass by."""
    return holds(loop.target, name) if line == loop.lineno else runs_in_each_round(loop, line)


def runs_in_each_round(loop: Loop, line: int) -> bool:
    """Whether no round can pass by an assignment of its body."""
    body = [
        item
        for part in loop.body
        for item in (
            part.body if isinstance(part, (ast.With, ast.AsyncWith)) and not hushes(part, EXPECTING) else [part]
        )
    ]
    for item in body:
        if spans(item, line):
            return isinstance(item, (ast.Assign, ast.AnnAssign, ast.AugAssign))
        if any(isinstance(part, _SKIPS) for part in nodes_of(item)):
            return False
    return False


def is_met(scope: Scope, loop: Loop, line: int) -> bool:
    """Whether the program comes to a later line by the loop only."""
    may_skip = (item for item in own_nodes(scope) if isinstance(item, _MAY_SKIP) or hushes(item, EXPECTING))
    around = [item for item in may_skip if item is not loop and spans(item, loop.lineno)]
    return loop.lineno < line and all(_in_same_block(item, loop.lineno, line) for item in around)


def _in_same_block(item: ast.AST, first: int, line: int) -> bool:
    """Whether a line is reached only by what comes before it in one block of a statement; no handler is, or `else`."""
    blocks = [getattr(item, name, []) for name in ("body", "orelse", "finalbody")]
    blocks += [part.body for name in ("handlers", "cases") for part in getattr(item, name, [])]
    if isinstance(item, ast.Try):
        blocks[:2] = [[*item.body, *item.orelse]] if not _is_between(item.handlers, line) else [item.body]
    return any(_is_between(block, first) and _is_between(block, line) for block in blocks)


def _is_between(block: Sequence[ast.stmt | ast.ExceptHandler], line: int) -> bool:
    return any(spans(part, line) for part in block)


def had_items(at: FailingLine, loop: Loop) -> bool:
    """Whether what a loop of the failing line's function goes over is recorded, and is not empty."""
    told = at.value(_gone_over(loop))
    return told is not None and _SOME.search(told) is not None


def _gone_over(loop: Loop) -> ast.expr:
    """`loader` of `enumerate(tqdm(loader), 1)`."""
    over = loop.iter
    while isinstance(over, ast.Call) and called_name(over) in _PASSES_ON and over.args:
        over = over.args[0]
    return over


def nothing_given(at: FailingLine, loop: Loop, spot: Spot) -> Nothing:
    """Of a loop of the frame at `spot` that had no round."""
    over = _gone_over(loop)
    value, text = at.value_at(over, spot), source(over)
    if value is not None and value.startswith("DataLoader"):
        return _of_loader(at, over, spot, value)
    if isinstance(over, ast.Call) and called_name(over) == "range":
        return Nothing(f"`{text}` has no number{_of_range(at, over, spot)}")
    name = variable(over)
    came = at.came(name) if name is not None and spot.depth == 0 else ""
    if value is not None and value.endswith(", used up") and name is not None and _may_use_up(spot, name, loop):
        return Nothing(f"`{text}`{came} was used up before", None, "Make it anew for each pass.")
    why = emptied_by(at, spot.scope, name, loop.lineno) if name is not None and spot.depth == 0 else None
    if is_empty(value):
        return Nothing(f"`{text}`{came if why is None else ''} is empty", f"as {why}" if why is not None else None)
    listed = isinstance(over, (ast.List, ast.Tuple, ast.Set)) and not over.elts
    return Nothing(f"`{text}`{came} {'is empty' if listed else 'gave nothing'}")


def _of_range(at: FailingLine, over: ast.Call, spot: Spot) -> str:
    """Its one number that is no constant, where that still leaves it empty: it may have changed behind the loop."""
    given = [item for item in over.args if not isinstance(item, ast.Constant)]
    told = _number(at, given[0], spot) if len(given) == 1 else None
    if told is None or re.fullmatch(r"-?\d+", told) is None:
        return ""
    numbers = [item.value if isinstance(item, ast.Constant) else int(told) for item in over.args]
    whole = [item for item in numbers if isinstance(item, int)]
    if len(whole) < len(numbers) or len(whole) > _MOST_OF_RANGE or whole[2:] == [0]:
        return ""
    return "" if range(*whole) else f", as `{source(given[0])}` is {told}"


def _may_use_up(spot: Spot, name: str, loop: Loop) -> bool:
    """Whether a line above goes through an iterator: the loop itself leaves it used up, too."""
    above = [item for item in own_nodes(spot.scope) if getattr(item, "lineno", loop.lineno) < loop.lineno]
    return any(
        (isinstance(item, (ast.For, ast.AsyncFor)) and holds(item.iter, name))
        or (isinstance(item, ast.Call) and any(holds(part, name) for part in passed_values(item)))
        for item in above
    )


def _number(at: FailingLine, node: ast.expr, spot: Spot) -> str | None:
    if spot.depth != 0:
        return at.value_at(node, spot)
    found = number_at(at, node)
    return None if found is None else str(found)


def _of_loader(at: FailingLine, over: ast.expr, spot: Spot, told: str) -> Nothing:
    """The dataset is empty, unless a part of the samples may have been left out."""
    what, few = f"`{source(over)}` gave no batch", too_few(told)
    if few is not None:
        return Nothing(what, f"as {few}", DROPS_ALL)
    made = at.slice.made(over, spot, calls=True)
    call = made.node if isinstance(made.node, ast.Call) and called_name(made.node) == "DataLoader" else None
    given = argument_at(call, 0, "dataset") if call is not None else None
    if call is None or given is None:
        return Nothing(what, None, f"Look at len() of `{source(over)}`, its dataset and its sampler.")
    held = f"`{source(given)}`"
    if "drop_last=True" in told:
        whose = held if keyword_value(call, "sampler") is None else f"what its sampler takes of {held}"
        return Nothing(what, f"as {whose} makes no whole batch (drop_last=True)")
    if not _gives_all(at, call, made.spot):
        return Nothing(what, None, f"Look at len({source(given)}), and at what its sampler leaves out.")
    dataset = at.slice.made(given, made.spot, calls=True)
    if not _has_length(at, dataset):
        return Nothing(what, None, f"Look at what `{source(given)}` gives.")
    shown = f" ({at.shown(dataset)})" if dataset.through else ""
    why = _why_empty(at, given, made)
    if why is not None:
        return Nothing(what, f"as {held} is empty: {why}", "Let it fail where nothing is found.")
    return Nothing(what, f"as {held}{shown} is empty", f"See what it is made from, and len({source(given)}).")


def _gives_all(at: FailingLine, call: ast.Call, spot: Spot) -> bool:
    """Whether no sampler of the program's may have left out all samples."""
    if keyword_value(call, "batch_sampler") is not None:
        return False
    sampler = keyword_value(call, "sampler")
    if sampler is None or (isinstance(sampler, ast.Constant) and sampler.value is None):
        return True
    made = at.slice.made(sampler, spot, calls=True).node
    known = isinstance(made, ast.Call) and called_name(made) in _OF_ALL
    return known and isinstance(made, ast.Call) and keyword_value(made, "drop_last", "num_samples") is None


def _has_length(at: FailingLine, dataset: Made) -> bool:
    """Whether a loader of all its samples gives none only where it has none: not of a stream."""
    if isinstance(dataset.node, (ast.List, ast.Tuple, ast.ListComp)):
        return True
    found = at.slice.class_of(dataset.node, dataset.spot)
    if found is not None and isinstance(found[0], ast.ClassDef):
        return method_of(found[0], ("__getitem__",)) is not None
    return isinstance(dataset.node, ast.Call) and called_name(dataset.node) in _MAP_STYLE


def _why_empty(at: FailingLine, dataset: ast.expr, loader: Made) -> str | None:
    """By what the `__len__` of its class counts, where that is in the failing line's file."""
    name = variable(dataset)
    if loader.spot.scope is at.scope and name is not None:
        why = emptied_by(at, at.scope, name, loader.line)
        if why is not None:
            return why
    found = at.slice.class_of(dataset, loader.spot)
    owner = found[0] if found is not None and found[1].tree is at.tree else None
    counted = counted_by_len(owner) if isinstance(owner, ast.ClassDef) else None
    return emptied_attribute(at, owner, counted) if isinstance(owner, ast.ClassDef) and counted is not None else None
