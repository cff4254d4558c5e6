"""The examples of docs/guide/json.md work."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.render.json import render_json
from tests.support import scenarios as s
from tests.support.cli import call

GUIDE = Path(__file__).parents[2] / "docs/guide/json.md"
JQ = re.findall(r"```sh\n(jq .*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
PYTHON = "".join(re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL))


def test_python_examples_run_one_after_the_other(tmp_path: Path) -> None:
    """Of the demo."""
    s.use_after_free(tmp_path / "run")
    program = tmp_path / "examples.py"
    program.write_text(f"run = {str(tmp_path / 'run')!r}\n{PYTHON}\nprint(again == report, page[:15])\n")
    done = call(sys.executable, program, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("use-after-free certain Rank 1 read freed memory")
    assert "rank 1 touched ['DDP bucket 0 of model (generation 0)'" in done.stdout
    assert "freed in step 1 at " in done.stdout and "rank 1: all_reduce #2 started, " in done.stdout
    assert done.stdout.endswith("True <!doctype html>\n")


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize("command", JQ)
def test_jq_examples_print_something(command: str, tmp_path: Path) -> None:
    """Of the demo; the last rank waits, so that each has an answer."""
    text = render_json(build_report(s.use_after_free(tmp_path)))
    done = subprocess.run(["sh", "-c", command], input=text, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.strip() or "waits" in command


def test_guide_has_examples() -> None:
    """Found by the expressions above."""
    assert len(JQ) == 4 and PYTHON.count("\n") > 20
