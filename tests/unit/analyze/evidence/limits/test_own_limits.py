"""resource-limit: processes that the kernel ended at a limit of their own, and the line that sets it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.analyze.platform.signals import SI_KERNEL
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.scenarios import program_in
from tests.support.standing import EXIT
from tests.support.synth import MS, Box

XCPU, SI_QUEUE = 24, -1
DIRECT = "resource.setrlimit(resource.RLIMIT_CPU, (10, 10))\nstep()\n"
KINDS = "KINDS = {'core': resource.RLIMIT_CORE, 'cpu': resource.RLIMIT_CPU}\n"


def ended(
    run: Path,
    source: str = "step()\n",
    line: int = 1,
    *,
    code: int = SI_KERNEL,
    sender: int = 0,
    seen: Mapping[str, object] | None = None,
) -> Report:
    """A process that SIGXCPU ended at a line of its program; `seen`: what the launcher saw of it beside its limit."""
    program = program_in(run, source)
    box = Box(pid=101, ppid=99, argv=["python", str(program)]).versions(torch="2.13.0").at(500)
    box.signal_seen(XCPU, sender, ["scheduler"] if sender else (), code=code)
    box.crash(0, code=0, state=EXIT, python=[("step", str(program), line)], native=[(s.LIBC, 0x10)])
    item = {"pid": 101, "start_ticks": box.start_ticks, "first_mono_ns": 1, "cgroup": "/job", "cpu_seconds": 9.0}
    item |= {"alive_mono_ns": box.created_ns + 400 * MS, "gone_mono_ns": box.created_ns + 600 * MS}
    item |= {"limits": {"cpu seconds": [10, None]}, "signal": XCPU, **(seen or {})}
    counters = {"mono_ns": 1, "cgroups": [], "vmstat_oom_kill": 5}
    witness = {"before": counters, "after": counters, "ended": True, "processes": [item], "first_pid_namespace": True}
    root = Box(pid=99, ppid=98, argv=["sh"]).at(900).wait(101, signal=XCPU).exit(152)
    return build_report(s.load(run, root, box, launcher={"witness": witness}))


def test_process_whose_cpu_time_was_used_up_was_ended_by_nobody(run: Path) -> None:
    """The headline has the line where it was, the limit and the line that sets that; `next` what does not help."""
    report = ended(run, DIRECT, 2)
    assert verdict(report) == ("resource-limit", "certain")
    assert "SIGXCPU at program.py:2 in step, because it had used up its CPU time (RLIMIT_CPU, 10 s, line 1)" in summary(
        report
    )
    assert advice(report).startswith("Raise that limit at line 1 (`resource.setrlimit(resource.RLIMIT_CPU, (10, 10))`)")
    assert "all threads" in advice(report) and "wall time does not help" in advice(report)
    assert "--propagate" not in advice(report)


def test_limit_that_no_line_of_the_program_sets_came_with_the_job(run: Path) -> None:
    """A shell's, or a batch system's."""
    report = ended(run)
    assert "(RLIMIT_CPU, 10 s)." in summary(report)
    assert "where the job is started (`ulimit -t` in its shell" in advice(report)


@pytest.mark.parametrize(("code", "sender", "sure"), [(0, 77, "certain"), (SI_QUEUE, 0, "likely"), (0, 0, "certain")])
def test_signal_that_a_process_sent_is_no_limit(code: int, sender: int, sure: str, run: Path) -> None:
    """The look-alike: a scheduler warns by SIGXCPU. It may be one outside of this container."""
    report = ended(run, code=code, sender=sender)
    assert verdict(report) == ("external-kill", sure)
    assert "RLIMIT_CPU" not in summary(report) and "CPU time" not in summary(report)


LOOP = "for name, value in LIMITS.items():\n    resource.setrlimit({}, {})\nstep()\n"
SURE = {
    "dict of names": "LIMITS = {'core': 0, 'cpu': 10}\n"
    + LOOP.format("getattr(resource, f'RLIMIT_{name.upper()}')", "(value, value)"),
    "whole names": "LIMITS = {'RLIMIT_CPU': 10}\n" + LOOP.format("getattr(resource, name)", "(int(value), hard)"),
    "added names": "LIMITS = dict(cpu=10)\n"
    + LOOP.format("getattr(resource, 'RLIMIT_' + name.upper())", "(value, 60)"),
    "dict of limits": "LIMITS = {resource.RLIMIT_CPU: (10, 20)}\n" + LOOP.format("name", "value"),
    "computed": "LIMITS = {'cpu': settings.seconds}\n"
    + LOOP.format("getattr(resource, f'RLIMIT_{name.upper()}')", "(value, value)"),
}
ROWS = {
    "list of pairs": "ROWS = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_CPU, 10)]\n"
    "for kind, value in ROWS:\n    resource.setrlimit(kind, (value, value))\nstep()\n",
    "written in the loop": "\nfor kind in (resource.RLIMIT_CPU, resource.RLIMIT_AS):\n"
    "    resource.setrlimit(kind, (n, n))\nstep()\n",
    "looked up": "KINDS = {'cpu': resource.RLIMIT_CPU}\nfor name, value in [('cpu', 10)]:\n"
    "    resource.setrlimit(KINDS[name], (value, value))\nstep()\n",
    "passed": "def limit(rows):\n  for name, value in sorted(rows.items()):\n"
    "    resource.setrlimit(getattr(resource, name), (value, 60))\nlimit({'RLIMIT_CPU': 10})\n",
}


@pytest.mark.parametrize("source", [*SURE.values(), *ROWS.values()], ids=[*SURE, *ROWS])
def test_line_that_sets_the_limit_by_a_table_is_named(source: str, run: Path) -> None:
    """The table has that limit, and the number that was in force or one that is computed."""
    report = ended(run, source, 4)
    assert "(RLIMIT_CPU, 10 s, line 3)" in summary(report)
    assert advice(report).startswith("Raise that limit at line 3 (`resource.setrlimit(")


OTHERS = {
    "another limit": "LIMITS = {'core': 0, 'as': 10}\n"
    + LOOP.format("getattr(resource, f'RLIMIT_{name.upper()}')", "(value, value)"),
    "another number": "LIMITS = {'cpu': 3600}\n"
    + LOOP.format("getattr(resource, f'RLIMIT_{name.upper()}')", "(value, value)"),
    "filled elsewhere": "LIMITS = {'cpu': 10}; LIMITS.update(more)\n"
    + LOOP.format("getattr(resource, name)", "(value, 3)"),
    "any name": "\n\nresource.setrlimit(getattr(resource, sys.argv[1]), (10, 10))\nstep()\n",
    "not looked up": KINDS + "\nresource.setrlimit(KINDS['core'], (10, 10))\nstep()\n",
    "two lines": "LIMITS = [resource.RLIMIT_CPU]\nfor kind in LIMITS:\n    resource.setrlimit(kind, (10, 10))\n"
    "resource.setrlimit(resource.RLIMIT_CPU, (10, 10))\nstep()\n",
}


@pytest.mark.parametrize("source", OTHERS.values(), ids=OTHERS)
def test_line_that_sets_another_limit_or_number_is_not_named(source: str, run: Path) -> None:
    """The look-alikes."""
    report = ended(run, source, 4)
    assert "(RLIMIT_CPU, 10 s)." in summary(report)
    assert "where the job is started" in advice(report)


def test_lines_of_which_one_set_the_limit_are_listed(run: Path) -> None:
    """Not only the shell of the job: which of the lines ran last is not known."""
    to_do = advice(ended(run, OTHERS["two lines"], 5))
    assert to_do.startswith("Raise that limit where it was set: line 3 and line 4 set one, or it came from where the")


CHOSEN = KINDS + "for name, value in parse(text):\n    resource.setrlimit(KINDS[name], (int(value), hard))\nstep()\n"


@pytest.mark.parametrize(
    ("seen", "sure"),
    [({}, False), ({"first_limits": {}}, True), ({"first_limits": {"cpu seconds": [10, None]}}, False)],
    ids=["unknown", "changed", "another changed"],
)
def test_line_that_sets_one_of_several_limits_is_named_as_far_as_it_is_known(
    seen: Mapping[str, object], sure: bool, run: Path
) -> None:
    """Which ones it sets is in a text; that the process got this one after it had begun was seen."""
    report = ended(run, CHOSEN, 4, seen=seen)
    assert ("10 s, line 3)" in summary(report), "10 s, perhaps set at line 3)" in summary(report)) == (sure, not sure)
    assert ("or where the job is started" in advice(report)) is not sure


def test_table_of_another_file_is_found(run: Path) -> None:
    """The program imports it."""
    run.mkdir(exist_ok=True)
    (run / "site_limits.py").write_text("LIMITS = {'cpu': 10}\n")
    os.utime(run / "site_limits.py", (1, 1))
    source = "from site_limits import LIMITS\n" + LOOP.format(
        "getattr(resource, 'RLIMIT_' + name.upper())", "(value, 60)"
    )
    assert "(RLIMIT_CPU, 10 s, line 3)" in summary(ended(run, source, 4))
