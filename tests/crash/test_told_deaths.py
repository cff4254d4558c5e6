"""The line at the moment of a death, and the command of `run --on-death`, with real processes."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conditions import needs_core, needs_exit_by_pidfd
from tests.support.crash import environment

pytestmark = [needs_core, needs_exit_by_pidfd]

# A job that goes on after what its children do: until a line of pytracer's is on stderr, or for SECONDS.
SERVER = """
import signal, subprocess, sys, time
python = [sys.executable, "-c"]
crash = [*python, "import ctypes\\ndef read():\\n    ctypes.string_at(0)\\nread()"]
{children}
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until and "pytracer:" not in open(sys.argv[2]).read():
    time.sleep(0.1)
time.sleep(0.5)
print("told" if "pytracer:" in open(sys.argv[2]).read() else "silent", file=sys.stderr, flush=True)
"""


def serve(directory: Path, children: str, *options: str, seconds: float = 60, begin: str = "") -> tuple[int, list[str]]:
    """Runs the server; its status, and the lines on stderr until its end."""
    log = directory / "stderr"
    log.write_text(begin)
    job = [sys.executable, "-c", SERVER.format(children=children), str(seconds), str(log)]
    with open(log, "a") as stderr:
        done = subprocess.run(
            [sys.executable, "-m", "pytracer", "run", "-o", "run", *options, "--", *job],
            env=environment(), cwd=directory, stdout=subprocess.DEVNULL, stderr=stderr, timeout=120, check=False,
        )  # fmt: skip
    lines = log.read_text().splitlines()
    end = next(number for number, line in enumerate(lines) if line in ("told", "silent"))
    return done.returncode, lines[: end + 1]


def test_death_is_one_line_while_the_job_goes_on(tmp_path: Path) -> None:
    """Process, signal, line of the program, and where the report is to be had; not behind a line that has begun."""
    status, lines = serve(tmp_path, "subprocess.run(crash)", begin="epoch 1:  45%")
    assert status == 0
    assert lines[0] == "epoch 1:  45%"
    assert lines[1].startswith("pytracer: process ")
    assert lines[1].endswith(" died of SIGSEGV at <string>:3 in read; `pytracer inspect run` has the report")
    assert lines[2:] == ["told"]


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "child",
    [
        'subprocess.Popen([*python, "import time; time.sleep(60)"]).terminate()',
        'subprocess.run([*python, "raise SystemExit(3)"])',
        'subprocess.run([*python, "import no_such_module"], stderr=subprocess.DEVNULL)',
        'subprocess.run(["sh", "-c", "kill -SEGV $$"])',
    ],
    ids=["terminated", "status", "probe", "tool"],
)
def test_orderly_ends_and_tools_are_no_line(child: str, tmp_path: Path) -> None:
    """Their parents get the status."""
    assert serve(tmp_path, child, seconds=5) == (0, ["silent"])


@pytest.mark.slow
def test_lines_can_be_switched_off(tmp_path: Path) -> None:
    """The report at the end is the same."""
    assert serve(tmp_path, "subprocess.run(crash)", "--no-death-lines", seconds=5) == (0, ["silent"])


TOLD = """
import re
for child in [subprocess.Popen(crash) for _ in range(8)]: child.wait()
told, end = 0, time.monotonic() + 60
while told < 8 and time.monotonic() < end:
    time.sleep(0.1)
    text = open(sys.argv[2]).read()
    told = text.count(" died of SIGSEGV ") + sum(map(int, re.findall(r"pytracer: (\\d+) more process", text)))
print("all of them" if told == 8 else f"{told} of them", file=sys.stderr, flush=True)
"""


@pytest.mark.slow
def test_deaths_at_once_are_three_lines_and_a_count(tmp_path: Path) -> None:
    """Eight workers that die together do not hide what else is printed, and each is counted."""
    status, lines = serve(tmp_path, TOLD)
    assert status == 0
    assert "all of them" in lines
    assert sum(line.startswith("pytracer: process") for line in lines) <= 6


@pytest.mark.slow
def test_command_gets_the_report_of_each_death(tmp_path: Path) -> None:
    """The verdict is about the process that died then, also that of the last one, and of the job itself."""
    children = "subprocess.run(crash)\ntime.sleep(8)\nexec(crash[2])"
    program = "import json, sys; print('got', json.dumps(json.load(sys.stdin)['verdict']))"
    command = shlex.join([sys.executable, "-c", program])
    done = subprocess.run(
        [sys.executable, "-m", "pytracer", "run", "-o", "run", "--on-death", f"{command}; exit 3", "--",
         sys.executable, "-c", SERVER.format(children=children), "0", "none"],
        env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    verdicts = [json.loads(line[4:]) for line in done.stderr.splitlines() if line.startswith("got ")]
    assert done.returncode == 139
    assert done.stdout == ""
    assert [verdict["class"] for verdict in verdicts] == ["null-dereference", "null-dereference"]
    assert len({verdict["pid"] for verdict in verdicts}) == 2
    assert done.stderr.count("pytracer: the command of --on-death exited with status 3\n") == 2
