"""What every rule is made of: `check` reads the facts and judges, `describe` puts a judgement into words.

The engine decides on judgements alone - what leads, what accompanies, which is the verdict - and asks for the words
afterwards. So no sentence can change a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from pytracer.analyze.behind import Behind
from pytracer.analyze.view import JobView, ProcessView, death_signature
from pytracer.report.job import Confidence, Evidence, Finding, PythonFrame, VerdictClass

F = TypeVar("F")


@dataclass(frozen=True)
class Judgement(Generic[F]):
    """What a rule concludes: the verdict class that it would give, and the processes that it is about.

    `found`: what the conclusion rests on, as `describe` needs it; None where the first process has it all.
    `accompanies`: a circumstance, not a cause. It is shown beside the verdict and explains no death by itself.
    `leads`: it lies behind the deaths in `explains`, each with the reason, which then are consequences; when these are
    all deaths, it comes before all findings about them. `undecided`: no process is named as the guilty one.
    """

    verdict_class: VerdictClass
    confidence: Confidence
    views: tuple[ProcessView, ...]
    found: F
    accompanies: bool = False
    leads: bool = False
    explains: tuple[tuple[ProcessView, str], ...] = ()
    undecided: bool = False


class NoFinding(msgspec.Struct, frozen=True):
    """Why a rule has no judgement."""

    result: Literal["not-found", "cannot-decide"]
    why: str


class Description(msgspec.Struct, frozen=True):
    """A judgement in words. None among evidence and missing is left out.

    `quotes_exception`: the summary has type and message of the exception that ended the process.
    `explained`: whether the advice says what is wrong by recorded facts; that of a known crash does not replace it.
    `names_cause`: the summary has what is wrong by recorded facts; that of a known crash is not added to it.
    `besides`: advice about a second trouble, which that of a known crash does not replace.
    `names_source`: the advice names the line that made what was passed, so that nothing is added about that.
    `has_place`: the summary says where the cause lies; the line at which the process died would only distract from it.
    `line`: the program's line at which it went wrong, where that is known and the process ended at another one.
    `behind`: what is wrong about the line, for the lines of code that are shown; None where that is not known.
    """

    summary: str
    evidence: Sequence[Evidence | None]
    advice: str
    missing: Sequence[str | None] = ()
    quotes_exception: bool = False
    has_place: bool = False
    line: PythonFrame | None = None
    behind: Behind | None = None
    explained: bool = False
    names_cause: bool = False
    names_source: bool = False
    besides: str = ""


class Rule(Protocol[F]):
    """One rule. `id` is permanent; `needs` names the facts without which it cannot decide."""

    @property
    def id(self) -> str:
        """Permanent, kebab-case."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Kinds of facts."""

    def check(self, job: JobView) -> tuple[Judgement[F], ...] | NoFinding:
        """Judgements, at least one, or why there are none."""

    def describe(self, job: JobView, judgement: Judgement[F]) -> Description:
        """One of its judgements in words."""


# Of any kind of facts: a list of rules, and what the engine does with all of them.
AnyJudgement: TypeAlias = Judgement[Any]
AnyRule: TypeAlias = Rule[Any]


def not_found(why: str) -> NoFinding:
    """The rule looked, and its cause is not there."""
    return NoFinding("not-found", why)


def cannot_decide(why: str) -> NoFinding:
    """The rule lacks something it needs."""
    return NoFinding("cannot-decide", why)


def merge_alike(
    judgements: Iterable[Judgement[F] | None], key: Callable[[Judgement[F]], object] | None = None
) -> tuple[Judgement[F], ...]:
    """Of judgements about one process each, one for all with the same key: the first represents the others.

    Without a key those are alike that died the same way.
    """
    groups: dict[object, list[Judgement[F]]] = {}
    for item in judgements:
        if item is not None:
            groups.setdefault(key(item) if key is not None else death_signature(item.views[0]), []).append(item)
    return tuple(replace(items[0], views=tuple(item.views[0] for item in items)) for items in groups.values())


def finding(rule: str, judgement: Judgement[F], words: Description) -> Finding:
    """A judgement and its words, as the report has them."""
    evidence = [item for item in words.evidence if item is not None]
    return Finding(
        id=rule,
        confidence=judgement.confidence,
        ranks=sorted({rank for view in judgement.views if (rank := _rank_or_parents(view)) is not None}),
        summary=words.summary,
        evidence=[item.sentence for item in evidence],
        facts=[item.fact for item in evidence],
        quotes_exception=words.quotes_exception or None,
        missing=[item for item in words.missing if item],
        advice=f"{words.advice} {words.besides}".rstrip(),
    )


def _rank_or_parents(view: ProcessView) -> int | None:
    """The rank of a process; of a DataLoader worker that of the rank it loads for."""
    process = view.process
    return process.parent_rank if process.role == "dataloader-worker" else process.rank
