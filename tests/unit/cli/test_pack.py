"""`pytracer pack`: a run in one file, which any machine reads as the one where it was made."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.conditions import needs_compiler, needs_core
from tests.support.cli import clean_environment, only_line, pytracer
from tests.support.planted import PRIVATE, leaks, planted_run
from tests.support.synth import Box, write_run

VICTIM = (
    "int victim_reads(volatile int *p) { return *p; }\nint victim_calls(volatile int *p) { return victim_reads(p); }\n"
)
PROGRAM = """\
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
def step():
    library.victim_calls(ctypes.c_void_p(24))  # the address is wrong
step()
"""


def report(path: str | Path, cwd: Path, *options: str, **more: Any) -> dict[str, Any]:
    done = pytracer("inspect", path, "--json", *options, cwd=cwd, **more)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def functions(found: dict[str, Any]) -> list[Any]:
    return [frame["function"] for frame in found["processes"][0]["native_stack"]]


@needs_core
@needs_compiler
def test_bundle_is_read_alike_where_neither_program_nor_libraries_exist(tmp_path: Path) -> None:
    """Same verdict, same function names, same lines; torch cannot be imported there; analyzed again, too."""
    program = tmp_path / "program"
    program.mkdir()
    (program / "victim.c").write_text(VICTIM)
    library = program / "libvictim.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O0", "-Wl,--build-id", "-o", library, program / "victim.c"], check=True)
    (program / "train.py").write_text(PROGRAM)
    run = pytracer("run", "-o", "run", "--", sys.executable, str(program / "train.py"), str(library), cwd=tmp_path)
    assert run.returncode == 128 + 11, run.stderr
    here = report("run", tmp_path)
    assert functions(here)[:2] == ["victim_reads", "victim_calls"]
    packed = pytracer("pack", "run", "--sources", cwd=tmp_path)
    assert packed.returncode == 0 and packed.stdout.startswith("run.pytracer: "), packed.stderr
    boxes = sum(path.stat().st_size for path in (tmp_path / "run" / "boxes").iterdir())
    assert (tmp_path / "run.pytracer").stat().st_size <= boxes / 10
    shutil.rmtree(program)
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    there = clean_environment()
    there["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{there['PYTHONPATH']}"
    read = report("run.pytracer", tmp_path, env=there)
    assert read["verdict"] == here["verdict"]
    assert functions(read) == functions(here)
    assert read["findings"] == here["findings"]
    again = report("run.pytracer", tmp_path, "--again", env=there)
    assert again["verdict"]["summary"] == here["verdict"]["summary"]
    assert functions(again)[:2] == ["victim_reads", "victim_calls"]
    text = pytracer("inspect", "run.pytracer", cwd=tmp_path, env=there).stdout
    assert ">    4      library.victim_calls(ctypes.c_void_p(24))  # the address is wrong" in text
    explained = pytracer("where", "run.pytracer", "fault", cwd=tmp_path, env=there)
    assert explained.returncode == 0 and "0x18" in explained.stdout


def test_target_that_is_no_regular_file_is_refused_and_stays(planted: Path, tmp_path: Path) -> None:
    """Renaming a bundle onto /dev/null would replace the device for everybody."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = pytracer("pack", str(planted), "-o", str(pipe), "--force", cwd=tmp_path)
    assert done.returncode == 2 and f"{pipe} is no regular file" in done.stderr, done.stderr
    assert pipe.is_fifo()


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    return planted_run(tmp_path / "run")


def test_redacted_bundle_holds_no_private_value(planted: Path, tmp_path: Path) -> None:
    """The recordings, in which nothing can be redacted, are left out; what was removed from the report is said."""
    done = pytracer("pack", planted, "--redact", "-o", "shared.pytracer", cwd=tmp_path)
    assert done.returncode == 0 and "redacted: " in done.stdout and "secrets" in done.stdout
    with zipfile.ZipFile(tmp_path / "shared.pytracer") as archive:
        assert archive.namelist() == ["manifest.json", "report.json"]
        for name in archive.namelist():
            assert leaks(archive.read(name).decode()) == {}
    for options in ((), ("--all", "--explain", "--checked"), ("--json",), ("--markdown",)):
        shown = pytracer("inspect", "shared.pytracer", *options, cwd=tmp_path)
        assert shown.returncode == 0 and leaks(shown.stdout) == {}
    refused = pytracer("where", "shared.pytracer", "fault", cwd=tmp_path)
    assert refused.returncode == 1 and "redacted" in only_line(refused)


def test_bundle_that_is_not_redacted_is_redacted_when_it_is_shown(planted: Path, tmp_path: Path) -> None:
    """`inspect BUNDLE --redact`, as of a run."""
    assert pytracer("pack", planted, "-o", "all.pytracer", cwd=tmp_path).returncode == 0
    assert len(leaks(json.dumps(report("all.pytracer", tmp_path)))) == len(PRIVATE)
    assert leaks(json.dumps(report("all.pytracer", tmp_path, "--redact"))) == {}


def test_existing_file_stays_and_wrong_arguments_are_one_line(tmp_path: Path) -> None:
    """--force overwrites; a bundle is not packed again; one recording is no run."""
    run = write_run(tmp_path / "run", Box(pid=7).at(5).exit(0), launcher={})
    assert pytracer("pack", run, cwd=tmp_path).returncode == 0
    again = pytracer("pack", run, cwd=tmp_path)
    assert again.returncode == 2 and "--force" in only_line(again)
    assert pytracer("pack", run, "--force", cwd=tmp_path).returncode == 0
    for wrong in ("run.pytracer", "run/boxes/node0.7.blackbox", "missing"):
        done = pytracer("pack", wrong, "-o", "other.pytracer", cwd=tmp_path)
        assert done.returncode == 2 and only_line(done)
    assert sorted(os.listdir(tmp_path)) == ["run", "run.pytracer"]
    assert (tmp_path / "run.pytracer").stat().st_mode & 0o777 == 0o600


def test_source_newer_than_the_run_is_left_out(tmp_path: Path) -> None:
    """Its lines may be others than those that ran; how many lines are missing is said."""
    source = tmp_path / "train.py"
    source.write_text("first\nsecond\nthird\n")
    frames = [("main", str(source), 2)]
    run = write_run(tmp_path / "run", Box(pid=7).at(5).crash(python=frames), launcher={})
    done = pytracer("pack", run, "--sources", "-o", "new.pytracer", cwd=tmp_path)
    assert "1 line of source not found, or newer than the run" in done.stdout
    os.utime(source, (0, 0))
    assert pytracer("pack", run, "--sources", "-o", "old.pytracer", cwd=tmp_path).returncode == 0
    (snippet,) = report("old.pytracer", tmp_path)["sources"]
    assert (snippet["line"], snippet["first_line"], snippet["lines"]) == (2, 1, ["first", "second", "third"])
    assert report("new.pytracer", tmp_path)["sources"] == []
