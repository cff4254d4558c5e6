"""The use of torch's Flight Recorder dumps, in a few lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytracer._printable import one_line
from pytracer._text import count_words
from pytracer.report import job as r


def flight_lines(dumps: Sequence[r.FlightRecorderDump]) -> Iterator[str]:
    """One line for those that were used, one for each reason why others were not."""
    used = [dump for dump in dumps if dump.pid is not None]
    if used:
        known, added = sum(dump.known or 0 for dump in used), sum(dump.added or 0 for dump in used)
        yield (
            f"{count_words(len(used), 'Flight Recorder dump')}: {count_words(known + added, 'operation')}, "
            f"{added} of them not in the black boxes"
        )
    reasons: dict[str, list[str]] = {}
    for dump in dumps:
        if dump.pid is None:
            name = (dump.file or "").rsplit("/", 1)[-1]
            reasons.setdefault(one_line((dump.notes or ["no reason was recorded"])[0]), []).append(name)
    for why, names in reasons.items():
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        yield f"not used: {shown}: {why}"
