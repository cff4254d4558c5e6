"""What a report's verdict is about: the process and the finding; and whose lines count as the program's."""

from __future__ import annotations

from pytracer.report import job as r


def subject_of(report: r.Report) -> r.ProcessReport | None:
    """The process that the verdict names; of several hosts' with one pid, the one with the verdict's rank."""
    verdict = report.verdict or r.Verdict()
    same = [item for item in report.processes or () if item.pid == verdict.pid and item.pid is not None]
    return next((item for item in same if item.rank == verdict.rank), next(iter(same), None))


def program_packages_of(report: r.Report) -> list[str]:
    """Installed packages whose files count as the program's own."""
    return (report.run.program_packages if report.run is not None else None) or []


def finding_of(report: r.Report) -> r.Finding | None:
    """The finding that the verdict repeats. Reports without that key have it first, if their verdict has a cause."""
    verdict, findings = report.verdict or r.Verdict(), report.findings or []
    position = verdict.finding
    if position is None and (verdict.evidence or verdict.class_ not in (None, "clean", "unknown")):
        position = 0
    return findings[position] if position is not None and 0 <= position < len(findings) else None
