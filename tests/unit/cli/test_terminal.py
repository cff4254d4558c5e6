"""All output of the command line passes through one module, which makes it harmless."""

from __future__ import annotations

import ast
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pytracer
from pytracer.cli.checks.answer import Check
from pytracer.cli.doctor import table
from pytracer.cli.terminal import folded, say, show
from tests.support.cli import call
from tests.support.cli import pytracer as run_pytracer
from tests.support.hostile import TEXT, assert_harmless
from tests.support.synth import Box, write_run

PACKAGE = Path(pytracer.__file__).parent
WRITERS = {"cli/terminal.py", "record/api.py", "record/relayed.py"}  # the second one has one line, made printable there
BYTES = TEXT.encode("utf-8", "replace").decode()  # what a file in UTF-8 can hold
NAME = "\x1b[31mX\n\u202eevil"
FRAME = (f"f{BYTES}", f"/x/{BYTES}.py", 9)


def _prints(tree: ast.AST) -> list[int]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in ("print", "click.echo", "click.secho", "traceback.print_exc") or name.endswith(
                ("stdout.write", "stderr.write", "stdout.writelines", "stderr.writelines")
            ):
                found.append(node.lineno)
    return found


def test_nothing_prints_past_the_terminal_module() -> None:
    """A new printer that writes to a stream itself fails here."""
    passed = {
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in PACKAGE.rglob("*.py")
        for line in _prints(ast.parse(path.read_text()))
    }
    trials = {item for item in passed if item.startswith("cli/checks/trials.py:")}  # a child of doctor's, read by it
    assert {item.split(":")[0] for item in passed - trials} <= WRITERS


def test_what_is_left_is_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    """The last safeguard of all printers."""
    show(f"line\n{TEXT}\n")
    assert "\x1b" not in capsys.readouterr().out
    show(f"\x1b[31mred\x1b[0m{TEXT}\n", styled=True)
    out = capsys.readouterr().out
    assert out.startswith("\x1b[31mred\x1b[0m")
    assert "\x1b]" not in out
    assert "\x1b[2J" not in out


def test_line_about_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, with escapes."""
    say(TEXT)
    assert_harmless(capsys.readouterr().err)


def test_letters_that_the_terminal_lacks_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of another encoding is no reason to fail."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", out)
    show("Größe \u6f22\n")
    assert out.buffer.getvalue() == b"Gr\xf6\xdfe \\u6f22\n"


def test_long_line_goes_on_indented_on_a_terminal() -> None:
    """Where the terminal would break it, wide characters counted; short lines stay."""
    text = "ab\n  " + "x" * 30 + "\u6f22" * 5 + "END\n"
    assert folded(text, 40).split("\n") == ["ab", "  " + "x" * 30 + "\u6f22" * 4, "      \u6f22END", ""]
    assert folded(text, 100) == text
    marks = "a\u0301" * 50
    assert folded(marks, 60) == marks


def test_doctor_prints_harmless_rows() -> None:
    """Output of tools and children is in its table."""
    assert_harmless(table([Check("id", "works", TEXT, TEXT, False)], 80) + "\n", least_indent=0)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose every text is an attack."""
    box = Box(rank=0, argv=["python", BYTES], host="node0", environment={"SLURM_JOB_ID": NAME, "LD_PRELOAD": BYTES})
    box.thread(555, NAME[:15]).note(BYTES).versions(torch=BYTES, python="3.11", cuda=None).hook(BYTES, BYTES)
    box.group(BYTES, [0, 1], description=BYTES).mark(BYTES[:60]).alloc(0x7F0000000000, 4096, by=FRAME)
    box.module(BYTES, [{"fqn": BYTES, "addr": 0x7F0000000000, "nbytes": 64}], cls=BYTES)
    box.collective(NAME, addr=0x7F0000000000, nbytes=64).event("OP", NAME).free(0x7F0000000000, by=BYTES)
    box.exception(BYTES, BYTES, [FRAME]).signal_seen(15, 77, [BYTES])
    box.at(500).crash(
        addr=0x7F0000000010, python=[FRAME], native=[(f"/x/{BYTES}.so", 0x1100)], node=BYTES,
        mappings=[(0x7F1000000000, 0x7F1000001000, "r-xp", 0, f"/x/{NAME}")],
    )  # fmt: skip
    directory = tmp_path_factory.mktemp("run") / "\x1b[31mrun\nEVIL"
    return write_run(directory, box, launcher={"command": ["python", BYTES], "cwd": BYTES, "host": BYTES})


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect"],
        ["inspect", "--all"], ["inspect", "--color", "always", "--all"], ["where", "fault", "stack+0x8"],
        ["inspect", "--markdown"], ["inspect", "--redact", "--all", "--checked"], ["pack"], ["runs"],
        ["pack", "-o", "/\x1b[31m\nEVIL/x"], ["diff", "/\x1b[31m\nEVIL"],
        ["dump"], ["dump", "--kind", "mappings"], ["attach"],
        ["-vv", "where", "0xzz\x1b[31m\nEVIL"], ["inspect", "-o", "/\x1b[31m\nEVIL/x"],
        ["dump", "--flight-recorder", "out\x1b[31m\nEVIL"], ["\x1b[31m\nEVIL"], ["run", "--", "/\x1b[31m\nEVIL"],
        ["run", "--guard=\x1b[31m\nEVIL", "--", "true"], ["-vv", "dump", "\x1b[31m\nEVIL"],
    ],
)  # fmt: skip
def test_every_command_prints_harmless_text(run: Path, tmp_path: Path, arguments: list[str]) -> None:
    """Reports, raw records, live reports and error lines, also with internal tracebacks."""
    subject = next(run.glob("boxes/*")) if "dump" in arguments and "--flight-recorder" not in arguments else run
    given = list(arguments)
    if "run" not in given and not given[0].startswith("\x1b"):
        given.insert(given.index(next(word for word in given if word.isalpha())) + 1, str(subject))
    done = run_pytracer(*given, cwd=tmp_path)
    assert done.stdout or done.stderr
    assert_harmless(done.stdout, styled="always" in given)
    assert_harmless(done.stderr)


