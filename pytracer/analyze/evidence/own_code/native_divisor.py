"""What the program's own C or C++ divided by when that was 0: by its source, and by what the line of Python passed.

The line of the fault has the division; where the library has no lines, or optimization moved them, every division that
the function may run is looked at, and those whose divisor is known to be another number are left out. What is left must
be one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import takewhile

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.fault_function import is_own_frame
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.own_code.c_divisions import Division, divisions, is_tested
from pytracer.analyze.evidence.own_code.c_fields import CFields, passed_for
from pytracer.analyze.evidence.own_code.c_text import without_parentheses
from pytracer.analyze.evidence.own_code.c_values import (
    Numbers,
    Term,
    elements,
    number_of,
    parameters_in,
    resolved,
)
from pytracer.analyze.evidence.own_code.counted_none import CountedNone, counted_none
from pytracer.analyze.evidence.own_code.cut_quotient import CutQuotient, cut_quotient
from pytracer.analyze.evidence.own_code.empty_groups import EmptyGroups, empty_groups
from pytracer.analyze.evidence.own_code.empty_handle import EmptyHandle, empty_handle
from pytracer.analyze.evidence.own_code.native_source import own_sources
from pytracer.analyze.evidence.own_code.own_signature import own_definition
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArray, PassedArrays
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.naming import LineWords, short_file
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence, NativeFrame

_QUOTED, _OWN_HEADER = 70, Pattern(r'^[ \t]*#[ \t]*include[ \t]*"', re.M)


class PassedZero(msgspec.Struct, frozen=True):
    """A parameter that was 0, for which the line passes `expression`.

    `made`: the expression that gave that its value, at `origin`; `rounds`: it is a division; `quotient`: `1 // 2`.
    """

    parameter: str
    expression: str
    made: str | None
    origin: LineWords | None
    rounds: bool
    quotient: str | None

    def words(self, line: str) -> str:
        """`` with `batch` = 0, which line 50 passes: `rows // 2` (line 13) is 1 // 2 ``."""
        same = self.expression == self.parameter
        given = f"which {line} passes" if same else f"for which {line} passes `{self.expression}`"
        if self.quotient is None:
            return f" with `{self.parameter}` = 0, {given}"
        made = f"`{self.made}` ({self.origin})" if self.origin is not None else "that"
        return f" with `{self.parameter}` = 0, {given}: {made} is {self.quotient}"

    @property
    def comes(self) -> str:
        """`` : it comes from line 13 (`rows // 2`), here 1 // 2, which rounds down: max(1, ...) keeps it ... ``."""
        from_line = f": it comes from {self.origin.quoted(self.made or '')}" if self.origin is not None else ""
        if not self.rounds:
            return from_line
        here = f", here {self.quotient}" if self.quotient is not None else ""
        keep = "max(1, ...) keeps it positive, or leave out the call where it is 0"
        return f"{from_line}{here}, which rounds down: {keep}"


