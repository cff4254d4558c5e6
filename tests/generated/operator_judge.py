"""Compares a report about an operator's call with the argument that was changed.

The names of variables are looked for in the printed headline and next step: nothing else of a sentence is read.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytracer.report.of_verdict import subject_of
from tests.generated.operator_calls import OperatorProgram, named
from tests.generated.runner import Died


@dataclass(frozen=True)
class CallJudged:
    """What a report said about a call.

    `class_is`: "right", "wrong", "unknown", or "nothing" where the program did not die or left no recording.
    `names`: "culprit" for the changed argument, "other" for other arguments only, "none". `where`: "headline" or
    "next", where the culprit is named. `made`: the line that makes the wrong value is named.
    """

    item: OperatorProgram
    class_: str
    confidence: str
    class_is: str
    names: str = "none"
    where: str = ""
    made: bool = False
    line: bool | None = None
    summary: str = ""
    advice: str = ""

    @property
    def good(self) -> bool:
        """Right, and the culprit is named; of two arguments that do not fit either of them."""
        return self.class_is == "right" and (
            self.names == "culprit" or (self.names == "other" and self.item.culprit.size_kind)
        )

    @property
    def worst(self) -> bool:
        """Certain, and another class, or another argument alone, which is not one of two that do not fit."""
        wrong = self.class_is == "wrong" or self.line is False
        other = (
            self.names == "other"
            and not self.item.culprit.size_kind
            and not self.item.call.kind.removeprefix("sparse-").startswith("index")
        )
        return self.confidence == "certain" and (wrong or other)


def judge_call(item: OperatorProgram, died: Died) -> CallJudged:
    """What the report says."""
    report = died.report
    if report is None or report.verdict is None or died.status is None or died.status >= 0:
        return CallJudged(item, "", "", "nothing", summary=str(died.status))
    verdict = report.verdict
    said, summary, advice = verdict.class_ or "", verdict.summary or "", verdict.advice or ""
    truth = item.program.truth
    class_is = "right" if said in truth.right else "unknown" if said == "unknown" else "wrong"
    culprit = item.culprit
    where = "headline" if named(summary, culprit.name) else "next" if named(advice, culprit.name) else ""
    others = any(named(f"{summary}\n{advice}", name) for name in culprit.others)
    process = subject_of(report)
    stack = (process.python_stack if process else None) or []
    own = [frame for frame in stack if (frame.file or "").endswith(f"/generated_{item.program.seed}.py")]
    line = own[0].line == truth.line if own and own[0].line is not None else None
    if item.call.signal == "SIGABRT" or said == "heap-corruption":
        line = None  # it is found where memory is next given back
    return CallJudged(
        item, said, verdict.confidence or "", class_is, "culprit" if where else "other" if others else "none", where,
        f"line {culprit.line}" in f"{summary}\n{advice}", line, summary, advice,
    )  # fmt: skip
