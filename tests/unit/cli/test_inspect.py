"""`pytracer inspect`, as a user runs it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support import scenarios as s
from tests.support.cli import call, clean_environment, only_line, pytracer
from tests.support.planted import leaks, planted_run
from tests.support.synth import Box, write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of one process that died of a null pointer, at runs/latest."""
    directory = tmp_path / "runs" / "1"
    (directory / "boxes").mkdir(parents=True)
    write_run(directory, Box(pid=101, ppid=99).at(500).crash(addr=0, python=s.BACKWARD[:1]))
    (tmp_path / "runs" / "latest").symlink_to("1")
    return directory


def test_latest_run_is_the_default(run: Path) -> None:
    """No RUN: runs/latest of this folder; text on stdout, nothing on stderr, status 0."""
    done = pytracer("inspect", cwd=run.parents[1])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Process 101 (train.py) ")
    assert "\x1b" not in done.stdout


def test_json_is_alone_on_stdout(run: Path) -> None:
    """--json prints one object."""
    done = pytracer("inspect", run, "--json", cwd=run)
    assert json.loads(done.stdout)["verdict"]["class"] == "null-dereference"
    assert done.stderr == ""


def test_explain_lists_the_refused_explanations(run: Path) -> None:
    """Numbered, after the report."""
    lines = pytracer("inspect", run, "--explain", cwd=run).stdout.splitlines()
    first = lines.index("Why it is nothing else, the most plausible first:")
    assert lines[first + 1].startswith(" 1. use-after-free: cannot decide: no storages were recorded")
    assert not [line for line in lines if line.startswith("Why")][1:]


def test_exit_code_tells_of_a_death(run: Path, tmp_path: Path) -> None:
    """3 with --exit-code when something died, 0 when nothing did."""
    clean = tmp_path / "clean"
    (clean / "boxes").mkdir(parents=True)
    write_run(clean, Box(pid=7, ppid=1).at(5).exit(0))
    assert pytracer("inspect", run, "--exit-code", cwd=run).returncode == 3
    assert pytracer("inspect", clean, "--exit-code", cwd=run).returncode == 0


def test_output_file_is_written_whole_and_not_overwritten(run: Path, tmp_path: Path) -> None:
    """-o refuses an existing file without --force, and leaves nothing beside it."""
    target = tmp_path / "out" / "report.txt"
    target.parent.mkdir()
    assert pytracer("inspect", run, "-o", target, cwd=run).returncode == 0
    assert target.read_text().startswith("Process 101")
    again = pytracer("inspect", run, "-o", target, cwd=run)
    assert again.returncode == 2 and "--force" in only_line(again)
    assert pytracer("inspect", run, "-o", target, "--force", "--json", cwd=run).returncode == 0
    assert json.loads(target.read_text())["version"] == 1
    assert os.listdir(target.parent) == ["report.txt"]
    assert pytracer("inspect", run, "-o", "-", cwd=run).stdout.startswith("Process 101")


def test_no_run_at_all_is_one_line(tmp_path: Path) -> None:
    """Nothing given and no runs/latest."""
    done = pytracer("inspect", cwd=tmp_path)
    assert done.returncode == 2 and "pytracer inspect RUN" in only_line(done)


def test_colour_can_be_forced(run: Path) -> None:
    """--color always, even into a pipe."""
    assert "\x1b[" in pytracer("inspect", run, "--color", "always", cwd=run).stdout


def test_columns_is_respected_in_a_pipe(run: Path) -> None:
    """No line is longer; without COLUMNS it is 100."""
    narrow = pytracer("inspect", run, cwd=run, env=clean_environment(COLUMNS="64")).stdout
    assert 0 < max(map(len, narrow.splitlines())) <= 64
    assert 64 < max(map(len, pytracer("inspect", run, cwd=run).stdout.splitlines())) <= 100


def test_rules_that_did_not_fire_have_an_option_of_their_own(run: Path) -> None:
    """--checked; --all is about processes."""
    title = "Checked, and not found:"
    assert title not in pytracer("inspect", run, "--all", cwd=run).stdout
    lines = pytracer("inspect", run, "--checked", cwd=run).stdout.splitlines()
    assert len(lines[lines.index(title) :]) > 40


def test_markdown_is_redacted_and_redact_says_what_it_removed(tmp_path: Path) -> None:
    """Everything that `inspect` prints, of a run with private values everywhere."""
    planted = planted_run(tmp_path / "run")
    shown = [("--markdown",), ("--redact",), ("--redact", "--all", "--explain", "--checked"), ("--redact", "--json")]
    for options in shown:
        done = pytracer("inspect", planted, *options, cwd=tmp_path)
        assert done.returncode == 0 and leaks(done.stdout + done.stderr) == {}, options
        assert "secrets" in done.stdout
    assert len(leaks(pytracer("inspect", planted, "--json", cwd=tmp_path).stdout)) > 20
    both = pytracer("inspect", planted, "--json", "--markdown", cwd=tmp_path)
    assert both.returncode == 2 and "--markdown" in only_line(both)
    pytest.importorskip("jinja2")
    assert pytracer("inspect", planted, "--redact", "--html", "page.html", cwd=tmp_path).returncode == 0
    assert leaks((tmp_path / "page.html").read_text()) == {}


def test_advice_is_json_or_lines_and_has_statuses_of_its_own(tmp_path: Path) -> None:
    """STOP is 12, as for the recording of a use after free; a clean run is UNKNOWN."""
    s.use_after_free(tmp_path / "run")
    done = pytracer("inspect", "run", "--advise", "--json", "--exit-code", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["advice"]) == (12, "STOP")
    text = pytracer("inspect", "run", "--advise", cwd=tmp_path)
    assert (text.returncode, text.stdout.startswith("STOP (likely): ")) == (0, True)
    s.clean(tmp_path / "clean")
    assert pytracer("inspect", "clean", "--advise", "--exit-code", cwd=tmp_path).returncode == 13


def test_output_that_is_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """As /dev/null, which --force must not turn into a file."""
    s.clean(tmp_path / "clean")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    done = pytracer("inspect", "clean", "--advise", "-o", "pipe", "--force", cwd=tmp_path)
    assert (done.returncode, os.read(reader, 7)) == (0, b"UNKNOWN")
    os.close(reader)
    assert pipe.is_fifo()


def test_html_writes_a_page_beside_the_report(run: Path, tmp_path: Path) -> None:
    """The text is printed as ever; an existing page is kept without --force, and redacted with --redact."""
    page = tmp_path / "report.html"
    done = pytracer("inspect", run, "--html", page, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("Process 101 (train.py) ")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    again = pytracer("inspect", run, "--html", page, cwd=tmp_path)
    assert again.returncode == 2 and only_line(again) == (
        f"pytracer: {page} exists; overwrite it with --force, or choose another --html FILE"
    )
    pytracer("inspect", run, "--html", page, "--force", "--redact", cwd=tmp_path)
    assert "/home/user/job" not in page.read_text(encoding="utf-8")


def test_html_needs_a_file_and_jinja2(run: Path, tmp_path: Path) -> None:
    """One line that names the next step, before anything is read."""
    assert "--html needs the name of a file" in only_line(pytracer("inspect", run, "--html", "-", cwd=tmp_path))
    program = "import sys; sys.modules['jinja2'] = None; from pytracer.cli import main; sys.exit(main())"
    done = call(sys.executable, "-c", program, "inspect", run, "--html", "page.html", cwd=tmp_path)
    assert done.returncode == 1 and only_line(done) == (
        "pytracer: --html needs jinja2, which is not installed; pip install 'pytracer[html]'"
    )
