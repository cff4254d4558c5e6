"""A divisor of C that is 0 since a division made it so: `fit = r->batch / CHOICES`, of 2 / 4.

Both numbers are known: from the source, from what Python passed, or from the memory of a structure. A field of one that
is 0 itself is a quotient by 1.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.c_divisions import Body
from pytracer.analyze.evidence.own_code.c_fields import CFields, FieldSource, passed_for
from pytracer.analyze.evidence.own_code.c_text import without_parentheses
from pytracer.analyze.evidence.own_code.c_values import (
    Numbers,
    Term,
    member_of,
    number_of,
    quotient_of,
    resolved,
)
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArrays
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_QUOTED = 60


class CutQuotient(msgspec.Struct, frozen=True):
    """`above` is `numbers[0]`, and `below` `numbers[1]`. `passed`: what `line` passes to `function` for `above`.

    `whole`: that is 0 itself. `names`: as the line that called native code writes what `above` is of.
    """

    above: str
    below: str
    numbers: tuple[int, int]
    passed: str | None = None
    line: LineWords | None = None
    function: str = ""
    names: tuple[str, ...] = ()
    whole: bool = False

    @property
    def words(self) -> str:
        """``, which is 2 / 4: for `r->batch` line 71 passes `batch` to reader_open()``."""
        cut = f" with `{self.above}` = 0" if self.whole else f", which is {self.numbers[0]} / {self.numbers[1]}"
        return f"{cut}: {self._passes}" if self.passed is not None else cut

    @property
    def _passes(self) -> str:
        return f"for `{self.above}` {self.line} passes `{self.passed}` to {self.function}()"

    @property
    def advice(self) -> str:
        """What keeps it from being 0."""
        number = str(self.numbers[1])
        below = number if self.below == number else f"{number} (`{self.below}`)"
        least = f"Let `{self.above}`, here {self.numbers[0]}, be at least {below}"
        return f"{least}: {self._passes}." if self.passed is not None else f"{least}."


def cut_quotient(
    view: ProcessView, terms: Sequence[Term], text: str, numbers: Numbers, arrays: PassedArrays, fields: CFields
) -> CutQuotient | None:
    """Of what a divisor is in the end; None where a number is not known, or the quotient is no 0."""
    body, last = terms[-1].body, without_parentheses(terms[-1].text)
    whole = member_of(last, body) is not None
    parts = (last, "1") if whole else quotient_of(terms[-1])
    if parts is None:
        return None
    above, below = (number_of(item, body, text, numbers) for item in parts)
    if above is None or below is None or not 0 <= above < below:
        return None
    found = CutQuotient(shortened(parts[0], _QUOTED), shortened(parts[1], _QUOTED), (above, below), whole=whole)
    member = member_of(parts[0], body)
    given = _argument(member.text.partition("->")[0], body, arrays) if member is not None else None
    names = (given.expression,) if given is not None else ()
    found = msgspec.structs.replace(found, names=names)
    source = fields.source(member) if member is not None else _argument(parts[0], body, arrays)
    if source is None or arrays.number(source.node, source.spot) not in (None, above):
        return found
    line = place_of(view, source.spot.file, source.line)
    return msgspec.structs.replace(
        found, passed=shortened(source.expression, _QUOTED), line=line, function=source.function
    )


def _argument(text: str, body: Body, arrays: PassedArrays) -> FieldSource | None:
    """Of a parameter of the function that Python called."""
    end = resolved(text, body)[-1]
    given = passed_for(end, arrays)
    if given is None:
        return None
    return FieldSource(end.body.function.name, ast.unparse(given[0]), *given, given[1].line)
