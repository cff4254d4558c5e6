"""What a loop over a loader takes apart: batches of another number of parts, or None by a collate_fn."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer._text import count_words
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.unpacked import returned_values
from pytracer.analyze.evidence.slicing.callers import called_function
from pytracer.analyze.evidence.slicing.calls import method_of
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.returns import returns_none_at

_UNPACK = Pattern(r"(?:too many|not enough) values to unpack \(expected (\d+)(?:, got (\d+))?")
_NONE = Pattern(r"cannot unpack non-iterable NoneType")
_PAIR = 2
_WRAPS = frozenset({"enumerate", "tqdm", "trange", "track", "progress", "iter", "next"})


def parts_of_a_batch(at: FailingLine) -> str | None:
    """`for images, labels, masks in loader`, whose dataset returns two."""
    found = _UNPACK.search(at.message)
    if at.kind != "ValueError" or found is None or not at.own:
        return None
    wanted, taken = int(found[1]), _taken(at)
    made = _loader(at, taken[1]) if taken is not None else None
    targets = _targets(taken[0], wanted) if taken is not None else []
    if taken is None or made is None or len(targets) != 1 or keyword_value(_call(made), "collate_fn") is not None:
        return None
    told = _of_dataset(at, made, wanted, int(found[2]) if found[2] else None)
    if told is None:
        return None
    words, count, change = told
    if ("too many" in at.message) != (count > wanted):
        return None  # something else takes part in what a batch has
    return (
        f"`{source(targets[0])}` takes {wanted} values at line {at.line}, and a batch of `{source(taken[1])}` has "
        f"{count}: {words}. {change}, or take {count} at line {at.line}."
    )


def batch_of_none(at: FailingLine) -> str | None:
    """`for images, labels in loader`, whose collate_fn returns None where no sample is left."""
    taken = _taken(at) if _NONE.search(at.message) and at.kind == "TypeError" and at.own else None
    made = _loader(at, taken[1]) if taken is not None else None
    given = keyword_value(_call(made), "collate_fn") if made is not None else None
    if taken is None or made is None or not isinstance(given, (ast.Name, ast.Attribute)):
        return None
    if any(isinstance(item, (ast.Tuple, ast.List)) and item is not taken[0] for item in nodes_of(taken[0])):
        return None  # a part of the batch may be None
    known = called_function(at.files, made.spot.tree, ast.copy_location(ast.Call(given, [], []), given))
    nothing = returns_none_at(known[1]) if known is not None else None
    if known is None or nothing is None:
        return None
    does = "returns None" if nothing[1] else "may end without `return`"
    collate, place = at.in_file(known[0], known[1].lineno), at.in_file(known[0], nothing[0])
    return (
        f"The batch that {known[1].name}() ({collate}) made is None: as the collate_fn of `{source(taken[1])}` it "
        f"{does} at {place}. Skip such batches (`if batch is None: continue`, before taking them apart), or leave bad "
        "samples out in the dataset, so that each batch has some."
    )


def _taken(at: FailingLine) -> tuple[ast.expr, ast.expr] | None:
    """The target, and the loader that the line loops over or takes the next batch of."""
    item = at.statement
    if isinstance(item, (ast.For, ast.AsyncFor)):
        target, value = item.target, item.iter
    elif isinstance(item, ast.Assign) and isinstance(item.value, ast.Call) and called_name(item.value) == "next":
        target, value = item.targets[0], item.value
    else:
        return None
    while isinstance(value, ast.Call) and called_name(value) in _WRAPS and value.args:
        if called_name(value) == "enumerate":  # the batch is the second one of what it gives
            pair = isinstance(target, (ast.Tuple, ast.List)) and len(target.elts) == _PAIR
            if not pair or not isinstance(target, (ast.Tuple, ast.List)):
                return None
            target = target.elts[1]
        value = value.args[0]
    return target, value


def _targets(target: ast.expr, wanted: int) -> list[ast.expr]:
    """The tuple that takes a batch apart, where it takes as many, and none in it does; none with `*rest`."""
    found = [item for item in nodes_of(target) if isinstance(item, (ast.Tuple, ast.List))]
    if any(isinstance(part, ast.Starred) for item in found for part in item.elts):
        return []
    alike = [item for item in found if len(item.elts) == wanted]
    return [target] if alike == [target] else []


def _loader(at: FailingLine, value: ast.expr) -> Made | None:
    """The call of DataLoader() that made it."""
    spot = at.slice.spot(0)
    made = at.slice.made(value, spot, calls=True) if spot is not None else None
    while made is not None and isinstance(made.node, ast.Call) and called_name(made.node) in _WRAPS and made.node.args:
        made = at.slice.made(made.node.args[0], made.spot, calls=True)
    is_call = made is not None and isinstance(made.node, ast.Call) and called_name(made.node) == "DataLoader"
    return made if is_call else None


def _call(made: Made | None) -> ast.Call:
    node = made.node if made is not None else None
    return node if isinstance(node, ast.Call) else ast.Call(ast.Name(""), [], [])


def _of_dataset(at: FailingLine, made: Made, wanted: int, got: int | None) -> tuple[str, int, str] | None:
    """What each sample has, how many that are, and how to have more."""
    given = argument_at(_call(made), 0, "dataset")
    dataset = at.slice.made(given, made.spot, calls=True) if given is not None else None
    if dataset is None:
        return None
    call = dataset.node
    if isinstance(call, ast.Call) and called_name(call) == "TensorDataset":
        place = at.place(dataset.spot, dataset.line)
        count, plain = len(call.args), not any(isinstance(item, ast.Starred) for item in call.args)
        if not plain or count in (0, wanted) or got not in (None, count):
            return None
        return f"the TensorDataset of {place} has {count_words(count, 'tensor')}", count, f"Give it {wanted} there"
    owner = at.slice.class_of(call, dataset.spot)
    method = method_of(owner[0], ("__getitem__",)) if owner is not None and isinstance(owner[0], ast.ClassDef) else None
    if owner is None or method is None or not isinstance(owner[0], ast.ClassDef):
        return None
    found = returned_values(at, owner[1].file or "", method)
    if found is None or found.values in (None, wanted) or got not in (None, found.values):
        return None
    place = at.in_file(found.file, found.line)
    return f"{owner[0].name}.{found.told(at)}", found.values, f"Return {wanted} at {place}"
