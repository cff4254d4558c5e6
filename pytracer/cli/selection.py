"""The processes that `inspect --rank` and `--host` choose."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytracer._errors import UsageError
from pytracer._text import list_words, span_words

if TYPE_CHECKING:
    from pytracer.report.job import ProcessReport, Report

_MOST_DIGITS = 7


def parse_ranks(text: str) -> list[range]:
    """`3,5-7` as ranges.

    Raises:
        UsageError: it is no list of ranks.
    """
    found = []
    for part in text.split(","):
        match = re.fullmatch(rf"\s*(\d{{1,{_MOST_DIGITS}}})\s*(?:-\s*(\d{{1,{_MOST_DIGITS}}}))?\s*", part, re.ASCII)
        low = int(match[1]) if match else 0
        high = int(match[2] or low) if match else -1
        if high < low:
            raise UsageError(f"--rank: {text!r} is no list of ranks", "write it as 3 or 3,5-7")
        found.append(range(low, high + 1))
    return found


def chosen_processes(report: Report, ranks: str | None, hosts: Sequence[str]) -> list[int] | None:
    """Positions of the ranks, and of what works for them, on these hosts; None when nothing restricts them.

    Raises:
        UsageError: there are none.
    """
    if ranks is None and not hosts:
        return None
    wanted = parse_ranks(ranks) if ranks is not None else None
    everybody = report.processes or []
    known = {item.host for item in everybody if item.host}
    for host in hosts:
        if host not in known:
            names = list_words(sorted(known), 4) or "no host"
            raise UsageError(f"no process of this job ran on {host!r}", f"it ran on {names}")
    found = [
        position
        for position, item in enumerate(everybody)
        if _has_rank(item, wanted) and (not hosts or item.host in hosts)
    ]
    if not found:
        of_job = [item.rank for item in everybody if item.rank is not None]
        where = f" on {list_words(hosts)}" if hosts else ""
        raise UsageError(f"there is no rank {ranks}{where}", f"the job has {span_words(of_job)}")
    return found


def _has_rank(item: ProcessReport, wanted: Sequence[range] | None) -> bool:
    rank = item.rank if item.rank is not None else item.parent_rank
    return wanted is None or any(rank in part for part in wanted if rank is not None)
