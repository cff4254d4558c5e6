"""Secrets of a command line are nowhere in the run directory, and reports have the count of redactions."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pytracer.analyze.engine import build_report
from pytracer.decode.job.merge import load_job
from pytracer.render.text import render_text
from tests.conditions import needs_core
from tests.support.cli import clean_environment, pytracer
from tests.support.secrets import GHP, SECRET
from tests.support.synth import Box, write_run

CODE = "import ctypes, sys; assert len(sys.argv[1]) > 9; ctypes.string_at(8)"


@needs_core
def test_no_file_of_a_run_holds_a_secret_of_the_command_line(tmp_path: Path) -> None:
    """The program gets its unchanged command line; recordings, run.json, report.json and output do not."""
    job = [sys.executable, "-c", CODE, f"--api-key={SECRET}", "--lr", "1", f"https://u:{SECRET}@h", GHP]
    environment = clean_environment(SLURM_JWT=SECRET, HF_TOKEN=SECRET, NCCL_DEBUG="WARN")
    done = pytracer("run", "-o", "run", "--", *job, cwd=tmp_path, env=environment)
    assert done.returncode == 128 + 11, done.stderr
    shown = pytracer("inspect", "run", "--all", cwd=tmp_path)
    assert "3 secrets left out of what was recorded" in shown.stdout
    assert "'--api-key=***' --lr 1 'https://u:***@h' '***'" in shown.stdout
    written = [path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(written) > 2
    for content in (*written, done.stderr.encode(), shown.stdout.encode()):
        assert SECRET.encode() not in content
        assert GHP.encode() not in content
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (run["redacted"], run["command"][-1]) == (3, "***")
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["run"]["redacted"] == 3
    assert [process["redacted"] for process in report["processes"]] == [3]
    assert report["counts"]["redacted"] == 3
    assert report["processes"][0]["environment"]["NCCL_DEBUG"] == "WARN"


def test_number_of_secrets_is_in_the_details_only_when_there_were_some(tmp_path: Path) -> None:
    """As the header of a recording counts them."""
    for count, words in ((0, None), (1, "1 secret left out"), (2, "2 secrets left out")):
        box = Box().count(redacted=count).at(10).exit(1)
        report = build_report(load_job(write_run(tmp_path / str(count), box)))
        assert report.processes is not None
        assert report.processes[0].redacted == count
        text = render_text(report, everything=True)
        assert words in text if words else "left out" not in text
