"""pytracer.enable() and its companions in a script that no launcher started."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.job.merge import load_job
from tests.conditions import needs_compiler, needs_core, needs_native
from tests.support.cli import pytracer
from tests.support.crash import Ended, ended, environment, line_of, own_frames, victim

pytestmark = [needs_core, needs_compiler]


def python(code: str, run: Path, **extra: str) -> Ended:
    """Runs a few lines, untraced but for what they do themselves."""
    return ended([sys.executable, "-c", code], environment(**extra), run)


def dump(done: Ended, box: str | None = None) -> Any:
    """`pytracer dump --json` of a victim's recording."""
    shown = pytracer("dump", box or done.box.path, "--json", cwd=done.run.parent)
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)


def test_plain_script_is_recorded_and_told_how_to_read_it(tmp_path: Path) -> None:
    """The default directory is in runs/, runs/latest points at it, and the last line of stderr names it."""
    done = victim("null_after_enable.py", run=tmp_path / "unused", way="untraced")
    assert done.status == -signal.SIGSEGV
    directory = Path(done.stdout.strip())
    assert directory.parent == tmp_path / "runs"
    assert (tmp_path / "runs" / "latest").resolve() == directory
    assert done.stderr.splitlines() == [
        f"pytracer: process {done.pid} died of SIGSEGV at 0x18; to see why: pytracer inspect {directory}"
    ]
    shown = pytracer("inspect", cwd=tmp_path)
    assert shown.returncode == 0
    assert "null-dereference" in shown.stdout
    assert f"null_after_enable.py:{line_of('null_after_enable.py', 'read_field(None)')}" in shown.stdout
    assert "step 17" in shown.stdout


def test_marks_and_steps_are_in_the_dump(tmp_path: Path) -> None:
    """mark() and step() appear as records, in order, and the step is the recording's own."""
    done = victim("null_after_enable.py", "light", run=tmp_path / "unused", way="untraced")
    found = dump(Ended(done.pid, done.status, "", "", Path(done.stdout.strip())))
    records = [record for record in found["records"] if record["kind"] in ("MARK", "STEP")]
    assert [record["kind"] for record in records] == ["MARK", "STEP"]
    assert records[0]["text"] == "epoch 3 begins"
    assert records[1]["step"] == 17
    assert found["header"]["step"] == 17


def test_enable_twice_is_one_line(run: Path) -> None:
    """The second call reports that it did nothing and what to do instead, and returns the same directory."""
    code = f"import pytracer; a = pytracer.enable({str(run)!r}); b = pytracer.enable('elsewhere'); print(a == b)"
    done = python(code, run)
    assert (done.status, done.stdout) == (0, "True\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"pytracer: already recording into {run}; ")
    assert "pytracer.disable()" in line
    assert not (run.parent / "elsewhere").exists()


def test_enable_below_pytracer_run_joins_that_run(run: Path) -> None:
    """Under preload enable() does not start a second recording: one file, no message, the launcher's directory."""
    done = victim("uncaught_exception.py", str(run.parent / "elsewhere"), run=run)
    assert done.status == 1
    assert not (run.parent / "elsewhere").exists()
    assert len(done.boxes) == 1
    assert "already recording" not in done.stderr


@pytest.mark.parametrize("kind", ["below-a-file", "proc", "device", "open-to-others"])
def test_directory_that_cannot_be_written_is_one_line(kind: str, run: Path) -> None:
    """The recording is in a temporary directory, which the line names; the program continues and exits with 0."""
    (run.parent / "file").write_text("in the way\n", encoding="utf-8")
    (run.parent / "open").mkdir()
    (run.parent / "open").chmod(0o777)
    wanted = {
        "below-a-file": str(run.parent / "file" / "run"),
        "proc": "/proc/1/pytracer",
        "device": "/dev/full",
        "open-to-others": str(run.parent / "open"),
    }[kind]
    spare = run.parent / "tmp"
    spare.mkdir()
    code = f"import pytracer; print(pytracer.enable({wanted!r}), pytracer.is_enabled()); print('goes on')"
    done = python(code, run, TMPDIR=str(spare))
    assert done.status == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"pytracer: cannot record into {wanted} (")
    assert "enable(directory=...)" in line
    directory, enabled, *rest = done.stdout.split()
    assert directory.startswith(str(spare))
    assert directory in line
    assert (enabled, rest) == ("True", ["goes", "on"])
    assert list(Path(directory, "boxes").glob("*.blackbox"))


