"""An index that C read from arrays which are not recorded: `Bj[kk]`, `kk` from `Bp[j]`, `j` from `Aj[jj]`.

Nothing is computed: the source shows which array holds the indices of which, and the line which objects those are of.
Arrays of one object, such as the three of a sparse matrix, were made together; where the numbers of one object are the
indices of another one, both have to go together, and that is looked at first.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.lookup_checks import is_asked, is_asked_before
from pytracer.analyze.evidence.own_code.lookups import Lookup, Lookups, has_unseen, lookups, parameter_of
from pytracer.analyze.evidence.own_code.named_fields import field_of
from pytracer.analyze.evidence.own_code.native_bounds import LOOP, NAME
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArrays
from pytracer.analyze.evidence.own_code.pointer_arguments import pointer_arguments
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence

_POINTERS = frozenset({"ctypes", "data_ptr", "data", "data_as"})
_WRAPS = frozenset({"cast", "byref", "pointer", "from_buffer", "ptr", "addr", "address"})


class UncheckedLookup(msgspec.Struct, frozen=True):
    """Elements of `by` index `table`, in C, at `place`; `inner`, `outer`: what line `line` passes for them.

    `text`: how the source takes the element of `table`. `owners`: the objects that both are of, where these differ, and
    `made`: the line that makes both. `bound`: what the loop over the elements of `by` counts up to.
    `last`: the array whose numbers index the one at which it failed, where that is another step.
    """

    place: str
    failing: str
    text: str
    table: str
    by: str
    outer: str
    inner: str
    owners: tuple[str, str] | None
    line: int
    made: LineWords | None = None
    bound: str | None = None
    last: tuple[str, str] | None = None

    @property
    def summary(self) -> str:
        """Behind `the index ...`."""
        return (
            f"comes by way of `{self.text}`, where nothing checks that the elements of `{self.inner}` are indices of "
            f"`{self.outer}`"
        )

    @property
    def advice(self) -> str:
        """Which array to check against which."""
        return (
            f"Check max() of `{self.inner}` (`{self.by}`), which line {self.line} passes, against the length of "
            f"`{self.outer}` (`{self.table}`): `{self.text}` takes each number as an index, on the way to "
            f"{self.failing}.{self._length}{self._both}{self._last} Arrays of another element type than the function "
            "takes lead there as well."
        )

    @property
    def _length(self) -> str:
        if self.bound is None:
            return ""
        return f" `{self.inner}` must also have all the elements that the loop reads, up to `{self.bound}`."

    @property
    def _last(self) -> str:
        if self.last is None:
            return ""
        return f" If all fit, check those in `{self.last[0]}` against the length of `{self.last[1]}`."

    @property
    def _both(self) -> str:
        if self.owners is None:
            return ""
        one, other = self.owners
        made = f", made at {self.made}," if self.made is not None else ""
        return (
            f" They are of two objects, `{one}` and `{other}`{made} that have to go together: of matrices, the columns "
            f"of `{one}` are the rows of `{other}`, else one of them is to be transposed."
        )

    @property
    def evidence(self) -> Evidence:
        """The line of C, and how it comes to its index."""
        sentence = f"{self.place} takes an element by an index that came of `{self.text}`, without a check"
        return Evidence("source-line", sentence, text=self.text)


class _Link(msgspec.Struct, frozen=True):
    """A lookup by another one, with what the program passes for both arrays."""

    table: Lookup
    by: Lookup
    outer: str
    inner: str

    @property
    def owners(self) -> tuple[str, str]:
        """`a` and `b` of `a.indices` and `b.indptr`."""
        return _owner(self.inner), _owner(self.outer)

    @property
    def is_of_one(self) -> bool:
        """Whether both are of one object, which was made with both."""
        return len(set(self.owners)) == 1

    @property
    def crosses(self) -> bool:
        """Whether both are attributes or items of objects, and of different ones."""
        own = [item for item in (self.inner, self.outer) if _owner(item) != item]
        return len(own) == 2 and len(set(self.owners)) == 2


def unchecked_lookup(view: ProcessView) -> UncheckedLookup | None:
    """None where the source asks for an index, or more than one of its steps may have led out."""
    found, spot = lookups(view), Slice(view.process.snapshot, program_frames(view)).spot(0)
    if found is None or spot is None or has_unseen(found.statement):
        return None
    access = view.fault.access if view.fault is not None else None
    taken = [item for item in found.found if item.by and (item.writes if access == "write" else item.reads)]
    if not taken or any(map(is_asked, taken)):
        return None
    arrays = PassedArrays(view)
    links: dict[tuple[str, str], _Link] = {}
    for item in (item for one in taken for item in _links(view, one, spot)):
        links.setdefault((item.outer, item.inner), item)
    links = {names: item for names, item in links.items() if not _is_inside(arrays, item)}
    links = {names: item for names, item in links.items() if not item.is_of_one}
    across = [item for item in links.values() if item.crosses]
    chosen = across if len(across) == 1 else [*links.values()]
    if len(chosen) != 1 or is_asked_before(spot, chosen[0].inner):
        return None
    last = next(filter(None, (_last(view, item, spot) for item in taken)), None)
    told = _of(view, found, taken[0], chosen[0], spot)
    return structs.replace(told, last=last) if last != (told.inner, told.outer) else told


def _last(view: ProcessView, lookup: Lookup, spot: Spot) -> tuple[str, str] | None:
    """The two arrays of the last step."""
    outer, inner = _passed(view, lookup, spot), _passed(view, lookup.by[0], spot)
    return (inner, outer) if outer is not None and inner is not None else None


def _of(view: ProcessView, found: Lookups, first: Lookup, link: _Link, spot: Spot) -> UncheckedLookup:
    return UncheckedLookup(
        found.place,
        f"`{first.text}` ({found.place})",
        _step(link),
        link.table.array,
        link.by.array,
        link.outer,
        link.inner,
        link.owners if link.crosses else None,
        spot.line,
        _made(view, link.owners, spot) if link.crosses else None,
        _bound(link.by),
    )


def _bound(lookup: Lookup) -> str | None:
    """`n` of `for (i = 0; i < n; i++)` around `ids[i]`."""
    index = re.search(r"\[\s*(\w+)\s*\]$", lookup.text)
    loops = [item for text in lookup.scope.texts for item in LOOP.finditer(text) if index and item["name"] == index[1]]
    return loops[-1]["bound"] if loops and NAME.fullmatch(loops[-1]["bound"]) else None


def _made(view: ProcessView, owners: tuple[str, str], spot: Spot) -> LineWords | None:
    """The line that both objects come from, where that is another one."""
    back = Slice(view.process.snapshot, program_frames(view))
    spots = [back.made(ast.parse(owner, mode="eval").body, spot, calls=False).spot for owner in owners]
    found = {(item.file, item.line) for item in spots}
    file, line = next(iter(found))
    return place_of(view, file, line) if len(found) == 1 and (file, line) != (spot.file, spot.line) else None


def _step(link: _Link) -> str:
    """`Bp[j]` with `j = Aj[jj]`: the element, with the index that it is taken by."""
    text, by = link.table.text, link.by
    return re.sub(rf"\b{re.escape(by.variable)}\b", by.text, text) if by.variable and not by.of_loop else text


def _links(view: ProcessView, lookup: Lookup, spot: Spot) -> Iterator[_Link]:
    """Each step of the way back, where the program passes both arrays."""
    for by in lookup.by:
        outer, inner = _passed(view, lookup, spot), _passed(view, by, spot)
        if outer is not None and inner is not None and outer != inner:
            yield _Link(lookup, by, outer, inner)
        yield from _links(view, by, spot)


def _is_inside(arrays: PassedArrays, link: _Link) -> bool:
    """Whether the recording shows that all numbers are indices of the other array."""
    found = [arrays.passed(*item) if (item := parameter_of(one)) is not None else None for one in (link.table, link.by)]
    table, by = found
    if table is None or by is None or by.low is None or by.high is None or link.table.scaled:
        return False
    return by.low >= 0 and by.high + link.table.offset < table.elements


def _passed(view: ProcessView, lookup: Lookup, spot: Spot) -> str | None:
    """`a.indices` for the parameter `Aj`, without the pointer around it."""
    taken = parameter_of(lookup)
    if taken is None:
        return None
    function, parameters, place = taken
    calls = calls_on(spot.tree, spot.line)
    given = {called_name(item) or "": pointer_arguments(spot.tree, item) for item in calls}
    known = given.get(function) or next((item for item in given.values() if len(item) == len(parameters)), [])
    node = _held(known[place]) if place < len(known) else None
    if isinstance(node, ast.Subscript):
        return field_of(Slice(view.process.snapshot, program_frames(view)), node, spot) or ast.unparse(node)
    return ast.unparse(node) if node is not None else None


def _held(node: ast.expr) -> ast.expr | None:
    """`a[1]` of `address(a[1])`, `x` of `x.ctypes.data` and `x.data_ptr()`."""
    while True:
        if isinstance(node, ast.Call):
            inner = _pointed(node)
            if inner is None:
                return None
            node = inner
        elif isinstance(node, ast.Attribute) and _is_of_array(node):
            node = node.value
        else:
            break
    plain = isinstance(node, (ast.Name, ast.Attribute, ast.Subscript))
    return node if plain and not any(isinstance(item, ast.Call) for item in nodes_of(node)) else None


def _pointed(call: ast.Call) -> ast.expr | None:
    """What a call makes a pointer of; None of `x.astype(...)`, which is another array."""
    method = call.func if isinstance(call.func, ast.Attribute) else None
    if method is not None and method.attr in _POINTERS:
        return method.value
    wraps = method is None or method.attr.startswith("c_") or method.attr in _WRAPS
    return call.args[0] if wraps and call.args else None


def _is_of_array(node: ast.Attribute) -> bool:
    """`.ctypes`, and `.data` of that: `b.data` alone may be an array of `b`."""
    return node.attr == "ctypes" or (node.attr in _POINTERS and not isinstance(node.value, ast.Name))


def _owner(text: str) -> str:
    """`b` of `b.indptr` and `b[0]`; of a plain name the name."""
    return re.sub(r"(?:\.\w+|\[[^\[\]]*\])$", "", text)
