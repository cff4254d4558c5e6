"""sigkill: SIGKILL that no rule before explained, by elimination.

What: a process was ended by SIGKILL. Every possible sender is named with what was found, not found, or could not be
read about it: the kernel's OOM killer (log, memory cgroups, machine), torchrun's agent, a scheduler, programs that
kill when memory gets short.

Why it happens: `kill -9`, a container runtime or scheduler at a time limit, a launcher whose patience ended, memory.

What to do: ask whoever is named as found; the commands are given. To see the sender the next time, let the kernel
log it: `perf trace -e signal:signal_generate`, or an audit rule for kill().

How it can be wrong: SIGKILL leaves no trace in the process and carries no sender. Where the OOM killer is refuted by
its own counters, somebody else sent it: that is certain, who is not.
"""

from __future__ import annotations

from pytracer.analyze.evidence.oom import killed_by_sigkill, oom_trace
from pytracer.analyze.evidence.phrases import collective_evidence, python_evidence
from pytracer.analyze.evidence.sigkill import elimination
from pytracer.analyze.view import Draft, JobView, Outcome, ProcessView, draft, not_found

_ASK = (
    "Ask whoever is named as found below; then look for kill -9, a time limit, or a container that was stopped. "
    "`perf trace -e signal:signal_generate` shows the sender the next time."
)
_CHECK = "Check the OOM killer (dmesg, memory.events of the cgroup), then the scheduler and anybody with kill -9."


class Sigkill:
    """Fires for each killed process that is not explained yet."""

    id = "sigkill"
    needs = ("status",)

    def examine(self, job: JobView) -> Outcome:
        """One finding per process."""
        views = [view for view in job.suspects if killed_by_sigkill(view) and view.index not in job.explained]
        if not views:
            return not_found("no process was ended by a SIGKILL that is not explained")
        return Outcome(tuple(self._draft(job, view) for view in views))

    def _draft(self, job: JobView, view: ProcessView) -> Draft:
        trace = oom_trace(job, view)
        evidence = [*map(str, elimination(job, view, trace)), python_evidence(view), collective_evidence([view])]
        sender = "who sent SIGKILL: it leaves no trace in the process and carries no sender"
        if trace is not None and trace.excluded:
            summary = f"{view.subject} was ended by SIGKILL, and not by the kernel's OOM killer."
            return draft(self.id, "external-kill", "likely", [view], summary, evidence, _ASK, [sender])
        summary = f"{view.subject} was ended by SIGKILL."
        unread = "proof for or against the OOM killer: see what was not readable"
        return draft(self.id, "unknown", "unknown", [view], summary, evidence, _CHECK, [sender, unread])
