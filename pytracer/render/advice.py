"""The advice for a scheduler in words."""

from __future__ import annotations

from pytracer._printable import printable
from pytracer._text import list_words
from pytracer.report.advice import Advice

_WHY = {
    "bug": "a restart runs the same code with the same set-up",
    "again": "attempts {attempts} failed in the same way, at the same line",
    "hardware": "the hardware of {nodes} failed; the program did nothing wrong",
    "suspected-hardware": "the address is one bit away from a good one; defective memory of {nodes} is possible",
    "outside": "the job was ended from outside; nothing shows an error of the program",
    "network": "a connection was lost, and no recorded process ended it",
    "undecided": "the cause may be gone at the next start, or not",
    "uncertain": "it would be a reason to stop, and is not certain",
    "no-cause": "no finding explains the end",
    "nothing-died": "nothing died that a restart could help",
}


def render_advice(advice: Advice) -> str:
    """Three lines or four: what to do, why, and the verdict that it rests on."""
    shown = printable(advice)
    nodes, attempts = list_words(shown.nodes or ["the node"]), list_words([str(n) for n in shown.attempts or ()])
    why = _WHY.get(shown.reason or "", shown.reason or "").format(nodes=nodes, attempts=attempts)
    lines = [f"{shown.advice} ({shown.confidence}): {why}"]
    if shown.nodes:
        lines.append(f"  avoid    {' '.join(shown.nodes)}")
    if shown.summary:
        lines.append(f"  verdict  {shown.summary} [{shown.verdict}, {shown.verdict_confidence}]")
    if shown.finding:
        lines.append(f"  finding  {shown.finding}" + (f", step {shown.step}" if shown.step is not None else ""))
    return "\n".join(lines) + "\n"
