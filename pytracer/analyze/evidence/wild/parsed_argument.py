"""A pointer beside a variable into which PyArg_ParseTuple() stored more than it has room for, by the C source."""

from __future__ import annotations

from dataclasses import dataclass

from pytracer.analyze.evidence.own_code.parsed_arguments import parsed_argument
from pytracer.analyze.evidence.wild.by_source import BySource
from pytracer.analyze.view import ProcessView


@dataclass(frozen=True)
class OverwrittenByParse(BySource):
    """The pointer itself is not known: only that the failing line uses one which lies in the same frame."""

    verdict_class = "wild-pointer"


def overwritten_by_parse(view: ProcessView) -> OverwrittenByParse | None:
    """None where each variable has room for what is stored into it."""
    found = parsed_argument(view)
    return OverwrittenByParse(found, sure=False) if found is not None else None
