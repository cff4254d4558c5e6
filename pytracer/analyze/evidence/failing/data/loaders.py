"""The last batch of a DataLoader, which is smaller: which loader it is, and the line that made it."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import names_in, source, whole
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import Shape, shape_of
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.calls import method_of
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans
from pytracer.decode.types.journal import Loader

_LOADER = Pattern(r"DataLoader, batch_size=(\d+), drop_last=False(?:, (\d+) samples)?$")
ONE_VALUE = Pattern(r"Expected more than 1 value per channel when training, got input size torch\.Size\(\[1, (\d+)")
_PAIRS = (
    Pattern(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at"),
    Pattern(r"Sizes of tensors must match except in dimension \d+\. Expected size (\d+) but got size (\d+)"),
    Pattern(r"Expected hidden\S* size \(([\d, ]+)\), got \[([\d, ]+)\]"),
    Pattern(r"Expected input batch_size \((\d+)\) to match target batch_size \((\d+)\)"),
    Pattern(r"(?i)target size \(torch\.Size\(\[([\d, ]+)\]\)\) .* input size \(torch\.Size\(\[([\d, ]+)\]\)\)"),
    Pattern(r"expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\) at"),
    Pattern(r"value tensor of shape \[([\d, ]+)\] cannot be broadcast to indexing result of shape \[([\d, ]+)\]"),
    Pattern(r"first two dimensions of batch2 tensor to be: \[([\d, ]+)\] but got: \[([\d, ]+)\]"),
)
_VIEW = Pattern(r"shape '\[([\d, ]+)\]' is invalid for input of size (\d+)")
_KEEPS_SIZE = frozenset({"to", "cuda", "cpu", "float", "long", "double", "half", "int", "bool", "detach", "contiguous"})
_OTHER_BATCHES = ("collate_fn", "batch_sampler", None)  # they decide how many are in a batch; None: `**options`
_SHOW_PROGRESS = frozenset({"tqdm", "track", "rich_tqdm", "progress_bar"})
_PLAIN_ARGUMENTS = 3  # dataset, batch_size, shuffle
_OTHER_SAMPLES = ("sampler", *_OTHER_BATCHES)  # they decide how many samples a loader gives, or a batch has
_WORDS_OF_LOOP = (ast.For, ast.AsyncFor)


class _Loop(msgspec.Struct, frozen=True):
    """A loader that a loop around a line of the stack runs over."""

    name: str
    value: str
    spot: Spot
    depth: int
    node: ast.For | ast.AsyncFor


class _Last(msgspec.Struct, frozen=True):
    """The last batch: `has` for the headline, `words` with what to do. `sure`: nothing else can have made it.

    `seen`: a tensor of the loop has that size.
    """

    has: str
    words: str
    sure: bool = True
    seen: bool = True


class Batch(msgspec.Struct, frozen=True):
    """What a loop over a DataLoader was given: a tensor of its batch, with as many samples."""

    loader: str
    name: str
    size: int
    depth: int


class _Call(msgspec.Struct, frozen=True):
    """The `DataLoader(...)` that made it, and where."""

    node: ast.Call
    spot: Spot
    place: str

    def option(self, name: str | None) -> ast.expr | None:
        """None where it is not given; `name`: None of `**options`."""
        return next((item.value for item in self.node.keywords if item.arg == name), None)


def last_batch_of_one(at: FailingLine) -> str | None:
    """BatchNorm in training with one sample left over."""
    if ONE_VALUE.search(at.message) is None:
        return None
    found = _last(at, 1)
    if found is None:
        return None
    if not found.seen:
        return f"Print what {_layer(at)} got: {found.words}, if it was that batch."
    return f"{_layer(at)} got one value per channel, as {found.words}."


def one_sample_subject(at: FailingLine) -> str | None:
    """`` `norm` (BatchNorm1d) got 1 sample: the last batch of `train` has 1 of 1153 (batch_size=128, line 105) ``."""
    found = _last(at, 1) if ONE_VALUE.search(at.message) is not None else None
    if found is None or not found.seen:
        return None
    return f"{_layer(at)} got {'a batch of 1' if found.sure else 'one value per channel'}: {found.has}"


def _layer(at: FailingLine) -> str:
    return f"`{at.layer.name}` ({at.layer.kind})" if at.layer is not None else "BatchNorm"


def smaller_last_batch(at: FailingLine) -> str | None:
    """Of two sizes that must be equal, one is that of a full batch, and the other that of the last one."""
    pair = _pair(at.message)
    if pair is None:
        return None
    size, full = min(pair), max(pair)
    found = last_batch(at, size, full)
    if found is None:
        return None
    odd = [
        (name, shape)
        for name, shape in at.shapes.items()
        if full in shape.sizes and size not in shape.sizes[:2] and "[" not in name
    ]
    call = at.only(ast.Call)
    for item in call.args if call is not None and not odd else ():  # `(h, c)` of an LSTM
        name = f"{ast.unparse(item)}[0]"
        first = at.shape(name)
        odd += [(name, first)] if first is not None and full in first.sizes else []
    if len(odd) == 1:
        name, shape = odd[0]
        made = f"`{name}` {shape.words}{at.begun(name) or at.came(name)} is for a batch of {full}"
        return f"{made}, and {found}; or make `{name}` for each batch, by the size of its data."
    asked = [item for item in _numbers_of(at) if whole(item) == full or at.value(item) == str(full)]
    if _VIEW.search(at.message) and asked:
        return f"Line {at.line} asks for a batch of {full}, and {found}; or take the size from the tensor (x.size(0))."
    return f"One side has the {full} of a full batch, and {found}; or make it by the size of each batch."


def _numbers_of(at: FailingLine) -> list[ast.expr]:
    call = at.only(ast.Call)
    return [item for item in nodes_of(call) if isinstance(item, ast.expr)] if call is not None else []


def _pair(message: str) -> tuple[int, int] | None:
    """The two sizes, where there is one difference."""
    view = _VIEW.search(message)
    if view is not None:
        wanted, size = [int(item) for item in view[1].split(",")], int(view[2])
        rest = math.prod(wanted[1:])
        return (wanted[0], size // rest) if rest and not size % rest and size // rest != wanted[0] else None
    for expression in _PAIRS:
        found = expression.search(message)
        if found is None:
            continue
        one, other = ([int(item) for item in part.split(",") if item.strip()] for part in found.groups())
        differ = [two for two in zip(one, other, strict=False) if two[0] != two[1]]
        return differ[0] if len(one) == len(other) and len(differ) == 1 else None
    return None


def last_batch(at: FailingLine, size: int, full: int | None = None) -> str | None:
    """`` the last batch of `train` has 1 of 961 samples (batch_size=32). Set ... ``, of a loop on the stack.

    `full`: the batch size that another tensor was made for.
    """
    found = _last(at, size, full)
    return found.words if found is not None else None


def _last(at: FailingLine, size: int, full: int | None = None) -> _Last | None:
    loops = [*_looped(at)]
    for loop in loops:
        found = _LOADER.match(loop.value)
        if found is None or full not in (None, int(found[1])):
            continue
        several = sum(item.node is loop.node and item.value.startswith("DataLoader") for item in loops) > 1
        batch, given = int(found[1]), _given(at, loop)
        if given is not None and given[1] != size:
            continue
        made = _made(at, loop)
        chosen = made is not None and any(made.option(item) is not None for item in _OTHER_SAMPLES)
        told = int(found[2]) if found[2] is not None else None
        count = told if not chosen or (given is None and full is not None) else None
        if count is not None:
            if size != count % batch:
                continue
        elif given is None or size >= batch or several:
            continue
        else:
            count = _count(at, loop, made, batch, size)
        name = "the loader" if loop.name.endswith(")") else f"`{loop.name}`"
        one = f"{size} sample{'s' * (size != 1)}"
        if count is None and (made is None or any(made.option(item) is not None for item in _OTHER_BATCHES)):
            has = f"{name} gave {one} in `{given[0] if given else ''}` (batch_size={batch}, drop_last=False)"
            words = f"{has}. Only a last batch has fewer, unless a collate_fn drops some: {_set(made, small=True)}"
            return _Last(has, words, sure=False)
        of = f"{size} of {count} samples" if count is not None else one
        place = f", {made.place}" if made is not None else ""
        last = f"the last batch of {name} has {of} (batch_size={batch}"
        return _Last(f"{last}{place})", f"{last}). {_set(made)}", seen=given is not None)
    return None


def batch_given(at: FailingLine) -> Batch | None:
    """Of the innermost loop over a DataLoader on the stack, where all its tensors have the same size."""
    loop = next((item for item in _looped(at) if item.value.startswith("DataLoader")), None)
    given = _given(at, loop) if loop is not None else None
    return Batch(loop.name, *given, loop.depth) if loop is not None and given is not None else None


def _set(made: _Call | None, *, small: bool = False) -> str:
    where = f" at {made.place} (`{source(made.node)}`)" if made is not None else ""
    return f"{'set' if small else 'Set'} drop_last=True in the DataLoader{where}, or another batch_size"


def looped_loaders(at: FailingLine) -> Iterator[tuple[str, str]]:
    """Those of the loops around the lines of the stack, by name, as recorded."""
    yield from ((item.name, item.value) for item in _looped(at))


def full_batch(at: FailingLine, full: int, size: int) -> str | None:
    """Of a rank whose batch is a full one, where that of another rank has so many."""
    for loop in _looped(at):
        found = _LOADER.match(loop.value)
        if found is not None and int(found[1]) == full > size:
            made = _made(at, loop)
            where = f" at {made.place} (`{source(made.node)}`)" if made is not None else ""
            return (
                f"`{loop.name}` has batches of {full} (drop_last=False), and {size} may be a last one. Set "
                f"drop_last=True in the DataLoader{where}, and give all ranks as many batches"
            )
    return None


def _made(at: FailingLine, loop: _Loop) -> _Call | None:
    spot, call = at.slice.spot(loop.depth), ast.parse(loop.name, mode="eval").body
    if isinstance(call, ast.Call):  # made in the head of the loop
        return _Call(call, loop.spot, at.place(loop.spot, loop.node.lineno))
    made = at.slice.made(call, spot, calls=True) if spot is not None else None
    if made is None or not isinstance(made.node, ast.Call) or not (called_name(made.node) or "").endswith("Loader"):
        return None
    return _Call(made.node, made.spot, at.place(made.spot, made.line)) if made.through else None


def _given(at: FailingLine, loop: _Loop) -> tuple[str, int] | None:
    """A tensor that the loop was given, with its first size, where all of them have the same."""
    values = at.values_at(loop.depth)
    names = [item.id for item in nodes_of(loop.node.target) if isinstance(item, ast.Name)]
    found: list[tuple[str, Shape]] = []
    for name in names:
        if any(value is not None and not _keeps_size(value, name) for value in _set_inside(loop, name)):
            return None  # of another tensor by now
        held = [name, *(item for item in values if item.startswith((f"{name}[", f"{name}.")))]
        found += [(item, shape) for item in held if (shape := shape_of(values.get(item))) is not None and shape.sizes]
    sizes = {shape.sizes[0] for _, shape in found}
    return (found[0][0], sizes.pop()) if len(sizes) == 1 else None


def _set_inside(loop: _Loop, name: str) -> list[ast.AST | None]:
    last = loop.node.end_lineno or 0
    return [value for line, value, _ in bindings_of(loop.spot.scope, name) if loop.node.lineno < line <= last]


def _keeps_size(value: ast.AST, name: str) -> bool:
    """`x.to(device)`, `x.cuda().float()`; also in `x, y = x.to(device), y.to(device)`."""
    if isinstance(value, ast.Tuple):
        return all(any(_keeps_size(item, other) for other in names_in(item)) for item in value.elts)
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _KEEPS_SIZE:
        value = value.func.value
    return variable(value) == name


def _count(at: FailingLine, loop: _Loop, made: _Call | None, batch: int, size: int) -> int | None:
    """`i * batch + size` of `for i, x in enumerate(loader)`: all batches before the last were full."""
    numbered, target = loop.node.iter, loop.node.target
    if made is None or any(made.option(item) is not None for item in _OTHER_BATCHES):
        return None
    workers = made.option("num_workers")
    if workers is not None and whole(workers) not in (0, 1) and not _by_index(at, made):
        return None  # each worker of an IterableDataset has a last batch
    if not isinstance(numbered, ast.Call) or not isinstance(numbered.func, ast.Name) or not numbered.args:
        return None
    if numbered.func.id != "enumerate" or len(numbered.args) > 1 or numbered.keywords:
        return None
    inner = numbered.args[0]
    if isinstance(inner, ast.Call) and called_name(inner) in _SHOW_PROGRESS and inner.args:
        inner = inner.args[0]
    if ast.unparse(inner) != loop.name:
        return None  # `islice(loader, start, None)`
    first = target.elts[0] if isinstance(target, ast.Tuple) else None
    place = at.values_at(loop.depth).get(first.id) if isinstance(first, ast.Name) else None
    if not isinstance(first, ast.Name) or place is None or not place.isdigit() or _set_inside(loop, first.id):
        return None
    return int(place) * batch + size


def _by_index(at: FailingLine, made: _Call) -> bool:
    """Whether its dataset is a class of the program that has items."""
    given = made.option("dataset") or next(iter(made.node.args), None)
    found = at.slice.made(given, made.spot, calls=True) if given is not None else None
    if found is None or not isinstance(found.node, ast.Call):
        return False
    owner = at.slice.defined(found.node.func, found.spot)
    return (
        owner is not None and isinstance(owner[0], ast.ClassDef) and method_of(owner[0], ("__getitem__",)) is not None
    )


def _looped(at: FailingLine) -> Iterator[_Loop]:
    for depth in range(len(at.frames)):
        spot = at.slice.spot(depth)
        if spot is None:
            continue
        values = {**at.values_at(spot.depth or 0), **at.values_at(depth)}
        for item in _loops_around(spot):
            for part in nodes_of(item.iter):
                text = ast.unparse(part) if isinstance(part, (ast.Name, ast.Attribute)) else ""
                if text in values:
                    yield _Loop(text, values[text], spot, depth, item)
                elif isinstance(part, ast.Subscript) and (held := _recorded(at, part, spot)) is not None:
                    yield _Loop(ast.unparse(part), held, spot, depth, item)
                elif isinstance(part, ast.Call) and (size := _size_of_batches(at, part, spot)) is not None:
                    value = f"DataLoader, batch_size={size}, drop_last=False"
                    yield _Loop(ast.unparse(part), value, spot, depth, item)


def _loops_around(spot: Spot) -> Iterator[ast.For | ast.AsyncFor]:
    """Also those of a comprehension that the line is in, as loops without a body."""
    for item in own_nodes(spot.scope):
        if isinstance(item, _WORDS_OF_LOOP) and item.lineno <= spot.line <= (item.end_lineno or 0):
            yield item
        elif isinstance(item, COMPREHENSIONS) and spans(item, spot.line):
            for part in item.generators:
                yield ast.copy_location(ast.For(part.target, part.iter, [], []), item)


def _recorded(at: FailingLine, part: ast.Subscript, spot: Spot) -> str | None:
    """Of `self.loaders["train"]`, by the record of the only DataLoader that was made at that line."""
    made = at.slice.made(part, spot, calls=True)
    if not isinstance(made.node, ast.Call) or called_name(made.node) != "DataLoader":
        return None
    facts = [fact.data for fact in at.snapshot.facts if isinstance(fact.data, Loader)]
    places = [(item.at.file, item.at.line) for item in facts if item.at is not None]
    here = range(made.node.lineno, (made.node.end_lineno or made.node.lineno) + 1)
    found = [item for item in facts if item.at is not None and item.at.file == made.spot.file and item.at.line in here]
    if len(found) != 1 or len(places) != len(facts) or None in (found[0].batch_size, found[0].drop_last):
        return None
    one = found[0]
    value = f"DataLoader, batch_size={one.batch_size}, drop_last={one.drop_last}"
    if one.plain and one.batches is not None and one.samples is not None:
        value += f", {one.samples} samples"
    return value


def _size_of_batches(at: FailingLine, call: ast.Call, spot: Spot) -> int | None:
    """Of `for x in DataLoader(data, batch_size=8)`, which no variable holds."""
    made = _Call(call, spot, "")
    given = made.option("batch_size") or (call.args[1] if len(call.args) > 1 else None)
    if called_name(call) != "DataLoader" or given is None or len(call.args) > _PLAIN_ARGUMENTS:
        return None
    if any(made.option(item) is not None for item in ("drop_last", *_OTHER_BATCHES)):
        return None
    told = at.value_at(given, spot)
    return int(told) if told is not None and told.isdigit() else at.evaluated(given, spot)
