"""A job with terminal escapes in its names: the output of `pytracer run` and of the recorder is harmless."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.conditions import needs_core, needs_native
from tests.support.cli import clean_environment
from tests.support.crash import CORE, PROGRAMS
from tests.support.hostile import assert_harmless

pytestmark = [needs_core, needs_native]

PROGRAM = PROGRAMS / "names_that_attack.py"


def on_terminal(command: list[str], cwd: Path) -> str:
    """The output of a command on its own terminal, without the carriage returns that the terminal adds."""
    master, slave = pty.openpty()
    found: list[bytes] = []

    def read() -> None:
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:  # EIO: no process has it open
                return
            if not data:
                return
            found.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    environment = clean_environment(TERM="xterm-256color", PYTHONUTF8="1")
    subprocess.run(command, cwd=cwd, stdin=slave, stdout=slave, stderr=slave, env=environment, timeout=120, check=False)
    os.close(slave)
    reader.join()
    os.close(master)
    # A progress bar, where the machine is slow: it hides the cursor, shows it again, and removes its lines.
    text = b"".join(found).decode("utf-8", "surrogateescape")
    text = re.sub(r"\x1b\[\?25l.*?\x1b\[\?25h(?:\r|\x1b\[1A|\x1b\[2K)*", "", text, flags=re.DOTALL)
    return text.replace("\r\n", "\n")


@pytest.mark.parametrize("how", ["fault", "exception", "signal", "assertion"])
@pytest.mark.quick(2)
def test_report_on_a_terminal_is_harmless(how: str, tmp_path: Path) -> None:
    """Of a real death, with colours, by `run` and `inspect`; the job's own output is not changed."""
    job = ["sh", "-c", f"exec {sys.executable} {PROGRAM} {how} 2>/dev/null"]
    pytracer = [sys.executable, "-m", "pytracer"]
    text = on_terminal([*pytracer, "run", "-o", "run\x1b[31m\nEVIL", "--", *job], tmp_path)
    assert "\nmore " in re.sub(r"\x1b\[[0-9;]*m", "", text), text  # there was a report
    assert_harmless(text, styled=True)
    for arguments in (["inspect", "--all"], ["inspect", "--json"], ["where", "fault"]):
        shown = on_terminal([*pytracer, arguments[0], "run\x1b[31m\nEVIL", *arguments[1:]], tmp_path)
        assert_harmless(shown, styled=True, least_indent=0 if "--json" in arguments else 1)
    rows = [line.split()[0] for line in re.sub(r"\x1b\[[0-9;]*m", "", text).split("\n") if re.match(r"\w", line)]
    assert rows.count("next") <= 1


def test_line_of_the_recorder_itself_is_harmless(tmp_path: Path) -> None:
    """Without a launcher the dying process names its run directory on stderr: as a word for a shell, all ASCII."""
    directory = tmp_path / "a\x1b[31m\nEVIL\u202e'b"
    environment = clean_environment(PYTRACER_DIR=str(directory), LD_PRELOAD=str(CORE))
    code = "import ctypes; ctypes.string_at(8)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=60, check=False)
    assert done.returncode == -11
    (line,) = done.stderr.decode().splitlines()
    assert_harmless(line)
    word = line.partition("pytracer inspect ")[2]
    assert word == "$'" + str(tmp_path) + r"/a\x1b[31m\x0aEVIL\xe2\x80\xae\'b'"
    read_back = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True).stdout
    assert os.fsdecode(read_back) == str(directory)


def test_reason_not_to_record_is_one_line(tmp_path: Path) -> None:
    """The Python half names a path that cannot be recorded into in the same way."""
    file = tmp_path / "f\x1b[31m\nEVIL"
    file.touch()
    code = "import sys, pytracer; pytracer.enable(sys.argv[1])"
    environment = clean_environment(TMPDIR=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", code, str(file / "below")], env=environment, capture_output=True, timeout=60, check=False
    )
    assert done.stderr.count(b"\n") == 1
    assert_harmless(done.stderr.decode())