class NativeDivisor(msgspec.Struct, frozen=True):
    """`text`: `rand() % end`, at `place`; `last`: what `end` is in the end. `sure`: by the line of the fault.

    `zero`: the argument that is the divisor; `array`: of which it is an element or, `differs`, the difference of two;
    `parts`: the arguments that it is made of, `` `bins` = 1 ``, and `names`, as the line writes them. `cut`: the
    division that made it 0; `groups`: which of them are empty; `handle`: an object of the library that has nothing;
    `none`: it counts what the function kept.
    """

    function: str
    place: str
    text: str
    divisor: str
    last: str
    sure: bool
    line: LineWords
    zero: PassedZero | None
    array: PassedArray | None
    differs: bool
    parts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    cut: CutQuotient | None = None
    groups: EmptyGroups | None = None
    handle: EmptyHandle | None = None
    none: CountedNone | None = None

    @property
    def words(self) -> str:
        """What the headline ends with."""
        what = f"`{self.text}`" if self.sure else f"by its source that is `{self.text}` ({self.place})"
        is_other = self.last != without_parentheses(self.divisor) and (
            self.zero is None or self.zero.parameter != self.divisor
        )
        step = f", where `{self.divisor}` is `{self.last}`" if is_other else ""
        return f"{what}{step}{self._why}"

    @property
    def _why(self) -> str:
        if self.array is not None:
            held = f"{self.array.words}, which {self.line} passes,"
            empty = self.groups.clause if self.groups is not None else ""
            return (
                f": two adjacent elements of {held} are equal{empty}"
                if self.differs
                else f": an element of {held} is 0"
            )
        if self.zero is not None:
            return self.zero.words(self.line)
        if self.handle is not None:
            return self.handle.words
        if self.cut is not None:
            return self.cut.words
        if self.none is not None:
            return self.none.words
        return f" with {list_words(self.parts)}, which {self.line} passes" if self.parts else ""

    @property
    def evidence(self) -> Evidence:
        """What the native source says."""
        how = "is the division" if self.sure else "has the only division whose divisor may have been 0"
        return Evidence("source-line", f"{self.place} {how}: `{self.text}`", text=self.text)

    @property
    def advice(self) -> str:
        """What keeps the divisor from being 0."""
        divides = f"{self.place} divides by it without a check"
        if self.array is not None:
            out, more = (f" of {self.groups.named}", self.groups.advice) if self.groups is not None else ("", "")
            return f"{self._search} Leave these out{out}, or let {self.function}() skip them: {divides}.{more}"
        if self.handle is not None:
            return f"{self.handle.advice}. {self.place} divides by `{self.last}` without a check."
        if self.cut is not None:
            return f"{self.cut.advice} Or let {self.function}() ask for 0 first: {divides}."
        if self.none is not None:
            return (
                f"Let {self.function}() skip the case in which {self.none.what}, or leave it out before {self.line}: "
                f"{self.place} divides by `{self.none.name}` without a check."
            )
        if self.zero is None:
            passed = f", where {self.line} passes {list_words(self.parts)}" if self.parts else ""
            return f"Keep `{self.last}` from being 0{passed}: {divides}."
        return f"Keep `{self.zero.expression}` from being 0, which {self.line} passes{self.zero.comes}. {divides}."

    @property
    def _search(self) -> str:
        """How to find the elements."""
        name, of_numpy = (self.array.name, self.array.base is None) if self.array is not None else ("", False)
        step = (f"np.diff({name})" if of_numpy else f"{name}.diff()") if self.differs else name
        which = "the groups of `{}` that are empty" if self.differs else "the elements of `{}` that are 0"
        return f"Look for {which.format(name)}, before {self.line} passes it: `({step} == 0).nonzero()`."


def native_divisor(view: ProcessView) -> NativeDivisor | None:
    """Of a division by 0 in the program's own code; None where more than one division may be it."""
    frames = _own(view)
    source = _source(view, frames) if frames else None
    if source is None:
        return None
    file, text, name, lines = source
    read = divisions(text, name)
    if read is None:
        return None
    chain = [_name(frame) for frame in reversed(frames)]
    sites = [item for item in read.found if _is_below(item, chain)]
    at_line = [item for item in sites if _is_at(item, lines)]
    if not at_line and (not read.complete or _OWN_HEADER.search(text)):
        return None  # functions that are not known may have been put into this one
    arrays = PassedArrays(view)
    fields = CFields(view, text, arrays)
    left = [(item, resolved(item.divisor, item.body)) for item in at_line or sites]
    left = [(item, terms) for item, terms in left if at_line or not _is_tested(terms)]
    numbers = partial(_passed_number, arrays=arrays, fields=fields)
    left = [(item, terms) for item, terms in left if not _is_known(item, terms, text, arrays, numbers)]
    meant = {(tuple(term.text for term in terms), terms[-1].body.function.name) for _, terms in left}
    found = _of(view, file, name, *left[0], arrays, numbers, sure=bool(at_line)) if len(meant) == 1 else None
    if found is not None and found.differs and found.array is not None:
        return msgspec.structs.replace(found, groups=empty_groups(view, left[0][1][-1], arrays))
    if found is None or found.zero is not None or found.array is not None:
        return found
    terms = left[0][1]
    cut = cut_quotient(view, terms, text, numbers, arrays, fields)
    if cut is not None and cut.passed is not None:
        return msgspec.structs.replace(found, cut=cut)
    handle = empty_handle(view, terms[-1], text, file, arrays)
    none = counted_none(terms[-1], file) if cut is None and handle is None and not found.parts else None
    return msgspec.structs.replace(found, cut=cut, handle=handle, none=none)


