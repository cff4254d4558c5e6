"""What the rules about circumstances share: findings that accompany a verdict and never are one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Generic

from pytracer.analyze.rules.base import Description, F, Judgement, NoFinding, not_found
from pytracer.analyze.view import JobView, ProcessView, group_alike


class CircumstanceRule(ABC, Generic[F]):
    """One finding per group of processes that died alike in the same circumstance."""

    id: str
    needs: tuple[str, ...]
    absent: str

    def check(self, job: JobView) -> tuple[Judgement[F], ...] | NoFinding:
        """See Rule."""
        crashed = [view for view in job.suspects if view.crash is not None and not view.raised]
        if not crashed:
            return not_found("nothing crashed")
        found = [
            replace(item, views=tuple(views), accompanies=True)
            for views in group_alike(crashed)
            if (item := self.judge(views[0])) is not None
        ]
        return tuple(found) or not_found(self.absent)

    @abstractmethod
    def judge(self, view: ProcessView) -> Judgement[F] | None:
        """The judgement about one process, which represents all that died alike; None without the circumstance."""

    @abstractmethod
    def describe(self, job: JobView, judgement: Judgement[F]) -> Description:
        """See Rule."""