def test_no_writable_directory_at_all_is_one_line(run: Path) -> None:
    """enable() returns None, the line names the variable to set, and the program continues untraced."""
    (run.parent / "file").write_text("in the way\n", encoding="utf-8")
    bad = str(run.parent / "file")
    code = (
        "import tempfile, pytracer; tempfile.tempdir = " + repr(bad) + "\n"
        f"print(pytracer.enable({bad + '/run'!r}), pytracer.is_enabled())\n"
        "pytracer.mark('x'); pytracer.step(1); pytracer.disable(); print('goes on')"
    )
    done = python(code, run)
    assert (done.status, done.stdout) == (0, "None False\ngoes on\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("pytracer: not recording: ")
    assert "PYTRACER_DIR" in line


@needs_native
@pytest.mark.slow
def test_enabled_again_records_all_that_it_did(run: Path) -> None:
    """Hooks find the calls that an earlier recording had redirected, and all report that they are installed."""
    code = (
        "import pytracer, torch\nfor _ in range(3):\n  pytracer.enable()\n  torch.ones(9).share_memory_()\n"
        "  torch.UntypedStorage(64)\n  pytracer.disable()"
    )
    done = python(code, run, PYTRACER_DIR=str(run))
    assert (done.status, done.stdout) == (0, "")
    (box,) = (run / "boxes").glob("*.blackbox")
    notes = [entry["data"] for entry in dump(done, str(box))["journal"] if entry["kind"] == "NOTE"]
    assert [note for note in notes if "not installed" in note] == []


def test_wrong_level_is_refused(run: Path) -> None:
    """Any other value is an error of the caller, whose message lists the three."""
    code = "import pytracer\ntry: pytracer.enable(level='everything')\nexcept pytracer.UsageError as e: print(e)"
    assert python(code, run).stdout == "there is no level 'everything'; use one of light, default, ops\n"


def test_uncaught_exception_is_recorded_and_printed_as_before(run: Path) -> None:
    """Exit status 1, the same traceback; the recording has type, message and the line that raised."""
    program = "uncaught_exception.py"
    plain = victim(program, run=run, way="untraced")
    done = victim(program, str(run), run=run, way="untraced")
    assert (done.status, done.stderr) == (plain.status, plain.stderr)
    assert done.status == 1
    report = done.report
    assert report.verdict is not None
    assert report.verdict.class_ == "python-exception"
    (process,) = list(report.processes or ())
    assert process.status is not None and process.status.kind == "exception"
    assert process.exception is not None and process.exception.python_stack
    assert (process.exception.type, process.exception.message) == ("RuntimeError", "no shard 7")
    assert process.exception.python_stack[0].line == line_of(program, "raise RuntimeError")
    assert [frame.function for frame in process.exception.python_stack] == ["main", "<module>"]


@needs_native
def test_torch_may_come_after_enable(run: Path) -> None:
    """The hooks are installed at the end of `import torch`; level "ops" records operators."""
    done = victim("torch_after_enable.py", str(run), run=run, way="untraced")
    assert done.status == -signal.SIGABRT
    box = done.box
    assert box.versions.torch
    assert [s.state for s in box.storages if s.nbytes == 4 * 4321] == ["live", "live"]
    lines = {s.allocated_by.python.line for s in box.storages if s.nbytes == 4 * 4321 and s.allocated_by.python}
    program = "torch_after_enable.py"
    assert lines == {line_of(program, "weights = torch"), line_of(program, "product = ")}
    assert any("mul" in str(event.data) for event in box.events if event.kind == "OP")
    assert box.crash is not None
    assert own_frames(box.crash.python_stack)[0][2] == line_of(program, "os.abort()")


@needs_native
def test_disable_gives_everything_back(run: Path) -> None:
    """Hooks, patches, handlers are as before enable(); nothing is recorded until the next enable(), which continues."""
    done = victim("disable_and_compare.py", str(run), run=run, way="untraced")
    states, quiet, resumed = (json.loads(line) for line in done.stdout.splitlines())
    assert states["after"] == states["before"]
    assert all(states["during"][name] != states["before"][name] for name in states["before"])
    assert quiet == {"recorded": True, "quiet": True, "enabled": False}
    assert resumed == {"resumed": True, "enabled": True}
    assert done.status == -signal.SIGSEGV
    assert done.stderr == ""
    box = done.box
    assert box.crash is None
    assert (box.state, box.counts["hook_errors"]) == ("DISABLED", 0)
    assert len(done.boxes) == 1


FORKS = """
import multiprocessing, os, pytracer
pytracer.enable({run!r})
def work():
    {act}
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
print(child.exitcode)
"""


@pytest.mark.parametrize(
    ("act", "status", "kind"),
    [
        ("raise ValueError('label 11')", 1, "exception"),
        ("os._exit(4)", 4, "exited"),
        ("os._exit(status=0)", 0, "exited"),
        ("os.kill(os.getpid(), 9)", -9, "signaled"),
        ("pytracer.disable(); os._exit(0)", 0, "exited"),
    ],
)
def test_forked_process_of_multiprocessing_has_its_end(act: str, status: int, kind: str, run: Path) -> None:
    """By os._exit(), which is not interposed without preload, or as its parent saw it: of one that records no more."""
    done = python(FORKS.format(run=str(run), act=act), run)
    assert (done.status, done.stdout) == (0, f"{status}\n"), done.stderr
    (child,) = (process for process in load_job(run).processes if process.snapshot.pid != done.pid)
    assert (child.status_kind, child.exit_code if status >= 0 else -(child.signal or 0)) == (kind, status)
    assert (child.exception.message if child.exception else None) == ("label 11" if kind == "exception" else None)