def _own(view: ProcessView) -> list[NativeFrame]:
    """The innermost frames, of one of the program's own libraries.

    Without names, as of a library that is gone: the outermost one is what the line calls.
    """
    stack = own_frames(view)
    image = stack[0].image if stack else None
    frames = [*takewhile(lambda frame: is_own_frame(frame) and frame.image == image, stack)]
    if frames and all(frame.function is None for frame in frames):
        behind = image_name(stack[len(frames)].image) if len(stack) > len(frames) else ""
        called = _called(view) if behind.startswith("libffi") else None
        return [msgspec.structs.replace(frames[-1], function=called)] if called is not None else []
    return [*takewhile(lambda frame: frame.function is not None, frames)]


def _called(view: ProcessView) -> str | None:
    """The only function on the line that a source of the program has."""
    spot = Slice(view.process.snapshot, program_frames(view)).spot(0)
    names = {called_name(item) for item in calls_on(spot.tree, spot.line)} if spot is not None else set()
    found = [name for name in names if name and own_definition(view, name) is not None]
    return found[0] if len(found) == 1 else None


def _name(frame: NativeFrame) -> str:
    plain = (frame.function or "").partition("(")[0].partition("<")[0].partition(".")[0]  # `fill._omp_fn.0`
    return plain.rpartition("::")[2]


def _source(view: ProcessView, frames: Sequence[NativeFrame]) -> tuple[str, str, str, list[int]] | None:
    """The file, its text, the outermost function, and the lines of the calls and the division, the outermost first."""
    name = _name(frames[-1])
    found = [own_sources(frame) for frame in reversed(frames)]
    files = {line.file for items in found for line, _ in items}
    if all(found) and len(files) == 1:
        lines = [line.line or 0 for items in found for line, _ in reversed(items)]
        first = found[0][0]
        return short_file(first[0].file or ""), "\n".join(first[1]), name, lines
    made = own_definition(view, name) if not files else None
    return (made.file, made.text, name, []) if made is not None else None


def _is_below(site: Division, names: Sequence[str]) -> bool:
    """Whether the functions on the stack lead to it, in that order."""
    between, body = [site.body.function.name], site.body.outer
    while body is not None:
        between.insert(0, body.function.name)
        body = body.outer
    rest = iter(between)
    return all(name in rest for name in names)


def _is_at(site: Division, lines: Sequence[int]) -> bool:
    spans = zip(site.spans, lines, strict=False)
    return len(site.spans) == len(lines) and all(low <= line <= high for (low, high), line in spans)


# ---- the divisor


def _is_tested(terms: Sequence[Term]) -> bool:
    """Whether the source asks for it before it divides, in the function that divides or in one that calls that."""
    return any(is_tested(term.text, term.body.text) for term in terms)


def _is_known(site: Division, terms: Sequence[Term], text: str, arrays: PassedArrays, numbers: Numbers) -> bool:
    """Whether it is known to be another number than 0."""
    value = number_of(site.divisor, site.body, text, numbers)
    if value is not None:
        return value != 0
    array, differs = _array(terms[-1], arrays)
    return array is not None and not differs and array.low is not None and array.low > 0


