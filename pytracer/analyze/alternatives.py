"""The other explanations of a verdict, the most plausible first, each with the fact that refutes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from pytracer.analyze.evidence.popular_suspects import popular_suspects
from pytracer.analyze.rules import RULES
from pytracer.analyze.rules.base import Judgement, Rule
from pytracer.analyze.view import JobView
from pytracer.report import job as r

_ORDER = ("first-death", "other-death")  # they judge deaths, and explain none
# What deaths of each kind come from most often; the rest follows in the order of the rules.
_FREQUENT = (
    *("use-after-free", "wrong-index", "out-of-bounds", "null-dereference", "wild-pointer", "heap-corruption"),
    *("runaway-access", "stack-overflow", "stale-grad", "storage-swapped", "oom-kill", "sigkill", "abort"),
    *("collective-mismatch", "uneven-inputs", "conditional-collective", "unused-parameters", "collective-missing-rank"),
)


def alternatives(
    job: JobView,
    best: tuple[Rule[Any], Judgement[Any]],
    findings: Sequence[r.Finding],
    checked: Sequence[r.Checked],
) -> list[r.Alternative]:
    """What else the verdict could have been, in the order in which a reader asks.

    Other findings first, then the rules of the verdict's own domain that found nothing, then what forums advise, then
    the rules that could not decide, and at last those of other domains.

    Args:
        job: with its deaths judged.
        best: the rule and the judgement of the verdict.
        findings: all, strongest first.
        checked: the rules that found nothing.
    """
    own = _domain(best[0])
    domains = {rule.id: _domain(rule) for rule in RULES}
    titles = {rule.id: _title(rule) for rule in RULES}
    refused = [item for item in checked if item.id is not None and item.id not in _ORDER]
    near = sorted((item for item in refused if domains.get(item.id or "") == own), key=_rarity)
    far = [item for item in refused if item not in near]
    fired = [item.id for item in findings if item.id]
    found = list(_also_found(best[0].id, findings, titles))
    found += [_refused(item, titles, near=True) for item in near]
    for suspect in popular_suspects(job, best[1].views[0], best[1].verdict_class, fired, checked):
        found.append(
            r.Alternative(id=suspect.id, says=suspect.says, result=suspect.result, why=suspect.why, close=True)
        )
    found += [_refused(item, titles, near=True) for item in far if item.result == "cannot-decide"]
    found += [_refused(item, titles, near=False) for item in far if item.result != "cannot-decide"]
    return found


def _also_found(best: str, findings: Sequence[r.Finding], titles: dict[str, str]) -> Iterator[r.Alternative]:
    for item in findings:
        if item.id is not None and item.id != best and item.id not in _ORDER:
            why = f"{item.confidence}: {item.summary}"
            yield r.Alternative(id=item.id, says=titles.get(item.id), result="also-found", why=why, close=True)


def _refused(item: r.Checked, titles: dict[str, str], *, near: bool) -> r.Alternative:
    result = "refuted" if item.result == "not-found" else item.result
    return r.Alternative(id=item.id, says=titles.get(item.id or ""), result=result, why=item.why, close=near)


def _rarity(item: r.Checked) -> int:
    return _FREQUENT.index(item.id) if item.id in _FREQUENT else len(_FREQUENT)


def _domain(rule: Rule[Any]) -> str:
    """The folder of a rule: memory, signals, collectives, cuda, lifecycle or environment."""
    return type(rule).__module__.split(".")[-2]


def _title(rule: Rule[Any]) -> str:
    """The first line of the page about the rule: `memory that had been freed`."""
    page = sys.modules[type(rule).__module__].__doc__ or ""
    return page.strip().split("\n", 1)[0].partition(": ")[2].rstrip(".")
