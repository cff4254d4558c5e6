"""sampler-before-process-group: data was split among ranks before it was known which ranks there are.

What: DistributedSampler was made before init_process_group(), and raised. Or a DataLoader was made then with a sampler
that does not know ranks, and none with a DistributedSampler ever: all ranks train on the same samples, silently.

Why it happens: the data is set up first. Code that asks is_initialized() then skips the DistributedSampler silently.

What to do: call init_process_group() before the samplers and DataLoaders are made.

How it can be wrong: each rank may have a dataset of its own, such as one file each; then no sampler is right.
Samplers and batch samplers of the program's own, and iterable datasets, are not judged.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import capital
from pytracer.analyze.collectives.description import span_words
from pytracer.analyze.rules.account import account
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, cannot_decide, not_found
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.journal import Loader
from pytracer.report.job import Evidence

_RAISED = ("Default process group has not been initialized", "Requires distributed package to be available")
_FILE = "data/distributed.py"
_ADVICE = "Call init_process_group() before the sampler, and give every DataLoader a DistributedSampler."


class SamplerBeforeProcessGroup:
    """Fires for both forms."""

    id = "sampler-before-process-group"
    needs = ("EXCEPTION", "LOADER", "RANK")

    def check(self, job: JobView) -> tuple[Judgement[Loader | None], ...] | NoFinding:
        """At most one judgement; found is the first of the DataLoaders that all ranks made."""
        raised = [view for view in job.views if view.raised and _by_sampler(view)]
        if raised:
            return (_too_early(job, raised),)
        ranks = [view for view in job.views if view.process.role == "rank" and (view.process.world_size or 1) > 1]
        if len(ranks) < 2:
            return not_found("no job of several ranks")
        loaders = {view.index: _loaders(view) for view in ranks}
        if not all(loaders.values()):
            if any(loaders.values()):
                return not_found("only some ranks made a DataLoader")
            if all(view.process.snapshot.versions.torch for view in ranks):
                return not_found("no rank made a DataLoader of torch's")
            return cannot_decide("whether DataLoaders were made was not recorded")
        if any(item.distributed for items in loaders.values() for item in items):
            return not_found("a DataLoader with a DistributedSampler was made")
        early = [view for view in ranks if any(_is_suspect(item) for item in loaders[view.index])]
        if len(early) < len(ranks):
            return not_found("the DataLoaders were made after init_process_group(), or split the data in their own way")
        first = next(item for item in loaders[ranks[0].index] if _is_suspect(item))
        return (Judgement("misuse", "likely", tuple(ranks), first, accompanies=bool(job.deaths), undecided=True),)

    def describe(self, job: JobView, judgement: Judgement[Loader | None]) -> Description:
        """See Rule."""
        ranks, loader = _ranks(judgement.views), judgement.found
        if loader is None:
            who = capital(span_words(ranks)) if ranks else f"{len(judgement.views)} processes"
            return Description(
                f"{who} made a DistributedSampler before the process group: it asks how many ranks there are, and "
                "raised.",
                [],
                _ADVICE,
            )
        return Description(
            f"{capital(span_words(ranks))} made their DataLoaders before init_process_group() and without a "
            "DistributedSampler: all of them train on the same samples.",
            [
                Evidence(
                    "data-loader",
                    f"a DataLoader of {loader.dataset} with {loader.samples} samples has a {loader.sampler}",
                    name=loader.sampler,
                    count=loader.samples,
                ),
                Evidence("data-loader", "no DataLoader of any rank has a DistributedSampler", ranks=ranks),
            ],
            _ADVICE,
            ["whether each rank has a dataset of its own"],
        )


def _loaders(view: ProcessView) -> list[Loader]:
    return [fact.data for fact in view.process.snapshot.recorded(Loader)]


def _is_suspect(item: Loader) -> bool:
    return bool(item.plain) and not item.initialized and not item.iterable


def _by_sampler(view: ProcessView) -> bool:
    message = (view.exception.message if view.exception else None) or ""
    stack = view.exception_stack
    return message.startswith(_RAISED) and any((frame.file or "").endswith(_FILE) for frame in stack)


def _too_early(job: JobView, views: Sequence[ProcessView]) -> Judgement[Loader | None]:
    judgement: Judgement[Loader | None] = Judgement("misuse", "certain", tuple(views), None, undecided=len(views) > 1)
    why = "made a DistributedSampler before the process group"
    return account(job, judgement, why, dict.fromkeys(_ranks(views), why), ends=True)


def _ranks(views: Sequence[ProcessView]) -> list[int]:
    return [view.process.rank for view in views if view.process.rank is not None]
