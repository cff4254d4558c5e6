"""Should a scheduler start the job again? Judged from the report, here and nowhere else.

STOP costs a run that could have gone on, so it takes a finding that is certain, about a cause that the next start
brings back: code or a set-up that is wrong, or the same failure at the same line in another attempt. Whatever may be
gone the next time is UNKNOWN.
"""

from __future__ import annotations

from msgspec.structs import replace

from pytracer.analyze.evidence.cuda.xid import MEANINGS
from pytracer.report import job as r
from pytracer.report.advice import Advice
from pytracer.report.of_verdict import finding_of, subject_of

# By the id of the rule that the verdict repeats. A bug: memory errors, calls that ranks disagree on, a wrong set-up.
BUGS = frozenset(
    {
        *("use-after-free", "stale-grad", "storage-swapped", "collective-buffer-freed", "unmapped-storage"),
        "unmapped-memory",
        "unchecked-view",
        "sparse-indices",
        *("freed-meanwhile", "memory-not-inherited", "forked-kernel"),
        *("out-of-bounds", "wrong-index", "runaway-access", "guard-damage", "oversized-tensor"),
        *("null-dereference", "wild-pointer", "stack-overflow", "read-only-memory", "device-pointer-on-host"),
        "misaligned-access",
        "unfit-arguments",
        *("arithmetic", "forbidden-system-call", "cuda-graph-input-freed", "missing-stream-wait"),
        *("collective-mismatch", "group-mismatch", "conditional-collective", "point-to-point-unmatched"),
        "split-sizes",
        *("polled-work", "served-lock"),
        *("collective-wait", "sampler-before-process-group", "unused-parameters"),
    }
)
HARDWARE = frozenset({"memory-hardware-error"})
SUSPECTED = frozenset({"flipped-bit"})  # accompanies other findings
OUTSIDE = frozenset({"sigkill"})
NETWORK = frozenset({"connection-lost", "unrecorded-ranks"})
# It depends: on the input, on what else runs on the node, on who ended the process.
UNDECIDED = frozenset(
    {
        *("oom-kill", "cuda-error", "cuda-out-of-memory", "shm-exhausted", "file-system-full", "truncated-mapping"),
        *("python-exception", "abort", "trap", "illegal-instruction", "heap-corruption", "ended-itself"),
        *("worker-death", "other-death", "first-death", "dataloader-timeout", "standstill", "watchdog-abort"),
        "rendezvous-missing-rank",
        "rendezvous-mismatch",  # another job may have had the port
        *(
            "collective-missing-rank",
            "collective-late-rank",
            "uneven-inputs",
            "two-openmp-runtimes",
            "wrong-library-loaded",
        ),
    }
)
# Exceptions that the same code raises again, whatever its input is.
CODE_ERRORS = ("SyntaxError", "IndentationError", "NameError", "UnboundLocalError", "NotImplementedError")


def advise(report: r.Report) -> Advice:
    """What to do after the failure that the verdict is about."""
    verdict = report.verdict or r.Verdict()
    finding, died = finding_of(report), subject_of(report)
    answer = Advice(
        finding=finding.id if finding else None,
        verdict=verdict.class_,
        verdict_confidence=verdict.confidence,
        rank=verdict.rank,
        step=died.step if died else None,
        summary=verdict.summary,
        evidence=verdict.evidence,
        nodes=[],
        attempts=[] if verdict.attempt is None else [verdict.attempt],
    )
    if verdict.class_ in ("clean", "recovered"):
        return _as(answer, "UNKNOWN", "nothing-died")
    if finding is None:
        return _as(answer, "UNKNOWN", "no-cause")
    return _of_finding(answer, report, verdict, finding, died.host if died else None)


def _of_finding(answer: Advice, report: r.Report, verdict: r.Verdict, finding: r.Finding, host: str | None) -> Advice:
    certain = verdict.confidence == "certain"
    kinds = {MEANINGS[fact.xid].kind for fact in verdict.facts or () if fact.xid in MEANINGS}
    if host is not None and (finding.id in HARDWARE or "hardware" in kinds):
        return _as(answer, "RESTART_ELSEWHERE", "hardware", verdict.confidence, nodes=[host])
    if any(item.id in SUSPECTED for item in report.findings or ()):
        if host is None:
            return _as(answer, "UNKNOWN", "suspected-hardware")
        return _as(answer, "RESTART_ELSEWHERE", "suspected-hardware", "possible", nodes=[host])
    if verdict.class_ == "resource-limit":  # the next run has the same limit
        return _as(answer, "UNKNOWN", "undecided")
    if verdict.class_ == "external-kill" or finding.id in OUTSIDE:
        return _as(answer, "RESTART", "outside", "likely" if certain else "possible")
    if finding.id in NETWORK:
        return _as(answer, "RESTART", "network", "possible")
    again = [item.attempt for item in report.attempts or () if item.verdict and _same(item.verdict, verdict)]
    if certain and again:
        attempts = sorted({*(answer.attempts or []), *(number for number in again if number is not None)})
        return _as(answer, "STOP", "again", "certain", attempts=attempts)
    if not (finding.id in BUGS or _is_code_error(verdict) or (finding.id == "cuda-error" and kinds == {"program"})):
        return _as(answer, "UNKNOWN", "undecided")
    return _as(answer, "STOP", "bug", "likely") if certain else _as(answer, "UNKNOWN", "uncertain")


def _as(
    answer: Advice,
    advice: str,
    reason: str,
    confidence: str | None = "unknown",
    *,
    nodes: list[str] | None = None,
    attempts: list[int] | None = None,
) -> Advice:
    return replace(
        answer,
        advice=advice,
        reason=reason,
        confidence=confidence,
        nodes=nodes or [],
        attempts=answer.attempts if attempts is None else attempts,
    )


def _is_code_error(verdict: r.Verdict) -> bool:
    return verdict.class_ == "python-exception" and any(f.exception in CODE_ERRORS for f in verdict.facts or ())


def _same(one: r.Verdict, other: r.Verdict) -> bool:
    """Whether two attempts failed alike: one cause, certain in both, at one line of Python."""
    place = _place(one)
    return one.class_ == other.class_ and one.confidence == "certain" and place is not None and place == _place(other)


def _place(verdict: r.Verdict) -> tuple[str | None, int | None, str | None] | None:
    for fact in verdict.facts or ():
        if fact.python is not None and fact.python.line is not None:
            return fact.python.file, fact.python.line, fact.exception
    return None
