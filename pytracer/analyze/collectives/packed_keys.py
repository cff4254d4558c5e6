"""A tensor that is packed of the values of a dict, one for each key, and the branch that adds keys on some ranks only.

`torch.stack([losses[k] for k in sorted(losses)])` has as many entries as there are losses. Where a branch adds some of
them by what is in a rank's batch, the sizes differ by as many keys as it adds: that is how it is known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer.analyze.behind import Place, places_in
from pytracer.analyze.collectives.exchanges import led_way
from pytracer.analyze.collectives.sizes import Side, passed_tensor
from pytracer.analyze.collectives.ways import quoted
from pytracer.analyze.evidence.slicing.dict_keys import Branch, DictKeys, constant_key, dict_keys, dict_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import deciding_ifs, loops_around
from pytracer.analyze.evidence.syntax.names import names_of, variable
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.naming import LineWords, line_in
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_PACKS = ("stack", "vstack", "tensor", "as_tensor", "cat", "concat", "concatenate", "hstack")
_LISTS = ("list", "tuple")
_MOST = 4
_QUOTES = "'\""
_REDUCES = ("all_reduce", "reduce", "reduce_scatter")


class PackedKeys(msgspec.Struct, frozen=True):
    """`op`: the collective. `entries`: of each key. `name`: of the dict. `count`: of the keys that the branch adds.

    `heads`: the branch that adds them, and the one that decides about its test; each line with its text. `key`: what
    that test looks for. `made`: the line that makes what the last test reads.
    """

    op: str
    entries: str
    name: str
    at: LineWords
    count: int | None
    below: bool
    heads: tuple[LineWords, ...]
    key: str | None
    made: LineWords | None

    @property
    def subject(self) -> str:
        """`one for each key of `losses` (line 75), of which 2 are set only below line 77 (`if "dn" in out:`), ...`."""
        some = "some are" if self.count is None else f"{self.count} {'is' if self.count == 1 else 'are'}"
        way = "only below" if self.below else "or not by"
        then = f", and {self.key} is set only below {self.heads[1]}" if len(self.heads) > 1 else ""
        return (
            f"{self.entries} for each key of `{self.name}` ({self.at}), of which {some} set {way} {self.heads[0]}{then}"
        )

    @property
    def advice(self) -> str:
        """To run the branch everywhere, or to fill the keys in."""
        reads = f" ({self.made})" if self.made is not None else ""
        pad = " Do not pad or cut the tensor: values of other keys would be added to each other."
        return (
            f"Make every rank set the same keys in `{self.name}` before this {self.op}(): run what is below "
            f"{self.heads[-1]} on all ranks, also where the data of one has nothing for it{reads}, or fill the missing "
            f"keys with zeros first.{pad if self.op in _REDUCES else ''}"
        )

    @property
    def places(self) -> tuple[Place, ...]:
        """All of these lines."""
        return places_in([self.at, *self.heads, self.made])


def packed_keys(first: Side, second: Side) -> PackedKeys | None:
    """Of two ranks that passed other sizes from one line; None where the numbers of keys do not make these sizes."""
    for view, call in (first, second):
        passed, snapshot = passed_tensor(view, call), view.process.snapshot
        if passed is None:
            continue
        slice_ = Slice(snapshot, led_way(view, call)[::-1])
        spot = slice_.spot(0)
        found = _packed(slice_, passed[0], spot) if spot is not None else None
        by = _branch(found, *_sizes(first, second)) if found is not None else None
        if found is None or by is None or spot is None:
            continue
        keys, deeper = found, _decided(slice_, by)
        last = deeper[1] if deeper is not None else by
        return PackedKeys(
            call.op,
            _entries(keys, by, first, second),
            keys.name,
            line_in(keys.made.spot.file, keys.made.line, spot.file),
            keys.count(by),
            by.inside,
            tuple(_head(snapshot, item, spot.file) for item in ([by] if deeper is None else [by, last])),
            deeper[0] if deeper is not None else None,
            _made(snapshot, last, spot.file),
        )
    return None


def _sizes(first: Side, second: Side) -> tuple[int, int]:
    """Of the dimension that has the parts, where all others are alike: else no numbers of parts at all."""
    one, other = first[1].sizes, second[1].sizes
    if len(one) != len(other) or not one or one[1:] != other[1:]:
        return 0, 0
    return one[0], other[0]


def _entries(keys: DictKeys, by: Branch, first: Side, second: Side) -> str:
    """`one`, `one row`, `16`: how many entries each key has."""
    fewer, more = sorted(_sizes(first, second))
    added = keys.count(by)
    each = (more - fewer) // added if added else 1
    number = str(each) if each > 1 else "one"
    return f"{number} row{'s' * (each > 1)}" if len(first[1].sizes) > 1 else number


def _packed(slice_: Slice, node: ast.AST, spot: Spot) -> DictKeys | None:
    """The dict whose values a tensor is made of, all of them."""
    made = slice_.made(node, spot, calls=True)
    call = made.node
    while isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
        if called_name(call) in _PACKS:
            break
        call = call.func.value  # `torch.stack(...).to(device)`
    if not isinstance(call, ast.Call) or called_name(call) not in _PACKS or not call.args:
        return None
    for source in _sources(call.args[0], made.spot):
        keys = _keys(slice_, source, made.spot)
        if keys is not None:
            return keys
    return None


def _sources(parts: ast.expr, spot: Spot, most: int = _MOST) -> Iterator[ast.expr]:
    """What the parts are taken of: of `[d[k] for k in names]`, of `list(d.values())`, of a list that a loop fills."""
    while isinstance(parts, ast.Call) and called_name(parts) in _LISTS and len(parts.args) == 1:
        parts = parts.args[0]
    if isinstance(parts, (ast.ListComp, ast.GeneratorExp)):
        if len(parts.generators) == 1 and not parts.generators[0].ifs:
            yield parts.generators[0].iter
    elif isinstance(parts, ast.Name):
        bound = [value for line, value in lines_that_bind(spot.scope, parts.id) if line < spot.line]
        made = bound[0] if len(bound) == 1 else None
        if isinstance(made, (ast.ListComp, ast.Call)) and most:
            yield from _sources(made, spot, most - 1)
        elif isinstance(made, ast.List) and not made.elts:
            yield from _filled(parts.id, spot)
    else:
        yield parts


def _filled(name: str, spot: Spot) -> Iterator[ast.expr]:
    """What the only loop goes through that appends to a list, in each of its rounds."""
    appends = [
        item
        for item in own_nodes(spot.scope)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and variable(item.func.value) == name
        if item.lineno < spot.line
    ]
    loops = loops_around(spot.tree, appends[0].lineno) if len(appends) == 1 else []
    if len(loops) != 1 or not isinstance(loops[0], ast.For) or called_name(appends[0]) != "append":
        return
    if not any(test.lineno > loops[0].lineno for test, _ in deciding_ifs(spot.tree, appends[0].lineno)):
        yield loops[0].iter


def _keys(slice_: Slice, source: ast.expr, spot: Spot) -> DictKeys | None:
    """The dict that `sorted(losses)`, `losses.values()`, or a variable with one of these, is of."""
    node: ast.AST = source
    for _ in range(_MOST):
        given = dict_of(node) if isinstance(node, ast.expr) else None
        keys = dict_keys(slice_, given[0], spot) if given is not None else None
        if keys is not None:
            return keys
        made = slice_.made(given[0] if given is not None else node, spot, calls=False)
        if made.node is node or (given is not None and made.node is given[0]):
            return None
        node, spot = made.node, made.spot
    return None


def _branch(keys: DictKeys, one: int, other: int) -> Branch | None:
    """The only branch whose keys make the difference."""
    fits = [item for item in keys.branches if _fits(keys, item, min(one, other), max(one, other))]
    return fits[0] if len(fits) == 1 and one != other else None


def _fits(keys: DictKeys, branch: Branch, fewer: int, more: int) -> bool:
    """Whether one rank has what is always there and what some of the other branches add, the other this one's, too.

    Each key may have several entries, as many as all the others.
    """
    added, others = keys.count(branch), [keys.count(item) for item in keys.branches if item.at != branch.at]
    if keys.always is None or None in others:
        return False
    totals = {keys.always}
    for count in others:
        totals |= {total + (count or 0) for total in totals}
    if added is None:
        return fewer in totals
    return any(total and fewer % total == 0 and fewer * (total + added) == more * total for total in totals)


def _decided(slice_: Slice, branch: Branch) -> tuple[str, Branch] | None:
    """Of `if "dn" in out:` the key, and the branch below which alone it is set."""
    test = branch.test.test
    if not branch.inside or not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    if not isinstance(test.ops[0], ast.In) or constant_key(test.left) is None:
        return None
    keys = dict_keys(slice_, test.comparators[0], branch.spot)
    own = [item for item in keys.added() if item.key == constant_key(test.left)] if keys is not None else []
    below = own[0].below if len(own) == 1 else None
    return (
        (f"`{(constant_key(test.left) or '').strip(_QUOTES)}`", below) if below is not None and below.inside else None
    )


def _head(snapshot: Snapshot, branch: Branch, here: str | None) -> LineWords:
    """`` line 77 (`if "dn" in out:`) ``."""
    file, line = branch.at
    words = line_in(file, line, here)
    text = quoted(snapshot, PythonFrame(file=file, line=line), line)
    return words.then(f" ({text})") if text is not None else words


def _made(snapshot: Snapshot, branch: Branch, here: str | None) -> LineWords | None:
    """The line that makes the one variable of a test."""
    names = [*dict.fromkeys(names_of(branch.test.test))]
    bound = [line for name in names[:1] for line, _ in lines_that_bind(branch.spot.scope, name)]
    if len(names) != 1 or len(bound) != 1 or bound[0] >= branch.test.lineno:
        return None
    text = quoted(snapshot, PythonFrame(file=branch.spot.file, line=bound[0]), bound[0])
    return line_in(branch.spot.file, bound[0], here).then(f": {text}") if text is not None else None
