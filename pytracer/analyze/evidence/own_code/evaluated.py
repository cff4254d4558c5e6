"""The number of an expression of the program's own C, by the numbers that the line of Python passes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import partial

from pytracer.analyze.evidence.own_code.c_divisions import Body
from pytracer.analyze.evidence.own_code.c_fields import passed_for
from pytracer.analyze.evidence.own_code.c_text import arguments_at, closing
from pytracer.analyze.evidence.own_code.c_text import without_comments as plain
from pytracer.analyze.evidence.own_code.c_values import Term, number_of, parameters_in, resolved
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArrays
from pytracer.analyze.evidence.own_code.passed_through import Level


def body_of(way: Sequence[Level]) -> Body | None:
    """The innermost function, with what those that called it pass."""
    body: Body | None = None
    for at in reversed(range(len(way))):
        function, lines, _ = way[at]
        text = plain("\n".join(lines))
        end = closing(text, function.body)
        given = arguments_at(way[at + 1][1], way[at + 1][2], function.name) if at + 1 < len(way) else ()
        if end is None or given is None:
            return None
        body = Body(function, text[function.body + 1 : end], text, given, body)
    return body


def evaluated(text: str, body: Body, arrays: PassedArrays) -> int | None:
    """None where a part of it is not known."""
    return number_of(text, body, body.file, partial(_passed_number, arrays=arrays))


def given_for(text: str, body: Body, arrays: PassedArrays) -> Iterator[str]:
    """What the line passes for the parameters in an expression: `` `k` = 12 ``."""
    for term in parameters_in(resolved(text, body)[-1]):
        given = passed_for(term, arrays)
        value = arrays.number(*given) if given is not None else None
        if given is not None and value is not None:
            shown = ast.unparse(given[0])
            yield f"`{shown}`" if is_number(shown) else f"`{shown}` = {value}"


def is_number(text: str) -> bool:
    """Whether it is written as one."""
    return re.fullmatch(r"-?\d+", text) is not None


def _passed_number(term: Term, arrays: PassedArrays) -> int | None:
    given = passed_for(term, arrays) if term.member is None else None
    return arrays.number(*given) if given is not None else None
