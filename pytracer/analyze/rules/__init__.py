"""The rules, by explicit list. `first-death` judges order; `other-death` takes what no other rule explains, so it is
last.
"""

from __future__ import annotations

from typing import Protocol

from pytracer.analyze.rules.abort import Abort
from pytracer.analyze.rules.first_death import FirstDeath
from pytracer.analyze.rules.null_dereference import NullDereference
from pytracer.analyze.rules.other_death import OtherDeath
from pytracer.analyze.rules.out_of_bounds import OutOfBounds
from pytracer.analyze.rules.python_exception import PythonException
from pytracer.analyze.rules.use_after_free import UseAfterFree
from pytracer.analyze.rules.wild_pointer import WildPointer
from pytracer.analyze.view import JobView, Outcome


class Rule(Protocol):
    """One rule. `id` is permanent; `needs` names the facts without which it cannot decide."""

    @property
    def id(self) -> str:
        """Permanent, kebab-case."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Kinds of facts."""

    def examine(self, job: JobView) -> Outcome:
        """Findings, or why there are none."""


RULES: tuple[Rule, ...] = (
    UseAfterFree(),
    OutOfBounds(),
    NullDereference(),
    WildPointer(),
    Abort(),
    PythonException(),
    FirstDeath(),
    OtherDeath(),
)
