"""Which values lead C to an empty group: `ptr[v + 1] - ptr[v]` is 0 for a `v` read out of arrays that were passed.

And, where the source of these shows it, an attribute that they come from and that a method left as it was.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import list_words
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.c_fields import passed_for
from pytracer.analyze.evidence.own_code.c_values import Term, index_arrays
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArrays
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.slicing.stale_attributes import StaleAttribute, stale_attribute
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView


class EmptyGroups(msgspec.Struct, frozen=True):
    """`indices`: the arrays as the line writes them, the first one first read. `lines`: of `stale`, as it has them."""

    indices: tuple[str, ...]
    stale: StaleAttribute | None = None
    lines: tuple[LineWords, ...] = ()

    @property
    def clause(self) -> str:
        """``, so that the group of an element of `start` or `self.col` is empty``."""
        return f", so that the group of an element of {' or '.join(f'`{name}`' for name in self.indices)} is empty"

    @property
    def named(self) -> str:
        """`` `start` and `self.col` ``."""
        return list_words([f"`{name}`" for name in self.indices])

    @property
    def advice(self) -> str:
        """What may have been left as it was."""
        if self.stale is None:
            return ""
        made, changed, called = self.lines
        sources = list_words([f"`{name}`" for name in self.stale.sources])
        them = "that" if len(self.stale.sources) == 1 else "those"
        return (
            f" `{self.indices[0]}` comes from `{self.stale.attribute}` of {self.stale.owner}, which {made} makes of "
            f"{sources}; {self.stale.method}() ({changed}), which {called} calls, replaces {them} and leaves "
            f"`{self.stale.attribute}` as it was: see whether it is to be made anew there."
        )

    @property
    def places(self) -> tuple[Place, ...]:
        """The lines that the advice names."""
        return tuple((item.file, item.line) for item in self.lines if item.line is not None)


def empty_groups(view: ProcessView, term: Term, arrays: PassedArrays) -> EmptyGroups | None:
    """Of a difference of two elements; None where what the index is, is not known."""
    given = [_argument(item, arrays) for item in index_arrays(term)]
    known = [item for item in given if item is not None]
    if not known or len(known) < len(given):
        return None
    names = tuple(dict.fromkeys(ast.unparse(node) for node, _ in known))
    files = program_files(view.process.snapshot, program_frames(view))
    stale = stale_attribute(files, *known[0])
    if stale is None:
        return EmptyGroups(names)
    places = ((stale.file, stale.line), (stale.file, stale.set_line), stale.call)
    return EmptyGroups(names, stale, tuple(place_of(view, file, line) for file, line in places))


def _argument(term: Term, arrays: PassedArrays) -> tuple[ast.expr, Spot] | None:
    """The variable that a line passes: `x` of `x.data_ptr()`."""
    function = term.body.function
    place = term.parameter
    given = passed_for(term, arrays)
    found = arrays.passed(function.name, term.body.parameters, place) if place is not None else None
    return (found.node, found.spot) if found is not None else given