def _passed_number(term: Term, arrays: PassedArrays, fields: CFields) -> int | None:
    if term.member is not None:
        return fields.number(term)
    given = passed_for(term, arrays)
    return arrays.number(*given) if given is not None else None


def _array(term: Term, arrays: PassedArrays) -> tuple[PassedArray | None, bool]:
    """The array that the divisor was read from, and whether it is the difference of two neighbors."""
    read = elements(term)
    if read is None or read.parameter is None:
        return None, False
    found = arrays.passed(read.body.function.name, read.body.parameters, read.parameter)
    return (found if found is not None and found.is_integer else None), read.differs


def _of(
    view: ProcessView,
    file: str,
    function: str,
    site: Division,
    terms: Sequence[Term],
    arrays: PassedArrays,
    numbers: Numbers,
    *,
    sure: bool,
) -> NativeDivisor | None:
    spot = arrays.back.spot(0)
    if spot is None:
        return None
    array, differs = _array(terms[-1], arrays)
    zero = _zero(view, terms[-1], arrays)
    parts = [*_parts(terms[-1], arrays, numbers)] if zero is None else []
    named = [array.name] if array is not None else [zero.expression] if zero is not None else [one for _, one in parts]
    return NativeDivisor(
        function,
        f"{file}:{site.line}",
        shortened(site.text, _QUOTED),
        site.divisor,
        shortened(without_parentheses(terms[-1].text), _QUOTED),
        sure,
        place_of(view, spot.file, spot.line),
        zero,
        array,
        differs,
        tuple(words for words, _ in parts),
        tuple(named),
    )


def _parts(term: Term, arrays: PassedArrays, numbers: Numbers) -> Iterator[tuple[str, str]]:
    """The arguments that the divisor is made of, with their numbers, and as the line writes them."""
    for item in parameters_in(term):
        given, value = passed_for(item, arrays), numbers(item)
        if given is not None and item.parameter is not None:
            name = item.body.parameters[item.parameter]
            yield f"`{name}`{f' = {value}' if value is not None else ''}", ast.unparse(given[0])


def _zero(view: ProcessView, term: Term, arrays: PassedArrays) -> PassedZero | None:
    given = passed_for(term, arrays)
    if given is None or term.parameter is None or arrays.number(*given) not in (None, 0):
        return None
    node, spot = given
    made = arrays.back.made(node, spot, calls=False)
    whole = next((part for part, _ in made.through if isinstance(part, ast.Call)), None)  # int(...)
    value = whole if isinstance(whole, ast.expr) else made.node
    by_other = value is not node and isinstance(value, ast.expr)
    value, at = (value, made.spot) if isinstance(value, ast.expr) else (node, spot)
    return PassedZero(
        term.body.parameters[term.parameter],
        shortened(ast.unparse(node), _QUOTED),
        shortened(ast.unparse(value), _QUOTED) if by_other else None,
        place_of(view, at.file, made.line) if by_other else None,
        _cuts(value),
        _quotient(value, at, arrays),
    )


def _cuts(node: ast.expr) -> bool:
    """Whether it rounds a quotient or a product down: `rows // 2`, also with a factor, or `int(rows * ratio)`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _cuts(node.left) or _cuts(node.right)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.FloorDiv)
    inner = node.args[0] if isinstance(node, ast.Call) and called_name(node) == "int" and node.args else None
    return isinstance(inner, ast.BinOp) and isinstance(inner.op, (ast.Mult, ast.Div))


def _quotient(node: ast.expr, spot: Spot, arrays: PassedArrays) -> str | None:
    """`1 // 2`, of a division that gives 0."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.FloorDiv):
        return None
    above, below = arrays.number(node.left, spot), arrays.number(node.right, spot)
    return f"{above} // {below}" if above is not None and below and above // below == 0 else None
