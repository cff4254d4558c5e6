"""What the rules about circumstances share: findings that accompany a verdict and never are one."""

from __future__ import annotations

from dataclasses import replace

from pytracer.analyze.view import Draft, JobView, Outcome, ProcessView, group_alike, not_found


class CircumstanceRule:
    """One finding per group of processes that died alike in the same circumstance."""

    id: str
    needs: tuple[str, ...]
    absent: str

    def examine(self, job: JobView) -> Outcome:
        """Findings that accompany, or why there are none."""
        crashed = [view for view in job.suspects if view.crash is not None and not view.raised]
        if not crashed:
            return not_found("nothing crashed")
        drafts = [self.consider(views) for views in group_alike(crashed)]
        found = tuple(replace(item, accompanies=True) for item in drafts if item is not None)
        return Outcome(found) if found else not_found(self.absent)

    def consider(self, views: list[ProcessView]) -> Draft | None:
        """The finding about processes that died alike, or None."""
        raise NotImplementedError