@pytest.mark.parametrize("arguments", [["inspect", "--json"], ["where", "fault", "--json"], ["dump", "--json"]])
def test_json_is_ascii_and_the_data_exact(run: Path, tmp_path: Path, arguments: list[str]) -> None:
    """On a terminal it is as harmless, for a parser it has the recorded values."""
    subject = next(run.glob("boxes/*")) if "dump" in arguments else run
    done = run_pytracer(arguments[0], str(subject), *arguments[1:], cwd=tmp_path)
    assert all(char == "\n" or " " <= char <= "~" for char in done.stdout)
    assert any("\x1b[31m" in text for text in _strings(json.loads(done.stdout)))


@pytest.mark.parametrize(("closed", "status"), [("2>&-", 0), (">&-", 1), (">&- 2>&-", 1)])
def test_closed_stream_is_no_traceback(run: Path, tmp_path: Path, closed: str, status: int) -> None:
    """One line where there is a stderr, else nothing; a written report is a success."""
    command = f'exec {sys.executable} -m pytracer inspect "$0" {closed}'
    done = call("sh", "-c", command, str(run), cwd=tmp_path)
    assert done.returncode == status
    assert done.stderr.count("\n") == (closed == ">&-")
    assert "Traceback" not in done.stderr


def test_path_that_is_no_text_is_no_reason_to_fail(run: Path, tmp_path: Path) -> None:
    """Names of files are bytes; JSON holds them as Python does, and text shows them."""
    odd = tmp_path / os.fsdecode(b"r\xff\xc3\xa9")
    shutil.copytree(run, odd)
    for arguments in (["inspect"], ["inspect", "--all"], ["dump"]):
        subject = odd / "boxes" / os.fsdecode(b"\xff.blackbox") if "dump" in arguments else odd
        if "dump" in arguments:
            next(odd.glob("boxes/*")).rename(subject)
        for more in ([], ["--json"]):
            done = run_pytracer(arguments[0], str(subject), *arguments[1:], *more, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            assert "\\xff" in done.stdout or "\\udcff" in done.stdout
            assert not more or json.loads(done.stdout)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for item in pair for text in _strings(item))
    elif isinstance(value, list):
        yield from (text for item in value for text in _strings(item))


@pytest.mark.parametrize(
    ("before", "after"), [("", "pytracer: dead\n"), ("job\n", "pytracer: dead\n"), ("45%", "\npytracer: dead\n")]
)
def test_line_beside_the_job_begins_a_line_of_the_file(before: str, after: str, tmp_path: Path) -> None:
    """What the job has begun to write is not continued; a complete line is followed by no empty one."""
    path = tmp_path / "log"
    path.write_text(before)
    with open(path, "a") as log:
        program = "from pytracer.cli.terminal import interject; interject('dead')"
        subprocess.run([sys.executable, "-c", program], stderr=log, cwd=PACKAGE.parent, check=True)
    assert path.read_text() == before + after


def test_line_beside_the_job_begins_a_line_of_a_pipe() -> None:
    """What was written before is not known there."""
    program = "from pytracer.cli.terminal import interject; interject('de\\x1bad')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=PACKAGE.parent, check=True
    )
    assert done.stderr == "\npytracer: de\\x1bad\n"
